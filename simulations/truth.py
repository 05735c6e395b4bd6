"""What really happened, beside what the brokers wrote: logs of a simulated mesh in files, and rows of kind
``truth``.

The brokers of a simulation write the event log they always write, onto virtual disks; `write_logs` copies it
to a folder of the real one. What was done to them goes to ``truth-*.jsonl``, in rows of the same schema, so
that an analysis can be judged by it (and must not read it).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from simulations.storage import LOG_FOLDER
from simulations.world import EPOCH_S, World

WRITER: Final = f"{1:016x}"
"""The id of the simulator among ids of brokers, which are random."""


def truth_rows(world: World, *, run: str, scenario: str) -> Iterator[dict[str, Any]]:
    """A row for everything that was done, in order; ``a`` and ``b`` are names joined by commas."""
    lives: dict[str, int] = {}
    for seq, (at_s, fault) in enumerate(world.faults, 1):
        op = fault.kind
        there = fault.b
        if fault.kind == "start":
            if all(name in lives for name in fault.a):
                op = "restart"
            lives.update(dict.fromkeys(fault.a, 1))
        if fault.kind == "partition":
            op = "cut"
            there = there or tuple(name for name in world.network.hosts if name not in fault.a)
        yield {
            "v": 1,
            "run": run,
            "ts": datetime.fromtimestamp(EPOCH_S + at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "mono_ns": round(at_s * 1e9),
            "node": WRITER,
            "boot": WRITER,
            "inc": 0,
            "seq": seq,
            "kind": "truth",
            "op": op,
            "a": ",".join(fault.a),
            "b": ",".join(there),
            "value": fault.value,
            "scenario": scenario,
            "seed": world.seed,
        }


def log_files(world: World) -> dict[str, bytes]:
    """The event log files of all hosts, by name; names hold the writer's boot, so they differ."""
    files: dict[str, bytes] = {}
    for host in world.network.hosts:
        for path, content in world.disk(host).under(LOG_FOLDER).items():
            files[os.path.basename(path)] = content
    return files


def log_rows(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """All whole rows by time, with ``at_s``, the time since the run began; lines torn by a crash, and those
    that flipped bits made senseless, are left out.
    """
    rows: list[dict[str, Any]] = []
    for content in files.values():
        for line in content.split(b"\n"):
            try:
                row = json.loads(line)
                row["at_s"] = datetime.fromisoformat(row["ts"]).timestamp() - EPOCH_S
            except (ValueError, TypeError, KeyError):
                continue
            rows.append(row)
    return sorted(rows, key=lambda row: float(row["at_s"]))


def write_logs(world: World, folder: str, *, run: str, scenario: str) -> int:
    """Copy the logs and the truth to a folder of the real disk; returns how many files were written.

    Raises:
        OSError: the folder cannot be made or written.
    """
    os.makedirs(folder, exist_ok=True)
    files = log_files(world)
    truth = "".join(json.dumps(row) + "\n" for row in truth_rows(world, run=run, scenario=scenario))
    files[f"truth-{scenario}-{world.seed}.jsonl"] = truth.encode()
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    return len(files)
