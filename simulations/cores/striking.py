"""Faults on a field: those kinds that mean something to cores, which do what they do in a world.

A kind that needs bandwidth, clocks, disks, clients or data is refused by its name, before anything is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from simulations import faults
from simulations.cores.field import Field, PlaceState
from simulations.faults import Fault
from simulations.scheduler import nanoseconds


class Striking:
    """Faults on one field: what is to come, and what lasts."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._lasting: list[Fault] = []

    def check(self, plan: Iterable[Fault]) -> None:
        """Raises `ValueError` for a fault that has no meaning here, or names somebody who is not here."""
        for fault in plan:
            self._checked(fault)

    def schedule(self, plan: Iterable[Fault]) -> None:
        """Let them come at their times, which count from the beginning of the run.

        Raises:
            ValueError: as `check`.
        """
        for fault in plan:
            self._checked(fault)
            self.field.after(max(0, nanoseconds(fault.at_s) - self.field.now_ns), self.do, fault)

    def do(self, fault: Fault) -> None:
        """A fault, now.

        Raises:
            ValueError: as `check`.
        """
        fault = self._checked(fault)
        self.field.history.record(self.field.now_ns, "field", "fault", str(fault))
        begin, end = KINDS[fault.kind]
        begin(self, fault)
        if end is not None:
            self._lasting.append(fault)
            if fault.for_s is not None:
                self.field.after(nanoseconds(fault.for_s), self._end, fault)

    def heal(self, *, links_only: bool = False) -> None:
        """Undo all that lasts; then start who is down, unless only links are meant."""
        for fault in list(self._lasting):
            if not links_only or fault.kind in LINK_KINDS:
                self._end(fault)
        if not links_only:
            for place, lives in enumerate(self.field.lives):
                if lives:
                    _start_if_down(self.field, place)

    def _end(self, fault: Fault) -> None:
        for index, each in enumerate(self._lasting):
            if each is fault:
                del self._lasting[index]
                end = KINDS[fault.kind][1]
                assert end is not None
                end(self, fault)
                return

    def _checked(self, fault: Fault) -> Fault:
        """The fault with its kind's own number, if it has none."""
        if fault.kind not in KINDS:
            raise ValueError(
                f"the cores alone know no {fault.kind}; they know {', '.join(KINDS)}. Run it in full fidelity"
            )
        kind = faults.KINDS[fault.kind]
        kind.check(fault)
        for name in (*fault.a, *fault.b):
            if name not in self.field.numbers:
                raise ValueError(f"{fault.kind}: there is no broker {name!r} among {len(self.field.names)}")
        for name, _ in fault.more:
            if name != "ways":
                raise ValueError(f"{fault.kind}: {name} means nothing to the cores alone")
        return kind.filled(fault)


Act = Callable[[Striking, Fault], None]
Struck = Callable[[Field, Fault], Iterator[int]]

# --- which wires are struck


def _sides(field: Field, fault: Fault) -> tuple[list[int], list[int]]:
    here, there = field.where(fault.a), field.where(fault.b)
    return here or _others(field, there), there or _others(field, here)


def _others(field: Field, places: list[int]) -> list[int]:
    known = frozenset(places)  # looked up only
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


# --- what happens to them


def _cutting(struck: Struck, by: int) -> Act:
    def act(striking: Striking, fault: Fault) -> None:
        wires = striking.field.wires
        for wire in struck(striking.field, fault):
            wires.suffer(wire).cuts += by
            wires.judge(wire)

    return act


def _slow(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).extra_ns.append(nanoseconds(fault.value))
        wires.judge(wire)


def _slow_no_more(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).extra_ns.remove(nanoseconds(fault.value))
        wires.judge(wire)


def _lossy(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).loss.append(fault.value)
        wires.judge(wire)


def _lossy_no_more(striking: Striking, fault: Fault) -> None:
    wires = striking.field.wires
    for wire in _struck_links(striking.field, fault):
        wires.suffer(wire).loss.remove(fault.value)
        wires.judge(wire)


# --- what happens to places


def _each(act: Callable[[Field, int], None]) -> Act:
    def all_of_them(striking: Striking, fault: Fault) -> None:
        for place in striking.field.where(fault.a):
            act(striking.field, place)

    return all_of_them


def _start_if_down(field: Field, place: int) -> None:
    if field.states[place] is PlaceState.DOWN:
        field.start(place)


def _crash(field: Field, place: int) -> None:
    if field.states[place] is not PlaceState.DOWN:
        field.kill(place)


def _power_off(field: Field, place: int) -> None:
    field.kill(place, power=False)


def _heal(striking: Striking, fault: Fault) -> None:
    striking.heal(links_only=True)


KINDS: Final[dict[str, tuple[Act, Act | None]]] = {
    "partition": (_cutting(_both_ways, 1), _cutting(_both_ways, -1)),
    "cut_one_way": (_cutting(_there, 1), _cutting(_there, -1)),
    "isolate": (_cutting(_around, 1), _cutting(_around, -1)),
    "slow_link": (_slow, _slow_no_more),
    "lossy_link": (_lossy, _lossy_no_more),
    "heal": (_heal, None),
    "start": (_each(_start_if_down), None),
    "crash": (_each(_crash), _each(_start_if_down)),
    "power_off": (_each(_power_off), _each(_start_if_down)),
    "pause": (_each(Field.pause), _each(Field.resume)),
    "resume": (_each(Field.resume), None),
}
"""How each begins and how it ends."""
LINK_KINDS: Final = ("partition", "cut_one_way", "isolate", "slow_link", "lossy_link")
