"""Faults on a field: the kinds that apply to cores, with the same effect as in a world.

A kind that needs bandwidth, clocks, disks, clients or data is refused by its name, before anything is run.
Compound kinds unfold by the same code and the same random streams as in a world, so a seed strikes the same
brokers here and there.

A fault reverses only its own effects. Cuts are counted. A place that several faults hold down or paused stays
so until the last of them ends, or until it is started or resumed by name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from simulations import faults
from simulations.cores.field import Field, PlaceState
from simulations.faults import Fault
from simulations.kernel.scheduler import nanoseconds


@dataclass(slots=True, eq=False)
class Lasting:
    """A fault in progress."""

    fault: Fault
    parts: list[Lasting] = field(default_factory=list)
    """For a part of a compound fault."""
    over: bool = False


class Striking:
    """Faults on one field: those to come, and those in progress."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.done: list[tuple[float, Fault]] = []
        """The times and faults so far."""
        self._lasting: list[Lasting] = []
        self._alike: Counter[str] = Counter()
        self._holders: dict[tuple[str, int], list[Fault]] = {}
        """By effect and place: the faults that keep a place down or paused."""

    def check(self, plan: Iterable[Fault]) -> None:
        """Raise `ValueError` for a fault that has no meaning here, or names an unknown broker."""
        for fault in plan:
            self._checked(fault)

    def schedule(self, plan: Iterable[Fault], *, began_s: float = 0.0) -> None:
        """Schedule faults at their times, which count from ``began_s``.

        Raises:
            ValueError: see `check`.
        """
        for fault in plan:
            self._checked(fault)
            delay_ns = nanoseconds(fault.at_s + began_s) - self.field.now_ns
            self.field.after(max(0, delay_ns), self.do, fault)

    def do(self, fault: Fault) -> None:
        """Apply a fault now.

        Raises:
            ValueError: see `check`.
        """
        self._do(fault)

    def _do(self, fault: Fault) -> Lasting:
        fault = self._checked(fault)
        self.done.append((self.field.now_s, fault))
        self.field.history.record(self.field.now_ns, "field", "fault", str(fault))
        lasting = Lasting(fault)
        begin, end = SIMPLE.get(fault.kind, (None, None))
        if begin is not None:
            begin(self, fault)
        if begin is None or end is not None:
            self._lasting.append(lasting)
            if fault.for_s is not None:
                self.field.after(nanoseconds(fault.for_s), self._end, lasting)
        unfold = faults.KINDS[fault.kind].unfold
        if unfold is not None:
            self._do_parts((lasting, unfold(self._as_world(), fault, self._stream(fault))))
        return lasting

    def _do_parts(self, what: tuple[Lasting, Iterator[Fault]]) -> None:
        """Apply the parts that are due now, then wait for the next."""
        whole, parts = what
        for part in parts:
            delay_ns = nanoseconds(part.at_s) - self.field.now_ns
            if delay_ns > 0:
                self.field.after(delay_ns, self._do_late_part, (*what, part))
                return
            whole.parts.append(self._do(part))

    def _do_late_part(self, what: tuple[Lasting, Iterator[Fault], Fault]) -> None:
        whole, parts, part = what
        if not whole.over:
            whole.parts.append(self._do(part))
            self._do_parts((whole, parts))

    def _as_world(self) -> Any:
        """As much of a world as compound kinds need."""
        return SimpleNamespace(now_s=self.field.now_s, network=SimpleNamespace(hosts=self.field.numbers))

    def _stream(self, fault: Fault) -> random.Random:
        what = f"{fault.kind}|{','.join(fault.a)}|{','.join(fault.b)}|{fault.value or 0.0:g}|{fault.more}"
        self._alike[what] += 1
        return random.Random(f"{self.field.seed}:fault:{what}:{self._alike[what]}")

    def heal(self) -> None:
        """Undo all lasting faults, and start the brokers that are down."""
        self.end_if(lambda fault: True)
        for place, lives in enumerate(self.field.lives):
            if lives:
                _start_if_down(self.field, place)

    def end_if(self, wanted: Callable[[Fault], bool]) -> None:
        """Undo the matching faults that are still in progress."""
        for lasting in list(self._lasting):
            if wanted(lasting.fault):
                self._end(lasting)

    def _end(self, lasting: Lasting) -> None:
        if lasting.over:
            return  # before its time
        lasting.over = True
        for part in lasting.parts:
            self._end(part)
        self._lasting = [each for each in self._lasting if each is not lasting]
        _, end = SIMPLE.get(lasting.fault.kind, (None, None))
        if end is not None:
            end(self, lasting.fault)

    def _checked(self, fault: Fault) -> Fault:
        """The fault, with its kind's default number if it has none."""
        if fault.kind not in KINDS:
            raise ValueError(
                f"the cores alone know no {fault.kind}; they know {', '.join(KINDS)}. Run it in full fidelity"
            )
        kind = faults.KINDS[fault.kind]
        kind.check(fault)
        for name in (*fault.a, *fault.b):
            if name not in self.field.numbers:
                raise ValueError(f"{fault.kind}: there is no broker {name!r} among {len(self.field.names)}")
        for name, value in fault.more:
            if fault.kind in SIMPLE and (name, value) not in MEANT and name != "ways":
                raise ValueError(f"{fault.kind}: {name} means nothing to the cores alone")
        return kind.filled(fault)

    # --- which faults keep places down or paused

    def hold(self, what: str, place: int, fault: Fault) -> None:
        self._holders.setdefault((what, place), []).append(fault)

    def let_go(self, what: str, place: int, fault: Fault) -> bool:
        """Return True if no fault holds the place any more; False also if it was released before."""
        holders = self._holders.get((what, place), [])
        index = next((index for index, each in enumerate(holders) if each is fault), None)
        if index is None:
            return False
        del holders[index]
        return not holders

    def let_all_go(self, what: str, place: int) -> None:
        """Release a place that is started or resumed by name."""
        self._holders.pop((what, place), None)

    def held(self, what: str, place: int) -> bool:
        return bool(self._holders.get((what, place)))


