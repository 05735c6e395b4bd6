"""The quality of the failure detector, by the measures of Chen, Toueg and Aguilera (2002). Pure.

DEAD counts, suspicion does not. Accuracy refers to the exposure, the time in which both ran. Detection refers
to true failures only. A pair without any event has no row of its own, but counts in the pooled rows.

`pairs` judges one broker by all its observers. A pool consists of sums. So Spark can add up the pools of an
observer, of a subject and of all pairs. `quality` makes a row of a pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mesh.analysis.opinions.changes import Saying, quantile

ALL: Final = "*"

Spans = Sequence[tuple[int, int]]
"""Times in which a broker ran: from and until, in order, without touching."""


class Failure(NamedTuple):
    """A crash or a power loss of a broker, when it ran again, and when each observer first reported it
    dead."""

    at: int
    back: int | None
    told: Mapping[str, int]


class Wrong(NamedTuple):
    """A mistake of ``observer``: DEAD reported about a broker that ran."""

    observer: str
    start: int
    end: int | None


class Pool(NamedTuple):
    """The counts and sums of one pair, or of many."""

    mistakes: int
    mistaken_us: int
    recurrences: int
    recurring_us: int
    failures: int
    missed: int
    lags_us: Sequence[int]
    """From each noticed failure to the report of DEAD, in any order."""


class Quality(NamedTuple):
    """A row of the table ``detector`` without its run, in the order of its columns."""

    observer: str
    subject: str
    exposure_s: float
    mistakes: int
    rate_per_h: float | None
    mistake_s: float | None
    recurrence_s: float | None
    accuracy: float | None
    failures: int
    missed: int
    detection_p50_s: float | None
    detection_p99_s: float | None


def reported_dead(said: Iterable[Saying]) -> dict[str, dict[str, int]]:
    """When each observer first reported a boot dead, by boot. ``said`` has the reports about one broker."""
    told: dict[str, dict[str, int]] = defaultdict(dict)
    for each in said:
        if each.state == "dead":
            of_boot = told[each.boot]
            of_boot[each.node] = min(each.at, of_boot.get(each.node, each.at))
    return told


def pairs(
    subject: str,
    mistakes: Iterable[Wrong],
    failures: Iterable[Failure],
    ran: Mapping[str, Spans],
    *,
    ended: int,
) -> dict[str, Pool]:
    """The pool of each observer that made a mistake about one broker, or that could notice a failure of
    it."""
    wrong: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in mistakes:
        wrong[each.observer].append((each.start, ended if each.end is None else each.end))
    lags_us: dict[str, list[int]] = defaultdict(list)
    missed: dict[str, int] = defaultdict(int)
    for failure in failures:
        for observer, spans in ran.items():
            if observer == subject or not _runs_at(spans, failure.at):
                continue
            told = failure.told.get(observer)
            if told is not None:
                # A report of DEAD before the failure was a mistake. After the failure it was no longer news.
                lags_us[observer].append(max(0, told - failure.at))
            elif failure.back is not None and _runs_through(spans, failure.at, failure.back):
                missed[observer] += 1
    return {
        observer: _pool(wrong.get(observer, ()), lags_us.get(observer, ()), missed.get(observer, 0))
        for observer in sorted({*wrong, *lags_us, *missed})
    }


def _pool(wrong: Sequence[tuple[int, int]], lags_us: Sequence[int], missed: int) -> Pool:
    starts = [start for start, _ in wrong]
    return Pool(
        mistakes=len(starts),
        mistaken_us=sum(end - start for start, end in wrong),
        recurrences=max(0, len(starts) - 1),
        # The times from each start to the next add up to that from the first to the last.
        recurring_us=max(starts) - min(starts) if starts else 0,
        failures=len(lags_us) + missed,
        missed=missed,
        lags_us=lags_us,
    )


NOTHING: Final = _pool((), (), 0)
"""The pool of a pair without any event."""


def quality(observer: str, subject: str, pool: Pool, exposure_us: int) -> Quality:
    """The row of a pool."""
    exposure_s = exposure_us / 1e6
    lags_s = [lag / 1e6 for lag in sorted(pool.lags_us)]
    return Quality(
        *(observer, subject, exposure_s, pool.mistakes),
        pool.mistakes / exposure_s * 3600 if exposure_s else None,
        pool.mistaken_us / 1e6 / pool.mistakes if pool.mistakes else None,
        pool.recurring_us / 1e6 / pool.recurrences if pool.recurrences else None,
        max(0.0, 1 - pool.mistaken_us / 1e6 / exposure_s) if exposure_s else None,
        *(pool.failures, pool.missed, quantile(lags_s, 0.5), quantile(lags_s, 0.99)),
    )


def overlap(ones: Spans, others: Spans) -> int:
    """How long both ran, in microseconds."""
    total = one = other = 0
    while one < len(ones) and other < len(others):
        start = max(ones[one][0], others[other][0])
        end = min(ones[one][1], others[other][1])
        total += max(0, end - start)
        if ones[one][1] < others[other][1]:
            one += 1
        else:
            other += 1
    return total


def pooled_exposures(ran: Mapping[str, Spans]) -> dict[str, int]:
    """For each broker, the total time in which it ran beside each other one. One sweep computes all."""
    edges: list[tuple[int, int, str]] = []
    for node, spans in ran.items():
        for start, end in spans:
            edges += [(start, 1, node), (end, -1, node)]
    edges.sort()
    # The integral of the number of running brokers. A broker's share is its growth while the broker ran, less
    # the broker's own time.
    area = running = last = 0
    entered: dict[str, int] = {}
    grown: dict[str, int] = dict.fromkeys(ran, 0)
    for at, step, node in edges:
        area += running * (at - last)
        last = at
        running += step
        if step > 0:
            entered[node] = area
        else:
            grown[node] += area - entered.pop(node)
    return {node: grown[node] - sum(end - start for start, end in spans) for node, spans in ran.items()}


def _runs_at(spans: Spans, at: int) -> bool:
    return any(start <= at < end for start, end in spans)


def _runs_through(spans: Spans, since: int, until: int) -> bool:
    return any(start <= since and until <= end for start, end in spans)
