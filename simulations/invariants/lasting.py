"""Differences that last. At rest, recent news may still be on its way.

So a difference counts if it is there at two looks in a row, or at the last look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

What = TypeVar("What")


class Lasting(Generic[What]):
    """Is told the differences at each moment of rest: what each is, and how to report it."""

    def __init__(self) -> None:
        self.moments = 0
        self._before: Mapping[What, str] = {}
        self._lasting: list[str] = []
        self._fresh: list[str] = []
        """Differences at the last moment that were not there at the one before."""

    def look(self, wrong: Mapping[What, str]) -> None:
        self.moments += 1
        self._lasting += [said for what, said in wrong.items() if what in self._before]
        self._fresh = [said for what, said in wrong.items() if what not in self._before]
        self._before = wrong

    def said(self) -> list[str]:
        """All differences that count, once the last look is over."""
        return self._lasting + self._fresh
