"""One message at a time: the time until ``stored``, beside ``accepted`` and a bare commit.

The three take turns in one process, so that they meet the same disk. The commits go to a journal next to the
home's, with nothing around it. A worker settles the stored messages at the same time.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from mesh.bench.durable import jetstream
from mesh.bench.durable.home import TOPIC, processes, run_home, work_off
from mesh.bench.durable.jetstream import JETSTREAM
from mesh.bench.durable.rates import STORED
from mesh.bench.harness import Case, Figures, Target
from mesh.bench.measuring import BODY, Report, run_async
from mesh.clients.client import Client
from mesh.journal.journal import Journal
from mesh.journal.records import Store, Subscribe

ALONE: Final = "one at a time"
P50: Final = "p50 us"
BEYOND: Final = "beyond accepted and 2 commits, us"
TURN: Final = 20
"""Messages of one kind before the next kind has its turn."""

TARGETS: Final = (Target(ALONE, BEYOND, STORED, None, 1500.0, False),)


class BareJournal:
    """A journal, and blocks to commit to it, one in each commit."""

    def __init__(self, folder: str) -> None:
        path = str(Path(folder, "bare"))
        self._journal = Journal.open(path, broker="bench", mesh="bench", now_us=0)
        answer = self._journal.commit([Subscribe("bench", (TOPIC,))], 0)[0]
        self._wants = (answer.subscription,)
        self._next = 1
        self._block = b"\0" * 8 + BODY

    async def commit(self) -> None:
        """Keep one block; on disk when this returns. It blocks the loop, where nothing else happens."""
        number, self._next = self._next, self._next + 1
        self._journal.commit([Store(1, 1, number, number, number, self._block, self._wants)], number)
        if self._journal.checkpoint_due:
            self._journal.checkpoint()

    def close(self) -> None:
        self._journal.close()


def publish_in_turns(url: str, folder: str, count: int, report: Report, gate: Any) -> None:
    """Report the median seconds of ``count`` publishes of each level, and of as many commits."""

    async def main() -> None:
        bare = BareJournal(folder)
        async with Client(url) as client:
            kinds: dict[str, Callable[[], Awaitable[object]]] = {
                "stored": partial(client.publish, TOPIC, BODY, level="stored"),
                "accepted": partial(client.publish, TOPIC, BODY, level="accepted"),
                "commit": bare.commit,
            }
            samples: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(count // TURN):
                for kind, act in kinds.items():
                    for _ in range(TURN):
                        start = time.perf_counter()
                        await act()
                        samples[kind].append(time.perf_counter() - start)
                        await asyncio.sleep(0.0005)
            bare.close()
            report({kind: statistics.median(taken) for kind, taken in samples.items()})

    run_async(main())


def ours(count: int) -> Figures:
    with processes() as (group, folder):
        url = group.start(run_home, str(folder / "home")).hear()
        group.start(work_off, url, count).hear()
        folder.joinpath("bare").mkdir()
        p50 = group.start(publish_in_turns, url, str(folder / "bare"), count).hear()
        beyond = p50["stored"] - p50["accepted"] - 2 * p50["commit"]
        return {
            P50: p50["stored"] * 1e6,
            "accepted p50 us": p50["accepted"] * 1e6,
            "commit p50 us": p50["commit"] * 1e6,
            BEYOND: beyond * 1e6,
        }


def of_jetstream(count: int) -> Figures:
    return {P50: statistics.median(jetstream.singly(count)) * 1e6}


def cases(scale: float, with_jetstream: bool) -> list[Case]:
    count = max(2 * TURN, int(600 * scale) // TURN * TURN)
    result = [Case(ALONE, STORED, partial(ours, count))]
    if with_jetstream:
        result.append(Case(ALONE, JETSTREAM, partial(of_jetstream, count)))
    return result
