"""A world of processes on hosts, run in virtual time from one seed.

`World` owns the clock, the network, the disks and the fault schedule, and decides whose turn it is. The
processes that take the turns are in `simulations.world.processes`.

All randomness comes from streams named ``seed:stream:place``, so one more draw in one place does not
reshuffle the rest. Every turn, arrival and fault goes into the run's `History`: two runs of one seed have one
hash.

The world is a context manager. Inside, the fence of `simulations.kernel.guards` is up, and the garbage
collector runs only at fixed points, since finalisers run code. At the end the dead processes are taken apart.
"""

from __future__ import annotations

import asyncio
import gc
import random
import re
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import inf
from types import TracebackType
from typing import Final, Self

from simulations import faults
from simulations.faults import Fault
from simulations.kernel.guards import Fence
from simulations.kernel.history import History
from simulations.kernel.huge_pages import HugePages
from simulations.kernel.loop import outside_of_loops
from simulations.kernel.masks import drawn_masks
from simulations.kernel.network import LAN, LinkQuality, Network
from simulations.kernel.scheduler import SECOND, Scheduler, nanoseconds
from simulations.kernel.storage import Disk
from simulations.kernel.waiting import waits
from simulations.world.clocks import EPOCH_S, WallClock
from simulations.world.failures import Failure, ProgramFailed
from simulations.world.processes import Main, Node, NodeState, Process

ADDRESS: Final = re.compile(r"\bat 0x[0-9a-f]+")
"""Addresses of objects, which differ between two equal runs."""
COLLECT_EVERY: Final = 20_000
"""Events between two garbage collections."""
LOOK_AT_ALL_EVERY: Final = 50
"""Worlds of one process between two collections of all objects outside worlds."""
COLLECTIONS_YOUNG: Final = 64
"""How many of these collections pass until one checks all objects: at 100 brokers that takes half a
second.
"""


class Deadlock(RuntimeError):
    """Nothing will ever happen again, and a condition is still waited for."""


class ConditionNotMet(TimeoutError):
    """The condition did not become true in time."""


_unchecked = 0
"""How many worlds began since all objects of this process were last checked."""
_last: weakref.ref[World] | None = None
"""The last world of this process, if it still exists."""


def _freeze_old_objects() -> None:
    """Exclude older objects from collections in a new world.

    These are modules, and the objects of a program with many worlds, such as pytest. Checking a million
    objects takes 0.2 s each time. A frozen object that is dropped later and is in a cycle is not collected
    before the next check of everything. So nothing is frozen while the previous world still exists, and what
    is frozen stays so.
    """
    global _unchecked
    _unchecked += 1
    if _last is not None and _last() is not None:
        gc.collect()
        return
    if _unchecked >= LOOK_AT_ALL_EVERY:
        gc.unfreeze()
        _unchecked = 0
    gc.collect()
    gc.freeze()


