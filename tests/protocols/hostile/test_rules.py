"""Peers that break the rules of the wire: their connection ends at once, and nothing else is affected.

Each case ends with messages of honest peers. For TLS and WebSocket: ``tests/protocols/transports``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import (
    Bus0,
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    Star0,
    Sub0,
    Surveyor0,
)
from protocols.wire.framing import encode_frames
from protocols.wire.handshake import encode_header
from tests.protocols.hostile.support import LEADS, PUSH, QUICK, connect, crowd, honest, peak_traced
from tests.protocols.transports.support import RawPeer, listen_url, raw_peer
from tests.protocols.wire.test_handshake import BROKEN
from tests.support.waiting import until

ALL = [Pair0, Pair1, Bus0, Star0, Pub0, Sub0, Push0, Pull0, Req0, Rep0, Surveyor0, Respondent0]
PARTNER: dict[type[Socket], type[Socket]] = {
    Pair0: Pair0,
    Pair1: Pair1,
    Bus0: Bus0,
    Star0: Star0,
    Pub0: Sub0,
    Sub0: Pub0,
    Push0: Pull0,
    Pull0: Push0,
    Req0: Rep0,
    Rep0: Req0,
    Surveyor0: Respondent0,
    Respondent0: Surveyor0,
}


FOURTEEN = [*(bytes.fromhex(header) for header, _ in BROKEN[:-1]), encode_header(0x1234)]
"""Broken headers; the last is a good one of a protocol that no socket has."""


def bad_frames(lead: bytes) -> dict[str, bytes]:
    """Bytes that may not stand where a frame should; the limit is 1 MiB."""
    return {
        "negative": lead + (-1).to_bytes(8, "big", signed=True),
        "huge": lead + (1 << 63).to_bytes(8, "big"),
        "one above": lead + ((1 << 20) + 1).to_bytes(8, "big") + b"x" * 100,
        "little-endian": lead + (5).to_bytes(8, "little") + b"hello",
        "text": b"GET / HTTP/1.1\r\n\r\n",
    }


def reset(peer: RawPeer) -> None:
    """Close so that the other end gets a reset."""
    file: socket.socket = peer.writer.transport.get_extra_info("socket")
    file.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()


async def serves_on(kind: type[Socket], talker: Socket, url: str) -> None:
    """Check that an honest partner is attached."""
    async with PARTNER[kind](options=QUICK) as partner:
        partner.dial(url)
        await partner.wait_for_peers(1, 20)
        await talker.wait_for_peers(1, 20)


# --- handshakes


@pytest.mark.parametrize("kind", ALL)
async def test_fourteen_broken_handshakes_in_a_row(kind: type[Socket], scheme: str, tmp_path: Path) -> None:
    async with kind(listen=listen_url(scheme, tmp_path), options=QUICK) as talker:
        listener = talker.listeners[0]
        for header in FOURTEEN:
            async with raw_peer(listener.url) as peer:
                peer.writer.write(header)
                if len(header) < 8:
                    peer.writer.write_eof()
                assert await peer.read_all() == encode_header(talker.protocol)
        await until(lambda: not listener.statistics().headerless and not talker.pipes)
        counted = listener.statistics()
        assert counted.connected == 0
        assert sum(counted.refused.values()) == counted.accepted == 14
        await serves_on(kind, talker, listener.url)


@pytest.mark.parametrize("kind", ALL)
async def test_a_peer_of_another_protocol_is_refused_at_both_ends(
    kind: type[Socket], scheme: str, tmp_path: Path
) -> None:
    async with kind(listen=listen_url(scheme, tmp_path), options=QUICK) as talker:
        listener = talker.listeners[0]
        refused = 0
        for other in ALL:
            if other is PARTNER[kind]:
                continue
            async with other(options=QUICK) as stranger:
                dialer = stranger.dial(listener.url)
                await until(lambda: dialer.statistics().failed)  # noqa: B023
                await dialer.aclose()
                assert set(dialer.statistics().failed) <= {"wrong protocol", "closed"}
                refused += dialer.statistics().attempts
        await until(lambda: sum(listener.statistics().refused.values()) == refused)
        assert set(listener.statistics().refused) <= {"wrong protocol", "closed"}
        assert talker.pipes == []
        await serves_on(kind, talker, listener.url)


@pytest.mark.parametrize("header", FOURTEEN, ids=bytes.hex)
async def test_a_server_with_a_broken_header_is_dialled_again_later(header: bytes) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with Req0(options=QUICK) as req:
            dialer = req.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            for number in range(1, 4):
                accepted, _ = await loop.sock_accept(server)
                with accepted:
                    accepted.send(header)
                    if len(header) < 8:
                        accepted.shutdown(socket.SHUT_WR)
                    await until(lambda: sum(dialer.statistics().failed.values()) == number)  # noqa: B023
            assert dialer.statistics().connected == 0
            assert dialer.last_error


# --- frames


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", sorted(bad_frames(b"")))
async def test_a_bad_frame_costs_the_pipe_at_once(
    kind: type[Socket], name: str, scheme: str, tmp_path: Path
) -> None:
    async with kind(listen=listen_url(scheme, tmp_path), options=QUICK) as talker:
        listener = talker.listeners[0]
        async with raw_peer(listener.url) as peer:
            peer.writer.write(encode_header(talker.peer) + bad_frames(LEADS[scheme])[name])
            await peer.read_all()  # until we are cut off
        await until(lambda: sum(listener.statistics().broken.values()) == 1)
        (cause,) = talker.statistics().closed
        assert cause == ("bad frame" if scheme == "ipc" and name == "text" else "too large")
        await serves_on(kind, talker, listener.url)


@pytest.mark.parametrize("size_max", [1 << 20, 0])
async def test_two_to_the_63_bytes_are_refused_without_taking_any(
    size_max: int, scheme: str, tmp_path: Path
) -> None:
    """Also where any size is allowed (recv_size_max=0): the peer would have to send it. Measured: 12 kB."""
    options = replace(QUICK, recv_size_max=size_max)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=options) as pull:
        await honest(pull, pull.listeners[0].url)
        with crowd(pull.listeners[0].url) as boasters:
            await boasters.join(
                1
            )  # the first connection of a process loads things that the frame must not count

            async def boast() -> None:
                await boasters.join(1, PUSH + LEADS[scheme] + (1 << 63).to_bytes(8, "big") + bytes(1000))
                if size_max:
                    await until(lambda: pull.statistics().closed.get("too large") == 1)
                else:
                    await until(lambda: pull.pipes and pull.pipes[0].bytes_in > 1000)

            assert await peak_traced(boast) < 50_000
        await until(lambda: not pull.pipes)


async def test_the_limit_is_the_last_size_that_passes(scheme: str, tmp_path: Path) -> None:
    options = replace(QUICK, recv_size_max=1000)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=options) as pull:
        async with raw_peer(pull.listeners[0].url) as peer:
            peer.writer.write(PUSH + encode_frames([b"x" * 999, b"y" * 1000, b"z" * 1001], LEADS[scheme]))
            await peer.read_all()
        assert [len(await pull.recv()) for _ in range(2)] == [999, 1000]
        assert pull.statistics().closed == {"too large": 1}


@pytest.mark.parametrize("kind", ALL)
async def test_noise_behind_a_good_header(kind: type[Socket], scheme: str, tmp_path: Path) -> None:
    """40 peers with frames of random bytes, as the pattern's words: no error, honest peers get through."""
    rng = random.Random(7)
    async with kind(listen=listen_url(scheme, tmp_path), options=QUICK) as talker:
        if isinstance(talker, Sub0):
            talker.subscribe("")
        listener = talker.listeners[0]
        for _ in range(40):
            frames = [rng.randbytes(rng.choice((0, 1, 3, 4, 5, 8, 40))) for _ in range(20)]
            noise = encode_frames(frames, LEADS[scheme]) + rng.randbytes(rng.randrange(20))
            async with raw_peer(listener.url) as peer:
                peer.writer.write(encode_header(talker.peer) + noise)
                if rng.random() < 0.5:
                    peer.writer.write_eof()
        await until(lambda: not talker.pipes and not listener.statistics().headerless)
        assert sum(talker.statistics().closed.values()) == listener.statistics().connected
        await serves_on(kind, talker, listener.url)


