"""Strategies for hypothesis: faults for a mesh, which shrink to few and simple ones.

::

    @given(faults=strategies.faults(brokers=3))
    def test_counter_survives(faults: list[Fault]) -> None:
        with World(seed=1) as world:
            mesh = Mesh(world, brokers=3)
            mesh.schedule(faults)
            ...

They draw the same faults as the swarm (`simulations.scenarios.generating`): every kind of fault with numbers
that a mesh must bear. No broker is struck twice by faults that need their target alone, and none loses its
last valid address. Hypothesis must be installed: ``pip install hypothesis``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from hypothesis import strategies as st

from simulations.faults import KINDS, Fault
from simulations.scenario import Scenario, Workload
from simulations.scenarios.generating import CLASSES, Alone, Recipe, within_reach

STEP_S: Final = 0.1
"""Times are multiples of this, so that small ones are easy to read."""


def _size(recipe: Recipe) -> int:
    """The number of draws for it."""
    victims = 5 if recipe.whom in ("pair", "some", "sides") else 1
    return victims + (recipe.for_s is not None) + (recipe.value is not None) + len(recipe.more + recipe.words)


RECIPES: Final[tuple[Recipe, ...]] = tuple(
    sorted(
        (recipe for recipes in CLASSES.values() for recipe in recipes if recipe.whom != "spares"), key=_size
    )
)
"""Small ones first: hypothesis shrinks to those, and deletes only a few draws at once."""


def faults(
    brokers: int | Sequence[str] = 3,
    *,
    kinds: Collection[str] | None = None,
    most: int = 6,
    within_s: float = 20.0,
) -> st.SearchStrategy[list[Fault]]:
    """Lists of faults in the order of their times, which count from when they are scheduled.

    Args:
        brokers: how many there are, or their names.
        kinds: draw no others; None: all that the swarm draws.
        most: no list is longer.
        within_s: the last one begins by then.

    Raises:
        ValueError: there is no such kind, or a mesh of no brokers.
    """
    names = (
        tuple(f"broker-{number}" for number in range(1, brokers + 1)) if isinstance(brokers, int) else brokers
    )
    if not names:
        raise ValueError("faults need at least one broker to strike")
    known = {recipe.kind for recipe in RECIPES}
    if unknown := [kind for kind in kinds or () if kind not in known]:
        raise ValueError(
            f"no fault of kind {', '.join(unknown)} is drawn; there are {', '.join(sorted(known))}"
        )
    chosen = [
        recipe
        for recipe in RECIPES
        if (kinds is None or recipe.kind in kinds)
        and (len(names) > 1 or recipe.whom not in ("pair", "sides"))
        if KINDS[recipe.kind].few < len(names)
    ]
    if not chosen:
        raise ValueError(f"a mesh of {len(names)} broker is too small for {', '.join(kinds or ())}")
    drawn = st.lists(
        st.sampled_from(chosen).flatmap(lambda recipe: _drawn(recipe, names, within_s)), max_size=most
    )
    return drawn.map(lambda found: _bearable(found, names))


def scenarios(
    brokers: int = 3, *, workload: Workload | None = None, most: int = 6, within_s: float = 20.0
) -> st.SearchStrategy[Scenario]:
    """Whole scenarios, for `simulations.runs.playing.play`."""
    plain = Scenario(
        "drawn", brokers=brokers, warm_s=1.0, quiet_s=3.0, workload=workload or Workload(2, 2, 0.2)
    )
    return faults(brokers, most=most, within_s=within_s).map(
        lambda found: Scenario(
            plain.name,
            brokers=brokers,
            warm_s=plain.warm_s,
            quiet_s=plain.quiet_s,
            workload=plain.workload,
            faults=tuple(found),
        )
    )


@st.composite
def _drawn(draw: st.DrawFn, recipe: Recipe, names: Sequence[str], within_s: float) -> tuple[Recipe, Fault]:
    at_s = draw(_tenths(0.0, within_s))
    a, b = draw(_struck(recipe, names))
    for_s = None if recipe.for_s is None else max(STEP_S, draw(_tenths(*recipe.for_s)))
    value = None if recipe.value is None else draw(_number(*recipe.value))
    more: dict[str, float | str] = {name: draw(_number(least, most)) for name, least, most in recipe.more}
    more |= {name: draw(st.sampled_from(words)) for name, words in recipe.words}
    return recipe, Fault(at_s, recipe.kind, a, b, for_s, value, tuple(sorted(more.items())))


def _tenths(least: float, most: float) -> st.SearchStrategy[float]:
    return st.integers(round(least / STEP_S), round(most / STEP_S)).map(
        lambda tenths: round(tenths * STEP_S, 1)
    )


def _number(least: float, most: float) -> st.SearchStrategy[float]:
    """A hundred steps from the first to the second."""
    return st.integers(0, 100).map(lambda step: round(least + (most - least) * step / 100, 3))


def _struck(
    recipe: Recipe, names: Sequence[str]
) -> st.SearchStrategy[tuple[tuple[str, ...], tuple[str, ...]]]:
    match recipe.whom:
        case "nobody" | "spares":
            return st.just(((), ()))
        case "everybody":
            return st.just((tuple(names), ()))
        case "one":
            return st.sampled_from(names).map(lambda name: ((name,), ()))
        case "pair":
            return st.permutations(names).map(lambda order: ((order[0],), (order[1],)))
        case "some" | "sides":
            most = max(1, len(names) // 2)
            some = st.sets(st.sampled_from(names), min_size=1, max_size=most)
            return some.map(lambda chosen: _sides(names, chosen, both=recipe.whom == "sides"))


def _sides(
    names: Sequence[str], chosen: Collection[str], *, both: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    others = tuple(name for name in names if name not in chosen) if both else ()
    return tuple(name for name in names if name in chosen), others


def _bearable(found: Iterable[tuple[Recipe, Fault]], names: Sequence[str]) -> list[Fault]:
    """Without faults that would strike a taken target, or take a broker's last valid address, whatever the
    brokers join.
    """
    alone = Alone()
    kept = [
        fault
        for recipe, fault in sorted(found, key=lambda each: each[1].at_s)
        if alone.take(recipe, fault.a, fault.at_s, fault.for_s or 0.0)
    ]
    return list(within_reach(names, kept, lambda name: names))
