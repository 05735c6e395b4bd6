"""``mesh drain``: end a broker once its clients have gone to others."""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager

from mesh import Client
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Timeout, connected
from mesh.config import ClientConfig
from mesh.listen import separate_urls
from mesh.logs import log
from mesh.printable import printable

DRAIN_TOPIC = "$sys.drain"
LOOK_S = 0.05
GRACE_S = 5.0
"""Seconds that a broker may take to leave beyond the time that its clients have."""


def drain(*, timeout: Timeout = None, flags: BrokerFlags = NO_FLAGS) -> int:
    """End a broker once its clients have gone to others.

    Clients that were given several addresses go to other brokers, for as long as the broker's drain_s. Then
    it leaves the mesh and ends, as at SIGTERM. Works on the broker's own host.
    """
    return asyncio.run(_drain(flags.settings(timeout)))


async def _drain(settings: ClientConfig) -> int:
    given = separate_urls(settings.url or "")
    if len(given) > 1:
        sentence = f"it ends one broker, and {len(given)} are named: choose one with --url"
        raise CommandFailed(ExitCode.USAGE, sentence)
    async with connected(settings) as client:
        topic = f"{DRAIN_TOPIC}.{(await client.status())['id']}"
        answer = jsonlib.loads(await client.request(topic, b"", timeout=settings.timeout_s))
        if "error" in answer:
            raise CommandFailed(ExitCode.FAILED, printable(str(answer["error"])))
        name, left_s = printable(str(answer["name"])), float(answer["drain_s"])
        print(f"{name} leaves; {answer['clients']} of its clients go to other brokers", flush=True)
        try:
            with _lost_sessions_untold():
                async with asyncio.timeout(left_s + GRACE_S):
                    await _gone(client)
        except TimeoutError:
            sentence = f"{name} had not left after {left_s + GRACE_S:g} s"
            raise CommandFailed(ExitCode.TIMEOUT, sentence) from None
        print(f"{name} has left")
    return ExitCode.OK


@contextmanager
def _lost_sessions_untold() -> Iterator[None]:
    """The session with the broker ends because this command asked for it, so no warning tells it."""

    def untold(record: object) -> bool:
        return False

    log.addFilter(untold)
    try:
        yield
    finally:
        log.removeFilter(untold)


async def _gone(client: Client) -> None:
    while True:
        if not client.connected:
            return
        await asyncio.sleep(LOOK_S)
