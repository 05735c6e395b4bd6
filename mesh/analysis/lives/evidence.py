"""The evidence about one broker: its own rows, and what others observed of its links and heartbeats. Pure.

These records run on executors that have only Python. Other records with these attributes work
as well. Times are in microseconds of mesh time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.analysis.facts import Boot, Late, Linked, Said, Stretch
    from mesh.analysis.results.tables import Hole

SECOND: Final = 1_000_000

SILENCE: Final = 2.2
"""Periods without a sign after which something is wrong: one heartbeat may be lost, and the next one late."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All evidence about one broker."""

    node: str
    begin: int
    """Start and end of the run's logs."""
    end: int
    period_s: float
    """The period of its heartbeats, or of the others' if its logs are lost."""
    boots: Sequence[Boot] = ()
    """Boots that have a log."""
    said: Sequence[Said] = ()
    """Reports of others about it."""
    linked: Sequence[Linked] = ()
    """Other brokers' links to it."""
    heard: Sequence[Stretch] = ()
    """Times in which others heard it."""
    awake: Sequence[tuple[str, int, int]] = ()
    """Boot, start and end of times in which it wrote rows without a gap of more than 2.2 periods."""
    late: Sequence[Late] = ()
    """Its own reports of lateness."""
    holes: Sequence[Hole] = ()
    """Where rows of its log are missing."""
    since: Sequence[int] = ()
    """When boots of its observers wrote their first rows. Only the earliest counts."""

    @property
    def period(self) -> int:
        return round(self.period_s * SECOND)

    @property
    def silence(self) -> int:
        return round(SILENCE * self.period_s * SECOND)


@dataclass(frozen=True, slots=True)
class Stay:
    """One boot, from its first sign to the first sign of the next."""

    boot: str
    first: int
    until: int
    """The first sign of the next boot, or a moment after the end of the logs."""
    truncated: bool
    log: Boot | None
    """None: its log is lost."""
    followed: bool
    """Another boot came after it."""


def stays(evidence: Evidence) -> list[Stay]:
    """The boots of a broker in order: those with a log, and those known only from others."""
    boots: list[tuple[int, str, bool, Boot | None]] = [
        (boot.first, boot.boot, boot.first_seq > 1, boot) for boot in evidence.boots
    ]
    logged = {boot.boot for boot in evidence.boots}
    spoken: dict[str, Said] = {}
    for word in sorted(evidence.said, key=lambda word: (word.at, word.node)):
        if word.subject_boot not in logged and word.to_state in ("alive", "suspect"):
            spoken.setdefault(word.subject_boot, word)
    boots += [(word.at, boot, _was_there(evidence, word), None) for boot, word in spoken.items()]
    boots.sort(key=lambda boot: boot[:2])
    found = []
    for number, (first, name, truncated, log) in enumerate(boots):
        followed = number + 1 < len(boots)
        until = boots[number + 1][0] if followed else evidence.end + 1
        found.append(Stay(name, first, until, truncated and number == 0, log, followed))
    return found


def _was_there(evidence: Evidence, word: Said) -> bool:
    """True if a boot without a log ran before others observed it: the first to meet it had just started
    too."""
    if word.reason in ("restarted", "returned"):
        return False
    return not any(since < word.at - evidence.silence for since in evidence.since)
