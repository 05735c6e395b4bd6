"""A program goes on reading and answering whatever headers reach it: both clients, a real broker.

A broker lets no such headers in. The test puts them among the frames that the session has read, as if another
make of broker had sent them.
"""

from __future__ import annotations

import asyncio

from mesh.broker.broker import Broker
from mesh.clients.blocking_client import BlockingClient
from mesh.clients.client import Client
from mesh.clients.feeds import Feed, Run

BAD = b"\xc1\xc1"


def put(feed: Feed, *bodies: bytes, headers: list[bytes]) -> None:
    """Read a block with these headers for this subscription, credit included."""
    run = Run(feed.epoch)
    run.topics, run.bodies, run.headers = ["t"] * len(bodies), list(bodies), headers
    run.messages, run.size = len(bodies), sum(map(len, bodies))
    feed.window.arrive(run.messages, run.size)
    feed.runs.append(run)


async def test_the_asyncio_client_counts_malformed_headers_and_continues() -> None:
    async with Broker(listen=["tcp://127.0.0.1:0"]) as broker, Client(broker.url) as mesh:
        async with mesh.subscribe("t") as subscription:
            put(subscription._feed, b"bad", headers=[BAD])
            put(subscription._feed, b"bad", b"good", headers=[BAD, b""])
            assert (await anext(subscription)).body == b"good"
            await mesh.publish("t", b"next", headers={"n": 1})
            assert (await anext(subscription)).headers == {"n": 1}
            assert subscription.malformed == 2
            put(subscription._feed, b"bad", headers=[BAD])
            await mesh.publish("t", b"last")
            assert (await anext(subscription.batches())).bodies == [b"last"]
            assert (subscription.malformed, subscription.dropped, subscription.lost) == (3, 0, 0)


async def test_the_blocking_client_counts_malformed_headers_and_continues() -> None:
    def read(url: str) -> None:
        with BlockingClient(url) as mesh, mesh.subscribe("t") as subscription:
            put(subscription._feed, b"bad", headers=[BAD])
            put(subscription._feed, b"bad", b"good", headers=[BAD, b""])
            assert next(subscription).body == b"good"
            mesh.publish("t", b"next", headers={"n": 1})
            assert next(subscription).headers == {"n": 1}
            assert subscription.malformed == 2
            put(subscription._feed, b"bad", headers=[BAD])
            mesh.publish("t", b"last")
            assert next(subscription.batches()).bodies == [b"last"]
            assert (subscription.malformed, subscription.dropped, subscription.lost) == (3, 0, 0)

    async with Broker(listen=["tcp://127.0.0.1:0"]) as broker:
        await asyncio.to_thread(read, broker.url)
