"""Cuts between hosts, in different shapes. A host always reaches itself.

One of the two sides ``a`` and ``b`` may be left out; it then means all other hosts. A ``partition`` of one
host from another is a single edge.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.kernel.network import Link
    from simulations.world import World

ON_OFF_S: Final = 20.0
ROLL_S: Final = 20.0
SWIZZLE_S: Final = 20.0
SWIZZLE_SHARE: Final = 0.5


def sides(world: World, fault: Fault) -> tuple[list[str], list[str]]:
    """The hosts at both ends."""
    here, there = list(fault.a), list(fault.b)
    hosts = list(world.network.hosts)
    return (
        here or [name for name in hosts if name not in there],
        there or [name for name in hosts if name not in here],
    )


def both_ways(world: World, fault: Fault) -> Iterator[Link]:
    here, there = sides(world, fault)
    yield from world.network.directions(here, there)
    yield from world.network.directions(there, here)


def _chosen(world: World, fault: Fault) -> list[str]:
    """The hosts it names, or all."""
    return list(fault.a) or list(world.network.hosts)


# --- simple ones


def _part(world: World, fault: Fault) -> None:
    for link in both_ways(world, fault):
        link.cut(fault)


def _join(world: World, fault: Fault) -> None:
    for link in both_ways(world, fault):
        link.uncut(fault)


def _cut(world: World, fault: Fault) -> None:
    world.network.cut(*sides(world, fault), fault)


def _mend(world: World, fault: Fault) -> None:
    world.network.uncut(*sides(world, fault), fault)


def _around(world: World, fault: Fault) -> Iterator[Link]:
    hosts = list(world.network.hosts)
    alone = (*fault.a, *fault.b)
    for name in alone:
        yield from world.network.directions([name], hosts)
        yield from world.network.directions((other for other in hosts if other not in alone), [name])


def _isolate(world: World, fault: Fault) -> None:
    for link in _around(world, fault):
        link.cut(fault)


def _rejoin(world: World, fault: Fault) -> None:
    for link in _around(world, fault):
        link.uncut(fault)


def _clog(world: World, fault: Fault) -> None:
    for link in both_ways(world, fault):
        link.clog(fault)


def _unclog(world: World, fault: Fault) -> None:
    for link in both_ways(world, fault):
        link.unclog(fault)


def _heal(world: World, fault: Fault) -> None:
    named = (*fault.a, *fault.b)

    def among(side: tuple[str, ...]) -> bool:
        return bool(side) and all(name in named for name in side)

    def wanted(kind: Kind, other: Fault) -> bool:
        return kind.of == "links" and (not named or among(other.a) or among(other.b))

    world.ongoing.end_if(wanted)
    if not named:
        world.network.mend_all()


# --- compound ones


def _one_edge(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    hosts = _chosen(world, fault)
    one = rng.choice(hosts)
    other = rng.choice([name for name in fault.b or hosts if name != one])
    yield Fault(world.now_s, "partition", (one,), (other,))


def _bridge(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    others = [name for name in world.network.hosts if name not in fault.a]
    one = fault.b or tuple(rng.sample(others, len(others) // 2))
    other = tuple(name for name in others if name not in one)
    if one and other:
        yield Fault(world.now_s, "partition", one, other)


def _majorities_ring(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    """Each host keeps the neighbours it needs for a majority, half of them on either side of the ring."""
    ring = _chosen(world, fault)
    rng.shuffle(ring)
    size = len(ring)
    reach = -(-(size // 2) // 2)
    for here, there in itertools.combinations(range(size), 2):
        if min(there - here, size - there + here) > reach:
            yield Fault(world.now_s, "partition", (ring[here],), (ring[there],))


def _rolling(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    """Without a duration: once around."""
    hosts = _chosen(world, fault)
    step_s = fault.amount + fault.number("gap_s", 0.0)
    names = iter(hosts) if fault.for_s is None else itertools.cycle(hosts)
    at_s = world.now_s
    for name in names:
        yield Fault(at_s, "isolate", (name,), for_s=fault.amount)
        at_s += step_s


def _flip(fault: Fault) -> Fault:
    return Fault(
        fault.at_s,
        fault.text("what", FLIPPED[0]),
        fault.a,
        fault.b,
        fault.number("on_s", ON_OFF_S),
        fault.value,
    )


def _flip_flop(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    at_s = world.now_s
    every_s = fault.number("on_s", ON_OFF_S) + fault.number("off_s", ON_OFF_S)
    while True:
        yield replace(_flip(fault), at_s=at_s)
        at_s += every_s


def _swizzle(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    """FoundationDB's swizzle-clogging: clogged one after the other, unclogged in another order."""
    share = fault.number("share", SWIZZLE_SHARE)
    hosts = _chosen(world, fault)
    struck = [name for name in hosts if rng.random() < share] or [rng.choice(hosts)]
    half_s = fault.amount / 2
    times = sorted((rng.uniform(0, half_s), name) for name in struck)
    start_s = world.now_s
    for begins_s, name in times:
        ends_s = half_s + rng.uniform(0, half_s)
        yield Fault(start_s + begins_s, "clog", (name,), for_s=ends_s - begins_s)


