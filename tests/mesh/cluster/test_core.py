"""The core that joins membership, overlay, joining and news: its orders, driven by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf

import pytest

from mesh.cluster.core import ClusterCore, JoiningChanged, MayRoute, Order, Send
from mesh.cluster.membership import (
    DropLink,
    MemberChanged,
    MembershipOptions,
    NodeChanged,
    NodeState,
    Redial,
    State,
    Survey,
)
from mesh.cluster.news import NEWS_PAUSE_S
from mesh.cluster.overlay import Dial
from tests.mesh.cluster.membership.driven import record


@dataclass
class Known:
    id: int
    name: str
    url: str


def core(*join: str, known: tuple[Known, ...] = (), members_max: int = 1024) -> ClusterCore:
    options = MembershipOptions(members_max=members_max)
    return ClusterCore(record(1), options=options, join=join, known=known, rng=random.Random(1), now=0.0)


def begun(*join: str) -> ClusterCore:
    made = core(*join)
    made.begin("tcp://1:1", "tcp://1:1", 0.0)
    return made


def sends(orders: list[Order]) -> list[Send]:
    return [order for order in orders if isinstance(order, Send)]


def dials(orders: list[Order]) -> list[Dial]:
    return [order for order in orders if isinstance(order, Dial)]


def states(orders: list[Order]) -> list[NodeState]:
    return [order.state for order in orders if isinstance(order, NodeChanged)]


def test_a_core_does_not_dial_before_it_begins() -> None:
    made = core("tcp://2:1")
    assert made.next_deadline() == inf and made.tick(0.0) == []
    assert dials(made.begin("tcp://1:1", "tcp://1:1", 0.1)) == [Dial("tcp://2:1", 0)]


def test_a_new_link_is_sent_the_whole_table_and_other_links_are_sent_its_member() -> None:
    made = begun()
    made.link_up(record(2), None, 0.0)
    orders = made.link_up(record(3), None, 0.0)
    assert sends(orders) == [Send(3, (made.membership.me, record(2), record(3)))]
    assert made.next_deadline() == 0.0
    assert made.tick(0.0) == [Send(2, (record(3),))]


def test_a_member_known_through_gossip_is_dialled() -> None:
    made = begun()
    made.link_up(record(2), None, 1.0)
    orders = made.heard([record(2), record(3)], 2, 1.1)
    assert dials(orders) == [Dial("tcp://3:1", 3)]
    changed = [order for order in orders if isinstance(order, MemberChanged)]
    assert [(each.record.id, each.reason) for each in changed] == [(3, "joined")]


def test_a_linked_member_that_asks_for_the_table_is_sent_it() -> None:
    made = begun()
    made.link_up(record(2), None, 1.0)
    assert made.asked_for_table(2) == [Send(2, (made.membership.me, record(2)))]
    made.link_down(2, 1.1)
    assert made.asked_for_table(2) == []


def test_a_lost_link_is_dialled_again_and_its_waiting_news_is_dropped() -> None:
    made = begun()
    made.link_up(record(2), None, 1.0)
    made.link_up(record(3), None, 1.0)  # news for 2
    assert dials(made.link_down(2, 5.0)) == [Dial("tcp://2:1", 2)]
    assert not sends(made.tick(5.0))


def test_a_failed_dial_is_repeated_after_its_pause() -> None:
    made = begun("tcp://2:1")
    assert not dials(made.dial_failed(Dial("tcp://2:1", 0), 0.1))
    again = made.overlay.next_deadline()
    assert again > 0.1 and dials(made.tick(again)) == [Dial("tcp://2:1", 0)]


def test_a_broker_is_ready_once_it_has_all_tables_links_and_interest() -> None:
    made = begun("tcp://2:1")
    assert made.membership.node_state is NodeState.JOINING
    made.link_up(record(2), Dial("tcp://2:1", 0), 1.0)
    assert made.settle(1.0) == []
    assert JoiningChanged() in made.heard([record(2), record(3)], 2, 1.0)
    assert made.settle(1.0) == [], "no link to 3 yet"
    assert made.unlinked() == [3]
    made.link_up(record(3), None, 1.1)
    made.heard([record(3)], 3, 1.1)
    assert made.unlinked() == [] and made.settle(1.1, interest_held=False) == []
    orders = made.settle(1.1)
    assert states(orders) == [NodeState.READY] and MayRoute() in orders
    assert made.settle(1.2) == []


def test_joining_waits_for_a_member_that_lost_its_link_after_sending_its_table() -> None:
    made = begun("tcp://2:1")
    made.link_up(record(2), Dial("tcp://2:1", 0), 1.0)
    made.heard([record(2)], 2, 1.0)
    made.link_down(2, 1.1)
    assert made.settle(1.1) == []


def test_held_publishes_are_released_once_by_time() -> None:
    made = begun("tcp://2:1")
    released = [now for now in range(1, 20) for order in made.tick(float(now)) if order == MayRoute()]
    assert released == [5]


def test_a_broker_without_peers_to_join_holds_no_publishes() -> None:
    made = begun()
    assert all(MayRoute() not in made.tick(float(now)) for now in range(1, 20))


def test_peers_of_an_earlier_run_are_given_up_after_two_periods() -> None:
    made = core(known=(Known(2, "n2", "tcp://2:1"),))
    assert dials(made.begin("tcp://1:1", "tcp://1:1", 0.0)) == [Dial("tcp://2:1", 0)]
    assert made.joining.next_deadline() == 2.0
    orders = made.tick(2.0)
    assert states(orders) == [NodeState.READY] and JoiningChanged() in orders


def test_a_tick_for_news_alone_neither_dials_nor_changes_the_pace() -> None:
    made = begun()
    made.link_up(record(2), None, 0.0)
    made.link_up(record(3), None, 0.0)
    window = made.overlay.pace.dials_max
    assert sends(made.tick(0.0, late_s=9.0))
    assert made.overlay.pace.dials_max == window
    survey_at = made.membership.next_deadline()
    orders = made.tick(survey_at, late_s=9.0)
    assert [order.members for order in orders if isinstance(order, Survey)] == [(2, 3)]
    assert made.overlay.pace.dials_max == window // 2


def test_the_next_deadline_includes_the_pause_of_waiting_news() -> None:
    made = begun()
    for member in (2, 3):
        made.link_up(record(member), None, 0.0)
    made.tick(0.0)
    made.heard([record(4)], 2, 0.01)
    assert made.next_deadline() == pytest.approx(NEWS_PAUSE_S)


def test_a_goodbye_goes_to_all_after_queued_frames_and_is_the_last_frame() -> None:
    made = begun()
    for member in (2, 3):
        made.link_up(record(member), None, 0.0)
    orders = made.leave(0.0)
    said = sends(orders)
    assert [(order.member, order.last) for order in said] == [(2, True), (3, True)]
    assert all(order.records[0].state is State.LEFT for order in said)
    assert states(orders) == [NodeState.LEAVING]
    orders = made.link_down(2, 0.1)
    assert made.next_deadline() == inf, "a link that is not dialled again was due forever"
    for now in range(1, 9):
        orders += made.tick(float(now))
    assert not [order for order in orders if isinstance(order, Send | Dial | Survey)]


def test_dials_are_due_at_once_when_membership_orders_it() -> None:
    made = begun("tcp://2:1")
    made.dial_failed(Dial("tcp://2:1", 0), 0.01)
    assert dials(made.act([Redial()], 0.02)) == [Dial("tcp://2:1", 0)]
    assert made.act([], 0.03) == []


def test_a_member_beyond_the_table_loses_its_link() -> None:
    made = core(members_max=2)
    made.begin("tcp://1:1", "tcp://1:1", 0.0)
    assert sends(made.link_up(record(2), None, 0.0))
    orders = made.link_up(record(3), None, 0.0)
    assert [order.member for order in orders if isinstance(order, DropLink)] == [3]
    assert not sends(orders)
