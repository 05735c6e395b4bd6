"""`BlockingClient` against a broker in a process of its own: calls, threads, forks, restarts."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesh.blocking import BlockingClient, BlockingSubscription
from mesh.errors import Disconnected, MeshError, MeshTimeout, NoResponders, NotAccepted, TopicError, Unknown
from mesh.messages import Delivery

pytestmark = pytest.mark.process

BROKER = """
import asyncio, sys
from mesh.broker import Broker
async def main():
    async with Broker(listen=sys.argv[1:2], name="alpha") as broker:
        print(broker.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


class BrokerProcess:
    def __init__(self, url: str = "tcp://127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BROKER, url], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith(("tcp://", "ipc://")), "the broker did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    broker = BrokerProcess()
    yield broker.url
    broker.kill()


def take(count: int, subscription: BlockingSubscription) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        delivery = subscription.receive(10.0)
        assert delivery is not None, f"{len(got)} of {count} came"
        got.append(delivery)
    return got


def until(condition: Callable[[], object]) -> None:
    """Wait for another thread to have come so far."""
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in 20 s"
        time.sleep(0.001)


def start(call: Callable[[], object], results: list[object]) -> threading.Thread:
    """The call in a thread of its own; its result, or what it raised, goes to ``results``."""

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_publish_subscribe_and_receipts(url: str) -> None:
    with BlockingClient(url, name="me") as mesh, mesh.subscribe("bl.*") as subscription:
        receipt = mesh.publish("bl.a", b"one", headers={"n": 1}, key="k")
        assert (receipt.level, receipt.broker, receipt.seq) == ("accepted", "alpha", 1)
        assert mesh.publish("bl.b", b"two", level="sent").level == "sent"
        assert mesh.publish_many("bl.c", [b"3", b"4"]).count == 2
        assert mesh.publish_many([("bl.d", b"5"), ("other", b"")]).count == 2
        got = take(5, subscription)
        assert [delivery.body for delivery in got] == [b"one", b"two", b"3", b"4", b"5"]
        assert (got[0].headers, got[0].key) == ({"n": 1, "key": "k"}, "k")
        assert subscription.receive(0.01) is None
        assert (subscription.unreached, subscription.lost) == ((), 0)
        assert mesh.broker == "alpha" and mesh.status()["name"] == "alpha"


def test_a_flood_of_small_and_one_large_body_arrive_in_order(url: str) -> None:
    large = os.urandom(2_000_000)
    with BlockingClient(url) as mesh, BlockingClient(url) as reader:
        subscription = reader.subscribe("flood", window=300)

        def publish() -> None:
            for number in range(20_000):
                while not mesh.publish_nowait("flood", b"%d" % number):
                    mesh.flush()
            mesh.publish("flood", large, level="sent", timeout=20.0)

        thread = threading.Thread(target=publish)
        thread.start()
        got: list[bytes] = []
        for batch in subscription.batches():
            got += batch.bodies
            if len(got) > 20_000:
                break
        thread.join()
        assert got == [b"%d" % number for number in range(20_000)] + [large]
        assert reader.statistics().lost_blocks == 0


def test_request_survey_refusal_retry_and_no_responders(url: str) -> None:
    with BlockingClient(url) as mesh:
        with pytest.raises(NoResponders):
            mesh.request("bl.add", b"1")
        ready = threading.Event()

        def serve() -> None:
            with (
                BlockingClient(url, name="adder") as helper,
                helper.subscribe("bl.add", answers=True) as requests,
            ):
                ready.set()
                for request in requests:
                    if request.attempt == 1 and request.body == b"retry":
                        request.retry(0.02)
                    elif request.body == b"stop":
                        request.done()
                        return
                    elif request.body == b"no":
                        request.drop("will not")
                    else:
                        request.extend(5.0)
                        request.done(request.body.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        ready.wait()
        assert mesh.request("bl.add", b"a") == b"A"
        assert mesh.request("bl.add", b"retry") == b"RETRY"
        with pytest.raises(NotAccepted, match="will not"):
            mesh.request("bl.add", b"no")
        result = mesh.survey("bl.add", b"b")
        assert [(answer.responder, answer.body) for answer in result.answers] == [("adder", b"B")]
        assert mesh.request("bl.add", b"stop") == b""
        thread.join()


def test_threads_share_one_client_while_another_iterates(url: str) -> None:
    with BlockingClient(url) as mesh:
        subscription = mesh.subscribe("shared.#")
        got: list[bytes] = []

        def iterate() -> None:
            for delivery in subscription:
                got.append(delivery.body)
                if len(got) == 400:
                    return

        def publish(number: int) -> None:
            for index in range(50):
                receipt = mesh.publish(f"shared.t{number}", b"%d %d" % (number, index))
                assert receipt.level == "accepted"

        threads = [threading.Thread(target=iterate)]
        threads += [threading.Thread(target=publish, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(got) == 400 and len(set(got)) == 400
        for number in range(8):
            mine = [int(body.split()[1]) for body in got if body.startswith(b"%d " % number)]
            assert mine == list(range(50))


def test_200_short_lived_threads_and_50_forked_processes_deliver_250_of_250(url: str) -> None:
    """The issue's figure; the forks use a client that was opened before them, in a process without
    threads."""
    forks = (
        "import os, sys\n"
        "from mesh.blocking import BlockingClient\n"
        "with BlockingClient(sys.argv[1]) as mesh:\n"
        "    mesh.publish('crowd.parent', b'before')\n"
        "    children = []\n"
        "    for number in range(50):\n"
        "        child = os.fork()\n"
        "        if not child:\n"
        "            mesh.publish('crowd.fork', b'%d' % number)\n"
        "            mesh.close()\n"
        "            os._exit(0)\n"
        "        children.append(child)\n"
        "    codes = [os.waitpid(child, 0)[1] for child in children]\n"
        "    mesh.publish('crowd.parent', b'after')\n"
        "    sys.exit(any(codes))\n"
    )
    with BlockingClient(url) as reader, reader.subscribe("crowd.*") as subscription:

        def publish(number: int) -> None:
            with BlockingClient(url) as mesh:
                mesh.publish("crowd.thread", b"%d" % number)

        child = subprocess.Popen([sys.executable, "-c", forks, url])
        threads = [threading.Thread(target=publish, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        got = take(252, subscription)
        for thread in threads:
            thread.join()
        assert child.wait(20) == 0
        reader.publish("crowd.end", b"")
        assert take(1, subscription)[0].topic == "crowd.end", "nothing twice"
        for topic, count in (("crowd.thread", 200), ("crowd.fork", 50), ("crowd.parent", 2)):
            assert len({delivery.body for delivery in got if delivery.topic == topic}) == count


def test_a_subscription_does_not_follow_its_program_into_a_fork(url: str) -> None:
    code = (
        "import os, sys\n"
        "from mesh.blocking import BlockingClient\n"
        "from mesh.errors import Disconnected\n"
        "mesh = BlockingClient(sys.argv[1]); mesh.open(); subscription = mesh.subscribe('f')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    mesh.publish('f', b'from the child')\n"
        "    try: subscription.receive(1.0)\n"
        "    except Disconnected: os._exit(7)\n"
        "    os._exit(1)\n"
        "assert os.waitpid(child, 0)[1] >> 8 == 7\n"
        "assert subscription.receive(5.0).body == b'from the child'\n"
        "subscription.close(); mesh.close()\n"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=30)


def test_a_restarted_broker_gets_subscriptions_and_unacknowledged_messages_again() -> None:
    broker = BrokerProcess()
    mesh = BlockingClient(broker.url)
    mesh.open()
    subscription = mesh.subscribe("t")
    mesh.publish("t", b"before")
    broker.kill()
    with pytest.raises(NotAccepted):
        mesh.publish("t", b"never", timeout=0.3)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(mesh.publish("t", b"between", timeout=20.0)))
    thread.start()
    again = BrokerProcess(broker.url)
    try:
        thread.join(20)
        assert results
        assert [delivery.body for delivery in take(2, subscription)] == [b"before", b"between"]
        mesh.close()
    finally:
        again.kill()


def test_a_paused_broker_makes_publishing_unknown_and_asking_time_out() -> None:
    broker = BrokerProcess()
    try:
        with BlockingClient(broker.url) as mesh:
            mesh.publish("t", b"x")
            os.kill(broker.process.pid, signal.SIGSTOP)
            with pytest.raises(Unknown):
                mesh.publish("t", b"x", timeout=0.3)
            with pytest.raises(MeshTimeout):
                mesh.request("t", timeout=0.1)
            with pytest.raises((Unknown, MeshTimeout)):  # whichever fills first: the kernel or the credit
                for _ in range(100):
                    mesh.publish("t", bytes(1 << 20), level="sent", timeout=0.3)
            os.kill(broker.process.pid, signal.SIGCONT)
            assert mesh.publish("t", b"back").level == "accepted"
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
        broker.kill()


def test_ipc_works_as_tcp_does(tmp_path: Path) -> None:
    broker = BrokerProcess(f"ipc://{tmp_path}/b.sock")
    try:
        with BlockingClient(broker.url) as mesh, mesh.subscribe("t") as subscription:
            mesh.publish("t", b"over a path")
            assert take(1, subscription)[0].body == b"over a path"
    finally:
        broker.kill()


def test_closing_ends_iteration_and_what_comes_after_is_refused(url: str) -> None:
    mesh = BlockingClient(url)
    mesh.open()
    subscription = mesh.subscribe("t")
    ended = threading.Event()

    def iterate() -> None:
        for _ in subscription:
            pass
        ended.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    until(lambda: mesh._reading)
    with BlockingClient(url) as reader, reader.subscribe("last") as last:
        for number in range(100):
            assert mesh.publish_nowait("last", b"%d" % number)
        mesh.close()
        mesh.close()
        assert len(take(100, last)) == 100, "close sends what was gathered"
    assert ended.wait(5)
    thread.join()
    with pytest.raises(Disconnected, match="closed"):
        mesh.publish("t", b"")
    subscription.close()


WAITS: dict[str, tuple[Callable[[BlockingClient, BlockingSubscription], object], type | None]] = {
    "receive": (lambda mesh, subscription: subscription.receive(None), None),
    "iterate": (lambda mesh, subscription: list(subscription), list),
    "batches": (lambda mesh, subscription: list(subscription.batches()), list),
    "accepted": (lambda mesh, subscription: mesh.publish("t", b"x", timeout=1e9), NotAccepted),
    "sent": (lambda mesh, subscription: mesh.publish("t", b"x", level="sent", timeout=1e9), Disconnected),
    "flush": (lambda mesh, subscription: mesh.flush(timeout=1e9), Disconnected),
    "subscribe": (lambda mesh, subscription: mesh.subscribe("u"), Disconnected),
    "request": (lambda mesh, subscription: mesh.request("t", timeout=1e9), Disconnected),
}


def test_closing_ends_every_wait_for_a_broker_that_is_gone() -> None:
    broker = BrokerProcess()
    mesh = BlockingClient(broker.url)
    mesh.open()
    subscription = mesh.subscribe("t")
    broker.kill()
    results: dict[str, list[object]] = {name: [] for name in WAITS}

    def waiting(wait: Callable[[BlockingClient, BlockingSubscription], object]) -> Callable[[], object]:
        return lambda: wait(mesh, subscription)

    threads = [start(waiting(wait), results[name]) for name, (wait, _) in WAITS.items()]
    until(lambda: mesh._wire is None and mesh._attempts > 2)
    mesh.close()
    for thread in threads:
        thread.join(5)
    for name, (_, kind) in WAITS.items():
        assert len(results[name]) == 1, f"{name} waits for ever"
        assert results[name][0] is None if kind is None else isinstance(results[name][0], kind), results
    again = BrokerProcess(broker.url)
    try:
        with BlockingClient(again.url) as other:
            assert other.status()["sessions"] == 1, "a closed client does not come back"
    finally:
        again.kill()


def test_closing_does_not_wait_for_an_attempt_to_connect() -> None:
    broker = BrokerProcess()
    mesh = BlockingClient(broker.url, connect_timeout=20.0)
    mesh.open()
    subscription = mesh.subscribe("t")
    broker.kill()
    with socket.create_server(("127.0.0.1", int(broker.url.rpartition(":")[2]))) as silent:
        results: list[object] = []
        thread = start(lambda: subscription.receive(None), results)
        peer, _ = silent.accept()
        with peer:
            mesh.close()
            assert thread.is_alive(), "the handshake is under way still"
            peer.sendall(b"\0SP\0\0\x31\0\0")
            thread.join(5)
            assert results == [None] and mesh._wire is None
            while peer.recv(100):
                pass


REAL_POLL = select.poll


class HeldPoll:
    """`select.poll` whose first wait in a thread called "held" begins when it is let go."""

    reached, go_on = threading.Event(), threading.Event()

    def __init__(self) -> None:
        self.register = (poll := REAL_POLL()).register
        self._poll = poll.poll

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        if threading.current_thread().name == "held":
            self.reached.set()
            self.go_on.wait()
        return self._poll(timeout)


def test_a_thread_about_to_poll_a_connection_that_another_closes_polls_nobody_elses(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = BlockingClient(url)
    mesh.open()
    subscription = mesh.subscribe("t")
    assert mesh._wire is not None
    sock = mesh._wire.sock
    monkeypatch.setattr("mesh.blocking.select.poll", HeldPoll)
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(subscription.receive(None)), name="held", daemon=True
    )
    thread.start()
    HeldPoll.reached.wait()
    mesh.close()
    others = [socket.socketpair() for _ in range(4)]  # one of them gets the descriptor's number if it is free
    HeldPoll.go_on.set()
    thread.join(5)
    assert results == [None] and sock.fileno() == -1
    for pair in others:
        for end in pair:
            end.close()


def test_batches_come_while_a_message_waits_for_its_retry(url: str) -> None:
    with BlockingClient(url) as mesh, BlockingClient(url) as other, mesh.subscribe("t") as subscription:
        other.publish("t", b"first")
        first = take(1, subscription)[0]
        first.retry()
        batches: list[object] = []
        thread = start(lambda: next(subscription.batches()).bodies, batches)
        until(lambda: mesh._reading)
        other.publish("t", b"second")
        thread.join(5)
        assert batches == [[b"second"]]
        again = take(1, subscription)[0]
        assert (again.body, again.attempt) == (b"first", 2)


def test_misuse_and_missing_brokers_are_told(url: str) -> None:
    with BlockingClient(url) as mesh:
        with pytest.raises(TopicError):
            mesh.publish("a b", b"")
        with pytest.raises(TopicError):
            mesh.subscribe("a.#.b")
        with pytest.raises(TypeError):
            mesh.publish("t", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            mesh.publish_many("t")
        with pytest.raises(ValueError, match="level"):
            mesh.publish("t", b"", level="exactly-once")
        with pytest.raises(MeshError, match="opened once"):
            mesh.open()
    with pytest.raises(Disconnected, match="not open"):
        BlockingClient(url).publish("t", b"")
    for bad in ("tcp://127.0.0.1:1", "ipc:///nowhere/at.all", "inproc://x", "tcp://:0"):
        with pytest.raises(Disconnected, match="no broker at"):
            BlockingClient(bad, connect_timeout=1.0).open()


def test_strangers_at_the_address_are_told_apart() -> None:
    for answer, word in (
        (b"", "closed the connection after"),
        (b"HTTP/1.1 400", "speaks HTTP"),
        (b"\0SP\0\0\x20\0\0", "the peer is pub0"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve(server: socket.socket = server, answer: bytes = answer) -> None:
                peer, _ = server.accept()
                with peer:
                    peer.sendall(answer)
                    peer.recv(100)

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(Disconnected, match=word):
                BlockingClient(f"tcp://127.0.0.1:{server.getsockname()[1]}", connect_timeout=2.0).open()
            thread.join()
