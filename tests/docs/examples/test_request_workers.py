"""Workers share requests. A requester gets an answer although a worker dies, or an error without workers."""

from __future__ import annotations

import asyncio
from math import prod

import pytest

from mesh import Client, MeshError, NoResponders
from simulations import Mesh, World
from tests.docs.examples.programs import program

workers = program("request_workers")


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work takes two seconds of virtual time."""

    async def take_a_while(work: object, number: int) -> list[int]:
        await asyncio.sleep(2)
        return list(workers.factors(number))

    monkeypatch.setattr(workers.asyncio, "to_thread", take_a_while)


def test_a_request_survives_the_death_of_its_worker() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("near", workers.work, at="broker-1")
        mesh.client("far", workers.work, at="broker-2")
        world.run_for(2)
        world.scheduler.at(int((world.now_s + 1) * 1e9), lambda: world.inject("crash", ["near"]))
        assert mesh.run(lambda client: workers.ask(client, 91), at="broker-1") == [7, 13]


def test_a_wrong_request_is_refused_with_the_reason_and_one_without_workers_fails_at_once() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=1)

        async def ask_nobody(client: Client) -> None:
            with pytest.raises(NoResponders):
                await workers.ask(client, 91)

        mesh.run(ask_nobody)
        mesh.client("worker", workers.work)
        world.run_for(2)

        async def ask(client: Client) -> None:
            with pytest.raises(MeshError, match="1 is not from 2 to"):
                await workers.ask(client, 1)
            assert await asyncio.gather(*(workers.ask(client, number) for number in (97, 4))) == [
                [97],
                [2, 2],
            ]

        mesh.run(ask)


def test_factors_are_prime_and_multiply_to_the_number() -> None:
    for number in range(2, 500):
        found = workers.factors(number)
        assert prod(found) == number and all(workers.factors(factor) == [factor] for factor in found)
