"""One direction of the network between two hosts: delays, losses, a narrow line, cuts.

**A packet's delay** is drawn from the link's own random stream. It is a base, plus jitter of one of three
shapes (even; exponential; log-normal, whose 99th percentile is ten times its median), plus a tail for a share
of packets. The effects of `impair` are added, each with its own draws: delays add up, chances of loss combine
as independent ones, and the narrowest line applies.

**A lost packet** is retransmitted by TCP 0.2, 0.4, 0.8, 1.6 ... seconds later (`wait_ns`), each time under
the link's conditions at that moment. Everything behind it waits. Losses come evenly, or in bursts. A burst
model is Gilbert and Elliott's chain in continuous time: good and bad periods of exponentially distributed
lengths, with a chance of loss for the bad ones.

**A narrow line** sends one byte after the other; packets queue before it, and one that finds the queue full
is lost.

**A cut** loses everything (`simulations.kernel.network.tcp` describes TCP's reaction). **A clog** loses
nothing: packets wait, and go on when it is gone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from simulations.kernel.scheduler import MILLISECOND, SECOND, Scheduler, nanoseconds

if TYPE_CHECKING:
    from simulations.kernel.network.hosts import Host
    from simulations.kernel.network.tcp import Half

RTO_FIRST_NS: Final = 200 * MILLISECOND
RTO_MAX_NS: Final = 120 * SECOND


def wait_ns(sent_again: int) -> int:
    """How long TCP waits for an acknowledgement after so many retransmissions.

    The first probe of Linux (TLP) does not double the wait, so the first two are equal.
    """
    return min(RTO_FIRST_NS << max(sent_again - 1, 0), RTO_MAX_NS)


QUEUE_BYTES: Final = 1024 * 1024
LOG_NORMAL_SIGMA: Final = 1.0

Shape = Literal["uniform", "exponential", "lognormal"]


@dataclass(frozen=True, slots=True)
class Bursts:
    """Bad periods, in which packets are lost with the chance ``loss``, and good ones between them."""

    mean_s: float
    between_s: float
    loss: float = 1.0

    def __post_init__(self) -> None:
        if self.mean_s <= 0 or self.between_s <= 0 or not 0 <= self.loss <= 1:
            raise ValueError(f"bursts need lengths above 0 and loss in [0, 1], got {self}")


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """One direction between two hosts, or an addition to one."""

    latency_s: float = 0.0003
    jitter_s: float = 0.0002
    """Added evenly between 0 and this, or with this mean (exponential) or median (lognormal)."""
    bandwidth_bytes_s: float | None = None
    loss: float = 0.0
    """The chance that a packet must be sent again."""
    shape: Shape = "uniform"
    tail: float = 0.0
    """The share of packets that take ``tail_s`` longer."""
    tail_s: float = 0.0
    queue_bytes: float = QUEUE_BYTES
    """Bytes that may wait before a line with a bandwidth."""
    bursts: Bursts | None = None

    def __post_init__(self) -> None:
        if self.latency_s < 0 or self.jitter_s < 0 or not 0 <= self.loss < 1:
            raise ValueError(f"a link needs latency and jitter >= 0 and loss in [0, 1), got {self}")
        if self.bandwidth_bytes_s is not None and self.bandwidth_bytes_s <= 0:
            raise ValueError(f"a link's bandwidth must be above 0, got {self.bandwidth_bytes_s}")
        if self.shape not in ("uniform", "exponential", "lognormal"):
            raise ValueError(f"a link's shape must be uniform, exponential or lognormal, got {self.shape!r}")
        if not 0 <= self.tail <= 1 or self.tail_s < 0 or self.queue_bytes < 0:
            raise ValueError(f"a link needs a tail in [0, 1], tail_s and queue_bytes >= 0, got {self}")


LAN: Final = LinkQuality()
WITHIN_HOST: Final = LinkQuality(latency_s=0.00003, jitter_s=0.00001)


class Link:
    """One direction between two hosts. Connections hold it and check `up` for every packet."""

    __slots__ = (
        "_added",
        "_base",
        "_bursts",
        "_bytes_s",
        "_cuts",
        "_free_ns",
        "_loss",
        "_lumps_ns",
        "_plain",
        "_queue_ns",
        "_quick",
        "_spread",
        "_tails",
        "clogs",
        "dialling",
        "held",
        "jitter_ns",
        "latency_ns",
        "lossy",
        "portions",
        "random",
        "rng",
        "scheduler",
        "smooth",
        "source",
        "target",
        "unheard",
        "up",
    )

    def __init__(
        self, scheduler: Scheduler, source: Host, target: Host, rng: random.Random, quality: LinkQuality
    ) -> None:
        self.scheduler = scheduler
        self.source = source
        self.target = target
        self.rng = rng
        self.up = True
        """True if a packet sent now is not lost to a cut or to a host without power."""
        self.smooth = False
        """True without any fault: a packet sent now arrives after ``latency_ns`` plus a share of
        ``jitter_ns`` drawn by ``random``.
        """
        self.clogs: list[object] = []
        """The faults that clog it."""
        self.held: list[Callable[[], object]] = []
        """Packets that wait for the end of a clog, in order."""
        self.dialling: list[str] = []
        """The treatments of SYNs, by `simulations.kernel.network.handshake.Dialling`; the last one counts."""
        self.unheard: list[Half] = []
        """The far ends of connections that were answered and are never served."""
        self.portions: list[int] = []
        """The most bytes that one read returns; the least limit counts."""
        self._cuts: list[object] = []
        self._base = self._part(quality)
        self._added: list[_Part] = []
        self.random = rng.random
        self._free_ns = 0
        self._lumps_ns: list[int] = []
        self.lossy = False
        self._quick = False
        self._compile()
        source.links.append(self)
        if target is not source:
            target.links.append(self)
        self.ends_changed()

    # --- changes

    def ends_changed(self) -> None:
        self.up = not self._cuts and self.source.powered and self.target.powered
        self._see_whether_smooth()

    def _see_whether_smooth(self) -> None:
        self.smooth = self.up and self._quick and not self.lossy and not self.clogs

    @property
    def is_cut(self) -> bool:
        return bool(self._cuts)

    def cut(self, by: object = None) -> None:
        """Lose everything; cuts add up."""
        self._cuts.append(by)
        self.ends_changed()

    def uncut(self, by: object = None) -> None:
        """Remove one cut by the same fault, if there is one."""
        if by in self._cuts:
            self._cuts.remove(by)
            self.ends_changed()

    def uncut_wholly(self) -> None:
        self._cuts.clear()
        self.ends_changed()

    def clog(self, by: object = None) -> None:
        """Let everything wait; clogs add up."""
        self.clogs.append(by)
        self._see_whether_smooth()

    def unclog(self, by: object = None) -> None:
        """Remove one clog by the same fault; after the last, the waiting packets go on in order."""
        if by not in self.clogs:
            return
        self.clogs.remove(by)
        self._see_whether_smooth()
        if not self.clogs:
            held, self.held = self.held, []
            for go_on in held:
                go_on()

    def set_base(self, quality: LinkQuality) -> None:
        """Set the link's properties without faults."""
        self._base = self._part(quality)
        self._compile()

    def impair(self, quality: LinkQuality) -> None:
        """Add this to the link's properties."""
        self._added.append(self._part(quality))
        self._compile()

    def repair(self, quality: LinkQuality) -> None:
        """Remove the addition of one `impair`."""
        for part in self._added:
            if part.quality == quality:
                self._added.remove(part)
                self._compile()
                return

    def lump(self, every_s: float) -> None:
        """Let bytes arrive only at whole multiples of so many seconds."""
        self._lumps_ns.append(nanoseconds(every_s))
        self._compile()

    def unlump(self, every_s: float) -> None:
        """Undo one `lump`."""
        if nanoseconds(every_s) in self._lumps_ns:
            self._lumps_ns.remove(nanoseconds(every_s))
            self._compile()

    def _part(self, quality: LinkQuality) -> _Part:
        bursts = quality.bursts
        return _Part(
            quality, None if bursts is None else _Weather(bursts, self.rng, True, self.scheduler.now_ns)
        )

    def _compile(self) -> None:
        """Precompute what every packet needs, so that one on a link without faults costs one draw."""
        parts = [self._base, *self._added]
        qualities = [part.quality for part in parts]
        base = qualities[0]
        even = base.shape == "uniform"
        self.latency_ns = sum(nanoseconds(each.latency_s) for each in qualities)
        self.jitter_ns = nanoseconds(base.jitter_s) if even else 0
        self._spread = [each for each in qualities[1 if even else 0 :] if each.jitter_s]
        self._tails = [each for each in qualities if each.tail]
        self._loss = 1 - math.prod(1 - each.loss for each in qualities)
        self._bursts = [part.weather for part in parts if part.weather is not None]
        self._plain = not (self._spread or self._tails)
        self.lossy = self._loss > 0 or bool(self._bursts)
        lines = [(each.bandwidth_bytes_s, each) for each in qualities if each.bandwidth_bytes_s is not None]
        self._bytes_s: float | None = None
        self._queue_ns = 0
        if lines:
            self._bytes_s, narrowest = min(lines, key=lambda line: line[0])
            self._queue_ns = nanoseconds(narrowest.queue_bytes / self._bytes_s)
        self._quick = self._plain and self._bytes_s is None and not self._lumps_ns
        self._see_whether_smooth()

    def reset_unheard(self) -> None:
        """End the connections that were answered and are not served."""
        unheard, self.unheard = self.unheard, []
        for half in unheard:
            if not half.ended:
                half.reset()

    # --- packets

    def delay_ns(self) -> int:
        """How long a small packet sent now takes."""
        delay_ns = self.latency_ns + int(self.jitter_ns * self.random())
        return delay_ns if self._plain else delay_ns + self._extra_ns()

    def arrival_ns(self, size: int) -> int | None:
        """When so many bytes sent now have arrived, behind the line's earlier load.

        None: they found its queue full.
        """
        now_ns = leaves_ns = self.scheduler.now_ns
        if self._bytes_s is not None:
            leaves_ns = max(leaves_ns, self._free_ns)
            if leaves_ns - now_ns > self._queue_ns:
                return None
            leaves_ns += nanoseconds(size / self._bytes_s)
            self._free_ns = leaves_ns
        arrival_ns = leaves_ns + self.delay_ns()
        if self._lumps_ns:
            step_ns = max(self._lumps_ns)
            arrival_ns = -(-arrival_ns // step_ns) * step_ns
        return arrival_ns

    def loses(self) -> bool:
        """True if a packet sent now is lost without a cut. Only a `lossy` link needs this check."""
        now_ns = self.scheduler.now_ns
        if self._loss and self.random() < self._loss:
            return True
        return any(weather.loses(now_ns) for weather in self._bursts)

    def post(self, action: Callable[..., object], *arguments: Any) -> None:
        """Send a small packet: the action is done when it arrives, or never if it is lost."""
        if self.clogs:
            self.held.append(partial(self.post, action, *arguments))
        elif self.up and not (self.lossy and self.loses()):
            self.scheduler.after(self.delay_ns(), action, *arguments)

    def _extra_ns(self) -> int:
        """Further jitter, and tails."""
        extra_ns = 0
        for each in self._spread:
            extra_ns += nanoseconds(each.jitter_s * _drawn(self.rng, each.shape))
        for each in self._tails:
            if self.random() < each.tail:
                extra_ns += nanoseconds(each.tail_s)
        return extra_ns


def _drawn(rng: random.Random, shape: Shape) -> float:
    if shape == "uniform":
        return rng.random()
    if shape == "exponential":
        return rng.expovariate(1.0)
    return rng.lognormvariate(0.0, LOG_NORMAL_SIGMA)


@dataclass(slots=True, eq=False)
class _Part:
    """A quality that counts now, with its good and bad periods if it has bursts."""

    quality: LinkQuality
    weather: _Weather | None


@dataclass(slots=True, eq=False)
class _Weather:
    """Good and bad periods of a link, made as time passes; it begins with a good one."""

    bursts: Bursts
    rng: random.Random
    bad: bool
    until_ns: int

    def loses(self, now_ns: int) -> bool:
        while self.until_ns <= now_ns:
            self.bad = not self.bad
            self.until_ns += self._length_ns(self.bursts.mean_s if self.bad else self.bursts.between_s)
        return self.bad and self.rng.random() < self.bursts.loss

    def _length_ns(self, mean_s: float) -> int:
        return max(1, nanoseconds(self.rng.expovariate(1 / mean_s)))
