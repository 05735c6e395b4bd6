"""The finding of a check."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_ENDING: Final = re.compile(r"\((?:(\w+)\|)?(\w+)\)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check, the number of things it considered, and its violations; it passed if there are none."""

    check: str
    looked_at: str
    violations: tuple[str, ...]
    count: int = 1
    """The number of things it considered."""
    empty: bool = False
    """The only violation is that there was nothing to consider."""

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "ok": self.ok,
            "looked_at": self.looked_at,
            "violations": list(self.violations),
        }


def verdict(check: str, count: int, what: str, violations: Iterable[str], *, detail: str = "") -> Verdict:
    """The verdict of a check that considered so many things; none at all is a violation.

    ``what`` is the thing, with its plural's ending in brackets: ``round(s)``, ``deliver(y|ies)``.
    """
    found = tuple(dict.fromkeys(violations))
    empty = not count and not found
    if empty:
        found = (f"there is no {_worded(what, 1)} to look at",)
    looked_at = f"{count} {_worded(what, count)}{f', {detail}' if detail else ''}"
    return Verdict(check, looked_at, found, count, empty)


def _worded(what: str, count: int) -> str:
    return _ENDING.sub(lambda match: (match[1] or "") if count == 1 else match[2], what)
