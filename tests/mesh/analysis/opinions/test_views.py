"""Views compared by numbers agree with views compared as sets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.opinions.views import Step, views

NODES = "abcd"
ENDED, WINDOW = 60, 7

spans = st.sets(st.integers(0, ENDED), max_size=6).map(
    lambda marks: list(zip(sorted(marks)[::2], sorted(marks)[1::2], strict=False))
)
steps = st.lists(
    st.builds(
        Step,
        at=st.integers(0, ENDED),
        observer=st.sampled_from(NODES),
        boot=st.sampled_from(["1", "2"]),
        subject=st.sampled_from(NODES),
        present=st.booleans(),
    ),
    max_size=40,
)


def by_sets(given: list[Step], ran: dict[str, list[tuple[int, int]]]) -> list[tuple[int, int, int, float]]:
    rows = []
    for start in range(0, ENDED, WINDOW):
        until = start + WINDOW
        held: dict[str, frozenset[str]] = {}
        for node, of_node in ran.items():
            if not any(begin <= until < end for begin, end in of_node):
                continue
            boot, view = None, {node}
            for step in sorted(given):
                if step.observer != node or step.at > until:
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


@given(steps, st.dictionaries(st.sampled_from(NODES), spans))
def test_views_agree_as_sets_do(given: list[Step], ran: dict[str, list[tuple[int, int]]]) -> None:
    found = views(given, ran, started=0, ended=ENDED, window_us=WINDOW)
    assert [(each.start, each.observers, each.distinct, each.agree) for each in found] == by_sets(given, ran)


def test_a_run_of_years_has_only_the_windows_in_which_something_changed() -> None:
    """Windows without a change were left out, but visited one by one: 350 million of them."""
    far = 10**15
    found = views(
        [Step(3, "a", "1", "b", True)],
        {"a": [(0, 60)], "b": [(far, far + 60)]},
        started=0,
        ended=far + 60,
        window_us=5,
    )
    assert [(each.start, each.observers) for each in found] == [(0, 1), (far - 5, 1)]
