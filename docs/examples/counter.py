"""A counter that several hosts add to and take from, and that has no home: all copies come to the same value.

    python counter.py visitors +1
    python counter.py visitors -3
    python counter.py visitors            # only look

Messages may be lost, come twice and in any order. So none of them says "add 1". Each says how much its sender
has added and taken so far, and of two words of one sender the greater is right. This is a PN-counter, a CRDT:
merging is commutative, associative and idempotent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import uuid
from collections.abc import Mapping

from mesh import Client, MeshError

EVERY_S = 1.0
"""All that is known is published so often: what was lost, or missed by a newcomer, comes with the next."""
log = logging.getLogger("counter")


class Counter:
    """Of each copy, how much it has added and taken. A copy changes its own two numbers only, upwards."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._known: dict[str, tuple[int, int]] = {}

    @property
    def value(self) -> int:
        return sum(added - taken for added, taken in self._known.values())

    def add(self, number: int) -> None:
        """Below 0 it takes."""
        added, taken = self._known.get(self._me, (0, 0))
        self._known[self._me] = (added + max(number, 0), taken + max(-number, 0))

    def merge(self, known: Mapping[str, tuple[int, int]]) -> None:
        """Learn what another copy knows."""
        for name, (added, taken) in known.items():
            mine = self._known.get(name, (0, 0))
            self._known[name] = (max(mine[0], added), max(mine[1], taken))

    def packed(self) -> bytes:
        return json.dumps(self._known).encode()


def unpacked(body: bytes) -> dict[str, tuple[int, int]]:
    """Raises `ValueError` for what no counter says."""
    known = json.loads(body)
    if not isinstance(known, dict):
        raise ValueError("not an object")
    for pair in known.values():
        match pair:
            case [int(added), int(taken)] if added >= 0 and taken >= 0:
                pass
            case _:
                raise ValueError(f"{pair!r} is no pair of counts")
    return {name: (pair[0], pair[1]) for name, pair in known.items()}


async def replicate(client: Client, topic: str, counter: Counter) -> None:
    """Keep a copy like all others, until cancelled."""
    async with client.subscribe(topic) as words:
        log.info("subscribed to %s, which is %d here", topic, counter.value)
        saying = asyncio.create_task(say(client, topic, counter))
        try:
            async for word in words:
                before = counter.value
                try:
                    counter.merge(unpacked(word.body))
                except ValueError as error:
                    log.warning("a message on %s is not understood: %s", topic, error)
                if counter.value != before:
                    log.info("%s: %d", topic, counter.value)
        finally:
            saying.cancel()


async def say(client: Client, topic: str, counter: Counter) -> None:
    while True:
        try:
            await client.publish(topic, counter.packed(), timeout=EVERY_S)
        except MeshError as error:  # the next word says it all again
            log.warning("nobody was told: %s", error)
        await asyncio.sleep(EVERY_S)


async def main(url: str | None, name: str, number: int) -> None:
    counter = Counter(uuid.uuid4().hex)  # a new copy each time: it does not know what an earlier one had said
    counter.add(number)
    async with Client(url) as client:
        await replicate(client, f"counters.{name}", counter)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="A counter without a home.")
    parser.add_argument("name")
    parser.add_argument("number", type=int, nargs="?", default=0)
    parser.add_argument("--url", help="the broker; by default the local one")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.url, given.name, given.number))
    except MeshError as error:
        sys.exit(f"counter: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
