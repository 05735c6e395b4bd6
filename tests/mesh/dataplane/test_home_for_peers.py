"""The answers of a home to blocks from other brokers, and what it remembers of them."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.dataplane import home_for_peers
from mesh.dataplane.home_for_peers import HandedPieces
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import BlockError
from mesh.wire import blocks
from mesh.wire.blocks import STORED
from mesh.wire.durable_frames import KEEP, Durable, Kept
from mesh.wire.session_frames import AGAIN, data_head, decode, encode
from tests.mesh.dataplane.neighbourhood import FakeMesh, FakePipe
from tests.mesh.dataplane.storing import FakeHome


class Peer:
    """Another broker that sends blocks to node 1 and reads its answers."""

    def __init__(self, options: ExchangeOptions | None = None) -> None:
        self.mesh = FakeMesh(1, options)
        self.home = FakeHome(self.mesh, 1, prompt=False)
        self.exchange = self.mesh.nodes[1].exchange
        self.exchange.members_changed([(2, "b2")])
        self.number = 0
        self.link()

    def link(self) -> None:
        self.pipe, self.number = FakePipe(), 0
        self.exchange.peer_up(2, "b2", self.pipe, 0.001, self.mesh.now, durable=True)

    def bring(self, sequence: int, *bodies: bytes, flags: int = KEEP) -> None:
        self.bring_block(
            blocks.seal(b"t", bodies, publisher=8, boot=9, sequence=sequence, level=STORED), flags
        )

    def bring_block(self, block: bytes, flags: int = KEEP) -> None:
        self.number += 1
        frame = data_head(0, flags, 0, self.number, len(block)) + block
        self.exchange.peer_frames(2, [frame], self.mesh.now)

    def kept(self) -> list[list[Any]]:
        """The answers it got, frame by frame."""
        self.mesh.pump()
        frames = [decode(frame) for frame in self.pipe.take()]
        return [frame[1] for frame in frames if frame[0] == Durable.KEPT]


def test_answers_of_a_home_in_one_turn_share_one_frame() -> None:
    peer = Peer()
    for sequence in (1, 4, 6):
        peer.bring(sequence, b"a", b"b")
    assert peer.kept() == []
    peer.home.answer()
    peer.home.answer(how="full")
    peer.home.say(Kept.DOUBT, "x" * 1000)
    assert peer.kept() == [
        [
            [8, 9, 1, 2, 0, Kept.KEPT, ""],
            [8, 9, 4, 5, 0, Kept.REFUSED, "the disk of node1 is full"],
            [8, 9, 6, 7, 0, Kept.DOUBT, "x" * 255],
        ]
    ]


def test_many_answers_are_frames_that_a_socket_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_for_peers, "ANSWERS_MAX", 4)
    peer = Peer()
    for sequence in range(10):
        peer.bring(sequence + 1, b"a")
    for _ in range(10):
        peer.home.answer()
    assert [len(frame) for frame in peer.kept()] == [4, 4, 2]


def test_an_answer_for_a_block_from_an_ended_link_is_dropped() -> None:
    peer = Peer()
    peer.bring(1, b"a")
    peer.exchange.peer_down(2, peer.mesh.now)
    peer.link()
    peer.home.answer()
    assert peer.kept() == [] and peer.home.has((8, 9), 1)
    peer.bring(1, b"a", flags=KEEP | AGAIN)
    peer.home.answer()
    assert peer.kept() == [[[8, 9, 1, 1, 0, Kept.KEPT, ""]]]
    assert peer.home.agains == [False, True]


def test_answers_that_a_broker_does_not_read_are_dropped_and_counted_beyond_a_bound() -> None:
    peer = Peer(ExchangeOptions(link_unwritten_bytes_max=50))
    for sequence in range(1, 21, 2):
        peer.bring(sequence, b"a", b"b")
        peer.home.answer()
        peer.mesh.pump()
    told = sum(map(len, peer.kept()))
    assert 0 < told < 10
    assert peer.exchange.statistics().drops == {"not_told": 2 * (10 - told)}
    assert peer.exchange.statistics().dropped == 0, "nobody lost a message"


def test_the_lowest_number_never_falls_and_is_remembered_for_a_bounded_number_of_publishers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home_for_peers, "PUBLISHERS_MAX", 2)
    peer = Peer()
    for lowest in (5, 3):
        peer.exchange.peer_frames(2, [encode(Durable.LOWEST, 8, 9, lowest)], peer.mesh.now)
    peer.bring(7, b"a")
    for other in (1, 2):
        peer.exchange.peer_frames(2, [encode(Durable.LOWEST, other, 9, 1)], peer.mesh.now)
    peer.bring(8, b"a")
    assert peer.home.lowest == [5, 0]


def test_a_copy_that_live_subscribers_had_is_still_kept() -> None:
    """De-duplication for live subscribers must not swallow blocks to keep."""
    peer = Peer()
    reader = peer.mesh.client(1)
    feed = reader.subscribe("t")
    for flags in (0, KEEP, KEEP | AGAIN):
        peer.bring(1, b"a", flags=flags)
    assert reader.take(feed) == [("t", b"a")] and reader.received == 1
    assert len(peer.home.asked) == 2


def test_pieces_are_new_once_and_bodies_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home_for_peers, "BODIES_MAX", 2)
    pieces = HandedPieces()
    assert pieces.is_new((1, 1, 1), 0) and pieces.is_new((1, 1, 1), 100)
    assert not pieces.is_new((1, 1, 1), 0)
    assert pieces.is_new((1, 1, 2), 0) and pieces.is_new((1, 1, 3), 0)
    assert pieces.is_new((1, 1, 1), 0), "it was forgotten"


def test_a_peer_brings_pieces_only_as_they_are_sealed() -> None:
    peer = Peer()
    piece = blocks.seal_pieces(b"t", bytes(70_000), publisher=8, boot=9, sequence=1, level=STORED)[1]
    *front, size, sequence, publisher, boot = blocks.HEAD.unpack_from(piece)
    shorter = blocks.HEAD.pack(*front, size - 1, sequence, publisher, boot) + piece[blocks.HEAD_SIZE : -1]
    peer.bring_block(piece)
    with pytest.raises(BlockError, match="a piece of 4975 bytes at 65024"):
        peer.bring_block(shorter)
    assert len(peer.home.asked) == 1
