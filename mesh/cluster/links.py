"""Makes links: which connections belong together, which peers are admitted, and when a link ends.

A link is three connections to one other broker: a Bus, which carries everything but the heartbeat, and two
survey connections, one for each direction. It lives and ends as a whole: if one of the three is lost, the
others are closed::

    the dialler                              the listener
    dials the Bus          ---------->       a stranger, until it is admitted
           HELLO, PROOF, TOKEN on the Bus (`mesh.cluster.admission`)
    dials two survey connections ---->       unbound, until their first frame
    BIND with the token on each  ---->       bound to the Bus that got the token
    up                     <-- READY --      up

A peer that is not admitted `LinkManager.admission_s` after its first connection is closed. A broker whose own
loop is late grants more time (`mesh.cluster.pace`). There are at most `STRANGERS_MAX` strangers and as many
unbound connections; one more drops the oldest. If there are two links between the same two brokers, the
better rank stays (`mesh.cluster.admission.supersedes`). Each refusal is sent to the other side and counted
(`mesh.cluster.refusals`). The state of one link is in `mesh.cluster.link`.

Nothing is ever broadcast: each pipe is addressed individually, so a peer that is not admitted gets nothing.
The dialler's steps are in `mesh.cluster.link_dialer`. The owner handles the frames of a link that is up.
Everything here runs in callbacks of the event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from mesh.cluster.admission import Admission, Refused, Stage, supersedes
from mesh.cluster.link import Link
from mesh.cluster.membership import Membership, NodeState
from mesh.cluster.overlay import Dial, Overlay
from mesh.cluster.own_address import has_host, host_of
from mesh.cluster.refusals import Refusals
from mesh.environment import Environment
from mesh.errors import LinkError
from mesh.wire.capabilities import LINK, Offer
from mesh.wire.link_frames import (
    CHALLENGE_SIZE,
    SENTENCE_MAX,
    TOKEN_SIZE,
    Hello,
    LinkKind,
    decode,
    encode,
)
from protocols import Bus0, Pipe, PipeRefused, RawSocket, Respondent0, SocketOptions, Surveyor0, TlsConfig
from protocols.wire.backtrace import WORD_SIZE

STRANGERS_MAX: Final = 64
"""Maximum connections under admission, and also maximum survey connections without a token. One more drops
the oldest."""
BUS_QUEUE: Final = 65_536
"""Frames queued on a Bus pipe. Credit is the real bound; the pipe must not refuse before it."""
LINGER_S: Final = 1.0
"""How long queued frames of an ended link may take to be written."""


Received: TypeAlias = Callable[[Link, Pipe, list[bytes]], None]
"""Takes frames of a survey connection of a link. Raises `LinkError`, which ends that link."""


class LinkOwner(Protocol):
    """Callbacks about links. All are synchronous."""

    def connected(self, bus: Pipe) -> None:
        """A Bus connection was made. This broker introduces itself next."""

    def link_up(self, link: Link) -> None:
        """A link is admitted with all three connections. The `link_down` of a link that it replaces comes
        first."""

    def link_down(self, link: Link, reason: str, *, replaced: bool) -> None:
        """A link that was up has ended, with or without a replacement."""

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        """Handle frames on the Bus of a link that is up. Raises `LinkError`, which ends that link."""

    def link_writable(self, bus: Pipe) -> None:
        """A Bus that refused frames has room again."""


class _Bus:
    """Receiver of the Bus socket."""

    def __init__(self, manager: LinkManager) -> None:
        self._manager = manager

    def pipe_attached(self, pipe: Pipe) -> None:
        if not pipe.dialed:
            self._manager._bus_attached(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        if isinstance(pipe.context, Link):
            self._manager.end(pipe.context, reason)

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if isinstance(pipe.context, Link):
            self._manager._bus_frames(pipe.context, frames)
        elif not isinstance(pipe.context, Refused):  # a peer that is turned away may send, but is ignored
            pipe.close("it spoke before its turn")

    def pipe_writable(self, pipe: Pipe) -> None:
        self._manager._owner.link_writable(pipe)


class _Heartbeat:
    """Receiver of a survey socket. A pipe belongs to no link until its first frame, BIND, brings a token."""

    def __init__(self, name: str, manager: LinkManager, received: Received) -> None:
        self._name = name
        self._manager = manager
        self._received = received

    def pipe_attached(self, pipe: Pipe) -> None:
        if not pipe.dialed:
            self._manager._heartbeat_attached(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._manager._forget_unbound(pipe)
        if isinstance(pipe.context, Link):
            self._manager.end(pipe.context, f"heartbeat connection lost: {reason}")

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if pipe.context is None:
            self._manager._bind(self._name, pipe, frames.pop(0))
        link = pipe.context
        if isinstance(link, Link) and frames:
            received = self._received  # reading an attribute is faster than calling
            try:
                received(link, pipe, frames)
            except LinkError as error:
                self._manager.broke_a_rule(link, error)

    def pipe_writable(self, pipe: Pipe) -> None: ...


class LinkManager:
    """Makes and ends the links of one broker. Nobody is admitted before `open`.

    Args:
        tls: used to dial TLS addresses.
        admit: raises `PipeRefused` for a peer at the wrong address or without a certificate.
        membership: only read: this broker's record, and which members answer.
        surveys, answers: take the frames of survey connections once these are bound.
    """

    def __init__(
        self,
        *,
        mesh: str,
        mesh_key: bytes | None,
        tls: TlsConfig | None,
        admit: Callable[[Pipe], None],
        dial_s: float,
        membership: Membership,
        overlay: Overlay,
        environment: Environment,
        owner: LinkOwner,
        surveys: Received,
        answers: Received,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._mesh = mesh
        self._key = mesh_key
        self._admit_peer = admit
        self._dial_s = dial_s
        self.admission_s = 2 * dial_s
        self._membership = membership
        self._overlay = overlay
        self._token = environment.token
        self._owner = owner
        self._make_sockets(surveys, answers, environment.rng, tls)
        self.offer = LINK
        """The version and capabilities that this broker offers."""
        self.up: dict[int, Link] = {}
        """Links that are up, by member."""
        self._strangers: dict[Link, None] = {}
        self._tokens: dict[bytes, Link] = {}
        self._unbound: dict[Pipe, asyncio.TimerHandle] = {}
        self._epochs: dict[int, int] = {}
        self._opened = False
        self.refusals = Refusals()

    def _make_sockets(
        self, surveys: Received, answers: Received, rng: random.Random, tls: TlsConfig | None
    ) -> None:
        options = SocketOptions(
            send_queue=BUS_QUEUE, handshake_timeout_s=self._dial_s, linger_s=LINGER_S, tls=tls
        )
        asking, answering = _Heartbeat("surveyor", self, answers), _Heartbeat("respondent", self, surveys)
        self.bus = RawSocket(Bus0, receiver=_Bus(self), options=options, rng=_child(rng))
        self.surveyor = RawSocket(Surveyor0, receiver=asking, options=options, rng=_child(rng))
        self.respondent = RawSocket(Respondent0, receiver=answering, options=options, rng=_child(rng))

    @property
    def sockets(self) -> list[RawSocket]:
        """Sockets for the broker's listeners: Bus, Surveyor, Respondent."""
        return [self.bus, self.surveyor, self.respondent]

    @property
    def strangers(self) -> int:
        """Number of connections that are not admitted or not bound."""
        return len(self._strangers) + len(self._unbound)

    @property
    def admissions(self) -> tuple[Stage, ...]:
        """The stage of each admission in progress."""
        return tuple(link.admission.stage for link in self._strangers)

    def open(self) -> None:
        """Admit others from now on."""
        self._opened = True

    def shut(self) -> None:
        """Admit nobody any more."""
        self._opened = False

    def hang_up(self, reason: str, *, flush: bool = False) -> None:
        """End all links, up or in the making."""
        for link in [*self.up.values(), *self._strangers]:
            self.end(link, reason, flush=flush)

    def forget(self, member: int) -> None:
        """Forget a member and the epochs of links with it."""
        if member not in self.up:
            self._epochs.pop(member, None)

    async def aclose(self) -> None:
        """Release everything."""
        self.hang_up("closed")
        for socket in self.sockets:
            await socket.aclose()

    # --- admission, on the Bus

    def _bus_attached(self, bus: Pipe) -> None:
        if not self._opened or self._membership.node_state is NodeState.LEAVING:
            raise PipeRefused("this broker is starting or leaving")
        try:
            self._admit_peer(bus)
        except PipeRefused as refused:
            bus.context = refusal = Refused(refused.reason, str(refused))
            self._loop.call_soon(self._turn_away, bus, refusal)  # it can be told once it is attached
            return
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            self._refuse(oldest, Refused("crowded out", "too many connections wait for admission; try later"))
        self.begin(bus, None, self.offer)

    def _turn_away(self, bus: Pipe, refusal: Refused) -> None:
        """Close a connection that cannot be a peer here. It does not even learn our name."""
        self.refusals.count(refusal.reason)
        self.refusals.warn_of_broker(bus, str(refusal))
        bus.send_control(encode(LinkKind.REFUSED, refusal.reason, str(refusal)[:SENTENCE_MAX]))
        bus.close(refusal.reason, flush=True)

    def begin(self, bus: Pipe, dial: Dial | None, offer: Offer) -> Link:
        """Begin the admission of a Bus connection. ``dial`` made it; None if the other side did."""
        self._owner.connected(bus)
        admission = Admission(
            self._hello(offer),
            dialed=dial is not None,
            mesh_key=self._key,
            token=self._token(TOKEN_SIZE),
            epoch_after=lambda id: self._epochs.get(id, 0),
            expect=dial.member if dial is not None else 0,
        )
        link = Link(bus, admission, dial, self._clock())
        bus.context = link
        self._strangers[link] = None
        link.deadline = self._loop.call_later(self.admission_s, self._admission_late, link)
        link.say(admission.begin())
        return link

    def _hello(self, offer: Offer) -> Hello:
        me = self._membership.me
        return Hello(
            mesh=self._mesh,
            id=me.id,
            boot=me.boot,
            incarnation=me.incarnation,
            name=me.name,
            host=me.host,
            peer_url=me.peer_url,
            client_url=me.client_url,
            epoch=0,
            challenge=self._token(CHALLENGE_SIZE),
            offer=offer,
        )

    def _admission_late(self, link: Link) -> None:
        waited_s = self._clock() - link.began_at
        left_s = self.admission_s * self._overlay.pace.patience - waited_s
        if left_s > 0:  # this broker is late itself
            wait_s = min(left_s, self.admission_s)  # it may be on time again by then
            link.deadline = self._loop.call_later(wait_s, self._admission_late, link)
            return
        self._overlay.pace.gave_up()
        stage = link.admission.stage.value
        sentence = f"not admitted within {waited_s:.1f} s, still waiting for {stage}"
        if link.dial is None and link.admission.peer is None:
            self._tell_of_silent(link.bus, waited_s)
        self._refuse(link, Refused("deadline", sentence))

    def _bus_frames(self, link: Link, frames: list[bytes]) -> None:
        try:
            if not link.up:
                frames = self._admit(link, frames)
            if frames and not link.ended:
                self._owner.link_frames(link, frames)
        except Refused as refusal:
            self._refuse(link, refusal)
        except LinkError as error:
            self.broke_a_rule(link, error)

    def _admit(self, link: Link, frames: list[bytes]) -> list[bytes]:
        """Handle frames of an admission. Returns the frames behind it. Raises `Refused`."""
        admission = link.admission
        for number, frame in enumerate(frames):
            if link.up or link.ended:
                return frames[number:]
            before = admission.stage
            answers = admission.received(frame)
            if before is Stage.TOKEN and link.dial is not None:  # it has proven who it is
                self._overlay.met(link.dial.url, link.peer.id)
                self._check_needed(link.peer)
            link.say(answers)
            now = self._clock()
            if before is Stage.HELLO:
                link.rtt_s = now - link.spoke_at
                link.spoke_at = now
            elif admission.stage is Stage.BIND:
                link.rtt_s = now - link.spoke_at
                self._tokens[admission.token] = link
            elif admission.stage is Stage.UP:
                self._up(link)
            link.notify()
        return []

    def _check_needed(self, peer: Hello) -> None:
        """Refuse a link that is not needed. A broker dialled at a second address, or at that of a dead one,
        may already have a link. A new link would have the greater epoch, so the dialler must not make one.
        Raises `Refused`."""
        old = self.up.get(peer.id)
        if old is not None and old.peer.boot == peer.boot and self._membership.answers(peer.id):
            raise Refused("duplicate", "these two brokers have a working link")

    # --- binding, on survey connections

    def _heartbeat_attached(self, pipe: Pipe) -> None:
        if not self._opened:
            raise PipeRefused("this broker is starting or leaving")
        self._admit_peer(pipe)
        if len(self._unbound) >= STRANGERS_MAX:
            next(iter(self._unbound)).close("too many heartbeat connections without a token")
            self.refusals.count("crowded out")
        now = self._clock()
        self._unbound[pipe] = self._loop.call_later(self.admission_s, self._unbound_late, pipe, now)

    def _unbound_late(self, pipe: Pipe, came_at: float) -> None:
        waited_s = self._clock() - came_at
        left_s = self.admission_s * self._overlay.pace.patience - waited_s
        if left_s > 0:
            wait_s = min(left_s, self.admission_s)
            self._unbound[pipe] = self._loop.call_later(wait_s, self._unbound_late, pipe, came_at)
            return
        self.refusals.count("deadline")
        self._tell_of_silent(pipe, waited_s)
        pipe.close(f"no token within {waited_s:.1f} s")

    def _tell_of_silent(self, pipe: Pipe, waited_s: float) -> None:
        host = host_of(pipe.remote_address)
        self.refusals.tell_of_silent(pipe, waited_s, known=host in self._hosts())

    def _hosts(self) -> list[str]:
        """Hosts of the other brokers: where admitted ones dialled from, and where members listen."""
        admitted = [link.bus.remote_address for link in (*self.up.values(), *self._tokens.values())]
        listening = [record.peer_url for record, _ in self._membership.others()]
        return [host_of(url) for url in (*admitted, *listening) if has_host(url)]

    def _forget_unbound(self, pipe: Pipe) -> None:
        deadline = self._unbound.pop(pipe, None)
        if deadline is not None:
            deadline.cancel()

    def _bind(self, which: str, pipe: Pipe, frame: bytes) -> None:
        """Bind a survey connection that another broker opened, by its first frame."""
        self._forget_unbound(pipe)
        try:
            token = _token_in(frame)
        except LinkError as error:
            self.refusals.count("token")
            self.refusals.warn_of_stranger(pipe)
            pipe.close(str(error))
            return
        link = self._tokens.get(token)
        if link is None:
            self.refusals.count("token")
            self.refusals.tell_of_late_broker(pipe)
            pipe.close("the token of a heartbeat connection is not known")
            return
        try:
            complete = link.admission.bind(which)
        except Refused as refusal:
            pipe.close(str(refusal))
            self._refuse(link, refusal)
            return
        link.keep(which, pipe)
        if complete:
            del self._tokens[link.admission.token]
            self._up(link)

    # --- up and ended

    def _up(self, link: Link) -> None:
        """All three connections exist. Decide now if it is a duplicate."""
        member = link.peer.id
        old = self.up.get(member)
        if old is not None:
            if not self._better(link, old):
                self._refuse(link, Refused("duplicate", "there is a better link between these two brokers"))
                return
            self._take_down(old, "replaced")
            self._owner.link_down(old, "replaced", replaced=True)
        now = self._clock()
        del self._strangers[link]
        if link.deadline is not None:
            link.deadline.cancel()
        link.member, link.up, link.up_since = member, True, now
        self.up[member] = link
        self._epochs[member] = max(self._epochs.get(member, 0), link.admission.rank.epoch)
        if link.dial is None:
            link.say([encode(LinkKind.READY)])
        self._owner.link_up(link)

    def _better(self, new: Link, old: Link) -> bool:
        return supersedes(
            new.admission.rank,
            old.admission.rank,
            new_hello=new.peer,
            old_hello=old.peer,
            old_answers=self._membership.answers(new.peer.id),
        )

    def _refuse(self, link: Link, refusal: Refused) -> None:
        """Tell the peer why, and close. Peers that dialled us are counted here, those that we dialled in
        `mesh.cluster.link_dialer`."""
        sentence = str(refusal)
        link.refusal = refusal.reason
        if link.dial is None:
            self.refusals.count(refusal.reason)
            if refusal.reason in ("version", "mesh", "key", "conflict"):
                self.refusals.warn_of_broker(link.bus, sentence)
        link.say([encode(LinkKind.REFUSED, refusal.reason, sentence[:SENTENCE_MAX])])
        self.end(link, refusal.reason if refusal.reason == "duplicate" else sentence, flush=True)

    def drop(self, member: int, reason: str) -> None:
        """The session on a link broke a rule. The link ends and is dialled again."""
        link = self.up.get(member)
        if link is not None:
            self.refusals.count("session")
            self.end(link, reason)

    def broke_a_rule(self, link: Link, error: LinkError) -> None:
        """The peer of a link sent an invalid frame. The link ends and is dialled again."""
        self.refusals.count(error.reason)
        self.end(link, str(error))

    def end(self, link: Link, reason: str, *, flush: bool = False) -> None:
        """End a link in any state. With ``flush``, queued frames are still written."""
        if link.ended:
            return
        if link.up:
            self._take_down(link, reason, flush=flush)
            self._owner.link_down(link, reason, replaced=False)
        else:
            self._close(link, reason, flush=flush)

    def _take_down(self, link: Link, reason: str, *, flush: bool = False) -> None:
        """Take a link away from its member."""
        del self.up[link.peer.id]
        self._close(link, reason, flush=flush)

    def _close(self, link: Link, reason: str, *, flush: bool) -> None:
        link.ended, link.end_reason = True, reason
        self._strangers.pop(link, None)
        self._tokens.pop(link.admission.token, None)
        if link.deadline is not None:
            link.deadline.cancel()
        for pipe in (link.bus, link.surveyor, link.respondent):
            if pipe is not None:
                pipe.close(reason, flush=flush)
        link.notify()


def _token_in(frame: bytes) -> bytes:
    """The token in the first frame of a survey connection. Raises `LinkError`."""
    message = decode(frame[WORD_SIZE:])
    if message[0] != LinkKind.BIND:
        raise LinkError("the first frame of a heartbeat connection must be BIND")
    token: bytes = message[1]
    return token


def _child(rng: random.Random) -> random.Random:
    """A random source for each socket, so that the draws of one do not shift another's."""
    return random.Random(rng.getrandbits(64))
