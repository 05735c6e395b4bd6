"""The limits of level stored."""

from __future__ import annotations

import pytest

from mesh import Client
from mesh.errors import NotAccepted, Unknown
from simulations import Mesh, World
from simulations.kernel.files import SectorFile
from tests.docs.guarantees.parties import (
    DAY_S,
    QUEUE,
    Program,
    Worker,
    ask_queues,
    bodies,
    make_queue,
    publishing,
    settled,
    with_a_queue,
)

JOURNAL = "/state/broker-1/journal.db"


def restart(mesh: Mesh, name: str = "broker-1", how: str = "crash") -> None:
    mesh.world.inject(how, [name])
    mesh.world.inject("start", [name])
    mesh.wait_whole()


def test_stored_outlives_a_kill_of_all_and_the_loss_of_power() -> None:
    """The promise of the level; the other tests show its limits."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        assert mesh.run(publishing(*bodies(3)), at="broker-2").homes == ("broker-1",)
        world.inject("crash", mesh.brokers)
        world.inject("start", mesh.brokers)
        mesh.wait_whole()
        mesh.run(publishing(b"4"), at="broker-2")
        world.inject("power_off", mesh.brokers)
        world.inject("start", mesh.brokers)
        mesh.wait_whole()
        assert settled(world, Worker(mesh, "broker-2"), 4) == bodies(4)


def test_stored_is_lost_with_the_disk_of_its_home() -> None:
    """It is refused from then on, by name, until an operator says that this home will not come back."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        mesh.run(publishing(*bodies(3)))
        world.inject("crash", ["broker-1"])
        world.inject("lost_files", ["broker-1"])
        world.run_for(10)
        world.inject("start", ["broker-1"])
        mesh.wait_whole()
        with pytest.raises(NotAccepted, match=r"will not come back: mesh queue forget \w+") as refused:
            mesh.run(publishing(b"4"), at="broker-2")
        home = str(refused.value).rpartition(" ")[2]
        forgotten = mesh.run(lambda client: ask_queues(client, "forget", home=home), at="broker-2")
        assert forgotten["forgotten"] == [QUEUE]
        mesh.run(make_queue)
        worker = Worker(mesh)
        mesh.run(publishing(b"4"), at="broker-2")
        assert settled(world, worker, 1) == [b"4"]


def worked_off_after_loss_of_power(seed: int, *faults: str) -> Worker:
    """A worker that attaches for twenty stored messages."""
    with World(seed) as world:
        mesh = with_a_queue(world)
        for fault in faults:
            world.inject(fault, ["broker-1"])
        program = Program(mesh)
        for body in bodies(20):
            assert program.do(publishing(body)).level == "stored"
        restart(mesh, how="power_off")
        worker = Worker(mesh, patterns=("jobs.#",))
        world.run_for(10)
    return worker


def test_stored_is_lost_with_the_power_of_a_disk_that_lies_about_its_syncs() -> None:
    assert worked_off_after_loss_of_power(1).got == bodies(20), "the disk is honest"
    unseen = worked_off_after_loss_of_power(2, "lying_disk")
    assert unseen.got == [] and unseen.work is not None
    seen = worked_off_after_loss_of_power(9, "lying_disk")
    assert seen.got == [] and "is damaged" in seen.ends[0]


def test_stored_is_lost_with_a_flipped_bit_in_the_last_commit_of_a_home_that_was_killed() -> None:
    """It looks like a commit that the kill cut short."""
    with World(1) as world:
        mesh = with_a_queue(world)
        for body in bodies(3):
            assert mesh.run(publishing(body)).level == "stored"
        world.inject("crash", ["broker-1"])
        log = world.disk("broker-1").files[f"{JOURNAL}-wal"]
        assert isinstance(log, SectorFile)
        data = bytes(log.content)
        frame = data.rindex(b"jobs.a3")  # of the last commit
        log.write(frame, bytes([data[frame] ^ 1]))
        world.inject("start", ["broker-1"])
        mesh.wait_whole()
        worker = Worker(mesh)
        mesh.run(publishing(b"4"))
        assert settled(world, worker, 3) == [b"1", b"2", b"4"]


def test_stored_is_set_aside_when_its_journal_is_damaged_until_the_second_start() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(*bodies(3)))
        world.inject("stop", ["broker-1"])
        world.run_for(1)
        world.disk("broker-1").tear(JOURNAL, 3 * 16384)
        world.inject("start", ["broker-1"])
        mesh.wait_whole()
        with pytest.raises(
            NotAccepted, match="damaged.*set aside as .*start this broker again to continue without"
        ):
            mesh.run(publishing(b"4"))
        restart(mesh)
        with pytest.raises(NotAccepted, match="nobody keeps"):
            mesh.run(publishing(b"4"))
        worker = Worker(mesh, patterns=("jobs.#",))
        world.run_until(lambda: bool(worker.work), timeout_s=10, what="the subscription is made anew")
        mesh.run(publishing(b"4"))
        assert settled(world, worker, 1) == [b"4"]


