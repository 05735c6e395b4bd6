"""Publisher to broker to subscriber, beside a ZeroMQ XSUB/XPUB proxy with pyzmq clients; a flood; an idle
broker.

Messages have 128 bytes and go over TCP loopback; publisher, broker and subscriber are processes of their own.
ZeroMQ runs as fast as it can: single frames, no high-water mark, blocking calls. Its publisher has no
receipt, so ours uses level ``sent``.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mesh.bench.harness import BenchError, Case, Figures, Target, workers
from mesh.bench.measuring import BODY, WARM_UP, Report, missing, percentiles, run_async
from mesh.bench.processor import can_read_processor, resident_mb, spent
from mesh.broker.broker import Broker
from mesh.clients.client import Client
from protocols import Push0

ONE_TOPIC = "one topic"
BATCHES = "batches"
MANY_TOPICS = "1000 topics"
YIELDING = "yield after every publish"
ROUND_TRIP = "round trip"
ROUND_TRIP_PINNED = "round trip, clients and broker a core each"
FLOOD_CLIENTS = "flood of 200 clients"
FLOOD_PUSHERS = "flood of 200 PUSH sockets"
IDLE = "idle broker of five"

TOPICS = [f"r.{number:03d}" for number in range(1000)]
BATCH = 100
FLOODERS = 200
FLOOD_S = 8.0
TIMER_S = 0.05
"""The period of the timer whose lateness is measured."""
IDLE_S = 20.0

OURS, PROXY = "mangrove", "zmq proxy"
TARGETS = (
    Target(ONE_TOPIC, "messages/s", OURS, PROXY, 2.0, True),
    Target(BATCHES, "messages/s", OURS, PROXY, 4.0, True),
    Target(MANY_TOPICS, "messages/s", OURS, PROXY, 1.5, True),
    Target(YIELDING, "messages/s", OURS, PROXY, 0.8, True),
    Target(ROUND_TRIP, "p50 us", OURS, PROXY, 1.2, False),
    Target(ROUND_TRIP_PINNED, "p50 us", OURS, PROXY, 1.2, False),
    Target(FLOOD_CLIENTS, "late ms p50", OURS, None, 60.0, False),
    Target(FLOOD_PUSHERS, "late ms p50", OURS, None, 60.0, False),
    Target(IDLE, "cpu %", OURS, None, 1.0, False),
    Target(IDLE, "rss MB", OURS, None, 60.0, False),
)


# --- ours


def run_broker(report: Report, gate: Any) -> None:
    """Run a broker alone, until the gate opens."""

    async def main() -> None:
        async with Broker(name="bench", listen=["tcp://127.0.0.1:0"]) as broker:
            report(broker.url)
            await asyncio.to_thread(gate.wait)

    run_async(main())


def run_timed_broker(seconds: float, report: Report, gate: Any) -> None:
    """Run a broker that, once the gate opens, measures for ``seconds`` how late its timers run."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Broker(name="bench", listen=["tcp://127.0.0.1:0"]) as broker:
            report(broker.url)
            await asyncio.to_thread(gate.wait)
            end = loop.time() + seconds
            late_ms = []
            while (due := loop.time() + TIMER_S) < end:
                await asyncio.sleep(TIMER_S)
                late_ms.append((loop.time() - due) * 1000)
            report({"late ms p50": statistics.median(late_ms), "late ms max": max(late_ms)})

    run_async(main())


