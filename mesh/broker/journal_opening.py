"""The journal of this broker's home: opened at the start if it exists, made when needed, closed at the end.

A broker whose journal cannot be used still starts. It refuses messages of level stored with the reason, and
logs that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from mesh.dataplane.home import Home
from mesh.environment import Environment
from mesh.errors import AnothersJournal, StorageError
from mesh.journal.port import CommitTimes, OpenedJournal
from mesh.journal.records import Kept
from mesh.logs import log
from mesh.printable import printable

JOURNAL: Final = "journal.db"
"""The file in the broker's folder of the state folder."""
LOG: Final = JOURNAL + "-wal"
DAMAGED: Final = JOURNAL + ".damaged-"
CLOSE_S: Final = 10.0
"""How long a stopping broker waits for the disk. The journal's thread is a daemon."""


class JournalOpening:
    """Opens and closes the journal. ``folder`` is the broker's own in the state folder; None: it has none."""

    def __init__(
        self,
        home: Home,
        environment: Environment,
        *,
        folder: str | None,
        name: str,
        broker: str,
        mesh: str,
        clock: Callable[[], float],
    ) -> None:
        self._home = home
        self._environment = environment
        self._folder = folder
        self._name = name
        self._broker = broker
        self._mesh = mesh
        self._clock = clock
        self._journal: OpenedJournal | None = None
        self._making: asyncio.Task[None] | None = None
        self.is_anothers = False
        """The journal in the folder belongs to another broker."""

    async def begin(self) -> None:
        """Open the journal if there is one. `Home.table` then has its content."""
        if self._folder is None:
            return
        try:
            names = await self._environment.storage.list(self._folder)
        except (OSError, StorageError) as error:
            self._refuse(f"its folder {self._folder} cannot be read: {error}")
            return
        if JOURNAL in names or LOG in names:
            await self._open(at_start=True)
            return
        self._home.may_be_opened()
        self._warn_of([f"{self._folder}/{name}" for name in names if name.startswith(DAMAGED)])

    def make(self) -> None:
        """Make the journal, since the first durable subscription must be written. Called in the loop."""
        self._making = asyncio.get_running_loop().create_task(self._open(at_start=False), name="journal")

    def times(self) -> CommitTimes | None:
        """The durations of commits. None if no journal was opened."""
        return None if self._journal is None else self._journal.times()

    async def aclose(self) -> None:
        """Write settled messages, and close the journal."""
        if self._making is not None:
            _, late = await asyncio.wait([self._making], timeout=CLOSE_S)
            if late:
                self._making.cancel()  # and its journal is closed as soon as it is open
                log.warning(
                    "broker %s does not wait for its journal to open: the disk did not answer in %g s",
                    self._name,
                    CLOSE_S,
                )
        if self._journal is None:
            return
        self._home.finish(self._clock())
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._journal.aclose()
        except TimeoutError:
            log.warning(
                "broker %s leaves its journal as it is: the disk did not answer in %g s", self._name, CLOSE_S
            )

    async def _open(self, *, at_start: bool) -> None:
        path = f"{self._folder}/{JOURNAL}"
        try:
            journal = await self._environment.open_journal(path, broker=self._broker, mesh=self._mesh)
            try:
                kept, damaged = await _first_look(journal)
            except BaseException:
                await journal.aclose()
                raise
        except StorageError as error:
            self.is_anothers = isinstance(error, AnothersJournal)
            self._refuse(str(error), again=not at_start)
            return
        except Exception as error:  # whatever it is, those who wait for the journal are told
            self._refuse(f"the journal {path} cannot be opened: {error!r}", again=not at_start)
            return
        self._journal = journal
        self._home.opened(journal, kept)
        self._warn_of(damaged)

    def _refuse(self, why: str, *, again: bool = False) -> None:
        why = printable(why)  # frames cannot carry the name of a folder that is not UTF-8
        log.warning("broker %s stores no messages: %s", self._name, why)
        self._home.not_opened(why, again=again)

    def _warn_of(self, damaged: Sequence[str]) -> None:
        if damaged:
            log.warning(
                "broker %s set aside a damaged journal earlier; what waited in it is in %s",
                self._name,
                ", ".join(damaged),
            )


async def _first_look(journal: OpenedJournal) -> tuple[list[Kept], Sequence[str]]:
    """The subscriptions of a journal, and the journals that were set aside. Raises `StorageError`."""
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def told(answer: Any) -> None:
        if not found.done():
            found.set_result(answer)

    journal.ask(lambda opened: (opened.subscriptions(), opened.damaged_before), told)
    answer = await found
    if isinstance(answer, Exception):
        raise StorageError(f"the journal cannot be read: {answer}") from answer
    kept, damaged = answer
    return kept, damaged
