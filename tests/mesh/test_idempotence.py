"""A message that arrives twice is worked on once, as far as possible."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.errors import StorageError
from mesh.idempotence import DoneMessages, Inbox, idempotent, message_id

ROOT = Path(__file__).resolve().parents[2]


def job(number: int) -> SimpleNamespace:
    return SimpleNamespace(id=f"00000000000000ab-1-{number}", body=b"x")


# --- the decorator


def test_a_message_is_done_once_also_after_a_restart(tmp_path: Path) -> None:
    done = []

    def made() -> Any:
        @idempotent(tmp_path / "done.db")
        def handle(message: Any) -> str:
            done.append(message.id)
            return "result"

        return handle

    handle = made()
    assert handle.__name__ == "handle"
    assert handle(job(1)) == "result"
    assert handle(job(1)) is None
    assert handle(job(2)) == "result"
    handle = made()
    assert handle(job(1)) is None
    assert handle(job(3)) == "result"
    assert done == [job(number).id for number in (1, 2, 3)]


def test_a_message_counts_as_not_done_when_its_handler_raises(tmp_path: Path) -> None:
    tries = []

    @idempotent(tmp_path / "done.db")
    def handle(message: Any) -> None:
        tries.append(message.id)
        if len(tries) == 1:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        handle(job(1))
    handle(job(1))
    handle(job(1))
    assert len(tries) == 2


def test_the_window_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    done = DoneMessages(tmp_path / "done.db", window=10)
    for number in range(100):
        done.note(str(number))
        done.note(str(number))
    assert [number for number in range(100) if done.has(str(number))] == list(range(90, 100))
    done.close()
    db = sqlite3.connect(tmp_path / "done.db")
    assert db.execute("select count(*) from done").fetchone() == (10,)
    db.close()
    with pytest.raises(ValueError, match="remembers nothing"):
        idempotent(tmp_path / "done.db", window=0)


async def test_an_async_handler_is_made_idempotent_too(tmp_path: Path) -> None:
    """Two tasks had the same message at once, and both did it."""
    gate, began, done = asyncio.Event(), asyncio.Event(), []

    @idempotent(tmp_path / "done.db")
    async def handle(message: Any) -> str:
        began.set()
        await gate.wait()
        done.append(message.id)
        return "result"

    tasks = [asyncio.create_task(handle(job(1))) for _ in range(5)]
    await began.wait()
    gate.set()
    assert sorted(map(str, await asyncio.gather(*tasks))) == ["None"] * 4 + ["result"]
    assert len(done) == 1


async def test_a_second_task_handles_the_message_when_the_first_one_failed(tmp_path: Path) -> None:
    gate, tries = asyncio.Event(), []

    @idempotent(tmp_path / "done.db")
    async def handle(message: Any) -> str:
        tries.append(message.id)
        await gate.wait()
        if len(tries) == 1:
            raise RuntimeError("no")
        return "result"

    tasks = [asyncio.create_task(handle(job(1))) for _ in range(3)]
    gate.set()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, RuntimeError)
    assert {second, third} == {"result", None}
    assert len(tries) == 2


def test_two_threads_with_the_same_message_do_it_once(tmp_path: Path) -> None:
    gate, began, done = threading.Event(), threading.Event(), []

    @idempotent(tmp_path / "done.db")
    def handle(message: Any) -> None:
        began.set()
        assert gate.wait(60)
        done.append(message.id)

    threads = [threading.Thread(target=handle, args=(job(1),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(60)
    gate.set()
    for thread in threads:
        thread.join(60)
    assert done == [job(1).id]


CHILD = """
import os, sys
from types import SimpleNamespace
from mesh.idempotence import idempotent
folder, dies = sys.argv[1:]
@idempotent(folder + "/done.db")
def handle(job):
    with open(folder + "/worked", "a") as file:
        file.write("x")
    if dies == "before the note":
        os._exit(7)
handle(SimpleNamespace(id="a-1-1"))
os._exit(7)
"""


@pytest.mark.process
@pytest.mark.parametrize(("dies", "times"), [("before the note", 2), ("after it", 1)])
def test_a_crash_between_the_work_and_its_note_has_it_done_again(
    tmp_path: Path, dies: str, times: int
) -> None:
    """As documented: only an inbox excludes it."""
    for way in (dies, "after it"):
        ran = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), way], cwd=ROOT, timeout=120)
        assert ran.returncode == 7
    assert (tmp_path / "worked").read_text() == "x" * times


FORKED = """
import os, sys
from mesh.idempotence import DoneMessages
done = DoneMessages(sys.argv[1])
done.note("parent")
child = os.fork()
if not child:
    assert done.has("parent")
    done.note("child")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert done.has("child") and done.has("parent")
