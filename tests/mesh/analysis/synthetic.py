"""Event logs of an invented mesh: brokers, their faults, and the rows that each would have written.

A small model, not the product: it exists so that the expected findings are known exactly. Time is simulated
in survey rounds. The rules of membership are the mesh's: three silent rounds mean dead, a member reported
dead refutes with a higher incarnation, and a broker that hears nobody or was late itself judges nobody.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC).timestamp()
PERIOD_S = 1.0
STATS_S = 5.0
DEAD_AFTER_S = 3.3

Row = dict[str, Any]


@dataclass
class Broker:
    """One broker's fate, in seconds from the start: boots as (start, end, how), pauses as (from, to)."""

    name: str
    boots: list[tuple[float, float, str]]
    pauses: list[tuple[float, float]] = field(default_factory=list)
    clock_offset_s: float = 0.0

    @property
    def id(self) -> str:
        return f"{sum(ord(letter) << (8 * n) for n, letter in enumerate(self.name[:6])):016x}"

    def boot_at(self, now: float) -> int | None:
        """The boot that runs at a time. None while down."""
        return next((n for n, (start, end, _) in enumerate(self.boots) if start <= now < end), None)

    def runs(self, now: float) -> bool:
        paused = any(start <= now < end for start, end in self.pauses)
        return self.boot_at(now) is not None and not paused

    def boot_id(self, number: int) -> str:
        return f"{int(self.id, 16) + 1000 + number:016x}"


@dataclass
class Mesh:
    """Brokers and cuts. A cut is (from, to, names of one side)."""

    brokers: list[Broker]
    cuts: list[tuple[float, float, tuple[str, ...]]] = field(default_factory=list)
    run: str = "mangrove"

    def files(self) -> dict[str, list[Row]]:
        """Rows by file name, in the order they were written."""
        return _Writer(self).write()

    def connected(self, one: Broker, other: Broker, now: float) -> bool:
        return not any(
            start <= now < end and (one.name in side) != (other.name in side)
            for start, end, side in self.cuts
        )