Act = Callable[[Striking, Fault], None]
Struck = Callable[[Field, Fault], Iterator[int]]
MEANT: Final = (("how", "crash"), ("state", "kept"))
"""Parameters whose other values do not apply here: cores behave this way anyway."""
DOWN: Final = "down"
PAUSED: Final = "paused"

# --- the wires that are struck


def _sides(field: Field, fault: Fault) -> tuple[list[int], list[int]]:
    here, there = field.where(fault.a), field.where(fault.b)
    return here or _others(field, there), there or _others(field, here)


def _others(field: Field, places: list[int]) -> list[int]:
    known = frozenset(places)  # only for look-ups
    return [place for place in range(len(field.names)) if place not in known]


def _both_ways(field: Field, fault: Fault) -> Iterator[int]:
    here, there = _sides(field, fault)
    yield from field.wires.between(here, there)
    yield from field.wires.between(there, here)


def _there(field: Field, fault: Fault) -> Iterator[int]:
    yield from field.wires.between(*_sides(field, fault))


def _around(field: Field, fault: Fault) -> Iterator[int]:
    alone = field.where((*fault.a, *fault.b))
    everybody = range(len(field.names))
    yield from field.wires.between(alone, everybody)
    yield from field.wires.between(_others(field, alone), alone)


def _struck_links(field: Field, fault: Fault) -> Iterator[int]:
    yield from (_there if fault.text("ways", "both") == "there" else _both_ways)(field, fault)


# --- effects on wires


def _cutting(struck: Struck, by: int) -> Act:
    def act(striking: Striking, fault: Fault) -> None:
        wires = striking.field.wires
        for wire in struck(striking.field, fault):
            wires.suffer(wire).cuts += by
            wires.judge(wire)

    return act


