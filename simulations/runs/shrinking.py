"""Makes a failing run small: fewer faults, brokers, clients and seconds, while the same check still fails.

Clients go first, since every later play then costs less. Then faults, by the ddmin of Zeller and Hildebrandt
(Simplifying and Isolating Failure-Inducing Input, 2002): parts of the list are left out, halves first, then
ever smaller parts, until no single one can be spared. Then every other part of a scenario is reduced, one
after the other: brokers, names of a fault, its length and its numbers, the time before and after. A reduction
may allow further ones, so everything is repeated until nothing helps any more. Finally, numbers are rounded
for the reader. It ends earlier, with the smallest so far, when the plays or the time allowed are used up, or
when it is interrupted.

Every candidate is played in full. It is the same failure if the *same check* gives the *same violation*: in
the same words, except for names, numbers and times. A candidate that cannot be played, never ends or breaks
the simulator is another failure.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from simulations import faults
from simulations.faults import Fault
from simulations.runs import playing
from simulations.runs.playing import Result
from simulations.runs.replaying import Failure, PlayIt, failing, failure_of
from simulations.runs.swarming import SEED_MAX_S, Stuck, at_most
from simulations.scenario import CLIENTS, Scenario, Workload, last_end_s

T = TypeVar("T")

PLAYS_MAX: Final = 400
TIME_LEAST_S: Final = 0.25
"""Times are not halved below this."""
QUIET_LEAST_S: Final = 1.0
PAUSE_MOST_S: Final = 1.0
"""Publishers are not slowed down beyond this."""
NO_AMOUNTS: Final = ("disk_fault", "full_disk")
"""Kinds whose number is an identifier, or a remainder, and not an amount."""

"""The fields of a workload that are numbers of clients."""
NAMED: Final = re.compile(r"\d|\w[.-]\w")
"""A word that is a number, a time, an id, or a name such as broker-1 or news.uk."""

Say = Callable[[int, str], None]


class Ending(StrEnum):
    """Why it went no further."""

    SMALLEST = "nothing more can be left out"
    PLAYS = "the plays allowed are used up"
    TIME = "the time allowed is used up"
    INTERRUPTED = "it was interrupted"


class Enough(Exception):
    """No further candidate will be played."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The result so far."""

    before: Failure
    after: Failure
    plays: int
    ending: Ending

    def __str__(self) -> str:
        before, after = size_of(self.before.scenario), size_of(self.after.scenario)
        return f"{self.plays} plays: from {before} to {after}; {self.ending}"

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.after.check,
            "violation": self.after.violation,
            "seed": self.after.seed,
            "history_hash": self.after.history_hash,
            "before": size_of(self.before.scenario),
            "after": size_of(self.after.scenario),
            "plays": self.plays,
            "ending": self.ending.name.lower(),
        }


def size_of(scenario: Scenario) -> str:
    """The size, in words."""
    clients = sum(getattr(scenario.workload, name) for name in CLIENTS)
    counts = {"fault": len(scenario.faults), "broker": scenario.brokers, "client": clients}
    words = [f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items()]
    return ", ".join([*words, f"{scenario.warm_s + scenario.safety_length_s + scenario.quiet_s:.4g} s"])


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of the items that still fails, from which no single one can be left out.

    ``fails`` must be true for all of them.
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
    failure: Failure,
    *,
    plays_max: int = PLAYS_MAX,
    wall_max_s: float | None = None,
    say: Say | None = None,
    play: PlayIt = playing.play,
) -> Shrunk:
    """Make a failure small; ``say`` gets the number of plays, and their outcome in words.

    An interrupt (Ctrl-C) ends it with the smallest that was found. Before the first failure, the interrupt is
    passed on.

    Raises:
        ValueError: it does not fail here at all.
    """
    return _Shrinking(failure, plays_max, wall_max_s, say or (lambda plays, text: None), play).run()


def _words(violation: str) -> list[str]:
    """The words of a violation, without names and numbers."""
    return [word for word in violation.split() if not NAMED.search(word)]