class _Writer:
    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.rows: dict[tuple[str, int], list[Row]] = {}
        self.view: dict[
            tuple[str, int], dict[str, tuple[str, int]]
        ] = {}  # observer boot: subject to state, boot
        self.heard: dict[tuple[str, int], dict[str, float]] = {}
        self.ticked: dict[tuple[str, int], float] = {}
        self.inc: dict[tuple[str, int], int] = {}
        self.dead_inc: dict[tuple[str, int], int] = {}
        self.carried: dict[tuple[str, int], int] = {}

    def write(self) -> dict[str, list[Row]]:
        moments: list[tuple[float, int, str, Broker, int]] = []
        for index, broker in enumerate(self.mesh.brokers):
            for number, (start, end, how) in enumerate(broker.boots):
                moments.append((start, 0, "start", broker, number))
                moments.append((end, 3, how, broker, number))
                now = start + 0.2 + 0.13 * (index % 7)
                while now < end:
                    moments.append((now, 1, "tick", broker, number))
                    now += PERIOD_S
                now = start + STATS_S
                while now < end:
                    moments.append((now, 2, "stats", broker, number))
                    now += STATS_S
        for now, _, what, broker, number in sorted(moments, key=lambda m: (m[0], m[1], m[3].name)):
            late = next((end for start, end in broker.pauses if start <= now < end), None)
            if late is not None:
                if what != "stats":
                    continue
                self._stats(late + 0.3, broker, number, late_ms=(late - now + 0.3) * 1000)
                continue
            getattr(self, f"_{what}")(now, broker, number)
        files = {}
        for broker in self.mesh.brokers:
            for number, (_, _, how) in enumerate(broker.boots):
                rows = sorted(self.rows[broker.name, number], key=lambda row: row["ts"])
                for seq, row in enumerate(rows, 1):
                    row["seq"] = seq
                part = "" if how == "leave" else ".part"
                files[f"{broker.name}-{broker.boot_id(number)}-0.jsonl{part}"] = rows
        return files

    def _row(self, now: float, broker: Broker, number: int, kind: str, **fields: Any) -> None:
        at = START + now + broker.clock_offset_s
        self.rows.setdefault((broker.name, number), []).append(
            {
                "v": 1,
                "run": self.mesh.run,
                "ts": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "mono_ns": int(now * 1e9),
                "node": broker.id,
                "boot": broker.boot_id(number),
                "inc": self.inc.get((broker.name, number), 0),
                "seq": 0,
                "kind": kind,
                **fields,
            }
        )

    def _meta(self, now: float, broker: Broker, number: int, **fields: Any) -> None:
        about = {"name": broker.name, "host": "h", "pid": 1, "version": "0.1.0", "url": "tcp://127.0.0.1:1"}
        times = {"period_s": PERIOD_S, "deadline_s": 0.5, "stats_s": STATS_S}
        self._row(now, broker, number, "meta", **about, **times, **fields)

    def _mem(
        self, now: float, seer: Broker, number: int, subject: Broker, boot: int, to: str, why: str
    ) -> None:
        view = self.view.setdefault((seer.name, number), {})
        before = view.get(subject.name, ("unknown", boot))[0]
        if before == to and view[subject.name][1] == boot:
            return
        view[subject.name] = (to, boot)
        self._row(
            now,
            seer,
            number,
            "mem",
            subject=subject.id,
            subject_name=subject.name,
            subject_boot=subject.boot_id(boot),
            subject_inc=self.inc.get((subject.name, boot), 0),
            from_state=before,
            to_state=to,
            reason=why,
            via=seer.id,
        )

    def _start(self, now: float, broker: Broker, number: int) -> None:
        self._meta(now, broker, number, op="start")

    def _kill(self, now: float, broker: Broker, number: int) -> None:
        rows = self.rows[broker.name, number]
        flushed = datetime.fromtimestamp(START + now - 0.4 + broker.clock_offset_s, UTC)
        limit = flushed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.rows[broker.name, number] = [row for row in rows if row["ts"] <= limit]

    def _open(self, now: float, broker: Broker, number: int) -> None:
        """The logs end here while it still runs."""

    def _leave(self, now: float, broker: Broker, number: int) -> None:
        self._mem(now, broker, number, broker, number, "left", "asked to leave")
        self._stats(now + 0.001, broker, number)
        self._meta(now + 0.002, broker, number, op="stop", reason="leave")
        for other in self.mesh.brokers:
            boot = other.boot_at(now)
            if other is not broker and boot is not None and other.runs(now):
                self._mem(now + 0.01, other, boot, broker, number, "left", "said so")

    def _tick(self, now: float, broker: Broker, number: int) -> None:
        me = (broker.name, number)
        heard = self.heard.setdefault(me, {})
        late = now - self.ticked.get(me, now) > 2 * PERIOD_S
        self.ticked[me] = now
        reached = []
        round_ = int(now / PERIOD_S)
        for other in self.mesh.brokers:
            boot = other.boot_at(now)
            if other is broker or boot is None or not other.runs(now):
                continue
            if not self.mesh.connected(broker, other, now):
                continue
            reached.append(other)
            self._hear(now + 0.001, other, boot, broker, number)
            self.heard.setdefault((other.name, boot), {})[broker.name] = now
            self._row(
                now + 0.001,
                other,
                boot,
                "hb",
                msg="survey",
                src=broker.id,
                dst=other.id,
                hb_seq=round_,
                rtt_us=None,
            )
            rtt = 400 + (round_ * 37 + len(other.name) * 91) % 600
            self._row(
                now + 0.002,
                broker,
                number,
                "hb",
                msg="answer",
                src=other.id,
                dst=broker.id,
                hb_seq=round_,
                rtt_us=rtt,
            )
            link = (broker.name, int(other.id, 16))
            self.carried[link] = self.carried.get(link, 0) + 10
        if late or not reached:  # a void round judges nobody
            for name in heard:
                heard[name] = now
            return
        for other in self.mesh.brokers:
            state, boot = self.view.get(me, {}).get(other.name, ("unknown", 0))
            if (
                state in ("alive", "suspect")
                and other is not broker
                and now - heard.get(other.name, now) > DEAD_AFTER_S
            ):
                self._mem(now, broker, number, other, boot, "dead", "three rounds missed")
                key = (other.name, boot)
                self.dead_inc[key] = self.inc.get(key, 0)

    def _hear(self, now: float, seer: Broker, number: int, subject: Broker, boot: int) -> None:
        """A survey from a member that was believed dead comes with its refutation."""
        key = (subject.name, boot)
        held = self.view.get((seer.name, number), {}).get(subject.name)
        if held == ("dead", boot) and self.inc.get(key, 0) <= self.dead_inc.get(key, -1):
            self.inc[key] = self.dead_inc[key] + 1
        self._mem(now, seer, number, subject, boot, "alive", "heard")

    def _stats(self, now: float, broker: Broker, number: int, late_ms: float = 0.4) -> None:
        links = [
            {
                "peer": other.id,
                "msgs_in": self.carried.get((other.name, int(broker.id, 16)), 0),
                "msgs_out": self.carried.get((broker.name, int(other.id, 16)), 0),
                "bytes_in": 128 * self.carried.get((other.name, int(broker.id, 16)), 0),
                "bytes_out": 128 * self.carried.get((broker.name, int(other.id, 16)), 0),
                "dropped": 0,
                "lost": 0,
                "rtt_us": 500,
            }
            for other in self.mesh.brokers
            if other is not broker
        ]
        up_s = now - broker.boots[number][0]
        self._row(
            now,
            broker,
            number,
            "stats",
            published=int(20 * up_s),
            delivered=int(100 * up_s),
            dropped=int(up_s // 10),
            loop_late_ms_p50=0.2,
            loop_late_ms_max=round(late_ms, 3),
            rss_bytes=48 << 20,
            links=links,
            drops={"no credit": int(up_s // 10)},
        )


def write_logs(mesh: Mesh, folder: Path) -> None:
    """Write logs as brokers would: one row on each line, the last one of a killed broker cut off."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in mesh.files().items():
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        if name.endswith(".part"):
            text += '{"v":1,"run":"mangrove","ts":"2026-11-2'
        (folder / name).write_text(text)


def shuffle_logs(source: Path, target: Path, seed: int) -> None:
    """The same rows in other files, in another order, some of them twice, some files open."""
    rng = random.Random(seed)
    target.mkdir(parents=True, exist_ok=True)
    lines = [
        line
        for path in sorted(source.iterdir())
        for line in path.read_text().splitlines()
        if line.endswith("}")
    ]
    lines += rng.sample(lines, len(lines) // 5)
    rng.shuffle(lines)
    for number in range(7):
        suffix = ".part" if number % 2 else ""
        (target / f"piece-{number}.jsonl{suffix}").write_text("\n".join(lines[number::7]) + "\n\n")


def demo_mesh() -> Mesh:
    """The events of the demonstration: one kill and restart, one pause, five leaves."""
    return Mesh(
        [
            Broker("alpha", [(0.0, 40.0, "leave")]),
            Broker("beta", [(0.4, 10.3, "kill"), (14.1, 40.6, "leave")]),
            Broker("gamma", [(0.8, 41.1, "leave")]),
            Broker("delta", [(1.2, 41.7, "leave")], pauses=[(21.4, 28.4)]),
            Broker("epsilon", [(1.6, 42.2, "leave")]),
        ]
    )


def split_mesh() -> Mesh:
    """Two against three from 15.3 s to 34.7 s. Clocks differ, and one broker never leaves."""
    return Mesh(
        [
            Broker("alpha", [(0.0, 60.0, "open")]),
            Broker("beta", [(0.3, 60.0, "leave")], clock_offset_s=0.05),
            Broker("gamma", [(0.6, 60.0, "leave")], clock_offset_s=-0.08),
            Broker("delta", [(0.9, 60.0, "leave")]),
            Broker("epsilon", [(1.2, 60.0, "leave")]),
        ],
        cuts=[(15.3, 34.7, ("alpha", "beta"))],
        run="split",
    )
