"""The bounds of one client and the sentences of refusals; other clients are not affected."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.broker.stock import LastOpened, StockEncoder
from mesh.cluster.remote_interest import REMOTE_PATTERNS_MAX
from mesh.dataplane import requests, subscribing
from mesh.dataplane.options import DeliveryOptions, ExchangeOptions
from mesh.errors import NotAccepted
from mesh.limits import EXPORT_MOST, PATTERNS_MOST, Limits
from mesh.wire.session_frames import BODY_MAX, BYTES_MAX, MESSAGES_MAX, Kind, Role, decode, encode

from .neighbourhood import FakeClient, FakeMesh, FakePipe

RECEIVE_MAX = 1 << 20
"""The receive limit of a socket for one frame."""


def said(client: FakeClient, *frames: bytes) -> list[list[Any]]:
    """The broker's answers to these frames, sent without the client library."""
    prefix = client.conversation.prefix
    node, now = client.node, client.mesh.now
    node.exchange.client_frames(client.pipe, [prefix + frame for frame in frames], now)
    while node.has_work:
        node.has_work = False
        node.exchange.work(now)
    return [decode(frame, 4) for frame in client.pipe.take() if frame[5] != Kind.DATA]


# --- windows and bytes ready to be written


def test_a_window_of_two_to_the_31_without_reading_costs_a_bounded_number_of_bytes() -> None:
    options = ExchangeOptions(unwritten_bytes_max=1 << 20, delivery=DeliveryOptions(bytes_max=1 << 20))
    mesh = FakeMesh(1, options)
    exchange = mesh.nodes[1].exchange
    sender, reader, other = mesh.client(), mesh.client(), mesh.client()
    fed = other.subscribe("t", window=10_000)
    reader.consuming = False
    reader.pipe.limit = 100
    said(reader, encode(Kind.SUBSCRIBE, 1, ["t"], 0, MESSAGES_MAX, BYTES_MAX))
    sent, largest, got = 0, 0, 0
    port = exchange._pipes[reader.pipe].port
    for _ in range(1500):
        if sender.conversation.room > 0:
            sender.publish("t", bytes(60_000))
            sent += 1
        got += len(other.take(fed))
        mesh.turn(0.25)
        largest = max(largest, sum(map(len, [*reader.pipe.data, *port.ready])))
    assert largest < 2 << 20
    assert got == sent > 1000, "its publisher and others go on"
    assert exchange.statistics().drops["slow_subscriber"] > sent - 100


def test_credit_beyond_every_sensible_window_costs_the_session() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    said(client, encode(Kind.SUBSCRIBE, 1, ["t"], 0, MESSAGES_MAX, BYTES_MAX))
    said(client, encode(Kind.CREDIT, 1, 1, 1))
    assert "above the limits" in client.pipe.closed


def test_the_waiting_bytes_of_all_subscriptions_of_a_session_are_bounded_together() -> None:
    options = ExchangeOptions(waiting_bytes_max=100_000, delivery=DeliveryOptions(stall_s=1.0))
    mesh = FakeMesh(1, options)
    sender, reader = mesh.client(), mesh.client()
    for number in range(50):
        reader.subscribe(f"t.{number}", window=1)
    mesh.nodes[1].exchange.publish("t.0", [b""], "sent", 0.0)
    for _ in range(10):
        for number in range(50):
            sender.publish(f"t.{number}", bytes(1000))
        mesh.turn(2.0)
    sessions = [s for s in mesh.nodes[1].exchange._sessions.all() if s.subscriptions]
    assert sessions[0].budget.bytes <= 100_000
    assert mesh.nodes[1].exchange.statistics().drops["slow_subscriber"] > 300


def test_a_stopped_stock_subscriber_holds_a_bounded_number_of_bytes() -> None:
    mesh = FakeMesh(1, ExchangeOptions(stock_unwritten_bytes_max=1 << 20))
    exchange = mesh.nodes[1].exchange
    stopped, reads = FakePipe(), FakePipe()
    for pipe in (stopped, reads):
        exchange.subscribers.add(pipe, ["#"], StockEncoder(LastOpened(), exchange.drop).encode)
    got = 0
    for _ in range(100):
        exchange.publish("t", [bytes(100_000)], "sent", mesh.now)
        got += len(reads.take())
        exchange.pipe_writable(reads, mesh.now)
    assert sum(map(len, stopped.data)) < 1.3e6 and got == 100
    statistics = exchange.statistics()
    assert statistics.drops["slow_stock_subscriber"] > 80
    stopped.take()
    exchange.pipe_writable(stopped, mesh.now)
    exchange.publish("t", [b"again"], "sent", mesh.now)
    assert stopped.take() == [b"t again"], "who reads again is served again"


# --- patterns


