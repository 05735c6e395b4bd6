"""Messages as programs see them, without a client."""

from __future__ import annotations

from typing import cast

import pytest

from mesh.clients.feeds import Run, Token
from mesh.clients.messages import (
    Batch,
    Delivery,
    Request,
    deliveries,
    keep_sound,
)
from mesh.errors import MeshError
from mesh.wire.blocks import pack_headers
from mesh.wire.session_frames import Status


class FakeConsumer:
    def __init__(self) -> None:
        self.dropped = 0
        self.malformed = 0
        self.late = 0
        self.here = True
        """True if the connection of its questions is still there."""
        self.did: list[tuple[object, ...]] = []

    def redeliver(self, delivery: Delivery, after: float) -> None:
        self.did.append((delivery, after))

    def answer(self, token: Token, body: bytes, status: int) -> bool:
        if len(body) > 1000:
            raise ValueError("above the limit")
        self.did.append((token.number, body, status))
        return self.here

    def extend(self, token: Token, seconds: float) -> bool:
        self.did.append((token.number, seconds))
        return self.here


def run_of(*bodies: bytes, headers: list[bytes] | None = None, tokens: list[int] | None = None) -> Run:
    run = Run(1)
    run.topics, run.bodies, run.headers = ["t"] * len(bodies), list(bodies), headers
    run.tokens = None if tokens is None else [Token(1, number) for number in tokens]
    return run


def test_a_batch_is_pairs_headers_and_deliveries() -> None:
    headed = run_of(b"a", b"b", headers=[b"", pack_headers({"key": "k", "n": 1})])
    batch = Batch(headed, FakeConsumer())
    assert list(batch) == [("t", b"a"), ("t", b"b")] and len(batch) == 2
    assert batch.headers == [{}, {"key": "k", "n": 1}]
    plain, keyed = batch.deliveries()
    assert (plain.key, keyed.key, keyed.body, keyed.attempt) == (None, "k", b"b", 1)
    assert "attempt 1" in repr(plain)


def test_messages_with_unreadable_headers_are_counted_and_the_rest_is_kept() -> None:
    good, consumer = pack_headers({"n": 1}), FakeConsumer()
    run = run_of(b"a", b"b", b"c", b"d", headers=[good, b"\xc1", b"", b"\x91\x01"])
    assert keep_sound(run, consumer)
    assert [(one.body, one.headers) for one in deliveries(run, consumer)] == [(b"a", {"n": 1}), (b"c", {})]
    assert Batch(run, consumer).headers == [{"n": 1}, {}] and len(run.topics) == 2
    assert (consumer.malformed, consumer.did) == (2, [])
    assert not keep_sound(run_of(b"b", headers=[b"\xc1"]), consumer)
    assert consumer.malformed == 3


def test_a_run_without_headers_and_one_with_good_ones_are_left_as_they_are() -> None:
    consumer, good = FakeConsumer(), pack_headers({"n": 1})
    for run in (
        run_of(b"a"),
        run_of(b"a", headers=[b""], tokens=[1]),
        run_of(b"a", b"b", headers=[b"", good]),
    ):
        before = (run.topics, run.bodies, run.headers, run.tokens)
        assert keep_sound(run, consumer)
        assert all(
            now is then for now, then in zip((run.topics, run.bodies, run.headers), before, strict=False)
        )
    assert not keep_sound(run_of(), consumer)
    assert consumer.malformed == 0


def test_a_request_with_unreadable_headers_is_refused_with_the_reason() -> None:
    consumer = FakeConsumer()
    run = run_of(b"a", b"b", headers=[b"\x81\x01\x02", pack_headers({"n": 1})], tokens=[5, 6])
    assert keep_sound(run, consumer)
    (question,) = deliveries(run, consumer)
    question.done(b"answer")
    (refused, reason, status), answered = consumer.did
    assert (refused, status) == (5, Status.DROPPED) and b"not msgpack" in cast(bytes, reason)
    assert answered == (6, b"answer", Status.OK) and consumer.malformed == 1


