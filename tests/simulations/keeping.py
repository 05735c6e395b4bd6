"""Programs that keep blocks in journals like homes, and the promises they were given."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mesh.environment import Environment
from mesh.errors import JournalError
from mesh.journal.port import Result
from mesh.journal.records import Answer, Damaged, Done, Entry, Store, Subscribe, Verdict
from mesh.wire import blocks
from simulations.kernel.storage import STATE_FOLDER
from simulations.programs.environment import environment_of
from simulations.world import Main, Process
from tests.mesh.journal.journals import sealed

MESH = "m"
UNDER_WAY = 6
"""Submissions that wait for their answers at once."""


@dataclass
class Promises:
    """The blocks given to one home in all its lives, and its answers."""

    offered: list[int] = field(default_factory=list)
    stored: dict[int, None] = field(default_factory=dict)
    """Numbers that were acknowledged."""
    settling: dict[int, None] = field(default_factory=dict)
    """Numbers that it was asked to settle, with or without an answer."""
    settled: dict[int, None] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lives: int = 0
    """How many lives have found the data of the one before."""

    def check(self, found: list[int]) -> None:
        """The data that a new life finds: all acknowledged and unsettled blocks, and nothing else."""
        self.lives += 1
        there = Counter(found)
        lost = [number for number in self.stored if number not in there and number not in self.settling]
        back = [number for number in self.settled if number in there]
        twice = [number for number, times in there.items() if times > 1]
        strange = [number for number in there if number not in self.offered]
        for what, numbers in (("lost", lost), ("back", back), ("twice", twice), ("strange", strange)):
            if numbers:
                self.wrong.append(f"life {self.lives}: {what} {numbers}")

    def pending(self) -> list[int]:
        """The blocks that a publisher would send again."""
        return [number for number in self.offered if number not in self.stored]


class Home:
    """One life: it finds the existing blocks, reports them, and goes on with the unanswered ones."""

    def __init__(self, environment: Environment, promises: Promises, rng: random.Random) -> None:
        self._environment = environment
        self._promises = promises
        self._rng = rng
        self._rows: dict[int, int] = {}
        """Rows of waiting blocks, by number."""
        self._free = asyncio.Semaphore(UNDER_WAY)
        self._failed = False

    async def live(self, process: Process) -> None:
        try:
            await self._work(process)
        except JournalError as error:
            self._fail(f"lost: {error}")
            process.exposed = self._promises
        await process.stopping.wait()

    def _fail(self, how: str) -> None:
        self._promises.wrong.append(how)
        self._failed = True

    async def _work(self, process: Process) -> None:
        folder = f"{STATE_FOLDER}/{process.name}"
        await self._environment.storage.make_folder(folder)
        self._journal = await self._environment.open_journal(
            f"{folder}/journal.db", broker=process.name, mesh=MESH
        )
        (answer,) = await self._answers(Subscribe("mail", ("jobs.#",)))
        self._mail = answer.subscription
        after = 0
        while rows := await self._asked(
            lambda journal, after=after: journal.read(self._mail, after, 1 << 20)
        ):
            for row in rows:
                if isinstance(row, Damaged):
                    self._promises.wrong.append(f"lost: {row}")
                else:
                    self._rows[blocks.open_block(row.block).sequence] = row.row
            after = rows[-1].row
        self._promises.check(list(self._rows))
        process.exposed = self._promises
        for number in self._promises.pending():
            await self._store(number)
        while not self._failed:
            if self._rows and self._rng.random() < 0.4:
                await self._settle(self._rng.choice(list(self._rows)))
            else:
                self._promises.offered.append(len(self._promises.offered) + 1)
                await self._store(self._promises.offered[-1])

    async def _store(self, number: int) -> None:
        await self._free.acquire()
        promises = self._promises
        lowest = min(promises.pending(), default=number)
        body = bytes(random.Random(number).choice((10, 2000, 40_000)))
        entry = Store(1, 1, number, number, lowest, sealed(number, body=body), (self._mail,))

        def told(result: Result) -> None:
            self._free.release()
            match result:
                case [Answer(Verdict.STORED, row)]:
                    promises.stored[number] = None
                    self._rows[number] = row
                case [Answer(Verdict.DUPLICATE)]:
                    promises.stored[number] = None
                case _:
                    self._fail(f"storing {number}: {result}")

        self._journal.submit([entry], told)

    async def _settle(self, number: int) -> None:
        await self._free.acquire()
        self._promises.settling[number] = None

        def told(result: Result) -> None:
            self._free.release()
            match result:
                case [Answer(Verdict.DONE)]:
                    self._promises.settled[number] = None
                case _:
                    self._fail(f"settling {number}: {result}")

        self._journal.submit([Done(self._mail, self._rows.pop(number))], told)

    async def _answers(self, *entries: Entry) -> Sequence[Answer]:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._journal.submit(entries, told.set_result)
        return _value(await told)

    async def _asked(self, question: Any) -> Any:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._journal.ask(question, told.set_result)
        return _value(await told)


def _value(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def home(promises: Promises) -> Main:
    async def main(process: Process) -> None:
        await Home(environment_of(process), promises, process.stream("home")).live(process)

    return main
