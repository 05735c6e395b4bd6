"""Durable subscriptions of real brokers in a simulated world: which brokers know them, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from mesh import Client
from mesh.broker.inspection import Inspection
from mesh.cluster.membership import State
from mesh.errors import HeldElsewhere, NotAccepted
from mesh.wire.capabilities import DURABLE, LINK
from mesh.wire.durable_frames import QUEUES
from simulations import Mesh, World
from simulations.kernel.file_content import FileContent
from simulations.kernel.files import File
from tests.mesh.loopback import Cluster, whole

PATH = "/state/{}/durable.msgpack"


def view(mesh: Mesh, name: str) -> Inspection:
    return mesh.broker(name).inspect()


def known(mesh: Mesh, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Homes by name with their subscriptions, as one broker knows them, without the dead letters."""
    return {
        table.name: {each: patterns for each, patterns in table.subscriptions.items() if patterns}
        for table in view(mesh, name).homes.values()
        if table.subscriptions
    }


async def make_mail(client: Client) -> None:
    async with client.subscribe("mail.#", durable="mail"):
        pass


async def store(client: Client) -> tuple[str, ...]:
    return (await client.publish("mail.uk", b"x", level="stored")).homes


async def refused(client: Client) -> str:
    with pytest.raises(NotAccepted) as raised:
        await client.publish("mail.uk", b"x", level="stored")
    return str(raised.value)


MAIL = {"broker-1": {"mail": ("mail.#",)}}


def restart(mesh: Mesh, names: Iterable[str]) -> None:
    for name in names:
        mesh.world.inject("start", [name])


def lose_state(world: World, name: str) -> None:
    files = world.disk(name).files
    for path in [each for each in files if each.startswith("/state/")]:
        del files[path]


def test_a_durable_subscription_is_known_everywhere_when_it_is_made() -> None:
    """This includes every disk: a power loss at all brokers at once removes none of it."""
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        for name in mesh.brokers:
            assert known(mesh, name) == MAIL
            assert PATH.format(name) in world.disk(name).files
        assert mesh.run(store, at="broker-3") == ("broker-1",)
        world.inject("power_off", mesh.brokers)
        restart(mesh, mesh.brokers)
        mesh.wait_whole()
        for name in mesh.brokers:
            assert known(mesh, name) == MAIL and view(mesh, name).unknown_homes == ()
        assert mesh.run(store, at="broker-2") == ("broker-1",)


def test_a_subscription_outlives_the_death_of_its_home_and_a_restart_of_all_others() -> None:
    """Level stored would skip the home that is away, and nobody would know."""
    with World(2) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        world.run_for(8.0)
        for name in ("broker-2", "broker-3"):
            world.inject("crash", [name])
        restart(mesh, ["broker-2", "broker-3"])
        world.run_for(10.0)
        for name in ("broker-2", "broker-3"):
            assert known(mesh, name) == MAIL
            assert "broker-1" in mesh.run(refused, at=name)
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        assert mesh.run(store, at="broker-3") == ("broker-1",)


def test_a_broker_that_never_met_the_home_learns_of_it_from_others() -> None:
    with World(3) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        world.inject("crash", ["broker-3"])
        lose_state(world, "broker-3")
        world.run_for(40.0)
        restart(mesh, ["broker-3"])
        world.run_for(5.0)
        assert known(mesh, "broker-3") == MAIL
        assert "broker-1" in mesh.run(refused, at="broker-3")


def test_a_removed_subscription_does_not_come_back_with_a_broker_that_was_away() -> None:
    with World(4) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-3"])
        world.run_for(5.0)
        node = mesh.broker("broker-1")._node
        assert node is not None
        said: list[str] = []
        node.home_shell.home.remove("mail", said.append)
        node.work_pending()
        world.run_for(2.0)
        assert said == [""] and known(mesh, "broker-2") == {}
        world.inject("crash", ["broker-1"])
        restart(mesh, ["broker-3"])
        world.run_for(5.0)
        assert known(mesh, "broker-3") == {} == known(mesh, "broker-2")


def test_a_home_that_will_not_come_back_is_forgotten_by_all_also_by_those_that_were_away() -> None:
    with World(5) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        home = view(mesh, "broker-1").id
        world.inject("crash", ["broker-1", "broker-3"])
        world.run_for(8.0)
        node = mesh.broker("broker-2")._node
        assert node is not None and node.peering.durable.forget(home)
        world.run_for(1.0)
        restart(mesh, ["broker-3"])
        world.run_for(30.0)  # alone, broker-2 could not tell which brokers are dead
        for name in ("broker-2", "broker-3"):
            assert known(mesh, name) == {} and "nobody keeps mail.uk" in mesh.run(refused, at=name)
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        world.run_for(1.0)
        assert known(mesh, "broker-3") == MAIL, "it lives"


