"""Messages that wait while a broker does not know the interest of others, and how they pass afterwards."""

from __future__ import annotations

import pytest

from mesh.clients.tickets import Ticket
from mesh.dataplane import gate
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED
from mesh.wire.session_frames import AGAIN, Kind, Role, data_head, decode
from protocols.pipe import CONTROL_MAX

from .neighbourhood import STILL_S, FakeClient, FakeMesh

WIDE = ExchangeOptions(session_messages=100_000)


def joining_node(options: ExchangeOptions | None = None) -> tuple[FakeMesh, Exchange]:
    mesh = FakeMesh(2, options)
    exchange = mesh.nodes[1].exchange
    exchange.gate.close()
    return mesh, exchange


def test_blocks_are_held_while_interest_is_unknown_and_then_routed_in_order() -> None:
    mesh, exchange = joining_node()
    publisher, early, late = mesh.client(1), mesh.client(1), mesh.client(2)
    ticket = publisher.publish("t", b"1", level=ACCEPTED)
    publisher.publish("t", b"2")
    feeds = [client.subscribe("t") for client in (early, late)]
    assert isinstance(ticket, Ticket) and not ticket.done
    assert not early.take(feeds[0]) and exchange.statistics().published == 0
    exchange.set_absent(["gamma"])
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert ticket.done and ticket.receipt(0).absent == ("gamma",)
    publisher.publish("t", b"3")
    for client, feed in zip((early, late), feeds, strict=True):
        assert [body for _, body in client.take(feed)] == [b"1", b"2", b"3"]


def test_questions_are_held_except_those_for_the_broker_itself() -> None:
    mesh, exchange = joining_node()
    exchange.respond("$sys.status", lambda topic, body: b"here")
    asker, answerer = mesh.client(1), mesh.client(2)
    status, question = asker.ask("$sys.status"), asker.ask("q")
    assert status.done and not question.done
    feed = answerer.subscribe("q", role=Role.ANSWERS)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert not question.done  # a responder was asked
    assert answerer.conversation.next_run(feed, mesh.now) is not None


@pytest.mark.parametrize("survey", [False, True])
def test_a_question_that_is_held_beyond_its_deadline_ends_in_time(survey: bool) -> None:
    """Its asker is told at the deadline that this broker could not ask anybody. Nobody is asked later."""
    mesh, exchange = joining_node()
    asker, answerer = mesh.client(1), mesh.client(2)
    feed = answerer.subscribe("q", role=Role.ANSWERS)
    question = asker.ask("q", survey=survey, timeout_s=1.0)
    mesh.turn(0.75)
    assert not question.done
    mesh.turn(0.5)
    assert question.done and exchange.statistics().questions == 0
    if survey:
        assert question.result is not None and question.result.missing == ["node1"]
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert answerer.conversation.next_run(feed, mesh.now) is None


def test_held_messages_of_a_client_that_has_gone_are_routed() -> None:
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    publisher.publish("t", b"last words")
    publisher.lose()
    exchange.open_gate(mesh.now)
    assert reader.take(feed) == [("t", b"last words")]


def test_publishes_beyond_the_limit_of_the_gate_are_refused_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "COUNT_MAX", 1)
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    first = publisher.publish("t", b"1", level=ACCEPTED)
    second = publisher.publish("t", b"2", level=ACCEPTED)
    publisher.publish("t", b"3")
    assert isinstance(first, Ticket) and isinstance(second, Ticket) and not first.done
    assert isinstance(second.error, NotAccepted) and "node1 does not know yet" in str(second.error)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert first.done and reader.take(feed) == [("t", b"1")]
    assert exchange.statistics().drops == {"joining": 1}


def test_a_held_block_that_breaks_a_rule_costs_its_client_the_session() -> None:
    mesh, exchange = joining_node()
    publisher, other = mesh.client(1), mesh.client(1)
    feed = other.subscribe("t")
    publisher.publish("t", b"good")
    exchange.client_frames(
        publisher.pipe, [publisher.conversation.prefix + data_head(0, 0, 0, 0, 3) + b"bad"], 0.0
    )
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert publisher.ended is not None and publisher.pipe.closed
    assert other.take(feed) == [("t", b"good")]


