"""The events of brokers and links, in the terms of the simulator's faults. Pure.

A life that ended becomes a ``crash``, ``power_off``, ``stop`` or ``pause`` until the broker ran again. A
broker that came late becomes a ``start``. A complete part becomes a ``partition`` of each side from those
after it. Pairs that did not hear each other in a part of another kind are cut edge by edge, grouped by common
ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from mesh.analysis.results.tables import Life, Outage, Part, PartSide

Kind = Literal["crash", "power_off", "stop", "pause", "start", "partition", "cut_one_way"]

FAULT_OF: Final[Mapping[str, Kind]] = {
    "crash": "crash",
    "power_off": "power_off",
    "leave": "stop",
    "pause": "pause",
}
"""The fault for each cause of an end."""
SILENT_PERIODS: Final = 2.2
"""Silence between two brokers that lasts no longer is no cut."""
ONE_WAY_PERIODS: Final = 1.5
"""A pair that was silent so long before a part began was cut one way first."""
TOGETHER_S: Final = 2.0
"""Edges whose outages begin and end within this of each other are one cut. In periods."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One event. ``a`` and ``b`` are ids of brokers; instants are in microseconds of mesh time."""

    at: int
    kind: Kind
    a: tuple[str, ...]
    b: tuple[str, ...] = ()
    until: int | None = None
    """None: it has no duration, or lasted to the end of the logs."""

    @property
    def concerned(self) -> set[str]:
        """All brokers that it affected."""
        return {*self.a, *self.b}


@dataclass(frozen=True, slots=True)
class Untold:
    """An event that cannot be played again: a sentence, with the brokers' ids in ``nodes``."""

    at: int
    nodes: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Incident:
    """All events of one run."""

    started: int
    """When the mesh had formed: the start of the last broker that did not come late."""
    ended: int
    first: tuple[str, ...]
    """Brokers ordered by their first sign: those that formed the mesh, then those that came late."""
    late: int
    """How many of ``first`` came late."""
    happenings: tuple[Happening, ...]
    untold: tuple[Untold, ...]


def incident(
    lives: Iterable[Life],
    parts: Iterable[Part],
    sides: Iterable[PartSide],
    outages: Iterable[Outage],
    *,
    period_s: float,
) -> Incident:
    """The events of one run. All records belong to that run.

    Raises:
        ValueError: there are no lives.
    """
    of_node: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        of_node[life.node].append(life)
    if not of_node:
        raise ValueError("there is no broker in the logs, so there is nothing to make a scenario of")
    for stretches in of_node.values():
        stretches.sort(key=lambda life: (life.start, life.no))
    born = {node: stretches[0].start for node, stretches in of_node.items()}
    order = sorted(born, key=lambda node: (born[node], node))
    struck = _of_lives(of_node)
    ended = max(life.end for stretches in of_node.values() for life in stretches)
    silences = _silences(outages, of_node, ended, period_s=period_s)
    cut = _of_parts(parts, sides, silences, period_s=period_s)
    first_blow = min((each.at for each in [*struck[0], *cut]), default=max(born.values()) + 1)
    late = [node for node in order if born[node] > first_blow or _came_late(born, order, node, period_s)]
    begun = [node for node in order if node not in set(late)]
    starts = [Happening(born[node], "start", (node,)) for node in late]
    ordered = sorted([*struck[0], *cut, *starts], key=lambda each: (each.at, each.kind, each.a))
    happenings = _without_the_end(ordered, of_node)
    return Incident(
        started=max(born[node] for node in begun),
        ended=ended,
        first=(*begun, *late),
        late=len(late),
        happenings=tuple(happenings),
        untold=tuple(struck[1]),
    )


def _without_the_end(
    happenings: Sequence[Happening], of_node: Mapping[str, Sequence[Life]]
) -> Sequence[Happening]:
    """Drops the leaves at the end of a run that all brokers left, since every scenario ends so."""
    if any(stretches[-1].state != "away" for stretches in of_node.values()):
        return happenings
    last = len(happenings)
    while last and happenings[last - 1].kind == "stop" and happenings[last - 1].until is None:
        last -= 1
    return happenings[:last]


LATE_PERIODS: Final = 10.0
"""A broker whose first sign comes this long after that of the one before it did not form the mesh."""


def _came_late(born: Mapping[str, int], order: Sequence[str], node: str, period_s: float) -> bool:
    """True if there was a long pause between two starts before this one's."""
    upto = order[: order.index(node) + 1]
    return any(born[after] - born[before] > LATE_PERIODS * period_s * 1e6 for before, after in pairwise(upto))


def _of_lives(of_node: Mapping[str, Sequence[Life]]) -> tuple[list[Happening], list[Untold]]:
    happenings: list[Happening] = []
    untold: list[Untold] = []
    for node, stretches in of_node.items():
        for life in stretches:
            fault = FAULT_OF.get(life.cause or "")
            if fault is not None:
                back = next(
                    (other.start for other in stretches if other.no > life.no and other.state == "up"),
                    None,
                )
                happenings.append(Happening(life.end, fault, (node,), until=back))
            elif life.cause == "log lost":
                untold.append(Untold(life.end, (node,), "its log is lost; its fate is not known"))
    return happenings, untold


class _Silence(NamedTuple):
    """``dst`` heard nothing of ``src`` while both ran."""

    src: str
    dst: str
    start: int
    end: int | None
    """None: it lasted when the logs end."""