def test_a_home_that_came_back_under_another_id_is_forgotten_by_its_name() -> None:
    """The live broker of that name is not the one to forget."""

    async def forget(client: Client) -> str:
        question = {"do": "forget", "home": "broker-1"}
        return (await client.request(QUEUES, json.dumps(question).encode())).decode()

    async def make_news(client: Client) -> None:
        async with client.subscribe("news.#", durable="news"):
            pass

    with World(8) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        lose_state(world, "broker-1")
        restart(mesh, ["broker-1"])
        world.run_for(10.0)
        mesh.run(make_news, at="broker-1")
        assert "mesh queue forget" in mesh.run(refused, at="broker-2")
        assert json.loads(mesh.run(forget, at="broker-2"))["forgotten"] == ["mail"]
        world.run_for(1.0)
        assert "nobody keeps mail.uk" in mesh.run(refused, at="broker-3")
        assert "is alive" in mesh.run(forget, at="broker-2")


def test_a_home_that_is_only_suspected_may_live_and_is_not_forgotten() -> None:
    """The answer said that it lives, and its operator waits for nothing then (stored swarm, 1796000616)."""

    async def forget(client: Client) -> str:
        question = {"do": "forget", "home": "broker-1"}
        return (await client.request(QUEUES, json.dumps(question).encode())).decode()

    with World(8) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        world.run_until(
            lambda: State.SUSPECT in {record.state for record in view(mesh, "broker-2").records},
            timeout_s=10.0,
            what="a suspicion",
        )
        assert "try again when it is dead" in mesh.run(forget, at="broker-2")
        world.run_for(10.0)
        assert json.loads(mesh.run(forget, at="broker-2"))["forgotten"] == ["mail"]


def test_the_maker_of_a_durable_subscription_learns_which_brokers_have_a_failing_disk() -> None:
    """The broker routes by it, and would have forgotten it after a restart."""
    unreached: list[tuple[str, ...]] = []

    async def make(client: Client) -> None:
        async with client.subscribe("mail.#", durable="mail") as mail:
            unreached.append(mail.unreached)

    with World(6) as world:
        mesh = Mesh(world, brokers=3)
        world.inject("disk_fault", ["broker-3"])
        mesh.run(make, at="broker-1")
        assert unreached == [("broker-3",)] and known(mesh, "broker-3") == MAIL
        assert mesh.broker("broker-3").statistics()["durable_file"]["failing"] == "Input/output error"
        assert mesh.run(store, at="broker-3") == ("broker-1",)
        world.heal()
        world.run_for(3.0)
        assert PATH.format("broker-3") in world.disk("broker-3").files
        assert mesh.broker("broker-3").statistics()["durable_file"]["failing"] is None


def test_a_bad_file_is_learned_again_from_the_others() -> None:
    with World(7) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-2"])
        world.disk("broker-2").files[PATH.format("broker-2")].content.cut(40)
        restart(mesh, ["broker-2"])
        mesh.wait_whole()
        assert known(mesh, "broker-2") == MAIL
        assert any(".damaged-" in path for path in world.disk("broker-2").files)


def test_a_home_that_lost_its_file_but_not_its_journal_announces_its_table_again() -> None:
    with World(8) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        del world.disk("broker-1").files[PATH.format("broker-1")]
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        world.run_for(1.0)
        for name in mesh.brokers:
            assert known(mesh, name) == MAIL and view(mesh, name).unknown_homes == ()


def test_a_home_whose_journal_is_damaged_is_not_skipped() -> None:
    """It refuses messages that it should keep, so that the others do not continue without it."""
    with World(9) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_mail, at="broker-1")
        world.inject("crash", ["broker-1"])
        for path, file in world.disk("broker-1").files.items():
            if path.endswith("/journal.db"):
                file.content.cut(100)
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        assert known(mesh, "broker-2") == MAIL
        assert "broker-1" in mesh.run(refused, at="broker-2")


def test_a_broker_that_lost_its_id_refuses_only_the_messages_of_its_former_subscriptions() -> None:
    """Swarm seed 41 with durable subscriptions: its journal now belonged to another id, it announced nothing
    of its subscriptions, and level stored was refused in the whole mesh, for every topic."""

    async def make_news(client: Client) -> None:
        async with client.subscribe("news.#", durable="news"):
            pass

    async def store_news(client: Client) -> tuple[str, ...]:
        return (await client.publish("news.uk", b"x", level="stored")).homes

    with World(10) as world:
        mesh = Mesh(world, brokers=3)
        mesh.run(make_mail, at="broker-1")
        mesh.run(make_news, at="broker-2")
        home = view(mesh, "broker-1").id
        for _ in range(2):
            world.inject("crash", ["broker-1"])
            del world.disk("broker-1").files["/state/broker-1/identity.json"]
            restart(mesh, ["broker-1"])
            mesh.wait_whole()
            world.run_for(10.0)  # the old id is dead to all
            assert mesh.run(store_news, at="broker-3") == ("broker-2",)
            for name in mesh.brokers:
                said = mesh.run(refused, at=name)
                assert f"no link to {home:016x}," in said, "broker-1 lives, under another id"
                assert said.endswith(f"mesh queue forget {home:016x}")
            assert "belongs to broker" in view(mesh, "broker-1").journal_failure


