"""A broker's data plane with a home, whose journal is a real one that works when the test tells it to.

`World.pump` carries everything in flight until nothing is left. Time is a number that the test advances.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mesh.dataplane.exchange import Exchange
from mesh.dataplane.home import Home
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.queue_status import QueueStatus
from mesh.errors import JournalFailed, StorageError, StoreFull
from mesh.journal.gathering import Submission, carry_out, next_commit
from mesh.journal.journal import Journal
from mesh.journal.port import Result
from mesh.journal.records import Answer, Damaged, Entry, Store, Waiting
from mesh.wire import blocks
from mesh.wire.capabilities import SESSION
from mesh.wire.durable_frames import BACK_OFF, WORK_SIZE, Durable, Kept, read_work
from mesh.wire.session_frames import Kind, decode, encode, kind_of
from mesh.wire.session_opening import hello
from tests.mesh.dataplane.neighbourhood import FakePipe
from tests.mesh.journal.journals import opened

NOW_US: Final = 1_700_000_000_000_000
LONG_S: Final = 1e9


class SteppedJournal:
    """`JournalPort` over a `Journal`. ``full``: there is no room for blocks. ``brim``: there is no room for
    anything. ``failing``: the next commit fails, and ``kept`` says whether its data is found later."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.full = self.brim = self.failing = self.kept = self.unreadable = False
        self.jobs: deque[Submission | tuple[Callable[[Any], Any], Callable[[Any], None]]] = deque()
        self.commits = 0
        self.closed = False
        self.damaged: set[int] = set()
        fetch = journal.fetch
        journal.fetch = lambda row: (  # type: ignore[method-assign]
            Damaged(row, "its bytes are others") if row in self.damaged else fetch(row)
        )

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None], /) -> None:
        self._check()
        self.jobs.append(Submission(entries, told))

    def read(
        self,
        subscription: int,
        after_row: int,
        bytes_max: int,
        rows_max: int,
        told: Callable[[list[Waiting | Damaged] | Exception], None],
        /,
    ) -> None:
        self.ask(lambda journal: journal.read(subscription, after_row, bytes_max, rows_max), told)

    def ask(self, question: Callable[[Any], Any], told: Callable[[Any], None], /) -> None:
        self._check()
        self.jobs.append((question, told))

    def _check(self) -> None:
        if self.closed:
            raise StorageError("this journal is closed")

    # --- what a thread would do

    def step(self, count: int = 1 << 30) -> bool:
        """Do the collected jobs, or the first few: in as few commits as possible, then the questions."""
        jobs = [self.jobs.popleft() for _ in range(min(count, len(self.jobs)))]
        submissions = deque(job for job in jobs if isinstance(job, Submission))
        while submissions:
            part = next_commit(submissions)
            for submission, result in zip(part, carry_out(self, part, NOW_US), strict=True):  # type: ignore[arg-type]
                submission.told(result)
        for job in jobs:
            if not isinstance(job, Submission):
                question, told = job
                told(self._answer(question))
        return bool(jobs)

    def _answer(self, question: Callable[[Any], Any]) -> Any:
        if self.unreadable:
            return OSError("the disk is gone")
        try:
            return question(self.journal)
        except Exception as error:
            return error

    def commit(self, entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        self.commits += 1
        if self.brim or (self.full and any(isinstance(entry, Store) for entry in entries)):
            raise StoreFull("the disk is full")
        if self.failing:
            if self.kept:
                self.journal.commit(entries, now_us)
            self.journal._failure = "the disk failed"
            raise JournalFailed("the disk failed")
        return self.journal.commit(entries, now_us)


class Work(NamedTuple):
    """A WORK frame, opened."""

    number: int
    row: int
    first: int
    attempt: int
    flags: int
    block: blocks.Opened

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(body) for body in self.block.bodies]


