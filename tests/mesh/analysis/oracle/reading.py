"""Log files read line by line, and their tables ``files`` and ``heard``."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from mesh.eventlog.rows import decode

Row = dict[str, Any]
Table = list[dict[str, Any]]


class Line:
    """A line of a file and its row, or a ``problem``: ``corrupt`` or ``unknown``."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.row: Row = {}
        self.problem = ""
        try:
            row = json.loads(text)
            if not isinstance(row, dict):
                raise ValueError(text)
            if row.get("v") not in (1, None):
                self.problem = "unknown"
                return
            decode(text)
            self.row = row
        except msgspec.ValidationError as error:
            self.problem = "unknown" if "Invalid value" in str(error) and "kind" in str(error) else "corrupt"
        except (ValueError, msgspec.DecodeError):
            self.problem = "corrupt"

    @property
    def boot(self) -> tuple[str, str, str]:
        return self.row["run"], self.row["node"], self.row["boot"]

    @property
    def us(self) -> int:
        return round(datetime.fromisoformat(self.row["ts"]).timestamp() * 1e6)


def read_lines(folder: Path) -> list[Line]:
    """All lines of all files, except empty ones."""
    lines = []
    for path in log_files(folder):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        texts = [text for text in data.decode(errors="replace").split("\n") if text.strip()]
        lines += [Line(str(path.relative_to(folder)), text) for text in texts]
    return lines


def log_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and ".jsonl" in path.name]


def read_rows(folder: Path) -> list[Row]:
    """Each row once, by boot and number. The first of several rows with one number counts."""
    rows = {}
    for line in read_lines(folder):
        if line.row:
            rows.setdefault((*line.boot, line.row["seq"]), line.row)
    return [rows[key] for key in sorted(rows)]


def files(folder: Path) -> Table:
    """The table `FileRow`."""
    lines = read_lines(folder)
    seen: dict[tuple[Any, ...], str] = {}
    table = []
    for path in log_files(folder):
        name = str(path.relative_to(folder))
        here = [line for line in lines if line.file == name]
        bad = {kind: sum(line.problem == kind for line in here) for kind in ("corrupt", "unknown")}
        runs: list[str | None] = sorted({line.row["run"] for line in here if line.row})
        for place, run in enumerate(runs or [None]):
            of_run = [line for line in here if line.row and line.row["run"] == run]
            numbers = defaultdict(list)
            duplicates = conflicts = 0
            for line in of_run:
                key = (*line.boot, line.row["seq"])
                numbers[line.boot].append(line.row["seq"])
                duplicates += key in seen
                conflicts += json.dumps(line.row, sort_keys=True) != seen.setdefault(
                    key, json.dumps(line.row, sort_keys=True)
                )
            wrong = bad if place == 0 else {"corrupt": 0, "unknown": 0}
            table.append(
                {
                    "run": run,
                    "file": name,
                    "bytes": path.stat().st_size,
                    "lines": len(of_run) + wrong["corrupt"] + wrong["unknown"],
                    "rows": len(of_run) - duplicates,
                    **wrong,
                    "duplicates": duplicates,
                    "conflicts": conflicts,
                    "gaps": sum(max(each) - min(each) + 1 - len(set(each)) for each in numbers.values()),
                    "first": min((line.us for line in of_run), default=None),
                    "last": max((line.us for line in of_run), default=None),
                    "damage": None,
                }
            )
    return table


RTT_US = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 102400, 204800, 1_000_000]


