"""The parts that a simulation made, computed by the sweep that finds them in logs. Pure.

A repaired link carries data only when it is used: lost data is sent again later, and members believed dead
are dialled again. So a silence that began with a cut lasts until the first heartbeat after it, as a listener
noted it. A starting broker is part of the mesh once it has heard any other, as in the logs. The truth alone
decides everything else: a silence without a cut is in no part here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mesh.analysis.silence.apart import Sides, Times, clip, joined
from mesh.analysis.silence.outages import Lived, ran
from mesh.analysis.silence.sweep import Limits, Part, Silence, parts
from mesh.analysis.truth.effects import Effects
from mesh.analysis.truth.effects import Lived as Stretch


class Noted(NamedTuple):
    """Facts from the logs that the truth does not have, by broker name."""

    joined_at: Mapping[str, list[int]]
    """When processes of a broker joined, in order."""
    silent: Mapping[tuple[str, str], Times]
    """When one was not heard by another."""
    logged: Mapping[str, Times]
    """The times of which each broker's log tells."""
    ran: Mapping[str, Times]
    """When each broker ran, as far as the logs tell."""
    end: int
    """The end of the logs."""


class Made(NamedTuple):
    """A part that was made. Its brokers are numbers."""

    part: Part
    mended: int
    """When the first link across could carry data again, or the part ended otherwise. ``part.end`` is the
    first heartbeat after that."""
    seen: int
    """The longest time for which a log shows that a broker ran and was not heard on another side."""
    told: Sides
    """Its sides as logs tell them: those of single links lack brokers whose links no log describes."""


def made_parts(effects: Effects, noted: Noted, names: Sequence[str], limits: Limits) -> list[Made]:
    """The parts that were made. Brokers are numbered by their index in ``names``."""
    number = {name: at for at, name in enumerate(names)}
    lives = list(_processes(effects.lives, number))
    logged = {number[name]: times for name, times in noted.logged.items()}
    presence = ran(lives, {number[name]: at for name, at in noted.joined_at.items()}).presence
    cuts = {(number[src], number[dst]): times for (src, dst), times in effects.cut.items()}
    silences: list[Silence] = []
    for (src, dst), times in cuts.items():
        for begin, until in _until_heard(times, noted.silent.get((names[src], names[dst]), [])):
            for start, end in clip(presence.get(dst, []), begin, until):
                silences += (
                    Silence(src, dst, *both)
                    for both in clip(presence.get(src, []), start, end)
                    if clip(times, *both)  # a broker that came back after the cut only joins
                )
    exact = limits._replace(least=0, one_way=0)
    found = parts(presence, silences, None, exact, noted.end)
    ran_at = {number[name]: times for name, times in noted.ran.items()}
    told = [
        each._replace(start=start, end=end)
        for each in silences
        for begin, until in clip(logged.get(each.dst, []), each.start, each.end)
        for start, end in clip(ran_at.get(each.src, []), begin, until)
    ]
    made = []
    for part in found:
        across = _across(part, told, noted.end)
        seen = max((0, *(each.end - each.start for each in across)))
        known = {
            node for each in across if each.end - each.start > limits.least for node in (each.src, each.dst)
        }
        made.append(Made(part, _mended(part, cuts, noted.end), seen, _told(part, known)))
    return made


def _processes(lives: Iterable[Stretch], number: Mapping[str, int]) -> Iterator[Lived]:
    """The stretches, numbered by process. A process lasts until it is down or away."""
    processes: Counter[str] = Counter()
    for life in sorted(lives, key=lambda life: life.start):
        runs = life.state in ("up", "paused")
        if not runs:
            processes[life.name] += 1
        boot = f"process {processes[life.name]}" if runs else None
        yield Lived(number[life.name], life.state, life.start, life.end, boot)


def _across(part: Part, told: Iterable[Silence], end: int) -> list[Silence]:
    """The silences across it, of those that logs tell of, as long as it lasts."""
    side_of = {node: place for place, side in enumerate(part.sides) for node in side}
    last = end if part.end is None else part.end
    return [
        each._replace(start=max(each.start, part.start), end=min(each.end, last))
        for each in told
        if each.start < last
        and part.start < each.end
        and {each.src, each.dst} <= side_of.keys()
        and side_of[each.src] != side_of[each.dst]
    ]


def _told(part: Part, known: Collection[int]) -> Sides:
    """Its sides, of single links without brokers that are not ``known``: no log describes their links."""
    if part.kind == "complete":
        return part.sides
    sides = tuple(tuple(node for node in side if node in known) for side in part.sides)
    return sides if all(sides) else part.sides


def _until_heard(cuts: Times, silent: Times) -> Times:
    """Cuts, each extended until the first heartbeat after it."""
    found = []
    for begin, until in cuts:
        tail = [end for start, end in silent if start <= until < end]
        found.append((begin, max(tail, default=until)))
    return joined(found)


def _mended(part: Part, cuts: Mapping[tuple[int, int], Times], end: int) -> int:
    last = end if part.end is None else part.end
    ends = [last]
    for at, side in enumerate(part.sides):
        for other in part.sides[at + 1 :]:
            for one in side:
                for two in other:
                    for link in ((one, two), (two, one)):
                        ends += (
                            until
                            for begin, until in cuts.get(link, [])
                            if begin < last and until > part.start
                        )
    return min(ends)
