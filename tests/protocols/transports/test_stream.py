"""Stream connections over tcp and ipc: a bad peer loses its connection, a good one loses nothing."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from protocols.dialling import dial_once
from protocols.options import SocketOptions
from protocols.pipe import INBOX_FULL, Pipe
from protocols.wire.framing import IPC_LEAD, TCP_LEAD, encode_frames
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.wire.test_handshake import BROKEN

from .support import FakeSocket, assert_gets_through, listen_url, listening, raw_peer, until

PAIR_HEADER = encode_header(ProtocolNumber.PAIR0)
OPTIONS = SocketOptions(linger_s=5.0, recv_size_max=0)
LEADS = {"tcp": TCP_LEAD, "ipc": IPC_LEAD}


# --- handshake


async def test_a_listener_sends_its_header_before_it_has_read_anything(scheme: str, tmp_path: Path) -> None:
    async with (
        listening(listen_url(scheme, tmp_path), OPTIONS) as (_, listener),
        raw_peer(listener.url) as peer,
    ):
        assert await peer.reader.readexactly(8) == PAIR_HEADER


@pytest.mark.parametrize(("header", "reason"), [*BROKEN, (encode_header(0x31).hex(), "wrong protocol")])
async def test_a_broken_header_costs_the_connection_and_is_counted(
    scheme: str, tmp_path: Path, header: str, reason: str
) -> None:
    data = bytes.fromhex(header)
    if reason == "short header":
        data, reason = data[:4], "closed"
    async with listening(listen_url(scheme, tmp_path), OPTIONS) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(data)
            if reason == "closed":
                peer.writer.write_eof()
            assert await peer.read_all() == PAIR_HEADER
        assert listener.statistics().refused == {reason: 1}
        assert owner.all_pipes == []
        await assert_gets_through(owner, listener.url, OPTIONS)


async def test_a_silent_peer_is_cut_at_the_deadline(scheme: str, tmp_path: Path) -> None:
    options = replace(OPTIONS, handshake_timeout_s=0.05)
    async with listening(listen_url(scheme, tmp_path), options) as (owner, listener):
        async with raw_peer(listener.url) as silent, raw_peer(listener.url) as half:
            half.writer.write(PAIR_HEADER[:7])
            assert await silent.read_all() == PAIR_HEADER
            assert await half.read_all() == PAIR_HEADER
        assert listener.statistics().handshake_timeouts == 2
        await assert_gets_through(owner, listener.url, OPTIONS)


async def test_a_header_may_come_byte_by_byte_and_frames_right_behind_it(scheme: str, tmp_path: Path) -> None:
    async with (
        listening(listen_url(scheme, tmp_path), OPTIONS) as (owner, listener),
        raw_peer(listener.url) as peer,
    ):
        data = PAIR_HEADER + encode_frames([b"early", b"", b"bird"], LEADS[scheme])
        for i in range(len(data)):
            peer.writer.write(data[i : i + 1])
            await asyncio.sleep(0)
        await until(lambda: len(owner.received) == 3)
        assert owner.received == [b"early", b"", b"bird"]


async def test_frames_that_come_with_the_header_are_delivered_after_attach(
    scheme: str, tmp_path: Path
) -> None:
    async with (
        listening(listen_url(scheme, tmp_path), OPTIONS) as (owner, listener),
        raw_peer(listener.url) as peer,
    ):
        peer.writer.write(PAIR_HEADER + encode_frames([b"1", b"2"], LEADS[scheme]))
        peer.writer.write_eof()
        await until(lambda: owner.lost)
        assert owner.received == [b"1", b"2"]
        assert owner.lost == ["closed by the peer"]


async def test_early_frames_wait_for_a_dialler_and_an_end_does_not_lose_them(
    scheme: str, tmp_path: Path
) -> None:
    """The peer sends everything and is gone before the dialling task runs again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PAIR_HEADER + encode_frames([b"hello", b"and"], LEADS[scheme]))
        writer.write(encode_frames([b"goodbye"], LEADS[scheme]))
        await reader.readexactly(8)
        writer.close()

    if scheme == "tcp":
        server: asyncio.Server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    else:
        server = await asyncio.start_unix_server(serve, tmp_path / "peer.sock")
        url = f"ipc://{tmp_path / 'peer.sock'}"
    owner = FakeSocket(options=OPTIONS)
    await dial_once(owner, url)
    await until(lambda: owner.lost)
    assert owner.received == [b"hello", b"and", b"goodbye"]
    server.close()
    await owner.aclose()


# --- frames


async def test_a_frame_above_the_limit_costs_the_pipe_but_no_earlier_frame(
    scheme: str, tmp_path: Path
) -> None:
    options = replace(OPTIONS, recv_size_max=100)
    async with listening(listen_url(scheme, tmp_path), options) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER + encode_frames([b"x" * 100, b"y" * 101], LEADS[scheme]))
            await peer.read_all()
        assert owner.received == [b"x" * 100]
        assert owner.lost == ["a message of 101 bytes is above the limit of 100 (recv_size_max)"]
        assert sum(listener.statistics().broken.values()) == 1
        await assert_gets_through(owner, listener.url, OPTIONS)


