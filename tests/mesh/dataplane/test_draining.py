"""A broker that is about to leave: what it tells clients and brokers, and what it waits for."""

from __future__ import annotations

import pytest

from mesh.clients.introduction import MOVING_LATER
from mesh.dataplane.draining import AWAKE_S
from mesh.dataplane.members import MARKS_MAX
from mesh.errors import SessionError
from mesh.wire.capabilities import SESSION
from mesh.wire.session_frames import Kind, Leaving, encode
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh, FakePipe

MOVED = encode(Kind.LEAVING, Leaving.MOVED, 0, "")


class Moving(FakeClient):
    """A client that lets its test decide when it has moved."""

    def connect(self, node: object) -> None:
        self.conversation.introduction.offer(SESSION)
        super().connect(node)  # type: ignore[arg-type]


def mesh_that_marks(nodes: int) -> FakeMesh:
    mesh = FakeMesh(nodes)
    for a in mesh.nodes:
        for link in mesh.nodes[a].exchange._members.neighbours():
            link.marks = True
    return mesh


def test_capable_clients_are_told_of_the_drain_and_only_moving_ones_are_waited_for() -> None:
    mesh = mesh_that_marks(2)
    exchange = mesh.nodes[1].exchange
    stays = FakeClient(mesh, mesh.nodes[1], "stays", b"\x80\x00\x00\x01")
    later = FakeClient(mesh, mesh.nodes[1], "later", b"\x80\x00\x00\x02")
    later.lose()
    later.conversation.introduction.offer(MOVING_LATER)
    later.connect(mesh.nodes[1])
    assert exchange.drained(mesh.now)
    moves = Moving(mesh, mesh.nodes[1], "moves", b"\x80\x00\x00\x03")
    exchange.drain(10.0, "the end", mesh.now)
    mesh.pump()
    told = [client.conversation.leaves_at - mesh.now for client in (stays, later, moves)]
    assert told[0] > 1000 and told[1:] == [10.0, 10.0]
    assert not exchange.drained(mesh.now)
    moves.conversation.moved()
    mesh.pump()
    assert moves.conversation.said_bye and not moves.conversation.settled
    moves.lose()
    assert exchange.drained(mesh.now) and stays.conversation.settled and later.conversation.settled


def test_bye_waits_for_the_marks_of_all_brokers_and_for_earlier_messages() -> None:
    """Others had sent a message to this broker before they knew that its subscriber had moved."""
    mesh = mesh_that_marks(3)
    moves = Moving(mesh, mesh.nodes[1], "moves", b"\x80\x00\x00\x01")
    feed = moves.subscribe("t")
    publisher = FakeClient(mesh, mesh.nodes[2], "publisher", b"\x80\x00\x00\x02")
    mesh.held.add((2, 1))
    publisher.publish("t", b"on its way")
    mesh.nodes[1].exchange.drain(10.0, "the end", mesh.now)
    mesh.pump()
    moves.conversation.moved()
    mesh.pump()
    assert moves.take(feed) == [] and not moves.conversation.said_bye
    mesh.held.clear()
    mesh.pump()
    assert moves.take(feed) == [("t", b"on its way")] and moves.conversation.said_bye


def test_a_broker_that_dies_is_not_waited_for() -> None:
    mesh = mesh_that_marks(2)
    moves = Moving(mesh, mesh.nodes[1], "moves", b"\x80\x00\x00\x01")
    mesh.nodes[1].exchange.drain(10.0, "the end", mesh.now)
    mesh.held.add((2, 1))
    moves.conversation.moved()
    mesh.pump()
    assert not moves.conversation.said_bye
    mesh.unlink(1, 2)
    assert moves.conversation.said_bye


