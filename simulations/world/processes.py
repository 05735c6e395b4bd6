"""A program with a name (`Node`), and its lives: each start begins a new `Process`.

A process has a separate event loop, monotonic clock, sockets, storage and random streams. When it ends, only
the files on its host's disk remain.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from simulations.kernel.connections import ProcessLoop
from simulations.kernel.network import Host
from simulations.kernel.scheduler import SECOND, nanoseconds
from simulations.kernel.storage import VirtualStorage
from simulations.kernel.waiting import waits
from simulations.world.clocks import EPOCH_S

if TYPE_CHECKING:
    from simulations.world.world import World

JOB_NS: Final = (50_000, 500_000)
CLOCK_OFFSET_MAX_S: Final = 10_000
DRIFT_MAX_PPB: Final = 50_000

Main = Callable[["Process"], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Settings:
    """Settings of a program that faults have changed, from its next life on."""

    join: tuple[str, ...] | None = None
    """Addresses to join, instead of the program's own."""
    times: float = 1.0
    """The factor of its period and deadline."""
    versions_ahead: int = 0
    """How many versions its link is ahead of the usual."""
    mesh_key: str = "a key of the simulation"
    """The key that brokers share, and that former insiders know."""


class NodeState(StrEnum):
    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


class Process:
    """One life of a node, which its main coroutine is given.

    It is over when that returns, or when it is killed.
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
        """The same as seen from outside: a paused process does not know it yet."""
        self.exposed: Any = None
        """Objects that main shows to the scenario: its broker, its counters."""
        self._when_over: list[Callable[[], None]] = []
        self._wall_clock = world.wall_clock(node.host.name)
        clock = self.stream("clock")
        offset_ns = clock.randrange(CLOCK_OFFSET_MAX_S) * SECOND
        self._drift_ppb = clock.randint(-DRIFT_MAX_PPB, DRIFT_MAX_PPB)
        self.loop = ProcessLoop(
            world.scheduler,
            self,
            chunk_rng=self.stream("chunks") if world.chunked else None,
            order_rng=self.stream("order") if world.permuted else None,
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
        return EPOCH_S + now_s + clock.offset_s  # every row of a log calls this

    def drift(self, ppb: int) -> None:
        """Let the monotonic clock gain so much in addition to its own drift."""
        self.loop.set_drift(self._drift_ppb + ppb)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call it right after this life has ended, in whatever way."""
        self._when_over.append(callback)

    # --- calls of the loop (connections.NetworkedMachine)

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
        # Keep a reference, as asyncio.run does: otherwise only the awaited object may know the task, and both
        # be collected.
        self._task = Context().run(self.loop.create_task, self._live(), name=f"{self.name}: main")

    async def _live(self) -> None:
        """Like ``asyncio.run``: main, then an end for every task it left, which is also reported."""
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
        """Nothing of this process runs any more. The caller handles its sockets."""
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
        """The object that the main coroutine of the present life has exposed, or None."""
        return self.process.exposed if self.process is not None and self.process.alive else None

    def start(self) -> None:
        """Begin a life, on a host that is powered on if needed."""
        if self.state is not NodeState.DOWN:
            raise ValueError(f"process {self.name} is {self.state} already")
        self.host.powered = True
        self.lives += 1
        self.process = Process(self.world, self, self.lives)
        self.world.processes.append(self.process)
        self.process.begin()

    def stop(self) -> None:
        """Ask it to end, like SIGTERM; a paused process notices when it is resumed."""
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
