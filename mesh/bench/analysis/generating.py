"""Event logs of a mesh of which the truth is known, at any size, without running a broker.

Brokers stand in a ring, and each hears a survey and an answer of each of its neighbours a second. Some crash
and return, and once a part of the ring is cut off. What members say of it (`mem`), links and counters are
there too, so that every table has rows. Numbers of rows are without a gap.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

START_S: Final = 1_795_000_000
STATS_S: Final = 5
DEAD_AFTER_S: Final = 3
SETTLE_S: Final = 10
"""Nothing happens at the beginning and at the end."""
SECONDS_MIN: Final = 120


@dataclass(frozen=True, slots=True)
class Crash:
    """A broker was down from ``at`` up to ``back``, in seconds since the start."""

    broker: int
    at: int
    back: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened; ``cut_off`` heard none of the others, and none of them heard them."""

    brokers: int
    neighbours: int
    seconds: int
    crashes: tuple[Crash, ...]
    cut_off: frozenset[int]
    cut_at: int
    healed: int
    heartbeats: int = 0
    """Rows of heartbeats that were written."""


def invent(brokers: int, neighbours: int, seconds: int, seed: int) -> Truth:
    """A history: a crash for each twenty brokers, one at least, each of another broker; a cut in the middle.

    Raises:
        ValueError: the ring has not that many neighbours, or it is too short for anything to happen.
    """
    if not 2 <= neighbours < brokers or neighbours % 2:
        raise ValueError(
            f"{neighbours} neighbours of {brokers} brokers: an even number below theirs is needed"
        )
    if seconds < SECONDS_MIN:
        raise ValueError(f"{seconds} s are too short for anything to happen; {SECONDS_MIN} s it takes")
    rng = random.Random(seed)
    cut_at = seconds // 2
    healed = cut_at + min(30, seconds // 6)
    cut_off = frozenset(range(brokers // 4 or 1))
    crashes = []
    for broker in rng.sample(range(brokers), max(1, brokers // 20)):
        first = rng.random() < 0.5
        low, high = (SETTLE_S, cut_at - SETTLE_S) if first else (healed + SETTLE_S, seconds - SETTLE_S)
        at = rng.randrange(low, high - 2 * DEAD_AFTER_S)
        crashes.append(Crash(broker, at, min(high, at + rng.randint(2 * DEAD_AFTER_S, 60))))
    return Truth(brokers, neighbours, seconds, tuple(crashes), cut_off, cut_at, healed)


def write_logs(folder: Path, truth: Truth, seed: int) -> Truth:
    """One file for each boot, as the brokers would have written it; the truth with the rows counted."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(truth, seed)
    total = 0
    for broker in range(truth.brokers):
        for boot, (start, end) in enumerate(writer.lives(broker)):
            path = folder / f"{name_of(broker)}-{writer.boot(broker, boot)}-0.jsonl"
            with path.open("w", encoding="utf-8", buffering=1 << 20) as file:
                for lines, beats in writer.seconds(broker, boot, start, end):
                    file.write(lines)
                    total += beats
    return replace(truth, heartbeats=total)


def write_now(
    folder: Path, truth: Truth, seed: int, start_s: int, wait_until: Callable[[float], bool]
) -> int:
    """The same as it happens, second by second, all files growing; returns the heartbeats written.

    ``wait_until`` waits for a time of the wall clock, and says whether to go on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(truth, seed, start_s)
    total = 0
    growing: dict[Path, Iterator[tuple[str, int]]] = {}
    begins = [
        (start, broker, boot, end)
        for broker in range(truth.brokers)
        for boot, (start, end) in enumerate(writer.lives(broker))
    ]
    for second in range(truth.seconds):
        for start, broker, boot, end in begins:
            if start == second:
                path = folder / f"{name_of(broker)}-{writer.boot(broker, boot)}-0.jsonl.part"
                growing[path] = writer.seconds(broker, boot, start, end)
        if not wait_until(start_s + second + 1):
            break
        for path, seconds in list(growing.items()):
            written = next(seconds, None)
            if written is None:
                del growing[path]
                continue
            with path.open("a", encoding="utf-8") as file:
                file.write(written[0])
            total += written[1]
    return total


def name_of(broker: int) -> str:
    return f"broker-{broker + 1}"


class _Writer:
    def __init__(self, truth: Truth, seed: int, start_s: int = START_S) -> None:
        self._truth = truth
        self._start_s = start_s
        self._run = f"ring-{truth.brokers}-{truth.neighbours}-{seed}"
        rng = random.Random(seed + 1)
        self._ids = [f"{rng.getrandbits(64):016x}" for _ in range(truth.brokers)]
        self._phase_us = [rng.randrange(900_000) for _ in range(truth.brokers)]
        self._boots = [
            [f"{rng.getrandbits(64):016x}" for _ in self.lives(each)] for each in range(truth.brokers)
        ]
        self._noise = [rng.randrange(300, 1500) for _ in range(997)]
        half = truth.neighbours // 2
        steps = [step for step in range(-half, half + 1) if step]
        self._neighbours = [
            [(each + step) % truth.brokers for step in steps] for each in range(truth.brokers)
        ]

    def lives(self, broker: int) -> list[tuple[int, int]]:
        """The seconds in which it ran."""
        crash = next((crash for crash in self._truth.crashes if crash.broker == broker), None)
        if crash is None:
            return [(0, self._truth.seconds)]
        return [(0, crash.at), (crash.back, self._truth.seconds)]

    def boot(self, broker: int, number: int) -> str:
        return self._boots[broker][number]

    def seconds(self, broker: int, boot: int, start: int, end: int) -> Iterator[tuple[str, int]]:
        """The lines of each second, in the order of time, and how many of them are heartbeats."""
        head = f'{{"v":1,"run":"{self._run}","ts":"'
        of_whom = f',"node":"{self._ids[broker]}","boot":"{self.boot(broker, boot)}","inc":{boot + 1},"seq":'
        said = self._said(broker, start, end)
        middles = {
            (
                src,
                kind,
            ): f',"kind":"hb","msg":"{kind}","src":"{self._ids[src]}","dst":"{self._ids[broker]}","hb_seq":'
            for src in self._neighbours[broker]
            for kind in ("survey", "answer")
        }
        seq = 0
        for second in range(start, end):
            text = datetime.fromtimestamp(self._start_s + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            rows = [
                (us, json.dumps(row, separators=(",", ":"))[1:], True) for us, row in said.pop(second, ())
            ]
            beats = self._beats(broker, second, middles)
            lines = []
            for us, tail, spelled in sorted([*rows, *beats]):
                seq += 1
                at_ns = (second * 1_000_000 + us) * 1000
                comma = "," if spelled else ""
                lines.append(f'{head}{text}.{us:06d}Z","mono_ns":{at_ns}{of_whom}{seq}{comma}{tail}\n')
            yield "".join(lines), len(beats)

    def _beats(
        self, broker: int, second: int, middles: dict[tuple[int, str], str]
    ) -> list[tuple[int, str, bool]]:
        found = []
        for src in self._neighbours[broker]:
            if not self._hears(broker, src, second):
                continue
            trip = self._noise[(second * 31 + src * 7 + broker) % len(self._noise)]
            asked = self._phase_us[src] + trip // 2
            answered = self._phase_us[broker] + trip
            found.append((asked, f'{middles[src, "survey"]}{second},"rtt_us":null}}', False))
            found.append((answered, f'{middles[src, "answer"]}{second},"rtt_us":{trip}}}', False))
        return found

    def _hears(self, broker: int, src: int, second: int) -> bool:
        truth = self._truth
        if truth.cut_at <= second < truth.healed and (broker in truth.cut_off) != (src in truth.cut_off):
            return False
        return self._runs(src, second)

    def _runs(self, broker: int, second: int) -> bool:
        return any(start <= second < end for start, end in self.lives(broker))

    def _said(self, broker: int, start: int, end: int) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        """All but heartbeats, by the second."""
        rows: dict[int, list[tuple[int, dict[str, Any]]]] = {}

        def say(second: int, us: int, row: dict[str, Any]) -> None:
            if start <= second < end:
                rows.setdefault(second, []).append((us, row))

        about = {"name": name_of(broker), "host": name_of(broker), "pid": 1000 + broker, "version": "0.2.0"}
        times = {"period_s": 1.0, "deadline_s": 0.5, "stats_s": float(STATS_S)}
        say(
            start,
            0,
            {"kind": "meta", "op": "start", **about, **times, "url": f"tcp://10.0.0.1:{7000 + broker}"},
        )
        for number, peer in enumerate(self._neighbours[broker]):
            side = "out" if broker < peer else "in"
            say(start, 1 + number, self._link(peer, side))
        for second in range(start + STATS_S, end, STATS_S):
            say(second, 999_000, self._stats(broker, second - start))
        for subject, boot, at, back in self._losses(broker):
            say(at + DEAD_AFTER_S, 950_000, self._member(broker, subject, boot, "suspect", "dead"))
            again = boot + (self._boots[subject][boot:] != self._boots[subject][boot : boot + 1])
            say(back + 1, 100_000, self._member(broker, subject, again, "dead", "alive"))
        if end == self._truth.seconds:
            say(end - 1, 999_999, {"kind": "meta", "op": "stop", **about, **times, "reason": "leave"})
        return rows

    def _losses(self, broker: int) -> Iterator[tuple[int, int, int, int]]:
        """Whom this one held dead: who, in which boot, from when, until when."""
        truth = self._truth
        for crash in truth.crashes:
            if crash.broker != broker:
                yield crash.broker, 0, crash.at, crash.back
        for peer in range(truth.brokers):
            if (peer in truth.cut_off) != (broker in truth.cut_off) and self._runs(peer, truth.cut_at):
                yield peer, self._boot_at(peer, truth.cut_at), truth.cut_at, truth.healed

    def _boot_at(self, broker: int, second: int) -> int:
        return sum(start <= second for start, _ in self.lives(broker)) - 1

    def _link(self, peer: int, side: str) -> dict[str, Any]:
        return {"kind": "link", "peer": self._ids[peer], "dir": side, "state": "up", "reason": "admitted"}

    def _member(self, broker: int, subject: int, boot: int, before: str, after: str) -> dict[str, Any]:
        boot = min(boot, len(self._boots[subject]) - 1)
        return {
            "kind": "mem",
            "subject": self._ids[subject],
            "subject_name": name_of(subject),
            "subject_boot": self._boots[subject][boot],
            "subject_inc": boot + 1,
            "from_state": before,
            "to_state": after,
            "reason": "missed rounds" if after == "dead" else "heard again",
            "via": self._ids[broker],
        }

    def _stats(self, broker: int, age: int) -> dict[str, Any]:
        counted = {"msgs_in": age * 12, "msgs_out": age * 10, "bytes_in": age * 2400, "bytes_out": age * 2000}
        links = [
            {"peer": self._ids[peer], **counted, "dropped": 0, "lost": 0, "rtt_us": 700}
            for peer in self._neighbours[broker]
        ]
        return {
            "kind": "stats",
            "published": age * 10,
            "delivered": age * 40,
            "dropped": 0,
            "drops": {},
            "loop_late_ms_p50": 0.1,
            "loop_late_ms_max": 1.5,
            "rss_bytes": 31_000_000,
            "links": links,
        }
