"""The choice of dials and their times, over long periods of time that cost nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from mesh.cluster.membership import (
    MemberChanged,
    MemberForgotten,
    MemberRecord,
    Membership,
    MembershipOptions,
    State,
)
from mesh.cluster.overlay import KNOWN_S, Dial, Overlay
from mesh.cluster.pace import DIALS_FIRST


def record(id: int, state: State = State.ALIVE, url: str | None = None) -> MemberRecord:
    return MemberRecord(id, 1, state, 7, f"n{id}", "host", f"tcp://{id}:1" if url is None else url, "")


class Driven:
    """An overlay with a clock; every dial is noted with its time and fails unless told otherwise."""

    def __init__(self, me: int = 5, join: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> None:
        self.now = 0.0
        self.overlay = Overlay(me, join=join, known=known, rng=random.Random(1), now=0.0)
        self.dials: list[tuple[float, str]] = []

    def member(self, id: int, state: State = State.ALIVE, url: str | None = None) -> None:
        self.overlay.member_changed(record(id, state, url), self.now)

    def run(self, seconds: float) -> list[tuple[float, str]]:
        """Make the dials that are due; all fail. Returns those of this period."""
        start, end = len(self.dials), self.now + seconds
        while (due := max(self.now, self.overlay.next_deadline())) <= end:
            self.now = due
            for dial in self.overlay.tick(self.now):
                self.dials.append((self.now, dial.url))
                self.now += 0.001
                self.overlay.dial_failed(dial.url, dial.member, self.now)
        self.now = end
        return self.dials[start:]


def test_the_lower_id_dials_at_once_and_the_higher_after_two_periods() -> None:
    driven = Driven(me=5)
    driven.member(9)
    driven.member(2)
    assert driven.overlay.tick(0.0) == [Dial("tcp://9:1", 9)]
    assert driven.overlay.tick(1.99) == []
    assert driven.overlay.tick(2.0) == [Dial("tcp://2:1", 2)]


def test_linked_members_and_those_that_left_are_not_dialled() -> None:
    driven = Driven()
    driven.member(9)
    driven.overlay.link_up(9, None, 0.0)
    driven.member(8)
    driven.member(8, State.LEFT)
    assert driven.run(100) == []


def test_pauses_between_failures_double_up_to_two_periods_for_the_living() -> None:
    driven = Driven()
    driven.member(9)
    times = [at for at, _ in driven.run(30)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] < 0.15 and all(1.4 < pause < 2.6 for pause in pauses[6:])


def test_join_urls_are_tried_until_the_member_behind_them_is_alive() -> None:
    driven = Driven(join=("tcp://seed:1",))
    assert len(driven.run(60)) > 10
    driven.overlay.link_up(9, Dial("tcp://seed:1", 0), driven.now)
    driven.member(9, url="tcp://elsewhere:1")
    assert driven.run(60) == []
    driven.overlay.link_down(9, driven.now)
    driven.member(9, State.DEAD, url="tcp://elsewhere:1")
    assert "tcp://seed:1" in [url for _, url in driven.run(20)]


def test_a_join_url_is_not_dialled_while_its_member_is_linked() -> None:
    driven = Driven(join=("tcp://seed:1",))
    driven.overlay.met("tcp://seed:1", 9)
    driven.overlay.link_up(9, None, driven.now)
    driven.member(9, url="tcp://elsewhere:1")
    assert driven.run(60) == []


def test_a_join_url_belongs_to_the_broker_that_answered_there_last() -> None:
    driven = Driven(join=("tcp://seed:1",))
    driven.overlay.met("tcp://seed:1", 9)
    (dial,) = driven.overlay.tick(0.0)
    assert dial == Dial("tcp://seed:1", 9)
    driven.overlay.link_up(8, dial, 0.1)
    driven.member(8, url="tcp://elsewhere:1")
    assert driven.run(60) == []


def test_a_join_url_that_is_a_living_members_own_address_needs_no_dial() -> None:
    driven = Driven(join=("tcp://9:1",))
    driven.overlay.link_up(9, None, 0.0)
    driven.member(9)
    assert driven.run(60) == []


def test_a_join_url_that_is_this_broker_itself_is_not_tried_again() -> None:
    driven = Driven(join=("tcp://me:1",))
    assert driven.overlay.tick(0.0) == [Dial("tcp://me:1", 0)]
    driven.overlay.is_self("tcp://me:1")
    driven.overlay.dial_failed("tcp://me:1", 0, 0.1)
    assert driven.run(60) == []


def test_the_dead_are_dialled_occasionally_and_more_often_when_there_are_many() -> None:
    few, many = Driven(), Driven()
    for id in range(10, 20):
        few.overlay.link_up(id, None, 0.0)
        few.member(id)
        many.member(id, State.DEAD)
    few.member(30, State.DEAD)
    tries = [len(driven.run(1000)) for driven in (few, many)]
    assert 5 <= tries[0] <= 50 and 150 <= tries[1] <= 250


def test_all_members_are_dialled_at_once_after_a_void_round() -> None:
    driven = Driven(me=5)
    driven.member(2)
    driven.member(3)
    driven.overlay.redial(0.5)
    assert [dial.member for dial in driven.overlay.tick(0.5)] == [2, 3]


def test_peers_of_an_earlier_run_are_tried_while_there_is_no_link() -> None:
    driven = Driven(known=("tcp://old:1",))
    assert [url for _, url in driven.run(1)][:1] == ["tcp://old:1"]
    driven.overlay.link_up(9, Dial("tcp://old:1", 0), driven.now)
    driven.overlay.link_down(9, driven.now)
    assert driven.run(60) == []


def test_unknown_peers_of_an_earlier_run_are_dialled_like_the_dead_for_a_day() -> None:
    """Two that were away return together and link to each other first; the mesh is elsewhere."""
    driven = Driven(me=1, known=("tcp://3:1", "tcp://4:1", "tcp://8:1", "tcp://9:1"))
    driven.member(9)
    driven.member(8)
    driven.member(8, State.LEFT)
    driven.overlay.link_up(9, None, 0.0)
    dials = driven.run(60)
    assert {url for _, url in dials} == {"tcp://3:1", "tcp://4:1"} and 5 <= len(dials) <= 20
    driven.member(3)
    driven.overlay.link_up(3, Dial("tcp://3:1", 0), driven.now)
    assert {url for _, url in driven.run(60)} == {"tcp://4:1"}
    driven.run(KNOWN_S)
    assert driven.run(1000) == []


def test_links_that_die_at_once_do_not_make_a_storm_of_dials() -> None:
    driven = Driven(me=5)
    driven.member(9)
    count = 0
    while driven.now < 60:
        driven.now = max(driven.now, driven.overlay.next_deadline())
        for dial in driven.overlay.tick(driven.now):
            count += 1
            driven.now += 0.001
            driven.overlay.link_up(9, dial, driven.now)
            driven.now += 0.001
            driven.overlay.link_down(9, driven.now)
    assert count < 60


def test_a_member_that_moves_is_dialled_where_it_is_now() -> None:
    driven = Driven()
    driven.member(9)
    driven.run(5)
    driven.overlay.member_changed(replace(record(9), peer_url="tcp://new:1"), driven.now)
    assert {url for _, url in driven.run(5)} == {"tcp://new:1"}


def test_a_member_without_an_address_is_not_dialled() -> None:
    driven = Driven()
    driven.member(9, url="")
    assert driven.run(100) == []


def test_dials_in_progress_are_bounded_and_counted_correctly() -> None:
    overlay = Overlay(1, join=(), rng=random.Random(1), now=0.0)
    for id in range(2, 102):
        overlay.member_changed(record(id), 0.0)
    dials = overlay.tick(0.0)
    assert len(dials) == DIALS_FIRST and overlay.tick(0.0) == []
    for id in range(2, 102):  # all die while they are dialled
        overlay.member_changed(record(id, State.DEAD), 0.0)
    for dial in dials:
        overlay.dial_failed(dial.url, dial.member, 0.1)
    for id in range(2, 102):
        overlay.member_changed(record(id), 0.2)
    assert len(overlay.tick(0.2)) == DIALS_FIRST


@pytest.mark.parametrize("state", [State.ALIVE, State.DEAD])
def test_a_dial_ends_when_another_member_is_linked_at_its_address(state: State) -> None:
    """Without a state folder a restarted broker has another id. Each time one dial went missing."""
    driven = Driven(me=1)
    for id in range(10, 10 + 2 * DIALS_FIRST):
        url = f"tcp://{id}:1"
        driven.member(id, state)
        while (dial := next((d for d in driven.overlay.tick(driven.now) if d.url == url), None)) is None:
            driven.now += 1.0
            assert driven.now < 100_000, "nobody is dialled any more"
        driven.member(1000 + id, url=url)
        driven.overlay.link_up(1000 + id, dial, driven.now)
        assert driven.overlay.tick(driven.now) == [], "not dialled again at once"
        driven.member(id, State.LEFT)
    driven.member(500)
    assert driven.run(1)[0][1] == "tcp://500:1"


def test_members_that_membership_forgets_are_forgotten() -> None:
    """Brokers without a state folder come and go forever."""
    driven = Driven(me=1)
    options = MembershipOptions(members_max=16)
    membership = Membership(record(1), options=options, rng=random.Random(1), now=0.0)
    for id in range(2, 500):
        for news in (record(id), record(id, State.DEAD)):
            for instruction in membership.heard([news], 99, driven.now):
                match instruction:
                    case MemberChanged(changed):
                        driven.overlay.member_changed(changed, driven.now)
                    case MemberForgotten(gone):
                        driven.overlay.forget(gone.id)
        driven.run(1)
    recent = {f"tcp://{id}:1" for id in range(480, 500)}
    assert len(membership.others()) < 16
    assert {url for _, url in driven.run(2000)} <= recent


@pytest.mark.parametrize("seed", range(20))
def test_the_cached_deadline_equals_a_newly_computed_one(seed: int) -> None:
    rng = random.Random(seed)
    urls = [f"tcp://{id}:1" for id in range(1, 9)]
    overlay = Overlay(5, join=urls[:4], known=urls[4:], rng=random.Random(seed), now=0.0)
    for _ in range(40):  # the window of dials is at its maximum, so that it hides no change
        overlay.pace.ticked(0.0)
    now, dials = 0.0, []
    for _ in range(300):
        now += rng.random()
        id = rng.randrange(1, 9)
        match rng.randrange(9):
            case 0:
                overlay.member_changed(record(id, rng.choice(list(State))), now)
            case 1:
                overlay.link_up(id, dials.pop() if dials and rng.random() < 0.7 else None, now)
            case 2:
                overlay.link_down(id, now)
            case 3 if dials:
                dial = dials.pop()
                overlay.dial_failed(dial.url, dial.member, now)
            case 4:
                overlay.met(f"tcp://{id}:1", id)
            case 5 if rng.random() < 0.1:
                overlay.is_self(f"tcp://{id}:1")
            case 6:
                overlay.redial(now)
            case 7:
                overlay.forget(id)
            case _:
                overlay.pace.ticked(1.0 if rng.random() < 0.05 else 0.0)
                dials += overlay.tick(now)
        kept = overlay.next_deadline()
        overlay._due = None
        assert kept == overlay.next_deadline()