def test_a_broker_that_is_given_its_lost_id_again_is_the_home_it_was() -> None:
    """There was no way to the messages: its own journal was refused permanently as another broker's."""

    async def take(client: Client) -> bytes:
        async with client.subscribe("mail.#", durable="mail") as jobs:
            job = await anext(jobs)
            job.done()
            return bytes(job.body)

    async def try_to_store(client: Client) -> str:
        try:
            await client.publish("mail.uk", b"y", level="stored", timeout=1)
        except NotAccepted as error:
            return str(error)
        return ""

    with World(12) as world:
        mesh = Mesh(world, brokers=2)
        mesh.run(make_mail, at="broker-1")
        assert mesh.run(store, at="broker-2") == ("broker-1",)
        home, path = view(mesh, "broker-1").id, "/state/broker-1/identity.json"
        world.inject("crash", ["broker-1"])
        files = world.disk("broker-1").files
        files[path].content.cut(40)
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        failure = view(mesh, "broker-1").journal_failure
        assert f"belongs to broker {home:016x}" in failure and "identity.json" in failure
        world.run_for(10.0)
        world.inject("crash", ["broker-1"])
        written = json.dumps({"schema": 1, "id": f"{home:016x}", "incarnation": 0, "peers": []}).encode()
        files[path] = File(FileContent(written), len(written))
        restart(mesh, ["broker-1"])
        mesh.wait_whole()
        world.run_for(5.0)
        assert view(mesh, "broker-1").id == home and not view(mesh, "broker-1").journal_failure
        assert mesh.run(take, at="broker-2") == b"x"
        assert mesh.run(try_to_store, at="broker-2") == ""


@pytest.mark.virtual
async def test_a_broker_of_an_earlier_version_is_no_home_and_is_sent_no_durable_interest() -> None:
    """It would close the link on a frame of an unknown kind."""
    async with Cluster() as cluster:
        old = await cluster.broker("old")
        assert old._node is not None
        manager = old._node.peering.link_manager
        manager.offer = replace(LINK, capabilities=LINK.capabilities - {DURABLE})
        home = await cluster.broker("home", old, state_dir="/state")
        await whole([old, home])
        async with Client(home.url) as client:
            async with client.subscribe("mail.#", durable="mail") as mail:
                assert mail.unreached == ()
            assert (await client.publish("mail.uk", b"x", level="stored")).homes == ("home",)
        assert old.inspect().homes == {} and home.inspect().unknown_homes == ()
        assert old.inspect().peering.refused == {}


@pytest.mark.virtual
async def test_a_broker_stores_and_makes_nothing_until_it_has_met_the_brokers_it_is_to_join() -> None:
    """The brokers to join may be homes, and have a subscription of that name."""
    async with Cluster() as cluster:
        home = await cluster.broker("home", state_dir="/state")
        lost = await cluster.broker("lost", ["tcp://127.0.0.1:9"], state_dir="/state")
        async with Client(home.url) as one, Client(lost.url) as two:
            async with one.subscribe("mail.#", durable="mail"):
                pass
            with pytest.raises(HeldElsewhere, match="not known yet what is kept at tcp://127.0.0.1:9"):
                async with two.subscribe("mail.#", durable="mail"):
                    pass
            assert (await one.publish("mail.uk", b"x", level="stored")).homes == ("home",)
            with pytest.raises(NotAccepted, match="does not know yet what is kept at tcp://127.0.0.1:9"):
                await two.publish("mail.uk", b"x", level="stored")


@pytest.mark.virtual
async def test_a_client_is_redirected_to_a_home_that_another_broker_announced() -> None:
    async with Cluster() as cluster:
        home = await cluster.broker("home", state_dir="/state")
        other = await cluster.broker("other", home)
        await whole([home, other])
        async with Client(home.url) as client, client.subscribe("mail.#", durable="mail"):
            pass
        async with Client(other.url) as client, client.subscribe(durable="mail") as mail:
            assert (await client.publish("mail.uk", b"x", level="stored")).homes == ("home",)
            assert (await anext(mail)).body == b"x"