def test_published_messages_take_no_result_and_come_back_on_retry() -> None:
    consumer = FakeConsumer()
    (delivery,) = deliveries(run_of(b"a"), consumer)
    delivery.done()
    delivery.extend()
    with pytest.raises(MeshError, match="nobody waits"):
        delivery.done(b"result")
    delivery.drop("bad")
    assert consumer.dropped == 1
    delivery.retry(2.0)
    again, after = consumer.did[0]
    assert isinstance(again, Delivery) and (again.attempt, again.body, after) == (2, b"a", 2.0)
    again.retry()
    third = consumer.did[1][0]
    assert isinstance(third, Delivery) and third.attempt == 3


def test_a_request_is_answered_once_even_after_a_retry() -> None:
    consumer = FakeConsumer()
    answered, refused = deliveries(run_of(b"a", b"b", tokens=[5, 6]), consumer)
    assert isinstance(answered, Request) and answered.is_request
    answered.extend(3.0)
    answered.retry(1.0)
    again = consumer.did[1][0]
    assert isinstance(again, Delivery) and again.is_request
    again.extend(4.0)
    again.done(bytearray(b"x"))
    with pytest.raises(MeshError, match="already"):
        answered.drop("late")
    refused.drop("no")
    assert consumer.did[0] == (5, 3.0) and consumer.did[2] == (5, 4.0)
    assert consumer.did[3:] == [(5, b"x", Status.OK), (6, b"no", Status.DROPPED)]


def test_settling_calls_return_whether_the_broker_was_told() -> None:
    consumer = FakeConsumer()
    (plain,) = deliveries(run_of(b"a"), consumer)
    assert (plain.done(), plain.extend(), plain.drop()) == (True, True, True)
    for here in (True, False):
        consumer.here = here
        answered, refused = deliveries(run_of(b"a", b"b", tokens=[5, 6]), consumer)
        answered.retry()
        again = consumer.did[-1][0]
        assert isinstance(again, Delivery)
        assert (again.extend(), again.done(b"x"), refused.extend(), refused.drop()) == (here,) * 4
        with pytest.raises(MeshError, match="already"):
            answered.done(b"x")
    assert consumer.dropped == 3


def test_an_answer_that_is_too_large_can_be_replaced_by_another() -> None:
    """It counted as given, so that its asker waited for nothing."""
    consumer = FakeConsumer()
    (question,) = deliveries(run_of(b"a", tokens=[5]), consumer)
    with pytest.raises(ValueError, match="limit"):
        question.done(bytes(2000))
    assert question.drop("too large") and consumer.did == [(5, b"too large", Status.DROPPED)]
    with pytest.raises(MeshError, match="already"):
        question.drop("again")
    assert consumer.dropped == 1


def test_wrong_arguments_of_settling_calls_are_errors_and_change_nothing() -> None:
    consumer = FakeConsumer()
    plain, question = *deliveries(run_of(b"a"), consumer), *deliveries(run_of(b"a", tokens=[7]), consumer)
    for wrong in (
        lambda: plain.retry("soon"),  # type: ignore[arg-type]
        lambda: plain.retry(-1.0),
        lambda: question.extend(None),  # type: ignore[arg-type]
        lambda: question.drop(5),  # type: ignore[arg-type]
        lambda: question.done("text"),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError), match="seconds|str|bytes"):
            wrong()
    assert consumer.did == [] and consumer.dropped == 0
    assert question.done(b"text")


def test_is_request_and_the_attempt_survive_a_retry() -> None:
    consumer = FakeConsumer()
    (plain,) = deliveries(run_of(b"a"), consumer)
    (question,) = deliveries(run_of(b"a", headers=[b""], tokens=[7]), consumer)
    assert (plain.is_request, question.is_request) == (False, True)
    for delivery in (plain, question):
        delivery.retry(2.0)
        again, after = consumer.did[-1]
        assert isinstance(again, Delivery) and after == 2.0
        assert (again.is_request, again.attempt) == (delivery.is_request, 2)
        delivery.retry()
        assert consumer.did[-1][1] == 0.0, "at once"
