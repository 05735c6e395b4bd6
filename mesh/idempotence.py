"""Does work once even if its message comes twice.

A durable subscription delivers a message again if its completion was not reported: a consumer died, or its
``done()`` was lost. Every delivery has the same ``id``. There are two ways to recognise a message that was
done before:

* `idempotent` notes the ids of messages in a file after their handler returned. The work and the note are two
  steps: a crash between them repeats the work. So it reduces repetitions, but does not exclude them.
* `Inbox` notes the id in the transaction that does the work itself. Both are committed, or neither is: then
  the work is done once, as far as it is in that database.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from mesh.errors import StorageError

Message = TypeVar("Message")
Result = TypeVar("Result")

WINDOW: Final = 100_000
"""Number of remembered ids: some 8 MB of disk."""
APPLICATION_ID: Final = 0x4D4E4744
BUSY_S: Final = 5.0
"""How long another process may write to the file before an error is raised."""


def message_id(message: object) -> str:
    """The id of a message of a durable subscription."""
    found = getattr(message, "id", None)
    if not isinstance(found, str) or not found:
        raise TypeError(
            f"a {type(message).__name__} has no id: messages of durable subscriptions have one; for others,"
            " give key=, a function of the message"
        )
    return found


def idempotent(
    path: str | os.PathLike[str], *, window: int = WINDOW, key: Callable[[Any], str] = message_id
) -> Callable[[Callable[[Message], Result]], Callable[[Message], Result | None]]:
    """Make a message handler, plain or ``async``, skip messages that it has done before.

    ``path``: the file for ids, one for each handler. ``window``: how many it remembers; older ones are
    unknown. ``key``: returns the id of a message, by default its own.

    Calls return the handler's result, or None for a skipped message. An exception passes through, and the
    message is not done. If the same message arrives while this process is working on it, the call waits for
    the outcome. Raises `StorageError` if the file cannot be used.

    The work is repeated after a crash between it and the note of its id. The same holds for ids noted shortly
    before a power loss, and for a second process that gets the same message meanwhile.
    """
    if window < 1:
        raise ValueError(f"a window of {window} ids remembers nothing; it is 1 or more")
    done = DoneMessages(path, window)

    def decorate(handler: Callable[[Message], Result]) -> Callable[[Message], Result | None]:
        if inspect.iscoroutinefunction(handler):
            return cast(Callable[[Message], Result | None], _asynchronous(handler, done, key))
        return _blocking(handler, done, key)

    return decorate


def _blocking(
    handler: Callable[[Message], Result], done: DoneMessages, key: Callable[[Any], str]
) -> Callable[[Message], Result | None]:
    under_way: set[str] = set()
    changed = threading.Condition()

    @functools.wraps(handler)
    def once(message: Message) -> Result | None:
        id = key(message)
        with changed:
            changed.wait_for(lambda: id not in under_way)
            if done.has(id):
                return None
            under_way.add(id)
        try:
            result = handler(message)
            done.note(id)
        finally:
            with changed:
                under_way.discard(id)
                changed.notify_all()
        return result

    return once


def _asynchronous(
    handler: Callable[[Message], Awaitable[Result]], done: DoneMessages, key: Callable[[Any], str]
) -> Callable[[Message], Awaitable[Result | None]]:
    under_way: dict[str, asyncio.Event] = {}

    @functools.wraps(handler)
    async def once(message: Message) -> Result | None:
        id = key(message)
        while id in under_way:
            await under_way[id].wait()
        if done.has(id):
            return None
        ended = under_way[id] = asyncio.Event()
        try:
            result = await handler(message)
            done.note(id)
        finally:
            del under_way[id]
            ended.set()
        return result

    return once


class DoneMessages:
    """The ids of the last messages done, in a file that is opened on first use. Works from any thread, in
    several processes, and after ``fork``."""

    def __init__(self, path: str | os.PathLike[str], window: int = WINDOW) -> None:
        self.path = os.fspath(path)
        self.window = window
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._parents: list[sqlite3.Connection] = []
        """Connections of the processes that this one was forked from: closing them would unlock their
        files."""

    def has(self, id: str) -> bool:
        """True if a message was done."""
        with self._lock:
            return self._do("select 1 from done where id = ?", (id,)) is not None

    def note(self, id: str) -> None:
        """Note a message as done. The oldest beyond the window is forgotten."""
        with self._lock:
            self._do("insert or ignore into done(id) values(?)", (id,))

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    def __del__(self) -> None:
        """Close the file of a handler that is no longer used. Otherwise Python 3.13 warns."""
        with contextlib.suppress(AttributeError):  # it was never made
            self.close()

    def _do(self, statement: str, arguments: tuple[Any, ...]) -> Any:
        try:
            rows = self._opened().execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            raise StorageError(f"the ids of done messages in {self.path} cannot be used: {error}") from error
        return rows[0] if rows else None

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None and self._pid != os.getpid():
            self._parents.append(self._db)
            self._db = None
        if self._db is None:
            self._db = self._open()
            self._pid = os.getpid()
        return self._db

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            (application,) = db.execute("pragma application_id").fetchone()
            if application != APPLICATION_ID:
                (tables,) = db.execute("select count(*) from sqlite_master").fetchone()
                if application or tables:
                    raise StorageError(f"{self.path} is another program's database; name another file")
                db.execute(f"pragma application_id = {APPLICATION_ID}")
            # A note lost by a power loss repeats its message, like a crash before the note.
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.execute("create table if not exists done(number integer primary key, id text unique)")
            db.execute(  # one commit for each note, even if it replaces another
                "create temp trigger forgets after insert on main.done begin"
                f" delete from done where number <= new.number - {self.window:d}; end"
            )
        except BaseException:
            db.close()
            raise
        return db


# --- in the caller's own transaction


_MARKS: Final = {
    "qmark": "?",
    "numeric": ":{number}",
    "named": ":{name}",
    "format": "%s",
    "pyformat": "%({name})s",
}


class Inbox:
    """A table of message ids in the caller's own database, written in the caller's own transactions.

    ``paramstyle``: that of its DB-API module, such as ``sqlite3.paramstyle``. ``wall_time`` returns seconds
    since the epoch. Only the caller begins, commits and rolls back.
    """

    def __init__(
        self, paramstyle: str = "qmark", *, table: str = "inbox", wall_time: Callable[[], float] = time.time
    ) -> None:
        if paramstyle not in _MARKS:
            raise ValueError(f"paramstyle {paramstyle!r} is not one of DB-API's: {', '.join(_MARKS)}")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", table):
            raise ValueError(
                f"{table!r} is not a table name; use letters, digits and _, perhaps with a schema"
            )
        self.table = table
        self._paramstyle = paramstyle
        self._wall_time = wall_time

    def create(self, cursor: Any) -> None:
        """Make the table if it is not there."""
        cursor.execute(
            f"create table if not exists {self.table}"
            " (id varchar(255) not null primary key, came_s bigint not null)"
        )

    def is_new(self, cursor: Any, message: object, *, key: Callable[[Any], str] = message_id) -> bool:
        """Note a message in the transaction of this cursor. False if it was noted before: then skip it.

        If another transaction notes the same message at the same time, the database fails one of the two.
        Roll back and try the message again.
        """
        id = key(message)
        self._execute(cursor, f"select 1 from {self.table} where id = {{}}", id=id)
        if cursor.fetchone() is not None:
            return False
        self._execute(
            cursor,
            f"insert into {self.table}(id, came_s) values({{}}, {{}})",
            id=id,
            came_s=int(self._wall_time()),
        )
        return True

    def forget(self, cursor: Any, older_than_s: float) -> None:
        """Forget ids noted so many seconds ago. That must be longer than a message waits for its next
        delivery."""
        self._execute(
            cursor,
            f"delete from {self.table} where came_s < {{}}",
            came_s=int(self._wall_time() - older_than_s),
        )

    def _execute(self, cursor: Any, statement: str, **values: object) -> None:
        mark = _MARKS[self._paramstyle]
        marks = [mark.format(number=number, name=name) for number, name in enumerate(values, 1)]
        by_name = self._paramstyle in ("named", "pyformat")
        cursor.execute(statement.format(*marks), values if by_name else tuple(values.values()))
