"""The requirements of the first version: short-lived threads and forks, slow joiners, the barrier, a stalled
topic.

Broker and clients are real. Clients that must be processes are processes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.clients.client import Client
from tests.mesh.loopback import LOCAL, ROOMY, Cluster
from tests.support.children import ends_with_tests

THREADS, FORKS = 200, 50
JOINERS, DEMONSTRATIONS = 4, 100
SUBSCRIPTIONS = 1000

PUBLISH_ONCE = """
import sys
from mesh.clients.blocking_client import BlockingClient
with BlockingClient(sys.argv[1]) as client:
    client.publish("joiner.news", sys.argv[2].encode())
"""


@contextmanager
def broker_process(folder: Path) -> Iterator[str]:
    """A `mesh broker` process. Returns its URL."""
    ports = folder / "ports.json"
    command = [sys.executable, "-m", "mesh", "broker", "--listen", LOCAL, "--ports-file", str(ports)]
    process = subprocess.Popen(ends_with_tests(command), stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # it prints one line when it is ready, after writing the ports file
        import json

        yield json.loads(ports.read_text())["listeners"][0]
    finally:
        process.terminate()
        process.communicate(timeout=120)


def publish_once(url: str, body: bytes) -> None:
    with BlockingClient(url) as client:
        client.publish("short.lived", body)


def publish_in_fork(url: str, body: bytes) -> int:
    """Fork without exec, publish in the child. Returns the child's pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            publish_once(url, body)
            code = 0
        finally:
            os._exit(code)
    return pid


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_200_short_lived_threads_and_50_forked_processes_deliver_250_of_250(tmp_path: Path) -> None:
    """With one socket for each thread, as in fedmsg, this failed: a thread published and ended, and the
    message was gone."""
    with broker_process(tmp_path) as url, BlockingClient(url) as listener:
        with listener.subscribe("short.#") as subscription:
            pids = [publish_in_fork(url, f"fork {number}".encode()) for number in range(FORKS)]
            threads = [
                threading.Thread(target=publish_once, args=(url, f"thread {number}".encode()))
                for number in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * FORKS
            bodies = []
            while len(bodies) < THREADS + FORKS:
                delivery = subscription.receive(timeout=60)
                assert delivery is not None, f"only {len(bodies)} of {THREADS + FORKS} arrived"
                bodies.append(delivery.body)
            assert subscription.receive(timeout=0.2) is None, "more arrived than was published"
    assert len(set(bodies)) == THREADS + FORKS


@pytest.mark.process
def test_four_processes_that_start_publish_once_and_exit_deliver_four_of_four_a_hundred_times(
    tmp_path: Path,
) -> None:
    """The slow-joiner demonstration, in which two of four used to arrive. Nothing here sleeps."""
    with broker_process(tmp_path) as url, BlockingClient(url) as listener:
        with listener.subscribe("joiner.#") as subscription:
            for run in range(DEMONSTRATIONS):
                sent = {f"{run} {number}" for number in range(JOINERS)}
                publishers = [
                    subprocess.Popen([sys.executable, "-c", PUBLISH_ONCE, url, body]) for body in sorted(sent)
                ]
                assert [publisher.wait(120) for publisher in publishers] == [0] * JOINERS
                heard = set()
                for _ in range(JOINERS):
                    delivery = subscription.receive(timeout=60)
                    assert delivery is not None, f"run {run}: only {sorted(heard)} arrived"
                    heard.add(delivery.body.decode())
                assert heard == sent


async def test_after_subscribe_returns_a_publish_at_once_on_another_broker_arrives_1000_of_1000() -> None:
    """`subscribe` is the barrier: when it returns, every live broker knows the interest."""
    async with Cluster(**ROOMY) as cluster:
        first, second = await cluster.mesh("first", "second")
        async with Client(first.url) as listener, Client(second.url) as publisher:
            arrived = 0
            for number in range(SUBSCRIPTIONS):
                topic = f"barrier.t{number}"
                async with listener.subscribe(topic) as subscription:
                    await publisher.publish(topic, b"at once", level="sent")
                    async with asyncio.timeout(60):
                        delivery = await anext(aiter(subscription))
                    arrived += (delivery.topic, delivery.body) == (topic, b"at once")
            assert arrived == SUBSCRIPTIONS


async def test_a_client_that_publishes_to_a_stalled_topic_keeps_consuming_another() -> None:
    """With paused reading as back-pressure this stopped permanently after 2256 messages. Credit keeps it
    running."""
    wanted = 20_000
    async with Cluster(**ROOMY) as cluster:
        broker = await cluster.broker("only")
        async with Client(broker.url) as staller, Client(broker.url) as busy, Client(broker.url) as source:
            async with staller.subscribe("stalled.#"), busy.subscribe("flowing.#") as flowing:
                # Nobody reads the first subscription, so publishing to it must come to a halt.
                blocked = asyncio.create_task(_publish_for_ever(busy, "stalled.topic"))
                feeding = asyncio.create_task(_publish_for_ever(source, "flowing.topic"))
                taken = 0
                async with asyncio.timeout(30):
                    async for batch in flowing.batches():
                        taken += len(batch)
                        if taken >= wanted:
                            break
                for task in (blocked, feeding):
                    assert not task.done(), "a publisher ended by itself"
                    task.cancel()
                await asyncio.gather(blocked, feeding, return_exceptions=True)
    assert taken >= wanted


async def _publish_for_ever(client: Client, topic: str) -> None:
    while True:
        await client.publish(topic, b"x" * 128, level="sent")