class RawClient:
    """A session that speaks frames."""

    def __init__(self, world: World, name: str, *, pipe: FakePipe | None = None) -> None:
        self.world = world
        self.pipe = pipe or FakePipe()
        self.prefix = (0x80000000 | next(world.numbers)).to_bytes(4, "big")
        self.frames: list[list[Any]] = []
        self.work: list[Work] = []
        self.reading = True
        self.open = True
        world.clients.append(self)
        self._give(hello(SESSION, self.prefix * 8, 7, name, 0.0))

    def say(self, kind: int, *fields: object) -> None:
        """Send a frame, and let everything happen that follows."""
        self.tell(kind, *fields)
        self.world.pump()

    def tell(self, kind: int, *fields: object) -> None:
        """Send a frame. Work for the journal or for another turn still waits."""
        self._give(encode(kind, *fields))

    def attach(
        self, name: str = "mail", *patterns: str, number: int = 1, window: int = 16, size: int = 1 << 20
    ) -> None:
        self.say(Durable.ATTACH, number, name, list(patterns), window, size)

    def done(self, *works: Work) -> None:
        """Settle all of these."""
        settled = [
            [work.row, work.first, ((1 << len(work.block.bodies)) - 1).to_bytes(512, "little")]
            for work in works
        ]
        self.say(Durable.DONE, works[0].number if works else 1, settled)

    def retry(self, work: Work, index: int = 0, after_ms: int = BACK_OFF) -> None:
        self.say(Durable.RETRY, work.number, work.row, work.first + index, after_ms)

    def drop(self, work: Work, index: int = 0, reason: str = "of no use") -> None:
        self.say(Durable.DROP, work.number, work.row, work.first + index, reason)

    def take(self) -> list[Work]:
        """The work that came since the last call."""
        self.world.pump()
        work, self.work = self.work, []
        return work

    def heard(self, kind: int) -> list[list[Any]]:
        """The fields of the frames of a kind."""
        self.world.pump()
        return [fields for found, *fields in self.frames if found == kind]

    def leave(self) -> None:
        self._give(encode(Kind.BYE, "leaves"))
        self.die()

    def die(self) -> None:
        self.open = False
        self.world.clients.remove(self)
        self.world.exchange.client_gone(self.pipe, self.world.now)
        self.world.pump()

    def _give(self, frame: bytes) -> None:
        strays = self.world.exchange.client_frames(self.pipe, [self.prefix + frame], self.world.now)
        assert not strays

    def read(self) -> bool:
        """Take the data of the connection."""
        found = self.pipe.take() if self.reading else []
        for frame in found:
            assert frame.startswith(self.prefix)
            if kind_of(frame, 4) == Durable.WORK:
                head = read_work(frame, 4)
                self.work.append(Work(*head, blocks.open_block(frame[4 + WORK_SIZE :])))
            elif kind_of(frame, 4) != Kind.DATA:
                self.frames.append(decode(frame, 4))
        if found:
            self.world.exchange.pipe_writable(self.pipe, self.world.now)
        return bool(found)


