"""Faults of peers are logged once, with the peer's port and the option to change; no peer decides how much is
logged.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocols import (
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    SharedListener,
    SocketOptions,
    Sub0,
    Surveyor0,
    TlsConfig,
)
from protocols.dialling import Dialer
from protocols.peer_warnings import BURST, KEYS_MAX, REFILL_S, REPEAT_S, PeerWarnings
from protocols.wire.framing import encode_frames
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.transports.support import FakeSocket, raw_peer
from tests.support.certificates import config, local, stranger
from tests.support.ports import free_port
from tests.support.waiting import until

FAST = SocketOptions(reconnect_min_s=0.001, reconnect_max_s=0.01)


@pytest.fixture(autouse=True)
def _hear_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="protocols")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "protocols" and record.levelno == logging.WARNING
    ]


# --- how much is logged


def test_the_same_complaint_is_logged_once_and_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    warnings = PeerWarnings()
    for second in range(100):
        warnings.warn(1000.0 + second, ("host", "reason"), "%s misbehaves", "host:1")
    assert warnings_in(caplog) == ["host:1 misbehaves"]
    warnings.warn(1000.0 + REPEAT_S, ("host", "reason"), "%s misbehaves", "host:2")
    assert warnings_in(caplog)[1:] == ["host:2 misbehaves (99 warnings left out since the last one)"]


def test_a_flood_of_different_complaints_is_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    warnings = PeerWarnings()
    now = 0.0
    for number in range(100_000):
        now = number * 0.01
        warnings.warn(now, ("host", number), "complaint %d", number)
    lines = warnings_in(caplog)
    assert len(lines) == BURST + int(now / REFILL_S)
    left_out = [int(line.partition("(")[2].partition(" ")[0]) for line in lines if "(" in line]
    last = int(lines[-1].split()[1])
    assert sum(left_out) == last + 1 - len(lines), "each one is a line or counted in one"


def test_the_memory_of_complaints_is_bounded() -> None:
    warnings = PeerWarnings()
    for number in range(10 * KEYS_MAX):
        warnings.warn(number * REFILL_S, number, "complaint %d", number)
    assert len(warnings._logged) == KEYS_MAX


def test_a_quiet_time_fills_the_budget_at_most(caplog: pytest.LogCaptureFixture) -> None:
    warnings = PeerWarnings()
    for number in range(50):
        warnings.warn(5.0, number, "early")
    for number in range(50, 100):
        warnings.warn(5.0 + 1000 * REFILL_S, number, "late")
    assert len(warnings_in(caplog)) == 2 * BURST


# --- dialers


async def test_a_failing_dial_is_logged_at_the_first_and_at_each_changed_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    async with Req0(dial=url, options=FAST) as req:
        statistics = req.dialers[0].statistics
        await until(lambda: statistics().failed.get("refused", 0) >= 5)
        assert warnings_in(caplog) == [
            f"dialling {url} failed: nobody listens at {url}; it is tried again, at least every 0.01 s"
        ]
        async with Pull0(listen=url):
            await until(lambda: statistics().failed.get("wrong protocol", 0) >= 5)
        about_pull = [line for line in warnings_in(caplog) if f"dialling {url}" in line][1:]
        assert "; this end is req0, which talks to rep0" in about_pull[0]
        assert "one of the two ends must be changed" in about_pull[0]
        async with Rep0(listen=url):
            await req.dialers[0].wait_connected()
    assert any(record.getMessage().startswith(f"connected to {url} after") for record in caplog.records)


async def test_a_dialer_that_cannot_succeed_slows_down_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of a wrong protocol, and of a peer that may come: only the latter begin small."""
    pauses: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> None:
        pauses.append(delay)
        await real_sleep(0.001)

    monkeypatch.setattr("protocols.dialling.asyncio.sleep", sleep)
    options = SocketOptions(reconnect_min_s=0.1, reconnect_max_s=50.0)

    async def first_pauses(url: str) -> list[float]:
        pauses.clear()
        dialer = Dialer(FakeSocket(ProtocolNumber.REQ0, options), url)
        dialer.start()
        while sum(dialer.statistics().failed.values()) < 4:
            await real_sleep(0.001)
        await dialer.aclose()
        return pauses[:3]

    async with Pull0(listen="tcp://127.0.0.1:0") as pull:
        assert all(pause >= 25.0 for pause in await first_pauses(pull.listeners[0].url))
    missing = replace(options, tls=TlsConfig(ca_file="/nowhere/ca.pem"))
    options = missing
    assert all(pause >= 25.0 for pause in await first_pauses("tls+tcp://127.0.0.1:9"))
    assert all(pause <= 0.4 for pause in await first_pauses(f"tcp://127.0.0.1:{free_port()}"))