def _clog(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _both_ways(striking.field, fault):
        wires.suffer(wire).clogs += 1
        wires.judge(wire)


def _unclog(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _both_ways(striking.field, fault):
        trouble = wires.suffer(wire)
        trouble.clogs -= 1
        if not trouble.clogs:
            striking.field.unclog(wire)


def _slow(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).extra_ns.append(nanoseconds(fault.amount))
        wires.judge(wire)


def _slow_no_more(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).extra_ns.remove(nanoseconds(fault.amount))
        wires.judge(wire)


def _lossy(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).loss.append(fault.amount)
        wires.judge(wire)


def _lossy_no_more(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).loss.remove(fault.amount)
        wires.judge(wire)


def _heal(striking: Striking, fault: Fault) -> None:
    """End all faults of links, or those of links that have a side among the named places."""
    named = frozenset((*fault.a, *fault.b))  # only for look-ups

    def wanted(other: Fault) -> bool:
        of_them = not named or any(side and named.issuperset(side) for side in (other.a, other.b))
        return faults.KINDS[other.kind].of == "links" and of_them

    striking.end_if(wanted)


# --- effects on places


def _start_if_down(field: Field, place: int) -> None:
    if field.states[place] is PlaceState.DOWN:
        field.start(place)


def _start(striking: Striking, fault: Fault) -> None:
    for place in striking.field.where(fault.a):
        striking.let_all_go(DOWN, place)
        _start_if_down(striking.field, place)


def _going_down(*, power: bool) -> Act:
    def act(striking: Striking, fault: Fault) -> None:
        field = striking.field
        for place in field.where(fault.a):
            striking.hold(DOWN, place, fault)
            if field.states[place] is not PlaceState.DOWN or not power:
                field.kill(place, power=power)

    return act


def _coming_up(striking: Striking, fault: Fault) -> None:
    for place in striking.field.where(fault.a):
        if striking.let_go(DOWN, place, fault):
            _start_if_down(striking.field, place)


def _restart(striking: Striking, fault: Fault) -> None:
    field = striking.field

    def start(place: int) -> None:
        if not striking.held(DOWN, place):
            _start_if_down(field, place)

    for place in field.where(fault.a):
        if field.states[place] is not PlaceState.DOWN:
            field.kill(place)
        field.after(nanoseconds(fault.amount), start, place)


def _pause(striking: Striking, fault: Fault) -> None:
    for place in striking.field.where(fault.a):
        striking.hold(PAUSED, place, fault)
        striking.field.pause(place)


def _wake(striking: Striking, fault: Fault) -> None:
    for place in striking.field.where(fault.a):
        if striking.let_go(PAUSED, place, fault):
            striking.field.resume(place)


def _resume(striking: Striking, fault: Fault) -> None:
    for place in striking.field.where(fault.a):
        striking.let_all_go(PAUSED, place)
        striking.field.resume(place)


SIMPLE: Final[dict[str, tuple[Act, Act | None]]] = {
    "partition": (_cutting(_both_ways, 1), _cutting(_both_ways, -1)),
    "cut_one_way": (_cutting(_there, 1), _cutting(_there, -1)),
    "isolate": (_cutting(_around, 1), _cutting(_around, -1)),
    "clog": (_clog, _unclog),
    "slow_link": (_slow, _slow_no_more),
    "lossy_link": (_lossy, _lossy_no_more),
    "heal": (_heal, None),
    "start": (_start, None),
    "crash": (_going_down(power=True), _coming_up),
    "power_off": (_going_down(power=False), _coming_up),
    "restart": (_restart, None),
    "pause": (_pause, _wake),
    "resume": (_resume, None),
}
"""How each kind begins and ends."""
COMPOUND: Final = ("one_edge", "bridge", "majorities_ring", "rolling_partition", "flip_flop", "swizzle")
KINDS: Final = (*SIMPLE, *COMPOUND)
