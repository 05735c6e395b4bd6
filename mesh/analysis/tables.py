"""The tables that hold the verdicts: their columns, and the records that go into them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from math import floor
from operator import attrgetter
from typing import Any, Final

from mesh.analysis.findings import ChurnEvent, EventKind, Findings, Session
from mesh.analysis.report import FileQuality

Table = tuple[str, str, list[tuple[Any, ...]]]
"""A name, columns as Spark's DDL, and records."""

CHURN_WINDOWS_MAX: Final = 1_000_000
"""Windows without a change are left out of a table that would be longer than this."""


def of_files(files: Sequence[FileQuality]) -> Table:
    """What each log file was like."""
    ddl = "file string, lines long, rows long, duplicates long, quarantined long"
    return (
        "files",
        ddl,
        [(file.file, file.lines, file.rows, file.duplicates, file.quarantined) for file in files],
    )


def of_findings(findings: Findings) -> list[Table]:
    """Every table that is made of findings."""
    return [
        (
            "churn_events",
            "run string, at timestamp, kind string, node string, name string, boot string, detail string, "
            "after string, detected_at timestamp, observers int",
            [
                (
                    *(event.run, _time(event.at), str(event.kind), event.node, event.name, event.boot),
                    *(event.detail, event.after, _time(event.detected_at), event.observers),
                )
                for event in findings.events
            ],
        ),
        (
            "sessions",
            "run string, node string, name string, boot string, session_no int, start timestamp, "
            "end timestamp, duration_s double, end_cause string, "
            "left_truncated boolean, right_censored boolean",
            [
                (
                    *(session.run, session.node, session.name, session.boot, session.number),
                    *(_time(session.start), _time(session.end), session.duration_s, str(session.end_cause)),
                    *(session.left_truncated, session.end_cause == "censored"),
                )
                for session in findings.sessions
            ],
        ),
        (
            "availability",
            "run string, node string, name string, sessions int, failures int, up_s double, down_s double, "
            "away_s double, availability double, mttf_s double, mttr_s double",
            [
                (
                    *(broker.run, broker.node, broker.name, broker.sessions, broker.failures),
                    *(float(broker.up_s), float(broker.down_s), float(broker.away_s)),
                    *(broker.availability, broker.mttf_s, broker.mttr_s),
                )
                for broker in findings.availability
            ],
        ),
        (
            "partition_episodes",
            "run string, episode int, start timestamp, end timestamp, duration_s double, windows int, "
            "sides array<array<string>>",
            [
                (
                    *(episode.run, episode.number, _time(episode.start), _time(episode.end)),
                    None if episode.end is None else float(episode.end - episode.start),
                    *(episode.windows, [list(side) for side in episode.sides]),
                )
                for episode in findings.partitions
            ],
        ),
        (
            "churn_windows",
            "run string, win_start timestamp, alive_start int, "
            "joins int, leaves int, failures int, rejoins int",
            churn_windows(findings.events, findings.sessions, findings.window_s),
        ),
    ]


def churn_windows(
    events: Sequence[ChurnEvent], sessions: Sequence[Session], window_s: float
) -> list[tuple[Any, ...]]:
    """For each window of a run how many brokers were up at its start, and what happened in it."""
    records: list[tuple[Any, ...]] = []
    order = (EventKind.JOIN, EventKind.LEAVE, EventKind.FAILURE, EventKind.REJOIN)
    for run, of_run in _by_run(sessions):
        starts = sorted(session.start for session in of_run)
        ends = sorted(session.end for session in of_run)
        counted: dict[int, dict[EventKind, int]] = {}
        for event in events:
            if event.run == run:
                window = counted.setdefault(floor(event.at / window_s), dict.fromkeys(order, 0))
                window[event.kind] += 1
        first, last = floor(starts[0] / window_s), floor(ends[-1] / window_s)
        all_of_them = last - first < CHURN_WINDOWS_MAX
        for number in range(first, last + 1) if all_of_them else sorted(counted):
            at = number * window_s
            alive = bisect_right(starts, at) - bisect_right(ends, at)
            happened = counted.get(number, dict.fromkeys(order, 0))
            records.append((run, _time(at), alive, *(happened[kind] for kind in order)))
    return records


def _by_run(sessions: Iterable[Session]) -> list[tuple[str, list[Session]]]:
    ordered = sorted(sessions, key=attrgetter("run"))
    return [(run, list(of_run)) for run, of_run in groupby(ordered, key=attrgetter("run"))]


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
