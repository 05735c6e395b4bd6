"""The quality of the failure detector, by the measures of Chen, Toueg and Aguilera (2002). Pure.

DEAD counts, suspicion does not. Accuracy refers to the exposure, the time in which both ran. Detection refers
to true failures only. A pair without any event has no row of its own, but counts in the pooled rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mesh.analysis.opinions.changes import quantile

ALL: Final = "*"

Spans = Sequence[tuple[int, int]]
"""Times in which a broker ran: from and until, in order, without touching."""


class Failure(NamedTuple):
    """A crash or a power loss of one broker, when it ran again, and when each observer reported it dead."""

    subject: str
    at: int
    back: int | None
    told: Mapping[str, int]


class Wrong(NamedTuple):
    """A mistake: DEAD reported about a broker that ran."""

    observer: str
    subject: str
    start: int
    end: int | None


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


def detector(
    ran: Mapping[str, Spans], mistakes: Iterable[Wrong], failures: Iterable[Failure], *, ended: int
) -> list[Quality]:
    """Rows of pairs with events, then rows pooled by observer, by subject, and over all."""
    wrong: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for each in mistakes:
        wrong[each.observer, each.subject].append((each.start, ended if each.end is None else each.end))
    lags: dict[tuple[str, str], list[float]] = defaultdict(list)
    count: dict[tuple[str, str], int] = defaultdict(int)
    missed: dict[tuple[str, str], int] = defaultdict(int)
    for failure in failures:
        until = ended if failure.back is None else failure.back
        for observer, spans in ran.items():
            if observer == failure.subject or not _runs_at(spans, failure.at):
                continue
            pair = (observer, failure.subject)
            told = failure.told.get(observer)
            if told is not None:
                count[pair] += 1
                lags[pair].append(max(0, told - failure.at) / 1e6)
            elif failure.back is not None and _runs_through(spans, failure.at, until):
                count[pair] += 1
                missed[pair] += 1
    rows = []
    pooled: dict[tuple[str, str], _Pool] = defaultdict(_Pool)
    for pair in sorted({*wrong, *count}):
        observer, subject = pair
        exposure_us = overlap(ran.get(observer, ()), ran.get(subject, ()))
        pool = _Pool()
        pool.add(wrong[pair], lags[pair], count[pair], missed[pair])
        rows.append(pool.row(observer, subject, exposure_us))
        for key in ((observer, ALL), (ALL, subject), (ALL, ALL)):
            pooled[key].add(wrong[pair], lags[pair], count[pair], missed[pair])
    exposures = pooled_exposures(ran)
    rows += [pooled[node, ALL].row(node, ALL, exposures[node]) for node in sorted(ran)]
    # Two brokers are exposed to each other for the same time.
    rows += [pooled[ALL, node].row(ALL, node, exposures[node]) for node in sorted(ran)]
    rows.append(pooled[ALL, ALL].row(ALL, ALL, sum(exposures.values())))
    return rows


class _Pool:
    """The counts of one pair, or of many."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.recurrences: list[float] = []
        self.lags: list[float] = []
        self.failures = 0
        self.missed = 0

    def add(
        self, wrong: Iterable[tuple[int, int]], lags: Iterable[float], failures: int, missed: int
    ) -> None:
        ordered = sorted(wrong)
        self.lengths += [(end - start) / 1e6 for start, end in ordered]
        self.recurrences += [(later - start) / 1e6 for (start, _), (later, _) in pairwise(ordered)]
        self.lags += lags
        self.failures += failures
        self.missed += missed

    def row(self, observer: str, subject: str, exposure_us: int) -> Quality:
        exposure_s = exposure_us / 1e6
        lags = sorted(self.lags)
        return Quality(
            *(observer, subject, exposure_s, len(self.lengths)),
            len(self.lengths) / exposure_s * 3600 if exposure_s else None,
            _mean(self.lengths),
            _mean(self.recurrences),
            max(0.0, 1 - sum(self.lengths) / exposure_s) if exposure_s else None,
            *(self.failures, self.missed, quantile(lags, 0.5), quantile(lags, 0.99)),
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


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
