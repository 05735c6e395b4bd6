"""A publisher that loses its broker repeats at another one what the first may not have passed on."""

from __future__ import annotations

from mesh.clients.tickets import Ticket
from mesh.dataplane.session_control import ADDRESSES_MAX
from mesh.wire import blocks
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh

LARGE = bytes(300_000)


def moved(client: FakeClient, mesh: FakeMesh, to: int) -> None:
    """Its broker is killed."""
    gone = client.node.id
    client.lose()
    for other in mesh.nodes:
        if other != gone:
            mesh.unlink(*sorted((gone, other)))
    mesh.tell_members(gone)
    client.connect(mesh.nodes[to])


def told_by_some(body: bytes, *, acknowledged: bool) -> None:
    """Broker 1 sends broker 2 a message, and is killed before it has sent it to broker 3."""
    mesh = FakeMesh(3)
    near = FakeClient(mesh, mesh.nodes[2], "near", b"\x80\x00\x00\x02")
    far = FakeClient(mesh, mesh.nodes[3], "far", b"\x80\x00\x00\x03")
    feeds = near.subscribe("jobs.#"), far.subscribe("jobs.#")
    publisher = FakeClient(mesh, mesh.nodes[1], "publisher", b"\x80\x00\x00\x01")
    publisher.conversation.recent.keeps = True
    mesh.held.add((1, 3))
    if not acknowledged:
        pipe, publisher.pipe = publisher.pipe, publisher.pipe
        mesh.clients.remove(publisher)
        ticket, _ = publisher.conversation.add_many("jobs.a", [body], blocks.ACCEPTED)
        publisher.conversation.flush()
        frames = publisher.conversation.take_control() + publisher.conversation.take_frames()
        mesh.nodes[1].exchange.client_frames(pipe, frames, mesh.now)
        mesh.pump()
        mesh.clients.append(publisher)
    else:
        ticket = publisher.publish("jobs.a", body, level=blocks.ACCEPTED)
    assert isinstance(ticket, Ticket) and ticket.done is acknowledged
    assert near.take(feeds[0]) == [("jobs.a", body)] and far.take(feeds[1]) == []
    moved(publisher, mesh, to=2)
    mesh.pump()
    assert ticket.done and ticket.error is None
    assert near.take(feeds[0]) == [], "it has had it"
    assert far.take(feeds[1]) == [("jobs.a", body)]
    moved_on = publisher.publish("jobs.a", b"next", level=blocks.ACCEPTED)
    assert isinstance(moved_on, Ticket) and moved_on.done
    assert near.take(feeds[0]) == far.take(feeds[1]) == [("jobs.a", b"next")]


def test_a_retry_reaches_brokers_that_the_dead_broker_had_not_reached() -> None:
    """The next broker had it, so it only acknowledged the retry; other brokers never got it."""
    told_by_some(b"one", acknowledged=False)
    told_by_some(LARGE, acknowledged=False)


def test_the_last_acknowledged_blocks_are_repeated_too() -> None:
    """The acknowledgement says that the broker has routed it, not that others have read it."""
    told_by_some(b"one", acknowledged=True)
    told_by_some(LARGE, acknowledged=True)


def test_a_client_repeats_nothing_after_a_goodbye_or_without_other_addresses() -> None:
    for keeps in (False, True):
        mesh = FakeMesh(2)
        publisher = FakeClient(mesh, mesh.nodes[1], "publisher", b"\x80\x00\x00\x01")
        publisher.conversation.recent.keeps = keeps
        publisher.publish("jobs.a", b"one", level=blocks.ACCEPTED)
        if keeps:
            mesh.nodes[1].exchange.leave("the end", mesh.now)
            mesh.pump()
        moved(publisher, mesh, to=2)
        assert mesh.nodes[2].exchange.statistics().published == 0


def test_clients_are_sent_the_addresses_of_other_brokers_and_their_changes() -> None:
    mesh = FakeMesh(1)
    exchange = mesh.nodes[1].exchange
    early = FakeClient(mesh, mesh.nodes[1], "early", b"\x80\x00\x00\x01")
    assert early.conversation.told == ()
    exchange.set_addresses(["tcp://b:1", "tcp://c:1", "tcp://b:1", "", "tcp://" + "x" * 300])
    late = FakeClient(mesh, mesh.nodes[1], "late", b"\x80\x00\x00\x02")
    mesh.pump()
    assert early.conversation.told == late.conversation.told == ("tcp://b:1", "tcp://c:1")
    exchange.set_addresses(["tcp://b:1", "tcp://c:1"])
    assert not early.pipe.control, "no news"
    exchange.set_addresses([f"tcp://10.0.0.{number}:1" for number in range(200)])
    mesh.pump()
    assert len(early.conversation.told) == ADDRESSES_MAX
