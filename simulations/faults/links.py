"""What happens between hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault
from simulations.network import LinkQuality

if TYPE_CHECKING:
    from simulations.world import World


def sides(world: World, fault: Fault) -> tuple[list[str], list[str]]:
    """The hosts at both ends; without a ``b`` it is all others."""
    here = list(fault.a)
    there = list(fault.b) if fault.b else [name for name in world.network.hosts if name not in here]
    return here, there


def _directions(world: World, fault: Fault) -> Iterator[tuple[str, str]]:
    here, there = sides(world, fault)
    for one in here:
        for other in there:
            yield one, other
            yield other, one


def _part(world: World, fault: Fault) -> None:
    here, there = sides(world, fault)
    world.network.cut(here, there)
    world.network.cut(there, here)


def _join(world: World, fault: Fault) -> None:
    here, there = sides(world, fault)
    world.network.mend(here, there)
    world.network.mend(there, here)


def _cut(world: World, fault: Fault) -> None:
    world.network.cut(*sides(world, fault))


def _mend(world: World, fault: Fault) -> None:
    world.network.mend(*sides(world, fault))


def _heal(world: World, fault: Fault) -> None:
    named = (*fault.a, *fault.b)

    def wanted(kind: Kind, other: Fault) -> bool:
        return kind.of == "links" and (not named or all(name in named for name in (*other.a, *other.b)))

    world.ongoing.end_if(wanted)
    if not named:
        world.network.mend_all()


def _slow(world: World, fault: Fault) -> None:
    quality = LinkQuality(latency_s=fault.value) if fault.value else None
    for source, target in _directions(world, fault):
        world.network.set_quality(source, target, quality)


def _lose(world: World, fault: Fault) -> None:
    quality = LinkQuality(loss=fault.value) if fault.value else None
    for source, target in _directions(world, fault):
        world.network.set_quality(source, target, quality)


def _usual(world: World, fault: Fault) -> None:
    for source, target in _directions(world, fault):
        world.network.set_quality(source, target, None)


KINDS: Final = (
    Kind("partition", "loses everything between hosts and others, both ways", "links", _part, _join),
    Kind("cut_one_way", "loses everything from hosts to others", "links", _cut, _mend),
    Kind(
        "heal",
        "ends all faults of links and connections, or those that name only hosts it names",
        "links",
        _heal,
        names_least=0,
    ),
    Kind(
        "slow_link",
        "packets between hosts take so long, both ways",
        "links",
        _slow,
        _usual,
        (Parameter("value", "seconds; 0 is the usual again", 0.0, 0, 3600),),
    ),
    Kind(
        "lossy_link",
        "a share of the packets between hosts is lost and sent again",
        "links",
        _lose,
        _usual,
        (Parameter("value", "the share; 0 is the usual again", 0.0, 0, 0.999),),
    ),
)
