"""Principals at several brokers of a mesh in virtual time: their publisher ids, and where rights apply."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mesh import Client, NotAccepted, Principal
from mesh.access import proofs
from mesh.access.credentials import KeyCredential
from mesh.access.keys import SigningKey
from mesh.clients.conversation import Conversation
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.mesh.broker.test_principals import ALL
from tests.mesh.traffic import Reader

ALICE, MALLORY = SigningKey.generate(), SigningKey.generate()
KNOWN = tuple(
    Principal(name, keys=(proofs.key_text(key.public),), **ALL)
    for name, key in (("alice", ALICE), ("mallory", MALLORY))
)
SECRET = b"known to both, as it went over the wire"[:32]
BOOT = 77


def knows(mesh: Mesh, *names: str) -> None:
    for name in names:
        broker = mesh.broker(name)
        broker.reload(replace(broker.options, principals=KNOWN))


def publishes_as(key: SigningKey, at: str, bodies: list[bytes]) -> object:
    """A program whose client has this key and the secret and boot that both know, and starts at number 1."""

    async def main(process: Process) -> None:
        url = url_of(process.world.network.hosts[at].address)
        mesh = Client(url, environment=environment_of(process))
        mesh._credential = KeyCredential(key)
        conversation = Conversation(
            secret=SECRET,
            boot=BOOT,
            name=process.name,
            prefix=b"\x80\x00\x00\x07",
            keepalive_s=0.0,
            now=process.loop.time(),
            credential=mesh._credential,
        )
        mesh._connection_to = lambda place: mesh._connected_by(place, conversation)  # type: ignore[method-assign]
        async with mesh:
            for body in bodies:
                await mesh.publish("t", body)
        process.exposed = conversation.publisher
        await process.stopping.wait()

    return main


def run(world: World, name: str, program: object) -> int:
    node = world.add_node(name, program)  # type: ignore[arg-type]
    node.start()
    world.run_for(5.0)
    publisher: int = node.exposed
    return publisher


def test_a_stolen_secret_does_not_make_a_principals_messages_look_like_retries() -> None:
    """Mallory used up the numbers at another broker first: Alice's messages with these numbers were dropped
    as duplicates, at each broker that had received Mallory's."""
    reader = Reader()
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("reads", reader, at="broker-3")
        knows(mesh, "broker-1", "broker-2", "broker-3")
        world.run_for(5.0)
        stolen = run(world, "mallory", publishes_as(MALLORY, "broker-2", [b"m"] * 10))
        honest = run(
            world, "alice", publishes_as(ALICE, "broker-1", [b"a%d" % number for number in range(5)])
        )
        assert stolen != honest
        got = [bytes(body) for body in reader.got]
        assert sorted(got) == sorted([b"m"] * 10 + [b"a%d" % number for number in range(5)])


def test_a_principal_is_the_same_publisher_at_every_broker_and_its_retries_are_known() -> None:
    reader = Reader()
    with World(2) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("reads", reader, at="broker-3")
        knows(mesh, "broker-1", "broker-2", "broker-3")
        world.run_for(5.0)
        first = run(world, "one", publishes_as(ALICE, "broker-1", [b"1", b"2"]))
        again = run(world, "two", publishes_as(ALICE, "broker-2", [b"1", b"2", b"3"]))
        assert first == again
        assert [bytes(body) for body in reader.got] == [b"1", b"2", b"3"]


def test_rights_are_those_of_the_broker_that_a_client_is_connected_to() -> None:
    refused: list[str] = []

    async def publish(client: Client) -> None:
        try:
            await client.publish("t", b"x")
        except NotAccepted as error:
            refused.append(str(error))
        await asyncio.sleep(0)

    with World(3) as world:
        mesh = Mesh(world, brokers=2)
        broker = mesh.broker("broker-1")
        broker.reload(replace(broker.options, principals=(Principal("anonymous", publish=("open.#",)),)))
        mesh.run(publish, at="broker-1")
        mesh.run(publish, at="broker-2")
        assert len(refused) == 1 and "broker-1 refused" in refused[0]