async def test_a_missing_ca_file_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = replace(FAST, tls=TlsConfig(ca_file=f"{tmp_path}/ca.pem"))
    async with Req0(dial="tls+tcp://127.0.0.1:9", options=options) as req:
        await until(lambda: req.dialers[0].statistics().failed.get("tls: configuration", 0) >= 3)
    (line,) = warnings_in(caplog)
    assert f"{tmp_path}/ca.pem cannot be read: no such file" in line


async def test_an_untrusted_certificate_is_named_at_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    server = SocketOptions(tls=config(local()))
    async with Rep0(listen="tls+tcp://127.0.0.1:0", options=server) as rep:
        url = rep.listeners[0].url
        options = replace(FAST, tls=TlsConfig(ca=stranger().pem, server_name="localhost"))
        async with Req0(dial=url, options=options) as req:
            await until(lambda: req.dialers[0].statistics().failed.get("tls: untrusted certificate", 0) >= 3)
            await until(lambda: rep.listeners[0].statistics().refused)
    lines = warnings_in(caplog)
    assert sum(line.startswith(f"dialling {url} failed") for line in lines) == 1
    assert sum(line.startswith(f"{url} refused tls+tcp://127.0.0.1:") for line in lines) == 1


async def test_a_message_above_the_limit_is_reported_at_both_ends_and_sent_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=30.0)
    async with Rep0(listen="tcp://127.0.0.1:0") as rep:
        url = rep.listeners[0].url
        async with Req0(dial=url, options=options) as req:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await req.send(bytes(2 << 20))
            dialer = req.dialers[0]
            await until(lambda: sum(dialer.statistics().ended.values()) >= 5)
            assert loop.time() - begun >= 0.01 * sum(2**turn for turn in range(4)) / 2, "the pauses double"
            assert rep.listeners[0].statistics().broken["too large"] >= 5
            assert rep.statistics().recently_closed[-1].cause == "too large"
            assert (
                "2097156 bytes is above the limit of 1048576" in rep.statistics().recently_closed[-1].reason
            )
    (at_listener,) = [line for line in warnings_in(caplog) if line.startswith("the connection of tcp://")]
    assert "tcp://127.0.0.1:" in at_listener, "with its port"
    assert "2097156 bytes" in at_listener and "recv_size_max" in at_listener
    (at_dialer,) = [line for line in warnings_in(caplog) if line.startswith("the connection to tcp://")]
    assert "3 times in a row" in at_dialer and "recv_size_max" in at_dialer
    assert "2097" in at_dialer, "the size that was sent is told where it is known"


async def test_a_refused_second_partner_of_a_pair_is_reported_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Pair0(listen="tcp://127.0.0.1:0") as pair, Pair0(dial=pair.listeners[0].url) as first:
        await first.wait_for_peers()
        await pair.wait_for_peers()
        async with Pair0(dial=pair.listeners[0].url, options=FAST):
            # On a busy machine a connection may live too long for one that ended soon.
            await until(
                lambda: any("the peer may have another partner" in line for line in warnings_in(caplog))
            )
    lines = warnings_in(caplog)
    assert sum(" refused tcp://127.0.0.1:" in line for line in lines) == 1
    assert len(lines) <= 4


