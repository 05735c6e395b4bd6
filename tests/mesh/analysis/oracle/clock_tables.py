"""The clock of every boot, from rows at both ends of a round, the slow way: paths are improved until none can
be.

Mesh time is ``mono_ns`` plus an offset for each boot and ten minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from tests.mesh.analysis.oracle.log_facts import wall_us

Row = dict[str, Any]
PIECE = 600_000_000
STEP_US = 100_000
MEETING_US = 2_000_000
Sample = tuple[str, str, int, int, int]
"""The boot that asked, the boot that answered, how much more to add to the second clock, the error, and the
moment on the first clock."""
Known = tuple[int, int | None]
"""An offset, and its error."""


class Clocks:
    """The clocks of one run. ``rows`` are those of its logs, ``heard`` is its table."""

    def __init__(self, rows: Sequence[Row], heard: Sequence[Row]) -> None:
        self.of_boot: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row["kind"] != "truth":
                self.of_boot[row["boot"]].append(row)
        self.said = {boot: [row for row in own if row["kind"] == "mem"] for boot, own in self.of_boot.items()}
        self.node = {boot: own[0]["node"] for boot, own in self.of_boot.items()}
        self.first = {boot: _ends(own)[0] for boot, own in self.of_boot.items()}
        self.last = {boot: _ends(own)[1] for boot, own in self.of_boot.items()}
        self.longest = max((self.last[boot] - self.first[boot] for boot in self.of_boot), default=0)
        self.wall = {boot: self._wall(boot) for boot in self.of_boot}
        found = list(self._samples(heard))
        self.rough = self._standing(solved(self.wall, found))
        self.pieces = self._pieces(found)

    def at(self, boot: str, ns: int) -> int:
        """A moment of a boot's clock in mesh time."""
        rough = self.rough[boot][0]
        return ns // 1000 + self.pieces[boot].get((ns // 1000 + rough) // PIECE, self.rough[boot])[0]

    def table(self) -> list[Row]:
        return [
            self._line(boot, piece, known)
            for boot, pieces in self.pieces.items()
            for piece, known in pieces.items()
        ]

    def _line(self, boot: str, piece: int, known: Known) -> Row:
        offset, error = known
        steps, walls, before = 0, [], None
        for row in sorted(_noted(self.of_boot[boot]), key=lambda row: int(row["mono_ns"])):
            ahead = wall_us(row) - row["mono_ns"] // 1000
            if (row["mono_ns"] // 1000 + self.rough[boot][0]) // PIECE == piece:
                walls.append(ahead)
                steps += before is not None and abs(ahead - before) > STEP_US
            before = ahead
        return {
            "run": self.of_boot[boot][0]["run"],
            "node": self.node[boot],
            "boot": boot,
            "start": max(piece * PIECE, self.first[boot] // 1000 + offset),
            "offset_s": offset / 1e6,
            "error_s": None if error is None else error / 1e6,
            "wall_s": ((median(walls) if walls else self.wall[boot]) - offset) / 1e6,
            "steps": steps,
        }

    def _wall(self, boot: str) -> int:
        """How far the wall clock is ahead most of the time."""
        rows = self.of_boot[boot]
        ahead = sorted(wall_us(row) - row["mono_ns"] // 1000 for row in _noted(rows))
        if ahead:
            return ahead[(len(ahead) - 1) // 2]
        return min(map(wall_us, rows)) - min(int(row["mono_ns"]) for row in rows) // 1000

    def _samples(self, heard: Iterable[Row]) -> Iterable[Sample]:
        """Samples from rounds in which one boot noted a survey and the other the answer to it."""
        asked: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for row in heard:
            if self._is_used(row, row["survey_round"]):
                asked[row["src"], row["dst"], row["survey_round"]].append(row)
        for told in heard:
            if not self._is_used(told, told["answer_round"]) or told["answer_rtt_us"] is None:
                continue
            for there in asked[told["dst"], told["src"], told["answer_round"]]:
                asker = self._met(there["boot"], there["src"], there["survey_ns"])
                answerer = self._met(told["boot"], told["src"], told["answer_ns"])
                if asker in (None, told["boot"]) and answerer in (None, there["boot"]):
                    middle = told["answer_ns"] - told["answer_rtt_us"] * 500
                    ahead = abs(middle - there["survey_ns"]) // 1000  # rounded towards zero
                    difference = ahead if middle > there["survey_ns"] else -ahead
                    yield told["boot"], there["boot"], difference, told["answer_rtt_us"] // 2 + 1, middle

    def _is_used(self, row: Row, round: int | None) -> bool:
        if round is None:
            return False
        return round < 256 or round % 64 == 0 or self.longest < 16 * row["window_ns"]

    def _met(self, boot: str, src: str, ns: int) -> str | None:
        """The boot that sent a heartbeat, according to the listener's last report of the sender."""
        met: dict[str, tuple[int, bool]] = {}
        for row in self.said[boot]:
            if row["subject"] == src:
                came = row["reason"] in ("restarted", "returned")
                there = row["from_state"] not in ("unknown", "dead", "left") and not came
                first = (row["mono_ns"], there)
                met[row["subject_boot"]] = min(met.get(row["subject_boot"], first), first)
        known = [(0 if there else at, of) for of, (at, there) in met.items() if (0 if there else at) <= ns]
        return max(known)[1] if known else None

    def _standing(self, found: Mapping[str, Known]) -> dict[str, Known]:
        """A boot without a sample uses its wall clock, corrected by the error that its other boots reveal."""
        told = {}
        for boot, known in found.items():
            wrong = sorted(
                self.wall[other] - offset
                for other, (offset, error) in found.items()
                if error is not None and self.node[other] == self.node[boot]
            )
            told[boot] = known
            if known[1] is None and wrong:
                told[boot] = (self.wall[boot] - wrong[(len(wrong) - 1) // 2], None)
        return {boot: self._met_first(boot, told) for boot in told}

    def _met_first(self, boot: str, told: Mapping[str, Known]) -> Known:
        """It met the first of the others when that one says so, even if a wall clock disagrees."""
        words = [row["mono_ns"] for row in self.said[boot] if row["subject"] != row["node"]]
        meetings = [
            row["mono_ns"] // 1000 + told[other][0]
            for other, rows in self.said.items()
            for row in rows
            if other != boot and told[other][1] is not None and row["subject_boot"] == boot
        ]
        if told[boot][1] is not None or not words or not meetings:
            return told[boot]
        offset = min(meetings) - min(words) // 1000
        return (offset, None) if abs(offset - told[boot][0]) > MEETING_US else told[boot]

    def _pieces(self, found: Sequence[Sample]) -> dict[str, dict[int, Known]]:
        by_piece: dict[int, list[Sample]] = defaultdict(list)
        for sample in found:
            by_piece[(sample[4] // 1000 + self.rough[sample[0]][0]) // PIECE].append(sample)
        rough = {boot: offset for boot, (offset, _) in self.rough.items()}
        solved_of = {piece: solved(rough, samples) for piece, samples in by_piece.items()}
        pieces: dict[str, dict[int, Known]] = {}
        for boot in self.of_boot:
            known = {
                piece: offsets[boot] for piece, offsets in solved_of.items() if offsets[boot][1] is not None
            }
            first, last = (
                (moment[boot] // 1000 + rough[boot]) // PIECE for moment in (self.first, self.last)
            )
            pieces[boot] = {}
            for piece in range(first, last + 1):
                nearest = min(known, key=lambda other: (abs(other - piece), other), default=None)
                pieces[boot][piece] = self.rough[boot] if nearest is None else known[nearest]
        return pieces


def solved(anchors: Mapping[str, int], samples: Iterable[Sample]) -> dict[str, Known]:
    """For each part: offsets along the paths with the smallest errors from the boot with the most neighbours,
    with as many clocks ahead of the whole as behind it."""
    best: dict[tuple[str, str], tuple[int, int]] = {}
    for one, other, difference, error, _ in samples:
        if one == other:
            continue
        pair, ahead = ((one, other), difference) if one < other else ((other, one), -difference)
        best[pair] = min(best.get(pair, (error, ahead)), (error, ahead))
    edges = {pair: found for pair, found in best.items()}
    edges |= {(other, one): (error, -ahead) for (one, other), (error, ahead) in best.items()}
    near = {boot: [pair[1] for pair in edges if pair[0] == boot] for boot in anchors}
    found: dict[str, Known] = {}
    for root in sorted(anchors, key=lambda boot: (-len(near[boot]), boot)):
        if root in found:
            continue
        if not near[root]:
            found[root] = (anchors[root], None)
            continue
        ways = {root: (0, 0, 0)}  # error, steps, offset
        while True:
            longer = dict(ways)
            for (one, other), (error, ahead) in edges.items():
                if one in ways and other != root:
                    way = (ways[one][0] + error, ways[one][1] + 1, ways[one][2] + ahead)
                    longer[other] = min(longer.get(other, way), way)
            if longer == ways:
                break
            ways = longer
        shifts = sorted(anchors[boot] - way[2] for boot, way in ways.items())
        shift = shifts[(len(shifts) - 1) // 2]
        found |= {boot: (way[2] + shift, way[0]) for boot, way in ways.items()}
        found[root] = (shift, min(edges[root, other][0] for other in near[root]))
    return found


def _ends(rows: Sequence[Row]) -> tuple[int, int]:
    """First and last moment of a boot's rows."""
    moments = [int(row["mono_ns"]) for row in rows]
    return min(moments), max(moments)


def _noted(rows: Iterable[Row]) -> list[Row]:
    """Rows whose wall clock is compared."""
    return [row for row in rows if row["kind"] in ("stats", "meta")]
