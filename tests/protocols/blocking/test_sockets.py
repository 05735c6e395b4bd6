"""Blocking sockets, with each other and with those of an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import protocols
from protocols import (
    AddressError,
    AddressInUse,
    Closed,
    NotSupported,
    PartlySent,
    PipeView,
    StateError,
    SurveyOver,
    Timeout,
    WouldBlock,
    blocking,
)
from protocols.transports import registry
from tests.support.certificates import authority, config, local

SCHEMES = ["tcp", "ipc", "abstract", "inproc", "ws", "tls+tcp", "wss"]
PAIRS = [
    ("Push0", "Pull0"),
    ("Pair0", "Pair0"),
    ("Pair1", "Pair1"),
    ("Bus0", "Bus0"),
    ("Star0", "Star0"),
    ("Pub0", "Sub0"),
]
LIMIT_S = 20.0


def url_of(scheme: str, folder: Path) -> str:
    if scheme == "ipc":
        return f"ipc://{folder}/socket"
    if scheme == "abstract":
        return f"abstract://{folder.name}-{time.monotonic_ns()}"
    if scheme == "inproc":
        return f"inproc://{folder.name}"
    return f"{scheme}://127.0.0.1:0"


def secured(scheme: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of a listener and of a dialer."""
    if scheme not in ("tls+tcp", "wss"):
        return {}, {}
    return {"tls": config(local())}, {"tls": protocols.TlsConfig(ca=authority().pem)}


def made(kind: str, **arguments: Any) -> Any:
    topics = {"topics": [""]} if kind == "Sub0" else {}
    return getattr(blocking, kind)(recv_timeout_s=LIMIT_S, send_timeout_s=LIMIT_S, **topics, **arguments)


