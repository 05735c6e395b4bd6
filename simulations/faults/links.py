"""Properties of links between hosts: slow, lossy, narrow. All of them add to the existing ones.

One of the two sides ``a`` and ``b`` may be left out; it then means all other hosts. If both are the same
hosts, it means all links among them. ``ways = "there"`` strikes only packets from a to b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from simulations.faults.kind import Kind, Parameter
from simulations.faults.partitions import sides
from simulations.faults.record import Fault
from simulations.kernel.network import Bursts, Link, LinkQuality
from simulations.kernel.network.links import QUEUE_BYTES, Shape

if TYPE_CHECKING:
    from simulations.world import World

SLOW_S: Final = 0.1
LOSS: Final = 0.1
BURST_S: Final = 1.0
BETWEEN_S: Final = 10.0
NARROW_BYTES_S: Final = 100_000.0

WAYS: Final = Parameter("ways", "both ways, or only there, from a to b", "both", choices=("both", "there"))


def struck_links(world: World, fault: Fault) -> Iterator[Link]:
    """The links from a to b, and those back unless only one way is struck."""
    here, there = sides(world, fault)
    yield from world.network.directions(here, there)
    if fault.text("ways", "both") == "both" and here != there:
        yield from world.network.directions(there, here)


def _slow(fault: Fault) -> LinkQuality:
    return LinkQuality(
        fault.amount,
        fault.number("jitter_s", 0.0),
        shape=cast(Shape, fault.text("shape", "uniform")),
        tail=fault.number("tail", 0.0),
        tail_s=fault.number("tail_s", 0.0),
    )


def _lossy(fault: Fault) -> LinkQuality:
    return LinkQuality(0, 0, loss=fault.amount)


def _bursty(fault: Fault) -> LinkQuality:
    bursts = Bursts(fault.amount, fault.number("between_s", BETWEEN_S), fault.number("loss", 1.0))
    return LinkQuality(0, 0, bursts=bursts)


def _narrow(fault: Fault) -> LinkQuality:
    return LinkQuality(
        0, 0, bandwidth_bytes_s=fault.amount, queue_bytes=fault.number("queue_bytes", QUEUE_BYTES)
    )


def _kind(name: str, sentence: str, quality: Callable[[Fault], LinkQuality], *parameters: Parameter) -> Kind:
    def begin(world: World, fault: Fault) -> None:
        for link in struck_links(world, fault):
            link.impair(quality(fault))

    def end(world: World, fault: Fault) -> None:
        for link in struck_links(world, fault):
            link.repair(quality(fault))

    return Kind(name, sentence, "links", begin, end, (*parameters, WAYS), among=True, two_sided=True)


KINDS: Final = (
    _kind(
        "slow_link",
        "packets between hosts take longer, by a constant or by a distribution, perhaps with a tail",
        _slow,
        Parameter("value", "seconds that all take longer", SLOW_S, 0, 3600),
        Parameter(
            "jitter_s",
            "seconds more at most (uniform), on average (exponential), or as the median (lognormal)",
            0.0,
            0,
            3600,
        ),
        Parameter(
            "shape", "how jitter is distributed", "uniform", choices=("uniform", "exponential", "lognormal")
        ),
        Parameter("tail", "the share of packets that take tail_s longer", 0.0, 0, 1),
        Parameter("tail_s", "seconds", 0.0, 0, 3600),
    ),
    _kind(
        "lossy_link",
        "a share of the packets between hosts is lost and sent again",
        _lossy,
        Parameter("value", "the share", LOSS, 0, 0.999),
    ),
    _kind(
        "bursty_link",
        "packets between hosts are lost and sent again in bursts (Gilbert and Elliott)",
        _bursty,
        Parameter("value", "seconds that a burst lasts on average", BURST_S, 0.001, 3600),
        Parameter("between_s", "seconds between two bursts on average", BETWEEN_S, 0.001, 36000),
        Parameter("loss", "the share that is lost in a burst", 1.0, 0, 1),
    ),
    _kind(
        "narrow_link",
        "lines between hosts have a limited rate; packets wait for them in a limited queue",
        _narrow,
        Parameter("value", "bytes a second", NARROW_BYTES_S, 1, 1e12),
        Parameter("queue_bytes", "bytes that may wait", float(QUEUE_BYTES), 0, 1e12),
    ),
)
