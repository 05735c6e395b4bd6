"""Views compared by numbers agree with views compared as sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.opinions import views as module
from mesh.analysis.opinions.views import Agreement, Held, Step, held, number_of, views

NODES = "abcd"
ENDED, WINDOW = 60, 7

Ran = dict[str, list[tuple[int, int]]]
Row = tuple[int, int, int, float]


class Told(NamedTuple):
    """A step and whose it is."""

    observer: str
    step: Step


spans = st.sets(st.integers(0, ENDED), max_size=6).map(
    lambda marks: list(zip(sorted(marks)[::2], sorted(marks)[1::2], strict=False))
)
running = st.dictionaries(st.sampled_from(NODES), spans)
starts = st.integers(0, 2 * WINDOW)
steps = st.lists(
    st.builds(
        Told,
        observer=st.sampled_from(NODES),
        step=st.builds(
            Step,
            at=st.integers(0, ENDED + WINDOW),
            boot=st.sampled_from(["1", "2"]),
            subject=st.sampled_from(NODES),
            present=st.booleans(),
        ),
    ),
    max_size=40,
)


def windows(started: int) -> range:
    return range(started // WINDOW * WINDOW, ENDED, WINDOW)


def by_sets(given: list[Told], ran: Ran, starts: Sequence[int]) -> list[Row]:
    """All steps up to the end of each window, anew for each."""
    rows = []
    for start in starts:
        until = start + WINDOW
        held: dict[str, frozenset[str]] = {}
        for node, of_node in ran.items():
            if not any(begin <= until < end for begin, end in of_node):
                continue
            boot, view = None, {node}
            for observer, step in sorted(given, key=lambda told: told.step):
                if observer != node or step.at > until:
                    continue
                if step.boot != boot:
                    boot, view = step.boot, {node}
                if step.subject != node:
                    (view.add if step.present else view.discard)(step.subject)
            held[node] = frozenset(view)
        if held:
            common = Counter(held.values()).most_common(1)[0][1]
            rows.append((start, len(held), len(set(held.values())), common / len(held)))
    return rows


def by_numbers(given: list[Told], ran: Ran, started: int) -> list[Row]:
    """Each observer apart, then all."""
    of_run = {
        node: held(
            node,
            [step for observer, step in given if observer == node],
            started=started,
            window_us=WINDOW,
        )
        for node in {observer for observer, _ in given}
    }
    found = views(of_run, ran, started=started, ended=ENDED, window_us=WINDOW)
    return [(each.start, each.observers, each.distinct, each.agree) for each in found]


@given(steps, running, starts)
def test_views_agree_as_sets_do(given: list[Told], ran: Ran, started: int) -> None:
    assert by_numbers(given, ran, started) == by_sets(given, ran, windows(started))


@given(steps, running, starts)
def test_a_long_run_has_only_the_windows_with_a_step_or_a_start_or_an_end(
    given: list[Told], ran: Ran, started: int
) -> None:
    moments = {step.at for _, step in given} | {at for of in ran.values() for span in of for at in span}
    changed = {
        next((start for start in windows(started) if at <= start + WINDOW), ENDED) for at in moments
    } - {ENDED}

    with patch.object(module, "WINDOWS_MOST", 0):
        found = by_numbers(given, ran, started)

    assert found == by_sets(given, ran, sorted(changed))


def test_a_run_of_years_has_only_the_windows_in_which_something_changed() -> None:
    """Windows without a change were left out, but visited one by one: 350 million of them."""
    far = 10**15
    found = views(
        {"a": held("a", [Step(3, "1", "b", True)], started=0, window_us=5)},
        {"a": [(0, 60)], "b": [(far, far + 60)]},
        started=0,
        ended=far + 60,
        window_us=5,
    )
    assert [(each.start, each.observers) for each in found] == [(0, 1), (far - 5, 1)]


def test_an_observer_has_one_view_for_each_window_with_steps() -> None:
    taken = [Step(3, "1", "b", True), Step(5, "1", "c", True), Step(11, "1", "b", False)]

    found = held("a", reversed(taken), started=0, window_us=5)

    a, b, c = map(number_of, "abc")
    assert found == [Held(0, a ^ b ^ c), Held(10, a ^ c)]


def test_a_new_boot_begins_with_an_empty_view_and_an_observer_cannot_remove_itself() -> None:
    taken = [Step(3, "1", "b", True), Step(13, "2", "c", True), Step(23, "2", "a", False)]

    found = held("a", taken, started=0, window_us=10)

    a, b, c = map(number_of, "abc")
    assert found == [Held(0, a ^ b), Held(10, a ^ c), Held(20, a ^ c)]


def test_a_silent_observer_holds_only_itself() -> None:
    found = views({}, {"a": [(0, 60)], "b": [(0, 60)]}, started=0, ended=50, window_us=50)
    assert found == [Agreement(0, 50e-6, 2, 2, 0.5)]


def test_numbers_fit_into_whole_numbers_of_spark() -> None:
    numbers = [number_of(f"{node:016x}") for node in range(1000)]
    assert len(set(numbers)) == 1000
    assert -(1 << 63) <= min(numbers) < 0 < max(numbers) < 1 << 63
