"""Peers that never read: queues stay within their bounds, and the others are not affected."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import Bus0, Pub0, Pull0, Push0, Rep0, Req0, Respondent0, Socket, Sub0, Surveyor0
from protocols.wire.framing import encode_frames
from protocols.wire.handshake import encode_header
from tests.protocols.hostile.support import LEADS, QUICK, crowd, peak_traced, traced
from tests.protocols.transports.support import listen_url, raw_peer
from tests.support.waiting import until

KERNEL_FULL = 30_000_000
"""Bytes that surely fill the buffers of the kernel and asyncio for one loopback connection."""


async def test_a_publisher_holds_16_megabytes_of_large_messages_for_a_deaf_subscriber(
    scheme: str, tmp_path: Path
) -> None:
    """100 MB published in messages of 100 kB: the live subscriber got all 1 000, the deaf one's queue held
    16 MB at most, and memory peaked at 20 MB."""
    async with Pub0(listen=listen_url(scheme, tmp_path), options=QUICK) as pub, Sub0(topics=[""]) as sub:
        url = pub.listeners[0].url
        async with raw_peer(url) as deaf:
            deaf.writer.write(encode_header(pub.peer))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await sub.dial_once(url)
            await pub.wait_for_peers(2)
            got = 0

            async def publish() -> None:
                nonlocal got
                for number in range(1000):
                    await pub.send(b"%5d" % number + bytes(100_000))
                    if number % 20 == 19:
                        while got < number:
                            assert int((await sub.recv(timeout=20))[:5]) == got
                            got += 1
                while got < 1000:
                    assert int((await sub.recv(timeout=20))[:5]) == got
                    got += 1

            peak = await peak_traced(publish)
            assert peak < 40_000_000, f"{peak} bytes at the peak"
            assert pub.statistics().drops["peer slow"] > 600
            queued = max(pipe.queued for pipe in pub.pipes)
            assert 0 < queued * 100_005 <= (16 << 20) + 100_005


async def test_fifty_deaf_subscribers_of_small_messages_hold_a_queue_each(
    scheme: str, tmp_path: Path
) -> None:
    """50 deaf peers, 200 000 messages of 200 bytes: each queue holds at most 1024 and the bodies
    are shared: 11 MB in all."""
    async with Pub0(listen=listen_url(scheme, tmp_path), options=QUICK) as pub, Sub0(topics=[""]) as sub:
        with crowd(pub.listeners[0].url) as deaf:
            await deaf.join(50, encode_header(pub.peer))
            await sub.dial_once(pub.listeners[0].url)
            await pub.wait_for_peers(51)
            received = 0

            async def publish() -> None:
                nonlocal received
                for start in range(0, 200_000, 500):
                    await pub.send_many([b"%6d" % number * 33 for number in range(start, start + 500)])
                    while received < start + 500:
                        received += len(await sub.recv_many(timeout=20))

            held = await traced(publish)
            assert received == 200_000
            assert all(pipe.queued <= 1024 for pipe in pub.pipes)
            assert held < 50 * 500_000, f"{held} bytes for 50 deaf subscribers"


@pytest.mark.parametrize("kind", [Bus0, Surveyor0])
async def test_broadcasts_do_not_wait_for_the_deaf(kind: type[Socket], scheme: str, tmp_path: Path) -> None:
    other = Bus0() if kind is Bus0 else Respondent0()
    options = replace(QUICK, send_queue=64)
    async with kind(listen=listen_url(scheme, tmp_path), options=options) as talker, other:
        async with raw_peer(talker.listeners[0].url) as deaf:
            deaf.writer.write(encode_header(talker.peer))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await other.dial_once(talker.listeners[0].url)
            await talker.wait_for_peers(2)
            for number in range(KERNEL_FULL // 100_000):
                await talker.send(b"%5d" % number + bytes(100_000), timeout=5)
                assert (await other.recv(timeout=20))[:5] == b"%5d" % number
            assert talker.statistics().drops["peer slow"] > 0
            assert all(pipe.queued <= 64 for pipe in talker.pipes)


async def test_pushed_messages_go_to_pullers_that_read(scheme: str, tmp_path: Path) -> None:
    """A deaf puller fills its kernel buffer and its queue; everything else reaches the other."""
    options = replace(QUICK, send_queue=16, linger_s=0)
    async with Push0(listen=listen_url(scheme, tmp_path), options=options) as push, Pull0() as pull:
        async with raw_peer(push.listeners[0].url) as deaf:
            deaf.writer.write(encode_header(push.peer))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await pull.dial_once(push.listeners[0].url)
            await push.wait_for_peers(2)
            count = 2 * KERNEL_FULL // 100_000
            received = []

            async def receive() -> None:
                while True:
                    received.append(int((await pull.recv())[:5]))

            receiving = asyncio.create_task(receive())
            for number in range(count):
                await push.send(b"%5d" % number + bytes(100_000), timeout=5)
            await until(lambda: received and max(received) >= count - 20)
            assert len(received) > count // 2
            assert received == sorted(received)
            receiving.cancel()
            await asyncio.wait([receiving])


async def test_a_requester_that_never_reads_its_answers_costs_a_queue(scheme: str, tmp_path: Path) -> None:
    """It asks as fast as it can and the replier answers each question with 50 kB. With ``best_effort``
    answers that find its queue full are dropped (without, the replier waits): memory peaked at 4 MB, and an
    honest requester was served within 5 s."""
    options = replace(QUICK, send_queue=32, recv_queue=32, best_effort=True)
    async with Rep0(listen=listen_url(scheme, tmp_path), options=options) as rep, Req0(options=QUICK) as req:
        listener = rep.listeners[0]

        async def serve() -> None:
            async for _ in rep:
                await rep.send(bytes(50_000))

        serving = asyncio.create_task(serve())
        questions = encode_frames([b"\x80\0\0\1question"] * 1000, LEADS[scheme])
        with crowd(listener.url) as deaf:
            await deaf.join(1, encode_header(rep.peer))
            await rep.wait_for_peers()

            async def flood() -> None:
                while rep.statistics().drops.get("peer slow", 0) < 5000:
                    deaf.say(questions)
                    await asyncio.sleep(0)

            peak = await peak_traced(flood)
            assert peak < 30_000_000, f"{peak} bytes at the peak"
            await req.dial_once(listener.url)
            for _ in range(3):
                deaf.say(questions)
                await req.send(b"honest")
                assert await req.recv(timeout=5) == bytes(50_000)
            assert all(pipe.queued <= 32 for pipe in rep.pipes)
        serving.cancel()
        await asyncio.wait([serving])


async def test_a_socket_whose_program_does_not_read_stops_reading_its_peers(
    scheme: str, tmp_path: Path
) -> None:
    """20 pushers flood an application that never calls recv: the inbox stops at its bound, plus one read of
    64 KiB a peer, and the flood stops in the kernel."""
    async with Pull0(listen=listen_url(scheme, tmp_path), options=QUICK) as pull:
        with crowd(pull.listeners[0].url) as flood:
            await flood.join(20, encode_header(pull.peer))
            await pull.wait_for_peers(20)
            frames = encode_frames([bytes(1000)] * 60, LEADS[scheme])

            async def push() -> None:
                idle = 0
                while idle < 30:
                    before = pull.statistics().bytes_in
                    flood.say(frames)
                    await asyncio.sleep(0.001)
                    idle = idle + 1 if pull.statistics().bytes_in == before else 0

            held = await traced(push)
            assert pull.statistics().frames_in <= 1024 + 20 * 66
            assert held < 5_000_000, f"{held} bytes"