@contextmanager
def joined(sender: str, receiver: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    with made(receiver, listen="tcp://127.0.0.1:0", **options) as listening:
        with made(sender, dial=listening.listeners[0].url, **options) as dialling:
            listening.wait_for_peers(1, LIMIT_S)
            dialling.wait_for_peers(1, LIMIT_S)
            yield dialling, listening


@contextmanager
def running(function: Callable[..., object], *arguments: Any) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    yield thread
    thread.join(LIMIT_S)
    assert not thread.is_alive()


# --- every pattern, every transport


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_messages_cross_in_order_and_name_their_peer(sender: str, receiver: str) -> None:
    with joined(sender, receiver) as (one, other):
        bodies = [b"%d" % number for number in range(200)]
        for body in bodies[:100]:
            one.send(body)
        one.send_many(bodies[100:])
        message = other.recv_message()
        assert isinstance(message.pipe, PipeView) and message.pipe == other.pipes[0]
        got = [message.body]
        while len(got) < 200:
            got += other.recv_many()
        assert got == bodies


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_sides_listen_and_dial_on_every_stream_transport(scheme: str, tmp_path: Path) -> None:
    listening, dialling = secured(scheme)
    large = bytes(range(256)) * 3000
    with (
        made("Rep0", listen=url_of(scheme, tmp_path), **listening) as rep,
        running(rep.serve, lambda body: body[::-1]),
    ):
        with made("Req0", dial=rep.listeners[0].url, **dialling) as req:
            for body in (b"", b"hello", large):
                assert req.request(body) == body[::-1]
        rep.close()


@pytest.mark.parametrize("scheme", ["tcp", "ws", "tls+tcp"])
@pytest.mark.parametrize("listens", ["blocking", "event loop"])
async def test_they_talk_to_the_sockets_of_an_event_loop(scheme: str, listens: str, tmp_path: Path) -> None:
    accepting, dialling = secured(scheme)
    url = url_of(scheme, tmp_path)
    if listens == "blocking":
        with made("Rep0", listen=url, **accepting) as rep, running(rep.serve, bytes.upper):
            async with protocols.Req0(dial=rep.listeners[0].url, **dialling) as req:
                assert await req.request(b"from the loop", timeout=LIMIT_S) == b"FROM THE LOOP"
            await asyncio.to_thread(rep.close)
    else:
        async with protocols.Rep0(listen=url, **accepting) as served:
            serving = asyncio.create_task(served.serve(bytes.upper))
            with made("Req0", dial=served.listeners[0].url, **dialling) as asking:
                assert await asyncio.to_thread(asking.request, b"to the loop") == b"TO THE LOOP"
            await served.aclose()
            await serving


# --- waiting


def test_timeouts_are_raised() -> None:
    with made("Pull0") as pull, made("Push0") as push:
        with pytest.raises(Timeout, match=r"within 0\.01 s"):
            pull.recv(timeout=0.01)
        with pytest.raises(Timeout, match="no peer took"):
            push.send(b"x", timeout=0.01)
        with pytest.raises(PartlySent) as late:
            push.send_many([b"x"], timeout=0.01)
        assert late.value.sent == 0
        with pytest.raises(Timeout, match="0 of 1 peers"):
            pull.wait_for_peers(1, 0.01)
        with pytest.raises(WouldBlock):
            pull.recv_nowait()
        with pytest.raises(WouldBlock):
            push.send_nowait(b"x")
        with pytest.raises(ValueError, match="seconds from 0"):
            pull.recv(timeout=-1)
        with pytest.raises(NotSupported):
            pull.send(b"x")
        with pytest.raises(TypeError, match="a body is bytes"):
            push.send("text")


def test_closing_ends_the_calls_of_other_threads() -> None:
    pull = blocking.Pull0(listen="tcp://127.0.0.1:0")
    rep = blocking.Rep0(listen="tcp://127.0.0.1:0")
    errors: list[BaseException] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    with ThreadPoolExecutor(4) as pool:
        waiting = [
            pool.submit(wait, call)
            for call in (pull.recv, pull.recv, rep.recv, lambda: pull.wait_for_peers(5))
        ]
        pull.close()
        rep.close()
        for each in waiting:
            each.result(LIMIT_S)
    assert [type(error) for error in errors] == [Closed] * 4
    with pytest.raises(Closed):
        pull.recv()
    assert list(pull) == []


def test_closing_delivers_queued_messages() -> None:
    bodies = [bytes(100_000) + b"%d" % number for number in range(50)]
    with made("Pull0", listen="tcp://127.0.0.1:0") as pull:
        push = made("Push0", dial=pull.listeners[0].url, linger_s=LIMIT_S)
        push.send_many(bodies)
        with running(push.close):
            got = [pull.recv() for _ in bodies]
    assert got == bodies


def test_a_full_queue_waits_for_the_reader_and_loses_nothing() -> None:
    with joined("Push0", "Pull0", send_queue=2, recv_queue=2) as (push, pull):
        bodies = [bytes(5000) + b"%d" % number for number in range(2000)]
        with running(push.send_many, bodies):
            assert [pull.recv() for _ in bodies] == bodies


def test_many_threads_use_one_socket() -> None:
    with (
        made("Rep0", listen="tcp://127.0.0.1:0") as rep,
        running(rep.serve, bytes.upper),
        running(rep.serve, bytes.upper),
    ):
        with made("Req0", dial=rep.listeners[0].url) as req, ThreadPoolExecutor(8) as pool:
            questions = [b"question %d" % number for number in range(200)]
            assert list(pool.map(req.request, questions)) == [each.upper() for each in questions]
        rep.close()
    with joined("Push0", "Pull0") as (push, pull), ThreadPoolExecutor(8) as pool:
        sending = [pool.submit(push.send, b"%d" % number) for number in range(400)]
        got = list(pool.map(lambda _: pull.recv(), range(400)))
        for each in sending:
            each.result(LIMIT_S)
    assert sorted(got) == sorted(b"%d" % number for number in range(400))


# --- conversations


def test_a_survey_names_peers_that_answered_and_missing_ones() -> None:
    with made("Surveyor0", listen="tcp://127.0.0.1:0") as surveyor:
        url = surveyor.listeners[0].url
        with (
            made("Respondent0", dial=url) as one,
            made("Respondent0", dial=url),
            running(one.serve, bytes.upper),
        ):
            surveyor.wait_for_peers(2, LIMIT_S)
            result = surveyor.survey(b"who?", survey_s=0.3)
            assert [answer.body for answer in result.answers] == [b"WHO?"]
            assert len(result.missing) == 1 and not result.complete
            one.close()
        with pytest.raises(SurveyOver):
            surveyor.recv()
        surveyor.send(b"anybody?")
        assert list(surveyor) == []


def test_calls_out_of_turn_are_refused() -> None:
    with joined("Req0", "Rep0") as (req, rep):
        with pytest.raises(StateError):
            req.recv()
        with pytest.raises(StateError):
            rep.send(b"unasked")
        with pytest.raises(NotSupported, match="in turns"):
            req.recv_many()
        req.send(b"1")
        req.send(b"2")
        assert [rep.recv(), rep.recv()] == [b"1", b"2"]
        rep.send(b"two")
        assert req.recv() == b"two"
        with pytest.raises(Timeout, match="no answer in time"):
            req.request(b"unheard", timeout=0.01)


def test_a_handler_that_raises_is_logged_and_the_next_question_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(question: bytes) -> bytes:
        if question == b"bad":
            raise ValueError("a bad question")
        return question

    with made("Rep0", listen="tcp://127.0.0.1:0") as rep, running(rep.serve, handler):
        with made("Req0", dial=rep.listeners[0].url) as req:
            with pytest.raises(Timeout):
                req.request(b"bad", timeout=0.1)
            assert req.request(b"good") == b"good"
        rep.close()
    assert "a bad question" in caplog.text


def test_subscriptions_filter() -> None:
    with made("Pub0", listen="tcp://127.0.0.1:0") as pub:
        with blocking.Sub0(dial=pub.listeners[0].url, topics=["a."], recv_timeout_s=LIMIT_S) as sub:
            pub.wait_for_peers(1, LIMIT_S)
            sub.subscribe(b"b.")
            pub.send_many([b"a.1", b"c.1", b"b.1"])
            assert [sub.recv(), sub.recv()] == [b"a.1", b"b.1"]
            sub.unsubscribe("a.")
            with pytest.raises(StateError):
                sub.unsubscribe("a.")


# --- connections


def test_a_dialer_may_come_first_and_comes_back() -> None:
    with made("Pull0", listen="tcp://127.0.0.1:0") as pull:
        url = pull.listeners[0].url
    with made("Push0", dial=url, reconnect_min_s=0.01, reconnect_max_s=0.05) as push:
        dialer = push.dialers[0]
        with pytest.raises(Timeout, match="nobody listens"):
            dialer.wait_connected(0.2)
        for body in (b"1", b"2"):
            with made("Pull0", listen=url) as pull:
                assert dialer.wait_connected(LIMIT_S) == push.pipes[0]
                push.send(body)
                assert pull.recv() == body
        dialer.close()
        with pytest.raises(Closed):
            dialer.wait_connected(LIMIT_S)


def test_impossible_addresses_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made("Pull0", listen="tcp://127.0.0.1:0") as pull:
        with pytest.raises(AddressInUse):
            made("Pull0", listen=pull.listeners[0].url)
    with made("Pull0", listen=f"ipc://{tmp_path}/x"), pytest.raises(AddressInUse):
        made("Pull0", listen=f"ipc://{tmp_path}/x")
    assert not (tmp_path / "x").exists()
    for url in ("nonsense", "tcp://127.0.0.1:0"):
        with pytest.raises(AddressError):
            made("Pull0", dial=url)
    monkeypatch.setitem(registry._TRANSPORTS, "serial", registry._TRANSPORTS["tcp"])
    for way in ("listen", "dial"):
        with pytest.raises(AddressError, match="without an event loop there are tcp, ipc, inproc"):
            made("Pull0", **{way: "serial://127.0.0.1:9"})


def test_a_peer_of_another_protocol_and_a_second_partner_are_refused() -> None:
    with made("Pair0", listen="tcp://127.0.0.1:0") as pair:
        url = pair.listeners[0].url
        with made("Pair0", dial=url) as first, made("Pull0", dial=url, reconnect_min_s=0.01) as stranger:
            first.wait_for_peers(1, LIMIT_S)
            with pytest.raises(
                Timeout,
                match="the peer is pair0, .*; this end is pull0, which talks to push0",
            ):
                stranger.dialers[0].wait_connected(0.3)
            with made("Pair0", dial=url):
                first.send(b"still here")
                assert pair.recv() == b"still here"
        assert pair.statistics().attached >= 1


def test_a_peer_that_breaks_a_rule_loses_only_its_own_connection(tmp_path: Path) -> None:
    with made("Pull0", listen="tcp://127.0.0.1:0", recv_size_max=1000) as pull:
        url = pull.listeners[0].url
        with made("Push0", dial=url, reconnect_min_s=5.0) as bad, made("Push0", dial=url) as good:
            pull.wait_for_peers(2, LIMIT_S)
            bad.send(bytes(2000))
            while not pull.statistics().closed:
                time.sleep(0.001)
            good.send(b"fine")
            assert pull.recv() == b"fine"
            assert pull.statistics().closed == {"too large": 1}


def test_a_socket_closed_before_any_answer_stops_dialling() -> None:
    """No connection came up, so the socket has no I/O thread; its dialers have theirs."""
    socket = made("Req0", dial="tcp://127.0.0.1:1")
    (dialer,) = socket.dialers
    socket.close()
    dialer.join(LIMIT_S)
    assert not dialer._thread.is_alive()
