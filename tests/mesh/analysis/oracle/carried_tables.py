"""Traffic and drops, counted row by row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mesh.analysis.facts import Boot, Said
from mesh.analysis.results.tables import Broker
from tests.mesh.analysis.oracle.clock_tables import Clocks
from tests.mesh.analysis.oracle.reading import RTT_US

Row = dict[str, Any]
COUNTERS = ("published", "delivered", "dropped")
OF_LINK = ("msgs_in", "msgs_out", "bytes_in", "bytes_out", "dropped", "lost")


class Stats:
    """The rows of kind ``stats``, by boot, in the order of writing."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.of_boot: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.whole: set[tuple[str, str]] = set()
        """Boots of which the first row is there."""
        self.met: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        """When a boot met each further boot of a peer."""
        named: set[tuple[str, ...]] = set()
        for row in sorted(rows, key=lambda row: int(row["seq"])):
            if row["seq"] == 1:
                self.whole.add((row["node"], row["boot"]))
            if (
                row["kind"] == "mem"
                and (key := (row["boot"], row["subject"], row["subject_boot"])) not in named
            ):
                if any(each[:2] == key[:2] for each in named):
                    self.met[row["node"], row["boot"], row["subject"]].append(row["mono_ns"])
                named.add(key)
            if row["kind"] == "stats":
                self.of_boot[row["node"], row["boot"]].append(row)

    def of(self, node: str) -> list[list[Row]]:
        return [rows for (of, _), rows in self.of_boot.items() if of == node]


