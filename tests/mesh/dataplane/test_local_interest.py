"""A broker's own interest: counted by role, announced once a turn, confirmed when every broker knows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from mesh.dataplane import local_interest
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.sessions import ClientSubscription, Session
from mesh.wire.capabilities import SESSION, Agreed
from mesh.wire.session_frames import Keepalive, Kind, Role, decode, encode
from mesh.wire.session_opening import SECRET_SIZE, hello

from .neighbourhood import FakeClient, FakeMesh, FakePipe, Node, client_port, stranger


class Told:
    """Counts announcements; each one is a new version."""

    def __init__(self) -> None:
        self.told: list[tuple[list[tuple[str, int]], list[str]]] = []

    def __call__(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        self.told.append((added, removed))
        return len(self.told)


def session() -> Session:
    return Session(
        1,
        client_port(),
        b"\x80\0\0\1",
        name="",
        agreed=Agreed(1, frozenset()),
        publisher=Publishers(10).get(1, 1),
        keepalive=Keepalive(0.0, 0.0),
        options=ExchangeOptions(),
        guest=stranger(),
    )


def subscription(one: Session, number: int) -> ClientSubscription:
    return ClientSubscription(one, number, ["t"], Role.LISTEN, ExchangeOptions(), 0.0)


def confirmed(one: Session) -> list[tuple[int, list[str]]]:
    frames = [decode(frame, 4) for frame in one.port.ready]
    one.port.ready.clear()
    assert all(frame[0] == Kind.SUBSCRIBED for frame in frames)
    return [(frame[1], frame[2]) for frame in frames]


def test_a_pattern_is_wanted_until_the_last_one_leaves_and_answers_outrank_listening() -> None:
    tell = Told()
    interest = LocalInterest(tell)
    interest.add(["a", "b"], Role.LISTEN)
    interest.add(["a"], Role.ANSWERS)
    assert list(interest.patterns) == ["a", "b"]
    interest.remove(["a"], Role.ANSWERS)
    interest.remove(["b"], Role.LISTEN)
    interest.flush()
    interest.flush()
    assert tell.told == [([("a", Role.LISTEN)], [])], "once a turn, and not when nothing changed"
    interest.add(["a"], Role.ANSWERS)
    interest.add(["c"], Role.LISTEN)
    interest.flush()
    interest.remove(["a", "c"], Role.LISTEN)
    interest.remove(["a"], Role.ANSWERS)
    interest.add(["c"], Role.LISTEN)
    interest.flush()
    changes = [([("a", Role.ANSWERS), ("c", Role.LISTEN)], []), ([], ["a"])]
    assert tell.told[1:] == changes, "what differs from what was told"


def test_a_subscription_is_confirmed_by_the_version_announced_after_it_and_by_no_earlier_one() -> None:
    interest = LocalInterest(Told())
    early, late = session(), session()
    interest.confirm(subscription(early, 1))
    interest.flush()
    interest.confirm(subscription(late, 2))
    interest.flush()
    interest.reached(1, ["gone"])
    assert confirmed(early) == [(1, ["gone"])] and confirmed(late) == []
    interest.confirm(subscription(late, 3))
    interest.reached(2, [])
    assert confirmed(late) == [(2, [])], "3 has not even been told"
    interest.flush()
    interest.reached(3, [])
    assert confirmed(late) == [(3, [])]


@pytest.mark.parametrize("told", [True, False])
def test_a_subscription_that_is_over_is_not_confirmed(told: bool) -> None:
    interest, one = LocalInterest(Told()), session()
    ended, kept = subscription(one, 1), subscription(one, 2)
    for each in (ended, kept):
        interest.confirm(each)
    if told:
        interest.flush()
    interest.forget(ended)
    interest.flush()
    interest.reached(1, [])
    assert confirmed(one) == [(2, [])]


def waiting_node(*clients: str) -> tuple[Node, list[FakeClient]]:
    """Another broker hangs, so that no subscription is confirmed."""
    mesh = FakeMesh(2)
    made = [mesh.client(1, name) for name in clients]
    node = mesh.nodes[1]
    node.hold_barrier = True
    return node, made


def feed(client: FakeClient, *frames: bytes) -> None:
    client.node.exchange.client_frames(client.pipe, [client.conversation.prefix + f for f in frames], 0.0)


def subscribe(number: int, pattern: str) -> bytes:
    return encode(Kind.SUBSCRIBE, number, [pattern], Role.LISTEN, 10, 10_000)


def test_a_reused_subscription_number_is_confirmed_by_its_own_version() -> None:
    """An earlier subscription with the same number confirmed it, since every broker knew that one."""
    node, (client,) = waiting_node("one")
    feed(client, subscribe(1, "a"))
    first = node.version
    feed(client, encode(Kind.UNSUBSCRIBE, 1), subscribe(1, "b"))
    node.exchange.barrier_reached(first)
    assert not client.pipe.data
    node.exchange.barrier_reached(node.version)
    (frame,) = client.pipe.data
    assert decode(frame, 4)[:2] == [Kind.SUBSCRIBED, 1]


def test_repeated_subscribing_and_unsubscribing_leaves_no_pending_confirmations() -> None:
    """Each waited until the other brokers knew it, however many there were."""
    node, (client,) = waiting_node("one")
    for number in range(1, 500):
        feed(client, subscribe(number, "a"), encode(Kind.UNSUBSCRIBE, number))
    assert not node.exchange._interest._waiting


def test_the_cost_of_ending_many_sessions_is_linear_in_their_pending_confirmations() -> None:
    """Each session's end copied the list of everything that waited: 3 s for a connection with a thousand
    sessions."""
    node = FakeMesh(2).nodes[1]
    node.hold_barrier = True
    pipe, sessions, each = FakePipe(), 100, 15
    for number in range(sessions):
        prefix = number.to_bytes(4, "big") + b"\x80\0\0\1"
        opening = hello(SESSION, number.to_bytes(SECRET_SIZE, "big"), 7, "c", 0.0)
        frames = [opening, *(subscribe(place + 1, "a") for place in range(each))]
        node.exchange.client_frames(pipe, [prefix + frame for frame in frames], 0.0)
    with lines_run(local_interest.__file__) as lines:
        node.exchange.client_gone(pipe, 0.0)
    assert 0 < len(lines) < 20 * sessions * each
    node.exchange.barrier_reached(node.version)


@contextmanager
def lines_run(file: str) -> Iterator[list[int]]:
    """The numbers of the lines of a file that run."""
    lines: list[int] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def test_the_cost_of_a_barrier_depends_on_the_subscriptions_it_confirms() -> None:
    """Each barrier looked at everything that waited: 30 000 subscriptions, confirmed one by one, stopped a
    loop for six seconds."""
    looks = 0

    class Version(int):
        def __gt__(self, other: int) -> bool:
            nonlocal looks
            looks += 1
            return int(self) > other

        def __le__(self, other: int) -> bool:
            return not self > other

    versions = iter(range(1, 501))
    interest, one = LocalInterest(lambda added, removed: Version(next(versions))), session()
    for number in range(1, 501):
        interest.confirm(subscription(one, number))
        interest.flush()
    for version in range(1, 501):
        interest.reached(version, [])
    assert [number for number, _ in confirmed(one)] == list(range(1, 501))
    assert looks <= 1000
