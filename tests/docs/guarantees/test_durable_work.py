"""The limits of what durable subscriptions promise to their consumers."""

from __future__ import annotations

from mesh import Client
from mesh.clients.jobs import Job
from mesh.work.options import WorkOptions
from simulations import Mesh, World
from tests.docs.guarantees.parties import QUEUE, Worker, bodies, publishing, with_a_queue

ATTEMPTS = WorkOptions().attempts_max


def keep(job: Job) -> None:
    """Hold it, and say nothing."""


def test_work_is_done_twice_when_its_consumer_dies_before_it_says_done() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(b"1"))
        first = Worker(mesh, says=keep, name="first")
        world.run_until(lambda: bool(first.got), timeout_s=10, what="the work")
        world.inject("crash", ["first"])
        second = Worker(mesh, name="second")
        world.run_until(lambda: bool(second.got), timeout_s=10, what="the work again")
        assert first.got == second.got and first.jobs[0].id == second.jobs[0].id
        assert second.jobs[0].redelivered


def test_work_is_done_twice_when_done_is_lost_with_the_home() -> None:
    """It is written 50 ms later at most, with the next commit."""
    with World(1) as world:
        mesh = with_a_queue(world)
        mesh.run(publishing(b"1"))
        worker = Worker(mesh)
        world.run_until(lambda: bool(worker.got), timeout_s=10, what="the work", poll_s=0.001)
        world.inject("crash", ["broker-1"])
        world.inject("start", ["broker-1"])
        world.run_for(10)
        assert worker.got == [b"1", b"1"]


def test_a_late_done_is_refused_and_others_get_the_work() -> None:
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        first = Worker(mesh, "broker-2", says=keep, name="first")
        mesh.run(publishing(b"1"))
        world.run_until(lambda: bool(first.got), timeout_s=10, what="the work")
        world.inject("partition", ["broker-1"], ["broker-2"])
        second = Worker(mesh, "broker-1", name="second")
        world.run_for(60)
        assert second.got == [b"1"]
        world.heal()
        mesh.wait_whole()
        assert not first.jobs[0].done()
        assert first.work is not None and first.work.late == 1


def test_order_ends_when_a_message_is_tried_again() -> None:
    def says(job: Job) -> None:
        job.retry(after=1) if job.body == b"2" and job.attempt == 1 else job.done()

    with World(1) as world:
        mesh = with_a_queue(world)
        worker = Worker(mesh, says=says)
        mesh.run(publishing(*bodies(4)))
        world.run_for(5)
        assert worker.got == [b"1", b"2", b"3", b"4", b"2"]


def test_order_ends_when_several_consumers_share_the_work() -> None:
    done: list[bytes] = []
    held: list[Job] = []

    def at_once(job: Job) -> None:
        done.append(job.body)
        job.done()

    with World(1) as world:
        mesh = with_a_queue(world)
        slow = Worker(mesh, says=held.append, window=1, name="slow")
        world.run_until(lambda: bool(slow.work), timeout_s=10, what="the slow one")
        mesh.run(publishing(b"1"))
        world.run_until(lambda: bool(held), timeout_s=10, what="the first message")
        Worker(mesh, says=at_once, name="fast")
        mesh.run(publishing(*bodies(3, first=2)))
        world.run_for(5)
        at_once(held[0])
        assert done == [b"2", b"3", b"4", b"1"]


def test_a_message_that_always_fails_is_a_dead_letter_after_twenty_attempts() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        worker = Worker(mesh, says=lambda job: job.retry(after=0))
        mesh.run(publishing(b"1"))
        world.run_for(30)
        assert worker.got == [b"1"] * 20 and ATTEMPTS == 20
        letters = Worker(mesh, queue=f"$dlq.{QUEUE}", name="letters")
        world.run_until(lambda: bool(letters.got), timeout_s=10, what="the dead letter")
        assert letters.jobs[0].id == worker.jobs[0].id
        assert letters.jobs[0].headers["dead-attempts"] == 20


class Operator:
    """Records the notices of homes about their durable subscriptions."""

    def __init__(self, mesh: Mesh) -> None:
        self.topics: list[str] = []
        mesh.client("operator", self._watch)

    async def _watch(self, client: Client) -> None:
        async with client.subscribe("$sys.queue.#") as notices:
            async for batch in notices.batches():
                self.topics += batch.topics


def test_messages_without_a_consumer_wait_without_a_time_limit() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        operator = Operator(mesh)
        mesh.run(publishing(b"1"))
        world.run_for(400)
        assert f"$sys.queue.{QUEUE}.stale" in operator.topics
        worker = Worker(mesh)
        world.run_until(lambda: worker.got == [b"1"], timeout_s=10, what="the work")


def test_a_consumer_that_never_settles_keeps_its_messages_as_long_as_its_session_lasts() -> None:
    with World(1) as world:
        mesh = with_a_queue(world)
        operator = Operator(mesh)
        silent = Worker(mesh, says=keep, window=2, name="silent")
        world.run_until(lambda: bool(silent.work), timeout_s=10, what="the silent one")
        mesh.run(publishing(*bodies(2)))
        world.run_until(lambda: len(silent.got) == 2, timeout_s=10, what="its messages")
        other = Worker(mesh, name="other")
        mesh.run(publishing(b"3"))
        world.run_for(400)
        assert (silent.got, other.got) == (bodies(2), [b"3"])
        assert f"$sys.queue.{QUEUE}.stale" in operator.topics
        world.inject("crash", ["silent"])
        world.run_for(5)
        assert other.got == [b"3", b"1", b"2"]
