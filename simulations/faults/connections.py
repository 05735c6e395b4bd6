"""Faults of connections between hosts: resets, early ends, silence, refusals, odd pieces.

One of the two sides ``a`` and ``b`` may be left out; it then means all other hosts. Connections within a host
are not affected. The usual half-open connection, whose host disappears silently and answers RST once it is
back, is ``power_off`` and ``start``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.links import WAYS, struck_links
from simulations.faults.partitions import sides
from simulations.faults.record import Fault
from simulations.kernel.network import Dialling, Half

if TYPE_CHECKING:
    from simulations.world import World

SHARE: Final = Parameter("share", "the chance of each connection to be struck", 1.0, 0, 1)
WHICH: Final = Parameter(
    "which",
    "all connections of two hosts, or only the one that was opened first (of brokers: the one for data)",
    "all",
    choices=("all", "first"),
)
LUMP_S: Final = 0.02


def _struck(world: World, fault: Fault) -> list[tuple[Half, Half]]:
    """Ends of connections at a, and at b."""
    pairs = world.network.between(*sides(world, fault))
    if fault.text("which", "all") == "first":
        pairs = _first_of_hosts(pairs)
    share = fault.number("share", 1.0)
    if share >= 1:
        return pairs
    rng = world.ongoing.stream(fault)
    return [pair for pair in pairs if rng.random() < share]


def _first_of_hosts(pairs: list[tuple[Half, Half]]) -> list[tuple[Half, Half]]:
    first: dict[tuple[str, str], tuple[Half, Half]] = {}
    for here, there in pairs:  # in the order in which they were made
        first.setdefault((here.host.name, there.host.name), (here, there))
    return list(first.values())


# --- open connections


def _reset(world: World, fault: Fault) -> None:
    for here, there in _struck(world, fault):
        world.network.break_in_two(there)
        if fault.text("ways", "both") == "both":
            world.network.break_in_two(here)


def _reset_storm(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
    hosts = list(fault.a) or list(world.network.hosts)
    at_s = world.now_s
    while len(hosts) > 1:
        at_s += rng.expovariate(fault.amount)
        one, other = rng.sample(hosts, 2)
        yield Fault(at_s, "reset", (one,), (other,))


def _arm(world: World, fault: Fault) -> None:
    for here, _ in _struck(world, fault):
        here.cut_next()


def _disarm(world: World, fault: Fault) -> None:
    others = [sides(world, other) for other in world.ongoing.faults() if other.kind == fault.kind]
    for here, there in world.network.between(*sides(world, fault)):
        here.cut_short = here.cut_short and any(
            here.host.name in a and there.host.name in b for a, b in others
        )


def _deafen(world: World, fault: Fault) -> None:
    for here, there in _struck(world, fault):
        here.deafen(fault)
        if fault.text("ways", "both") == "both":
            there.deafen(fault)


def _undeafen(world: World, fault: Fault) -> None:
    for half in world.network.halves:
        half.undeafen(fault)


# --- new connections


def _dialling(fate: Dialling) -> tuple[Callable[[World, Fault], None], Callable[[World, Fault], None]]:
    def begin(world: World, fault: Fault) -> None:
        for link in world.network.directions(*sides(world, fault)):
            link.dialling.append(fate)

    def end(world: World, fault: Fault) -> None:
        for link in world.network.directions(*sides(world, fault)):
            if fate in link.dialling:
                link.dialling.remove(fate)
            if Dialling.UNHEARD not in link.dialling:
                link.reset_unheard()

    return begin, end


# --- reading


def _split(world: World, fault: Fault) -> None:
    for link in struck_links(world, fault):
        link.portions.append(int(fault.amount))


def _whole(world: World, fault: Fault) -> None:
    for link in struck_links(world, fault):
        if int(fault.amount) in link.portions:
            link.portions.remove(int(fault.amount))


def _lump(world: World, fault: Fault) -> None:
    for link in struck_links(world, fault):
        link.lump(fault.amount)


def _unlump(world: World, fault: Fault) -> None:
    for link in struck_links(world, fault):
        link.unlump(fault.amount)


def _slow_reader(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.network.slow_reader(name, fault.amount)


def _usual_reader(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.network.usual_reader(name, fault.amount)


KINDS: Final = (
    Kind(
        "reset",
        "ends connections between hosts by RST, at both ends, or only at b; a learns of it when it writes",
        "links",
        _reset,
        None,
        (SHARE, WHICH, WAYS),
    ),
    Kind(
        "reset_storm",
        "resets the connections of two hosts of those named, or of all, chosen by the seed, again and again",
        "links",
        parameters=(Parameter("value", "resets a second", 1.0, 0.001, 1000),),
        unfold=_reset_storm,
        names_least=0,
        one_sided=True,
        few=1,
    ),
    Kind(
        "cut_short",
        "connections carry half of the next bytes from a to b, then FIN, as if a device in between had died",
        "links",
        _arm,
        _disarm,
        (SHARE, WHICH),
        two_sided=True,
    ),
    Kind(
        "half_open",
        "nothing passes on the connections that hosts have now, or not from a to b; new ones work",
        "links",
        _deafen,
        _undeafen,
        (SHARE, WHICH, WAYS),
    ),
    Kind(
        "refuse", "hosts b refuse connections from a", "links", *_dialling(Dialling.REFUSED), two_sided=True
    ),
    Kind(
        "black_hole",
        "new connections from a to b are not answered while they are made; open ones stay",
        "links",
        *_dialling(Dialling.DROPPED),
        two_sided=True,
    ),
    Kind(
        "silent_accept",
        "connections from a to b are answered by the kernel of b and never taken by its program; "
        "afterwards they are reset",
        "links",
        *_dialling(Dialling.UNHEARD),
        two_sided=True,
    ),
    Kind(
        "byte_split",
        "data over links between hosts are read in small pieces",
        "links",
        _split,
        _whole,
        (Parameter("value", "bytes that a piece has at most", 1.0, 1, 1e9), WAYS),
        two_sided=True,
    ),
    Kind(
        "coalesce",
        "data between hosts arrive in lumps, much at once",
        "links",
        _lump,
        _unlump,
        (Parameter("value", "seconds from lump to lump", LUMP_S, 0.000001, 3600), WAYS),
        two_sided=True,
    ),
    Kind(
        "slow_reader",
        "processes read little from each of their sockets, or nothing, until their windows are full",
        "processes",
        _slow_reader,
        _usual_reader,
        (Parameter("value", "bytes a second; 0 is nothing", 0.0, 0, 1e12),),
    ),
)