async def test_a_peer_dialled_once_that_breaks_a_rule_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_header(ProtocolNumber.PUSH0) + b"\xff" * 8)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(misbehave, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Pull0() as pull:
        await pull.dial_once(url)
        await until(lambda: not pull.pipes)
    server.close()
    (line,) = warnings_in(caplog)
    assert line.startswith(f"the connection of {url} at {url} was closed: ") and "recv_size_max" in line


# --- listeners


async def test_a_refused_peer_is_logged_once_with_its_port_for_all_its_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rep0(listen="tcp://127.0.0.1:0") as rep:
        url = rep.listeners[0].url
        ports = []
        for count in range(1, 21):
            async with raw_peer(url) as peer:
                peer.writer.write(encode_header(ProtocolNumber.SUB0))
                await peer.read_all()
                ports.append(peer.writer.get_extra_info("sockname")[1])
            await until(lambda: sum(rep.listeners[0].statistics().refused.values()) == count)  # noqa: B023
    (line,) = warnings_in(caplog)
    assert line.startswith(f"{url} refused tcp://127.0.0.1:{ports[0]}: the peer is sub0")


async def test_a_mere_check_of_the_port_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rep0(listen="tcp://127.0.0.1:0") as rep:
        async with raw_peer(rep.listeners[0].url):
            pass
        await until(lambda: rep.listeners[0].statistics().refused == {"closed": 1})
    assert warnings_in(caplog) == []


@pytest.mark.parametrize(
    ("pattern", "number", "frame"),
    [
        (Rep0, ProtocolNumber.REQ0, b""),
        (Respondent0, ProtocolNumber.SURVEYOR0, b"\x00"),
        (Req0, ProtocolNumber.REP0, b"\x00"),
        (Surveyor0, ProtocolNumber.RESPONDENT0, b""),
        (Pair1, ProtocolNumber.PAIR1, b"\x00\x00\x00"),
        (Pub0, ProtocolNumber.SUB0, b"news"),
        (partial(RawSocket, Rep0), ProtocolNumber.REQ0, b""),
        (partial(RawSocket, Pub0), ProtocolNumber.SUB0, b"news"),
    ],
)
async def test_a_connection_lost_to_a_rule_of_the_pattern_is_counted_and_logged(
    pattern: Callable[..., Any], number: ProtocolNumber, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A request without a backtrace cost its pipe, and only the totals of the socket counted it."""
    async with pattern(listen="tcp://127.0.0.1:0") as socket, raw_peer(socket.listeners[0].url) as peer:
        (listener,) = socket.listeners
        peer.writer.write(encode_header(number) + encode_frames([frame]))
        await peer.read_all()
        await until(lambda: listener.statistics().broken == {"bad message": 1})
        assert socket.statistics().closed == {"bad message": 1}
    (line,) = warnings_in(caplog)
    assert line.startswith("the connection of tcp://127.0.0.1:")
    assert f" at {listener.url} was closed: " in line


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://no-backtrace"])
async def test_a_dialer_too_says_that_its_peer_broke_a_rule_of_the_pattern(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawSocket(Req0, listen=url) as bad:
        url = bad.listeners[0].url
        async with Rep0(dial=url) as rep:
            await bad.wait_for_peers(1)
            (peer,) = bad.pipes
            bad.send_to(peer, [b""])
            await until(lambda: rep.dialers[0].statistics().ended == {"bad message": 1})
    assert [line for line in warnings_in(caplog) if f" at {url} was closed: a question ended" in line]


async def test_a_peer_of_an_ipc_listener_is_named_by_its_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Rep0(listen=f"ipc://{tmp_path}/x") as rep:
        async with raw_peer(rep.listeners[0].url) as peer:
            peer.writer.write(encode_header(ProtocolNumber.REQ0) + b"\x00" * 9)
            await peer.read_all()
        await until(lambda: rep.listeners[0].statistics().broken)
    (line,) = warnings_in(caplog)
    assert "the connection of process " in line or "the connection of a peer without" in line


async def test_a_listener_that_tells_its_refusals_to_a_callback_does_not_log_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []
    shared = SharedListener("tcp://127.0.0.1:0", on_refused=lambda address, sentence: told.append(sentence))
    async with Rep0() as rep:
        await rep.listen(shared)
        await shared.start()
        async with raw_peer(shared.url) as peer:
            peer.writer.write(encode_header(ProtocolNumber.SUB0))
            await peer.read_all()
        await until(lambda: told)
        await shared.aclose()
    assert warnings_in(caplog) == []


async def test_a_storm_of_bad_peers_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Every kind of garbage, many times: one line for each kind, and at most the budget."""
    rng = random.Random(7)
    async with Sub0(listen="tcp://127.0.0.1:0") as sub:
        url = sub.listeners[0].url
        for _ in range(200):
            header = encode_header(rng.choice([*ProtocolNumber])) if rng.random() < 0.6 else rng.randbytes(8)
            async with raw_peer(url) as peer:
                peer.writer.write(header + encode_frames([rng.randbytes(20)]) + b"\xff" * 8)
                await peer.read_all()
    assert 0 < len(warnings_in(caplog)) <= BURST


async def test_push_and_survey_to_the_wrong_end_are_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    async with Pull0(listen="tcp://127.0.0.1:0") as pull:
        async with Surveyor0(dial=pull.listeners[0].url, options=FAST) as surveyor:
            await until(lambda: surveyor.dialers[0].statistics().failed)
        async with Push0(dial=pull.listeners[0].url) as push:
            await push.send(b"served all the same")
            assert await pull.recv() == b"served all the same"
    assert any("; this end is surveyor0, which talks to respondent0" in line for line in warnings_in(caplog))


@pytest.mark.parametrize("scheme", ["tcp", "inproc"])
async def test_a_socket_that_joins_a_shared_address_late_is_reached_soon(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A dialer that came before its counterpart treated the refusal as lasting and waited the longest
    pause.
    """
    options = SocketOptions(reconnect_min_s=0.001, reconnect_max_s=10_000.0)
    url = "tcp://127.0.0.1:0" if scheme == "tcp" else "inproc://pair-comes-late"
    async with SharedListener(url) as listener, Rep0() as rep, Pair0() as late:
        await rep.listen(listener)
        async with Pair0(dial=listener.url, options=options) as pair:
            await until(lambda: pair.dialers[0].statistics().failed.get("closed"))
            await late.listen(listener)
            await pair.wait_for_peers(1, timeout=120.0)
    told = [line for line in warnings_in(caplog) if line.startswith("dialling")]
    assert told and all("it is tried again" in line for line in told)
    (refused,) = [line for line in warnings_in(caplog) if line.startswith(f"{listener.url} refused ")]
    sentence = "the peer is pair0, which talks to pair0, and no pair0 listens here; this address takes req0"
    assert refused.endswith(sentence)
