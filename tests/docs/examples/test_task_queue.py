"""The task queue: no task is lost with a worker or the broker, and what cannot be done is a dead letter."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mesh import Client, Job
from simulations import Mesh, World
from tests.docs.examples.programs import program

queue = program("task_queue")
TASKS = [f"/file-{number}" for number in range(50)]


class Crew:
    """Workers, and which tasks each has done."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.done: dict[str, list[str]] = {}
        self.attempts: list[int] = []

    def add(self, name: str, at: str) -> None:
        """One who takes half a second for a task, and fails at the first attempt of each tenth."""
        mine = self.done[name] = []

        async def handle(job: Job) -> None:
            path = json.loads(job.body)["path"]
            self.attempts.append(job.attempt)
            await asyncio.sleep(0.5)
            if path.endswith("0") and job.attempt == 1:
                raise OSError("the disk is away")
            if path.endswith("7"):
                raise queue.BadTask("seven again")
            mine.append(path)

        self.mesh.client(name, lambda client: queue.work(client, handle), at=at)


def test_every_task_is_done_or_a_dead_letter_although_workers_and_the_broker_die(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(lambda client: queue.add(client, TASKS))
        crew = Crew(mesh)
        for name, at in (("anna", "broker-1"), ("bert", "broker-2"), ("carl", "broker-2")):
            crew.add(name, at)
        world.run_for(3)
        world.inject("crash", ["bert"])
        world.run_for(2)
        world.inject("crash", ["broker-1"], for_s=3)
        world.run_for(60)
        done = {path for mine in crew.done.values() for path in mine}
        assert done == {path for path in TASKS if not path.endswith("7")}
        assert all(crew.done.values()) and max(crew.attempts) == 2
        mesh.run(queue.dead)
    said = capsys.readouterr().out
    assert said.startswith("tasks stored at broker-1: 50\n")
    assert said.count("seven again") == 5 and all(path in said for path in TASKS if path.endswith("7"))


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"path": 5}', b'{"path": null}', b"\xff"])
async def test_a_malformed_task_is_not_tried_again(body: bytes) -> None:
    with pytest.raises(queue.BadTask, match="not a task"):
        await queue.checksum(SimpleNamespace(body=body))


async def test_the_checksum_is_that_of_sha256sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    body = json.dumps({"path": str(path)}).encode()
    with pytest.raises(FileNotFoundError):
        await queue.checksum(SimpleNamespace(body=body))
    path.write_bytes(b"abc")
    await queue.checksum(SimpleNamespace(body=body))
    assert capsys.readouterr().out == (
        f"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {path}\n"
    )


def test_tasks_may_be_added_before_there_is_a_worker(capsys: pytest.CaptureFixture[str]) -> None:
    async def waiting(client: Client) -> int:
        async with client.subscribe(durable=queue.QUEUE) as jobs:
            waiting: int = jobs.waiting
            return waiting

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.run(lambda client: queue.add(client, TASKS))
        assert mesh.run(waiting) == len(TASKS)
    assert capsys.readouterr().out == "tasks stored at broker-1: 50\n"
