"""The journal as its home uses it: its state, and its answers, which are passed on in the next turn. Pure.

States::

    none      no state folder: nothing is stored here            refusing: why
    closed    there is no file yet; it is made when needed
    opening   it is being made
    open      it takes entries
    refused   it cannot be used until a restart                  refusing: why

The journal answers between the turns of the data plane. Its answers are queued, and `take_news` passes them
to their callbacks, with the time, in the next turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from mesh.errors import JournalFailed, StorageError
from mesh.journal.port import JournalPort
from mesh.journal.records import Entry

Then = Callable[[Any, float], None]
"""Takes the result, or an exception, and the time."""

NO_STATE: Final = "it has no state folder to store messages in; start it with a state_dir"


class JournalHooks(Protocol):
    """The journal of a home calls these methods of the broker."""

    def work_pending(self) -> None:
        """Call `Exchange.work` in another turn."""

    def open_journal(self) -> None:
        """Make the journal, and call `Home.opened` or `Home.not_opened` in a later turn."""


class HomeJournal:
    """The journal of a home. ``on_failure`` is called once, when an open journal fails."""

    def __init__(self, hooks: JournalHooks, on_failure: Callable[[float], None]) -> None:
        self.refusing = NO_STATE
        """Why nothing can be stored here. Empty if it can."""
        self.failure = ""
        """The same, but empty if only the state folder is missing."""
        self.news: deque[tuple[Then, Any]] = deque()
        self._hooks = hooks
        self._on_failure = on_failure
        self._port: JournalPort | None = None
        self._openable = False
        self._wait_for_it: list[Then] = []

    # --- opening

    @property
    def is_open(self) -> bool:
        return self._port is not None and not self.failure

    def may_be_opened(self) -> None:
        """There is a state folder, but no journal in it yet."""
        self.refusing = ""
        self._openable = True

    def opened(self, port: JournalPort) -> None:
        self.refusing = ""
        self._port = port
        self._tell_opened(None)

    def not_opened(self, why: str, *, again: bool) -> None:
        """The journal cannot be opened, with the reason. ``again``: the next call that needs it may try."""
        if not again:
            self.refusing = self.failure = why
        self._openable = again
        self._tell_opened(StorageError(why))

    def when_open(self, then: Then) -> None:
        """Open the journal if it is not open. ``then`` gets None, or why it cannot be used."""
        if self.refusing:
            self.put_down(then, StorageError(self.refusing))
        elif self._port is not None:
            self.put_down(then, None)
        else:
            self._wait_for_it.append(then)
            if self._openable:
                self._openable = False
                self._hooks.open_journal()

    def _tell_opened(self, found: StorageError | None) -> None:
        waiting, self._wait_for_it = self._wait_for_it, []
        for then in waiting:
            self.put_down(then, found)

    # --- use

    def submit(self, entries: Sequence[Entry], then: Then) -> None:
        """Execute entries in one commit. ``then`` gets a `mesh.journal.port.Result`."""
        self._use(lambda port: port.submit(entries, self._telling(then)), then)

    def read(self, subscription: int, after_row: int, bytes_max: int, rows_max: int, then: Then) -> None:
        """``then`` gets the result of `Journal.read`, or an exception, which ends the journal."""
        found = self._failing_with(then)
        told = self._telling(found)
        self._use(lambda port: port.read(subscription, after_row, bytes_max, rows_max, told), found)

    def ask(self, question: Callable[[Any], Any], then: Then) -> None:
        """``then`` gets the result of ``question``, or an exception, which ends the journal."""
        found = self._failing_with(then)
        told = self._telling(found)
        self._use(lambda port: port.ask(question, told), found)

    def fail(self, why: str, now: float) -> None:
        """Nothing can be stored from now on, until a restart."""
        if not self.failure:
            self.refusing = self.failure = why
            self._on_failure(now)

    def take_news(self, now: float) -> None:
        """Pass the answers that arrived to their callbacks."""
        news = self.news
        for _ in range(len(news)):
            then, found = news.popleft()
            if isinstance(found, JournalFailed):
                self.fail(str(found), now)
            then(found, now)

    def _use(self, call: Callable[[JournalPort], None], then: Then) -> None:
        try:
            if self._port is None or self.failure:
                raise StorageError(self.refusing or "the journal is not open")
            call(self._port)
        except StorageError as error:
            self.put_down(then, error)

    def _telling(self, then: Then) -> Callable[[Any], None]:
        def told(found: Any) -> None:
            self.put_down(then, found)

        return told

    def put_down(self, then: Then, found: Any) -> None:
        """Call ``then`` in the next turn."""
        if not self.news:
            self._hooks.work_pending()
        self.news.append((then, found))

    def _failing_with(self, then: Then) -> Then:
        def found(what: Any, now: float) -> None:
            if isinstance(what, Exception):
                self.fail(f"the journal cannot be read: {what}", now)
            then(what, now)

        return found