FLIPPED: Final = ("partition", "cut_one_way", "clog", "lossy_link", "slow_link")


def _compound(
    name: str, sentence: str, unfold: Callable[..., Iterator[Fault]], *parameters: Parameter, **options: Any
) -> Kind:
    return Kind(
        name, sentence, "links", parameters=parameters, unfold=unfold, **{"names_least": 0, **options}
    )


KINDS: Final = (
    Kind(
        "partition",
        "loses everything between hosts and others, both ways",
        "links",
        _part,
        _join,
        two_sided=True,
    ),
    Kind("cut_one_way", "loses everything from hosts to others", "links", _cut, _mend, two_sided=True),
    Kind("isolate", "loses everything to and from each of the hosts", "links", _isolate, _rejoin),
    Kind(
        "clog",
        "lets everything between hosts and others wait, both ways; it goes on when the clog is gone",
        "links",
        _clog,
        _unclog,
        two_sided=True,
    ),
    Kind(
        "heal",
        "ends all faults of links and connections, or those with a side among the hosts it names",
        "links",
        _heal,
        names_least=0,
    ),
    _compound(
        "one_edge",
        "parts two hosts of those named, or one of each side, chosen by the seed",
        _one_edge,
        few=1,
    ),
    _compound(
        "bridge",
        "splits all other hosts in two halves that reach each other only by way of the hosts named; "
        "b is one half, or the seed chooses",
        _bridge,
        names_least=1,
    ),
    _compound(
        "majorities_ring",
        "lets each host reach only a majority of the hosts named, or of all, and each another one",
        _majorities_ring,
        one_sided=True,
    ),
    _compound(
        "rolling_partition",
        "isolates the hosts named, or all, one after the other; once around, or as long as it lasts",
        _rolling,
        Parameter("value", "seconds that each is isolated", ROLL_S, 0.001, 3600),
        Parameter("gap_s", "seconds between two", 0.0, 0, 3600),
        one_sided=True,
    ),
    _compound(
        "flip_flop",
        "does something between hosts and others for a while, and again and again",
        _flip_flop,
        Parameter("value", "the main number of that fault", None, 0, 1e9),
        Parameter("what", "the fault", FLIPPED[0], choices=FLIPPED),
        Parameter("on_s", "seconds that it is done", ON_OFF_S, 0.001, 3600),
        Parameter("off_s", "seconds until it is done again", ON_OFF_S, 0, 3600),
        names_least=1,
        part=_flip,
    ),
    _compound(
        "swizzle",
        "clogs some of the hosts named, or of all, one after the other, and unclogs them in another order",
        _swizzle,
        Parameter("value", "seconds in all", SWIZZLE_S, 0.01, 3600),
        Parameter("share", "the chance of each to be clogged", SWIZZLE_SHARE, 0, 1),
        one_sided=True,
    ),
)
