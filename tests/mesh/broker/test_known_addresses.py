"""A broker's state file keeps every address that may help after the next restart."""

from __future__ import annotations

import json

from mesh.broker.identity import KnownPeer, peers_worth_keeping
from mesh.cluster.membership import MemberRecord, State
from simulations import World, programs

NAMES = ("broker-1", "broker-2", "broker-3")


def url(number: int) -> str:
    return f"tcp://10.0.0.{number}:7770"


def record(number: int, state: State = State.ALIVE, *, at: str | None = None) -> MemberRecord:
    peer_url = url(number) if at is None else at
    return MemberRecord(number, 1, state, 100 + number, f"broker-{number}", "", peer_url, "")


def known(number: int) -> KnownPeer:
    return KnownPeer(number, f"broker-{number}", url(number))


def kept(records: list[MemberRecord], earlier: list[KnownPeer]) -> list[str]:
    return [peer.url for peer in peers_worth_keeping(records, earlier, own_url=url(1))]


def test_the_living_come_first_then_the_dead_then_the_addresses_of_an_earlier_run() -> None:
    records = [record(4, State.DEAD), record(2), record(3, State.SUSPECT)]
    assert kept(records, [known(5), known(6)]) == [url(2), url(3), url(4), url(5), url(6)]


def test_a_newer_address_of_a_member_replaces_the_earlier_one() -> None:
    assert kept([record(2, at=url(9))], [known(2)]) == [url(9)]


def test_an_earlier_address_is_dropped_where_another_member_lives_now_or_left() -> None:
    records = [record(7, at=url(2)), record(8, State.LEFT, at=url(3))]
    assert kept(records, [known(2), known(3)]) == [url(2)]


def test_an_address_is_kept_once() -> None:
    assert kept([record(7, State.DEAD, at=url(2))], [known(2), known(3)]) == [url(2), url(3)]


def test_addresses_of_members_that_left_and_the_brokers_own_are_not_kept() -> None:
    assert kept([record(2, State.LEFT)], [known(1), known(2)]) == []


def test_a_broker_that_met_one_of_two_known_members_still_finds_the_other_after_a_restart() -> None:
    """The first link must not erase the addresses loaded from disk."""
    with World(seed=1) as world:
        for index, name in enumerate(NAMES):
            join = [world.network.hosts[NAMES[0]].address] if index else []
            world.add_node(name, programs.broker("test", join)).start()
            world.run_for(0.3)
        world.run_for(5)
        addresses = {name: world.network.hosts[name].address for name in NAMES}

        world.inject("crash", NAMES)
        world.inject("lost_files", NAMES[1:])
        for name in NAMES:
            world.node(name).settings.join = ()
        world.inject("start", NAMES[:2])  # broker-1 knows the addresses of both, and only meets broker-2
        world.run_for(5)
        assert {member["name"] for member in world.node("broker-1").exposed.members()} == set(NAMES[:2])
        files = world.disk("broker-1").under("/")
        state = next(json.loads(content) for path, content in files.items() if path.endswith("identity.json"))
        assert {peer["url"] for peer in state["peers"]} == {
            f"tcp://{addresses[name]}:7770" for name in NAMES[1:]
        }

        world.inject("crash", NAMES[:2])
        world.inject("start", ["broker-1", "broker-3"])
        world.run_for(10)
        alive = {member["name"] for member in world.node("broker-1").exposed.members()}
        assert "broker-3" in alive
