"""Facts in mesh time from rows and the table ``heard``, as precise as windows of heartbeats allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from mesh.analysis.facts import Boot, Late, Linked, Said, Stretch
from tests.mesh.analysis.oracle.clock_tables import Clocks
from tests.mesh.analysis.oracle.log_facts import Facts, sent_in_time
from tests.mesh.analysis.oracle.reading import Line, read_lines

Row = dict[str, Any]
Piece = tuple[int, int, int]
"""First, last, error: nanoseconds."""


def mesh_facts(folder: Path, rows: Sequence[Row], heard: Sequence[Row], clocks: Clocks) -> Facts:
    """The facts of one run."""
    facts = Facts()
    torn = torn_boots(read_lines(folder))
    usual = Counter(
        row["period_s"] for row in rows if row["kind"] == "meta" and row["op"] == "start"
    ).most_common(1)
    for boot, own in clocks.of_boot.items():
        facts.boots.append(_boot(boot, own, clocks, torn.get(boot, False), usual[0][0]))
        facts.names[own[0]["node"]] = facts.boots[-1].name
    period_s = {boot.boot: boot.period_s for boot in facts.boots}
    for row in rows:
        if row["kind"] == "truth":
            facts.truth.append(row)
            continue
        who = {"run": row["run"], "node": row["node"], "boot": row["boot"]}
        at = clocks.at(row["boot"], row["mono_ns"])
        if row["kind"] == "mem":
            facts.names.setdefault(row["subject"], row["subject"])
            facts.said.append(_said(who, row, at))
        elif row["kind"] == "link":
            out, up = row["dir"] == "out", row["state"] == "up"
            facts.linked.append(
                Linked(**who, at=at, peer=row["peer"], out=out, up=up, reason=row["reason"] or "")
            )
        elif row["kind"] == "stats" and row["loop_late_ms_max"] / 1000 >= period_s[row["boot"]]:
            facts.late.append(Late(**who, at=at, late_s=row["loop_late_ms_max"] / 1000))
    facts.holes += [(hole["node"], (hole["start"], hole["end"])) for hole in holes(rows, clocks)]
    facts.stretches += _stretches(heard, clocks)
    facts.stretches = sent_in_time(facts)
    facts.awake += _awake(rows, heard, clocks, period_s)
    return facts


def raw_holes(rows: Sequence[Row]) -> list[Row]:
    """Where rows of a boot are missing, by its monotonic clock. A row of kind ``heard`` is written up to a
    second after its window."""
    of_boot: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] != "truth":
            of_boot[row["boot"]].append(row)
    found = []
    for boot, own in of_boot.items():
        length = window_ns(own)
        for before, after in pairwise(sorted(own, key=lambda row: int(row["seq"]))):
            start = int(before["mono_ns"])
            if length is not None:
                start = max(0, start - 10**9) // length * length
            if after["seq"] > before["seq"] + 1:
                found.append(
                    {
                        "run": before["run"],
                        "node": before["node"],
                        "boot": boot,
                        "start_ns": start,
                        "end_ns": int(after["mono_ns"]),
                        "rows": after["seq"] - before["seq"] - 1,
                    }
                )
    return found


def holes(rows: Sequence[Row], clocks: Clocks) -> list[Row]:
    """The table ``holes``."""
    return [
        {name: row[name] for name in ("run", "node", "boot", "rows")}
        | {name: clocks.at(row["boot"], row[f"{name}_ns"]) for name in ("start", "end")}
        for row in raw_holes(rows)
    ]


def torn_boots(lines: Iterable[Line]) -> dict[str, bool]:
    """Boots whose last file has more incomplete lines than missing numbers."""
    of_file: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        of_file[line.file].append(line)
    last: dict[str, tuple[int, bool]] = {}
    for own in of_file.values():
        broken = sum(line.problem == "corrupt" for line in own)
        numbers: dict[str, set[int]] = defaultdict(set)
        for line in own:
            if line.row:
                numbers[line.row["boot"]].add(line.row["seq"])
        for boot, found in numbers.items():
            missing = max(found) - min(found) + 1 - len(found)
            last[boot] = max(last.get(boot, (0, False)), (max(found), broken > missing))
    return {boot: torn for boot, (_, torn) in last.items()}


def window_ns(rows: Iterable[Row]) -> int | None:
    """The length of the windows of a boot that writes summaries."""
    return max((int(length) for row in rows if (length := row.get("window_ns"))), default=None)


def told_ns(rows: Sequence[Row], first: int, last: int) -> int:
    """The end of the last window of which a boot that was killed wrote summaries. A window's rows are written
    within a second of its end."""
    length = window_ns(rows)
    stopped = any(row["kind"] == "meta" and row["op"] == "stop" for row in rows)
    if not length or stopped:
        return last
    ends = range(0, max(0, last - 10**9) + 1, length)
    return max(first, ends[-1])


def _boot(boot: str, rows: Sequence[Row], clocks: Clocks, torn: bool, usual_s: float) -> Boot:
    def at(found: Iterable[Row]) -> int | None:
        moment = min((int(row["mono_ns"]) for row in found), default=None)
        return None if moment is None else clocks.at(boot, moment)

    metas = sorted((row for row in rows if row["kind"] == "meta"), key=lambda row: int(row["seq"]))
    meta = metas[-1] if metas else {}
    stops = [row for row in metas if row["op"] == "stop"]
    numbers = [row["seq"] for row in rows]
    return Boot(
        run=rows[0]["run"],
        node=rows[0]["node"],
        boot=boot,
        name=meta.get("name") or rows[0]["node"],
        host=meta.get("host"),
        version=meta.get("version"),
        period_s=meta.get("period_s", usual_s),
        deadline_s=meta.get("deadline_s", 0.5),
        stats_s=meta.get("stats_s", 5.0),
        first=clocks.at(boot, clocks.first[boot]),
        last=clocks.at(boot, clocks.last[boot]),
        told=clocks.at(boot, told_ns(rows, clocks.first[boot], clocks.last[boot])),
        first_seq=min(numbers),
        last_seq=max(numbers),
        rows=len(rows),
        stopped=at(stops),
        reason=stops[-1]["reason"] if stops else None,
        left=at(
            row
            for row in rows
            if row["kind"] == "mem" and row["subject"] == row["node"] and row["to_state"] == "left"
        ),
        torn=torn,
    )


def _said(who: Mapping[str, str], row: Row, at: int) -> Said:
    return Said(
        **who,
        at=at,
        subject=row["subject"],
        subject_name=row["subject_name"] or "",
        subject_boot=row["subject_boot"],
        incarnation=row["subject_inc"],
        from_state=row["from_state"],
        to_state=row["to_state"],
        reason=row["reason"] or "",
        via=row["via"] or row["node"],
    )


def _stretches(heard: Sequence[Row], clocks: Clocks) -> list[Stretch]:
    windows: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in heard:
        windows[row["run"], row["src"], row["dst"], row["boot"]].append(row)
    found = []
    for (run, src, dst, boot), own in windows.items():
        silent = round(max(row["window_ns"] for row in own) / 16 * 2.2)
        pieces = [piece for row in own for piece in pieces_of(row, silent)]
        for first, last, error in merged(pieces, silent):
            found.append(
                Stretch(run, src, dst, boot, clocks.at(boot, first), clocks.at(boot, last), error / 1e9)
            )
    return found


def _awake(
    rows: Sequence[Row], heard: Sequence[Row], clocks: Clocks, period_s: Mapping[str, float]
) -> list[tuple[str, str, int, int]]:
    """Everything that a broker wrote except counters."""
    windows: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for row in heard:
        own = windows[row["dst"], row["boot"]]
        before = own.setdefault(row["window"], row)
        own[row["window"]] = {
            **row,
            "first_ns": min(row["first_ns"], before["first_ns"]),
            "last_ns": max(row["last_ns"], before["last_ns"]),
            "slots": row["slots"] | before["slots"],
        }
    moments: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] in ("mem", "link"):
            moments[row["node"], row["boot"]].append(row["mono_ns"])
    found = []
    for node, boot in windows.keys() | moments.keys():
        by_number = windows[node, boot]
        usual = round(period_s[boot] * 16e9)
        length = max((row["window_ns"] for row in by_number.values()), default=usual)
        silent = round(length / 16 * 2.2) - length // 64
        pieces = [piece for row in by_number.values() for piece in pieces_of(row, silent)]
        pieces += [(ns, ns, 0) for ns in moments[node, boot]]
        for first, last, _ in merged(pieces, silent):
            found.append((node, boot, clocks.at(boot, first), clocks.at(boot, last)))
    return found


def pieces_of(window: Row, silent: int) -> list[Piece]:
    """A window without its silences, whose ends are the middles of 64ths."""
    length = window["window_ns"] // 64
    start = window["window"] * window["window_ns"]
    taken = [number for number in range(64) if window["slots"] >> number & 1]

    def middle(number: int) -> int:
        return max(window["first_ns"], min(window["last_ns"], start + number * length + length // 2))

    ends: list[tuple[int, int]] = [(window["first_ns"], 0)]
    for before, after in pairwise(taken):
        if (after - before) * length >= silent:
            ends += [(middle(before), length // 2), (middle(after), length // 2)]
    ends.append((window["last_ns"], 0))
    return [
        (first, max(first, last), max(error, other))
        for (first, error), (last, other) in zip(ends[::2], ends[1::2], strict=True)
    ]


def merged(pieces: Iterable[Piece], silent: int) -> list[Piece]:
    found: list[Piece] = []
    for first, last, error in sorted(pieces):
        if found and first - found[-1][1] < silent:
            before = found.pop()
            found.append((before[0], max(before[1], last), max(before[2], error)))
        else:
            found.append((first, last, error))
    return found