def test_a_joining_broker_that_leaves_refuses_held_messages() -> None:
    mesh, exchange = joining_node()
    publisher = mesh.client(1)
    ticket = publisher.publish("t", b"1", level=ACCEPTED)
    exchange.leave("restart", mesh.now)
    mesh.pump()
    assert isinstance(ticket, Ticket) and isinstance(ticket.error, NotAccepted)


# --- much is held


def sealed(client: FakeClient, sequence: int, *bodies: bytes, flags: int = 0, level: int = ACCEPTED) -> bytes:
    """A frame that the client would send, made without its library."""
    conversation = client.conversation
    block = blocks.seal(
        b"t", bodies, publisher=conversation.publisher, boot=conversation.boot, sequence=sequence, level=level
    )
    return conversation.prefix + data_head(0, flags, 0, 0, len(block)) + block


def said(client: FakeClient, kind: Kind) -> list[list[object]]:
    """Control frames of a kind in the client's pipe."""
    frames = [decode(frame, 4) for frame in client.pipe.control]
    return [frame for frame in frames if frame[0] == kind]


MANY = CONTROL_MAX + 1000


def test_held_blocks_are_acknowledged_in_few_frames_when_the_gate_opens() -> None:
    """They were acknowledged one by one: the 4 097th cost the client its connection."""
    mesh, exchange = joining_node(WIDE)
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t", window=MANY)
    publisher.consuming = False
    for number in range(1, MANY + 1):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, b"%d" % number)], mesh.now)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert not publisher.pipe.closed
    acknowledged = [pair for ack in said(publisher, Kind.ACK) for pair in ack[2]]  # type: ignore[attr-defined]
    assert sum(last - first + 1 for first, last in acknowledged) == MANY
    assert len(said(publisher, Kind.ACK)) < 100
    assert [body for _, body in reader.take(feed)] == [b"%d" % number for number in range(1, MANY + 1)]


def test_a_leaving_broker_refuses_the_held_blocks_of_a_client_in_few_frames() -> None:
    """It was refused block by block, and the client was disconnected."""
    mesh, exchange = joining_node(WIDE)
    publisher = mesh.client(1)
    publisher.consuming = False
    for number in range(1, MANY + 1):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, b"x")], mesh.now)
    exchange.leave("restart", mesh.now)
    assert not publisher.pipe.closed and len(said(publisher, Kind.REFUSED)) < 100
    refused = [pair for frame in said(publisher, Kind.REFUSED) for pair in frame[1]]  # type: ignore[attr-defined]
    assert sum(last - first + 1 for first, last in refused) == MANY
    assert exchange.statistics().published == 0


def test_blocks_of_one_read_are_refused_in_one_frame() -> None:
    mesh = FakeMesh(1, WIDE)
    publisher = mesh.client(1)
    publisher.consuming = False
    exchange = mesh.nodes[1].exchange
    exchange.leave("restart", mesh.now)
    exchange.client_frames(
        publisher.pipe, [sealed(publisher, number, b"x") for number in range(1, MANY)], 0.0
    )
    assert [frame[1] for frame in said(publisher, Kind.REFUSED)] == [[[1, MANY - 1]]]
    assert not publisher.pipe.closed


def test_the_gate_opens_in_steps_and_blocks_that_arrive_meanwhile_wait_behind() -> None:
    """32 MB were routed in one turn, and every round of the broker was late."""
    mesh, exchange = joining_node(WIDE)
    publisher, reader = mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t", window=10_000)
    node, count = mesh.nodes[1], 4 * gate.STEP_COUNT
    for number in range(1, count + 1):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, b"%d" % number)], mesh.now)
    node.has_work = False
    exchange.open_gate(mesh.now)
    assert exchange.statistics().published == gate.STEP_COUNT and node.has_work
    exchange.client_frames(publisher.pipe, [sealed(publisher, count + 1, b"%d" % (count + 1))], mesh.now)
    assert exchange.statistics().published == gate.STEP_COUNT, "it waits behind what was held"
    turns = 0
    while node.has_work:
        node.has_work = False
        exchange.work(mesh.now)
        turns += 1
    assert turns == 3 and not exchange.gate.closed
    assert [body for _, body in reader.take(feed)] == [b"%d" % number for number in range(1, count + 2)]


