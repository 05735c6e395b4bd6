"""Outlets and ports: blocks that go at once, blocks that wait for credit or connection, and unwritten
ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mesh.dataplane.backlogs import Budget, LiveQueue, NoQueue, QueuedBlock
from mesh.dataplane.options import DeliveryOptions
from mesh.dataplane.outlets import Outlet, block_encoder, unlimited
from mesh.dataplane.ports import Port
from mesh.errors import SessionError
from mesh.wire import blocks
from mesh.wire.session_frames import BYTES_MAX, DATA_SIZE, MESSAGES_MAX, Kind, SendCredit, encode, read_data

from .neighbourhood import FakePipe, client_port

PREFIX = b"\x80\0\0\1"


def live_outlet(port: Port, credit: SendCredit | None = None) -> Outlet:
    backlog = LiveQueue(DeliveryOptions(), Budget(1 << 40), 0.0)
    return Outlet(port, credit or SendCredit(), backlog, block_encoder(PREFIX, 7), PREFIX)


def give(outlet: Outlet, block: bytes, messages: int = 5) -> None:
    if not outlet.offer(block, messages, 0, 0):
        outlet.wait(block, messages, 0, 0, None, 0.0)


def sent(frames: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """(sequence, block) of DATA frames."""
    return [(read_data(frame, 4)[3], frame[4 + DATA_SIZE :]) for frame in frames]


def sealed(count: int, body: bytes = b"x") -> bytes:
    return blocks.seal(b"t", [body] * count, publisher=1, boot=1, sequence=1)


# --- outlets


def test_a_block_with_credit_is_sent_at_once_after_its_head() -> None:
    port = client_port()
    outlet = live_outlet(port, SendCredit(10, 1000))
    give(outlet, b"block")
    (frame,) = port.ready
    assert frame[:4] == PREFIX and read_data(frame, 4) == (0, 0, 7, 1)
    assert sent(port.ready) == [(1, b"block")]
    assert (outlet.credit.messages, outlet.credit.bytes) == (5, 995)
    assert port.turn.dirty == [port], "the port is dirty once"


def test_a_memoryview_is_sent_like_its_bytes() -> None:
    port = client_port()
    outlet = live_outlet(port, SendCredit(10, 1000))
    assert outlet.offer(memoryview(b"..block")[2:], 5, 0, 0)
    assert sent(port.ready) == [(1, b"block")]


def test_blocks_without_credit_wait_in_order() -> None:
    port = client_port()
    outlet = live_outlet(port)
    for name in (b"a", b"b", b"c"):
        give(outlet, name)
    assert not port.ready and outlet in port.turn.waiting
    outlet.granted(6, 1000, 1.0)
    assert sent(port.ready) == [(1, b"a"), (2, b"b")], "one overdraws"
    outlet.granted(100, 1000, 1.0)
    give(outlet, b"d")
    assert sent(port.ready)[2:] == [(3, b"c"), (4, b"d")]
    assert outlet not in port.turn.waiting


def test_a_question_waits_in_line_and_counts_as_one_message() -> None:
    port = client_port()
    outlet = live_outlet(port)
    give(outlet, b"a")
    outlet.offer_frame(b"ASK", 0.0)
    outlet.granted(100, 1000, 0.0)
    assert port.ready[1] == PREFIX + b"ASK"
    assert (outlet.credit.messages, port.messages_out) == (94, 6)
    outlet.offer_frame(b"ASK2", 0.0)
    give(outlet, b"b")
    assert port.ready[2] == PREFIX + b"ASK2"
    assert read_data(port.ready[3], 4)[3] == 2, "a question takes no number of the blocks"


def test_credit_above_every_sensible_window_is_refused() -> None:
    outlet = live_outlet(client_port())
    outlet.granted(MESSAGES_MAX, BYTES_MAX, 0.0)
    with pytest.raises(SessionError, match="above the limits"):
        outlet.granted(1, 0, 0.0)


def test_an_encoder_of_another_protocol_makes_its_own_frames() -> None:
    port = Port(client_port().turn, FakePipe(), 1 << 20, lambda frame: 1)

    def lines(frames: list[bytes], block: bytes | memoryview, hops: int, flags: int, sequence: int) -> None:
        frames += [b"PUB " + body for body in blocks.open_block(bytes(block)).bodies]

    outlet = Outlet(port, unlimited(), NoQueue(), lines)
    assert outlet.offer(sealed(3, b"hello"), 3, 0, 0)
    assert port.ready == [b"PUB hello"] * 3
    assert (port.messages_out, outlet.dropped) == (3, 0)


# --- a source that is not the live stream


class Journal:
    """Blocks that are kept, and cursors over them."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []


class Cursor:
    """A backlog that keeps nothing: it has a position in the journal."""

    dropped = 0

    def __init__(self, journal: Journal, place: int) -> None:
        self.journal = journal
        self.place = place

    @property
    def messages(self) -> int:
        return len(self.journal.blocks) - self.place

    def push(self, item: QueuedBlock, now: float) -> bool:
        return False  # the journal has it

    def pop(self) -> QueuedBlock | None:
        if self.place == len(self.journal.blocks):
            return None
        self.place += 1
        return QueuedBlock(self.journal.blocks[self.place - 1], 1)

    def progress(self, now: float) -> None: ...

    def check_stall(self, now: float) -> None: ...

    def close(self) -> int:
        return 0  # waiting blocks are not lost: another cursor finds them