def test_patterns_above_the_limit_of_a_session_are_refused_with_a_sentence() -> None:
    mesh = FakeMesh(1, ExchangeOptions(session_patterns_max=100))
    client = mesh.client()
    patterns = [f"a.{number}" for number in range(150)]
    said(client, encode(Kind.SUBSCRIBE, 1, patterns[:60], 0, 1, 1))
    (refusal,) = said(client, encode(Kind.SUBSCRIBE, 2, patterns[60:], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 2]
    assert "60 patterns and 90 more are above the 100 that a session may have" in refusal[2]
    assert len(mesh.interest[1]) == 60 and not client.pipe.closed
    said(client, encode(Kind.UNSUBSCRIBE, 1))
    assert not said(client, encode(Kind.SUBSCRIBE, 2, patterns[60:], 0, 1, 1)), "its place is free again"
    assert mesh.nodes[1].exchange.statistics().refused == {"above_limit": 1}


def test_patterns_of_all_clients_stay_below_the_limit_of_other_brokers() -> None:
    mesh = FakeMesh(2, ExchangeOptions(session_patterns_max=40_000))
    clients = [mesh.client(1) for _ in range(3)]
    answers = []
    for index, client in enumerate(clients):
        patterns = [f"a{index}.{number}" for number in range(30_000)]
        answers += said(client, encode(Kind.SUBSCRIBE, 1, patterns, 0, 1, 1))
    (refusal,) = answers
    assert refusal[0] == Kind.UNSUBSCRIBED and "64512 that its clients may want together" in refusal[2]
    assert len(mesh.interest[1]) == 60_000 <= REMOTE_PATTERNS_MAX
    again = said(clients[2], encode(Kind.SUBSCRIBE, 1, [f"a0.{number}" for number in range(30_000)], 0, 1, 1))
    assert not again, "what others want already costs nothing"


def test_patterns_of_clients_and_stock_subscribers_together_stay_below_the_limit_of_other_brokers() -> None:
    """A broker of version 1 dropped the link of one whose clients wanted 65 536 patterns and a stock SUB one
    more, for as long as they did."""
    mesh = FakeMesh(1, ExchangeOptions(session_patterns_max=PATTERNS_MOST))
    client, exchange = mesh.client(1), mesh.nodes[1].exchange
    most = [f"t.{number}" for number in range(PATTERNS_MOST)]
    assert not said(client, encode(Kind.SUBSCRIBE, 1, most, 0, 1, 1))
    exports = [[f"{name}.{number}" for number in range(EXPORT_MOST)] for name in ("before", "after")]
    for pipe in (FakePipe(), FakePipe()):
        exchange.subscribers.add(pipe, exports[0], StockEncoder(LastOpened(), exchange.drop).encode)
    exchange.subscribers.change(pipe, exports[1])
    assert len(mesh.interest[1]) == PATTERNS_MOST + 2 * EXPORT_MOST < REMOTE_PATTERNS_MAX
    assert ExchangeOptions().patterns_max == Limits().patterns_max == PATTERNS_MOST


def test_patterns_that_wait_for_their_subscribe_are_within_the_limit_of_a_session() -> None:
    """131 072 of them were kept, whatever the limit."""
    mesh = FakeMesh(1, ExchangeOptions(session_patterns_max=100))
    client = mesh.client()
    (session,) = mesh.nodes[1].exchange._sessions.all()
    part = [f"a.{number}" for number in range(60)]
    assert not said(client, encode(Kind.PATTERNS, 1, part))
    assert session.parts is not None and len(session.parts.kept) == 60
    for _ in range(3):
        assert not said(client, encode(Kind.PATTERNS, 1, part))
        assert session.parts is not None and not session.parts.kept
    (refusal,) = said(client, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and "0 patterns and 241 more" in refusal[2]
    assert not said(client, encode(Kind.PATTERNS, 2, part), encode(Kind.SUBSCRIBE, 2, ["t"], 0, 1, 1))
    assert len(mesh.interest[1]) == 61


def test_sessions_of_all_clients_together_are_bounded() -> None:
    """Each connection was bounded, but their number was not."""
    mesh = FakeMesh(1, ExchangeOptions(sessions_max=3))
    clients = [mesh.client() for _ in range(4)]
    assert [client.ended is None for client in clients] == [True, True, True, False]
    assert "above_limit" in str(clients[3].ended)
    assert "broker node1 has 3 sessions, which is its limit" in str(clients[3].ended)
    clients[0].connect(mesh.nodes[1])
    assert clients[0].pipe.closed, "as many as before are there"
    clients[1].lose()
    assert mesh.client().ended is None
    assert mesh.nodes[1].exchange.statistics().sessions == 3


def test_patterns_of_all_sessions_that_wait_for_their_subscribe_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were counted for nobody: a thousand clients could leave 130 million with a broker."""
    monkeypatch.setattr(subscribing, "WAITING_MAX", 250)
    mesh = FakeMesh(1)
    exchange = mesh.nodes[1].exchange
    clients = [mesh.client() for _ in range(4)]
    for index, client in enumerate(clients):
        said(client, encode(Kind.PATTERNS, 1, [f"a.{index}.{number}" for number in range(100)]))
    kept = [len(session.parts.kept) for session in exchange._sessions.all() if session.parts]
    assert kept == [100, 100, 0, 0]
    (refusal,) = said(clients[2], encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert "more than 250 patterns wait" in refusal[2] and "again in a few seconds" in refusal[2]
    clients[0].lose()
    said(clients[1], encode(Kind.UNSUBSCRIBE, 1))
    assert exchange._sessions._subscribing._waiting == 0
    again = encode(Kind.PATTERNS, 1, [f"b.{number}" for number in range(100)])
    assert not said(clients[2], again, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert len(mesh.interest[1]) == 101 and exchange._sessions._subscribing._waiting == 0


def test_a_small_subscription_does_not_wait_for_room_among_patterns_without_subscribe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is added at once, but was refused for as long as others left theirs."""
    monkeypatch.setattr(subscribing, "WAITING_MAX", 600)
    mesh = FakeMesh(1)
    idle, other = mesh.client(), mesh.client()
    said(idle, encode(Kind.PATTERNS, 1, [f"a.{number}" for number in range(600)]))
    small = [f"b.{number}" for number in range(subscribing.PATTERNS_AT_ONCE)]
    assert not said(other, encode(Kind.SUBSCRIBE, 1, small, 0, 1, 1)) and len(mesh.interest[1]) == len(small)
    large = [f"c.{number}" for number in range(subscribing.PATTERNS_AT_ONCE + 1)]
    (refusal,) = said(other, encode(Kind.SUBSCRIBE, 2, large, 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 2] and "more than 600 patterns wait" in refusal[2]
    assert mesh.nodes[1].exchange._sessions._subscribing._waiting == 600
    assert len(mesh.interest[1]) == len(small)


def test_abandoned_parts_of_a_subscription_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had no time limit, and left no room for those of others until their session ended."""
    monkeypatch.setattr(subscribing, "WAITING_MAX", 600)
    mesh = FakeMesh(1)
    idle, slow, other = mesh.client(), mesh.client(), mesh.client()
    said(idle, encode(Kind.PATTERNS, 1, [f"a.{number}" for number in range(300)]))
    exchange, prefix = mesh.nodes[1].exchange, slow.conversation.prefix
    for number in range(3):
        frame = encode(Kind.PATTERNS, 1, [f"b{number}.{each}" for each in range(100)])
        exchange.client_frames(slow.pipe, [prefix + frame], mesh.now)
        mesh.turn(subscribing.GAP_S - 1)
    assert exchange._sessions._subscribing._waiting == 300, "those that sent more are kept"
    assert not said(slow, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1)) and len(mesh.interest[1]) == 301
    large = [f"c.{number}" for number in range(600)]
    assert not said(other, encode(Kind.SUBSCRIBE, 1, large, 0, 1, 1)) and len(mesh.interest[1]) == 901
    (refusal,) = said(idle, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1]
    assert "dropped 300 patterns of subscription 1, since nothing followed them within 10 s" in refusal[2]
    assert not said(idle, encode(Kind.SUBSCRIBE, 2, ["t"], 0, 1, 1)), "it may go on"


def send_part(client: FakeClient, name: str, count: int) -> None:
    """Send some patterns of subscription 1, and nothing else."""
    frame = encode(Kind.PATTERNS, 1, [f"{name}.{number}" for number in range(count)])
    client.node.exchange.client_frames(client.pipe, [client.conversation.prefix + frame], client.mesh.now)


def test_a_subscription_that_arrives_too_slowly_ends_although_parts_keep_coming() -> None:
    """A part every 9 s kept all earlier parts forever."""
    mesh = FakeMesh(1)
    slow, subscribing_ = mesh.client(), mesh.nodes[1].exchange._sessions._subscribing
    for number in range(7):
        send_part(slow, f"a{number}", 100)
        assert subscribing_._waiting == 100 * (number + 1), "within a minute"
        mesh.turn(subscribing.GAP_S - 1)
    assert subscribing_._waiting == 0
    send_part(slow, "late", 100)
    (refusal,) = said(slow, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and subscribing_._waiting == 0
    assert "dropped 700 patterns" in refusal[2] and "complete within 60 s" in refusal[2]
    assert slow.ended is None and not said(slow, encode(Kind.SUBSCRIBE, 2, ["t"], 0, 1, 1))


def test_parts_that_wait_for_long_make_room_for_the_large_subscriptions_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that sent a part every 9 s kept all of the room, so that large subscriptions of others were
    refused."""
    monkeypatch.setattr(subscribing, "WAITING_MAX", 600)
    mesh = FakeMesh(1)
    first, second, other = (mesh.client() for _ in range(3))
    send_part(first, "a", 250)
    mesh.turn(1.0)
    send_part(second, "b", 250)
    large = [[f"c{index}.{number}" for number in range(600)] for index in range(3)]
    (refusal,) = said(other, encode(Kind.SUBSCRIBE, 1, large[0], 0, 1, 1))
    assert "more than 600 patterns wait" in refusal[2]
    mesh.turn(5.0)
    send_part(first, "a2", 25)
    send_part(second, "b2", 25)
    mesh.turn(4.1)
    (refusal,) = said(other, encode(Kind.SUBSCRIBE, 2, large[1], 0, 1, 1))
    assert "more than 600 patterns wait" in refusal[2], "the second has had its parts for 9 s"
    assert mesh.nodes[1].exchange._sessions._subscribing._waiting == 550, "to drop the first would not do"
    assert not said(other, encode(Kind.SUBSCRIBE, 3, large[1][:320], 0, 1, 1)), "this needs no waiting"
    mesh.turn(1.0)
    assert not said(other, encode(Kind.SUBSCRIBE, 4, large[2], 0, 1, 1))
    for client in (first, second):
        (refusal,) = said(client, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
        assert "275 patterns" in refusal[2] and "others had no room" in refusal[2]
    assert mesh.nodes[1].exchange._sessions._subscribing._waiting == 0
    assert len(mesh.interest[1]) == 920


def test_parts_that_wait_for_long_make_no_room_for_those_that_follow_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The subscription would be made without its first patterns."""
    monkeypatch.setattr(subscribing, "WAITING_MAX", 600)
    mesh = FakeMesh(1)
    client = mesh.client()
    for name in ("a", "b", "c"):
        send_part(client, name, 250)
        mesh.turn(subscribing.GAP_S - 1)
    (refusal,) = said(client, encode(Kind.SUBSCRIBE, 1, ["t"], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and "750 patterns" in refusal[2]
    assert mesh.nodes[1].exchange._sessions._subscribing._waiting == 0 and not mesh.interest.get(1)


def test_large_subscriptions_at_once_are_within_the_limit_of_a_session_together() -> None:
    """Each was only compared with the patterns added so far, which were none."""
    mesh = FakeMesh(1, ExchangeOptions(session_patterns_max=3000))
    client = mesh.client()
    wanted = [[f"a{index}.{number}" for number in range(1200)] for index in range(4)]
    frames = [encode(Kind.SUBSCRIBE, index + 1, each, 0, 1, 1) for index, each in enumerate(wanted)]
    refusals = said(client, *frames)
    assert [refusal[:2] for refusal in refusals] == [[Kind.UNSUBSCRIBED, 3], [Kind.UNSUBSCRIBED, 4]]
    assert "2400 patterns and 1200 more" in refusals[0][2] and len(mesh.interest[1]) == 2400
    (session,) = mesh.nodes[1].exchange._sessions.all()
    said(client, encode(Kind.UNSUBSCRIBE, 1))
    assert session.patterns == 1200
    assert not said(client, encode(Kind.SUBSCRIBE, 5, wanted[2], 0, 1, 1)), "there is room again"
    assert len(mesh.interest[1]) == 2400


def test_a_limit_that_is_reached_while_patterns_are_added_gives_all_of_them_back() -> None:
    mesh = FakeMesh(1, ExchangeOptions(patterns_max=2000))
    exchange = mesh.nodes[1].exchange
    clients = [mesh.client() for _ in range(2)]
    frames = [
        encode(Kind.SUBSCRIBE, 1, [f"a{index}.{number}" for number in range(1500)], 0, 1, 1)
        for index in (0, 1)
    ]
    for client, frame in zip(clients, frames, strict=True):
        exchange.client_frames(client.pipe, [client.conversation.prefix + frame], 0.0)
    mesh.pump()
    assert len(mesh.interest[1]) == 1500
    sessions = exchange._sessions.all()
    assert [session.patterns for session in sessions] in ([1500, 0], [0, 1500])
    assert exchange._sessions._subscribing._waiting == 0 and not exchange._turn.jobs


def test_a_subscription_that_fits_once_others_are_removed_waits_until_they_are() -> None:
    mesh = FakeMesh(1, ExchangeOptions(patterns_max=2000))
    client = mesh.client()
    for number, count in ((1, 1900), (2, 1800), (3, 300)):
        frames = [encode(Kind.SUBSCRIBE, number, [f"a{number}.{each}" for each in range(count)], 0, 1, 1)]
        if number > 1:
            frames.insert(0, encode(Kind.UNSUBSCRIBE, number - 1))
        assert not said(client, *frames), number
        assert len(mesh.interest[1]) == count


def test_several_subscriptions_wait_for_the_patterns_that_are_removed() -> None:
    mesh = FakeMesh(1, ExchangeOptions(patterns_max=1200))
    client = mesh.client()
    said(client, encode(Kind.SUBSCRIBE, 1, [f"a.{each}" for each in range(1200)], 0, 1, 1))
    wanted = [
        encode(Kind.SUBSCRIBE, number, [f"b{number}.{each}" for each in range(600)], 0, 1, 1)
        for number in (2, 3)
    ]
    assert not said(client, encode(Kind.UNSUBSCRIBE, 1), *wanted)
    assert len(mesh.interest[1]) == 1200 and all(name[0] == "b" for name, _ in mesh.interest[1])


@pytest.mark.parametrize("how", ["unsubscribed", "lost"])
def test_a_subscription_that_cannot_fit_is_refused_once_no_removal_is_pending(how: str) -> None:
    """It would wait forever for patterns to be removed."""
    mesh = FakeMesh(1, ExchangeOptions(patterns_max=2000))
    first, client, node = mesh.client(), mesh.client(), mesh.nodes[1]
    said(first, encode(Kind.SUBSCRIBE, 1, [f"a.{number}" for number in range(1500)], 0, 1, 1))
    if how == "lost":
        first.lose()
    else:
        said(first, encode(Kind.UNSUBSCRIBE, 1))
    frame = encode(Kind.SUBSCRIBE, 1, [f"a.{number}" for number in range(2001)], 0, 1, 1)
    node.exchange.client_frames(client.pipe, [client.conversation.prefix + frame], 0.0)
    (refusal,) = [decode(frame, 4) for frame in client.pipe.take()]
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and not node.has_work


def test_a_subscription_that_cannot_fit_is_refused_before_any_of_it_is_added() -> None:
    mesh = FakeMesh(1, ExchangeOptions(patterns_max=1000))
    client, node = mesh.client(), mesh.nodes[1]
    frame = encode(Kind.SUBSCRIBE, 1, [f"a.{number}" for number in range(1500)], 0, 1, 1)
    node.exchange.client_frames(client.pipe, [client.conversation.prefix + frame], 0.0)
    (refusal,) = [decode(frame, 4) for frame in client.pipe.take()]
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and "with 1500 more patterns" in refusal[2]
    assert not node.has_work and node.version == 0


def test_clients_may_listen_but_not_answer_on_topics_of_the_mesh() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    assert not said(client, encode(Kind.SUBSCRIBE, 1, ["$sys.status"], Role.LISTEN, 1, 1))
    (error,) = said(client, encode(Kind.SUBSCRIBE, 2, ["t", "$sys.status"], Role.ANSWERS, 1, 1))
    assert error[0] == Kind.ERROR and "only brokers answer" in error[2] and client.pipe.closed
    assert mesh.interest[1] == []


# --- questions and answers


def test_a_client_that_reads_may_send_requests_without_end_under_a_flood() -> None:
    """168 answers of 100 KB counted as unread, since the pipe never looked empty."""
    mesh = FakeMesh(1)
    exchange = mesh.nodes[1].exchange
    exchange.respond("$sys.status", lambda topic, body: bytes(100_000))
    client, sender = mesh.client(), mesh.client()
    feed = client.subscribe("t", window=100_000)
    ping = client.conversation.prefix + encode(Kind.PING, 1)
    for number in range(400):
        exchange.publish("t", [b"firehose"] * 10, "sent", mesh.now)
        exchange.client_frames(client.pipe, [ping], mesh.now)
        sender.publish("t", b"more")
        assert client.ask("$sys.status").reply == bytes(100_000), number
        client.take(feed)
    assert not client.pipe.closed


def test_bytes_in_open_questions_are_bounded_and_the_session_continues() -> None:
    mesh = FakeMesh(1, ExchangeOptions(question_bytes_max=1_000_000))
    asker, answerer = mesh.client(), mesh.client()
    feed = answerer.subscribe("q", role=Role.ANSWERS, window=1000)
    first = [asker.ask("q", bytes(400_000)) for _ in range(2)]
    third, survey = asker.ask("q", bytes(400_000)), asker.ask("q", bytes(400_000), survey=True)
    assert isinstance(third.error, NotAccepted) and "no result yet" in str(third.error)
    assert survey.done and "no result yet" in survey.result.refused[0]
    for run in list(feed.runs):
        assert run.tokens is not None
        answerer.conversation.answer(run.tokens[0], b"done")
    mesh.pump()
    assert [question.reply for question in first] == [b"done"] * 2
    assert not asker.ask("q", bytes(400_000)).done, "there is room again"


def test_one_question_may_be_larger_than_the_bound() -> None:
    mesh = FakeMesh(1, ExchangeOptions(question_bytes_max=1000))
    asker, answerer = mesh.client(), mesh.client()
    answerer.subscribe("q", role=Role.ANSWERS)
    assert not asker.ask("q", bytes(5000)).done


def test_every_end_of_a_question_counts_it_down() -> None:
    """A client that asks one question after the other is never refused."""
    mesh = FakeMesh(2, ExchangeOptions(questions_max=3))
    asker, answerer = mesh.client(1), mesh.client(2)
    feed = answerer.subscribe("q", role=Role.ANSWERS, window=1000)
    session = next(iter(mesh.nodes[1].exchange._pipes[asker.pipe].sessions.values()))

    def answer_all() -> None:
        while feed.runs:
            run = feed.runs.popleft()
            assert run.tokens is not None
            answerer.conversation.answer(run.tokens[0], b"done")
        mesh.pump()

    for turn in range(4):
        for survey in (False, True):
            question = asker.ask("q", survey=survey)
            answer_all()
            assert question.done and question.error is None, turn
            assert asker.ask("nobody", survey=survey).done
            question = asker.ask("q", survey=survey, timeout_s=0.5)
            mesh.turn(1.0)
            assert question.done and not isinstance(question.error, NotAccepted), turn
            feed.runs.clear()
        gone = asker.ask("q")
        mesh.unlink(1, 2)
        mesh.link(1, 2)
        assert gone.done
        mesh.pump()
    assert len(session.questions) == 0 and session.question_bytes == 0
    open_questions = [asker.ask("q", b"12345") for _ in range(4)]
    assert [question.done for question in open_questions] == [False, False, False, True]
    assert "as many as one client may have" in str(open_questions[3].error)
    assert len(session.questions) == 3 and session.question_bytes == 15


def test_an_answer_of_the_broker_itself_above_the_limit_is_a_sentence_and_cuts_no_link() -> None:
    mesh = FakeMesh(2)
    for node in mesh.nodes.values():
        node.exchange.respond("$sys.status", lambda topic, body: bytes(BODY_MAX + 1))
    asker = mesh.client(1)
    question = asker.ask("$sys.status", survey=True)
    assert question.done and len(question.result.refused) == 2
    assert f"above the {BODY_MAX}" in question.result.refused[0]
    request = asker.ask("$sys.status")
    assert isinstance(request.error, NotAccepted) and asker.ended is None


def test_a_survey_of_very_many_answerers_fits_the_frames_that_name_them() -> None:
    mesh = FakeMesh(2)
    asker = mesh.client(1)
    frames: list[bytes] = []
    for index in range(2):
        answerer = mesh.client(2, "n" * 255)
        answerer.consuming = False
        for number in range(1, 4001):
            said(answerer, encode(Kind.SUBSCRIBE, number, ["q"], Role.ANSWERS, 1, 1))
        assert len(mesh.nodes[2].exchange._router.route(b"q").local_answers) == 4000 * (index + 1)
    mesh.slow |= {(1, 2), (2, 1)}
    survey = asker.ask("q", survey=True, timeout_s=1.0)
    mesh.slow.discard((1, 2))
    mesh.pump()
    frames += mesh.under_way[2, 1]
    mesh.slow.clear()
    asker.consuming = False
    mesh.turn(2.0)
    frames += asker.pipe.data
    asker.consuming = True
    mesh.pump()
    assert max(map(len, frames)) < RECEIVE_MAX
    assert survey.done and survey.result.asked == requests.NAMES_MAX == len(survey.result.missing)
    assert mesh.nodes[2].exchange.statistics().drops["not_asked"] == 8000 - requests.NAMES_MAX


def answering(mesh: FakeMesh, node: int, count: int) -> FakeClient:
    """A client that has ``count`` answering subscriptions to ``q`` and answers nothing."""
    client = mesh.client(node, "answerer")
    client.consuming = False
    said(client, *(encode(Kind.SUBSCRIBE, n, ["q"], Role.ANSWERS, 1, 1 << 20) for n in range(1, count + 1)))
    return client


@pytest.mark.parametrize("home", [1, 2])
def test_the_pending_answers_for_one_client_are_bounded(monkeypatch: pytest.MonkeyPatch, home: int) -> None:
    """64 KiB of SURVEY frames, each to 4 096 subscriptions, stopped their broker for a minute and took 1.3 GB
    of memory. Sixteen with a timeout of an hour took the place of all others."""
    monkeypatch.setattr(requests, "OWED_MAX", 40)
    monkeypatch.setattr(requests, "OWED_TO_BROKER_MAX", 70)
    mesh = FakeMesh(2)
    answering(mesh, home, 30)
    greedy, modest = mesh.client(1), mesh.client(1)
    pending = mesh.nodes[home].exchange._requests._pending
    for _ in range(50):
        last = greedy.ask("q", survey=True, timeout_s=3600.0)
    assert len(pending) == (30 if home == 1 else 60)
    assert last.done and "have not answered earlier questions" in str(last.result.refused[0])
    if home == 1:
        assert not modest.ask("q", survey=True, timeout_s=3600.0).done and len(pending) == 60
    mesh.turn(3601.0)
    mesh.turn(3601.0)
    assert len(pending) == 0 and not pending._owed


def test_one_survey_may_exceed_the_bound_of_pending_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "OWED_MAX", 10)
    mesh = FakeMesh(1)
    answering(mesh, 1, 30)
    asker = mesh.client()
    assert not asker.ask("q", survey=True).done
    assert "30 subscribers of broker node1" in str(asker.ask("q").error)


def test_a_client_that_asks_for_more_than_it_may_leave_unread_is_ended_within_the_read() -> None:
    """All the answers to one read were made before anybody checked."""
    mesh = FakeMesh(1, ExchangeOptions(answer_bytes_max=1 << 20))
    exchange, made = mesh.nodes[1].exchange, 0

    def answer(topic: str, body: bytes) -> bytes:
        nonlocal made
        made += 1
        return bytes(100_000)

    exchange.respond("$sys.big", answer)
    asker = mesh.client()
    said(asker, *(encode(Kind.REQUEST, n, "$sys.big", b"", b"", 1000) for n in range(1, 1001)))
    assert made == 11 and "left unread" in asker.pipe.closed


def test_questions_and_answers_that_wait_for_a_link_are_bounded() -> None:
    """A question that timed out after a millisecond freed its asker's bound, but its frame stayed: 800 MB in
    three seconds for a broker that hung."""
    mesh = FakeMesh(2, ExchangeOptions(link_unwritten_bytes_max=1 << 20))
    here = mesh.nodes[1].exchange
    mesh.client(2).subscribe("q", role=Role.ANSWERS)
    asker = mesh.client(1)
    mesh.held.add((1, 2))
    for _ in range(20):
        last = asker.ask("q", bytes(200_000), timeout_s=0.001)
        survey = asker.ask("q", bytes(200_000), survey=True, timeout_s=0.001)
        mesh.turn(0.01)
    assert sum(map(len, mesh.links[1, 2].data)) < 2 << 20
    assert "too many questions wait on the link to broker node2" in str(last.error)
    assert list(survey.result.missing) == ["node2"]
    mesh.held.clear()
    mesh.pump()
    assert not asker.ask("q").done, "there is room again"
    assert here.statistics().dropped == 0


def test_an_answer_without_room_on_its_link_is_counted() -> None:
    mesh = FakeMesh(2, ExchangeOptions(link_unwritten_bytes_max=1 << 20))
    mesh.nodes[2].exchange.respond("q", lambda topic, body: bytes(400_000))
    asker = mesh.client(1)
    assert asker.ask("q").done
    mesh.held.add((2, 1))
    for _ in range(5):
        asker.ask("q")
    assert mesh.nodes[2].exchange.statistics().drops == {"not_returned": 2}, "three went before"


def test_the_cost_of_ending_a_session_depends_only_on_its_own_entries() -> None:
    """The cost was subscriptions times all pending answers; now no table is searched."""

    class Searched(dict[Any, Any]):
        searches = 0

        def items(self) -> Any:
            Searched.searches += 1
            return super().items()

        def values(self) -> Any:
            Searched.searches += 1
            return super().values()

        def __iter__(self) -> Any:
            Searched.searches += 1
            return super().__iter__()

    mesh = FakeMesh(1)
    asker, answerer = mesh.client(), mesh.client()
    for _ in range(50):
        answerer.conversation.subscribe(["q"], int(Role.ANSWERS), 10, 1000)
    mesh.pump()
    answerer.consuming = False
    surveys = [asker.ask("q", survey=True, timeout_s=100.0) for _ in range(20)]
    table = mesh.nodes[1].exchange._requests
    assert len(table._pending) == 1000
    table._pending._table = Searched(table._pending._table)
    table._questions._table = Searched(table._questions._table)
    answerer.lose()
    asker.pipe.take()
    assert Searched.searches == 0 and len(table._pending) == 0
    assert all(survey.done for survey in surveys) or len(table._questions) == 0
    asker.lose()
    assert Searched.searches == 0


# --- everything is removed when everybody has left


def test_counters_return_to_zero_when_all_clients_have_gone() -> None:
    mesh = FakeMesh(2, ExchangeOptions(unwritten_bytes_max=500, delivery=DeliveryOptions(stall_s=1.0)))
    exchange = mesh.nodes[1].exchange
    for how in ("bye", "lose", "break a rule", "hello again", "silence"):
        asker, answerer = mesh.client(1, keepalive_s=1.0), mesh.client(1, keepalive_s=1.0)
        reader = mesh.client(1, keepalive_s=1.0)
        reader.subscribe("t", "q", window=3)
        reader.consuming = False
        answerer.subscribe("q", role=Role.ANSWERS)
        for number in range(30):
            asker.publish("t", bytes(100), level=number % 2)
        asker.ask("q", b"body", survey=True, timeout_s=0.5)
        mesh.turn(1.0)
        asker.ask("q", b"body")
        asker.ask("q", b"body", survey=True)
        exchange.client_frames(
            reader.pipe, [reader.conversation.prefix + encode(Kind.PATTERNS, 9, ["x"])], mesh.now
        )
        for client in (asker, answerer, reader):
            match how:
                case "bye":
                    client.conversation.close("done")
                    client.consuming = True
                    mesh.pump()
                case "break a rule":
                    said(client, b"\x91\x1f")
                case "hello again":
                    said(client, encode(Kind.HELLO, 1, 1, 1, "again", 0))
                case "silence":
                    mesh.clients.remove(client)
                    mesh.turn(10.0)
                    mesh.clients.append(client)
            mesh.clients.remove(client)
            exchange.client_gone(client.pipe, mesh.now)
        mesh.turn(10.0)
        statistics = exchange.statistics()
        assert (statistics.sessions, statistics.subscriptions, statistics.questions) == (0, 0, 0), how
        assert not exchange.wanted and statistics.queued == 0, how
        turn, table = exchange._turn, exchange._requests
        assert not exchange._pipes and not turn.waiting and not turn.unread and not turn.due, how
        assert len(table._pending) == 0 and len(table._questions) == 0, how
        assert exchange._router.route(b"t").everybody == exchange._router.route(b"q").local_answers == (), how
        assert not exchange._interest._waiting and not exchange._interest._new, how
        assert all(not record.sessions for record in exchange._publishers._table.values()), how


def test_totals_outlive_clients_links_and_members() -> None:
    mesh = FakeMesh(2)
    exchange = mesh.nodes[1].exchange
    for number in range(1, 31):
        sender, near, far = mesh.client(1), mesh.client(1), mesh.client(2)
        feeds = near.subscribe("t"), far.subscribe("t")
        sender.publish("t", *[b"12345"] * 10)
        assert len(near.take(feeds[0])) == len(far.take(feeds[1])) == 10
        for client in (sender, near, far):
            client.lose()
        if number % 10 == 0:
            mesh.turn(1.0)  # credit is given back twice a second, which confirms what has arrived
            mesh.unlink(1, 2)
            exchange.members_changed([])
            mesh.tell_members()
            mesh.link(1, 2)
            mesh.pump()
        statistics = exchange.statistics()
        assert statistics.published == number * 10
        assert statistics.delivered + statistics.unresolved == number * 10
        assert (statistics.msgs_in, statistics.msgs_out) == (number * 10, number * 20)
        assert statistics.bytes_in * 2 == statistics.bytes_out
        link = exchange.link_statistics(2)
        assert (link.msgs_out, link.bytes_out * 2) == (number * 10, statistics.bytes_out)
        assert statistics.dropped == 0


def test_totals_outlive_more_former_members_than_are_remembered() -> None:
    mesh = FakeMesh(1)
    exchange = mesh.nodes[1].exchange
    sender = mesh.client()
    for id in range(10, 10 + 1100):
        exchange.members_changed([(id, f"b{id}")])
        exchange.change_peer_interest(id, [("t", 0)])
        sender.publish("t", b"x")
        pipe = FakePipe()
        exchange.peer_up(id, f"b{id}", pipe, 0.001, mesh.now)
        exchange.peer_frames(id, [encode(Kind.CREDIT, 0, 100, 10_000)], mesh.now)
        sender.publish("t", b"y")
        pipe.take()
        exchange.pipe_writable(pipe, mesh.now)
        exchange.peer_frames(id, [encode(Kind.CREDIT, 0, 1, 100)], mesh.now)
        exchange.members_changed([])
        exchange.peer_down(id, mesh.now)
    statistics = exchange.statistics()
    assert statistics.drops == {"no_link": 1100}
    assert statistics.msgs_out == 1100 and len(exchange._members._gone) == 1024


def test_a_survey_that_is_over_is_kept_for_late_answers_for_one_more_deadline_only() -> None:
    mesh = FakeMesh(1)
    asker, answerer = mesh.client(), mesh.client()
    feed = answerer.subscribe("q", role=Role.ANSWERS)
    survey = asker.ask("q", b"body", survey=True, timeout_s=2.0)
    table = mesh.nodes[1].exchange._requests._questions
    (session,) = [s for s in mesh.nodes[1].exchange._sessions.all() if not s.subscriptions]
    mesh.turn(2.5)
    assert survey.done and survey.result.missing and len(session.late_questions) == len(table) == 1
    assert session.question_bytes == 0, "its body is not kept"
    (run,) = feed.runs
    assert run.tokens is not None
    answerer.conversation.answer(run.tokens[0], b"late")
    mesh.pump()
    assert [answer.body for answer in survey.result.late] == [b"late"]
    mesh.turn(2.5)
    assert len(session.late_questions) == len(table) == 0


def test_no_confirmation_is_pending_for_a_subscription_of_an_ended_session() -> None:
    mesh = FakeMesh(1)
    mesh.nodes[1].hold_barrier = True
    interest = mesh.nodes[1].exchange._interest
    for _ in range(3):
        client = mesh.client()
        client.subscribe("t")
        assert len(interest._waiting) == 1
        client.lose()
        assert not interest._waiting and not interest._new


# --- patterns with many stars


def starred(count: int, first: int = 0) -> list[str]:
    return [f"*.*.*.*.{number}" for number in range(first, first + count)]


def test_patterns_with_many_stars_are_refused_above_the_limit_of_a_session() -> None:
    """32 768 patterns of one client made the broker follow 65 535 nodes for each new topic."""
    mesh = FakeMesh(1, ExchangeOptions(session_starred_patterns_max=10))
    client = mesh.client()
    assert not said(client, encode(Kind.SUBSCRIBE, 1, [*starred(10), "a", "*.*.*.b"], 0, 1, 1))
    (refusal,) = said(client, encode(Kind.SUBSCRIBE, 2, starred(1, 10), 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 2]
    assert refusal[2].startswith(
        "10 patterns with more than 3 '*' and 1 more are above the 10 that a session"
    )
    assert not said(client, encode(Kind.SUBSCRIBE, 3, ["*.*.*.c"], 0, 1, 1)), "others it may have"
    said(client, encode(Kind.UNSUBSCRIBE, 1))
    assert not said(client, encode(Kind.SUBSCRIBE, 2, starred(1, 10), 0, 1, 1)), "its place is free again"


def test_different_patterns_with_many_stars_are_limited_for_all_clients_together() -> None:
    mesh = FakeMesh(1, ExchangeOptions(session_starred_patterns_max=10, starred_patterns_max=15))
    table = mesh.nodes[1].exchange._sessions._subscribing._starred
    one, two = mesh.client(), mesh.client()
    assert not said(one, encode(Kind.SUBSCRIBE, 1, starred(10), 0, 1, 1))
    assert not said(two, encode(Kind.SUBSCRIBE, 1, starred(5), 0, 1, 1)), "the same again are no more"
    (refusal,) = said(two, encode(Kind.SUBSCRIBE, 2, starred(5, 11), 0, 1, 1))[:1] or [None]
    assert refusal is None and len(table) == 15
    mesh.nodes[1].exchange.client_gone(two.pipe, mesh.now)
    mesh.clients.remove(two)
    assert len(table) == 10
    three = mesh.client()
    (refusal,) = said(three, encode(Kind.SUBSCRIBE, 1, starred(6, 20), 0, 1, 1))
    assert "with 6 more patterns with more than 3 '*' broker" in refusal[2] and "the 15 that" in refusal[2]
    mesh.nodes[1].exchange.client_gone(one.pipe, mesh.now)
    mesh.clients.remove(one)
    assert len(table) == 0


def test_patterns_with_many_stars_leave_with_a_large_subscription_that_was_not_added_yet() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    table = mesh.nodes[1].exchange._sessions._subscribing._starred
    patterns = [*(f"a.{number}" for number in range(subscribing.PATTERNS_AT_ONCE)), *starred(10)]
    said(client, encode(Kind.SUBSCRIBE, 1, patterns, 0, 1, 1))
    (session,) = mesh.nodes[1].exchange._sessions.all()
    assert session.starred == len(table) == 10
    said(client, encode(Kind.UNSUBSCRIBE, 1))
    assert session.starred == len(table) == 0