@pytest.mark.parametrize(("size", "each_turn"), [(1, 3 * gate.STEP_COUNT), (gate.STEP_BYTES, 4)])
def test_the_gate_opens_although_more_arrives_in_a_turn_than_a_step_passes(size: int, each_turn: int) -> None:
    """One read brought more than one step let pass: the gate stayed closed for as long as clients
    published."""
    held = gate.Gate()
    held.close()
    passed: list[int] = []

    def arrive(numbers: range) -> None:
        for number in numbers:
            assert held.hold(size, lambda now, number=number: passed.append(number))  # type: ignore[misc]

    came = gate.BYTES_MAX // (4 * size) if size > 1 else gate.COUNT_MAX // 4
    arrive(range(came))
    steps = 0
    while held.step(0.0):
        steps += 1
        assert steps < 100
        arrive(range(came, came + each_turn))
        came += each_turn
    assert passed == list(range(came)) and not held.closed and not held.opening


def test_a_step_of_the_gate_passes_at_most_one_part_and_twice_the_arrivals() -> None:
    """Entries that came while the gate was closed and not yet opening are no reason for a longer step."""
    held, passed = gate.Gate(), list[int]()
    held.close()
    for number in range(10 * gate.STEP_COUNT):
        held.hold(1, lambda now, number=number: passed.append(number))  # type: ignore[misc]
    lengths = []
    for came in (0, 10, 0):
        for _ in range(came):
            held.hold(1, lambda now: passed.append(0))
        before = len(passed)
        assert held.step(0.0)
        lengths.append(len(passed) - before)
    assert lengths == [gate.STEP_COUNT, gate.STEP_COUNT + 20, gate.STEP_COUNT]


def test_the_gate_opens_in_each_turn_while_other_long_work_waits() -> None:
    """It shared the turns with all jobs, and entries of many turns filled the gate again."""
    mesh, exchange = joining_node(WIDE)
    publisher = mesh.client(1)
    for number in range(1, 4 * gate.STEP_COUNT + 1):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, b"x")], mesh.now)
    exchange._turn.jobs.extend([lambda now: True] * 50)
    exchange.open_gate(mesh.now)
    for _ in range(3):
        assert exchange.gate.closed
        exchange.work(mesh.now)
    assert not exchange.gate.closed and len(exchange._turn.jobs) == 50