class _Shrinking:
    def __init__(
        self, failure: Failure, plays_max: int, wall_max_s: float | None, say: Say, play: PlayIt
    ) -> None:
        self._failure = failure
        self._plays_max = plays_max
        self._ends_at = None if wall_max_s is None else time.perf_counter() + wall_max_s
        self._say = say
        self._play = play
        self._plays = 0
        self._seen: dict[Scenario, bool] = {}
        self._best = failure.scenario
        self._best_result: Result | None = None

    def run(self) -> Shrunk:
        try:
            if not self._fails(self._best):
                raise ValueError(f"{self._failure.check} does not fail in it, so there is nothing to shrink")
            while self._pass():
                pass
            self._follow(_rounder)
            ending = Ending.SMALLEST
        except Enough as enough:
            ending = enough.ending
        except KeyboardInterrupt:
            if self._best_result is None:
                raise
            ending = Ending.INTERRUPTED
        return Shrunk(self._failure, self._smallest(), self._plays, ending)

    def _smallest(self) -> Failure:
        result = self._best_result
        assert result is not None, "at least the failure itself was played"
        violation = self._same_of(result)
        assert violation is not None, "it failed"
        return replace(failure_of(result), check=self._failure.check, violation=violation)

    def _pass(self) -> bool:
        """Try everything once; return True if anything helped."""
        before = self._best
        self._follow(_fewer_clients)
        self._fewer_faults()
        for smaller in (_fewer_brokers, _shorter, _smaller_faults):
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
            raise Enough(Ending.PLAYS)
        # The first one is always played: without it there is no result.
        if self._plays and self._ends_at is not None and time.perf_counter() >= self._ends_at:
            raise Enough(Ending.TIME)
        self._plays += 1
        self._say(self._plays, "")
        try:
            with at_most(SEED_MAX_S):
                result = self._play(candidate, seed=self._failure.seed)
        except (Stuck, Exception):  # too little is left of it to be played, or it found another failure
            return False
        if self._same_of(result) is None:
            return False
        self._best_result = result
        return True

    def _same_of(self, result: Result) -> str | None:
        """The violation that is the failure, if it occurs."""
        found = failing(result.verdicts, self._failure.check)
        wanted = _words(self._failure.violation)
        violations = () if found is None else found.violations
        return next((each for each in violations if _words(each) == wanted), None)


# --- smaller scenarios, the boldest reduction first


def _candidate(scenario: Scenario, **changed: object) -> Iterator[Scenario]:
    """The changed scenario, if it is possible."""
    try:
        yield replace(scenario, **changed)  # type: ignore[arg-type]
    except ValueError:
        return


