"""Log files as facts, read line by line with json: without Spark, and without the analysis except its
records.

Times are those of the wall clocks, which are mesh time if no clock is wrong, as in most simulated runs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from mesh.analysis.facts import Boot, Late, Linked, Said, Stretch

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SILENT_PERIODS = 2.2


def wall_us(row: Row) -> int:
    """The row's wall clock, in microseconds since the epoch."""
    since = datetime.fromisoformat(row["ts"]) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@dataclass
class Facts:
    """The content of a folder of logs."""

    boots: list[Boot] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    linked: list[Linked] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    awake: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Node, boot, from, to: it wrote rows without a gap of 2.2 periods."""
    late: list[Late] = field(default_factory=list)
    holes: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    """Node, from, to: rows of its log are missing in the middle."""
    truth: list[Row] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Names of brokers, by id."""

    @property
    def begin(self) -> int:
        return min(boot.first for boot in self.boots)

    @property
    def end(self) -> int:
        return max(boot.last for boot in self.boots)


def rows_of(path: Path) -> tuple[list[Row], bool]:
    """The rows of a file, and whether its last line is incomplete."""
    rows, torn = [], False
    for line in path.read_bytes().split(b"\n"):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
            torn = False
        except ValueError:
            torn = True
    return rows, torn


def read_facts(folder: Path, *, without: Iterable[str] = (), at: Callable[[Row], int] = wall_us) -> Facts:
    """All facts of a folder, without files whose names begin with one of ``without``."""
    facts = Facts()
    boots: dict[tuple[str, str], list[Row]] = defaultdict(list)
    torn: dict[tuple[str, str], bool] = {}
    for path in sorted(folder.iterdir()):
        rows, cut = rows_of(path)
        if path.name.startswith("truth-"):
            facts.truth += rows
            continue
        if any(path.name.startswith(name) for name in without):
            continue
        for row in rows:
            boots[row["node"], row["boot"]].append(row)
        if rows:
            torn[rows[-1]["node"], rows[-1]["boot"]] = cut
    for key, rows in boots.items():
        _read_boot(facts, sorted(rows, key=lambda row: int(row["seq"])), torn[key], at)
    facts.stretches = sent_in_time(facts)
    return facts


def _read_boot(facts: Facts, rows: list[Row], torn: bool, at: Callable[[Row], int]) -> None:
    first = rows[0]
    who = {"run": first["run"], "node": first["node"], "boot": first["boot"]}
    meta = next((row for row in rows if row["kind"] == "meta"), None)
    stop = next((row for row in rows if row["kind"] == "meta" and row["op"] == "stop"), None)
    left = next((row for row in rows if row["kind"] == "mem" and _leaves(row)), None)
    period_s = meta["period_s"] if meta else 1.0
    facts.boots.append(
        Boot(
            **who,
            name=meta["name"] if meta else "",
            host=meta["host"] if meta else None,
            version=meta["version"] if meta else None,
            period_s=period_s,
            deadline_s=meta["deadline_s"] if meta else 0.5,
            stats_s=meta["stats_s"] if meta else 5.0,
            first=at(rows[0]),
            last=at(rows[-1]),
            told=at(rows[-1]),
            first_seq=first["seq"],
            last_seq=rows[-1]["seq"],
            rows=len(rows),
            stopped=at(stop) if stop else None,
            reason=stop["reason"] if stop else None,
            left=at(left) if left else None,
            torn=torn,
        )
    )
    if meta:
        facts.names[who["node"]] = meta["name"]
    for before, after in pairwise(rows):
        if int(after["seq"]) > int(before["seq"]) + 1:
            facts.holes.append((who["node"], (at(before), at(after))))
    silent = round(SILENT_PERIODS * period_s * 1_000_000)
    for start, end in _runs(sorted(at(row) for row in rows if row["kind"] != "stats"), silent):
        facts.awake.append((who["node"], who["boot"], start, end))
    heard: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "hb":
            heard[row["src"]].append(at(row))
        elif row["kind"] == "mem":
            facts.names.setdefault(row["subject"], row["subject_name"])
            if row["subject"] != row["node"]:
                facts.said.append(_said(who, row, at(row)))
        elif row["kind"] == "link":
            up, out = row["state"] == "up", row["dir"] == "out"
            facts.linked.append(
                Linked(**who, at=at(row), peer=row["peer"], out=out, up=up, reason=row["reason"])
            )
        elif row["kind"] == "stats" and row["loop_late_ms_max"] > 500:
            facts.late.append(Late(**who, at=at(row), late_s=row["loop_late_ms_max"] / 1000))
    for src, times in heard.items():
        for start, end in _runs(sorted(times), silent):
            facts.stretches.append(Stretch(who["run"], src, who["node"], who["boot"], start, end, 0.0))


def sent_in_time(facts: Facts) -> list[Stretch]:
    """Without what a listener that was stopped read when it went on, if it heard nothing after that."""
    boots = {boot.boot: boot for boot in facts.boots}
    found = []
    for each in facts.stretches:
        period_s, stats_s = boots[each.boot].period_s, boots[each.boot].stats_s
        resumed = any(
            row.boot == each.boot
            and row.late_s + 0.1 >= 2.2 * period_s
            and row.at - (stats_s + 0.1) * 1e6 <= each.first <= row.at + 0.25e6 * period_s
            for row in facts.late
        )
        if not resumed or each.last - each.first > 1.2e6 * period_s:
            found.append(msgspec.structs.replace(each, resumed=resumed))
    return found


def _leaves(row: Row) -> bool:
    return bool(row["subject"] == row["node"] and row["to_state"] == "left")


def _said(who: dict[str, str], row: Row, at: int) -> Said:
    return Said(
        **who,
        at=at,
        subject=row["subject"],
        subject_name=row["subject_name"],
        subject_boot=row["subject_boot"],
        incarnation=row["subject_inc"],
        from_state=row["from_state"],
        to_state=row["to_state"],
        reason=row["reason"],
        via=row["via"],
    )


def _runs(times: list[int], gap: int) -> list[tuple[int, int]]:
    """First and last of consecutive times that are less than ``gap`` apart."""
    found: list[tuple[int, int]] = []
    for time in times:
        if found and time - found[-1][1] < gap:
            found[-1] = (found[-1][0], time)
        else:
            found.append((time, time))
    return found
