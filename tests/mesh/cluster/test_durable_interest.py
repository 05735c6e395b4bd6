"""Durable interest of many brokers: it converges, outlives its homes, and is bounded."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.cluster import durable_interest
from mesh.cluster.barriers import BARRIER_S, BarrierDone
from mesh.cluster.durable_interest import RELAY_S, DurableInterest
from mesh.cluster.durable_table import (
    CHANGES_MAX,
    CLOCK_MAX,
    OWN_MAX,
    PATTERNS_MAX,
    SENT_MAX,
    STEP_MAX,
    SUBSCRIPTIONS_MAX,
    is_own,
)
from mesh.errors import LinkError
from mesh.wire.link_frames import HOMES_MAX, LinkKind, decode
from tests.mesh.cluster.durable_mesh import Brokers, Table

NAMES = st.sampled_from(["mail", "jobs", "audit", "log"])
PATTERNS = st.lists(st.sampled_from(["a.#", "b", "c.*"]), max_size=2, unique=True).map(tuple)


class Converging(RuleBasedStateMachine):
    """Two to four brokers over links that end at any time; in the end all have the same tables."""

    @initialize(count=st.integers(2, 4))
    def begin(self, count: int) -> None:
        self.brokers = Brokers(count)

    def pick(self, data: st.DataObject, *, alive: bool = True) -> int:
        return data.draw(st.sampled_from([b.id for b in self.brokers.all if b.alive is alive]))

    @rule(
        data=st.data(),
        added=st.dictionaries(NAMES, PATTERNS, max_size=2),
        removed=st.lists(NAMES, max_size=2),
    )
    @precondition(lambda self: self.brokers.live)
    def change(self, data: st.DataObject, added: Table, removed: list[str]) -> None:
        self.brokers.broker(self.pick(data)).change(added, [name for name in removed if name not in added])

    @rule(data=st.data())
    @precondition(lambda self: len(self.brokers.live) > 1)
    def link(self, data: st.DataObject) -> None:
        one, other = self.pick(data), self.pick(data)
        if one != other:
            self.brokers.link(one, other)

    @rule(data=st.data())
    @precondition(lambda self: self.brokers.wires)
    def cut(self, data: st.DataObject) -> None:
        self.brokers.cut(*data.draw(st.sampled_from(sorted(self.brokers.wires))))

    @rule(frames=st.integers(1, 5))
    def say(self, frames: int) -> None:
        self.brokers.say(frames)

    @rule(data=st.data(), frames=st.integers(1, 5))
    @precondition(lambda self: self.brokers.wires)
    def deliver(self, data: st.DataObject, frames: int) -> None:
        self.brokers.deliver(*data.draw(st.sampled_from(sorted(self.brokers.wires))), frames)

    @rule(data=st.data(), fails=st.booleans())
    @precondition(lambda self: self.brokers.live)
    def save(self, data: st.DataObject, fails: bool) -> None:
        self.brokers.broker(self.pick(data)).save(fails=fails)

    @rule(data=st.data(), loses_file=st.booleans())
    @precondition(lambda self: self.brokers.live)
    def crash(self, data: st.DataObject, loses_file: bool) -> None:
        self.brokers.crash(self.pick(data), loses_file=loses_file)

    @rule(data=st.data())
    @precondition(lambda self: len(self.brokers.live) < len(self.brokers.all))
    def start(self, data: st.DataObject) -> None:
        self.brokers.start(self.pick(data, alive=False))

    @rule(data=st.data(), home=st.integers(1, 4))
    @precondition(lambda self: self.brokers.live)
    def forget(self, data: st.DataObject, home: int) -> None:
        self.brokers.broker(self.pick(data)).interest.forget(home, self.brokers.wall_us())

    @rule(seconds=st.sampled_from([0.5, 1.0, 6.0]))
    def tick(self, seconds: float) -> None:
        self.brokers.tick(seconds)

    @invariant()
    def versions_have_one_content(self) -> None:
        self.brokers.check()

    def teardown(self) -> None:
        if not hasattr(self, "brokers"):
            return
        brokers = self.brokers
        brokers.heal()
        brokers.check()
        tables = [broker.tables() for broker in brokers.live]
        assert all(each == tables[0] for each in tables)
        for broker in brokers.live:
            held = tables[0].get(broker.id)
            assert ({} if held is None else held[1]) == broker.journal, "a home is right about itself"
            assert broker.interest.unknown() == ()
            assert {home: table for home, table in broker.routed.items() if table} == {
                home: table for home, (_, table) in tables[0].items() if table
            }
            assert not broker.interest.next_deadline() < float("inf")


TestConverging = Converging.TestCase
TestConverging.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def linked(count: int) -> Brokers:
    brokers = Brokers(count)
    brokers.heal()
    return brokers


def kinds(brokers: Brokers, sender: int, receiver: int) -> list[int]:
    return [decode(frame)[0] for frame in brokers.wires[sender, receiver]]


def test_a_change_goes_to_all_as_a_difference_and_is_known_when_all_have_it_on_disk() -> None:
    brokers = linked(3)
    home = brokers.broker(1)
    home.change({"mail": ("m.#",)}, [])
    brokers.settle()
    home.reached.clear()
    version = home.change({"jobs": ("j.#", "k")}, ["mail"])
    home.apply()
    brokers.say()
    assert kinds(brokers, 1, 2) == kinds(brokers, 1, 3) == [LinkKind.DURABLE_CHANGE]
    brokers.deliver(1, 2)
    brokers.deliver(1, 3)
    assert brokers.broker(2).tables()[1][1] == {"jobs": ("j.#", "k")}
    brokers.broker(2).save()
    brokers.broker(3).apply()
    brokers.say()
    assert kinds(brokers, 3, 1) == [], "it is in memory only"
    brokers.deliver(2, 1)
    assert home.reached == []
    brokers.broker(3).save()
    brokers.say()
    brokers.deliver(3, 1)
    assert home.reached == [BarrierDone(version, ())]


def test_brokers_without_the_change_on_disk_are_named_after_five_seconds() -> None:
    brokers = linked(3)
    version = brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.broker(1).apply()
    brokers.say()
    brokers.deliver(1, 2)
    brokers.deliver(1, 3)
    brokers.broker(2).save()
    brokers.broker(3).save(fails=True)
    brokers.say()
    brokers.deliver(2, 1)
    brokers.deliver(3, 1)
    brokers.tick(BARRIER_S)
    assert brokers.broker(1).reached == [BarrierDone(version, ("n3",))]


def test_a_subscription_is_known_only_when_the_home_itself_routes_by_it() -> None:
    brokers = linked(1)
    home = brokers.broker(1)
    version = home.change({"mail": ("m",)}, [])
    assert home.reached == []
    home.apply()
    assert home.reached == [BarrierDone(version, ())]


def test_changes_during_a_write_count_as_held_once_the_data_plane_routes_by_them() -> None:
    """It was saved together with earlier changes and counted as held: the barrier ended, and while the data
    plane was busy with many patterns, level stored skipped the home."""
    brokers = linked(2)
    brokers.settle()
    home, other = brokers.broker(1), brokers.broker(2)
    home.change({"mail": ("m",)}, [])
    brokers.say()
    brokers.deliver(1, 2)
    other.apply()
    assert other.interest.unsaved, "the shell begins to write"
    home.change({"jobs": ("j",)}, [])
    brokers.say()
    brokers.deliver(1, 2)
    other.interest.saved(other.interest.versions())
    brokers.say()
    brokers.deliver(2, 1)
    assert home.reached == [], "it does not route by the second one"
    other.apply()
    assert other.interest.unsaved
    other.save()
    home.save()
    brokers.settle()
    assert home.reached[-1] == BarrierDone(home.interest.version, ())
    assert not other.interest.unsaved


def test_a_broker_without_the_capability_is_sent_nothing_and_not_waited_for() -> None:
    interest = DurableInterest(1, "n1")
    interest.set_own({}, 1000)
    interest.members({2: "old"})
    interest.link_up(2, capable=False)
    version = interest.change_own({"mail": ("m",)}, [], 1002)
    assert interest.pending(2) is None and interest.behind() == [] and interest.unknown() == ()
    while interest.next_change() is not None:
        pass
    assert interest.wait(version, 0.0) is None and interest.applied() == [BarrierDone(version, ())]


def test_a_table_outlives_its_home_and_a_late_broker_learns_it_from_another() -> None:
    brokers = linked(3)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.crash(3, loses_file=True)
    brokers.settle()
    brokers.crash(1)
    brokers.crash(2)
    brokers.start(2)
    brokers.start(3)
    brokers.heal()
    assert brokers.broker(3).tables()[1][1] == {"mail": ("m",)} == brokers.broker(3).routed[1]


def test_a_subscription_that_was_removed_does_not_come_back() -> None:
    """A broker that was away brings the table that still contained it."""
    brokers = linked(3)
    brokers.broker(1).change({"mail": ("m",), "jobs": ("j",)}, [])
    brokers.settle()
    brokers.crash(3)
    brokers.broker(1).change({}, ["mail"])
    brokers.settle()
    brokers.crash(1)
    brokers.start(3)
    assert set(brokers.broker(3).tables()[1][1]) == {"mail", "jobs"}
    brokers.heal()
    for id in (2, 3):
        assert brokers.broker(id).tables()[1][1] == {"jobs": ("j",)}


def test_a_home_that_was_forgotten_stays_so_until_it_lives() -> None:
    brokers = linked(4)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    brokers.crash(1)
    brokers.crash(4)
    assert brokers.broker(2).interest.forget(1, brokers.wall_us())
    brokers.settle()
    brokers.start(4)
    brokers.heal()
    for id in (2, 3, 4):
        version, content = brokers.broker(id).tables()[1]
        assert content == {} and not is_own(version)
    brokers.start(1)
    brokers.heal()
    for broker in brokers.all:
        assert broker.tables()[1][1] == {"mail": ("m",)}


def test_a_home_and_a_broker_that_forgets_it_make_different_versions() -> None:
    """With the same version, some brokers would take one table for the right one, and some the other."""
    brokers = linked(3)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    brokers.cut(1, 2)
    now_us = 90_000
    brokers.broker(1).journal = {"jobs": ("j",)}
    brokers.broker(1).interest.change_own({"jobs": ("j",)}, ["mail"], now_us)
    brokers.broker(2).interest.forget(1, now_us)
    brokers.check()
    brokers.heal()
    for broker in brokers.all:
        assert broker.tables()[1][1] == {"jobs": ("j",)}


def test_forgetting_itself_or_an_unknown_home_is_refused() -> None:
    brokers = linked(2)
    brokers.broker(1).change({"mail": ("m",)}, [])
    assert not brokers.broker(1).interest.forget(1, 1), "itself"
    assert not brokers.broker(1).interest.forget(3, 1), "nothing is known of it"


def test_a_member_without_a_readable_journal_can_be_forgotten() -> None:
    """Neither its journal nor its file can be read, and level stored was refused because of that."""
    brokers = Brokers(2)
    damaged = brokers.broker(1).interest = DurableInterest(1, "n1")
    brokers.members_changed()
    brokers.heal()
    asker = brokers.broker(2).interest
    assert asker.unknown() == ("n1",)
    assert asker.forget(1, brokers.wall_us())
    brokers.settle()
    assert asker.unknown() == () and damaged.own == {}


def test_a_barrier_ignores_acknowledgements_of_an_earlier_run_with_a_lost_file() -> None:
    """Its clock was set back, so an old version lies between two new ones."""
    brokers = Brokers(2)
    home, other = brokers.all
    brokers._wall_us = 50_000
    home.change({"old": ("o",)}, [])
    brokers.heal()
    brokers.crash(1, loses_file=True)
    home.journal.clear()
    brokers._wall_us = 2000
    brokers.start(1)
    version = home.change({"new": ("n",)}, [])
    brokers.link(1, 2)
    brokers.say()
    brokers.deliver(2, 1)  # it holds 50 002, and so `version` and more
    home.apply()
    assert home.reached == [] and home.interest.version > 50_002 > version
    brokers.settle()
    assert home.reached[-1].unreached == () and other.tables()[1][1] == {"new": ("n",)}


def test_a_broker_without_an_open_journal_takes_its_own_table_from_others() -> None:
    """Its file is lost as well. With an empty table of its own, level stored would skip it."""
    brokers = linked(2)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    brokers.crash(1, loses_file=True)
    brokers.broker(1).start()
    damaged = DurableInterest(1, "n1")
    brokers.broker(1).interest = damaged
    brokers.members_changed()
    brokers.link(1, 2)
    brokers.settle()
    assert dict(damaged.own) == {"mail": ("m",)}
    assert brokers.broker(2).tables()[1][1] == {"mail": ("m",)}
    assert damaged.set_own({"mail": ("m",), "more": ()}, 1) > 1000
    brokers.settle()
    assert set(brokers.broker(2).tables()[1][1]) == {"mail", "more"}


def test_a_live_member_is_unknown_until_its_present_table_is_held() -> None:
    brokers = linked(2)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    asker = brokers.broker(2).interest
    brokers.cut(1, 2)
    assert asker.unknown() == (), "alive still, and nothing new was said"
    brokers.broker(1).change({"jobs": ("j",)}, [])
    brokers.link(1, 2)
    assert asker.unknown() == ("n1",)
    brokers.say()
    brokers.deliver(1, 2)
    assert asker.unknown() == ("n1",), "it said that it holds more"
    brokers.settle()
    assert asker.unknown() == ()
    brokers.crash(1)
    assert asker.unknown() == ()
    brokers.start(1)
    assert asker.unknown() == ("n1",), "in another run"


def test_a_member_is_unknown_until_its_tables_of_dead_homes_are_held() -> None:
    """It was known by its own table alone. Its tables of dead homes came behind that, and meanwhile a message
    of level stored was acknowledged that these homes did not have."""
    brokers = linked(3)
    brokers.broker(1).change({"own": ("o",)}, [])
    brokers.settle()
    brokers.broker(2).change({"mail": ("m",)}, [])
    brokers.crash(3, loses_file=True)
    brokers.settle()
    brokers.crash(2)
    brokers.start(3)
    brokers.link(1, 3)
    asker = brokers.broker(3).interest
    while not asker.homes.get(1):
        brokers.say(1)
        brokers.deliver(1, 3)
        brokers.deliver(3, 1)
        brokers.check()
    assert 2 not in asker.homes and asker.unknown() == ("n1",)
    brokers.say(1)
    brokers.deliver(1, 3)
    assert asker.unknown() == () and asker.homes[2].subscriptions == {"mail": ("m",)}


def test_tables_held_by_a_member_are_not_waited_for_once_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_interest, "TOTAL_MAX", 100)
    interest = one_link()
    interest.held_received(2, [(2, 2), (3, 10), (4, 10)])
    claims(interest, 2, [], version=2)
    assert interest.unknown() == ("n2",), "it held tables of 3 and 4"
    claims(interest, 3, [("s", ("t",))])
    assert interest.unknown() == ("n2",)
    claims(interest, 4, [(f"s{n}", ("t",)) for n in range(100)])
    assert interest.unknown() == ("h4",)
    interest.link_up(2, capable=True)
    interest.held_received(2, [(2, 2), (5, 10)])
    assert interest.unknown() == ("n2", "h4")
    interest.link_down(2)
    interest.members({})
    interest.members({2: "n2"})
    assert interest.unknown() == ("n2", "h4"), "nobody says what was owed any more, and it is alive again"


def test_a_joining_broker_treats_unheard_peers_as_possible_homes() -> None:
    interest = DurableInterest(1, "n1")
    interest.set_own({}, 1000)
    assert interest.set_unheard(["tcp://seed:1", "n2"], ["tcp://seed:1"], wait=True) == []
    assert interest.unknown() == ("tcp://seed:1",), "n2 was met in an earlier run"
    assert interest.wait(interest.change_own({"mail": ("m",)}, [], 1000), 0.0) is None
    assert interest.tick(BARRIER_S)[0].unreached == ("tcp://seed:1", "n2", "n1")
    interest.set_unheard([], [], wait=False)
    assert interest.unknown() == ()


def test_a_broker_without_a_link_to_the_home_gets_its_table_through_another() -> None:
    brokers = linked(3)
    brokers.cut(1, 3)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    assert 1 not in brokers.broker(3).tables()
    assert brokers.broker(2).interest.next_deadline() <= brokers.now + RELAY_S
    brokers.tick(RELAY_S)
    brokers.settle()
    assert brokers.broker(3).tables()[1][1] == {"mail": ("m",)}


def test_tables_are_not_relayed_in_a_full_mesh() -> None:
    brokers = linked(3)
    brokers.broker(1).change({"mail": ("m",)}, [])
    brokers.settle()
    brokers.tick(RELAY_S)
    brokers.say()
    assert not any(brokers.wires.values())


def test_ten_thousand_subscriptions_are_sent_in_parts_with_other_frames_between() -> None:
    brokers = linked(2)
    brokers.broker(1).change({f"s{number}": (f"t{number}", "u") for number in range(10_000)}, [])
    brokers.say(1)
    brokers.broker(1).change({"late": ("x",)}, ["s0"])
    brokers.say()
    frames = [decode(frame) for frame in brokers.wires[1, 2]]
    assert len(frames) == 20_000 // SENT_MAX + 2 and frames[-1][0] == LinkKind.DURABLE_CHANGE
    assert max(map(len, brokers.wires[1, 2])) < 20_000
    brokers.settle()
    assert brokers.broker(2).tables() == brokers.broker(1).tables()
    assert len(brokers.broker(2).routed[1]) == 10_000


def test_a_peer_that_is_far_behind_is_sent_the_whole_table() -> None:
    brokers = linked(2)
    home = brokers.broker(1)
    home.change({"first": ("x",)}, [])
    brokers.settle()
    for number in range(CHANGES_MAX):
        home.change({"again": (f"t{number}",)}, [])
    brokers.say()
    assert kinds(brokers, 1, 2) == [LinkKind.DURABLE]


def test_a_home_announces_its_changed_address() -> None:
    brokers = linked(2)
    home = brokers.broker(1)
    home.interest.identify("tcp://a:1", brokers.wall_us())
    assert home.interest.version == 0, "it is no home yet"
    home.change({"mail": ("m",)}, [])
    brokers.settle()
    home.interest.identify("", brokers.wall_us())
    home.interest.identify("tcp://a:2", brokers.wall_us())
    brokers.say()
    brokers.deliver(1, 2)
    told = None
    while (change := brokers.broker(2).interest.next_change()) is not None:
        told = change
    assert told is not None and (told.name, told.client_url) == ("n1", "tcp://a:2")
    assert told.added == {} and told.removed == ()


def claims(interest: DurableInterest, home: int, subscriptions: list[Any], version: int = 10) -> None:
    """Member 2 sends the table of a home."""
    parts = [subscriptions[start : start + SENT_MAX] for start in range(0, len(subscriptions), SENT_MAX)] or [
        []
    ]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        interest.whole_received(2, [home, version, number, last, f"h{home}", "", part], 0.0)


def one_link() -> DurableInterest:
    interest = DurableInterest(1, "n1")
    interest.members({2: "n2"})
    interest.link_up(2, capable=True)
    return interest


@pytest.mark.parametrize(
    ("subscriptions", "complaint"),
    [
        ([("s", ("a..b",))], "durable subscription 's' has an invalid pattern"),
        ([(f"s{n}", ()) for n in range(SUBSCRIPTIONS_MAX + 1)], "more than 32768 durable subscriptions"),
        (
            [(f"s{n}", ("t",) * 64) for n in range((PATTERNS_MAX + SUBSCRIPTIONS_MAX) // 64 + 1)],
            "more than 65536 patterns",
        ),
    ],
)
def test_a_table_beyond_its_bounds_costs_the_link(subscriptions: list[Any], complaint: str) -> None:
    interest = one_link()
    with pytest.raises(LinkError, match=complaint):
        claims(interest, 3, subscriptions)
    assert 3 not in interest.homes


def test_a_difference_beyond_the_bounds_costs_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    interest = one_link()
    claims(interest, 3, [(f"s{n}", ()) for n in range(SUBSCRIPTIONS_MAX)])
    interest.change_received(2, [3, 10, 12, [("s0", ("t",))], []], 0.0)
    with pytest.raises(LinkError, match="more than 32768"):
        interest.change_received(2, [3, 12, 14, [("more", ())], []], 0.0)
    with pytest.raises(LinkError, match="an invalid pattern"):
        interest.change_received(2, [3, 12, 14, [("s1", ("",))], []], 0.0)
    assert interest.homes[3].version == 12


def test_parts_out_of_turn_cost_the_link() -> None:
    interest = one_link()
    for part in (1, 7):
        with pytest.raises(LinkError, match=f"part {part} .* came out of turn"):
            interest.whole_received(2, [3, 10, part, 0, "", "", []], 0.0)
    interest.whole_received(2, [3, 10, 0, 0, "", "", []], 0.0)
    with pytest.raises(LinkError, match="part 1 .* came out of turn"):
        interest.whole_received(2, [3, 12, 1, 1, "", "", []], 0.0)


def test_a_home_too_many_is_unknown_and_an_empty_one_makes_room() -> None:
    interest = one_link()
    claims(interest, 9, [])
    for home in range(10, 10 + HOMES_MAX - 2):
        claims(interest, home, [("s", ("t",))])
    assert len(interest.homes) == HOMES_MAX - 1
    claims(interest, 5000, [])
    assert 5000 not in interest.homes, "an empty one makes room for none that is empty"
    claims(interest, 5001, [("s", ("t",))])
    assert 9 not in interest.homes and 5001 in interest.homes
    claims(interest, 5002, [("s", ("t",))])
    assert 5002 not in interest.homes and "h5002" in interest.unknown()
    assert interest.set_own({"mail": ("m",)}, 1000) == 1000, "there is always room for the own table"
    assert len(interest.homes) == HOMES_MAX
    frame = interest.pending(2)
    assert frame is not None and decode(frame)


def test_more_patterns_than_all_homes_may_have_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_interest, "TOTAL_MAX", 100)
    interest = one_link()
    claims(interest, 3, [(f"s{n}", ("t",)) for n in range(60)])
    claims(interest, 4, [(f"s{n}", ("t",)) for n in range(60)])
    assert 4 not in interest.homes and interest.unknown() == ("n2", "h4")
    interest.change_received(2, [3, 10, 12, [(f"more{n}", ("t",)) for n in range(41)], []], 0.0)
    assert interest.homes[3].version == 10 and interest.unknown() == ("n2", "h4", "h3")
    assert interest.forget(4, 1000), "an operator may"
    assert interest.homes[4].subscriptions == {} and interest.unknown() == ("n2", "h3")
    claims(interest, 3, [], version=14)
    assert interest.unknown() == ("n2",)


def test_a_whole_table_is_requested_once() -> None:
    interest = one_link()
    for version in (12, 14):
        interest.change_received(2, [3, version - 2, version, [], []], 0.0)
    asked = []
    while (frame := interest.pending(2)) is not None:
        asked.append(decode(frame))
    assert asked[1:] == [[LinkKind.DURABLE_WANTED, 3]]
    claims(interest, 3, [("s", ())], version=14)
    interest.change_received(2, [3, 16, 18, [], []], 0.0)
    frame = interest.pending(2)
    assert frame is not None and decode(frame) == [LinkKind.DURABLE_WANTED, 3]


VERSIONS = st.sampled_from([0, 1, 2, 10, 1 << 51, CLOCK_MAX, CLOCK_MAX + 1, OWN_MAX, OWN_MAX + 1, 1 << 62])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([LinkKind.DURABLE, LinkKind.DURABLE_CHANGE, LinkKind.DURABLE_HELD]),
            st.sampled_from([1, 2, 3]),
            VERSIONS,
            VERSIONS,
        ),
        max_size=20,
    )
)
def test_announcements_stay_readable_after_any_frames_of_a_peer(
    frames: list[tuple[LinkKind, int, int, int]],
) -> None:
    """One number was enough: a home that was told about version 2^62 of itself announced a greater one, which
    nobody reads, and lost all its links permanently."""
    interest = one_link()
    interest.set_own({"mail": ("m",)}, 1000)
    for kind, home, version, base in frames:
        with suppress(LinkError):
            match kind:
                case LinkKind.DURABLE:
                    interest.whole_received(2, [home, version, 0, 1, "n", "", [("s", ("t",))]], 0.0)
                case LinkKind.DURABLE_CHANGE:
                    interest.change_received(2, [home, base, version, [("s", ("t",))], []], 0.0)
                case _:
                    interest.held_received(2, [(home, version)])
        interest.forget(home, 1000)
        interest.change_own({"mail": (f"m{version}",)}, [], 1 << 61)
        while interest.next_change():
            pass
        interest.saved(interest.versions())
    interest.link_up(2, capable=True)
    interest.held_received(2, [])
    said = []
    while (frame := interest.pending(2)) is not None:
        said.append(decode(frame))
    assert said[0][0] == LinkKind.DURABLE_HELD
    for home, version in said[0][1]:
        assert version < OWN_MAX + 100 if home == 2 else version < CLOCK_MAX + (1 << 40)


def test_versions_that_others_report_of_a_home_are_believed_up_to_a_bound() -> None:
    interest = one_link()
    claims(interest, 3, [("s", ("t",))], version=CLOCK_MAX + 2)
    assert 3 not in interest.homes
    interest.held_received(2, [(2, 2), (3, 1 << 62)])
    claims(interest, 2, [], version=2)
    assert interest.unknown() == (), "nor is it waited for"
    claims(interest, 3, [("s", ("t",))], version=CLOCK_MAX)
    claims(interest, 3, [], version=CLOCK_MAX + STEP_MAX)
    assert interest.homes[3].version == CLOCK_MAX + STEP_MAX, "near what is held"
    claims(interest, 2, [], version=OWN_MAX)
    assert interest.homes[2].version == OWN_MAX, "a home is right about itself"
    for say in (
        lambda: claims(interest, 2, [], version=OWN_MAX + 2),
        lambda: interest.held_received(2, [(2, OWN_MAX + 2)]),
    ):
        with pytest.raises(LinkError, match="above"):
            say()


def test_a_link_names_a_bounded_number_of_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_interest, "TOLD_MAX", 5)
    interest = one_link()
    interest.held_received(2, [(home, 2) for home in range(2, 7)])
    interest.held_received(2, [(6, 4)])
    for say in (
        lambda: interest.held_received(2, [(7, 2)]),
        lambda: interest.change_received(2, [7, 2, 4, [], []], 0.0),
        lambda: claims(interest, 7, []),
    ):
        with pytest.raises(LinkError, match="more than 5 homes"):
            say()
