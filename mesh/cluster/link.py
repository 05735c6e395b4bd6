"""One link to another broker, in the making or up: its three connections and what is known of it.

`mesh.cluster.links` decides what becomes of links. Here are their state and the waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mesh.cluster.admission import Admission, Stage
from mesh.cluster.bus_probe import BusProbe
from mesh.cluster.overlay import Dial
from mesh.wire.capabilities import Agreed
from mesh.wire.link_frames import Hello
from protocols import Pipe


class LinkEnded(Exception):
    """A link ended before it was up; says why."""


class Link:
    """A link in the making, or up.

    ``goodbye`` is kept by `mesh.cluster.gossip`, ``compared`` by `mesh.cluster.heartbeat`,
    ``bus_probe`` by `mesh.cluster.peering`. ``rtt_s`` is the admission's until it is measured.
    """

    __slots__ = (
        "admission",
        "began_at",
        "bus",
        "bus_probe",
        "changed",
        "compared",
        "deadline",
        "dial",
        "end_reason",
        "ended",
        "goodbye",
        "member",
        "refusal",
        "respondent",
        "rtt_s",
        "spoke_at",
        "surveyor",
        "up",
        "up_since",
    )

    def __init__(self, bus: Pipe, admission: Admission, dial: Dial | None, now: float) -> None:
        self.bus = bus
        self.admission = admission
        self.dial = dial
        self.surveyor: Pipe | None = None
        self.respondent: Pipe | None = None
        self.member = 0
        """The peer's id, from when the link is up."""
        self.up = False
        self.up_since = 0.0
        self.ended = False
        self.end_reason = ""
        self.refusal = ""
        self.goodbye = False
        self.bus_probe = BusProbe()
        self.rtt_s = 0.0
        self.spoke_at = now
        self.began_at = now
        self.compared: tuple[bytes, int, bytes] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self.changed: asyncio.Future[None] | None = None

    @property
    def peer(self) -> Hello:
        peer = self.admission.peer
        assert peer is not None, "the peer has said HELLO"
        return peer

    @property
    def agreed(self) -> Agreed:
        """The version and the capabilities that both sides speak."""
        return self.admission.agreed

    def say(self, frames: Iterable[bytes]) -> None:
        """On the Bus, ahead of data."""
        for frame in frames:
            self.bus.send_control(frame)

    def keep(self, which: str, pipe: Pipe) -> None:
        """That survey connection is this link's."""
        pipe.context = self
        if which == "surveyor":
            self.surveyor = pipe
        else:
            self.respondent = pipe

    def notify(self) -> None:
        if self.changed is not None and not self.changed.done():
            self.changed.set_result(None)

    async def ended_or(self, stage: Stage) -> None:
        """Return at that stage of the admission, or when the link has ended."""
        while self.admission.stage is not stage and not self.ended:
            self.changed = asyncio.get_running_loop().create_future()
            await self.changed

    async def reached(self, stage: Stage) -> None:
        """Return at that stage of the admission; raises `LinkEnded` if the link ends before."""
        await self.ended_or(stage)
        if self.ended:
            raise LinkEnded(self.end_reason)
