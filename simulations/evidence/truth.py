"""Writes the logs of a simulated mesh to files, together with the true events in rows of kind ``truth``.

The brokers of a simulation write their usual event log onto virtual disks. A `LogWriter` copies it to a real
folder during the run, so that it can be followed, and an interrupted run leaves what it had. The faults done
to them go to ``truth-*.jsonl``, in rows of the same schema. They serve to judge an analysis, which must not
read them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from mesh.eventlog.rows import TruthRow
from simulations.faults import KINDS, Fault, Span
from simulations.kernel.file_content import FileContent
from simulations.kernel.storage import LOG_FOLDER
from simulations.world import EPOCH_S, Process, World

WRITER: Final = f"{1:016x}"
"""The simulator's id among ids of brokers, which are random."""
GROWING: Final = ".part"
"""The end of the name of a log that its broker still writes."""
ENDED: Final = "ended"
"""The ``op`` of the end of a process. ``of`` is ``stop`` if it had been asked to end, otherwise ``crash``."""


class Truth:
    """Rows of the truth: one for each fault, one for each end of a lasting fault, and one for each end of a
    process.
    """

    def __init__(self, world: World, *, run: str, scenario: str) -> None:
        self._world = world
        self._run = run
        self._scenario = scenario
        self._seq = 0
        self._faults = 0
        self._spans = 0
        self._lasting: list[Span] = []
        self._lives: dict[str, int] = {}
        self._processes = 0
        self._alive: list[Process] = []

    def rows(self) -> Iterator[TruthRow]:
        """The rows since the last call, in order.

        ``op`` is the kind of fault, ``end`` with the kind in ``of``, or `ENDED`; ``a`` and ``b`` are names
        joined by commas.
        """
        world = self._world
        self._lasting += world.ongoing.spans[self._spans :]
        self._spans = len(world.ongoing.spans)
        ended = [span for span in self._lasting if span.end_s is not None]
        self._lasting = [span for span in self._lasting if span.end_s is None]
        begun = [(at_s, self._op(fault), fault) for at_s, fault in world.faults[self._faults :]]
        self._faults = len(world.faults)
        ends = [(span.end_s or 0.0, "end", span.fault) for span in ended]
        over = self._ended()
        again = {(at_s, name) for at_s, _, fault in over for name in fault.a}

        def place(each: tuple[float, str, Fault]) -> tuple[float, bool]:
            """The fault that killed a process comes before its end, and its next life after it."""
            at_s, _, fault = each
            return at_s, fault.kind == "start" and any((at_s, name) in again for name in fault.a)

        for at_s, op, fault in sorted([*ends, *begun, *over], key=place):
            self._seq += 1
            yield self._row(at_s, op, fault)

    def _ended(self) -> list[tuple[float, str, Fault]]:
        self._alive += self._world.processes[self._processes :]
        self._processes = len(self._world.processes)
        over = [(each.ended_s, each) for each in self._alive if each.ended_s is not None]
        self._alive = [each for each in self._alive if each.ended_s is None]
        return [
            (at_s, ENDED, Fault(at_s, "stop" if each.stopping.is_set() else "crash", (each.name,)))
            for at_s, each in over
        ]

    def _op(self, fault: Fault) -> str:
        if fault.kind == "partition":
            return "cut"
        if fault.kind != "start":
            return fault.kind
        again = all(name in self._lives for name in fault.a)
        self._lives.update(dict.fromkeys(fault.a, 1))
        return "restart" if again else "start"

    def _row(self, at_s: float, op: str, fault: Fault) -> TruthRow:
        fault = KINDS[fault.kind].between(fault, self._world.network.hosts)
        return TruthRow(
            v=1,
            run=self._run,
            ts=datetime.fromtimestamp(EPOCH_S + at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            mono_ns=round(at_s * 1e9),
            node=WRITER,
            boot=WRITER,
            inc=0,
            seq=self._seq,
            op=op,
            of=fault.kind,
            a=",".join(fault.a),
            b=",".join(fault.b),
            value=fault.value,
            for_s=fault.for_s,
            more=dict(fault.more),
            scenario=self._scenario,
            seed=self._world.seed,
        )


def log_contents(world: World) -> dict[str, FileContent]:
    """The event log files of all hosts, by name. Names hold the writer's boot, so they differ."""
    files: dict[str, FileContent] = {}
    for host in world.network.hosts:
        disk = world.disk(host)
        for path in disk.paths_under(LOG_FOLDER):
            files[os.path.basename(path)] = disk.files[path].content
    return files


def log_files(world: World) -> dict[str, bytes]:
    """The same as bytes."""
    return {name: bytes(content) for name, content in log_contents(world).items()}


class LogWriter:
    """Copies the logs of a world and its truth to a folder of the real disk.

    Raises:
        OSError: the folder cannot be made or written; `write` and `finish` may raise it too.
    """

    def __init__(self, world: World, folder: str, *, run: str, scenario: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._world = world
        self._folder = folder
        self._truth = Truth(world, run=run, scenario=scenario)
        self._truth_path = os.path.join(folder, f"truth-{scenario}-{world.seed}.jsonl")
        self._copied: dict[str, int] = {}
        with open(self._truth_path, "wb"):
            pass  # of another run of the same name

    def write(self) -> None:
        """Add what has been written and done since the last call."""
        for host in self._world.network.hosts:
            disk = self._world.disk(host)
            for path in disk.paths_under(LOG_FOLDER):
                self._copy(os.path.basename(path), disk.files[path].content)
        with open(self._truth_path, "ab") as file:
            file.writelines(msgspec.json.encode(row) + b"\n" for row in self._truth.rows())

    def finish(self) -> int:
        """The run is over: make the copies equal the files on the disks; return how many there are.

        Faults may have removed or changed what was copied before.
        """
        self.write()
        files = log_contents(self._world)
        for name in self._copied:
            if name not in files:
                os.unlink(os.path.join(self._folder, name))
        for name, content in files.items():
            with open(os.path.join(self._folder, name), "wb") as file:
                file.writelines(content.pieces())
        return len(files) + 1

    def _copy(self, name: str, content: FileContent) -> None:
        path = os.path.join(self._folder, name)
        growing = name + GROWING
        if growing in self._copied and name not in self._copied:
            self._copied[name] = self._copied.pop(growing)
            os.rename(os.path.join(self._folder, growing), path)
        copied = self._copied.get(name, 0)
        if copied == len(content) and name in self._copied:
            return
        with open(path, "r+b" if name in self._copied else "wb") as file:
            start = min(copied, len(content))  # the end of a file may be torn off
            file.truncate(start)
            file.seek(start)
            file.writelines(content.pieces(start))
        self._copied[name] = len(content)
