"""Forms commits: submissions that arrive during a commit form the next one.

A submission is a list of entries that belong together: all are in one commit, and their answers come
together. No commit waits for more submissions, since waiting 1 to 100 ms cost throughput at every measured
load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mesh.database.room import COMMIT_BYTES_MAX
from mesh.errors import StoreFull
from mesh.journal.port import Result
from mesh.journal.records import Answer, Entry, Store

if TYPE_CHECKING:
    from mesh.journal.journal import Journal

ENTRIES_MAX: Final = 8192
"""Entries in one commit, unless one submission has more."""


class Submission:
    """Entries that belong together, and the callback for their outcome."""

    __slots__ = ("entries", "size", "stores", "told")

    def __init__(self, entries: Sequence[Entry], told: Callable[[Result], None]) -> None:
        self.entries = entries
        self.told = told
        sizes = [len(entry.block) for entry in entries if type(entry) is Store]
        self.stores = bool(sizes)
        self.size = sum(sizes)


def next_commit(waiting: deque[Submission]) -> list[Submission]:
    """Take the submissions of the next commit, in order: at least one, and at most as many as fit."""
    taken = [waiting.popleft()]
    size, entries = taken[0].size, len(taken[0].entries)
    while waiting:
        size += waiting[0].size
        entries += len(waiting[0].entries)
        if size > COMMIT_BYTES_MAX or entries > ENTRIES_MAX:
            break
        taken.append(waiting.popleft())
    return taken


def carry_out(journal: Journal, submissions: Sequence[Submission], now_us: int) -> list[Result]:
    """One commit of all submissions; a result for each.

    If the disk is full, submissions with blocks are refused and the others are tried again without them, so
    that consuming makes room.
    """
    try:
        answers = journal.commit([entry for it in submissions for entry in it.entries], now_us)
    except StoreFull as full:
        others = [it for it in submissions if not it.stores]
        if not others or len(others) == len(submissions):
            return [full] * len(submissions)
        results = iter(carry_out(journal, others, now_us))
        return [full if it.stores else next(results) for it in submissions]
    except Exception as error:  # whatever it is belongs to the waiting callers, not to the thread
        return [error] * len(submissions)
    return list(_shared_out(answers, submissions))


def _shared_out(answers: Sequence[Answer], submissions: Iterable[Submission]) -> Iterable[Sequence[Answer]]:
    at = 0
    for it in submissions:
        yield answers[at : at + len(it.entries)]
        at += len(it.entries)
