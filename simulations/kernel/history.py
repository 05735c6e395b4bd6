"""The events of a run, as a chain of hashes, so that two runs can be compared by one number.

Every turn of a loop, every arrival of bytes and every fault is a line; the hash covers all lines so far.
Checkpoints of the hash show between which two lines runs that should be equal diverge. Kept lines show the
exact one.

A line is recorded as a tuple only, since a minute may have a million of them. Tuples are turned into bytes
and hashed a thousand at a time, and turned into text only where lines are kept. The moment at which that
happens changes neither the hash nor the checkpoints.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

CHECKPOINT_LINES: Final = 1000
DIGEST_BYTES: Final = 16


Line = tuple[int | str, ...]
"""Nanoseconds, place, kind, and what tells this event from others of its kind."""

_encode: Final = msgspec.json.Encoder().encode


class History:
    """The run's lines, hashed; kept only if ``keep`` says so."""

    __slots__ = (
        "_checkpoints",
        "_counts",
        "_hash",
        "_hashed",
        "_kept",
        "_since_checkpoint",
        "_waiting",
        "_window",
        "note",
    )

    def __init__(self, *, keep: bool = False) -> None:
        self._counts: Counter[str] = Counter()
        self._checkpoints: list[str] = []
        self._kept: list[str] | None = [] if keep else None
        self._window = slice(0, None)
        """The numbers of the lines that are kept, if any."""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._hashed = 0
        self._since_checkpoint = 0
        self._waiting: list[Line] = []
        self.note: Final[Callable[[Line], None]] = self._waiting.append
        """Add a line for a frequent event, like `record`. The caller must ensure that `settle` is called now
        and then.
        """

    def keep_lines(self, first: int, last: int) -> None:
        """Keep the lines from this number to that; the first line is 1. Call it before the run."""
        assert not self.lines, "the run has begun"
        self._kept = []
        self._window = slice(first - 1, last)

    def record(self, t_ns: int, where: str, kind: str, *key: int | str) -> None:
        """Add a line. ``key`` must not hold addresses, real times or anything else that differs between two
        equal runs.
        """
        self._waiting.append((t_ns, where, kind, *key))
        if len(self._waiting) >= CHECKPOINT_LINES:
            self.settle()

    def settle(self) -> None:
        """Hash the waiting lines."""
        waiting = self._waiting
        done = 0
        while done < len(waiting):
            batch = waiting[done : done + CHECKPOINT_LINES - self._since_checkpoint]
            self._add(batch)
            done += len(batch)
        waiting.clear()  # `note` is bound to this very list

    def _add(self, batch: list[Line]) -> None:
        self._hash.update(_encode(batch)[1:-1] + b",")  # without its brackets, so that it may be cut anywhere
        self._counts.update([line[2] for line in batch])  # type: ignore[misc]  # a kind is a string
        if self._kept is not None:
            first, end, _ = self._window.indices(self._hashed + len(batch))
            kept = batch[max(0, first - self._hashed) : max(0, end - self._hashed)]
            self._kept += ["|".join(map(str, line)) + "\n" for line in kept]
        self._hashed += len(batch)
        self._since_checkpoint += len(batch)
        if self._since_checkpoint == CHECKPOINT_LINES:
            self._since_checkpoint = 0
            self._checkpoints.append(self._hash.hexdigest())

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self._hashed + len(self._waiting)

    @property
    def counts(self) -> Counter[str]:
        """Lines by kind."""
        self.settle()
        return self._counts

    @property
    def checkpoints(self) -> list[str]:
        """The hash after every `CHECKPOINT_LINES`."""
        self.settle()
        return self._checkpoints

    @property
    def kept(self) -> list[str] | None:
        """The kept lines, all or those between two numbers."""
        self.settle()
        return self._kept

    @property
    def digest(self) -> str:
        """The hash of all lines so far, as hex digits."""
        self.settle()
        return self._hash.hexdigest()


def first_difference(one: History, other: History) -> str | None:
    """The place where two runs diverge, in words; None if they are equal."""
    if one.digest == other.digest:
        return None
    if one.kept is not None and other.kept is not None:
        for number, (left, right) in enumerate(zip(one.kept, other.kept, strict=False)):
            if left != right:
                return f"line {number + 1}: {left.rstrip()!r} against {right.rstrip()!r}"
        return f"one run goes on after {min(one.lines, other.lines)} lines"
    for number, (left, right) in enumerate(zip(one.checkpoints, other.checkpoints, strict=False)):
        if left != right:
            return f"between lines {number * CHECKPOINT_LINES + 1} and {(number + 1) * CHECKPOINT_LINES}"
    return f"after line {min(len(one.checkpoints), len(other.checkpoints)) * CHECKPOINT_LINES}"