# --- resets and half-open streams


STATES = ["silent", "half a header", "header", "half a frame", "frames", "being written to", "draining"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", ["reset", "eof", "eof and silence"])
async def test_an_end_in_any_state_is_only_an_end(state: str, how: str, scheme: str, tmp_path: Path) -> None:
    pair = Pair0(listen=listen_url(scheme, tmp_path), options=QUICK)
    async with pair:
        listener = pair.listeners[0]
        header = encode_header(pair.protocol)
        frame = encode_frames([b"whole"], LEADS[scheme])
        async with raw_peer(listener.url) as peer:
            await until(lambda: listener.statistics().accepted == 1)
            if state == "half a header":
                peer.writer.write(header[:4])
            elif state != "silent":
                peer.writer.write(header)
                await pair.wait_for_peers()
            if state == "frames":
                peer.writer.write(frame * 3)
                assert [await pair.recv() for _ in range(3)] == [b"whole"] * 3
            elif state == "half a frame":
                peer.writer.write(frame[:-2])
                await until(lambda: pair.pipes[0].bytes_in == len(header + frame) - 2)
            elif state in ("being written to", "draining"):
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await pair.send_many([bytes(1_000_000)] * 15)
                await until(lambda: pair.pipes[0].bytes_out > 100_000)
            if state == "draining":
                pair.pipes[0].close("over", flush=True)
            if how == "reset":
                reset(peer)
            else:
                peer.writer.write_eof()
            await until(lambda: not pair.pipes and not listener.statistics().headerless)
            if how == "eof":
                peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
                await peer.read_all()
        (closed,) = pair.statistics().recently_closed or (None,)
        if state in ("silent", "half a header"):
            assert closed is None and listener.statistics().refused == {"closed": 1}
        else:
            assert closed is not None and closed.reason
        async with Pair0(options=QUICK) as partner:
            partner.dial(listener.url)
            await partner.send(b"honest", timeout=20)
            assert await pair.recv(timeout=20) == b"honest"


async def test_a_peer_that_vanishes_while_it_is_dialled_is_an_address_error(
    scheme: str, tmp_path: Path
) -> None:
    url = listen_url(scheme, tmp_path)
    listener = socket.socket(socket.AF_INET if scheme == "tcp" else socket.AF_UNIX)
    listener.bind(("127.0.0.1", 0) if scheme == "tcp" else url.removeprefix("ipc://"))
    if scheme == "tcp":
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    listener.listen()
    async with Push0(options=QUICK) as push:
        dialer = push.dial(url)
        listener.setblocking(False)
        for _ in range(5):
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
        await until(lambda: dialer.statistics().failed.get("closed", 0) >= 4)
        listener.close()
        await until(lambda: dialer.statistics().failed.get("refused", 0) >= 1)


async def test_everything_at_once(scheme: str, tmp_path: Path) -> None:
    """200 peers, each breaking another rule at another moment, beside honest ones that are all heard."""
    rng = random.Random(11)
    async with Pull0(listen=listen_url(scheme, tmp_path), options=QUICK) as pull:
        url = pull.listeners[0].url
        frames = list(bad_frames(LEADS[scheme]).values())

        async def misbehave() -> None:
            for _ in range(50):
                words = rng.choice([PUSH, PUSH[:5], bytes.fromhex(rng.choice(BROKEN)[0])])
                with connect(url) as peer:
                    peer.send(words + rng.choice(frames))
                    if rng.random() < 0.3:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    await asyncio.sleep(0)

        bad = [asyncio.create_task(misbehave()) for _ in range(4)]
        assert await honest(pull, url, 20) < 2.0
        await asyncio.gather(*bad)
        await until(lambda: not pull.pipes and not pull.listeners[0].statistics().headerless)
        assert pull.statistics().frames_in == 20
