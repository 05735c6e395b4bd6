"""The limits of level outbox."""

from __future__ import annotations

import pytest

from mesh import Client, NotAccepted
from mesh.clients.outbox import OutboxState
from mesh.errors import OutboxDamaged
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.docs.guarantees.parties import (
    DAY_S,
    Program,
    Worker,
    bodies,
    publishing,
    settled,
    with_a_queue,
)

OUTBOX = "/outbox.db"


class Keeper(Program):
    """A program with an outbox on the host of a broker, which it can do without."""

    def __init__(self, mesh: Mesh, at: str = "broker-2", **options: int) -> None:
        self.client: Client | None = None
        self.failure: Exception | None = None
        """Why it could not begin."""
        self._options = options
        super().__init__(mesh, at)

    def _enter(self, mesh: Mesh, at: str) -> None:
        mesh.world.add_node(self.name, self._main, host=at).start()

    async def _main(self, process: Process) -> None:
        url, environment = url_of(process.address), environment_of(process)
        try:
            async with Client(url, outbox=OUTBOX, environment=environment, **self._options) as self.client:
                await self._obey(self.client)
        except OutboxDamaged as error:
            self.failure = error

    @property
    def outbox(self) -> OutboxState:
        assert self.client is not None and self.client.outbox is not None
        return self.client.outbox


def test_outbox_outlives_its_publisher_and_an_absence_of_all_brokers() -> None:
    """The promise of the level; the other tests show its limits."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        world.inject("crash", mesh.brokers)
        keeper = Keeper(mesh)
        for body in bodies(3):
            assert keeper.do(publishing(body, level="outbox")).level == "outbox"
        world.inject("crash", [keeper.name])
        world.run_for(600)
        world.inject("start", mesh.brokers)
        mesh.wait_whole()
        world.inject("start", [keeper.name])
        assert settled(world, Worker(mesh), 3) == bodies(3)
        assert keeper.outbox.messages == 0


def test_outbox_is_lost_with_its_file() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        world.inject("crash", ["broker-1"])
        keeper = Keeper(mesh)
        keeper.do(publishing(*bodies(3), level="outbox"))
        world.inject("crash", [keeper.name])
        disk = world.disk("broker-2")
        for path in [path for path in disk.files if path.startswith(OUTBOX)]:
            disk.remove(path)
        world.inject("start", ["broker-1", keeper.name])
        mesh.wait_whole()
        worker = Worker(mesh)
        keeper.do(publishing(b"4", level="outbox"))
        assert settled(world, worker, 1) == [b"4"]


def test_outbox_is_set_aside_when_it_is_damaged() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        world.inject("crash", ["broker-1"])
        keeper = Keeper(mesh)
        for body in bodies(3):
            keeper.do(publishing(body, level="outbox"))
        world.inject("crash", [keeper.name])
        world.disk("broker-2").files[f"{OUTBOX}-wal"].content.flip(8 * 1000)
        world.inject("start", [keeper.name])
        world.run_until(lambda: keeper.failure is not None, timeout_s=10, what="its end")
        assert "set aside" in str(keeper.failure)
        world.inject("start", ["broker-1", keeper.name])
        mesh.wait_whole()
        worker = Worker(mesh)
        keeper.do(publishing(b"4", level="outbox"))
        assert settled(world, worker, 1) == [b"4"]


def test_outbox_refuses_more_than_it_may_hold() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        world.inject("crash", ["broker-1"])
        keeper = Keeper(mesh, outbox_max_bytes=100_000)
        taken = 0
        with pytest.raises(NotAccepted, match="full"):
            while True:
                keeper.do(publishing(b"x" * 10_000, level="outbox", timeout=1))
                taken += 1
        world.inject("start", ["broker-1"])
        worker = Worker(mesh)
        assert len(settled(world, worker, taken)) == taken > 5
        assert keeper.do(publishing(b"1", level="outbox")).level == "outbox"


def test_outbox_waits_as_long_as_no_durable_subscription_wants_the_topic() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        keeper = Keeper(mesh)
        keeper.do(publishing(b"1", level="outbox"))
        world.run_for(120)
        assert keeper.outbox.messages == 1 and "nobody keeps" in keeper.outbox.why
        worker = Worker(mesh, patterns=("jobs.#",))
        assert settled(world, worker, 1) == [b"1"]


def test_outbox_twice_if_it_sends_again_after_seven_days_of_silence() -> None:
    """The host is switched off between the home's commit and the word of it, and is back a week later."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        keeper = Keeper(mesh)
        world.inject("slow_disk", ["broker-1"], value=1, for_s=2)
        keeper.do(publishing(b"1", level="outbox"))
        world.run_for(0.5)
        world.inject("crash", [keeper.name, "broker-2"])
        worker = Worker(mesh)
        world.run_for(5)
        for body in bodies(9, first=2):  # with each commit a step of what is forgotten
            world.inject("clock_step", ["broker-1"], value=DAY_S)
            mesh.run(publishing(body))
        assert settled(world, worker, 10) == bodies(10)
        world.inject("start", [keeper.name, "broker-2"])
        assert settled(world, worker, 11) == [*bodies(10), b"1"]
        assert worker.jobs[0].id == worker.jobs[10].id, "by its id a consumer can tell"
