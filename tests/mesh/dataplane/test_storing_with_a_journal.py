"""Level stored from a publisher through its entry broker to a home with a real journal, and to a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.wire.blocks import STORED
from tests.mesh.dataplane.homes import World
from tests.mesh.dataplane.neighbourhood import FakeMesh
from tests.mesh.dataplane.storing import StoredClient


class Pair:
    """Broker 1 is the home (of `World`); brokers 2 and 3 serve publishers."""

    def __init__(self, folder: Path) -> None:
        self.mesh = FakeMesh(3)
        self.world = World(folder)
        self._join()
        self.worker = self.world.client()
        self.worker.attach("mail", "jobs.#")
        self.made()

    def _join(self) -> None:
        for other in (2, 3):
            if (1, other) in self.mesh.links:
                self.mesh.unlink(1, other)
        self.mesh.nodes[1].exchange = self.world.exchange
        for other in (2, 3):
            self.mesh.link(1, other)

    def made(self) -> None:
        for node in (1, 2, 3):
            self.mesh.nodes[node].exchange.home_changed(1, "alpha", "", self.world.home.table)

    def settle(self, *clients: StoredClient) -> None:
        """Let everything happen that follows."""
        for _ in range(3):
            self.mesh.pump()
            self.world.now = self.mesh.now
            self.world.pump()
        for client in clients:
            client.read()

    def restart_home(self) -> None:
        """Kill the home and start the next one on the same disk."""
        self.world = self.world.restart()
        self._join()
        self.made()

    def bodies(self) -> list[bytes]:
        """The messages that the worker got since the last call."""
        return [body for work in self.worker.take() for body in work.bodies]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    if pair.world.disk is not None and not pair.world.disk.closed:
        pair.world.disk.journal.close()


def test_an_acknowledged_message_is_in_the_journal_and_reaches_a_consumer(pair: Pair) -> None:
    client = StoredClient(pair.mesh, 2)
    client.publish("jobs.a", b"a", b"b")
    assert client.acked == []
    pair.settle(client)
    assert client.acked == [([[1, 2]], [], ["alpha"])]
    assert [row.count for row in pair.world.rows()] == [2]
    assert pair.bodies() == [b"a", b"b"]


def test_a_large_body_is_acknowledged_as_a_whole_and_comes_to_a_worker(pair: Pair) -> None:
    client = StoredClient(pair.mesh, 2)
    body = bytes(range(250)) * 1000
    client.publish("jobs.a", body)
    pair.settle(client)
    assert client.acked == [([[1, 1]], [], ["alpha"])]
    assert len(pair.world.rows()) == 1


def test_a_retry_through_another_broker_after_a_lost_acknowledgement_makes_no_second_row(pair: Pair) -> None:
    client = StoredClient(pair.mesh, 2)
    client.publish("jobs.a", b"a")
    client.lose()
    pair.settle()
    client.connect(3)
    client.send(1, again=True)
    pair.settle(client)
    assert client.acked == [([[1, 1]], [], ["alpha"])]
    assert len(pair.world.rows()) == 1 and pair.bodies() == [b"a"]


@pytest.mark.parametrize("written", [False, True])
def test_a_block_of_a_failed_commit_is_in_doubt_until_the_home_has_restarted(
    pair: Pair, written: bool
) -> None:
    client = StoredClient(pair.mesh, 2)
    pair.world.journal.failing, pair.world.journal.kept = True, written
    client.publish("jobs.a", b"a")
    pair.settle(client)
    for _ in range(20):
        client.turn(1.0)
        pair.settle(client)
    assert client.acked == client.refused == [] and client.pending == [(1, 1, [], ["alpha"])]
    pair.restart_home()
    pair.settle(client)
    assert client.acked == [([[1, 1]], [], ["alpha"])]
    assert len(pair.world.rows()) == 1


def test_a_full_disk_refuses_new_blocks_and_acknowledges_kept_ones(pair: Pair) -> None:
    client = StoredClient(pair.mesh, 2)
    client.publish("jobs.a", b"a")
    pair.settle(client)
    client.lose()
    pair.world.journal.full = True
    client.connect(3)
    client.send(1, again=True)
    client.publish("jobs.a", b"b")
    pair.settle(client)
    assert client.acked == [([[1, 1]], [], ["alpha"])]
    assert client.refused == [([[2, 2]], "home alpha: the disk is full")]
    pair.world.journal.full = False
    client.send(2, again=True)
    pair.settle(client)
    assert client.acked[1:] == [([[2, 2]], [], ["alpha"])]


def test_a_home_that_is_killed_before_its_commit_is_asked_again_by_the_next_link(pair: Pair) -> None:
    client = StoredClient(pair.mesh, 2)
    for number in range(5):
        client.publish("jobs.a", b"%d" % number)
    pair.mesh.pump()
    pair.restart_home()
    assert client.acked == []
    pair.settle(client)
    assert client.acked == [([[1, 5]], [], ["alpha"])]
    assert [row.block[-1:] for row in pair.world.rows()] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_block_that_its_publisher_gave_up_is_forgotten_and_a_late_copy_is_not_kept(pair: Pair) -> None:
    """The entry broker tells the home the lowest number that its publisher waits for."""
    client = StoredClient(pair.mesh, 2)
    client.publish("jobs.a", b"a")
    client.publish("jobs.a", b"b", behind=0)
    pair.settle(client)
    client.lose()
    client.connect(3)
    client.send(1, again=True, behind=0)
    pair.settle(client)
    client.turn(2.0)
    assert client.acked == client.pending == [] and client.past == [(1, 1, ["alpha"])]


def test_a_body_that_lost_pieces_in_a_restart_of_its_home_is_stored_once_it_is_sent_again(
    pair: Pair,
) -> None:
    """The home drops the pieces of unfinished bodies when it starts, and the entry broker had released them:
    the publisher waited until it timed out with `Unknown`."""
    client = pair.mesh.client(2)
    body = bytes(range(250)) * 1000
    ticket, _ = client.conversation.add_many("jobs.a", [body], STORED)
    client.conversation.flush()
    pieces = client.conversation.take_frames()
    assert ticket is not None and len(pieces) == 4
    client.conversation._frames = pieces[:2]
    pair.settle()
    pair.restart_home()
    client.conversation._frames = pieces[2:]
    pair.settle()
    began = pair.mesh.now
    while not ticket.done and pair.mesh.now < began + 9.0:
        pair.mesh.turn(0.25)
        client.conversation.resend(pair.mesh.now)
        pair.settle()
    assert ticket.done and ticket.receipt(0).homes == ("alpha",)
    assert pair.mesh.now <= began + 3.5
    (row,) = pair.world.rows()
    assert row.count == 1
