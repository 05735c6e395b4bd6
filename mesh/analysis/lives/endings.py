"""How a boot ended, if it did: from its own traces, not from the conclusions of others. Pure.

The rules, in order. A rule without evidence leaves the question to the next:

1. **It said so**: a row that it leaves, or a stop. A stop by an error is a crash.
2. **Its links were closed at once**: the kernel of a running host closes the sockets of a killed process. So
   its peers read an end or a reset within moments of its last sign, and nothing after it. A kernel that lost
   its power and is back answers later, or with the next boot. One link may break on its own just before. So
   if the log lost its end, more links must have been closed than kept.
3. **It was still there** when the logs end.
4. **Its log lost its end**: the last line is incomplete, or others heard it for longer than rows wait for the
   disk. Only a power loss removes rows that had been written.
5. **Its log is complete, and another boot followed**: it was killed while nobody could hear its kernel, since
   it was cut off or paused for longer than its links last.
6. No evidence is left: the end is unknown, ``log lost``.

Membership's verdict (DEAD) is not among the rules. It is an opinion of others, and is checked against this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from mesh.analysis.lives.evidence import SECOND, Evidence, Stay
from mesh.analysis.lives.spans import Span

if TYPE_CHECKING:
    from mesh.analysis.facts import Linked

FLUSH: Final = 2 * SECOND
"""Rows reach the file within a second; a busy loop may take another."""
AT_ONCE: Final = 1.2
"""Periods. A running broker gives a sign in each, so its links were closed within this time of its last
sign."""
STRAY: Final = 0.5
"""Periods. Frames in flight on a slower link arrive this much after a faster one was closed."""
STARTING: Final = 0.05
"""Periods before the next boot's first row in which its kernel may already refuse frames for the last
boot."""

KERNEL_WORDS: Final = ("closed by the peer", "connection reset", "broken pipe")
"""Words in the reason of a link's end: the other end was closed."""

Cause = Literal["leave", "crash", "power_off", "log lost"]


@dataclass(frozen=True, slots=True)
class Ending:
    """When it ended. ``cause`` None: it had not ended at the end of the logs. ``error`` is in
    microseconds."""

    at: int
    cause: Cause | None
    error: int = 0


def ending(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending:
    """``heard``: when others heard this boot, in order, without times that may belong to the next one."""
    for rule in (by_its_word, by_its_links, by_the_end_of_the_logs, by_its_torn_log, by_its_whole_log):
        found = rule(evidence, stay, heard)
        if found is not None:
            return found
    return Ending(last_sign(stay, heard), "log lost", evidence.period)


def by_its_word(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """It left or stopped. If its log lost that, others heard its goodbye."""
    log = stay.log
    if log is not None and log.left is not None:
        return Ending(min(log.left, stay.until), "leave")
    if log is not None and log.stopped is not None:
        return Ending(min(log.stopped, stay.until), "leave" if log.reason == "leave" else "crash")
    told = [word.at for word in evidence.said if word.subject_boot == stay.boot and word.to_state == "left"]
    return Ending(min(min(told), stay.until), "leave") if told else None


def by_its_links(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """Its kernel closed its links while others could hear that."""
    sign = last_sign(stay, heard)
    soonest = sign - round(STRAY * evidence.period)
    latest = stay.until - (round(STARTING * evidence.period) if stay.followed else 0)
    if not is_whole(stay, heard) and not goes_on(evidence, stay, heard):
        latest = min(latest, sign + round(AT_ONCE * evidence.period))
    closed = {peer: at for peer, at in closings(evidence, stay).items() if soonest <= at < latest}
    if not closed:
        return None
    at = min(closed.values())
    if not is_whole(stay, heard) and len(kept(evidence, at, closed)) >= len(closed):
        return None
    return Ending(at, "crash", max(0, at - sign))


def by_the_end_of_the_logs(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """It gave signs up to the end, as far as the intervals of rows allow."""
    if stay.followed:
        return None
    pause = evidence.silence
    if stay.log is not None and not stay.log.torn:  # a broker that is cut off writes little except counters
        pause = max(pause, round(stay.log.stats_s * SECOND))
    sign = last_sign(stay, heard)
    return Ending(evidence.end, None) if sign >= evidence.end - pause - FLUSH else None


def by_its_torn_log(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """A power loss removes data that was written but not synced: the end of a file, or a file."""
    if stay.log is None:
        lost = stay.followed and bool(evidence.boots)
    else:
        lost = not is_whole(stay, heard) and (stay.log.torn or stay.followed)
    if not lost:
        return None
    sign = last_sign(stay, heard)
    error = stay.until - sign if goes_on(evidence, stay, heard) else min(evidence.period, stay.until - sign)
    return Ending(sign, "power_off", error)


def by_its_whole_log(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """The process ended, since another one came, and the disk kept everything."""
    if stay.log is None or not stay.followed:
        return None
    sign = last_sign(stay, heard)
    # a broker that is cut off writes little else
    rows_every = max(evidence.period, round(stay.log.stats_s * SECOND))
    return Ending(sign, "crash", min(rows_every + FLUSH, stay.until - sign))


def last_sign(stay: Stay, heard: list[Span]) -> int:
    """When it last wrote or was last heard."""
    own = stay.log.last if stay.log is not None else stay.first
    return min(max(own, heard[-1].last if heard else own), stay.until)


def goes_on(evidence: Evidence, stay: Stay, heard: list[Span]) -> bool:
    """True if others heard the next boot before they missed this one, so that its last sign is not known."""
    return stay.followed and bool(heard) and heard[-1].last >= stay.until - evidence.silence


def is_whole(stay: Stay, heard: list[Span]) -> bool:
    """True if its log contains everything that it wrote. A log of summaries may have no row until the next
    counters."""
    log = stay.log
    if log is None or log.torn:
        return False
    quiet = round(log.stats_s * SECOND) if log.told < log.last else 0
    return not heard or heard[-1].last - log.last <= FLUSH + quiet


def closings(evidence: Evidence, stay: Stay) -> dict[str, int]:
    """When its kernel finally closed each peer's link to it."""
    last: dict[str, Linked] = {}
    for row in sorted(evidence.linked, key=lambda row: (row.at, row.up)):
        if stay.first <= row.at < stay.until:
            last[row.node] = row
    return {peer: row.at for peer, row in last.items() if not row.up and is_of_kernel(row.reason)}


def kept(evidence: Evidence, at: int, closed: dict[str, int]) -> list[str]:
    """Peers that had heard it just before ``at``, and whose links went down later, or by a judgement."""
    moment = round(AT_ONCE * evidence.period)
    fresh = {
        (stretch.dst, stretch.boot)
        for stretch in evidence.heard
        if stretch.first <= at <= stretch.last + moment and stretch.dst not in closed
    }
    ends: dict[str, Linked] = {}
    for row in sorted(evidence.linked, key=lambda row: (row.at, row.up)):
        if row.at >= at and not row.up and (row.node, row.boot) in fresh:
            ends.setdefault(row.node, row)
    return [peer for peer, row in ends.items() if row.at > at + moment or not is_of_kernel(row.reason)]


def is_of_kernel(reason: str) -> bool:
    """True if a link went down because the other end was closed, and not by a judgement of this end."""
    return any(words in reason.lower() for words in KERNEL_WORDS)