class World:
    """One broker with a home. ``state``: it has a folder for its journal."""

    def __init__(
        self, folder: Path, *, state: bool = True, options: ExchangeOptions | None = None, now: float = 0.0
    ) -> None:
        self.folder = folder
        self.options = options or ExchangeOptions()
        self.now = now
        self.numbers = itertools.count(1)
        self.clients: list[RawClient] = []
        self.version = 0
        self.table: dict[str, tuple[str, ...]] = {}
        self.hold_barrier = False
        self.has_work = False
        self.wake = LONG_S
        self.opening: Exception | None = None
        """The error of the next attempt to make the journal."""
        self.failures: list[str] = []
        self.sequence = 1
        self.exchange = Exchange(id=1, boot=1, name="alpha", mesh="m", hooks=self, options=self.options)
        self.home = self.exchange.home = Home("alpha", self, self.options)
        self.disk: SteppedJournal | None = None
        if state and (folder / "journal.db").exists():
            self._open()
        elif state:
            self.home.may_be_opened()

    @property
    def journal(self) -> SteppedJournal:
        assert self.disk is not None
        return self.disk

    def _open(self) -> None:
        self.disk = SteppedJournal(opened(self.folder))
        self.home.opened(self.disk, self.disk.journal.subscriptions())

    # --- hooks

    def local_interest_changed(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        return 0

    def stood_still(self) -> bool:
        return False

    def work_pending(self) -> None:
        self.has_work = True

    def open_journal(self) -> None:
        if self.opening is not None:
            self.home.not_opened(str(self.opening), again=True)
        else:
            self._open()

    def durable_changed(self, added: dict[str, tuple[str, ...]], removed: list[str]) -> int:
        for name in removed:
            del self.table[name]
        self.table.update(added)
        self.version += bool(added or removed)
        if not self.hold_barrier:
            self.home.barrier_reached(self.version)
        return self.version

    def storing_failed(self, why: str) -> None:
        self.failures.append(why)

    def wake_at(self, at: float) -> None:
        self.wake = min(self.wake, at)

    # --- what happens

    def client(self, name: str = "worker", **given: Any) -> RawClient:
        client = RawClient(self, name, **given)
        self.pump()
        return client

    def keep(
        self,
        *bodies: bytes,
        topic: bytes = b"jobs.a",
        publisher: int = 5,
        first: int = 0,
        lowest: int = 0,
        again: bool = False,
        pump: bool = True,
    ) -> list[tuple[Kept, str]]:
        """Give the home one block. Its answers are appended to the returned list over time."""
        first = first or self.sequence
        self.sequence = max(self.sequence, first + len(bodies))
        block = blocks.seal(topic, bodies, publisher=publisher, boot=3, sequence=first, level=blocks.STORED)
        return self.keep_block(block, first, len(bodies), publisher, lowest, again=again, pump=pump)

    def keep_block(
        self,
        block: bytes,
        first: int,
        count: int,
        publisher: int = 5,
        lowest: int = 0,
        offset: int = 0,
        *,
        again: bool = False,
        pump: bool = True,
    ) -> list[tuple[Kept, str]]:
        said: list[tuple[Kept, str]] = []

        def told(kept: Kept, sentence: str) -> None:
            said.append((kept, sentence))

        self.home.keep(block, publisher, 3, first, first + count - 1, lowest, offset, told, again)
        self.work_pending()
        if pump:
            self.pump()
        return said

    def turn(self) -> bool:
        """One loop turn, in which the journal does nothing."""
        if not self.has_work and self.now < self.wake:
            return False
        self.has_work = False
        if self.now >= self.wake:
            self.wake = LONG_S
        self.exchange.work(self.now)
        return True

    def pump(self) -> None:
        """Let everything happen that can happen now."""
        self.exchange.tick(self.now)
        moved = True
        while moved:
            moved = self.turn()
            if self.disk is not None:
                moved |= self.disk.step()
            for client in list(self.clients):
                moved |= client.read()

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps that every timer may see."""
        self.pump()
        until = self.now + seconds
        while self.now < until:
            self.now = max(self.now, min(until, self.wake, self.now + 0.5))
            self.pump()

    def queue(self, name: str = "mail") -> QueueStatus:
        return {queue.name: queue for queue in self.home.queues()}[name]

    def rows(self, name: str = "mail") -> list[Waiting]:
        """The journal's rows of a subscription."""
        found = {kept.name: kept.id for kept in self.journal.journal.subscriptions()}
        rows = self.journal.journal.read(found[name], 0, 1 << 40, 1 << 20) if name in found else []
        return [row for row in rows if isinstance(row, Waiting)]

    def restart(self) -> World:
        """Kill this broker and start the next one on the same disk."""
        if self.disk is not None:
            self.disk.closed = True
            self.disk.journal.close()
        return World(self.folder, options=self.options, now=self.now)
