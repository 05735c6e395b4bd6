"""A pipe's queue: bounded, control first, pulled once a turn; its end is reported once."""

from __future__ import annotations

from functools import partial

import pytest

from protocols.errors import RemoteProtocolError
from protocols.pipe import CONTROL_MAX, HELD, INBOX_FULL, PARKED, Pipe
from tests.support.interrupts import interrupted_at


class FakeConnection:
    peer = 0x10
    local_address = "here"
    remote_address = "there"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, pipe: Pipe) -> None: ...

    def flush_soon(self) -> None:
        self.calls.append("flush")

    def write_now(self, frame: bytes) -> bool:
        return False

    def flush_now(self) -> None:
        self.calls.append("now")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        self.calls.append("abort")

    def abort_soon(self) -> None:
        self.calls.append("abort soon")

    async def wait_closed(self) -> None: ...


class FakeOwner:
    def __init__(self) -> None:
        self.received: list[list[bytes]] = []
        self.closed: list[str] = []
        self.writable = 0

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.received.append(frames)

    def pipe_writable(self, pipe: Pipe) -> None:
        self.writable += 1

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.closed.append(reason)

    def pipe_gone(self, pipe: Pipe) -> None: ...


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def owner() -> FakeOwner:
    return FakeOwner()


@pytest.fixture
def pipe(connection: FakeConnection, owner: FakeOwner) -> Pipe:
    return Pipe(1, connection, owner, url="inproc://x", dialed=True, limit=3)


def test_many_sends_ask_for_one_flush(pipe: Pipe, connection: FakeConnection) -> None:
    assert pipe.send(b"1")
    assert pipe.send_many([b"2", b"3"]) == 2
    assert connection.calls == ["flush"]
    assert pipe.take_output() == [b"1", b"2", b"3"]
    assert pipe.take_output() == []
    pipe.send(b"4")
    assert connection.calls == ["flush", "flush"]


def test_a_flush_is_passed_on_only_if_something_is_queued(pipe: Pipe, connection: FakeConnection) -> None:
    pipe.flush()
    assert connection.calls == []
    pipe.send(b"1")
    pipe.flush()
    assert connection.calls == ["flush", "now"]


@pytest.mark.parametrize("control", [[], [b"control"]])
def test_a_handler_that_sends_while_the_output_is_taken_loses_and_repeats_no_frame(
    pipe: Pipe, control: list[bytes]
) -> None:
    """The handler's frame was lost if a control frame waited too."""
    place, reached = 1, True
    while reached:
        for frame in control:
            pipe.send_control(frame)
        pipe.send(b"first")
        taken: list[bytes] = []
        reached = interrupted_at(
            place, partial(pipe.move_output, taken), handler=partial(pipe.send, b"handler")
        )
        assert taken + pipe.take_output() == [*control, b"first"] + [b"handler"] * reached
        place += 1
    assert place > 2


def test_a_full_queue_refuses_counts_and_says_when_there_is_room(pipe: Pipe, owner: FakeOwner) -> None:
    assert pipe.send_many([b"1", b"2", b"3", b"4", b"5"]) == 3
    assert pipe.full
    assert not pipe.send(b"6")
    assert pipe.send_many([b"7"]) == 0
    assert pipe.statistics().refused == 4
    pipe.take_output()
    assert owner.writable == 0, "the owner is not called while its output is taken"
    pipe.output_written()
    pipe.output_written()
    assert owner.writable == 1, "room is reported once, and only to refused senders"


def test_the_caller_is_told_once_when_the_waiting_data_was_taken(pipe: Pipe, owner: FakeOwner) -> None:
    pipe.send_control(b"c")
    pipe.notify_writable()
    pipe.take_output()
    pipe.output_written()
    assert owner.writable == 0, "no data waited"
    pipe.send(b"a")
    assert (pipe.unsent, pipe.queued) == (1, 1)
    pipe.notify_writable()
    pipe.take_output()
    pipe.output_written()
    pipe.output_written()
    assert owner.writable == 1 and pipe.unsent == 0


def test_control_goes_ahead_of_data_and_past_a_full_queue(pipe: Pipe) -> None:
    pipe.send_many([b"1", b"2", b"3"])
    pipe.send_control(b"c1")
    pipe.send_control(b"c2")
    assert pipe.queued == 5
    assert pipe.take_output() == [b"c1", b"c2", b"1", b"2", b"3"]


def test_a_peer_that_reads_no_control_frames_loses_its_pipe(
    pipe: Pipe, owner: FakeOwner, connection: FakeConnection
) -> None:
    for _ in range(CONTROL_MAX):
        pipe.send_control(b"c")
    assert not pipe.closed
    pipe.send_control(b"c")
    assert pipe.closed and pipe.full
    assert connection.calls[-1] == "abort soon"
    assert owner.closed == [], "an owner in the middle of its work is not called back"
    pipe.send_control(b"c")
    pipe.deliver([b"late"])
    assert owner.received == [] and connection.calls.count("abort soon") == 1
    pipe.connection_lost("closed by this end")  # the connection's next step
    assert owner.closed == [f"{CONTROL_MAX} control frames unread"] == [pipe.close_reason]


def test_a_pipe_that_was_given_up_may_be_closed_by_its_owner_at_once(
    pipe: Pipe, owner: FakeOwner, connection: FakeConnection
) -> None:
    for _ in range(CONTROL_MAX + 1):
        pipe.send_control(b"c")
    pipe.close("no longer wanted")
    pipe.connection_lost("closed by this end")
    assert owner.closed == [f"{CONTROL_MAX} control frames unread"], "told once, and why"
    assert connection.calls[-1] == "abort"


def test_the_end_is_reported_once_whichever_side_ends_the_pipe(pipe: Pipe, owner: FakeOwner) -> None:
    pipe.connection_lost("first")
    pipe.connection_lost("second")
    pipe.close("third")
    assert owner.closed == ["first"]
    assert pipe.close_reason == "first"


def test_a_closed_pipe_refuses_and_delivers_nothing(pipe: Pipe, owner: FakeOwner) -> None:
    pipe.send(b"queued")
    pipe.close("over", flush=True)
    assert not pipe.send(b"late")
    assert pipe.send_many([b"late"]) == 0
    pipe.send_control(b"late")
    pipe.deliver([b"late"])
    assert owner.received == []
    assert pipe.take_output() == [b"queued"], "what was queued is still there for the connection to write"


def test_close_drains_only_when_asked(pipe: Pipe, connection: FakeConnection) -> None:
    pipe.close("now")
    assert connection.calls == ["abort"]


def test_reading_continues_when_the_last_reason_to_pause_has_ended(
    pipe: Pipe, connection: FakeConnection
) -> None:
    pipe.pause(INBOX_FULL)
    pipe.pause(HELD)
    pipe.resume(INBOX_FULL)
    assert connection.calls == ["pause"]
    pipe.resume(PARKED)
    pipe.resume(HELD)
    pipe.resume(HELD)
    pipe.close("over")
    pipe.pause(HELD)
    assert connection.calls == ["pause", "resume", "abort"]


def test_statistics_count_frames_both_ways(pipe: Pipe) -> None:
    pipe.deliver([b"a", b"b"])
    pipe.send(b"c")
    pipe.take_output()
    pipe.send(b"d")
    counted = pipe.statistics()
    assert (counted.frames_in, counted.frames_out, counted.queued) == (2, 1, 1)