async def test_an_absurd_length_is_refused_at_once(scheme: str, tmp_path: Path) -> None:
    options = replace(OPTIONS, recv_size_max=1 << 20)
    async with listening(listen_url(scheme, tmp_path), options) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER + LEADS[scheme] + b"\xff" * 8)
            await peer.read_all()
        assert sum(listener.statistics().broken.values()) == 1
        await assert_gets_through(owner, listener.url, OPTIONS)


async def test_an_ipc_frame_of_another_type_costs_the_pipe(tmp_path: Path) -> None:
    async with listening(listen_url("ipc", tmp_path), OPTIONS) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER + encode_frames([b"x"], b"\x02"))
            await peer.read_all()
        assert sum(listener.statistics().broken.values()) == 1
        await assert_gets_through(owner, listener.url, OPTIONS)


async def test_an_end_inside_a_frame_loses_that_frame_silently(scheme: str, tmp_path: Path) -> None:
    async with listening(listen_url(scheme, tmp_path), OPTIONS) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER + encode_frames([b"whole", b"truncated"], LEADS[scheme])[:-1])
            peer.writer.write_eof()
            await peer.read_all()
        await until(lambda: owner.lost)
        assert owner.received == [b"whole"]
        assert owner.lost == ["closed by the peer inside a frame"]
        assert not listener.statistics().broken


async def test_a_reset_ends_the_pipe_with_the_systems_reason(tmp_path: Path) -> None:
    async with listening(listen_url("tcp", tmp_path), OPTIONS) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER)
            await until(lambda: owner.pipes)
            raw: socket.socket = peer.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.writer.transport.abort()
            await until(lambda: owner.lost)
        assert "reset" in owner.lost[0].lower()
        await assert_gets_through(owner, listener.url, OPTIONS)


# --- flow


@asynccontextmanager
async def joined(
    scheme: str, folder: Path, options: SocketOptions = OPTIONS
) -> AsyncIterator[tuple[FakeSocket, FakeSocket]]:
    """Two sockets with one pipe between them: dialler, listener."""
    async with listening(listen_url(scheme, folder), options) as (owner, listener):
        dialer = FakeSocket(options=options)
        await dial_once(dialer, listener.url)
        await until(lambda: owner.pipes)
        yield dialer, owner
        await dialer.aclose()


