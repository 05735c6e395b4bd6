"""One queue of instants: order, limits, and a clock that stays at the last action."""

from __future__ import annotations

from functools import partial

from simulations.kernel.scheduler import Scheduler


def filled(*instants: int) -> tuple[Scheduler, list[tuple[int, int]]]:
    scheduler, done = Scheduler(), []
    for number, at_ns in enumerate(instants):
        scheduler.at(at_ns, lambda number=number: done.append((scheduler.now_ns, number)))
    return scheduler, done


def test_due_actions_run_by_instant_and_then_in_the_order_of_scheduling() -> None:
    scheduler, done = filled(30, 10, 20, 10)
    scheduler.run_to(25, 100)
    assert done == [(10, 1), (10, 3), (20, 2)]
    assert (scheduler.now_ns, scheduler.events, scheduler.next_ns) == (20, 3, 30)
    scheduler.advance_to(25)
    assert scheduler.now_ns == 25


def test_actions_at_the_end_of_an_interval_are_due() -> None:
    scheduler, done = filled(10, 11)
    scheduler.run_to(10, 100)
    assert done == [(10, 0)]


def test_the_scheduler_stops_after_a_number_of_events_and_continues_there() -> None:
    scheduler, done = filled(10, 20, 30)
    scheduler.run_to(100, 2)
    assert done == [(10, 0), (20, 1)] and scheduler.now_ns == 20
    scheduler.run_to(100, 3)
    assert len(done) == 3


def test_actions_scheduled_by_actions_run_too_and_the_past_is_now() -> None:
    scheduler = Scheduler()
    done: list[int] = []
    scheduler.at(10, lambda: scheduler.at(5, lambda: done.append(scheduler.now_ns)))
    scheduler.run_to(10, 100)
    assert done == [10]


def test_a_moved_action_runs_at_its_new_instant_and_never_in_the_past() -> None:
    ran: list[tuple[str, int]] = []
    scheduler = Scheduler()
    scheduler.at(
        5, scheduler.move, note := partial(_note, ran, scheduler), lambda name: 3 if name == "a" else 9
    )
    scheduler.at(20, note, "a")
    scheduler.at(6, note, "b")
    scheduler.at(7, ran.append, ("other", 7))
    scheduler.run_to(100, 100)
    assert ran == [("a", 5), ("other", 7), ("b", 9)]


def test_actions_that_will_do_nothing_are_swept_out_when_they_are_half_of_all() -> None:
    ran: list[int] = []
    scheduler = Scheduler()
    for number in range(1000):
        scheduler.at(number, ran.append, number)
    for _ in range(999):
        scheduler.forget_one(lambda _action, arguments: arguments[0] != 500)
    assert len(scheduler.heap) == 1
    scheduler.run_to(1000, 1000)
    assert ran == [500]


def _note(ran: list[tuple[str, int]], scheduler: Scheduler, name: str) -> None:
    ran.append((name, scheduler.now_ns))