def test_stored_is_refused_while_a_home_is_away_and_its_kept_messages_wait() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        mesh.run(publishing(b"1"), at="broker-2")
        world.inject("crash", ["broker-1"])
        worker = Worker(mesh, "broker-2")
        world.run_for(120)
        with pytest.raises(NotAccepted, match="broker-1"):
            mesh.run(publishing(b"2"), at="broker-2")
        assert worker.got == []
        world.inject("start", ["broker-1"])
        assert settled(world, worker, 1) == [b"1"]


def test_stored_is_refused_on_a_full_disk_until_there_is_room() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(b"1"))
        world.inject("full_disk", ["broker-1"], value=0)
        with pytest.raises(NotAccepted, match="make room or consume"):
            mesh.run(publishing(b"2"))
        worker = Worker(mesh)
        assert settled(world, worker, 1) == [b"1"]
        world.heal()
        mesh.run(publishing(b"3"))
        assert settled(world, worker, 2) == [b"1", b"3"]


def test_stored_does_not_reach_a_subscription_that_is_made_later() -> None:
    async def make_later(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="later"):
            pass

    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(b"1"))
        mesh.run(make_later)
        mesh.run(publishing(b"2"))
        assert settled(world, Worker(mesh, queue="later"), 1) == [b"2"]


def test_stored_is_deleted_with_the_subscription_that_an_operator_removes() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(*bodies(3)))
        assert mesh.run(lambda client: ask_queues(client, "rm"))["removed"] == 3
        mesh.run(make_queue)
        worker = Worker(mesh)
        mesh.run(publishing(b"4"))
        assert settled(world, worker, 1) == [b"4"]


def test_stored_twice_if_it_is_published_again_after_unknown() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        program = Program(mesh)
        world.inject("slow_disk", ["broker-1"], value=5)
        with pytest.raises(Unknown):
            program.do(publishing(b"1", timeout=1))
        world.heal()
        program.do(publishing(b"1"))
        worker = Worker(mesh)
        assert settled(world, worker, 2) == [b"1", b"1"]
        assert len({job.id for job in worker.jobs}) == 2


def test_stored_once_although_its_acknowledgement_is_lost_and_the_retry_uses_a_new_broker() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        program = Program(mesh, "broker-2")
        world.inject("slow_disk", ["broker-1"], value=1, for_s=2)
        program.begin(publishing(b"1", timeout=60))
        world.run_for(0.5)
        world.inject("crash", ["broker-2"], for_s=5)
        worker = Worker(mesh)
        assert program.end().level == "stored"
        assert settled(world, worker, 1) == [b"1"]
        journal = mesh.run(lambda client: client.status())["journal"]
        assert journal["duplicates"] == 1


def test_stored_twice_if_the_retry_comes_after_seven_days_of_silence() -> None:
    """The word of the home is lost with the entry broker, and that comes back a week later."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        program = Program(mesh, "broker-2")
        world.inject("slow_disk", ["broker-1"], value=1, for_s=2)
        program.begin(publishing(b"1", timeout=30 * DAY_S))
        world.run_for(0.5)
        world.inject("crash", ["broker-2"])
        world.run_for(5)
        worker = Worker(mesh)
        for body in bodies(9, first=2):  # with each commit a step of what is forgotten
            world.inject("clock_step", ["broker-1"], value=DAY_S)
            mesh.run(publishing(body))
        assert settled(world, worker, 10) == bodies(10)
        world.inject("start", ["broker-2"])
        mesh.wait_whole()
        assert program.end().level == "stored"
        assert settled(world, worker, 11) == [*bodies(10), b"1"]
        assert worker.jobs[0].id == worker.jobs[10].id, "by its id a consumer can tell"


def test_a_name_made_on_both_sides_of_a_partition_is_two_subscriptions() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("partition", ["broker-1"], ["broker-2"])
        world.run_for(10)
        for broker in mesh.brokers:
            mesh.run(make_queue, at=broker)
        world.heal()
        mesh.wait_whole()
        receipt = mesh.run(publishing(b"1"))
        assert sorted(receipt.homes) == mesh.brokers
        workers = [Worker(mesh, at, name=f"worker at {at}") for at in mesh.brokers]
        world.run_for(10)
        assert [worker.got for worker in workers] == [[b"1"], [b"1"]]
        status = mesh.run(lambda client: client.status())
        assert QUEUE in status["queues_twice"]