async def test_messages_sent_in_one_turn_arrive_as_one_run(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        for i in range(100):
            dialer.pipes[0].send(b"%d" % i)
        await until(lambda: len(owner.received) == 100)
        assert owner.received == [b"%d" % i for i in range(100)]
        assert owner.runs == [100]


async def test_a_flush_writes_in_the_same_turn_and_the_rest_follows(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        pipe = dialer.pipes[0]
        pipe.send(b"1")
        pipe.flush()
        assert pipe.queued == 0
        pipe.send(b"2")
        await until(lambda: owner.received == [b"1", b"2"])


async def test_answers_given_during_a_delivery_are_written_in_that_turn(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        owner.pipe_received = lambda pipe, frames: pipe.send_many(frames)  # type: ignore
        dialer.pipes[0].send_many([b"1", b"2"])
        await until(lambda: dialer.received == [b"1", b"2"])
        assert owner.pipes[0].queued == 0
        owner.pipes[0].send(b"later, from elsewhere")
        await until(lambda: len(dialer.received) == 3)


async def test_bytes_are_counted_as_on_the_wire(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        dialer.pipes[0].send_many([b"12345"] * 4)
        await until(lambda: len(owner.received) == 4)
        expected = len(PAIR_HEADER) + 4 * (5 + 8 + len(LEADS[scheme]))
        assert dialer.pipes[0].statistics().bytes_out == expected
        assert owner.pipes[0].statistics().bytes_in == expected


async def test_a_peer_that_does_not_read_fills_the_queue_and_loses_nothing(
    scheme: str, tmp_path: Path
) -> None:
    async with joined(scheme, tmp_path, replace(OPTIONS, send_queue=16)) as (dialer, owner):
        owner.pipes[0].pause(INBOX_FULL)
        pipe = dialer.pipes[0]
        sent = 0
        async with asyncio.timeout(20):
            while True:
                if pipe.send(sent.to_bytes(4, "big") * 25_000):
                    sent += 1
                elif pipe.connection._writing_paused:  # type: ignore[attr-defined]
                    break
                await asyncio.sleep(0)
        assert pipe.full
        assert pipe.statistics().refused > 0
        assert dialer.writable > 0 or pipe.full
        owner.pipes[0].resume(INBOX_FULL)
        await until(lambda: len(owner.received) == sent)
        assert [int.from_bytes(frame[:4], "big") for frame in owner.received] == list(range(sent))
        assert dialer.writable > 0, "a refused sender is told that there is room"


async def test_close_drains_queued_frames(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        pipe = dialer.pipes[0]
        assert pipe.send_many([b"%4d" % i * 5000 for i in range(500)]) == 500
        pipe.close("done", flush=True)
        assert dialer.lost == ["done"]
        await until(lambda: owner.lost)
        assert len(owner.received) == 500
        assert owner.lost == ["closed by the peer"]


async def test_close_drains_towards_a_peer_that_is_sending_itself(scheme: str, tmp_path: Path) -> None:
    """Closing a TCP socket with unread input resets it, and the reset can destroy the last bytes."""
    async with joined(scheme, tmp_path) as (dialer, owner):
        chatter = dialer.pipes[0]
        for _ in range(50):
            chatter.send_many([b"x" * 20_000] * 10)
            await asyncio.sleep(0)
        leaver = owner.pipes[0]
        leaver.pause(INBOX_FULL)
        chatter.send_many([b"x" * 20_000] * 200)
        await asyncio.sleep(0)
        leaver.send_many([b"%4d" % i * 2000 for i in range(100)])
        leaver.close("refused, and here is why", flush=True)
        await until(lambda: dialer.lost)
        assert len(dialer.received) == 100
        await leaver.connection.wait_closed()


async def test_a_drain_towards_a_peer_that_never_reads_ends_after_the_linger_time(
    scheme: str, tmp_path: Path
) -> None:
    async with listening(listen_url(scheme, tmp_path), replace(OPTIONS, linger_s=0.05)) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER)
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: owner.pipes)
            pipe = owner.pipes[0]
            for _ in range(20):
                pipe.send_many([b"x" * 1_000_000] * 2)
                await asyncio.sleep(0)
            pipe.close("done", flush=True)
            async with asyncio.timeout(5):
                await pipe.connection.wait_closed()


async def test_a_peer_that_half_closes_and_never_reads_does_not_stay(scheme: str, tmp_path: Path) -> None:
    async with listening(listen_url(scheme, tmp_path), replace(OPTIONS, linger_s=0.05)) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR_HEADER)
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: owner.pipes)
            pipe = owner.pipes[0]
            pipe.send_many([b"x" * 1_000_000] * 20)
            await until(lambda: not pipe.queued)
            peer.writer.write_eof()
            async with asyncio.timeout(5):
                await pipe.connection.wait_closed()
            assert owner.lost == ["closed by the peer"]


async def test_abort_ends_both_sides(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        dialer.pipes[0].close("enough")
        await until(lambda: owner.lost)
        assert dialer.lost == ["enough"]
        await dialer.all_pipes[0].connection.wait_closed()


async def test_the_owner_may_close_the_pipe_while_it_is_told_of_frames_or_room(
    scheme: str, tmp_path: Path
) -> None:
    async with joined(scheme, tmp_path, replace(OPTIONS, send_queue=1)) as (dialer, owner):
        pipe = dialer.pipes[0]
        dialer.pipe_writable = lambda pipe: pipe.close("had enough")  # type: ignore[method-assign]
        pipe.send(b"1")
        pipe.send(b"2")
        await until(lambda: owner.lost)
        assert dialer.lost == ["had enough"]


async def test_pause_holds_frames_back_and_resume_lets_them_come(scheme: str, tmp_path: Path) -> None:
    async with joined(scheme, tmp_path) as (dialer, owner):
        owner.pipes[0].pause(INBOX_FULL)
        dialer.pipes[0].send(b"later")
        await until(lambda: not dialer.pipes[0].queued)
        for _ in range(20):
            await asyncio.sleep(0)
        assert owner.received == []
        owner.pipes[0].resume(INBOX_FULL)
        await until(lambda: owner.received == [b"later"])


def test_uvloop_carries_the_same_connections(tmp_path: Path) -> None:
    """Its transports do not inherit from asyncio's, and it reads up to 32 times a turn."""
    uvloop = pytest.importorskip("uvloop")

    async def cross() -> None:
        for scheme in ("tcp", "ipc"):
            async with joined(scheme, tmp_path) as (dialer, owner):
                bodies = [b"%6d" % i * 20_000 for i in range(50)]
                dialer.pipes[0].send_many(bodies)
                await until(lambda: owner.received == bodies)  # noqa: B023
                dialer.pipes[0].close("done", flush=True)
                await until(lambda: owner.lost == ["closed by the peer"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cross())


class Eager(FakeSocket):
    """Sends again as soon as it is told that a full pipe has room; ``leaves`` it then, if set."""

    leaves = False

    def pipe_writable(self, pipe: Pipe) -> None:
        super().pipe_writable(pipe)
        assert pipe.send(b"newer")
        pipe.flush()
        if self.leaves:
            pipe.close("all is said", flush=True)


@pytest.mark.parametrize("leaves", [False, True])
async def test_frames_sent_when_told_of_room_follow_the_queued_ones(
    scheme: str, tmp_path: Path, leaves: bool
) -> None:
    async with listening(listen_url(scheme, tmp_path), OPTIONS) as (owner, listener):
        eager = Eager(options=replace(OPTIONS, send_queue=2))
        eager.leaves = leaves
        pipe = await dial_once(eager, listener.url, 5.0)
        assert [pipe.send(b"first"), pipe.send(b"second"), pipe.send(b"refused")] == [True, True, False]
        await until(lambda: len(owner.received) >= 3)
        assert owner.received == [b"first", b"second", b"newer"]
        await eager.aclose()
