"""One link to another broker, in the making or up: its three connections and its state.

`mesh.cluster.links` decides about links. This module has their state and the waits for it.
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
    """A link ended before it was up; the message says why."""


class Link:
    """A link in the making, or up.

    `mesh.cluster.gossip` sets ``goodbye``, `mesh.cluster.heartbeat` ``compared``, `mesh.cluster.peering`
    ``bus_probe``. ``rtt_s`` is the round trip of the admission until a round measures it.
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
        """The peer's id once the link is up."""
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
        """The version and the capabilities that both sides use."""
        return self.admission.agreed

    def say(self, frames: Iterable[bytes]) -> None:
        """Send frames on the Bus, ahead of data."""
        for frame in frames:
            self.bus.send_control(frame)

    def keep(self, which: str, pipe: Pipe) -> None:
        """Add a survey connection to this link."""
        pipe.context = self
        if which == "surveyor":
            self.surveyor = pipe
        else:
            self.respondent = pipe

    def notify(self) -> None:
        if self.changed is not None and not self.changed.done():
            self.changed.set_result(None)

    async def ended_or(self, stage: Stage) -> None:
        """Return when the admission reaches that stage, or when the link has ended."""
        while self.admission.stage is not stage and not self.ended:
            self.changed = asyncio.get_running_loop().create_future()
            await self.changed

    async def reached(self, stage: Stage) -> None:
        """Return when the admission reaches that stage. Raises `LinkEnded` if the link ends before."""
        await self.ended_or(stage)
        if self.ended:
            raise LinkEnded(self.end_reason)