def ours_subscriber(url: str, work: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Client(url) as client, client.subscribe("r.#") as subscription:
            report("ready")
            seen = 0
            start = time.perf_counter()
            if work == BATCHES:
                first = 0
                async for batch in subscription.batches():
                    if not seen:
                        start, first = time.perf_counter(), len(batch)
                    seen += len(batch)
                    if seen >= count:
                        break
            else:
                first = 1
                async for _ in subscription:
                    if not seen:
                        start = time.perf_counter()
                    seen += 1
                    if seen == count:
                        break
            report((seen - first) / (time.perf_counter() - start))

    run_async(main())


def ours_publisher(url: str, work: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Client(url) as client:
            publish = client.publish
            if work == ONE_TOPIC:
                for _ in range(count):
                    await publish("r.t", BODY, level="sent")
            elif work == BATCHES:
                bodies = [BODY] * BATCH
                for _ in range(count // BATCH):
                    await client.publish_many("r.t", bodies, level="sent")
            elif work == MANY_TOPICS:
                for _ in range(count // len(TOPICS)):
                    for topic in TOPICS:
                        await publish(topic, BODY, level="sent")
            else:
                for _ in range(count):
                    await publish("r.t", BODY, level="sent")
                    await asyncio.sleep(0)
            report("published")
            await asyncio.to_thread(gate.wait)

    run_async(main())


def ours_echo(url: str, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Client(url) as client, client.subscribe("ping") as subscription:
            report("ready")
            async for delivery in subscription:
                await client.publish("pong", delivery.body, level="sent")

    run_async(main())


def ours_caller(url: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Client(url) as client, client.subscribe("pong") as subscription:
            samples = []
            answers = aiter(subscription)
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await client.publish("ping", BODY, level="sent")
                await anext(answers)
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
                await asyncio.sleep(0.0005)
            report(percentiles(samples))

    run_async(main())


def ours_through(work: str, count: int) -> Figures:
    """Messages a second at the subscriber, first to last."""
    with workers() as group:
        url = group.start(run_broker).hear()
        subscriber = group.start(ours_subscriber, url, work, count)
        subscriber.hear()
        publisher = group.start(ours_publisher, url, work, count)
        publisher.hear()
        return {"messages/s": subscriber.hear()}


def round_trip(
    middle: Callable[..., None],
    echo: Callable[..., None],
    caller: Callable[..., None],
    count: int,
    pinned: bool,
) -> Figures:
    """Percentiles of one round trip, each way through the middle."""
    clients, broker = (0, 1) if pinned else (None, None)
    with workers() as group:
        where = group.start(middle, core=broker).hear()
        group.start(echo, where, core=clients).hear()
        figures: Figures = group.start(caller, where, count, core=clients).hear()
        return figures


# --- the proxy


def run_proxy(report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.XSUB) as front, context.socket(zmq.XPUB) as back:
        front.set_hwm(0)
        back.set_hwm(0)
        ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (front, back)]
        report([f"tcp://127.0.0.1:{port}" for port in ports])
        zmq.proxy(front, back)


def proxy_subscriber(urls: list[str], work: str, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.PUB) as pub:
        sub.set_hwm(0)
        sub.connect(urls[1])
        sub.subscribe(b"r.")
        _wait_for_subscription(pub, sub, urls[0], b"r.")
        report("ready")
        sub.recv()
        start = time.perf_counter()
        for _ in range(count - 1):
            sub.recv()
        report((count - 1) / (time.perf_counter() - start))


def proxy_publisher(urls: list[str], work: str, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        pub.set_hwm(0)
        pub.connect(urls[0])
        # A PUB learns of subscriptions some time after connecting and does not report it: ZeroMQ's slow
        # joiner.
        time.sleep(0.5)
        if work == MANY_TOPICS:
            topics = [topic.encode() + b" " for topic in TOPICS]
            for _ in range(count // len(topics)):
                for topic in topics:
                    pub.send(topic + BODY)
        elif work == YIELDING:

            async def main() -> None:
                for _ in range(count):
                    pub.send(b"r.t " + BODY)
                    await asyncio.sleep(0)

            run_async(main())
        else:
            for _ in range(count):
                pub.send(b"r.t " + BODY)
        report("published")
        gate.wait()


def proxy_echo(urls: list[str], report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.PUB) as pub:
        sub.connect(urls[1])
        sub.subscribe(b"ping")
        _wait_for_subscription(pub, sub, urls[0], b"ping")
        report("ready")
        while True:
            pub.send(b"pong" + sub.recv()[4:])


def proxy_caller(urls: list[str], count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.PUB) as pub:
        sub.connect(urls[1])
        sub.subscribe(b"pong")
        _wait_for_subscription(pub, sub, urls[0], b"pong")
        samples = []
        for number in range(count + WARM_UP):
            start = time.perf_counter()
            pub.send(b"ping" + BODY)
            sub.recv()
            if number >= WARM_UP:
                samples.append(time.perf_counter() - start)
            time.sleep(0.0005)
        report(percentiles(samples))


def _wait_for_subscription(pub: Any, sub: Any, url: str, prefix: bytes) -> None:
    """Send messages to this process through the proxy until one arrives, then drain the others."""
    pub.set_hwm(0)
    pub.connect(url)
    while not sub.poll(20):
        pub.send(prefix + b"?")
    while sub.poll(100):
        sub.recv()


def proxy_through(work: str, count: int) -> Figures:
    with workers() as group:
        urls = group.start(run_proxy).hear()
        subscriber = group.start(proxy_subscriber, urls, work, count)
        subscriber.hear()
        publisher = group.start(proxy_publisher, urls, work, count)
        publisher.hear()
        return {"messages/s": subscriber.hear()}


# --- the flood


def flood_clients(url: str, report: Report, gate: Any) -> None:
    """Half of the flood: clients that publish as fast as their credit allows."""

    async def flood(client: Client, topic: str) -> None:
        bodies = [BODY] * BATCH
        while True:
            await client.publish_many(topic, bodies, level="sent")
            await asyncio.sleep(0)

    async def main() -> None:
        clients = [Client(url) for _ in range(FLOODERS // 2)]
        for client in clients:
            await client.__aenter__()
        tasks = [asyncio.create_task(flood(client, f"r.{n}")) for n, client in enumerate(clients)]
        report("flooding")
        await asyncio.to_thread(gate.wait)
        for task in tasks:
            task.cancel()

    run_async(main())


def flood_pushers(url: str, report: Report, gate: Any) -> None:
    """Half of the flood: stock PUSH sockets, which know no credit."""

    async def flood(push: Push0) -> None:
        bodies = [b"r.flood " + BODY] * BATCH
        while True:
            await push.send_many(bodies)
            await asyncio.sleep(0)

    async def main() -> None:
        sockets = [Push0() for _ in range(FLOODERS // 2)]
        for push in sockets:
            push.dial(url)
            await push.wait_for_peers(1)
        tasks = [asyncio.create_task(flood(push)) for push in sockets]
        report("flooding")
        await asyncio.to_thread(gate.wait)
        for task in tasks:
            task.cancel()

    run_async(main())


def flooded(flooder: Callable[..., None], seconds: float) -> Figures:
    """How late the broker's timers are while 200 connections send as fast as they can."""
    with workers() as group:
        broker = group.start(run_timed_broker, seconds)
        url = broker.hear()
        floods = [group.start(flooder, url) for _ in range(2)]
        for flood in floods:
            flood.hear()
        broker.release()
        figures: Figures = broker.hear()
        return figures


# --- an idle broker


def idle(seconds: float) -> Figures:
    """CPU share and memory of the busiest of five `mesh broker` processes that only keep the mesh."""
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            seed = ""
            for number in range(5):
                ports = Path(folder, f"ports-{number}.json")
                command = [sys.executable, "-m", "mesh", "broker", "--name", f"idle{number}"]
                command += ["--listen", "tcp://127.0.0.1:0", "--ports-file", str(ports)]
                command += ["--join", seed] if seed else []
                processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
                seed = seed or _listening(ports)
            _wait_until_whole(seed, 5)
            before = [spent(process.pid) for process in processes]
            time.sleep(seconds)
            taken = [(spent(p.pid) - b).total_s for p, b in zip(processes, before, strict=True)]
            resident = [resident_mb(process.pid) for process in processes]
            return {"cpu %": max(taken) / seconds * 100, "rss MB": max(resident)}
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(10)


def _listening(ports: Path, timeout_s: float = 20.0) -> str:
    """The URL that a broker process wrote into its ports file."""
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        if ports.exists():
            url: str = json.loads(ports.read_text())["listeners"][0]
            return url
        time.sleep(0.05)
    raise BenchError(f"a broker did not come up within {timeout_s:g} s")


def _wait_until_whole(url: str, size: int, timeout_s: float = 20.0) -> None:
    async def main() -> None:
        async with asyncio.timeout(timeout_s), Client(url) as client:
            while True:
                status = await client.status()
                if sum(member["state"] == "alive" for member in status["members"]) == size:
                    return
                await asyncio.sleep(0.1)

    asyncio.run(main())


# --- the cases


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All cases whose libraries are installed; ``scale`` multiplies message counts and durations."""
    counts = {
        ONE_TOPIC: max(1000, int(2_000_000 * scale)),
        BATCHES: max(1000, int(3_000_000 * scale)),
        MANY_TOPICS: max(1000, int(2_000_000 * scale) // 1000 * 1000),
        YIELDING: max(1000, int(100_000 * scale)),
    }
    trips = max(100, int(2_000 * scale))
    no_zmq = missing("zmq")
    if no_zmq:
        skipped[PROXY] = no_zmq
    result = []
    for work, count in counts.items():
        result.append(Case(work, OURS, partial(ours_through, work, count)))
        if not no_zmq:
            result.append(Case(work, PROXY, partial(proxy_through, work, count)))
    for work, pinned in ((ROUND_TRIP, False), (ROUND_TRIP_PINNED, True)):
        run = partial(round_trip, run_broker, ours_echo, ours_caller, trips, pinned)
        result.append(Case(work, OURS, run))
        if not no_zmq:
            run = partial(round_trip, run_proxy, proxy_echo, proxy_caller, trips, pinned)
            result.append(Case(work, PROXY, run))
    flood_s, idle_s = max(2.0, FLOOD_S * scale), max(2.0, IDLE_S * scale)
    result.append(Case(FLOOD_CLIENTS, OURS, partial(flooded, flood_clients, flood_s)))
    result.append(Case(FLOOD_PUSHERS, OURS, partial(flooded, flood_pushers, flood_s)))
    if can_read_processor():
        result.append(Case(IDLE, OURS, partial(idle, idle_s)))
    else:
        skipped[IDLE] = "CPU and memory are read from /proc, which only Linux has"
    return result