def test_bye_waits_for_the_answers_that_the_client_waits_for() -> None:
    mesh = mesh_that_marks(1)
    moves = Moving(mesh, mesh.nodes[1], "moves", b"\x80\x00\x00\x01")
    answers = FakeClient(mesh, mesh.nodes[1], "answers", b"\x80\x00\x00\x02")
    feed = answers.subscribe("q", role=1)
    question = moves.ask("q", b"?")
    mesh.nodes[1].exchange.drain(10.0, "the end", mesh.now)
    moves.conversation.moved()
    mesh.pump()
    assert not moves.conversation.said_bye and not question.done
    run = answers.conversation.next_run(feed, mesh.now)
    assert run is not None and run.tokens
    answers.conversation.answer(run.tokens[0], b"!")
    mesh.pump()
    assert question.done and moves.conversation.said_bye


def test_moved_without_a_drain_is_harmless_and_without_the_capability_costs_the_session() -> None:
    mesh = mesh_that_marks(1)
    exchange = mesh.nodes[1].exchange
    moves = Moving(mesh, mesh.nodes[1], "moves", b"\x80\x00\x00\x01")
    for _ in range(3):
        exchange.client_frames(moves.pipe, [moves.conversation.prefix + MOVED], mesh.now)
    mesh.pump()
    assert moves.conversation.settled, "nobody drains: nothing follows"
    stays = FakeClient(mesh, mesh.nodes[1], "stays", b"\x80\x00\x00\x02")
    exchange.client_frames(stays.pipe, [stays.conversation.prefix + MOVED], mesh.now)
    assert stays.pipe.closed


def test_marks_of_a_broker_are_bounded() -> None:
    mesh = mesh_that_marks(2)
    link = next(iter(mesh.nodes[1].exchange._members.neighbours()))
    link.outlet.behind = True
    mark = encode(Kind.LEAVING, Leaving.MARK, 1, "")
    with pytest.raises(SessionError, match=f"more than {MARKS_MAX} marks"):
        mesh.nodes[1].exchange.peer_frames(2, [mark] * (MARKS_MAX + 1), mesh.now)
    assert isinstance(link.port.pipe, FakePipe)


def test_only_clients_of_this_host_may_ask_a_broker_to_leave() -> None:
    """Anybody who reaches the port, or another broker of the mesh, could have stopped it."""
    mesh = mesh_that_marks(2)
    asked: list[str] = []

    def leave(topic: str, body: bytes) -> bytes:
        asked.append(topic)
        return b"ok"

    exchange = mesh.nodes[1].exchange
    exchange.respond_to("$sys.drain.1", leave, lambda pipe: "127.0.0.1" in pipe.remote_address)
    here = FakeClient(mesh, mesh.nodes[1], "here", b"\x80\x00\x00\x01")
    afar = FakeClient(mesh, mesh.nodes[1], "afar", b"\x80\x00\x00\x02")
    afar.pipe.remote_address = "tcp://10.0.0.9:50000"
    elsewhere = FakeClient(mesh, mesh.nodes[2], "elsewhere", b"\x80\x00\x00\x03")
    refused = [client.ask("$sys.drain.1").reply for client in (afar, elsewhere)]
    assert all(b"only clients of the same host" in reply for reply in refused) and not asked
    exchange.request("$sys.drain.1", b"", 1.0, lambda status, body: refused.append(body), mesh.now)
    assert b"only clients" in refused[-1] and not asked, "a stock socket"
    assert here.ask("$sys.drain.1").reply == b"ok" and asked


def test_a_client_that_promised_no_keepalive_is_waited_for_only_if_it_says_something() -> None:
    """A `BlockingClient` whose program computes does not hear GOAWAY. It would hold up each broker."""
    mesh = mesh_that_marks(2)
    exchange = mesh.nodes[1].exchange
    awake = Moving(mesh, mesh.nodes[1], "awake", b"\x80\x00\x00\x01")
    exchange.drain(60.0, "the end", mesh.now)
    assert not exchange.drained(mesh.now)
    mesh.now += AWAKE_S
    assert exchange.drained(mesh.now)
    awake.conversation.ping()
    mesh.pump()
    assert not exchange.drained(mesh.now), "it is at work"