"""


@pytest.mark.process
def test_forked_processes_share_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "done.db")
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, path], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    db = sqlite3.connect(path)
    db.execute("create table mine(x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="is another program's database; name another file"):
        DoneMessages(path).has("a")
    assert path.read_bytes() == before
    path.write_bytes(b"dear diary, " * 100)
    with pytest.raises(StorageError, match="cannot be used: file is not a database"):
        DoneMessages(path).has("a")
    with pytest.raises(StorageError, match="cannot be used: unable to open"):
        DoneMessages(tmp_path / "none" / "done.db").note("a")


def test_a_message_without_an_id_is_named_and_another_key_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a SimpleNamespace has no id: .*give key="):
        message_id(SimpleNamespace(body=b""))
    done = []

    @idempotent(tmp_path / "done.db", key=lambda message: message.headers["key"])
    def handle(message: Any) -> None:
        done.append(message)

    for _ in range(2):
        handle(SimpleNamespace(headers={"key": "order-7"}))
    assert len(done) == 1


# --- the inbox


def test_an_inbox_is_committed_with_the_work_or_not_at_all() -> None:
    db = sqlite3.connect(":memory:")
    inbox = Inbox(sqlite3.paramstyle)
    inbox.create(db.cursor())
    inbox.create(db.cursor())
    db.execute("create table payment(id text)")

    def pay(message: Any, fails: bool = False) -> bool:
        with db:
            cursor = db.cursor()
            if not inbox.is_new(cursor, message):
                return False
            cursor.execute("insert into payment values(?)", (message.id,))
            if fails:
                raise RuntimeError("no")
        return True

    with pytest.raises(RuntimeError):
        pay(job(1), fails=True)
    assert [pay(job(1)), pay(job(1)), pay(job(2))] == [True, False, True]
    assert db.execute("select count(*) from payment").fetchone() == (2,)
    db.close()


def test_one_of_two_transactions_with_the_same_message_fails(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    one, two = (sqlite3.connect(path, timeout=0) for _ in range(2))
    inbox = Inbox()
    inbox.create(one.cursor())
    one.commit()
    assert inbox.is_new(one.cursor(), job(1))
    with pytest.raises(sqlite3.OperationalError):
        inbox.is_new(two.cursor(), job(1))
    two.rollback()
    one.commit()
    assert not inbox.is_new(two.cursor(), job(1))
    one.close()
    two.close()


class Cursor:
    """The queries that a driver of another paramstyle gets."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def execute(self, statement: str, arguments: Any = ()) -> None:
        self.asked.append((statement, arguments))

    def fetchone(self) -> None:
        return None


@pytest.mark.parametrize(
    ("paramstyle", "marks", "arguments"),
    [
        ("qmark", "values(?, ?)", ("a", 7)),
        ("numeric", "values(:1, :2)", ("a", 7)),
        ("named", "values(:id, :came_s)", {"id": "a", "came_s": 7}),
        ("format", "values(%s, %s)", ("a", 7)),
        ("pyformat", "values(%(id)s, %(came_s)s)", {"id": "a", "came_s": 7}),
    ],
)
def test_each_paramstyle_of_db_api_is_supported(paramstyle: str, marks: str, arguments: Any) -> None:
    cursor = Cursor()
    assert Inbox(paramstyle, table="app.seen", wall_time=lambda: 7.9).is_new(cursor, SimpleNamespace(id="a"))
    assert cursor.asked[1] == (f"insert into app.seen(id, came_s) {marks}", arguments)


def test_a_handler_that_is_not_needed_any_more_closes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 warned about it."""
    closed: list[str] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, factory=Watched))

    @idempotent(tmp_path / "done.db")
    def handler(message: Any) -> None:
        pass

    handler(job(1))
    assert closed == []
    del handler
    gc.collect()
    assert closed == ["closed"]


@pytest.mark.parametrize("paramstyle", ["qmark", "named"])
def test_sqlite_takes_its_paramstyles(paramstyle: str) -> None:
    """Since Python 3.12 it takes ``:1`` for a name, and warns about arguments without one."""
    db = sqlite3.connect(":memory:")
    inbox = Inbox(paramstyle)
    inbox.create(db.cursor())
    assert inbox.is_new(db.cursor(), job(1))
    assert not inbox.is_new(db.cursor(), job(1))
    db.close()


def test_old_ids_are_forgotten() -> None:
    now = [1000.0]
    db = sqlite3.connect(":memory:")
    inbox = Inbox(wall_time=lambda: now[0])
    inbox.create(db.cursor())
    inbox.is_new(db.cursor(), job(1))
    now[0] = 2000.0
    inbox.is_new(db.cursor(), job(2))
    inbox.forget(db.cursor(), 500)
    assert inbox.is_new(db.cursor(), job(1))
    assert not inbox.is_new(db.cursor(), job(2))
    db.close()


def test_invalid_table_names_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a table name"):
        Inbox(table="inbox; drop table x")
    with pytest.raises(ValueError, match=r"paramstyle 'dollar' is not one of DB-API's: qmark, numeric"):
        Inbox("dollar")


def test_the_module_loads_only_the_standard_library() -> None:
    heavy = ("apsw", "msgspec", "protocols", "mesh.clients")
    code = f"import sys, mesh.idempotence; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "[]", ran.stderr