def test_large_blocks_pass_the_gate_a_few_in_each_turn() -> None:
    mesh, exchange = joining_node(ExchangeOptions(session_bytes=100 << 20))
    publisher = mesh.client(1)
    for number in range(1, 41):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, bytes(60_000))], mesh.now)
    exchange.open_gate(mesh.now)
    assert exchange.statistics().published == -(-gate.STEP_BYTES // (60_000 + 66))


def test_a_broker_that_leaves_while_the_gate_opens_refuses_the_rest() -> None:
    mesh, exchange = joining_node(WIDE)
    publisher = mesh.client(1)
    publisher.consuming = False
    count = 3 * gate.STEP_COUNT
    for number in range(1, count + 1):
        exchange.client_frames(publisher.pipe, [sealed(publisher, number, b"x")], mesh.now)
    exchange.open_gate(mesh.now)
    exchange.leave("restart", mesh.now)
    refused = [pair for frame in said(publisher, Kind.REFUSED) for pair in frame[1]]  # type: ignore[attr-defined]
    assert sum(last - first + 1 for first, last in refused) == count - gate.STEP_COUNT
    assert not exchange.gate.closed


def test_blocks_held_for_a_client_that_has_gone_are_counted_on_arrival() -> None:
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t")
    publisher.publish("t", b"last", b"words")
    publisher.lose()
    exchange.open_gate(mesh.now)
    assert len(reader.take(feed)) == 2
    counted = exchange.statistics()
    assert counted.msgs_in == counted.published == 2 and counted.bytes_in > 0


# --- the share of one client


def hold(exchange: Exchange, publisher: FakeClient, numbers: range, *bodies: bytes, level: int = 0) -> None:
    """Blocks of these numbers come, without the client's library and its view of credit."""
    for number in numbers:
        frame = sealed(publisher, 10 * number, *bodies, level=level)
        exchange.client_frames(publisher.pipe, [frame], 0.0)


@pytest.mark.parametrize(
    "options", [ExchangeOptions(session_messages=10), ExchangeOptions(session_bytes=10 * 38)]
)
def test_a_client_that_publishes_beyond_its_credit_while_the_gate_is_closed_loses_its_session(
    options: ExchangeOptions,
) -> None:
    """Its blocks were held, however many, until there was no room for those of others."""
    mesh, exchange = joining_node(options)
    greedy, other = mesh.client(1), mesh.client(1)
    hold(exchange, greedy, range(1, 11), b"x")
    mesh.pump()
    assert greedy.ended is None and exchange.gate.held == 10
    hold(exchange, greedy, range(11, 1000), b"x")
    mesh.pump()
    assert greedy.ended is not None and "beyond_credit" in str(greedy.ended)
    assert greedy.pipe.closed and exchange.gate.held == 10
    ticket = other.publish("t", b"of another", level=ACCEPTED)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert isinstance(ticket, Ticket) and ticket.receipt(0).count == 1
    assert exchange.statistics().published == 11, "what came within its credit is routed"


def test_the_last_block_may_exceed_credit_as_with_an_open_gate() -> None:
    mesh, exchange = joining_node(ExchangeOptions(session_messages=10))
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    hold(exchange, publisher, range(1, 2), b"first")
    hold(exchange, publisher, range(2, 3), *[b"%d" % number for number in range(30)])
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert publisher.ended is None and len(reader.take(feed)) == 31


def test_frames_that_count_no_messages_spend_credit_too() -> None:
    mesh, exchange = joining_node(ExchangeOptions(session_messages=10))
    greedy = mesh.client(1)
    empty = greedy.conversation.prefix + data_head(0, 0, 0, 0, 0)
    for _ in range(100):
        exchange.client_frames(greedy.pipe, [empty], 0.0)
    mesh.pump()
    assert greedy.pipe.closed and exchange.gate.held == 10


def test_a_retry_of_a_held_block_spends_credit_of_its_new_session() -> None:
    mesh, exchange = joining_node(ExchangeOptions(session_messages=10))
    publisher = mesh.client(1)
    hold(exchange, publisher, range(1, 11), b"x", level=ACCEPTED)
    publisher.lose()
    publisher.connect(mesh.nodes[1])
    hold(exchange, publisher, range(1, 11), b"x", level=ACCEPTED)
    mesh.pump()
    assert not publisher.pipe.closed and exchange.gate.held == 10
    hold(exchange, publisher, range(11, 12), b"x")
    assert publisher.pipe.closed and exchange.gate.held == 10


def test_credit_is_returned_for_blocks_that_pass_the_gate() -> None:
    mesh, exchange = joining_node(ExchangeOptions(session_messages=10))
    publisher = mesh.client(1)
    for begin in (1, 11, 21):
        exchange.gate.close()
        hold(exchange, publisher, range(begin, begin + 10), b"x")
        exchange.open_gate(mesh.now)
        mesh.pump()
    assert publisher.ended is None and exchange.statistics().published == 30


def test_one_client_within_its_credit_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its window has as many messages as the gate holds frames, and each may be a frame."""
    monkeypatch.setattr(gate, "COUNT_MAX", 40)
    monkeypatch.setattr(gate, "SHARE_MAX", 10)
    mesh, exchange = joining_node(WIDE)
    eager, other = mesh.client(1), mesh.client(1)
    hold(exchange, eager, range(1, 50), b"x")
    mesh.pump()
    assert eager.ended is None and exchange.gate.held == 10
    assert exchange.statistics().drops == {"joining": 39}
    ticket = other.publish("t", b"of another", level=ACCEPTED)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert isinstance(ticket, Ticket) and ticket.done and ticket.error is None


def test_the_questions_of_one_client_leave_room_in_the_gate_for_others() -> None:
    """They took half of the gate: as many bytes as a client may have in questions without a result."""
    mesh, exchange = joining_node(WIDE)
    asker, publisher = mesh.client(1), mesh.client(1)
    questions = [asker.ask("q", bytes(100_000)) for _ in range(100)]
    refused = [question for question in questions if question.done]
    assert len(refused) == 100 - -(-(gate.BYTES_MAX // gate.PART_OF_SENDER) // 100_000)
    assert "does not know yet who wants it" in str(refused[0].error)
    assert not publisher.ask("q", bytes(100_000)).done
    ticket = publisher.publish("t", bytes(10 << 20), level=ACCEPTED)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert isinstance(ticket, Ticket) and ticket.done and ticket.error is None


# --- retries


def test_a_retry_of_a_held_block_is_acknowledged_in_the_clients_present_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was refused because the gate was full, though its first copy waited there and was accepted later."""
    monkeypatch.setattr(gate, "COUNT_MAX", 1)
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    ticket = publisher.publish("t", b"once", level=ACCEPTED)
    publisher.lose()
    publisher.connect(mesh.nodes[1])
    assert isinstance(ticket, Ticket) and not ticket.done
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert ticket.done and ticket.error is None
    assert reader.take(feed) == [("t", b"once")]
    assert exchange.statistics().drops == {}


@pytest.mark.parametrize("why", ["leaving", "joining"])
@pytest.mark.parametrize("size", [4, 200_000])
def test_a_retry_of_an_accepted_block_is_acknowledged_while_new_ones_are_refused(
    why: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program got `NotAccepted` for a message that was delivered."""
    mesh = FakeMesh(1)
    publisher, reader = mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t")
    exchange = mesh.nodes[1].exchange
    publisher.consuming = False
    ticket, _ = publisher.conversation.add("t", bytes(size), ACCEPTED, b"")
    publisher.conversation.flush()
    mesh.pump()
    assert ticket is not None and not ticket.done
    publisher.lose()  # with it the acknowledgement
    publisher.consuming = True
    if why == "leaving":
        exchange._intake.refusing = "restart"  # as between a client's HELLO and its retry
    else:
        monkeypatch.setattr(gate, "COUNT_MAX", 0)
        exchange.gate.close()
    published = exchange.statistics().published
    publisher.connect(mesh.nodes[1])
    assert ticket.done and ticket.error is None
    assert reader.take(feed) == [("t", bytes(size))]
    statistics = exchange.statistics()
    assert statistics.published == published and set(statistics.drops) == {"duplicate"}


def test_a_retry_of_a_block_that_was_never_accepted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "COUNT_MAX", 0)
    mesh, exchange = joining_node()
    publisher = mesh.client(1)
    publisher.consuming = False
    exchange.client_frames(publisher.pipe, [sealed(publisher, 1, b"x", flags=AGAIN)], mesh.now)
    assert [frame[1] for frame in said(publisher, Kind.REFUSED)] == [[[1, 1]]]


def test_a_large_body_that_the_gate_holds_partly_is_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first piece was delivered, and its last would have been acknowledged."""
    monkeypatch.setattr(gate, "COUNT_MAX", 2)
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    first = publisher.publish("t", b"small", level=ACCEPTED)
    large = publisher.publish("t", bytes(200_000), level=ACCEPTED)
    publisher.publish("t", bytes(200_000))
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert isinstance(first, Ticket) and first.done and first.error is None
    assert isinstance(large, Ticket) and isinstance(large.error, NotAccepted)
    assert reader.take(feed) == [("t", b"small")]
    statistics = exchange.statistics()
    assert statistics.published == statistics.delivered + statistics.msgs_out == 1
    assert statistics.drops == {"joining": 4}, "the pieces of level sent"
    again = publisher.publish("t", bytes(200_000), level=ACCEPTED)
    assert isinstance(again, Ticket) and again.done and again.error is None
    assert reader.take(feed) == [("t", bytes(200_000))]


def test_a_held_block_that_cannot_be_routed_does_not_block_later_ones() -> None:
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t")
    exchange.gate.hold(1, lambda now: [][0])
    for number in range(gate.STEP_COUNT + 1):
        publisher.publish("t", b"%d" % number)
    with pytest.raises(IndexError):
        exchange.open_gate(mesh.now)
    mesh.turn(1.0)
    assert len(reader.take(feed)) == gate.STEP_COUNT + 1 and not exchange.gate.closed


@pytest.mark.parametrize("passed", [0, 1, 2])
@pytest.mark.parametrize("full", [False, True])
def test_a_large_body_that_is_accepted_after_a_part_of_it_was_refused_is_delivered(
    passed: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four pieces were held, the third was refused, and REFUSED was lost with the connection. The
    retry left the last piece in its place and put the third behind it: it was accepted, but nobody got it."""
    monkeypatch.setattr(gate, "STEP_COUNT", passed)
    mesh, exchange = joining_node()
    filler, publisher, reader = mesh.client(1), mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t")
    filler.publish("other", bytes(65_000))
    monkeypatch.setattr(gate, "BYTES_MAX", 4 * 65_100 - 40_000)  # room for two pieces and the last one
    publisher.consuming = False
    ticket, index = publisher.conversation.add_many("t", [bytes(200_000)], ACCEPTED)
    publisher.conversation.flush()
    mesh.pump()
    assert exchange.gate.held == 4 and [frame[1] for frame in said(publisher, Kind.REFUSED)] == [[[1, 1]]]
    publisher.lose()
    exchange.gate.step(mesh.now)
    exchange.gate.opening = False
    if not full:
        monkeypatch.setattr(gate, "BYTES_MAX", 32 << 20)
    publisher.consuming = True
    publisher.connect(mesh.nodes[1])
    assert ticket is not None
    monkeypatch.setattr(gate, "STEP_COUNT", 256)
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert ticket.done
    if ticket.error is None:
        assert ticket.receipt(index).count == 1 and reader.take(feed) == [("t", bytes(200_000))]
    else:
        assert full and reader.take(feed) == []
    assert feed.lost_blocks == 0


def test_pieces_that_waited_before_and_behind_the_end_of_their_session_make_one_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first pieces passed, and the last ones moved to the new session and completed the body. The retry
    of the first ones then began a second body, which never ended and was counted as lost."""
    monkeypatch.setattr(gate, "STEP_COUNT", 2)
    mesh, exchange = joining_node()
    publisher, reader = mesh.client(1), mesh.client(1)
    feed = reader.subscribe("t")
    ticket = publisher.publish("t", bytes(200_000), level=ACCEPTED)
    publisher.lose()
    exchange.gate.step(mesh.now)
    exchange.gate.opening = False
    publisher.connect(mesh.nodes[1])
    exchange.open_gate(mesh.now)
    mesh.pump()
    publisher.publish("t", bytes(200_001), level=ACCEPTED)
    assert isinstance(ticket, Ticket) and ticket.receipt(0).count == 1
    assert [len(body) for _, body in reader.take(feed)] == [200_000, 200_001]
    assert feed.lost_blocks == 0 and exchange.statistics().drops == {"duplicate": 2}


def test_a_session_leaves_no_state_after_its_blocks_moved_and_passed() -> None:
    """The share of a session whose blocks moved to its successor would be kept forever."""
    mesh, exchange = joining_node()
    publisher = mesh.client(1)
    publisher.publish("t", b"1", level=ACCEPTED)
    for _ in range(3):
        publisher.lose()
        publisher.connect(mesh.nodes[1])
    assert len(exchange._held._shares) == 1
    exchange.open_gate(mesh.now)
    mesh.pump()
    assert not exchange._held._shares and not exchange._held._accepted and not exchange._held._passed


# --- after this broker hung


@pytest.mark.parametrize("first", ["tick", "read"])
def test_a_broker_that_hung_holds_publishes_until_other_brokers_have_answered(first: str) -> None:
    """Frames kept by the kernel were routed by old interest, before the end of its links was read: they were
    accepted and delivered to nobody."""
    mesh = FakeMesh(2)
    publisher, reader, node = mesh.client(1), mesh.client(2), mesh.nodes[1]
    feed = reader.subscribe("t")
    mesh.turn(1.0)
    for _ in range(4):  # in time
        mesh.now += STILL_S - 0.1
        node.exchange.tick(mesh.now)
    assert node.stood_still_times == 0
    mesh.now += STILL_S
    if first == "tick":
        node.exchange.tick(mesh.now)
    ticket = publisher.publish("t", b"x", level=ACCEPTED)
    assert node.stood_still_times == 1 and node.exchange.gate.closed
    assert isinstance(ticket, Ticket) and not ticket.done
    mesh.turn(1.0)
    assert node.stood_still_times == 1 and not ticket.done
    node.exchange.open_gate(mesh.now)
    mesh.pump()
    assert ticket.receipt(0).absent == () and reader.take(feed) == [("t", b"x")]


@pytest.mark.parametrize("why", ["alone", "leaving"])
def test_a_broker_that_hung_without_live_peers_holds_no_publishes(why: str) -> None:
    mesh = FakeMesh(1)
    publisher, node = mesh.client(1), mesh.nodes[1]
    node.must_hear = why != "alone"
    mesh.turn(1.0)
    if why == "leaving":
        node.exchange._intake.refusing = "restart"
    mesh.now += STILL_S
    ticket = publisher.publish("t", b"x", level=ACCEPTED)
    assert isinstance(ticket, Ticket) and ticket.done and not node.exchange.gate.closed