def brokers(stats: Stats, boots: Sequence[Boot], said: Sequence[Said]) -> list[Row]:
    table = []
    logged = {boot.node for boot in boots}
    for node in sorted({word.subject for word in said} - logged):
        words = [word for word in said if word.subject == node and word.subject_name]
        name = max(words, key=lambda word: word.at).subject_name if words else node
        row = dict.fromkeys(Broker.__struct_fields__)
        table.append({**row, "run": said[0].run, "node": node, "name": name, "boots": 0})
    for node in sorted({boot.node for boot in boots}):
        own = sorted((boot for boot in boots if boot.node == node), key=lambda boot: boot.first)
        counted = stats.of(node)
        row = {name: sum(rows[-1][name] for rows in counted) if counted else None for name in COUNTERS}
        halves = [sorted(row["loop_late_ms_p50"] for row in rows) for rows in counted]
        table.append(
            {
                "run": own[-1].run,
                "node": node,
                "name": next((boot.name for boot in reversed(own) if boot.name not in ("", node)), node),
                "host": own[-1].host,
                "version": own[-1].version,
                "boots": len({boot.boot for boot in own}),
                "period_s": own[-1].period_s,
                "deadline_s": own[-1].deadline_s,
                "stats_s": own[-1].stats_s,
                **row,
                "rss_bytes_max": max((row["rss_bytes"] for rows in counted for row in rows), default=None),
                "loop_late_ms_p50": max((half[(len(half) - 1) // 2] for half in halves), default=None),
                "loop_late_ms_max": max(
                    (row["loop_late_ms_max"] for rows in counted for row in rows), default=None
                ),
            }
        )
    return table


def drops(stats: Stats) -> list[Row]:
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for (node, _), rows in stats.of_boot.items():
        for reason in {reason for row in rows for reason in row["drops"]}:
            counts[rows[0]["run"], node, reason] += max(row["drops"].get(reason, 0) for row in rows)
    return [
        {"run": run, "node": node, "reason": reason, "count": count}
        for (run, node, reason), count in counts.items()
    ]


def traffic(stats: Stats, clocks: Clocks, window_s: float) -> list[Row]:
    window = round(window_s * 1e6)
    table: dict[tuple[int, str], Row] = {}
    for (node, boot), rows in stats.of_boot.items():
        assert (node, boot) in stats.whole
        before: Mapping[str, int] = defaultdict(int)
        for row in rows:
            start = clocks.at(boot, row["mono_ns"]) // window * window
            sent = {name: sum(link[name] for link in row["links"]) for name in ("msgs_out", "bytes_out")}
            now = {**{name: row[name] for name in COUNTERS}, **sent}
            line = table.setdefault(
                (start, node),
                {
                    "run": row["run"],
                    "start": start,
                    "window_s": window_s,
                    "node": node,
                    **dict.fromkeys(now, 0),
                    "loop_late_ms_max": 0.0,
                    "rss_bytes": 0,
                },
            )
            for name, count in now.items():
                fell = name in sent and count < before[name]
                line[name] += count if fell else count - before[name]
            line["loop_late_ms_max"] = max(line["loop_late_ms_max"], row["loop_late_ms_max"])
            line["rss_bytes"] = max(line["rss_bytes"], row["rss_bytes"])
            before = now
    for line in table.values():
        line["owed"] = line["delivered"] + line["dropped"]
    return list(table.values())


def links(stats: Stats, heard: Sequence[Row], holes: Sequence[Row]) -> list[Row]:
    """``holes`` are by the clocks of their boots."""
    table: dict[tuple[str, str, str], Row] = {}

    def line(run: str, node: str, peer: str) -> Row:
        return table.setdefault(
            (run, node, peer),
            {"run": run, "node": node, "peer": peer, "answers": 0}
            | dict.fromkeys(OF_LINK, 0 if stats.of(node) else None)
            | dict.fromkeys(("rtt_p50_us", "rtt_p99_us", "missed")),
        )

    for (node, _), rows in stats.of_boot.items():
        most: dict[tuple[str, str], int] = {}
        for row in rows:
            for link in row["links"]:
                for name in OF_LINK:
                    key = (link["peer"], name)
                    most[key] = max(most.get(key, 0), link[name])
        for (peer, name), count in most.items():
            line(rows[0]["run"], node, peer)[name] += count
    of_link: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in heard:
        of_link[row["run"], row["dst"], row["src"]].append(row)
    for key, windows in of_link.items():
        found = line(*key)
        found["answers"] = sum(row["answers"] for row in windows)
        for share, name in ((0.5, "rtt_p50_us"), (0.99, "rtt_p99_us")):
            found[name] = round_trip(windows, share)
        if any(row["first_round"] is not None for row in windows):
            found["missed"] = missed(windows, stats, holes)
    return list(table.values())


def missed(windows: Iterable[Row], stats: Stats, holes: Sequence[Row]) -> int | None:
    """Rounds that were not heard, in a window and between windows. None: in each the peer began anew, or rows
    are missing."""
    total, told = 0, False
    by_boot: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in windows:
        if row["first_round"] is not None:
            by_boot[row["boot"]][row["window"]] = row
    for own in by_boot.values():
        for number, row in own.items():
            met = stats.met[row["dst"], row["boot"], row["src"]]
            if any(ns // row["window_ns"] == number for ns in met):
                continue
            numbers = [
                range(hole["start_ns"] // row["window_ns"], hole["end_ns"] // row["window_ns"] + 1)
                for hole in holes
                if hole["boot"] == row["boot"]
            ]
            if any(number in each for each in numbers):
                continue
            told = True
            total += max(0, row["last_round"] - row["first_round"] + 1 - row["surveys"])
            before = own.get(number - 1)
            if before is not None:
                total += max(0, row["first_round"] - before["last_round"] - 1)
    return total if told else None


def round_trip(windows: Sequence[Row], share: float) -> float | None:
    """The round trip that ``share`` of them do not exceed, on a logarithmic scale between two limits."""
    counts = [0] * 15
    for row in windows:
        for place, name in enumerate(("rtt_low", "rtt_mid", "rtt_high")):
            for digit in range(5):
                counts[5 * place + digit] += row[name] // 4096**digit % 4096
    if not sum(counts):
        return None
    least = min(row["rtt_min_us"] for row in windows if row["rtt_min_us"] is not None)
    most = max(row["rtt_max_us"] for row in windows if row["rtt_max_us"] is not None)
    wanted = share * sum(counts)
    bucket = next(at for at in range(15) if counts[at] and sum(counts[: at + 1]) >= wanted)
    bottom = max(least, 1, 0 if bucket == 0 else RTT_US[bucket - 1])
    top = max(bottom, most if bucket == 14 else min(most, RTT_US[bucket]))
    inside = (wanted - sum(counts[:bucket])) / counts[bucket]
    value = math.exp(math.log(bottom) + inside * (math.log(top) - math.log(bottom)))
    return min(max(float(least), value), float(most))