def _fewer_brokers(scenario: Scenario) -> Iterator[Scenario]:
    """Without the last brokers, whatever names them; then with the struck ones in their places."""
    brokers, spares = scenario.broker_names, scenario.spare_names
    for count in dict.fromkeys((0, len(spares) - 1)):
        if 0 <= count < len(spares):
            yield from _with_only(scenario, brokers, spares[:count])
    for count in dict.fromkeys((2, len(brokers) // 2, len(brokers) - 1)):
        if 1 <= count < len(brokers):
            yield from _with_only(scenario, brokers[:count], spares)
            struck = [name for name in brokers if _names(scenario, name)]
            others = [name for name in brokers if name not in struck]
            yield from _with_only(scenario, [*struck, *others][:count], spares)


def _with_only(scenario: Scenario, brokers: list[str], spares: list[str]) -> Iterator[Scenario]:
    """With these brokers alone, under the names of a mesh of that size."""
    for fewer in _candidate(scenario, brokers=len(brokers), spares=len(spares)):
        names = dict.fromkeys((*scenario.broker_names, *scenario.spare_names), "")
        names |= zip((*brokers, *spares), (*fewer.broker_names, *fewer.spare_names), strict=True)
        yield from _candidate(fewer, faults=_renamed(scenario.faults, names))


def _names(scenario: Scenario, name: str) -> bool:
    return any(name in fault.a or name in fault.b for fault in scenario.faults)


def _renamed(given: Sequence[Fault], names: dict[str, str]) -> tuple[Fault, ...]:
    """With other names, and without those whose new name is empty; a fault without targets is left out."""
    found = []
    for fault in given:
        a, b = (tuple(n for n in (names.get(o, o) for o in side) if n) for side in (fault.a, fault.b))
        if (a or not fault.a) and (b or not fault.b):
            found.append(replace(fault, a=a, b=b))
    return tuple(found)


def _fewer_clients(scenario: Scenario) -> Iterator[Scenario]:
    load = scenario.workload
    for name in CLIENTS:
        count = getattr(load, name)
        for fewer in dict.fromkeys((0, count // 2, count - 1)):
            if 0 <= fewer < count:
                yield from _candidate(scenario, workload=_with_clients(load, name, fewer))
    if not load.publishers:
        yield from _candidate(scenario, workload=replace(load, pause_s=Workload().pause_s))
    elif load.pause_s < PAUSE_MOST_S:
        yield from _candidate(scenario, workload=replace(load, pause_s=load.pause_s * 2))


def _with_clients(load: Workload, name: str, count: int) -> Workload:
    """Durable subscriptions have workers, or there are none; slow workers are among the workers."""
    changed: dict[str, Any] = {name: count}
    if name == "workers":
        changed["slow_workers"] = min(load.slow_workers, count)
        changed["durable_subscriptions"] = min(load.durable_subscriptions, count)
    return replace(load, **changed)


def _smaller_faults(scenario: Scenario) -> Iterator[Scenario]:
    for index, fault in enumerate(scenario.faults):
        for smaller in _smaller_fault(fault):
            changed = (*scenario.faults[:index], smaller, *scenario.faults[index + 1 :])
            yield from _candidate(scenario, faults=changed)


def _smaller_fault(fault: Fault) -> Iterator[Fault]:
    """With fewer names, shorter, with a smaller effect."""
    for side in ("a", "b"):
        names = getattr(fault, side)
        if len(names) > 1:
            yield from (replace(fault, **{side: names[:i] + names[i + 1 :]}) for i in range(len(names)))
    if fault.for_s is not None and fault.for_s > 2 * TIME_LEAST_S:
        yield replace(fault, for_s=round(fault.for_s / 2, 3))
    kind = faults.KINDS[fault.kind]
    main = next((each for each in kind.parameters if each.name == "value"), None)
    value = fault.value
    if main and value and abs(value) / 2 >= _least(main) and kind.name not in NO_AMOUNTS:
        yield replace(fault, value=round(value / 2, 3))
    for name, _ in fault.more:
        yield replace(fault, more=tuple(each for each in fault.more if each[0] != name))


def _least(main: faults.Parameter) -> float:
    """Numbers are not halved below this: a tenth of the usual has almost no effect."""
    return max(main.least, abs(float(main.default or 0)) / 10, 1e-3)


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


def _rounder(scenario: Scenario) -> Iterator[Scenario]:
    """All times and numbers of faults whole, or else those of each fault; or with one digit."""
    for digits in (0, 1):
        rounded = [_rounded(fault, digits) for fault in scenario.faults]
        yield from _candidate(scenario, faults=tuple(rounded))
        for index, fault in enumerate(rounded):
            changed = (*scenario.faults[:index], fault, *scenario.faults[index + 1 :])
            yield from _candidate(scenario, faults=changed)
        if scenario.safety_s is not None:
            yield from _candidate(scenario, safety_s=_up(scenario.safety_s, digits))


def _rounded(fault: Fault, digits: int) -> Fault:
    """A number that would become 0 stays as it is."""
    return replace(
        fault,
        at_s=round(fault.at_s, digits),
        for_s=None if fault.for_s is None else round(fault.for_s, digits) or fault.for_s,
        value=None if fault.value is None else round(fault.value, digits) or fault.value,
        more=tuple(
            (name, each if isinstance(each, str) else round(each, digits) or each)
            for name, each in fault.more
        ),
    )


def _up(number: float, digits: int) -> float:
    return math.ceil(number * 10.0**digits) / 10.0**digits
