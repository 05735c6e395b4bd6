"""A mesh of real brokers in a world, for tests of programs that use one.

::

    with World(seed=7) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("counter", counter, at="broker-2")
        world.inject("crash", ["broker-1"], for_s=5)
        stock = mesh.run(ask_for_stock, at="broker-3")
        mesh.finish()

A program is a coroutine function that takes a `Client`. It runs unmodified on the host of a broker, as a
separate process: in the background (`Mesh.client`) or to its end (`Mesh.run`). `Mesh.finish` checks the
invariants that apply to the brokers in every run of a scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from simulations import programs
from simulations.evidence import Recorder
from simulations.evidence.ledger import Ledger
from simulations.faults import Fault, apply, possible
from simulations.invariants import Verdict, judge
from simulations.kernel.scheduler import nanoseconds
from simulations.runs.wholeness import POLL_S, START_S, is_whole, wait_whole_for_good
from simulations.scenario import Scenario, Workload
from simulations.world import ConditionNotMet, Main, Node, Process, World

LEAVE_S: Final = 30.0
REST_S: Final = 5.0
"""How long a whole mesh is observed before everybody leaves, in seconds."""
SHOWN_MAX: Final = 5
"""The number of violations of one check that a failure shows."""

T = TypeVar("T")
Handler = Callable[[Client], Awaitable[None]]


class Violated(AssertionError):
    """An invariant of every mesh was violated. ``verdicts`` has all verdicts."""

    def __init__(self, verdicts: Sequence[Verdict], seed: int) -> None:
        self.verdicts = tuple(verdicts)
        lines = [
            f"{verdict.check}: {violation}"
            for verdict in verdicts
            for violation in verdict.violations[:SHOWN_MAX]
        ]
        super().__init__("\n  ".join([f"with seed {seed}:", *lines]))


class Mesh:
    """Brokers ``broker-1`` to ``broker-N``, each on a host of the same name. The constructor returns when
    they have found each other.

    Raises:
        ConditionNotMet: they have not within 30 s.
    """

    def __init__(
        self,
        world: World,
        brokers: int = 3,
        *,
        name: str = "test",
        period_s: float = 1.0,
        deadline_s: float = 0.5,
    ) -> None:
        self.world = world
        self.scenario = Scenario(
            name,
            brokers=brokers,
            period_s=period_s,
            deadline_s=deadline_s,
            workload=Workload(publishers=0, subscribers=0),
        )
        self.clients: list[Node] = []
        self._runs = 0
        self._phases: dict[str, float] = {}
        self._recorder = Recorder(world, self.scenario, Ledger())
        world.on_second = lambda now_s: self._recorder.sample()
        self._start()

    def _start(self) -> None:
        world = self.world
        for index, name in enumerate(self.brokers):
            first = [world.network.hosts["broker-1"].address] if index else []
            main = programs.broker(
                self.scenario.name,
                first,
                period_s=self.scenario.period_s,
                deadline_s=self.scenario.deadline_s,
            )
            world.add_node(name, main)
            world.inject("start", [name])
            world.run_for(self.scenario.start_gap_s)
        if len(self.brokers) > 1:
            # The founder of a mesh knows nobody. If it loses its state, it needs an address to return by.
            world.node("broker-1").settings.join = (world.network.hosts["broker-2"].address,)
        self.wait_whole(timeout_s=START_S)
        self._enter("safety_s")

    @property
    def brokers(self) -> list[str]:
        return self.scenario.broker_names

    def broker(self, name: str) -> Broker:
        """The running broker of that name, as a program would see it.

        Raises:
            ValueError: it is not up.
        """
        found = self.world.node(name).exposed
        if not isinstance(found, Broker):
            raise ValueError(f"{name} is no broker that is up at {self.world.now_s:.3f} s")
        return found

    def client(self, name: str, handler: Handler, *, at: str = "broker-1") -> Node:
        """Run a program as a process of that name on the host of a broker, with a `Client` of that broker.

        When the program returns, its process stays until the end. When it raises, the call that lets time
        pass raises `ProgramFailed`. A process that was killed begins anew when it is started again. At the
        end it is cancelled.
        """
        node = self.world.add_node(name, _handled(handler), host=self.world.node(at).host.name)
        self.clients.append(node)
        node.start()
        return node

    def run(
        self, handler: Callable[[Client], Awaitable[T]], *, at: str = "broker-1", timeout_s: float = 60.0
    ) -> T:
        """Let time pass while a program runs to its end, with a `Client` of a broker. Return or raise its
        outcome, like `asyncio.run`.

        A process that was killed begins anew when it is started again.

        Raises:
            ConditionNotMet: it did not end within ``timeout_s`` of virtual time.
        """
        results: list[T] = []
        errors: list[Exception] = []

        async def main(client: Client) -> None:
            try:
                results.append(await handler(client))
            except Exception as error:  # the caller gets it
                errors.append(error)

        self._runs += 1
        name = f"run-{self._runs}"
        node = self.world.add_node(name, _handled(main), host=self.world.node(at).host.name)
        node.start()
        what = f"the end of {getattr(handler, '__qualname__', name)}"
        try:
            self.world.run_until(lambda: bool(results or errors), timeout_s=timeout_s, what=what)
        finally:
            node.once = True  # no heal starts it again
            self._stop([name])
        if errors:
            raise errors[0]
        return results[0]

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Apply faults at their times, counted from now.

        A target in an unsuitable state is skipped, such as a process to crash that is already down.
        """
        world = self.world
        for fault in faults:
            later = replace(fault, at_s=world.now_s + fault.at_s)
            world.scheduler.at(nanoseconds(later.at_s), self._strike, later)

    def _strike(self, fault: Fault) -> None:
        struck = possible(self.world, fault)
        if struck is not None:
            apply(self.world, struck)

    @property
    def whole(self) -> bool:
        """True if every broker is up and sees exactly all of them alive."""
        return is_whole(self.world, self.brokers)

    def wait_whole(self, *, timeout_s: float = 30.0) -> float:
        """Let time pass until the mesh is whole; return the seconds that took.

        Raises:
            ConditionNotMet: it did not happen in time.
        """
        return self.world.run_until(
            lambda: self.whole, timeout_s=timeout_s, what="a whole mesh", poll_s=POLL_S
        )

    def finish(self) -> list[Verdict]:
        """Heal everything, wait for the mesh to be whole, let everybody leave, and judge the run.

        The page docs/reference/invariants.md lists the checks, under "of every run". Those about a scenario's
        clients do not apply: your tests check what your programs should see.

        Raises:
            Violated: an invariant did not hold.
        """
        world = self.world
        self._enter("healed_s")
        world.heal()
        whole_s = wait_whole_for_good(world, self.brokers, self.scenario)
        if whole_s is not None:  # otherwise `converged` says what it lacks
            self._phases["whole_s"] = whole_s
            self._enter("held_s")
        self._enter("quiet_from_s")
        world.run_for(REST_S)
        self._enter("quiet_until_s")
        self._enter("drained_s")
        stuck = [*self._stop([node.name for node in self.clients]), *self._stop(self.brokers)]
        self._enter("end_s")
        gc.collect()  # the finaliser of a task that failed unseen reports it
        verdicts = judge(self._recorder.finish(dict(self._phases)))
        if stuck:
            verdicts.append(Verdict("ends_when_asked", "everybody", (f"{', '.join(stuck)} did not end",)))
        if not all(verdict.ok for verdict in verdicts):
            raise Violated(verdicts, world.seed)
        return verdicts

    def _enter(self, phase: str) -> None:
        self._phases[phase] = self.world.now_s
        self._recorder.sample(deep=True)

    def _stop(self, names: Sequence[str]) -> list[str]:
        """Ask them to end, one after the other; return those that did not."""
        nodes = [self.world.node(name) for name in names]
        for node in nodes:
            if node.alive:
                self.world.inject("stop", [node.name])
                self.world.run_for(self.scenario.start_gap_s)
        with contextlib.suppress(ConditionNotMet):
            self.world.run_until(
                lambda: not any(node.alive for node in nodes),
                timeout_s=LEAVE_S,
                what="the end of all",
                poll_s=POLL_S,
            )
        return [node.name for node in nodes if node.alive]


def _handled(handler: Handler) -> Main:
    async def main(process: Process) -> None:
        async with contextlib.aclosing(await programs.opened(process)) as client:
            process.exposed = client
            running = asyncio.ensure_future(handler(client))
            ending = asyncio.create_task(_cancel_at(process.stopping, running))
            try:
                await running
                await process.stopping.wait()
            except asyncio.CancelledError:
                if not process.stopping.is_set():
                    raise
            finally:
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)

    return main


async def _cancel_at(stopping: asyncio.Event, running: asyncio.Future[None]) -> None:
    await stopping.wait()
    running.cancel()
