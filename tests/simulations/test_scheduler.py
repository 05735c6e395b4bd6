"""One queue of instants: order, limits, and a clock that stays where the last thing happened."""

from __future__ import annotations

from simulations.scheduler import Scheduler


def filled(*instants: int) -> tuple[Scheduler, list[tuple[int, int]]]:
    scheduler, done = Scheduler(), []
    for number, at_ns in enumerate(instants):
        scheduler.at(at_ns, lambda number=number: done.append((scheduler.now_ns, number)))
    return scheduler, done


def test_what_is_due_runs_by_instant_and_then_in_the_order_of_asking() -> None:
    scheduler, done = filled(30, 10, 20, 10)
    scheduler.run_to(25, 100)
    assert done == [(10, 1), (10, 3), (20, 2)]
    assert (scheduler.now_ns, scheduler.events, scheduler.next_ns) == (20, 3, 30)
    scheduler.advance_to(25)
    assert scheduler.now_ns == 25


def test_the_end_belongs_to_what_is_due() -> None:
    scheduler, done = filled(10, 11)
    scheduler.run_to(10, 100)
    assert done == [(10, 0)]


def test_it_stops_after_so_many_events_and_goes_on_where_it_was() -> None:
    scheduler, done = filled(10, 20, 30)
    scheduler.run_to(100, 2)
    assert done == [(10, 0), (20, 1)] and scheduler.now_ns == 20
    scheduler.run_to(100, 3)
    assert len(done) == 3


def test_what_an_action_asks_for_is_run_too_and_the_past_is_now() -> None:
    scheduler = Scheduler()
    done: list[int] = []
    scheduler.at(10, lambda: scheduler.at(5, lambda: done.append(scheduler.now_ns)))
    scheduler.run_to(10, 100)
    assert done == [10]
