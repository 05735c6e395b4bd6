"""A world of processes on hosts, run in virtual time from one seed.

A `Node` is a program with a name; each time it is started it lives as a new `Process` with an event loop,
sockets and storage of its own. `World` owns the clock, the network, the disks and the fault schedule, and
decides whose turn it is.

Everything random comes from streams named ``seed:stream:place``, so one more draw in one place does not
reshuffle the rest. Every turn, arrival and fault goes into the run's `History`: two runs of one seed have one
hash.

The world is a context manager: inside, the fence of `simulations.kernel.guards` is up and the garbage
collector runs only at fixed points, since finalisers run code; at the end the dead processes are taken apart.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from types import TracebackType
from typing import Any, Final, Self

from simulations import faults
from simulations.faults import Fault
from simulations.kernel.connections import ProcessLoop
from simulations.kernel.guards import Escaped, Fence
from simulations.kernel.history import History
from simulations.kernel.loop import outside_of_loops
from simulations.kernel.network import LAN, Host, LinkQuality, Network
from simulations.kernel.scheduler import SECOND, Scheduler, nanoseconds
from simulations.kernel.storage import Disk, VirtualStorage
from simulations.kernel.waiting import waits

EPOCH_S: Final = 1_767_225_600.0
"""When every run begins by the wall clock: the first second of 2026, UTC."""
ADDRESS: Final = re.compile(r"\bat 0x[0-9a-f]+")
"""Where an object is differs between two equal runs."""
COLLECT_EVERY: Final = 20_000
"""Events between two collections of garbage."""
COLLECTIONS_YOUNG: Final = 64
"""The last of so many of them looks at all objects: at 100 brokers that takes half a second."""
JOB_NS: Final = (50_000, 500_000)
CLOCK_OFFSET_MAX_S: Final = 10_000
DRIFT_MAX_PPB: Final = 50_000

Main = Callable[["Process"], Coroutine[Any, Any, None]]


class Deadlock(RuntimeError):
    """Nothing will ever happen again, and something is still waited for."""


class ConditionNotMet(TimeoutError):
    """What was waited for did not come true in time."""


@dataclass(slots=True)
class Settings:
    """What faults have changed of a program's settings, from its next life on."""

    join: tuple[str, ...] | None = None
    """Addresses to join by, instead of the program's own."""
    times: float = 1.0
    """How many times the usual its period and deadline are."""
    versions_ahead: int = 0
    """By how many its version of the link is ahead of the usual."""


@dataclass(slots=True)
class WallClock:
    """A host's wall clock: how far it is off, and how fast that grows."""

    offset_s: float = 0.0
    drift_ppm: float = 0.0
    since_s: float = 0.0

    def off_by(self, now_s: float) -> float:
        return self.offset_s + (now_s - self.since_s) * self.drift_ppm * 1e-6

    def set_drift(self, ppm: float, now_s: float) -> None:
        """It goes on from where it stands."""
        self.offset_s, self.since_s, self.drift_ppm = self.off_by(now_s), now_s, ppm


class NodeState(StrEnum):
    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Failure:
    """A process ended by an exception, a task died unseen, a callback raised, or code reached for the real
    world.
    """

    t_s: float
    process: str
    message: str
    exception: BaseException | None = None

    def __str__(self) -> str:
        reason = ""
        if self.exception is not None:
            reason = f": {type(self.exception).__name__}: {self.exception}{_raised_at(self.exception)}"
        return f"at {self.t_s:.6f} s {self.process}: {self.message}{reason}"


def _raised_at(error: BaseException) -> str:
    """The line where it was raised, if that is known; the fence's errors name the one that counts."""
    trace = error.__traceback__
    if trace is None or isinstance(error, Escaped):
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"


