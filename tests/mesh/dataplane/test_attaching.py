"""ATTACH makes or finds a durable subscription, once, and is answered when every broker knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.cluster.durable_table import HomeTable, table_frames
from mesh.dataplane.attaching import UNSURE_S
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import StoreFull
from mesh.wire.durable_frames import Durable, Kept
from mesh.wire.link_frames import decode
from mesh.wire.session_frames import SUBSCRIPTIONS_MAX, Kind, Role
from tests.mesh.dataplane.homes import RawClient, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refusals(client: RawClient) -> list[tuple[int, str, str]]:
    return [(number, reason, url) for number, reason, _, url in client.heard(Durable.DETACHED)]


def sentence(client: RawClient) -> str:
    found: str = client.heard(Durable.DETACHED)[-1][2]
    return found


def test_the_first_attach_makes_the_subscription_and_others_share_it(world: World) -> None:
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.tell(Durable.ATTACH, 1, "mail", ["b.#", "a.*", "a.*"], 8, 1 << 20)
    clients[2].tell(Durable.ATTACH, 2, "mail", [], 8, 1 << 20)
    world.pump()
    assert [len(client.heard(Durable.ATTACHED)) for client in clients] == [1, 1, 2]
    assert world.table == {"mail": ("a.*", "b.#")} and world.version == 1
    assert world.queue().consumers == 4


def test_an_attach_is_confirmed_once_every_broker_knows_the_subscription(world: World) -> None:
    world.hold_barrier = True
    one, other = world.client(), world.client()
    one.attach("mail", "jobs.#")
    other.attach("mail")
    assert world.keep(b"early") == [(Kept.KEPT, "")]
    assert one.heard(Durable.ATTACHED) == other.heard(Durable.ATTACHED) == [] == one.take()
    world.home.barrier_reached(1, ["slow"])
    assert one.heard(Durable.ATTACHED) == other.heard(Durable.ATTACHED) == [[1, 1, ["slow"]]]
    assert one.take() or other.take()


def test_an_attach_after_an_incomplete_barrier_waits_for_the_missing_brokers_again(world: World) -> None:
    """It was told that every broker had the subscription, but brokers left out by the earlier barrier did
    not."""
    world.hold_barrier = True
    first, second, third, fourth = (world.client() for _ in range(4))
    first.attach("mail", "jobs.#")
    world.home.barrier_reached(1, ["slow"])
    assert first.heard(Durable.ATTACHED) == [[1, 0, ["slow"]]]
    second.attach("mail")
    assert second.heard(Durable.ATTACHED) == []
    world.home.barrier_reached(1, ["slow", "slower"])
    assert second.heard(Durable.ATTACHED) == [[1, 0, ["slow", "slower"]]]
    third.attach("mail")
    assert third.heard(Durable.ATTACHED) == []
    world.home.barrier_reached(1)
    assert third.heard(Durable.ATTACHED) == [[1, 0, []]]
    fourth.attach("mail")
    assert fourth.heard(Durable.ATTACHED) == [[1, 0, []]], (
        "all had it once: who comes later waits for nothing"
    )
    assert world.version == 1


def test_a_subscription_of_an_earlier_run_is_confirmed_by_a_barrier_of_this_one(world: World) -> None:
    client = world.client()
    client.attach("mail", "jobs.#")
    after = world.restart()
    after.hold_barrier = True
    one, other = after.client(), after.client()
    one.attach("mail")
    other.attach("mail")
    assert one.heard(Durable.ATTACHED) == other.heard(Durable.ATTACHED) == []
    one.die()
    after.home.barrier_reached(0, ["away"])
    assert other.heard(Durable.ATTACHED) == [[1, 0, ["away"]]]


def test_a_barrier_confirms_only_attaches_that_wait_for_it_or_an_earlier_one(world: World) -> None:
    world.hold_barrier = True
    clients = [world.client() for _ in range(3)]
    for number, client in enumerate(clients):
        client.attach(f"mail{number}", "jobs.#")
    assert world.version == 3
    world.home.barrier_reached(2)
    assert [len(client.heard(Durable.ATTACHED)) for client in clients] == [1, 1, 0]
    for client in clients:
        client.attach("mail1", number=2)
    assert [len(client.heard(Durable.ATTACHED)) for client in clients] == [2, 2, 1]
    world.home.barrier_reached(3)
    assert [len(client.heard(Durable.ATTACHED)) for client in clients] == [2, 2, 2]


def test_a_client_that_leaves_while_a_subscription_is_made_is_no_consumer_of_it(world: World) -> None:
    world.hold_barrier = True
    dies, leaves, detaches = (world.client() for _ in range(3))
    for client in (dies, leaves, detaches):
        client.tell(Durable.ATTACH, 1, "mail", ["jobs.#"], 8, 1 << 20)
    dies.die()
    leaves.attach("other", "jobs.#", number=2)
    leaves.leave()
    detaches.say(Durable.DETACH, 1)
    world.home.barrier_reached(2)
    assert detaches.heard(Durable.ATTACHED) == []
    assert (world.queue().consumers, world.queue("other").consumers) == (0, 0)
    assert world.home._attaching._count == 0


@pytest.mark.parametrize(
    ("name", "patterns", "reason", "said"),
    [
        ("", ["a"], "bad_name", "is empty"),
        ("ä" * 200, ["a"], "bad_name", "has 400 bytes, the limit is 250"),
        ("line\nbreak", ["a"], "bad_name", "cannot be printed"),
        ("$mine", ["a"], "bad_name", "the mesh's own"),
        ("$dlq.mail", [], "unknown", "there is no durable subscription '$dlq.mail'"),
        ("mail", [], "unknown", "give patterns to make it"),
        ("mail", ["$sys.#"], "bad_name", "not stored"),
    ],
)
def test_an_invalid_attach_is_one_sentence_and_the_session_continues(
    world: World, name: str, patterns: list[str], reason: str, said: str
) -> None:
    client = world.client()
    for _ in range(3):
        client.say(Durable.ATTACH, 1, name, patterns, 8, 1 << 20)
    assert refusals(client) == [(1, reason, "")] * 3
    assert said in sentence(client) and world.disk is None
    client.attach("fine", "a", number=1)
    assert client.heard(Durable.ATTACHED) == [[1, 0, []]]


@pytest.mark.parametrize("name", ["n" * 250, "ä" * 125])
def test_the_dead_letters_of_the_longest_name_can_be_announced(world: World, name: str) -> None:
    """Names of 255 bytes were accepted. The names of their dead letters had 260, which every other broker
    treated as a broken rule: it dropped the link, each time."""
    client = world.client()
    client.attach(name, "jobs.#")
    assert world.keep(b"a") == [(Kept.KEPT, "")]
    client.drop(*client.take())
    world.wait(1.0)
    assert list(world.table) == [name, "$dlq." + name]
    for frame in table_frames(1, HomeTable(2, "alpha", "", world.table)):
        assert len(decode(frame)) == 8
    client.attach(name + "n", "jobs.#", number=2)
    assert "has 251 bytes, the limit is 250" in sentence(client)


def test_other_patterns_under_the_same_name_are_refused(world: World) -> None:
    one, other = world.client(), world.client()
    one.tell(Durable.ATTACH, 1, "mail", ["jobs.#"], 8, 1 << 20)
    other.tell(Durable.ATTACH, 1, "mail", ["other"], 8, 1 << 20)
    world.pump()
    other.attach("mail", "jobs.#", "more", number=2)
    assert refusals(other) == [(1, "other_patterns", ""), (2, "other_patterns", "")]
    assert sentence(other).startswith(
        "durable subscription 'mail' has other patterns: jobs.#; attach with these"
    )


def test_a_subscription_of_another_home_is_not_made_here_even_without_a_state_folder(tmp_path: Path) -> None:
    for state in (True, False):
        world = World(tmp_path, state=state)
        world.exchange.home_changed(9, "beta", "tcp://beta:7770", {"mail": ["jobs.#"]})
        client = world.client()
        client.attach("mail", "jobs.#")
        assert refusals(client) == [(1, "held_elsewhere", "tcp://beta:7770")]
        assert "broker beta" in sentence(client)


@pytest.mark.parametrize("patterns", [(), ("jobs.#",)])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("how", ["joins", "unknown"])
def test_an_attach_waits_until_the_subscriptions_of_other_homes_are_known(
    how: str, state: bool, patterns: tuple[str, ...], tmp_path: Path
) -> None:
    """A broker that had just joined made a second subscription of the name, and its worker waited there
    forever."""
    world = World(tmp_path, state=state)
    if how == "joins":
        world.exchange.gate.close()
    else:
        world.exchange.set_unknown_homes(["beta"])
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.attach("mail", *patterns)
    clients[0].leave()
    clients[1].say(Durable.DETACH, 1)
    assert not refusals(clients[2]) and world.table == {}
    world.exchange.home_changed(9, "beta", "tcp://beta:7770", {"mail": ["jobs.#"]})
    world.exchange.set_unknown_homes([])
    world.exchange.open_gate(world.now)
    assert refusals(clients[2]) == [(1, "held_elsewhere", "tcp://beta:7770")]
    assert not refusals(clients[1]) and world.home._attaching._count == 0


def test_an_attach_that_times_out_names_the_homes_with_unknown_subscriptions(
    world: World,
) -> None:
    world.exchange.set_unknown_homes(["beta", "gamma"])
    one, other = world.client(), world.client()
    one.attach("mail", "jobs.#")
    world.wait(UNSURE_S - 0.1)
    assert not refusals(one)
    other.attach("mail", "jobs.#")
    world.wait(0.1)
    assert refusals(one) == [(1, "held_elsewhere", "")] and not refusals(other)
    assert "may live elsewhere: it is not known yet what is kept at beta, gamma" in sentence(one)
    world.exchange.set_unknown_homes([])
    assert other.heard(Durable.ATTACHED) and world.table == {"mail": ("jobs.#",)}


def test_an_attach_that_waits_for_other_homes_is_told_that_the_broker_leaves(world: World) -> None:
    world.exchange.set_unknown_homes(["beta"])
    client = world.client()
    client.attach("mail", "jobs.#")
    world.home.leave("it stops", world.now)
    assert refusals(client) == [(1, "leaving", "")]


def beta(name: str) -> tuple[str, str]:
    return "beta", "tcp://beta:1"


def nobody(name: str) -> None:
    return None


def test_a_name_that_another_home_announced_meanwhile_is_not_made(world: World) -> None:
    client = world.client()
    client.tell(Durable.ATTACH, 1, "mail", ["jobs.#"], 8, 1 << 20)
    world.home.set_elsewhere(beta, nobody)
    world.pump()
    assert refusals(client) == [(1, "held_elsewhere", "tcp://beta:1")]
    assert world.table == {} and world.version == 0 and world.journal.journal.subscriptions() == []


def test_the_home_with_the_lowest_id_stays_when_several_make_a_name_at_once(world: World) -> None:
    world.hold_barrier = True
    client, other = world.client(), world.client()
    client.attach("mail", "jobs.#")
    other.attach("mail")
    client.attach("mine", "jobs.#", number=2)
    world.home.set_elsewhere(nobody, lambda name: beta(name) if name == "mail" else None)
    world.home.barrier_reached(2)
    world.pump()
    assert refusals(client) == refusals(other) == [(1, "held_elsewhere", "tcp://beta:1")]
    assert client.heard(Durable.ATTACHED) == [[2, 0, []]]
    assert world.table == {"mine": ("jobs.#",)}
    assert [kept.name for kept in world.journal.journal.subscriptions()] == ["mine"]


def test_a_home_that_keeps_something_or_has_confirmed_it_stays(world: World) -> None:
    world.hold_barrier = True
    client = world.client()
    client.attach("mail", "jobs.#")
    assert world.keep(b"0") == [(Kept.KEPT, "")]
    world.home.set_elsewhere(nobody, beta)
    world.home.barrier_reached(1)
    assert client.heard(Durable.ATTACHED) == [[1, 1, []]]
    late = world.client()
    late.attach("mail")
    world.home.barrier_reached(world.version)
    assert late.heard(Durable.ATTACHED) == [[1, 1, []]] and world.table == {"mail": ("jobs.#",)}


def test_a_name_that_cannot_be_removed_stays(world: World) -> None:
    """All brokers know it, and a restart would bring it back."""
    world.hold_barrier = True
    client = world.client()
    client.attach("mail", "jobs.#")
    world.home.set_elsewhere(nobody, beta)
    world.journal.brim = True
    world.home.barrier_reached(1)
    assert refusals(client) == [(1, "held_elsewhere", "tcp://beta:1")]
    world.journal.brim = False
    assert world.keep(b"0") == [(Kept.KEPT, "")] and world.table == {"mail": ("jobs.#",)}


def test_a_broker_without_a_state_folder_keeps_no_subscriptions_and_no_messages(tmp_path: Path) -> None:
    world = World(tmp_path, state=False)
    client = world.client()
    client.attach("mail", "jobs.#")
    assert refusals(client) == [(1, "no_state", "")] and "state_dir" in sentence(client)
    ((kept, why),) = world.keep(b"x")
    assert kept is Kept.REFUSED and "state_dir" in why


def test_a_number_in_use_and_an_empty_window_cost_the_session(world: World) -> None:
    for number, messages, size in ((7, 8, 8), (0, 8, 8), (1, 0, 8), (1, 8, 0)):
        client = world.client()
        client.attach("mail", "jobs.#", number=7)
        client.say(Durable.ATTACH, number, "mail", [], messages, size)
        assert client.heard(Kind.ERROR), (number, messages, size)
    client = world.client()
    client.attach("mail", "jobs.#", number=7)
    client.say(Kind.SUBSCRIBE, 7, ["live"], int(Role.LISTEN), 8, 1 << 20)
    assert "number 7 is taken" in client.heard(Kind.ERROR)[0][1]
    assert world.queue().consumers == 0


def test_each_bound_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    world = World(tmp_path, options=ExchangeOptions(durables_max=2, consumers_max=2, starred_patterns_max=1))
    client = world.client()
    client.attach("stars", "*.*.*.*.*.a", "*.*.*.*.*.b", number=1)
    client.attach("a", "*.*.*.*.*.a", number=2)
    client.attach("b", "a", number=3)
    client.attach("a", number=4)
    client.say(Durable.DETACH, 2)
    client.attach("c", "a", number=5)
    assert refusals(client) == [(1, "limit", ""), (4, "limit", ""), (5, "limit", "")]
    said = [each[2] for each in client.heard(Durable.DETACHED)]
    for bound, each in zip(("starred_patterns_max", "consumers_max", "durables_max"), said, strict=True):
        assert bound in each


def test_the_attached_subscriptions_of_a_session_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SUBSCRIPTIONS_MAX == 4096
    monkeypatch.setattr("mesh.dataplane.attaching.SUBSCRIPTIONS_MAX", 2)
    client = world.client()
    client.attach("mail", "jobs.#", number=1)
    client.attach("mail", number=2)
    client.attach("mail", number=3)
    assert refusals(client) == [(3, "limit", "")]


def test_a_window_is_cut_to_the_limit_of_a_consumer(tmp_path: Path) -> None:
    world = World(tmp_path, options=ExchangeOptions(work_window_max=3, work_bytes_max=10_000))
    client = world.client()
    client.attach("mail", "jobs.#", window=1 << 20)
    world.keep(*[b"x"] * 10)
    assert sum(len(work.bodies) for work in client.take()) == 3
    other = world.client()
    other.attach("large", "large", window=3)
    world.keep(bytes(9_000), bytes(9_000), bytes(9_000), topic=b"large")
    assert sum(len(work.bodies) for work in other.take()) == 2, "one message may overdraw the bytes"


def test_a_journal_that_cannot_be_made_is_tried_again_by_the_next(world: World) -> None:
    world.opening = StoreFull("the disk has no room for the journal")
    client = world.client()
    client.tell(Durable.ATTACH, 1, "mail", ["a"], 8, 8)
    client.tell(Durable.ATTACH, 2, "mail", ["a"], 8, 8)
    world.pump()
    assert refusals(client) == [(1, "failed", ""), (2, "failed", "")]
    assert "no room for the journal" in sentence(client)
    world.opening = None
    client.attach("mail", "a", number=1)
    assert client.heard(Durable.ATTACHED) == [[1, 0, []]]


def test_an_attach_on_a_full_disk_fails_without_a_trace(world: World) -> None:
    client = world.client()
    client.attach("mail", "jobs.#")
    world.journal.brim = True
    client.attach("other", "jobs.#", number=2)
    assert refusals(client) == [(2, "failed", "")] and world.table == {"mail": ("jobs.#",)}
    world.journal.brim = False
    client.attach("other", "jobs.#", number=2)
    assert len(client.heard(Durable.ATTACHED)) == 2


def test_a_journal_that_cannot_be_opened_is_a_sentence_to_all_until_a_restart(world: World) -> None:
    world.home.not_opened("the journal x belongs to broker 7")
    client = world.client()
    client.attach("mail", "jobs.#")
    assert refusals(client) == [(1, "failed", "")] and "belongs to broker 7" in sentence(client)
    ((kept, why),) = world.keep(b"x")
    assert (kept, why) == (Kept.REFUSED, "the journal x belongs to broker 7")


def test_a_failed_journal_detaches_all_consumers_and_waiting_clients(world: World) -> None:
    works, waits, makes = (world.client() for _ in range(3))
    works.attach("mail", "jobs.#")
    world.hold_barrier = True
    waits.attach("other", "jobs.#")
    makes.tell(Durable.ATTACH, 1, "third", ["jobs.#"], 8, 8)
    world.journal.failing = True
    world.pump()
    for client in (works, waits, makes):
        assert refusals(client) == [(1, "failed", "")]
        client.attach("mail", number=2)
        assert refusals(client)[-1] == (2, "failed", "")
    assert world.home._attaching._count == 0 and world.failures == ["the disk failed"]


def test_removing_one_under_its_consumers_tells_them_and_frees_the_name(world: World) -> None:
    works, waits = world.client(), world.client()
    works.attach("mail", "jobs.#")
    world.keep(b"one")
    world.hold_barrier = True
    waits.attach("other", "jobs.#")
    told: list[str] = []
    for name in ("mail", "other", "mail", "nothing"):
        world.home.remove(name, told.append)
    assert told == ["there is no durable subscription 'nothing' at broker alpha"]
    world.pump()
    assert told[1:3] == ["", ""] and len(told) == 4
    assert refusals(works) == [(1, "removed", "")] == refusals(waits)
    assert world.table == {} and world.home.queues() == []
    works.done(*works.take())
    world.hold_barrier = False
    works.attach("mail", "other.#")
    assert works.heard(Durable.ATTACHED)[1:] == [[1, 0, []]]
    assert world.keep(b"two") == [(Kept.UNWANTED, "")]


def test_a_removal_that_fails_changes_nothing(world: World) -> None:
    client = world.client()
    client.attach("mail", "jobs.#")
    world.journal.brim = True
    told: list[str] = []
    world.home.remove("mail", told.append)
    world.pump()
    assert told == ["durable subscription 'mail' was not removed: the disk is full"]
    world.journal.brim = False
    assert world.keep(b"x") == [(Kept.KEPT, "")] and client.take()


def test_consumers_are_told_when_the_broker_leaves_and_their_messages_stay(world: World) -> None:
    client = world.client()
    client.attach("mail", "jobs.#")
    world.keep(b"one", b"two")
    (work,) = client.take()
    client.tell(Durable.DONE, 1, [[work.row, 0, b"\x01"]])
    world.exchange.leave("broker alpha leaves", world.now)
    world.pump()
    assert refusals(client) == [(1, "leaving", "")]
    client.attach("mail")
    assert refusals(client)[-1] == (1, "leaving", "")
    world.home.finish(world.now)
    world.pump()
    world = world.restart()
    assert world.queue().waiting == 1 and not world.rows()[0].bitmap and world.rows()[0].floor == 1


def test_frames_of_durable_subscriptions_need_the_capability_and_the_right_sender(world: World) -> None:
    client = world.client()
    client.say(Durable.ATTACHED, 1, 0, [])
    assert "not for a client to send" in client.heard(Kind.ERROR)[0][1]
