"""Peers that send nothing, or too little: bounded in time before the handshake, in memory after it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import Pull0, SharedListener, SocketOptions
from tests.protocols.hostile.support import LEADS, PUSH, QUICK, connect, crowd, figure, honest, traced
from tests.protocols.transports.support import listen_url, raw_peer
from tests.support.waiting import turns, until


async def test_a_thousand_silent_peers_hold_256_connections_and_a_megabyte(
    scheme: str, tmp_path: Path
) -> None:
    """Measured: 3 to 4 kB for each of the 256 that may wait; the others are crowded out at once."""
    async with Pull0(listen=listen_url(scheme, tmp_path), options=QUICK) as pull:
        listener = pull.listeners[0]
        with crowd(listener.url) as silent:

            async def come() -> None:
                await silent.join(1000)
                await until(lambda: listener.statistics().accepted == 1000)
                await until(lambda: listener.statistics().headerless <= 256)

            held = await traced(come)
            assert listener.statistics().headerless == 256
            assert listener.statistics().refused == {"crowded out": 744}
            assert held < 2_000_000, f"{held} bytes for 256 connections without a header"
            assert await honest(pull, listener.url) < 2.0


async def test_the_silent_are_cut_when_their_time_is_over(scheme: str, tmp_path: Path) -> None:
    """handshake_timeout_s=0.3: 200 silent peers were all gone after 0.5 to 0.6 s, and so was their memory."""
    loop = asyncio.get_running_loop()
    options = replace(QUICK, handshake_timeout_s=0.3)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=options) as pull:
        listener = pull.listeners[0]
        await honest(pull, listener.url)  # one-time allocations
        with crowd(listener.url) as silent:

            async def come_and_be_cut() -> None:
                await silent.join(200)
                await until(lambda: listener.statistics().accepted == 201)
                await until(lambda: listener.statistics().headerless == 0)
                await turns()  # told at once, closed in the next turn of the loop

            begun = loop.time()
            held = await traced(come_and_be_cut)
            figure("all cut after", f"{loop.time() - begun:.2f} s")
            assert loop.time() - begun > 0.29
            assert listener.statistics().handshake_timeouts == 200
            assert "0 of 8 header bytes after 0.3 s" in listener.last_refused
            assert held < 100_000, f"{held} bytes stay behind"


@pytest.mark.parametrize("shared", [False, True])
async def test_a_byte_now_and_then_does_not_stretch_the_deadline(
    scheme: str, tmp_path: Path, shared: bool
) -> None:
    """The deadline is for the whole header: 7 bytes, 50 ms apart, were cut 0.3 s after the first."""
    loop = asyncio.get_running_loop()
    options = replace(QUICK, handshake_timeout_s=0.3)
    async with Pull0(options=options) as pull:
        listener = SharedListener(listen_url(scheme, tmp_path), options=options)
        if shared:
            await pull.listen(listener)
            await listener.start()
            url = listener.url
        else:
            url = (await pull.listen(listen_url(scheme, tmp_path))).url
        async with raw_peer(url) as slow:
            begun = loop.time()
            closed = asyncio.create_task(slow.read_all())
            for byte in PUSH[:7]:
                slow.writer.write(bytes([byte]))
                await asyncio.wait([closed], timeout=0.06)
            await closed
            assert loop.time() - begun > 0.25
        await honest(pull, url)
        await listener.aclose()


async def test_a_peer_may_be_silent_without_limit_after_its_header(scheme: str, tmp_path: Path) -> None:
    """SP has no keepalive: an idle subscriber is a good subscriber."""
    options = replace(QUICK, handshake_timeout_s=0.1)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=options) as pull:
        async with raw_peer(pull.listeners[0].url) as quiet:
            quiet.writer.write(PUSH)
            await pull.wait_for_peers()
            quiet.writer.write(LEADS[scheme] + (5).to_bytes(8, "big") + b"he")
            loop = asyncio.get_running_loop()
            later = loop.time() + 0.3
            await until(lambda: loop.time() > later)  # three deadlines on
            assert len(pull.pipes) == 1
            quiet.writer.write(b"llo")
            assert await pull.recv(timeout=10) == b"hello"


async def test_a_large_frame_that_is_announced_and_not_sent_takes_no_memory(
    scheme: str, tmp_path: Path
) -> None:
    """300 peers announce a MiB each and send ten bytes of it: measured 3 kB each, not 1 MiB."""
    options = replace(QUICK, recv_size_max=1 << 20)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=options) as pull:
        listener = pull.listeners[0]
        with crowd(listener.url) as boasters:
            words = PUSH + LEADS[scheme] + (1 << 20).to_bytes(8, "big") + b"0123456789"

            async def boast() -> None:
                await boasters.join(300, words)
                await pull.wait_for_peers(300)
                await until(lambda: all(pipe.bytes_in >= len(words) for pipe in pull.pipes))

            resident = resident_bytes()
            held = await traced(boast)
            assert held / 300 < 8_000, f"{held / 300:.0f} bytes each"
            assert resident_bytes() - resident < 64 << 20
            assert await honest(pull, listener.url) < 2.0
            boasters.leave()
            await until(lambda: len(pull.pipes) == 0)
        assert sum(pull.statistics().closed.values()) == 301
        assert pull.statistics().frames_in == 1, "none of the 300 frames was delivered"


async def test_a_frame_that_trickles_in_holds_no_more_than_itself(tmp_path: Path) -> None:
    """A MiB in pieces of 1 kB, ten times: what is held follows what has arrived."""
    async with Pull0(listen=f"ipc://{tmp_path}/x", options=SocketOptions(recv_size_max=0)) as pull:
        async with raw_peer(pull.listeners[0].url) as slow:
            slow.writer.write(PUSH)
            await pull.wait_for_peers()
            pipe = pull.pipes[0]
            slow.writer.write(b"\x01" + (10 << 20).to_bytes(8, "big"))

            async def trickle() -> None:
                for _ in range(1024):
                    slow.writer.write(b"x" * 1024)
                await until(lambda: pipe.bytes_in >= 1 << 20)

            assert await traced(trickle) < 3 << 20


async def test_connections_that_are_opened_and_shut_leave_nothing(scheme: str, tmp_path: Path) -> None:
    """2 000 of them, half with a header: 13 to 29 kB stay behind in all."""
    async with Pull0(listen=listen_url(scheme, tmp_path), options=QUICK) as pull:
        listener = pull.listeners[0]
        await honest(pull, listener.url)

        async def come_and_go() -> None:
            for number in range(2000):
                with connect(listener.url) as peer:
                    if number % 2:
                        peer.send(PUSH)
                if number % 100 == 99:
                    accepted = number + 2
                    await until(lambda: listener.statistics().accepted == accepted)  # noqa: B023
            await until(lambda: not listener.statistics().headerless and not pull.pipes)

        held = await traced(come_and_go)
        assert held < 200_000, f"{held} bytes stay behind"


def resident_bytes() -> int:
    """The resident memory of this process, as the kernel counts it."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
