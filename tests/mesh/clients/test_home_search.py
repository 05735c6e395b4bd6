"""The next broker for a durable subscription."""

from __future__ import annotations

import random

from mesh.clients.home_search import ATTACHED, WAIT, Ask, Failed, Follow, HomeSearch, Step
from mesh.clients.session_schedule import LONGEST_S, SHORTEST_S
from mesh.clients.work_feeds import WorkCounters, WorkFeed
from mesh.errors import Disconnected, HeldElsewhere, MeshError, OtherPatterns


def feed(error: MeshError | None = None, *, ready: bool = False) -> WorkFeed:
    made = WorkFeed(1, "mail", [], 1, 1, WorkCounters())
    made.error, made.ready = error, ready
    return made


def step(
    search: HomeSearch, of: WorkFeed, *, at_entry: bool = True, settled: bool = True, now: float = 0.0
) -> Step:
    return search.next(of, at_entry=at_entry, settled=settled, now=now)


def found(now: float = 0.0) -> HomeSearch:
    search = HomeSearch(random.Random(1))
    assert step(search, feed(ready=True), now=now) is ATTACHED and search.found
    return search


def test_a_search_waits_for_the_asked_broker_and_follows_to_the_home_at_once() -> None:
    search = HomeSearch(random.Random(1))
    assert step(search, feed()) is WAIT and step(search, feed(), settled=False) is WAIT
    assert step(search, feed(HeldElsewhere("x", "tcp://h:2"))) == Follow("tcp://h:2", 0.0)
    assert step(search, feed(), at_entry=False) is WAIT and not search.found


def test_the_first_search_fails_where_the_home_is_not_known_or_not_reached() -> None:
    search, away, other = HomeSearch(random.Random(1)), HeldElsewhere("x", ""), OtherPatterns("y")
    assert step(search, feed(away)) == Failed(away)
    assert step(search, feed(other)) == Failed(other)
    failed = search.unreachable("mail", Disconnected("nobody there"))
    assert isinstance(failed, Failed) and isinstance(failed.error, Disconnected)
    assert str(failed.error) == "the home of mail cannot be reached: nobody there"


def test_another_broker_at_the_homes_address_is_not_taken_for_the_home() -> None:
    """The client dialled it again and again, and the error after ten seconds named no home."""
    search, away = HomeSearch(random.Random(1)), HeldElsewhere("its home is b", "tcp://h:2")
    assert step(search, feed(away)) == Follow("tcp://h:2", 0.0), "the entry may be the same broker"
    failed = step(search, feed(away), at_entry=False)
    assert isinstance(failed, Failed) and isinstance(failed.error, HeldElsewhere) and not failed.error.url
    assert str(failed.error) == (
        "its home is b, and another broker is now at tcp://h:2; if that home will not come back: mesh queue"
        " forget, with its name"
    )
    search = found()
    assert isinstance(step(search, feed(away)), Follow)
    assert isinstance(step(search, feed(away), at_entry=False), Ask), "it was there once, and is away"
    elsewhere = HeldElsewhere("its home is c", "tcp://h:3")
    assert isinstance(step(search, feed(elsewhere), at_entry=False), Follow), "it has moved"


def test_a_home_that_was_found_once_is_looked_for_until_it_is_back() -> None:
    search = found()
    assert step(search, feed(), at_entry=False, settled=False) == Ask(0.0)
    assert isinstance(step(search, feed(HeldElsewhere("x", ""))), Ask)
    assert search.unreachable("mail", Disconnected("nobody there")) == Ask(0.0)
    other = OtherPatterns("y")
    assert step(search, feed(other)) == Failed(other)


def test_each_step_waits_longer_until_it_was_attached_for_a_while() -> None:
    search = found()
    pauses = []
    for _ in range(12):
        next_step = step(search, feed(HeldElsewhere("x", "tcp://h:2")))
        assert isinstance(next_step, Follow)
        pauses.append(next_step.pause_s)
    assert pauses[0] == 0.0 and SHORTEST_S / 2 <= pauses[1] <= SHORTEST_S
    assert all(pause <= LONGEST_S for pause in pauses) and pauses[-1] >= LONGEST_S / 2
    step(search, feed(ready=True), now=10.0)
    step(search, feed(), at_entry=False, settled=False, now=10.1)
    short = step(search, feed(HeldElsewhere("x", "tcp://h:2")))
    assert isinstance(short, Follow) and short.pause_s >= LONGEST_S / 2, "it was attached for a moment only"
    step(search, feed(ready=True), now=20.0)
    step(search, feed(), at_entry=False, settled=False, now=20.1 + LONGEST_S)
    assert step(search, feed(HeldElsewhere("x", "tcp://h:2"))) == Follow("tcp://h:2", 0.0)
