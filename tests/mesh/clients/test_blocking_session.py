"""The session of a `BlockingClient`: threads that take turns, forks, restarts, false brokers."""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.errors import Disconnected, MeshTimeout, NotAccepted, Unknown
from mesh.wire.session_frames import Kind, encode
from tests.mesh.clients.blocking_programs import BrokerProcess, start, until
from tests.mesh.clients.taking import take

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    broker = BrokerProcess()
    yield broker.url
    broker.kill()


def test_200_short_lived_threads_and_50_forked_processes_deliver_250_of_250(url: str) -> None:
    """The figure of the requirement. The forks use a client that was opened before them, in a process without
    threads."""
    forks = (
        "import os, sys\n"
        "from mesh.clients.blocking_client import BlockingClient\n"
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
        assert child.wait(120) == 0
        reader.publish("crowd.end", b"")
        assert take(1, subscription)[0].topic == "crowd.end", "nothing twice"
        for topic, count in (("crowd.thread", 200), ("crowd.fork", 50), ("crowd.parent", 2)):
            assert len({delivery.body for delivery in got if delivery.topic == topic}) == count


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
            thread.join(120)
        assert len(got) == 400 and len(set(got)) == 400
        for number in range(8):
            mine = [int(body.split()[1]) for body in got if body.startswith(b"%d " % number)]
            assert mine == list(range(50))


def test_a_restarted_broker_gets_subscriptions_and_unacknowledged_messages_again() -> None:
    broker = BrokerProcess()
    mesh = BlockingClient(broker.url)
    mesh.open()
    subscription = mesh.subscribe("t")
    mesh.publish("t", b"before")
    broker.kill()
    nobody = re.escape(f"no broker at {broker.url} (nobody listens at {broker.url}); start one with")
    with pytest.raises(NotAccepted, match=f"no credit to publish in 0.3 s: {nobody}"):
        mesh.publish("t", b"never", timeout=0.3)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(mesh.publish("t", b"between", timeout=20.0)))
    thread.start()
    again = BrokerProcess(broker.url)
    try:
        thread.join(120)
        assert results
        assert [delivery.body for delivery in take(2, subscription)] == [b"before", b"between"]
        mesh.close()
    finally:
        again.kill()


def flush_something(mesh: BlockingClient) -> None:
    mesh._session.conversation.forming["t"] = [b"gathered"]
    mesh.flush(timeout=1e9)


WAITS: dict[str, tuple[Callable[[BlockingClient, BlockingSubscription], object], type | None]] = {
    "receive": (lambda mesh, subscription: subscription.receive(None), None),
    "iterate": (lambda mesh, subscription: list(subscription), list),
    "batches": (lambda mesh, subscription: list(subscription.batches()), list),
    "accepted": (lambda mesh, subscription: mesh.publish("t", b"x", timeout=1e9), NotAccepted),
    "sent": (lambda mesh, subscription: mesh.publish("t", b"x", level="sent", timeout=1e9), Disconnected),
    "flush": (lambda mesh, subscription: flush_something(mesh), Unknown),
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
    until(lambda: mesh._session._wire is None and mesh._session._schedule.failures > 2)
    mesh.close()
    for thread in threads:
        thread.join(120)
    for name, (_, kind) in WAITS.items():
        assert len(results[name]) == 1, f"{name} waits forever"
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
            assert thread.is_alive(), "the handshake still runs"
            peer.sendall(b"\0SP\0\0\x31\0\0")
            thread.join(120)
            assert results == [None] and mesh._session._wire is None
            while peer.recv(100):
                pass


REAL_POLL = select.poll


class HeldPoll:
    """`select.poll` whose first wait in a thread called "held" begins only when it is released."""

    reached, go_on = threading.Event(), threading.Event()

    def __init__(self) -> None:
        self.register = (poll := REAL_POLL()).register
        self._poll = poll.poll

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        if threading.current_thread().name == "held":
            self.reached.set()
            self.go_on.wait()
        return self._poll(timeout)


def test_a_thread_never_polls_a_foreign_socket_after_another_thread_closed_its_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = BlockingClient(url)
    mesh.open()
    subscription = mesh.subscribe("t")
    assert mesh._session._wire is not None
    sock = mesh._session._wire.sock
    monkeypatch.setattr("mesh.clients.blocking_session.select.poll", HeldPoll)
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(subscription.receive(None)), name="held", daemon=True
    )
    thread.start()
    HeldPoll.reached.wait()
    mesh.close()
    # one of them gets the descriptor's number if that is free
    others = [socket.socketpair() for _ in range(4)]
    HeldPoll.go_on.set()
    thread.join(120)
    assert results == [None] and sock.fileno() == -1
    for pair in others:
        for end in pair:
            end.close()


class Doorkeeper(threading.Thread):
    """Acts as a broker: answers the first HELLO with WELCOME, and all others with a refusal."""

    def __init__(self, server: socket.socket) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.came = 0
        self.first: socket.socket | None = None
        self.start()

    def run(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            peer.sendall(b"\0SP\0\0\x31\0\0")
            hello = b""
            while len(hello) < 20:
                hello += peer.recv(1000)
            answer = encode(Kind.ERROR, "SessionError", "this key is not known")
            if self.first is None:
                self.first, answer = peer, encode(Kind.WELCOME, 1, 1, "keeper", "m", 1, 10, 1000)
            answer = hello[16:20] + answer
            peer.sendall(len(answer).to_bytes(8, "big") + answer)
            if peer is not self.first:
                peer.close()
            self.came += 1


def test_a_lasting_refusal_is_logged_once_raised_to_the_caller_and_retried_with_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client dialled some thousand times a second, and no log line said why."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        keeper = Doorkeeper(server)
        with BlockingClient(url) as mesh:
            assert keeper.first is not None
            keeper.first.close()
            with pytest.raises(NotAccepted, match="no credit to publish in 0.5 s: SessionError: this key is"):
                mesh.publish("t", b"x", timeout=0.5)
            assert 0 < keeper.came - 1 <= 6, "pauses of 25, 50, 100, 200 ms at least"
            with pytest.raises(MeshTimeout, match="SessionError: this key is not known"):
                mesh.request("t", timeout=0.01)
        lost, refused = [record.getMessage() for record in caplog.records if record.name == "mesh"]
        assert f"the connection to {url} was lost: the broker closed the connection" in lost
        assert refused == (
            f"no session with the broker at {url}: SessionError: this key is not known; the client dials it"
            " again, at least every 2 s"
        )


def test_errors_tell_apart_peers_that_are_no_brokers() -> None:
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
