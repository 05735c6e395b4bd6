"""How a boot ended, if it did: what it did itself, apart from what others concluded. Pure.

The rules, in order. A rule that has nothing to go by leaves the question to the next:

1. **It said so**: a row that it leaves, or a stop. A stop by an error is a crash.
2. **Its links were closed at once**: the kernel of a host that runs closes the sockets of a killed process.
   So its peers read an end or a reset within moments of its last sign, and nothing after it. What a kernel
   answers that has lost its power and is back comes later, or with the next boot. One link may break by
   itself just before; so where the log lost its end, more links must have been closed than kept.
3. **It was still there** when the logs end.
4. **Its log lost its end**: the last line is torn, or others heard it for longer than rows wait for the disk.
   Only a power loss takes rows that had been written.
5. **Its log is whole, and another boot followed**: it was killed while nobody could hear its kernel, since it
   was cut off or paused for longer than its links last.
6. Nothing is left: nobody knows. ``log lost``.

Membership's verdict (DEAD) is not among them. It is an opinion of others, and is checked against this.
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
"""Periods: a broker that runs gives a sign in each, so its links were closed within this of its last sign."""
STRAY: Final = 0.5
"""Periods: what was under way on a slower link arrives this much after a faster one was closed."""
STARTING: Final = 0.05
"""Periods before the next boot's first row in which its kernel may already refuse what is sent to the
last."""

KERNEL_WORDS: Final = ("closed by the peer", "connection reset", "broken pipe")
"""Of a reason why a link went down: the other end was closed."""

Cause = Literal["leave", "crash", "power_off", "log lost"]


@dataclass(frozen=True, slots=True)
class Ending:
    """When it ended; ``cause`` None: it had not when the logs end. ``error`` is in microseconds."""

    at: int
    cause: Cause | None
    error: int = 0


def ending(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending:
    """``heard``: when others heard this boot, in order, without what may be of the next one."""
    for rule in (by_its_word, by_its_links, by_the_end_of_the_logs, by_its_torn_log, by_its_whole_log):
        found = rule(evidence, stay, heard)
        if found is not None:
            return found
    return Ending(last_sign(stay, heard), "log lost", evidence.period)


def by_its_word(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """It left or stopped; where its log lost that, others heard it take its leave."""
    log = stay.log
    if log is not None and log.left is not None:
        return Ending(min(log.left, stay.until), "leave")
    if log is not None and log.stopped is not None:
        return Ending(min(log.stopped, stay.until), "leave" if log.reason == "leave" else "crash")
    told = [word.at for word in evidence.said if word.subject_boot == stay.boot and word.to_state == "left"]
    return Ending(min(min(told), stay.until), "leave") if told else None


def by_its_links(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """Its kernel closed its links while somebody could hear that."""
    sign = last_sign(stay, heard)
    soonest = sign - round(STRAY * evidence.period)
    latest = stay.until - round(STARTING * evidence.period)
    if not is_whole(stay, heard) and not goes_on(evidence, stay, heard):
        latest = min(latest, sign + round(AT_ONCE * evidence.period))
    closed = {peer: at for peer, at in closings(evidence, stay).items() if soonest <= at < latest}
    if not closed:
        return None
    at = max(min(closed.values()), stay.first)
    if not is_whole(stay, heard) and len(kept(evidence, at, closed)) >= len(closed):
        return None
    return Ending(at, "crash", max(0, at - sign))


def by_the_end_of_the_logs(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """It gave signs up to the end, as far as rows come so often."""
    if stay.followed:
        return None
    pause = evidence.silence
    if stay.log is not None and not stay.log.torn:  # who is cut off writes little but counters
        pause = max(pause, round(stay.log.stats_s * SECOND))
    sign = last_sign(stay, heard)
    return Ending(evidence.end, None) if sign >= evidence.end - pause - FLUSH else None


def by_its_torn_log(evidence: Evidence, stay: Stay, heard: list[Span]) -> Ending | None:
    """A power loss takes what was written and not synced: the end of a file, or a file."""
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
    rows_every = max(evidence.period, round(stay.log.stats_s * SECOND))  # who is cut off writes little else
    return Ending(sign, "crash", min(rows_every + FLUSH, stay.until - sign))


def last_sign(stay: Stay, heard: list[Span]) -> int:
    """When it last wrote or was last heard."""
    own = stay.log.last if stay.log is not None else stay.first
    return min(max(own, heard[-1].last if heard else own), stay.until)


def goes_on(evidence: Evidence, stay: Stay, heard: list[Span]) -> bool:
    """Whether others heard the next boot before they missed this one, so that its last sign is not known."""
    return stay.followed and bool(heard) and heard[-1].last >= stay.until - evidence.silence


def is_whole(stay: Stay, heard: list[Span]) -> bool:
    """Whether its log holds all that it wrote."""
    log = stay.log
    return log is not None and not log.torn and (not heard or heard[-1].last - log.last <= FLUSH)


def closings(evidence: Evidence, stay: Stay) -> dict[str, int]:
    """When which peer's link to it was closed by its kernel, for good."""
    last: dict[str, Linked] = {}
    for row in sorted(evidence.linked, key=lambda row: (row.at, row.up)):
        if stay.first <= row.at < stay.until:
            last[row.node] = row
    return {
        peer: row.at
        for peer, row in last.items()
        if not row.up and is_of_kernel(row.reason) and not _heard_after(evidence, stay, peer, row.at)
    }


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
    """Whether a link went down since the other end was closed, and not by a judgement of this one."""
    return any(words in reason.lower() for words in KERNEL_WORDS)


def _heard_after(evidence: Evidence, stay: Stay, peer: str, at: int) -> bool:
    """It lived on: the link was broken by something else."""
    return any(
        stretch.dst == peer and at + STRAY * evidence.period < stretch.last < stay.until
        for stretch in evidence.heard
    )