def _silences(
    outages: Iterable[Outage], of_node: Mapping[str, Sequence[Life]], ended: int, *, period_s: float
) -> list[_Silence]:
    """The cuts among the outages, limited to the times in which both brokers ran.

    An outage without a heartbeat before or after it begins or ends with its listener's process.
    """
    stays = {node: _stays(stretches) for node, stretches in of_node.items()}
    least = round(SILENT_PERIODS * period_s * 1e6)
    found = []
    for outage in outages:
        if outage.cause != "cut" or not outage.expected:
            continue
        begin, until = _listened(outage, stays.get(outage.dst, []))
        for start, end in stays.get(outage.dst, []):
            for first, last in stays.get(outage.src, []):
                since, to = max(begin, start, first), min(until, end, last)
                if to - since > least:
                    lasts = to >= ended and outage.next is None
                    found.append(_Silence(outage.src, outage.dst, since, None if lasts else to))
    return found


def _stays(stretches: Iterable[Life]) -> list[tuple[int, int]]:
    """The times in which a broker's processes existed, pauses included."""
    found: list[tuple[int, int]] = []
    for life in stretches:
        if life.state not in ("up", "paused"):
            continue
        if found and found[-1][1] == life.start:
            found[-1] = (found[-1][0], life.end)
        else:
            found.append((life.start, life.end))
    return found


def _listened(outage: Outage, stays: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Start and end of an outage, within the process of ``dst`` that logged it."""
    known = outage.next if outage.last is None else outage.last
    for start, end in stays:
        if known is None or start <= known <= end:
            return (
                start if outage.last is None else outage.last,
                end if outage.next is None else outage.next,
            )
    return (known or 0, known or 0)


def _of_parts(
    parts: Iterable[Part], sides: Iterable[PartSide], silences: Iterable[_Silence], *, period_s: float
) -> list[Happening]:
    members: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for place in sides:
        members[place.no][place.side].append(place.node)
    complete = [part for part in parts if part.kind == "complete"]
    happenings = []
    for part in complete:
        ordered = [tuple(sorted(members[part.no][side])) for side in sorted(members[part.no], reverse=True)]
        for number, side in enumerate(ordered[:-1]):
            rest = tuple(sorted(node for other in ordered[number + 1 :] for node in other))
            happenings.append(Happening(part.start, "partition", side, rest, part.end))
    others = [each for each in silences if not _is_in(each, complete, members, period_s)]
    return happenings + _of_edges(others, period_s=period_s)


def _is_in(
    silence: _Silence,
    parts: Sequence[Part],
    members: Mapping[int, Mapping[int, list[str]]],
    period_s: float,
) -> bool:
    """True if a complete part already covers it: the two were on different sides of it meanwhile."""
    slack, before = (round(periods * period_s * 1e6) for periods in (TOGETHER_S, ONE_WAY_PERIODS))
    for part in parts:
        of = {node: side for side, nodes in members[part.no].items() for node in nodes}
        one, other = of.get(silence.src), of.get(silence.dst)
        if one is None or other is None or one == other or silence.start < part.start - before:
            continue
        if part.end is None or (silence.end is not None and silence.end <= part.end + 2 * slack):
            return True
    return False


def _of_edges(silences: Iterable[_Silence], *, period_s: float) -> list[Happening]:
    """Cuts of single edges: both ways if both were silent at once, grouped by one end."""
    slack = round(TOGETHER_S * period_s * 1e6)
    single = sorted(
        (Happening(each.start, "cut_one_way", (each.src,), (each.dst,), each.end) for each in silences),
        key=lambda each: (each.at, each.a, each.b),
    )
    waiting: dict[tuple[str, str], list[Happening]] = defaultdict(list)
    both = []
    for one in single:
        back = waiting[one.b[0], one.a[0]]
        twin = next((other for other in back if _near(other, one, slack)), None)
        if twin is None:
            waiting[one.a[0], one.b[0]].append(one)
            continue
        back.remove(twin)
        a, b = sorted((*one.a, *one.b))
        until = _earlier(one.until, twin.until)
        both.append(Happening(max(one.at, twin.at), "partition", (a,), (b,), until))
    alone = [each for of_pair in waiting.values() for each in of_pair]
    both = sorted([*both, *alone], key=lambda each: (each.at, each.kind, each.a, each.b))
    return _gathered(both, slack)


def _gathered(cuts: Sequence[Happening], slack: int) -> list[Happening]:
    """One cut for all edges of one broker that begin and end together."""
    gathered: list[Happening] = []
    left = list(cuts)
    while left:
        count: dict[tuple[str, str, str], list[Happening]] = defaultdict(list)
        first = left[0]
        for each in left:
            if each.kind == first.kind and _near(each, first, slack):
                count["a", each.kind, each.a[0]].append(each)
                count["b", each.kind, each.b[0]].append(each)
        (end, _, hub), edges = max(count.items(), key=lambda item: (len(item[1]), item[0]))
        far = tuple(sorted({(each.b if end == "a" else each.a)[0] for each in edges}))
        a, b = ((hub,), far) if end == "a" else (far, (hub,))
        until = first.until
        for each in edges:
            until = _earlier(until, each.until)
        gathered.append(replace(first, at=max(each.at for each in edges), a=a, b=b, until=until))
        gone = set(map(id, edges))
        left = [each for each in left if id(each) not in gone]
    return gathered


def _near(one: Happening, other: Happening, slack: int) -> bool:
    if abs(one.at - other.at) > slack:
        return False
    if one.until is None or other.until is None:
        return one.until is other.until
    return abs(one.until - other.until) <= slack


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