class Process:
    """One life of a node, which its main coroutine is given. It is over when that returns, or when it is
    killed.
    """

    def __init__(self, world: World, node: Node, life: int) -> None:
        self.world = world
        self.node = node
        self.name = node.name
        self.life = life
        self.host = node.host
        self.network = world.network
        self.fence = world.fence
        self.history = world.history
        self.alive = True
        self.ended_s: float | None = None
        self.pid = 1000 + world.next_pid()
        self.rng = self.stream("node")
        self.storage = VirtualStorage(world.disk(node.host.name), world.scheduler, self.pid)
        self.stopping = asyncio.Event()
        """Set when the process is asked to end (SIGTERM)."""
        self.asked_to_end = False
        """The same as seen from outside: it may be paused, and not know yet."""
        self.exposed: Any = None
        """What main wants the scenario to see: its broker, its counters."""
        self._when_over: list[Callable[[], None]] = []
        self._wall_clock = world.wall_clock(node.host.name)
        clock = self.stream("clock")
        offset_ns = clock.randrange(CLOCK_OFFSET_MAX_S) * SECOND
        self._drift_ppb = clock.randint(-DRIFT_MAX_PPB, DRIFT_MAX_PPB)
        self.loop = ProcessLoop(
            world.scheduler,
            self,
            chunk_rng=self.stream("chunks") if world.chunked else None,
            clock_offset_ns=offset_ns,
            drift_ppb=self._drift_ppb + world.drift_ppb(node.host.name),
        )
        self._job_rng = self.stream("jobs")
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The host's address, e.g. 10.0.0.3."""
        return self.host.address

    def stream(self, name: str) -> random.Random:
        """A random stream of this life of this process."""
        return random.Random(f"{self.world.seed}:{name}:{self.name}:{self.life}")

    def wall_time(self) -> float:
        """Seconds since the epoch by the host's wall clock."""
        clock, now_s = self._wall_clock, self.loop.scheduler.now_ns / SECOND
        if clock.drift_ppm:
            return EPOCH_S + now_s + clock.off_by(now_s)
        return EPOCH_S + now_s + clock.offset_s  # each row of a log asks

    def drift(self, ppb: int) -> None:
        """Let the monotonic clock gain so much on top of what it gains by itself."""
        self.loop.set_drift(self._drift_ppb + ppb)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call it right after this life has ended, in whatever way."""
        self._when_over.append(callback)

    # --- what the loop asks and tells (connections.NetworkedMachine)

    def failed(self, context: dict[str, Any]) -> None:
        self.world.fail(self.name, str(context.get("message")), context.get("exception"))

    def exits(self, error: SystemExit) -> None:
        if error.code:
            self.world.fail(self.name, f"the program called sys.exit({error.code!r})", error)
        self.network.close_sockets(self)
        self.over()
        self.world.history.record(self.world.scheduler.now_ns, self.name, "exit", "")

    def job_ns(self) -> int:
        return self._job_rng.randint(*JOB_NS)

    # --- life

    def begin(self) -> None:
        # Kept, as asyncio.run does: a task that only what it waits for knows would be collected.
        self._task = Context().run(self.loop.create_task, self._live(), name=f"{self.name}: main")

    async def _live(self) -> None:
        """As ``asyncio.run``: main, then an end for every task it left, which is also reported."""
        try:
            await self.node.main(self)
        except (Exception, asyncio.CancelledError) as error:  # `asyncio.run` would raise either
            self.world.fail(self.name, "main ended by an exception", error)
        me = asyncio.current_task()
        left = sorted((task for task in asyncio.all_tasks() if task is not me), key=hash)
        for task in left:
            self.world.fail(self.name, f"main left a task behind: {waits(task)}")
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        self.world.scheduler.after(0, self._exited)

    def _exited(self) -> None:
        if self.alive:
            self.network.close_sockets(self)
            self.over(killed=False)
            self.world.history.record(self.world.scheduler.now_ns, self.name, "exit", "")

    def over(self, *, killed: bool = True) -> None:
        """Nothing of this process runs any more. Its sockets are the caller's business."""
        if self.alive:
            self.ended_s = self.world.now_s
            for callback in self._when_over:
                self.world.scheduler.after(0, callback)
        self.alive = False
        self.loop.kill(silent=killed)
        self.storage.kill()


