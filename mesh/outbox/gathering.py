"""Changes and questions that gather while an outbox commits: they become its next commit.

Changes that gathered become one commit, as far as it has room for them. Each change is told its outcome. If
there is no room for all of them, or if one is invalid, each is tried alone: a block that fits is kept, and
rows are freed. A change happens whole or not at all. Questions are answered after the changes that came
before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox

COMMIT_BYTES_MAX: Final = 4 << 20
"""Bytes of blocks in one commit at most; a single change may have any size."""


@dataclass(frozen=True, slots=True)
class Change:
    """Blocks to append and rows to free. ``told`` gets the appended rows, or the reason why nothing
    changed."""

    sealed: Sequence[bytes]
    ranges: Sequence[tuple[int, int]]
    told: Callable[[Any], None]
    size: int


@dataclass(frozen=True, slots=True)
class Question:
    """A look into the outbox. ``told`` gets the result, or the exception that ended it."""

    ask: Callable[[Outbox], Any]
    told: Callable[[Any], None]


Job = Change | Question
Done = tuple[Job, Any]


def carry_out(outbox: Outbox, jobs: Sequence[Job], now_us: int) -> Iterator[list[Done]]:
    """Do the gathered jobs; yield their outcomes, a commit or a question at a time."""
    changes = [job for job in jobs if isinstance(job, Change)]
    for together in _commits(changes):
        yield _commit(outbox, together, now_us)
    for job in jobs:
        if isinstance(job, Question):
            yield [(job, _result(partial(job.ask, outbox)))]


def _commits(changes: Sequence[Change]) -> Iterator[list[Change]]:
    together: list[Change] = []
    size = 0
    for change in changes:
        if together and size + change.size > COMMIT_BYTES_MAX:
            yield together
            together, size = [], 0
        together.append(change)
        size += change.size
    if together:
        yield together


def _commit(outbox: Outbox, changes: Sequence[Change], now_us: int) -> list[Done]:
    sealed = [block for change in changes for block in change.sealed]
    ranges = [ends for change in changes for ends in change.ranges]
    rows = _result(lambda: outbox.change(sealed, ranges, now_us))
    if isinstance(rows, Exception) and len(changes) > 1 and outbox.failure is None:
        return [done for change in changes for done in _commit(outbox, [change], now_us)]
    if isinstance(rows, Exception):
        return [(change, rows) for change in changes]
    done: list[Done] = []
    at = 0
    for change in changes:
        done.append((change, rows[at : at + len(change.sealed)]))
        at += len(change.sealed)
    return done


def _result(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # any error belongs to those who wait, not to the worker
        return error
