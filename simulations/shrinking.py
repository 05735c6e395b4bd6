"""Makes a failing run small: fewer faults, brokers, clients and seconds, while the same check still fails.

Faults go first, by the ddmin of Zeller and Hildebrandt (Simplifying and Isolating Failure-Inducing Input,
2002): parts of the list are left out, halves first, then ever smaller parts, until no single one can be
spared. Then everything else that a scenario has is made less of, one thing after the other: names of a fault,
its length and its numbers, brokers, clients, the time before and after. What got smaller may let more go,
so all of it is done again until nothing helps any more or the plays that were allowed are used up.

Every candidate is played in full. That it fails by the *same check* makes it the same failure; the violation
may name others and have another time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from simulations import faults, playing
from simulations.faults import Fault
from simulations.playing import Result
from simulations.replaying import Failure, PlayIt, failing, failure_of
from simulations.scenario import Scenario, last_end_s

T = TypeVar("T")

PLAYS_MAX: Final = 400
TIME_LEAST_S: Final = 0.25
"""Times are not halved below this."""
QUIET_LEAST_S: Final = 1.0
PAUSE_MOST_S: Final = 1.0
"""Publishers are not slowed down beyond this."""
NO_AMOUNTS: Final = ("disk_fault",)
"""Kinds whose number says which one it is, and not how much."""

Say = Callable[[int, str], None]


class OutOfPlays(Exception):
    """As many candidates were played as were allowed."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """How far it came."""

    before: Failure
    after: Failure
    plays: int
    finished: bool
    """Nothing more can be left out; else the plays were used up."""

    def __str__(self) -> str:
        ended = "nothing more can be left out" if self.finished else "the plays allowed are used up"
        before, after = size_of(self.before.scenario), size_of(self.after.scenario)
        return f"{self.plays} plays: from {before} to {after}; {ended}"


def size_of(scenario: Scenario) -> str:
    """How large it is, in words."""
    load = scenario.workload
    return (
        f"{len(scenario.faults)} faults, {scenario.brokers} brokers, {load.publishers + load.subscribers} "
        f"clients, {scenario.warm_s + scenario.safety_length_s + scenario.quiet_s:.4g} s"
    )


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of the items that still fails, of which no single one can be left out.

    ``fails`` is true of all of them.
    """
    left, parts = list(items), 2
    if left and fails([]):
        return []
    while len(left) >= 2:
        edges = [len(left) * number // parts for number in range(parts + 1)]
        for start, end in itertools.pairwise(edges):
            without = left[:start] + left[end:]
            if fails(without):
                left, parts = without, max(parts - 1, 2)
                break
        else:
            if parts == len(left):
                break
            parts = min(parts * 2, len(left))
    return left


def shrink(
    failure: Failure, *, plays_max: int = PLAYS_MAX, say: Say | None = None, play: PlayIt = playing.play
) -> Shrunk:
    """Make a failure small; ``say`` is told the number of plays, and in words what they led to.

    Raises:
        ValueError: it does not fail here at all.
    """
    return _Shrinking(failure, plays_max, say or (lambda plays, text: None), play).run()


class _Shrinking:
    def __init__(self, failure: Failure, plays_max: int, say: Say, play: PlayIt) -> None:
        self._failure = failure
        self._plays_max = plays_max
        self._say = say
        self._play = play
        self._plays = 0
        self._seen: dict[Scenario, bool] = {}
        self._best = failure.scenario
        self._best_result: Result | None = None

    def run(self) -> Shrunk:
        finished = False
        try:
            if not self._fails(self._best):
                raise ValueError(f"{self._failure.check} does not fail in it, so there is nothing to shrink")
            while self._pass():
                pass
            finished = True
        except OutOfPlays:
            pass
        assert self._best_result is not None
        found = failing(self._best_result.verdicts, self._failure.check)
        assert found is not None
        after = replace(failure_of(self._best_result), check=found.check, violation=found.violations[0])
        return Shrunk(self._failure, after, self._plays, finished)

    def _pass(self) -> bool:
        """Try everything once; whether anything helped."""
        before = self._best
        self._fewer_faults()
        for smaller in (_fewer_brokers, _fewer_clients, _smaller_faults, _shorter):
            self._follow(smaller)
        return self._best != before

    def _fewer_faults(self) -> None:
        def fails(part: list[Fault]) -> bool:
            return self._accepts(replace(base, faults=tuple(part)))

        base = self._best
        ddmin(base.faults, fails)

    def _follow(self, smaller: Callable[[Scenario], Iterator[Scenario]]) -> None:
        """Take the first candidate that fails and look for smaller ones of it, until none fails."""
        while any(self._accepts(candidate) for candidate in smaller(self._best)):
            pass

    def _accepts(self, candidate: Scenario) -> bool:
        if candidate == self._best or not self._fails(candidate):
            return False
        self._best = candidate
        self._say(self._plays, size_of(candidate))
        return True

    def _fails(self, candidate: Scenario) -> bool:
        if candidate not in self._seen:
            self._seen[candidate] = self._fails_when_played(candidate)
        return self._seen[candidate]

    def _fails_when_played(self, candidate: Scenario) -> bool:
        if self._plays >= self._plays_max:
            raise OutOfPlays
        self._plays += 1
        self._say(self._plays, "")
        try:
            result = self._play(candidate, seed=self._failure.seed)
        except ValueError:
            return False  # too little is left of it to be played
        if failing(result.verdicts, self._failure.check) is None:
            return False
        self._best_result = result
        return True


# --- smaller ones of a scenario, the boldest first


def _candidate(scenario: Scenario, **changed: object) -> Iterator[Scenario]:
    """The changed scenario, if it can be."""
    try:
        yield replace(scenario, **changed)  # type: ignore[arg-type]
    except ValueError:
        return


def _fewer_brokers(scenario: Scenario) -> Iterator[Scenario]:
    """Without the last ones, whoever names them; then with others in their places."""
    if scenario.spares:
        yield from _candidate(scenario, spares=0)
    for count in dict.fromkeys((2, scenario.brokers // 2, scenario.brokers - 1)):
        if not 1 <= count < scenario.brokers or scenario.spares:
            continue
        kept = scenario.broker_names[:count]
        gone = dict.fromkeys(scenario.broker_names[count:], "")
        yield from _candidate(scenario, brokers=count, faults=_renamed(scenario.faults, gone))
        struck = [name for name in scenario.broker_names if _names(scenario, name)]
        moved = dict(zip(struck[:count], kept, strict=False))
        moved |= {name: "" for name in scenario.broker_names if name not in moved}
        yield from _candidate(scenario, brokers=count, faults=_renamed(scenario.faults, moved))


def _names(scenario: Scenario, name: str) -> bool:
    return any(name in fault.a or name in fault.b for fault in scenario.faults)


def _renamed(given: Sequence[Fault], names: dict[str, str]) -> tuple[Fault, ...]:
    """With other names, and without those whose new one is empty; who strikes nobody then is left out."""
    found = []
    for fault in given:
        a, b = (tuple(n for n in (names.get(o, o) for o in side) if n) for side in (fault.a, fault.b))
        if (a or not fault.a) and (b or not fault.b):
            found.append(replace(fault, a=a, b=b))
    return tuple(found)


def _fewer_clients(scenario: Scenario) -> Iterator[Scenario]:
    load = scenario.workload
    for name in ("publishers", "subscribers"):
        count = getattr(load, name)
        for fewer in dict.fromkeys((0, count // 2, count - 1)):
            if 0 <= fewer < count:
                yield from _candidate(scenario, workload=replace(load, **{name: fewer}))
    if load.pause_s < PAUSE_MOST_S:
        yield from _candidate(scenario, workload=replace(load, pause_s=load.pause_s * 2))


def _smaller_faults(scenario: Scenario) -> Iterator[Scenario]:
    for index, fault in enumerate(scenario.faults):
        for smaller in _smaller_fault(fault):
            changed = (*scenario.faults[:index], smaller, *scenario.faults[index + 1 :])
            yield from _candidate(scenario, faults=changed)


def _smaller_fault(fault: Fault) -> Iterator[Fault]:
    """With fewer names, shorter, with less of what it does."""
    for side in ("a", "b"):
        names = getattr(fault, side)
        if len(names) > 1:
            yield from (replace(fault, **{side: names[:i] + names[i + 1 :]}) for i in range(len(names)))
    if fault.for_s is not None and fault.for_s > 2 * TIME_LEAST_S:
        yield replace(fault, for_s=round(fault.for_s / 2, 3))
    kind = faults.KINDS[fault.kind]
    main = next((each for each in kind.parameters if each.name == "value"), None)
    if main is not None and abs(fault.value) / 2 >= max(main.least, 1e-3) and kind.name not in NO_AMOUNTS:
        yield replace(fault, value=round(fault.value / 2, 3))
    for name, _ in fault.more:
        yield replace(fault, more=tuple(each for each in fault.more if each[0] != name))


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """All faults sooner, less time before and after them."""
    given = scenario.faults
    first_s = min((fault.at_s for fault in given), default=0.0)
    if first_s > 0:
        sooner = tuple(replace(fault, at_s=round(fault.at_s - first_s, 3)) for fault in given)
        yield from _candidate(scenario, faults=sooner)
    if any(fault.at_s > TIME_LEAST_S for fault in given):
        closer = tuple(replace(fault, at_s=round(fault.at_s / 2, 3)) for fault in given)
        yield from _candidate(scenario, faults=closer)
    if scenario.safety_s is not None:
        yield from _candidate(scenario, safety_s=None)
        end_s = max(map(last_end_s, given), default=0.0)
        for shorter_s in (end_s, (end_s + scenario.safety_s) / 2):
            if shorter_s < scenario.safety_s - TIME_LEAST_S:
                yield from _candidate(scenario, safety_s=round(shorter_s, 3))
    if scenario.warm_s:
        yield from _candidate(scenario, warm_s=0.0)
    if scenario.quiet_s > QUIET_LEAST_S:
        yield from _candidate(scenario, quiet_s=max(QUIET_LEAST_S, round(scenario.quiet_s / 2, 3)))