class World:
    """The whole world. Use it as a context manager, add nodes, then let time pass by `run_for` and
    `run_until`.

    A program that fails unhandled ends the test at once: the call that lets time pass raises `ProgramFailed`,
    and so does leaving the world. A failure that was raised is no longer in ``failures``.

    Args:
        chunked: let every read end at a random boundary.
        permuted: serve sockets that are ready in one turn of an event loop in a random order.
        keep_history: keep the lines of the history, to find where two runs diverge.
        keep_failures: let time pass in spite of failures; they stay in ``failures``.
    """

    def __new__(cls, *_: object, **__: object) -> Self:
        """Freeze older objects before the world exists: it would be frozen with them, and never collected."""
        global _last
        if not gc.isenabled():  # inside another world
            return super().__new__(cls)
        _freeze_old_objects()
        world = super().__new__(cls)
        _last = weakref.ref(world)
        return world

    def __init__(
        self,
        seed: int,
        *,
        quality: LinkQuality = LAN,
        chunked: bool = False,
        permuted: bool = False,
        keep_history: bool = False,
        keep_failures: bool = False,
    ) -> None:
        self.seed = seed
        self.chunked = chunked
        self.permuted = permuted
        self.keep_failures = keep_failures
        self.scheduler = Scheduler()
        self.history = History(keep=keep_history)
        self.network = Network(self.scheduler, seed, history=self.history, quality=quality)
        self.fence = Fence()
        self.nodes: dict[str, Node] = {}
        self.processes: list[Process] = []
        """All lives, in order of birth."""
        self.failures: list[Failure] = []
        """Unhandled failures that were not raised yet."""
        self.faults: list[tuple[float, Fault]] = []
        """The faults as they were done, with their times."""
        self.ongoing = faults.Ongoing(self)
        self.on_second: Callable[[float], None] | None = None
        """Called at every virtual second, when all that is due by then is done."""
        self._disks: dict[str, Disk] = {}
        self._wall_clocks: dict[str, WallClock] = {}
        self._drifts_ppb: dict[str, int] = {}
        self._pids = 0
        self._next_second_ns = SECOND
        self._next_collection = COLLECT_EVERY
        self._collections = 0
        self._huge_pages = HugePages()
        self._over = False
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._exit.enter_context(self.fence.patched())
        self._exit.enter_context(drawn_masks(random.Random(f"{self.seed}:masks")))
        if gc.isenabled():
            gc.collect()
            gc.disable()
            self._exit.callback(gc.enable)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.collect()  # the finaliser of a task that failed unseen reports it
        self._over = True
        try:
            for process in self.processes:
                process.over()
            self.scheduler.clear()
            for process in self.processes:
                process.loop.dispose()
        finally:
            self._exit.close()
        if error is None:
            self._raise_failures()

    def _raise_failures(self) -> None:
        """Raise `ProgramFailed` for failures since the last time."""
        if self.failures and not self.keep_failures:
            failures = [*self.failures]
            self.failures.clear()
            raise ProgramFailed(failures) from failures[0].exception

    # --- building

    def add_node(self, name: str, main: Main, *, host: str | None = None, once: bool = False) -> Node:
        """Add a program, on a new host or an existing one, without starting it.

        ``once``: `heal` does not start it again.
        """
        if name in self.nodes:
            raise ValueError(f"there is a process {name} already")
        host_name = host or name
        found = self.network.hosts.get(host_name) or self.network.add_host(host_name)
        node = self.nodes[name] = Node(self, name, found, main, once=once)
        return node

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            raise ValueError(f"there is no process {name!r} in this world; there are {', '.join(self.nodes)}")
        return self.nodes[name]

    def disk(self, host: str) -> Disk:
        """The disk of a host, which survives everything but may be damaged."""
        if host not in self._disks:
            self._disks[host] = Disk(random.Random(f"{self.seed}:disk:{host}"))
        return self._disks[host]

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    # --- time

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self.scheduler.now_ns / SECOND

    def wall_time(self, host: str | None = None) -> float:
        """Seconds since the epoch, by a host's wall clock or by the true one."""
        clock = self._wall_clocks.get(host) if host else None
        return EPOCH_S + self.now_s + (clock.off_by(self.now_s) if clock else 0.0)

    def wall_clock(self, host: str) -> WallClock:
        return self._wall_clocks.setdefault(host, WallClock())

    def drift_ppb(self, host: str) -> int:
        """The drift of a host's monotonic clocks, in addition to that of each clock."""
        return self._drifts_ppb.get(host, 0)

    def set_drift(self, host: str, ppb: int) -> None:
        self._drifts_ppb[host] = ppb
        for node in self.nodes.values():
            if node.host.name == host and node.process is not None and node.process.alive:
                node.process.drift(ppb)

    def run_for(self, seconds: float) -> None:
        """Let so much time pass.

        Raises:
            ProgramFailed: a program failed unhandled.
            ValueError: the time cannot pass.
        """
        if not 0 <= seconds < inf:
            raise ValueError(f"{seconds} s cannot pass; name a time from 0 on")
        self._run_to(self.scheduler.now_ns + nanoseconds(seconds))

    def run_until(
        self,
        condition: Callable[[], bool],
        *,
        timeout_s: float,
        what: str = "a condition",
        poll_s: float = 0.01,
    ) -> float:
        """Let time pass until the condition holds; it is checked every ``poll_s``. Returns the seconds that
        took.

        Raises:
            Deadlock: nothing is scheduled any more.
            ProgramFailed: a program failed unhandled.
            ConditionNotMet: it did not hold within ``timeout_s``.
            ValueError: the times are invalid.
        """
        if not 0 <= timeout_s < inf:
            raise ValueError(f"{timeout_s} s cannot pass; name a timeout from 0 on")
        if not 1 / SECOND <= poll_s < inf:
            raise ValueError(f"cannot check every {poll_s} s; name a pause from a nanosecond on")
        start_ns = self.scheduler.now_ns
        end_ns = start_ns + nanoseconds(timeout_s)
        while not condition():
            if self.scheduler.next_ns is None:
                raise Deadlock(
                    f"nothing can happen any more, and {what} is still waited for: {self.waiting()}"
                )
            if self.scheduler.now_ns >= end_ns:
                raise ConditionNotMet(
                    f"{what} did not come about within {timeout_s:g} s (at {self.now_s:.3f} s)"
                )
            self._run_to(min(self.scheduler.now_ns + nanoseconds(poll_s), end_ns))
        return (self.scheduler.now_ns - start_ns) / SECOND

    def _run_to(self, end_ns: int) -> None:
        scheduler = self.scheduler
        while True:
            stop_ns = min(end_ns, self._next_second_ns)
            with outside_of_loops():
                scheduler.run_to(stop_ns, self._next_collection)
            self.history.settle()
            if scheduler.events >= self._next_collection:
                self._collect()
                continue
            scheduler.advance_to(stop_ns)
            if stop_ns == self._next_second_ns:
                self._second_passed()
            if stop_ns == end_ns:
                return

    def _collect(self) -> None:
        """Collect garbage at fixed numbers of events; older objects now and then, since connections grow
        old.
        """
        self._next_collection += COLLECT_EVERY
        self._collections += 1
        gc.collect(1 if self._collections % COLLECTIONS_YOUNG else 2)
        self._huge_pages.look()

    def _second_passed(self) -> None:
        self._next_second_ns += SECOND
        if self.on_second is not None:
            self.on_second(self.now_s)

    def waiting(self) -> str:
        """A text: what each task of each living process waits for, and which processes are down."""
        lines = []
        for node in self.nodes.values():
            if node.process is not None and node.process.alive:
                tasks = sorted(asyncio.all_tasks(node.process.loop), key=hash)
                state = " (paused)" if node.paused else ""
                lines.append(f"{node.name}{state}: " + (", ".join(map(waits, tasks)) or "no task"))
        down = [node.name for node in self.nodes.values() if node.lives and not node.alive]
        if down:
            lines.append(f"down: {', '.join(down)}")
        return "; ".join(lines) or "no process was ever started"

    # --- faults

    def schedule(self, plan: Iterable[Fault]) -> None:
        """Apply the faults at their times."""
        for fault in plan:
            self.scheduler.at(nanoseconds(fault.at_s), faults.apply, self, fault)

    def inject(
        self,
        kind: str,
        a: Iterable[str] | str = (),
        b: Iterable[str] | str = (),
        value: float | None = None,
        *,
        for_s: float | None = None,
        **more: float | str,
    ) -> None:
        """Apply a fault now, to one or several by name; if ``value`` is None, the kind's own is used.

        Raises:
            ValueError: there is no such kind or target, or a number is out of range.
        """
        one, other = ((side,) if isinstance(side, str) else tuple(side) for side in (a, b))
        fault = Fault(self.now_s, kind, one, other, for_s, value, tuple(sorted(more.items())))
        faults.apply(self, fault)

    def heal(self) -> None:
        """Undo all lasting faults, and start what is down."""
        self.ongoing.end_if(lambda kind, fault: True)
        self.inject("heal")
        down = [
            node.name
            for node in self.nodes.values()
            if node.lives and node.state is NodeState.DOWN and not node.once
        ]
        if down:
            self.inject("start", down)

    def note(self, fault: Fault) -> None:
        """Record that this fault is being applied."""
        self.faults.append((self.now_s, fault))
        self.history.record(self.scheduler.now_ns, "world", "fault", str(fault))

    def power_off(self, host: str) -> None:
        """Take a host's power: its processes end, nobody is told, and unsynced bytes may be gone."""
        if host not in self.network.hosts:
            raise ValueError(
                f"there is no host {host!r} in this world; there are {', '.join(self.network.hosts)}"
            )
        found = self.network.hosts[host]
        found.powered = False
        self.network.lose_sockets(found)
        for node in self.nodes.values():
            if node.host is found and node.process is not None and node.process.alive:
                node.process.over()
        self.disk(host).lose_power()

    def fail(self, process: str, message: str, exception: BaseException | None = None) -> None:
        """An unhandled failure; those in the clean-up after the run do not count."""
        if self._over:
            return
        self.failures.append(Failure(self.now_s, process, message, exception))
        if not self.keep_failures:
            # A separate action, since this is called from within the loops of processes.
            self.scheduler.after(0, self._raise_failures)
        kind = "" if exception is None else type(exception).__name__
        self.history.record(self.scheduler.now_ns, process, "failure", ADDRESS.sub("at ...", message), kind)
