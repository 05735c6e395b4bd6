"""When a client's messages leave: with a loop whose time the test sets, and a pipe that only collects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from mesh.clients.conversation import Conversation
from mesh.clients.writer import DEFER_S, LONE_S, SEALS, Writer
from mesh.wire.session_frames import Kind, encode
from tests.mesh.dataplane.neighbourhood import FakePipe

PREFIX = b"\x80\0\0\1"


class FakeLoop:
    """The test sets its time, and runs the calls put off to the end of the loop turn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def turn(self, after_s: float = 0.0) -> None:
        self.now += after_s
        soon, self.soon = self.soon, []
        for call in soon:
            call()


class WritingPipe(FakePipe):
    """Writes when told to, as much as the kernel takes, and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0
        self.kernel_is_full = False
        self.written: list[bytes] = []

    def flush(self) -> None:
        self.flushes += 1
        if not self.kernel_is_full:
            self.written += self.take()


class Desk:
    """A writer with a session, a pipe, and credit for so many messages."""

    def __init__(self, credit: int = 1 << 20) -> None:
        self.loop = FakeLoop()
        self.conversation = Conversation(
            secret=bytes(16), boot=1, name="", prefix=PREFIX, keepalive_s=0.0, now=0.0
        )
        self.writer = Writer(self.conversation, cast(Any, self.loop))
        self.pipe = WritingPipe()
        self.conversation.connected(0.0)
        self.writer.attach(cast(Any, self.pipe))
        self.hear(Kind.WELCOME, 1, 1, "alpha", "m", 1, credit, 1 << 30)
        self.pipe.take()

    def hear(self, kind: Kind, *fields: object) -> None:
        self.conversation.received([PREFIX + encode(kind, *fields)], self.loop.now)
        self.writer.credit_came()

    def gather(self, count: int = 1) -> None:
        """Gather a message as the publisher does; it flushes no lone message."""
        self.conversation.add_many("t", [b"x"] * count, 0)
        if not self.writer.scheduled:
            self.writer.schedule()

    def left(self) -> int:
        """Number of frames handed to the pipe since the last call."""
        written, self.pipe.written = self.pipe.written, []
        return len(written + self.pipe.take())


def test_a_message_after_a_pause_is_sent_alone_and_at_once() -> None:
    desk = Desk()
    desk.gather()
    assert desk.writer.lone and desk.left() == 0
    desk.writer.flush_lone()
    assert (desk.left(), desk.pipe.flushes, desk.writer.lone) == (1, 1, False)
    desk.loop.turn()
    assert not desk.writer.scheduled and not desk.loop.soon, "nothing came after it: no more turns"
    desk.loop.now += LONE_S / 2
    desk.gather()
    assert not desk.writer.lone, "so soon after the last it is not alone"


def test_an_idle_client_flushes_at_the_end_of_the_turn_and_a_busy_one_after_a_while() -> None:
    desk = Desk()
    desk.gather()
    desk.loop.turn()
    assert (desk.left(), desk.pipe.flushes) == (1, 1)
    turns = 0
    while desk.left() == 0:
        desk.gather()
        desk.loop.turn(DEFER_S / 10)
        turns += 1
    assert 10 <= turns <= 11, "gathered for as long as a message may wait"
    assert desk.pipe.flushes == 1, "the loop writes at the end of its turn"
    assert desk.conversation.statistics().published == 1 + turns


def test_the_client_is_idle_again_after_a_turn_without_messages() -> None:
    desk = Desk()
    desk.gather()
    desk.loop.turn()
    assert desk.left() == 1 and desk.writer.scheduled
    desk.loop.turn()
    assert not desk.writer.scheduled
    desk.gather()
    desk.loop.turn()
    assert desk.left() == 1, "at the end of its turn, not after a while"


def test_no_turn_is_scheduled_without_credit() -> None:
    desk = Desk(credit=1)
    desk.gather(1)
    desk.loop.turn()
    desk.gather(2)
    desk.loop.turn(DEFER_S)
    assert desk.left() == 1 and desk.conversation.gathered
    assert not desk.writer.scheduled and not desk.loop.soon, "it does not spin"
    desk.writer.credit_came()
    assert not desk.writer.scheduled, "frames came, but no credit among them"
    # a message that waited for credit does not count as alone, however long that took
    desk.loop.now += 2 * LONE_S
    desk.hear(Kind.CREDIT, 0, 10, 1 << 20)
    assert desk.writer.scheduled and not desk.writer.lone
    desk.loop.turn(DEFER_S)
    assert desk.left() == 1 and not desk.conversation.gathered


def test_sealing_by_size_yields_after_so_many_or_when_the_kernel_is_full() -> None:
    desk = Desk()
    yielded = []
    for _ in range(2 * SEALS):
        desk.gather()
        yielded.append(desk.writer.seal())
    assert yielded == ([False] * (SEALS - 1) + [True]) * 2
    assert desk.left() == 2 * SEALS
    desk.gather()
    desk.pipe.kernel_is_full = True
    assert desk.writer.seal(), "what was handed over is still with the pipe"
    assert desk.pipe.flushes == 2 * SEALS + 1


def test_frames_that_a_full_pipe_refuses_follow_in_order_and_are_dropped_with_the_pipe() -> None:
    desk = Desk()
    desk.pipe.limit = 1
    for body in (b"1", b"2", b"3"):
        desk.conversation.add_many("t", [body], 0)
        desk.writer.flush()
    sent = desk.pipe.take()
    desk.writer.hand_over()
    sent += desk.pipe.take()
    assert [frame[-1:] for frame in sent] == [b"1", b"2"]
    desk.writer.detach()
    desk.conversation.disconnected()
    desk.pipe = WritingPipe()
    desk.conversation.connected(desk.loop.now)
    desk.writer.attach(cast(Any, desk.pipe))
    assert desk.left() == 1, "HELLO, and nothing of the old connection"


def test_no_frames_are_handed_over_without_a_pipe() -> None:
    desk = Desk()
    desk.writer.detach()
    desk.gather()
    assert desk.writer.seal(), "there is nothing to be done here but wait"
    assert (desk.left(), desk.pipe.flushes) == (0, 0)