class Node:
    """A program with a name on a host, which can be started, killed and started again."""

    def __init__(self, world: World, name: str, host: Host, main: Main, *, once: bool = False) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.main = main
        self.once = once
        """It came with a fault, so no heal starts it again."""
        self.settings = Settings()
        self.lives = 0
        self.process: Process | None = None

    @property
    def state(self) -> NodeState:
        if self.process is None or not self.process.alive:
            return NodeState.DOWN
        return NodeState.PAUSED if self.process.loop.paused else NodeState.RUNNING

    @property
    def running(self) -> bool:
        return self.state is NodeState.RUNNING

    @property
    def paused(self) -> bool:
        return self.state is NodeState.PAUSED

    @property
    def alive(self) -> bool:
        """Running or paused."""
        return self.state is not NodeState.DOWN

    @property
    def exposed(self) -> Any:
        """What the main coroutine of the present life has exposed; None if it has not, or there is none."""
        return self.process.exposed if self.process is not None and self.process.alive else None

    def start(self) -> None:
        """Begin a life, on a host that is powered on where needed."""
        if self.state is not NodeState.DOWN:
            raise ValueError(f"process {self.name} is {self.state} already")
        self.host.powered = True
        self.lives += 1
        self.process = Process(self.world, self, self.lives)
        self.world.processes.append(self.process)
        self.process.begin()

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does; a paused one hears of it when it is resumed."""
        process = self._living()
        process.asked_to_end = True
        process.loop.call_soon(process.stopping.set)

    def crash(self) -> None:
        """Kill it. Its kernel closes its sockets."""
        process = self._living()
        self.world.network.close_sockets(process)
        process.over()

    def pause(self) -> None:
        self._living().loop.pause()

    def resume(self) -> None:
        self._living().loop.resume()

    def slow_down(self, factor: float) -> None:
        """Let its code take this many times as long."""
        if factor <= 0:
            raise ValueError(f"a process can be slowed by a factor above 0, got {factor}")
        self._living().loop.slowness = factor

    def stall(self, seconds: float) -> None:
        """Let it compute for so long without a pause: its loop does nothing else."""
        self._living().loop.stall(nanoseconds(seconds))

    def _living(self) -> Process:
        if self.process is None or not self.process.alive:
            raise ValueError(f"process {self.name} is not running")
        return self.process


class World:
    """All of it. Use it as a context manager, add nodes, then let time pass by `run_for` and `run_until`.

    ``chunked`` lets every read end at a random boundary. ``keep_history`` keeps the lines of the history for
    finding where two runs part.
    """

    def __init__(
        self, seed: int, *, quality: LinkQuality = LAN, chunked: bool = False, keep_history: bool = False
    ) -> None:
        self.seed = seed
        self.chunked = chunked
        self.scheduler = Scheduler()
        self.history = History(keep=keep_history)
        self.network = Network(self.scheduler, seed, history=self.history, quality=quality)
        self.fence = Fence()
        self.nodes: dict[str, Node] = {}
        self.processes: list[Process] = []
        """Every life there was, in order of birth."""
        self.failures: list[Failure] = []
        self.faults: list[tuple[float, Fault]] = []
        """What was done, and when."""
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
        self._over = False
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._exit.enter_context(self.fence.patched())
        if gc.isenabled():
            gc.collect()
            gc.disable()
            if not gc.get_freeze_count():
                # Once in a process: modules and their like need not be looked through again by each world,
                # which takes 30 ms each time. Whatever worlds make is collected as ever.
                gc.freeze()
            self._exit.callback(gc.enable)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.collect()  # a task that failed unseen is reported by its finaliser
        self._over = True
        try:
            for process in self.processes:
                process.over()
            self.scheduler.clear()
            for process in self.processes:
                process.loop.dispose()
        finally:
            self._exit.close()

    # --- building

    def add_node(self, name: str, main: Main, *, host: str | None = None, once: bool = False) -> Node:
        """A program, on a host of its own or beside others; it is not started. ``once``: nor does `heal`
        start it again."""
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
        """The disk of a host, which survives everything but is not always complete."""
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
        """What the monotonic clocks of a host gain on top of what each gains by itself."""
        return self._drifts_ppb.get(host, 0)

    def set_drift(self, host: str, ppb: int) -> None:
        self._drifts_ppb[host] = ppb
        for node in self.nodes.values():
            if node.host.name == host and node.process is not None and node.process.alive:
                node.process.drift(ppb)

    def run_for(self, seconds: float) -> None:
        """Let so much time pass. Raises `ValueError`: that is no time that can pass."""
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
        """Let time pass until the condition holds; it is looked at every ``poll_s``. Returns the seconds that
        took.

        Raises:
            Deadlock: nothing is scheduled any more.
            ConditionNotMet: it did not hold within ``timeout_s``.
            ValueError: these are no times that can pass.
        """
        if not 0 <= timeout_s < inf:
            raise ValueError(f"{timeout_s} s cannot pass; name a timeout from 0 on")
        if not 1 / SECOND <= poll_s < inf:
            raise ValueError(f"cannot look every {poll_s} s; name a pause from a nanosecond on")
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
        """Garbage, at fixed numbers of events; what is old now and then, since connections grow old."""
        self._next_collection += COLLECT_EVERY
        self._collections += 1
        gc.collect(1 if self._collections % COLLECTIONS_YOUNG else 2)

    def _second_passed(self) -> None:
        self._next_second_ns += SECOND
        if self.on_second is not None:
            self.on_second(self.now_s)

    def waiting(self) -> str:
        """Who waits for what: every task of every process that lives, and who is down."""
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
        """Let the faults come at their times."""
        for fault in plan:
            self.scheduler.at(nanoseconds(fault.at_s), faults.apply, self, fault)

    def inject(
        self,
        kind: str,
        a: Iterable[str] | str = (),
        b: Iterable[str] | str = (),
        value: float = 0.0,
        *,
        for_s: float | None = None,
        **more: float | str,
    ) -> None:
        """Do something now, to one or several by name.

        Raises:
            ValueError: there is no such kind, nobody of that name, or a number out of range.
        """
        one, other = ((side,) if isinstance(side, str) else tuple(side) for side in (a, b))
        fault = Fault(self.now_s, kind, one, other, for_s, value, tuple(sorted(more.items())))
        faults.apply(self, fault)

    def heal(self) -> None:
        """Undo all faults that last, and start what is down."""
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
        """Remember that this is being done."""
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
        """Something went wrong that nobody handled; what the clean-up after the run meets does not count."""
        if self._over:
            return
        self.failures.append(Failure(self.now_s, process, message, exception))
        kind = "" if exception is None else type(exception).__name__
        self.history.record(self.scheduler.now_ns, process, "failure", ADDRESS.sub("at ...", message), kind)
