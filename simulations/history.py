"""What happened in a run, as a chain of hashes, so that two runs can be compared by one number.

Every turn of a loop, every arrival of bytes and every fault is a line; the hash covers all lines so far.
Checkpoints of the hash say between which two lines runs that should be equal part; kept lines say where
exactly.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Final

CHECKPOINT_LINES: Final = 1000
DIGEST_BYTES: Final = 16


class History:
    """The run's lines, hashed as they come; kept only when ``keep`` is asked for, since a minute may hold a
    million.

    Lines are hashed a thousand at a time, when a checkpoint is due or somebody asks for the digest: one long
    update costs far less than a thousand short ones, and the hash is the same.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        """Lines by kind."""
        self.checkpoints: list[str] = []
        self._kept: list[str] | None = [] if keep else None
        self._window = slice(0, None)
        """Which of all lines are kept, if any are."""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._hashed = 0
        self._since_checkpoint = 0
        self._waiting: list[str] = []

    def keep_lines(self, first: int, last: int) -> None:
        """Keep those with these numbers and between, of which the first of all is 1; said before the run."""
        assert not self.lines, "the run has begun"
        self._kept = []
        self._window = slice(first - 1, last)

    def record(self, t_ns: int, where: str, kind: str, key: str) -> None:
        """Add a line. ``key`` must not hold addresses, real times or anything else that two equal runs differ
        in.
        """
        waiting = self._waiting
        waiting.append(f"{t_ns}|{where}|{kind}|{key}\n")
        self.counts[kind] += 1
        if self._since_checkpoint + len(waiting) == CHECKPOINT_LINES:
            self._hash_waiting()
            self._since_checkpoint = 0
            self.checkpoints.append(self._hash.hexdigest())

    @property
    def lines(self) -> int:
        """How many there are."""
        return self._hashed + len(self._waiting)

    @property
    def kept(self) -> list[str] | None:
        """All of them or those between two, if they are kept."""
        if self._kept is not None:
            self._hash_waiting()
        return self._kept

    @property
    def digest(self) -> str:
        """The hash of all lines so far, as hex digits."""
        self._hash_waiting()
        return self._hash.hexdigest()

    def _hash_waiting(self) -> None:
        waiting = self._waiting
        self._hash.update("".join(waiting).encode())
        if self._kept is not None:
            first, end, _ = self._window.indices(self._hashed + len(waiting))
            self._kept += waiting[max(0, first - self._hashed) : max(0, end - self._hashed)]
        self._hashed += len(waiting)
        self._since_checkpoint += len(waiting)
        waiting.clear()


def first_difference(one: History, other: History) -> str | None:
    """Where two runs part, in words; None if they are equal."""
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
