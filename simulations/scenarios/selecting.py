"""Resolves a written scenario to that of a seed: its targets, times and amounts.

Selectors, which take the place of names::

    broker-3                       a name
    brokers                        a group: brokers, spares, publishers, subscribers, askers, answerers,
                                   workers, clients; or a pick
    2 of brokers                   so many, chosen by the seed; also "half of", "1% of", "majority of",
                                   "minority of", and "1 to half of", whose number the seed chooses
    1% of brokers (at least 1)
    first 2 of brokers             so many in the order of their numbers, without a draw
    rest of brokers                those not named before: in a fault, in that fault (``b`` is after ``a``);
                                   in a pick, or where a fault begins with it, in the picks above
    host of sub-1                  where it runs
    clients of broker-2            those on its host

The set after "of" may be a selector again. Every pick and every fault has a separate random stream, so that
one more draw in one place changes nothing elsewhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from simulations import faults
from simulations.faults import Fault, FaultError
from simulations.scenario import REPEATS_MAX, SPAN, Expectation, Scenario, ScenarioError, Value

_COUNTED: Final = re.compile(
    r"(?P<first>first )?(?P<amount>.+?) of (?P<set>.+?)(?: \(at least (?P<least>\d+)\))?"
)
_RANGE: Final = re.compile(r"(.+) to (.+)")
_AMOUNTS: Final[Mapping[str, Callable[[int], int]]] = {
    "half": lambda size: size // 2,
    "majority": lambda size: size // 2 + 1,
    "minority": lambda size: (size - 1) // 2,
}
_SPELT_AS: Final = 'as in "2 of brokers", "half of brokers" or "10% of brokers (at least 1)"'


def homes(scenario: Scenario, seed: int) -> dict[str, str]:
    """The host of every broker and client; for a client, that of its broker."""
    brokers = scenario.broker_names
    order = random.Random(f"{seed}:homes").sample(brokers, len(brokers))
    found = {name: name for name in (*brokers, *scenario.spare_names)}
    found |= {name: order[n % len(order)] for n, name in enumerate(scenario.subscriber_names)}
    found |= {name: order[-1 - n % len(order)] for n, name in enumerate(scenario.publisher_names)}
    found |= {name: order[n % len(order)] for n, name in enumerate(scenario.asker_names)}
    found |= {name: order[-1 - n % len(order)] for n, name in enumerate(scenario.answerer_names)}
    found |= {name: order[n % len(order)] for n, name in enumerate(scenario.stock_publisher_names)}
    found |= {name: order[-1 - n % len(order)] for n, name in enumerate(scenario.stock_subscriber_names)}
    queues = len(scenario.queue_names) or 1
    for n, name in enumerate(scenario.worker_names):  # those of one queue at different brokers
        found[name] = order[(n % queues + n // queues) % len(order)]
    return found


@dataclass
class Selection:
    """The names that exist, and those picked so far."""

    scenario: Scenario
    homes: dict[str, str]
    picks: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> Selection:
        """Make the scenario's picks, each of which may build on those above it.

        Raises:
            ScenarioError: a pick cannot be made, or has the name of something else.
        """
        selection = cls(scenario, homes(scenario, seed), {})
        for name, selector in scenario.picks:
            if name in selection.groups or name in selection.homes or " " in name:
                raise ScenarioError(f"a pick cannot be called {name!r}, which means something", "pick", name)
            rng = random.Random(f"{seed}:pick:{name}")
            try:
                selection.picks[name] = selection.names((selector,), rng)
            except ValueError as error:
                raise ScenarioError(str(error), "pick", name) from None
        return selection

    @property
    def groups(self) -> dict[str, list[str]]:
        scenario = self.scenario
        publishers, subscribers = scenario.publisher_names, scenario.subscriber_names
        askers, answerers = scenario.asker_names, scenario.answerer_names
        stock = [*scenario.stock_publisher_names, *scenario.stock_subscriber_names]
        return {
            "brokers": scenario.broker_names,
            "spares": scenario.spare_names,
            "publishers": publishers,
            "subscribers": subscribers,
            "askers": askers,
            "answerers": answerers,
            "workers": scenario.worker_names,
            "clients": [*subscribers, *publishers, *askers, *answerers, *stock, *scenario.worker_names],
        }

    @property
    def picked(self) -> list[str]:
        return [name for names in self.picks.values() for name in names]

    def names(
        self, selectors: Iterable[str], rng: random.Random, *, before: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """All names that the selectors mean, once each; ``before`` are those already named in the same fault.

        Raises:
            ValueError: one of them means nobody, or nothing; the message is a sentence.
        """
        found: dict[str, None] = {}
        for selector in selectors:
            named = [*before, *found] or self.picked
            found |= dict.fromkeys(self._select(selector.strip(), rng, named))
        return tuple(found)

    def _select(self, selector: str, rng: random.Random, named: list[str]) -> list[str]:
        if selector in self.homes:
            return [selector]
        if selector in self.picks:
            return list(self.picks[selector])
        if selector in self.groups:
            return self._somebody(selector, self.groups[selector])
        if match := re.fullmatch(r"(rest|host|clients) of (.+)", selector):
            return self._related(selector, match[1], self._select(match[2], rng, named), named)
        if match := _COUNTED.fullmatch(selector):
            return self._counted(selector, match, self._select(match["set"], rng, named), rng)
        raise ValueError(
            f"there is no {selector!r}; there are broker-1 to broker-{self.scenario.brokers}, "
            f"{', '.join([*self.groups, *self.picks])}, and parts of them, {_SPELT_AS}"
        )

    def _related(self, selector: str, relation: str, names: list[str], named: list[str]) -> list[str]:
        if relation == "rest":
            return self._somebody(selector, [name for name in names if name not in named])
        hosts = list(dict.fromkeys(self.homes[name] for name in names))
        if relation == "host":
            return hosts
        return self._somebody(
            selector, [name for name in self.groups["clients"] if self.homes[name] in hosts]
        )

    def _counted(
        self, selector: str, match: re.Match[str], names: list[str], rng: random.Random
    ) -> list[str]:
        spanned = _RANGE.fullmatch(match["amount"])
        if spanned:
            least, most = (_amount(each, len(names), selector) for each in spanned.groups())
            if least > most:
                raise ValueError(f"{selector!r} of {len(names)} is from {least} to {most}, which is no span")
            count = rng.randint(least, most)
        else:
            count = _amount(match["amount"], len(names), selector)
        count = max(count, int(match["least"] or 0))
        if count > len(names):
            raise ValueError(f"{selector!r} are {count}, but there are only {len(names)}")
        chosen = range(count) if match["first"] else sorted(rng.sample(range(len(names)), count))
        return self._somebody(selector, [names[index] for index in chosen])

    def _somebody(self, selector: str, names: list[str]) -> list[str]:
        if not names:
            raise ValueError(f"{selector!r} matches nobody here")
        return names


def _amount(text: str, size: int, selector: str) -> int:
    if text in _AMOUNTS:
        return _AMOUNTS[text](size)
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)%", text):
        return int(size * float(match[1]) / 100)
    if text.isdecimal():
        return int(text)
    raise ValueError(f"{selector!r} cannot be understood; say how many of whom, {_SPELT_AS}")


# --- a scenario


def resolve(scenario: Scenario, seed: int) -> Scenario:
    """The scenario of this seed: all names and numbers concrete, no fault repeated, in the order of their
    times.

    Resolving it again changes nothing.

    Raises:
        ScenarioError: a name or a number is impossible; it says where.
    """
    selection = Selection.of(scenario, seed)
    concrete = [
        each
        for index, fault in enumerate(scenario.faults)
        for each in _faults_of(fault, index, selection, random.Random(f"{seed}:fault:{index}"))
    ]
    expect = tuple(
        _expectation(each, index, selection, random.Random(f"{seed}:expect:{index}"))
        for index, each in enumerate(scenario.expect)
    )
    ordered = tuple(sorted(concrete, key=lambda fault: fault.at_s))
    found = replace(scenario, picks=(), faults=ordered, expect=expect)
    return replace(found, safety_s=found.safety_length_s)


def _faults_of(fault: Fault, index: int, selection: Selection, rng: random.Random) -> list[Fault]:
    repeats, gap_s = fault.number("repeat", 1), fault.number("repeat_s", 0.0)
    if repeats != int(repeats) or not 1 <= repeats <= REPEATS_MAX:
        raise ScenarioError(
            f"repeat is {repeats:g}; it must be from 1 to {REPEATS_MAX}", "fault", index, "repeat"
        )
    if gap_s < 0 or (repeats > 1) != (gap_s > 0):
        raise ScenarioError(
            "repeat says how often in all and repeat_s after how many seconds each; give both or none",
            "fault",
            index,
            "repeat_s",
        )
    return [_fault(fault, index, each * gap_s, selection, rng) for each in range(int(repeats))]


def _fault(fault: Fault, index: int, after_s: float, selection: Selection, rng: random.Random) -> Fault:
    more = {name: value for name, value in fault.more if name not in ("repeat", "repeat_s")}
    drawn = {
        name: _drawn(fault, name, most, index, rng) for name, most in more.items() if name.endswith(SPAN)
    }
    numbers = {name.removesuffix(SPAN): value for name, value in drawn.items()}
    for_s = numbers.pop("for_s", fault.for_s)
    at_s = numbers.pop("at_s", fault.at_s) + after_s
    value = numbers.pop("value", fault.value)
    plain = {name: value for name, value in more.items() if not name.endswith(SPAN)}
    a = _names(fault.a, "a", index, selection, rng, ())
    b = _names(fault.b, "b", index, selection, rng, a)
    hosts = [*selection.scenario.broker_names, *selection.scenario.spare_names]
    try:
        found = Fault(at_s, fault.kind, a, b, for_s, value, tuple(sorted({**plain, **numbers}.items())))
        faults.check(found, processes=list(selection.homes), hosts=hosts)
    except FaultError as error:
        raise ScenarioError(str(error), "fault", index, error.field) from None
    return found


def _drawn(fault: Fault, name: str, most: float | str, index: int, rng: random.Random) -> float:
    field = name.removesuffix(SPAN)
    least = {"at_s": fault.at_s, "for_s": fault.for_s, "value": fault.value, **dict(fault.more)}.get(field)
    if not isinstance(least, float | int) or isinstance(most, str) or least > most:
        raise ScenarioError(f"{field} is from {least} to {most}, which is no span", "fault", index, field)
    return min(most, max(least, round(rng.uniform(least, most), 3)))


def _names(
    selectors: tuple[str, ...],
    side: str,
    index: int,
    selection: Selection,
    rng: random.Random,
    before: tuple[str, ...],
) -> tuple[str, ...]:
    try:
        return selection.names(selectors, rng, before=before)
    except ValueError as error:
        raise ScenarioError(str(error), "fault", index, side) from None


def _expectation(each: Expectation, index: int, selection: Selection, rng: random.Random) -> Expectation:
    return Expectation(
        each.check,
        tuple((name, _value(value, name, index, selection, rng)) for name, value in each.parameters),
    )


def _value(value: Value, name: str, index: int, selection: Selection, rng: random.Random) -> Value:
    if not isinstance(value, tuple):
        return value
    try:
        return selection.names(value, rng)
    except ValueError as error:
        raise ScenarioError(str(error), "expect", index, name) from None