def test_a_cursor_over_a_journal_feeds_an_outlet_that_then_goes_live() -> None:
    journal = Journal()
    port = client_port()
    cursor = Cursor(journal, 2)
    outlet = Outlet(port, SendCredit(3, 1000), cursor, block_encoder(PREFIX, 1))

    def publish(block: bytes) -> None:
        journal.blocks.append(block)
        if outlet.offer(block, 1, 0, 0):
            cursor.place += 1
        else:
            outlet.wait(block, 1, 0, 0, None, 0.0)

    journal.blocks += [b"0", b"1", b"2", b"3", b"4", b"5"]
    outlet.catch_up()
    assert [block for _, block in sent(port.ready)] == [b"2", b"3", b"4"], "as far as credit reaches"
    publish(b"6")
    assert len(port.ready) == 3 and outlet.behind
    outlet.granted(10, 1000, 1.0)
    publish(b"7")
    assert not outlet.behind, "it has caught up: what is published now goes at once"
    assert sent(port.ready) == [(number, b"%d" % (number + 1)) for number in range(1, 7)], (
        "none twice, no gap"
    )


def test_an_outlet_that_catches_up_is_told_when_its_port_has_room() -> None:
    journal = Journal()
    journal.blocks = [bytes(100)] * 10
    pipe = FakePipe()
    port = client_port(pipe, bytes_max=250)
    outlet = Outlet(port, unlimited(), Cursor(journal, 0), block_encoder(PREFIX, 1))
    outlet.catch_up()
    assert len(port.ready) == 3 and outlet in port.blocked
    taken = 0
    while outlet.behind:
        port.hand_over(0.0)
        taken += len(pipe.take())
        port.written()
        outlet.resume(0.0)
    port.hand_over(0.0)
    assert taken + len(pipe.take()) == 10


# --- ports


def test_bytes_ready_to_be_written_are_bounded_for_any_credit() -> None:
    pipe = FakePipe()
    port = client_port(pipe, bytes_max=1000)
    outlet = live_outlet(port, SendCredit(MESSAGES_MAX, BYTES_MAX))
    for _ in range(100):
        give(outlet, bytes(100), 1)
        port.hand_over(0.0)
    assert len(pipe.data) == 10 and outlet.backlog.messages == 90
    assert pipe.asked, "the port asks to be told when that was written"
    pipe.take()
    port.written()
    outlet.resume(1.0)
    port.hand_over(1.0)
    assert len(pipe.data) == 10 and outlet.backlog.messages == 80


def test_the_bound_is_for_all_outlets_of_a_port_together() -> None:
    port = client_port(bytes_max=1000)
    outlets = [live_outlet(port, unlimited()) for _ in range(50)]
    for outlet in outlets:
        give(outlet, bytes(100), 1)
    assert len(port.ready) == 10 and len(port.blocked) == 40


def test_a_pipe_that_takes_only_some_frames_makes_the_port_full_until_it_is_written() -> None:
    pipe = FakePipe(limit=3)
    port = client_port(pipe)
    outlet = live_outlet(port, unlimited())
    for _ in range(5):
        give(outlet, sealed(2), 2)
    port.hand_over(0.0)
    assert (len(pipe.data), len(port.ready)) == (3, 2) and port.full
    give(outlet, sealed(2), 2)
    assert len(port.ready) == 2
    pipe.take()
    port.written()
    assert not port.full


def test_a_closed_port_says_how_many_messages_were_not_written() -> None:
    pipe = FakePipe(limit=4)
    port = client_port(pipe)
    outlet = live_outlet(port, unlimited())
    give(outlet, sealed(3), 3)
    port.hand_over(0.0)
    pipe.take()
    for _ in range(6):
        give(outlet, sealed(2), 2)
    outlet.offer_frame(encode(Kind.ASK, 1, 1, 0, "t", b"", b"", 1), 0.0)
    port.hand_over(0.0)
    assert (len(pipe.data), len(port.ready)) == (4, 3)
    assert port.close() == (13, 13) and port.messages_out == 3


def test_frames_that_a_closing_pipe_still_flushes_are_not_counted_as_lost() -> None:
    pipe = FakePipe(limit=2)
    port = client_port(pipe)
    outlet = live_outlet(port, unlimited())
    for _ in range(3):
        give(outlet, sealed(2), 2)
    port.hand_over(0.0)
    assert port.close(flushed=True) == (2, 2)


def test_frames_of_a_session_that_ended_are_taken_back_and_counted() -> None:
    port = client_port()
    gone = Outlet(port, unlimited(), NoQueue(), block_encoder(b"\x80\0\0\2", 1))
    stays = live_outlet(port, unlimited())
    give(gone, sealed(4), 4)
    give(stays, sealed(3), 3)
    port.send(b"\x80\0\0\2" + encode(Kind.PONG, 1))
    assert port.discard(b"\x80\0\0\2") == 4
    assert len(port.ready) == 1 and port.messages_out == 3
