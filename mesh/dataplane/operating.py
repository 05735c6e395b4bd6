"""Questions of operators about durable subscriptions (``$sys.queues``), and their answers. Pure.

A question is a JSON object: ``do`` and its arguments. An answer is a JSON object too; its ``error`` is a
sentence that says why nothing was done. Both are documented in ``docs/reference/status.md``.

======== ======================== ==========================================================================
do       needs                    answer
======== ======================== ==========================================================================
ls       after                    ``queues`` behind that name, in order; ``more``
show     name                     ``queue``
homes    name                     ``homes`` known here to have a durable subscription of that name
rm       name                     remove it with all waiting messages: ``removed`` messages
requeue  name, after, ids         ``requeued`` dead letters, of ``seen`` behind row ``after``; ``busy`` were
                                  left to their consumers; the next ``after``; ``more``
forget   home                     treat another home, by name or id, as gone for good: ``forgotten``, the
                                  names of its durable subscriptions
export   name, after, piece       ``rows`` behind that row, or its pieces from ``piece`` on; the next
                                  ``after`` and ``piece``; ``more``
======== ======================== ==========================================================================

An answer holds a bounded part of the result, and the next question continues after it. At most
`UNDER_WAY_MAX` questions wait for the journal at once; one more is refused.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mesh.dataplane.durables import Durable, Durables
from mesh.dataplane.home_journal import HomeJournal
from mesh.dataplane.queue_status import Gauge, status_of
from mesh.dataplane.workers import Workers
from mesh.errors import BlockError, MeshError
from mesh.journal import records
from mesh.journal.port import Result
from mesh.wire import blocks
from mesh.wire.durable_frames import DEAD_PREFIX, name_problem

UNDER_WAY_MAX: Final = 64
LISTED_MAX: Final = 256
"""Subscriptions in one answer."""
LISTED_BYTES_MAX: Final = 400_000
"""Bytes of their names and patterns."""
AWAY_MAX: Final = 32
"""Homes that are away, in one answer."""
AWAY_NAMED_MAX: Final = 5
"""So many of their subscriptions are named."""
PAGE_BYTES: Final = 512 << 10
"""Bytes of blocks in one answer, which carries them in base64."""
PAGE_ROWS: Final = 256
IDS_MAX: Final = 1024
QUESTION_MAX: Final = 64 << 10
"""Bytes of a question."""

Answer = Callable[[bytes], None]
Homes = Callable[[str], Sequence[tuple[str, str]]]
"""Ids and names of the brokers known to have a durable subscription with this name."""
Away = Callable[[], Sequence[tuple[str, str, Sequence[str]]]]
"""Ids and names of homes that are unreachable now, and names of their durable subscriptions."""
Forget = Callable[[str], Sequence[str]]
"""Forgets a home by its name or id. Returns the names of its durable subscriptions. Raises `MeshError`."""


class _Refused(Exception):
    """The sentence of an ``error``."""


class Operating:
    """See the module. ``remove`` is `Home.remove`."""

    def __init__(
        self,
        name: str,
        durables: Durables,
        journal: HomeJournal,
        workers: Workers,
        gauge: Gauge,
        remove: Callable[[str, Callable[[str], None]], None],
    ) -> None:
        self.homes: Homes = lambda name: ()
        self.away: Away = lambda: ()
        self.forget: Forget = lambda home: ()
        self._name = name
        self._durables = durables
        self._journal = journal
        self._workers = workers
        self._gauge = gauge
        self._remove = remove
        self._under_way = 0

    def ask(self, body: bytes, now_us: int, answer: Answer) -> None:
        """Answer a question, once, perhaps in a later turn."""
        self._under_way += 1

        def say(document: Mapping[str, Any]) -> None:
            self._under_way -= 1
            answer(json.dumps({"broker": self._name, **document}, separators=(",", ":")).encode())

        try:
            self._ask(_question(body), now_us, say)
        except _Refused as refused:
            say({"error": str(refused)})

    def _ask(self, question: dict[str, Any], now_us: int, say: Callable[[Mapping[str, Any]], None]) -> None:
        if self._under_way > UNDER_WAY_MAX:
            raise _Refused(f"{UNDER_WAY_MAX} questions of operators wait for the journal already; try later")
        match question.get("do"):
            case "ls":
                self._list(_text(question, "after", ""), now_us, say)
            case "show":
                name = self._durable(question).name
                self._gauge.look([name], lambda now: say(self._shown(name, now_us)))
            case "homes":
                found = self.homes(_text(question, "name"))
                say({"homes": [{"id": id, "name": name} for id, name in found]})
            case "forget":
                self._forget(_text(question, "home"), say)
            case "rm":
                self._rm(self._durable(question), say)
            case "requeue":
                after, ids = _number(question, "after"), _ids(question)
                self._requeue(self._dead_letters(question), after, ids, say)
            case "export":
                after, piece = _number(question, "after"), _number(question, "piece")
                self._export(self._durable(question), after, piece, say)
            case other:
                raise _Refused(f"'do' is {str(other)[:40]!r}, which this broker does not know")

    def _durable(self, question: Mapping[str, Any]) -> Durable:
        name = _text(question, "name")
        if problem := name_problem(name):
            raise _Refused(f"the name of a durable subscription {problem}")
        durable = self._durables.by_name.get(name)
        if durable is None:
            raise _Refused(f"there is no durable subscription {name!r} at broker {self._name}")
        return durable

    def _dead_letters(self, question: Mapping[str, Any]) -> Durable | None:
        durable = self._durable(question)
        if durable.name.startswith(DEAD_PREFIX):
            name = durable.name.removeprefix(DEAD_PREFIX)
            raise _Refused(f"{durable.name!r} holds the dead letters of {name!r}; name that one")
        return self._durables.by_name.get(DEAD_PREFIX + durable.name)

    # --- looking

    def _list(self, after: str, now_us: int, say: Callable[[Mapping[str, Any]], None]) -> None:
        names = sorted(name for name in self._durables.by_name if name > after)
        page: list[str] = []
        room = LISTED_BYTES_MAX
        for name in names[:LISTED_MAX]:
            durable = self._durables.by_name[name]
            room -= 2 * (len(name.encode()) + sum(len(pattern) + 4 for pattern in durable.patterns)) + 300
            if page and room < 0:
                break
            page.append(name)

        def looked(now: float) -> None:
            found = [self._shown(name, now_us) for name in page]
            queues = [document["queue"] for document in found if "queue" in document]
            more = len(names) > len(page)
            say({"queues": queues, "more": more, "failing": self._journal.failure, "away": self._away()})

        self._gauge.look(page, looked)

    def _away(self) -> list[dict[str, Any]]:
        """The first of the homes that are unreachable now, with their subscriptions."""
        return [
            {"id": id, "name": name, "queues": kept[:AWAY_NAMED_MAX], "count": len(kept)}
            for id, name, kept in self.away()[:AWAY_MAX]
        ]

    def _shown(self, name: str, now_us: int) -> dict[str, Any]:
        durable = self._durables.by_name.get(name)
        if durable is None:
            return {"error": f"durable subscription {name!r} was removed just now"}
        dead = self._durables.by_name.get(DEAD_PREFIX + name)
        counters = None if durable.queue is None else durable.queue.counters
        return {
            "queue": {
                **status_of(durable).entry(now_us),
                "patterns": list(durable.patterns),
                "dead": 0 if dead is None else max(0, dead.waiting),
                "damaged": durable.damaged,
                "unreadable": 0 if counters is None else counters.unreadable,
                "in_vain": 0 if counters is None else counters.in_vain,
            }
        }

    # --- changing

    def _forget(self, home: str, say: Callable[[Mapping[str, Any]], None]) -> None:
        try:
            names = sorted(self.forget(home))
        except MeshError as error:
            raise _Refused(str(error)) from None
        say({"forgotten": names[:LISTED_MAX], "count": len(names)})

    def _rm(self, durable: Durable, say: Callable[[Mapping[str, Any]], None]) -> None:
        waiting = max(0, durable.waiting)
        self._remove(
            durable.name, lambda problem: say({"error": problem} if problem else {"removed": waiting})
        )

    def _requeue(
        self,
        dead: Durable | None,
        after: int,
        ids: frozenset[str] | None,
        say: Callable[[Mapping[str, Any]], None],
    ) -> None:
        if dead is None:
            say({"requeued": 0, "seen": 0, "busy": 0, "damaged": 0, "after": after, "more": False})
            return

        def told(found: Any, now: float) -> None:
            if isinstance(found, Exception):
                say({"error": f"broker {self._name} cannot read its journal: {found}"})
                return
            letters, last, damaged = found
            queue = dead.queue
            free = [row for row in letters if queue is None or not queue.in_hand(row)]
            document = {
                "seen": last[1],
                "busy": len(letters) - len(free),
                "damaged": damaged,
                "after": last[0] or after,
                "more": last[1] > 0,
            }
            if not free:
                say({"requeued": 0, **document})
                return
            entries = [records.Requeue(dead.id, row) for row in free]
            self._journal.submit(entries, partial(self._requeued, dead, entries, document, say))

        self._journal.ask(lambda journal: _letters(journal, dead.id, after, ids), told)

    def _requeued(
        self,
        dead: Durable,
        entries: Sequence[records.Requeue],
        document: Mapping[str, Any],
        say: Callable[[Mapping[str, Any]], None],
        result: Result,
        now: float,
    ) -> None:
        if isinstance(result, Exception):
            say({"error": f"no dead letter of this page was sent back: {result}"})
            return
        count = 0
        for entry, answer in zip(entries, result, strict=True):
            if not answer.row:
                continue
            count += 1
            dead.withdrawn(entry.row)
            target = self._durables.by_id.get(answer.subscription)
            if target is not None:
                target.stored += 1
                if target.queue is not None:
                    target.queue.grew(answer.row)
                    self._workers.touch(target)
        if dead.queue is not None:
            self._workers.touch(dead)
        say({"requeued": count, **document})

    # --- copying

    def _export(
        self, durable: Durable, after: int, piece: int, say: Callable[[Mapping[str, Any]], None]
    ) -> None:
        def told(found: Any, now: float) -> None:
            if isinstance(found, Exception):
                say({"error": f"broker {self._name} cannot read its journal: {found}"})
            else:
                say(found)

        self._journal.ask(lambda journal: _page(journal, durable.id, after, piece), told)


# --- work on the journal, in its thread


def _letters(
    journal: Any, dead: int, after: int, ids: frozenset[str] | None
) -> tuple[list[int], tuple[int, int], int]:
    """Rows of the wanted dead letters; the last row read and the number of rows read; the number of
    unreadable rows."""
    found = journal.read(dead, after, PAGE_BYTES, PAGE_ROWS)
    rows, damaged = [], 0
    for row in found:
        id = "" if isinstance(row, records.Damaged) else _id_of(journal, row)
        if not id:
            damaged += 1
        elif ids is None or id in ids:
            rows.append(row.row)
    return rows, (found[-1].row if found else 0, len(found)), damaged


def _id_of(journal: Any, row: records.Waiting) -> str:
    """The id of a dead letter. Empty if it is damaged."""
    block = row.block
    if row.parts:
        first = journal.fetch(row.parts[0])
        block = b"" if isinstance(first, records.Damaged) else first.block
    try:
        opened = blocks.open_block(block)
    except (BlockError, IndexError):
        return ""
    return f"{opened.publisher:016x}-{opened.boot:x}-{opened.sequence}"


def _page(journal: Any, subscription: int, after: int, piece: int) -> dict[str, Any]:
    """One page of the waiting messages. ``piece`` above 0: the large body of row ``after`` has been copied up
    to that piece."""
    rows: list[dict[str, Any]] = []
    room = PAGE_BYTES
    behind = after - 1 if piece else after
    for row in journal.read(subscription, behind, PAGE_BYTES, 1 if piece else PAGE_ROWS):
        if row.row != after:
            piece = 0  # the body was settled meanwhile
        if isinstance(row, records.Damaged):
            rows.append({"row": row.row, "damaged": row.reason})
            after = row.row
            continue
        if row.parts and room < PAGE_BYTES:
            break  # it begins the next page
        document: dict[str, Any] = {
            "row": row.row,
            "arrived_us": row.arrived_us,
            "floor": row.floor,
            "bitmap": b64encode(row.bitmap).decode(),
            "attempts": {str(index): count for index, count in row.attempts.items()},
        }
        rows.append(document)
        after = row.row
        if not row.parts:
            document["blocks"] = [b64encode(row.block).decode()]
            room -= len(row.block)
            continue
        document["blocks"] = []
        while piece < len(row.parts) and room > 0:
            part = journal.fetch(row.parts[piece])
            if isinstance(part, records.Damaged):
                document["damaged"] = f"piece {row.parts[piece]}: {part.reason}"
                piece = len(row.parts)
                break
            document["blocks"].append(b64encode(part.block).decode())
            room -= len(part.block)
            piece += 1
        if piece < len(row.parts):
            return {"rows": rows, "after": after, "piece": piece, "more": True}
        break
    return {"rows": rows, "after": after, "piece": 0, "more": bool(rows)}


# --- checks of a question


def _question(body: bytes) -> dict[str, Any]:
    if len(body) > QUESTION_MAX:
        raise _Refused(f"a question of {len(body)} bytes is above the limit of {QUESTION_MAX}")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        raise _Refused('a question is a JSON object such as {"do": "ls"}')
    return question


def _text(question: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = question.get(key, default)
    if not isinstance(value, str):
        raise _Refused(f"{key!r} must be a string")
    return value


def _number(question: Mapping[str, Any], key: str) -> int:
    value = question.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise _Refused(f"{key!r} must be a whole number, 0 or more")
    return value


def _ids(question: Mapping[str, Any]) -> frozenset[str] | None:
    ids = question.get("ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or len(ids) > IDS_MAX or not all(isinstance(id, str) for id in ids):
        raise _Refused(f"'ids' must be a list of at most {IDS_MAX} message ids")
    return frozenset(ids)
