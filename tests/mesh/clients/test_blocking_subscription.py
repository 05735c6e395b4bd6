"""How a `BlockingClient` hands out messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.errors import Disconnected, NotAccepted
from tests.mesh.clients.blocking_programs import BrokerProcess, start, until
from tests.mesh.clients.taking import take

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    broker = BrokerProcess()
    yield broker.url
    broker.kill()


def test_a_subscription_does_not_follow_its_program_into_a_fork(url: str) -> None:
    code = (
        "import os, sys\n"
        "from mesh.clients.blocking_client import BlockingClient\n"
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
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=240)


def test_a_child_takes_none_of_the_messages_that_its_parent_has_received(url: str) -> None:
    """Messages that lay in the subscription at the fork arrived in both processes."""
    code = (
        "import os, sys\n"
        "from mesh.clients.blocking_client import BlockingClient\n"
        "from mesh.errors import Disconnected\n"
        "mesh = BlockingClient(sys.argv[1]); mesh.open(); subscription = mesh.subscribe('many')\n"
        "mesh.publish_many('many', [b'%d' % number for number in range(5)])\n"
        "assert subscription.receive(5.0).body == b'0'\n"
        "for own in (False, True):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        if own: mesh.publish('other', b'the child has a session of its own')\n"
        "        try: subscription.receive(0.0)\n"
        "        except Disconnected: os._exit(7)\n"
        "        os._exit(1)\n"
        "    assert os.waitpid(child, 0)[1] >> 8 == 7\n"
        "assert [subscription.receive(5.0).body for _ in range(4)] == [b'1', b'2', b'3', b'4']\n"
        "subscription.close(); mesh.close()\n"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=240)


def test_closing_ends_iteration_and_later_calls_are_refused(url: str) -> None:
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
    until(lambda: mesh._session._reading)
    with BlockingClient(url) as reader, reader.subscribe("last") as last:
        for number in range(100):
            assert mesh.publish_nowait("last", b"%d" % number)
        mesh.close()
        mesh.close()
        assert len(take(100, last)) == 100, "close sends what was gathered"
    assert ended.wait(120)
    thread.join()
    with pytest.raises(Disconnected, match="closed"):
        mesh.publish("t", b"")
    subscription.close()


def test_an_answer_returns_false_when_the_broker_of_its_request_is_gone() -> None:
    broker = BrokerProcess()
    with BlockingClient(broker.url) as mesh, BlockingClient(broker.url) as other:
        subscription = mesh.subscribe("add", answers=True)
        asking = [start(lambda: other.request("add", b"1 2"), []) for _ in range(2)]
        one, two = take(2, subscription)
        broker.kill()
        for thread in asking:
            thread.join(120)
        until(lambda: one.extend() is False)
        assert one.done(b"3") is False and subscription.late == 1
    assert two.drop("closed") is False and subscription.late == 2, "as when the client is closed"


def test_batches_come_while_a_message_waits_for_its_retry(url: str) -> None:
    with BlockingClient(url) as mesh, BlockingClient(url) as other, mesh.subscribe("t") as subscription:
        other.publish("t", b"first")
        first = take(1, subscription)[0]
        first.retry()
        batches: list[object] = []
        thread = start(lambda: next(subscription.batches()).bodies, batches)
        until(lambda: mesh._session._reading)
        other.publish("t", b"second")
        thread.join(120)
        assert batches == [[b"second"]]
        again = take(1, subscription)[0]
        assert (again.body, again.attempt) == (b"first", 2)


def test_threads_that_take_from_one_subscription_share_its_messages_and_lose_none(url: str) -> None:
    everything = [b"%d" % number for number in range(2000)]
    got: list[bytes] = []
    with BlockingClient(url) as mesh, BlockingClient(url) as other, mesh.subscribe("t") as subscription:

        def read() -> None:
            got.extend(delivery.body for delivery in subscription)

        threads = [start(read, []) for _ in range(3)]
        for at in range(0, 2000, 5):
            other.publish_many("t", everything[at : at + 5])
        until(lambda: len(got) >= 2000 or not any(thread.is_alive() for thread in threads))
        assert sorted(got) == sorted(everything) and subscription.lost == 0
        subscription.close()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads), "the close ends every thread's iteration"


def test_a_message_retried_by_one_thread_wakes_another_that_waits(url: str) -> None:
    with BlockingClient(url) as mesh, BlockingClient(url) as other, mesh.subscribe("t") as subscription:
        other.publish("t", b"work")
        (delivery,) = take(1, subscription)
        came: list[object] = []
        thread = start(lambda: subscription.receive(15.0), came)
        until(lambda: mesh._session._reading)
        delivery.retry()
        thread.join(120)
        (again,) = came
        assert again.attempt == 2  # type: ignore[attr-defined]


def test_receive_without_waiting_returns_arrived_messages(url: str) -> None:
    with BlockingClient(url) as mesh, BlockingClient(url) as other, mesh.subscribe("t") as subscription:
        assert subscription.receive(0.0) is None
        other.publish("t", b"work")
        got: list[object] = []
        until(lambda: got.append(subscription.receive(0.0)) or got[-1])
        assert got[-1].body == b"work"  # type: ignore[attr-defined]


def test_too_many_patterns_are_refused_by_name_at_once_and_the_client_continues(url: str) -> None:
    with BlockingClient(url) as mesh:
        with pytest.raises(NotAccepted, match=r"device\.4\.# and 79995 more: .* above the 32768"):
            mesh.subscribe(*(f"device.{number}.#" for number in range(80_000)))
        with mesh.subscribe("t") as subscription:
            mesh.publish("t", b"still here")
            assert take(1, subscription)[0].body == b"still here"
            subscription._feed.fail(NotAccepted("its broker is gone"))
            with pytest.raises(NotAccepted, match="gone"):
                subscription.receive(1.0)
            with pytest.raises(NotAccepted, match="gone"):
                next(subscription.batches())