def heard(folder: Path) -> Table:
    """The table `Heard`, from rows of heartbeats alone."""
    rows = read_rows(folder)
    periods = {
        (row["run"], row["node"], row["boot"]): row["period_s"] for row in rows if row["kind"] == "meta"
    }
    usual = max(periods.values(), key=list(periods.values()).count) if periods else 1.0
    windows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "hb":
            key = (row["run"], row["node"], row["boot"])
            length = round(periods.get(key, usual) * 16e9)
            windows[*key, row["src"], row["mono_ns"] // length, length].append(row)
    return [window(key, beats) for key, beats in sorted(windows.items())]


def _compared(row: Row) -> bool:
    return row["hb_seq"] % 16 == 0 or row["hb_seq"].bit_count() == 1


def window(key: tuple[Any, ...], beats: list[Row]) -> dict[str, Any]:
    """A row of the table, from its heartbeats."""
    run, dst, boot, src, number, length = key
    surveys = [row for row in beats if row["msg"] == "survey"]
    answers = [row for row in beats if row["msg"] == "answer"]
    trips = [row["rtt_us"] for row in beats if row["rtt_us"] is not None]
    counts = [0] * 15
    for trip in trips:
        counts[sum(trip >= limit for limit in RTT_US)] += 1
    low, mid, high = (sum(n << 12 * i for i, n in enumerate(counts[k : k + 5])) for k in (0, 5, 10))
    slots = 0
    for row in beats:
        slots |= 1 << ((row["mono_ns"] - number * length) * 64 // length)
    # Of several at one instant, which one turn of a broker's loop may bring, the last one that it wrote.
    asked = max((r for r in reversed(surveys) if _compared(r)), key=lambda r: r["mono_ns"], default={})
    told = max((r for r in reversed(answers) if _compared(r)), key=lambda r: r["mono_ns"], default={})
    return {
        "run": run,
        "dst": dst,
        "boot": boot,
        "src": src,
        "window": number,
        "window_ns": length,
        "surveys": len(surveys),
        "answers": len(answers),
        "first_ns": min(row["mono_ns"] for row in beats),
        "last_ns": max(row["mono_ns"] for row in beats),
        "first_round": min((row["hb_seq"] for row in surveys), default=None),
        "last_round": max((row["hb_seq"] for row in surveys), default=None),
        "rtt_sum_us": sum(trips),
        "rtt_min_us": min(trips, default=None),
        "rtt_max_us": max(trips, default=None),
        "rtt_low": low,
        "rtt_mid": mid,
        "rtt_high": high,
        "slots": slots - (1 << 64) if slots >> 63 else slots,
        "survey_round": asked.get("hb_seq"),
        "survey_ns": asked.get("mono_ns"),
        "answer_round": told.get("hb_seq"),
        "answer_ns": told.get("mono_ns"),
        "answer_rtt_us": told.get("rtt_us"),
    }


def summed_up(folder: Path) -> Table:
    """The same table from rows of kind ``heard`` alone, with the parts of each window added up."""
    parts: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in read_rows(folder):
        if row["kind"] == "heard":
            key = tuple(row[name] for name in ("run", "node", "boot", "src", "window", "window_ns"))
            parts[key].append(row)
    return [_added(key, rows) for key, rows in sorted(parts.items())]


def _added(key: tuple[Any, ...], rows: list[Row]) -> dict[str, Any]:
    whole = dict(zip(("run", "dst", "boot", "src", "window", "window_ns"), key, strict=True))
    for name in ("surveys", "answers", "rtt_sum_us", "rtt_low", "rtt_mid", "rtt_high"):
        whole[name] = sum(row[name] for row in rows)
    for name in ("first_ns", "first_round", "rtt_min_us"):
        whole[name] = min((row[name] for row in rows if row[name] is not None), default=None)
    for name in ("last_ns", "last_round", "rtt_max_us"):
        whole[name] = max((row[name] for row in rows if row[name] is not None), default=None)
    whole["slots"] = 0
    for row in rows:
        whole["slots"] |= row["slots"]
    for at, names in {"survey_ns": ["survey_round"], "answer_ns": ["answer_round", "answer_rtt_us"]}.items():
        latest = max((row for row in rows if row[at] is not None), key=lambda row: row[at], default={})
        whole |= {name: latest.get(name) for name in (at, *names)}
    return whole
