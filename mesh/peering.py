"""Links to the other brokers: the shell around membership, overlay, interest and admission.

It owns three raw sockets (Bus, Surveyor, Respondent), addresses every pipe by itself and never broadcasts, so
what is not admitted gets nothing. What it hears goes into the machines; their instructions are executed in
`Peering._act`. Everything happens in callbacks of the event loop; only dialling has a task, one for each
dial.

A `_Group` is one link in the making or up: a Bus pipe with its `Admission`, and its two survey pipes. It ends
as a whole: whichever of the three is lost, the others are closed. News about members and interest goes out at
once and then at most every `NEWS_PAUSE_S` and `INTEREST_PAUSE_S`, ahead of data; the frames of sessions
(kinds 0 to 31) are passed on unopened.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mesh.environment import Environment
from mesh.errors import LinkError
from mesh.interest import BarrierDone, InterestTable, Pattern
from mesh.link import (
    CHALLENGE_SIZE,
    LINK_KIND_MAX,
    SENTENCE_MAX,
    SESSION_KIND_MAX,
    TOKEN_SIZE,
    Admission,
    Hello,
    LinkKind,
    Refused,
    Stage,
    decode,
    encode,
    members_frames,
    supersedes,
)
from mesh.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberMoved,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeChanged,
    NodeState,
    Redial,
    SelfChanged,
    State,
    Survey,
    Tell,
    TellAll,
)
from mesh.overlay import Dial, Overlay, OverlayOptions
from protocols import Bus0, Pipe, PipeRefused, Respondent0, Socket, SocketOptions, SPError, Surveyor0
from protocols import is_wildcard as is_wildcard_url
from protocols.wire.backtrace import END_BIT, WORD_SIZE, encode_word, peek

log = logging.getLogger("mesh")

NEWS_PAUSE_S: Final = 0.03
INTEREST_PAUSE_S: Final = 0.005
"""Subscribers wait for it, so it is shorter; it only keeps a storm of subscriptions from being a storm of
frames."""
LEAVE_S: Final = 1.0
"""How long a leaving broker waits for the others to have heard."""
JOIN_S: Final = 5.0
"""From the first link, how long a joining broker waits for everybody's interest before it calls itself
ready."""
STRANGERS_MAX: Final = 64
"""Connections under admission, and survey connections without a token, each; one more drops the oldest."""
BUS_QUEUE: Final = 65_536
"""Frames on a Bus pipe: credit is the bound there, the pipe must not refuse before it."""
ROUND_MASK: Final = 0x7FFFFFFF


class IdentityLike(Protocol):
    """Who this broker is; `mesh.identity.Identity` is one."""

    @property
    def id(self) -> int: ...
    @property
    def boot(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def peers(self) -> Sequence[Any]: ...


class PeeringHooks(Protocol):
    """What the broker hears. All synchronous; none may raise."""

    def member_changed(self, record: MemberRecord, from_state: State, reason: str, via: int) -> None:
        """Another broker came into another state, or began a new run."""

    def live_changed(self, live: list[tuple[int, str]]) -> None:
        """Ids and names of the others that are alive or suspect."""

    def link_up(self, member: int, name: str, pipe: Pipe, rtt_s: float) -> None:
        """A link is admitted; ``pipe`` is its Bus, free for session frames from now on. The `link_down` of
        one that it replaces comes first."""

    def link_down(self, member: int, reason: str, dialed: bool) -> None: ...

    def link_frames(self, member: int, frames: list[bytes]) -> None:
        """Frames of kinds 0 to 31, unopened."""

    def link_writable(self, pipe: Pipe) -> None:
        """A Bus pipe that refused frames has room again."""

    def interest_changed(self, member: int, patterns: list[Pattern]) -> None:
        """All that another broker wants."""

    def absent_changed(self, names: tuple[str, ...]) -> None:
        """Live brokers without a link, or whose interest is not known."""

    def barrier_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        """All live brokers but those named know this broker's interest up to ``version``."""

    def heard_survey(self, member: int, round: int) -> None: ...

    def heard_answer(self, member: int, round: int, rtt_s: float) -> None:
        """An answer in time."""

    def self_changed(self, record: MemberRecord) -> None:
        """This broker's own record: a greater incarnation, another address, or that it left."""

    def state_changed(self, state: NodeState) -> None:
        """joining, ready, isolated, leaving."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member; ``since`` is when it came into its state, on the loop's clock."""

    record: MemberRecord
    since: float
    is_self: bool


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """One link that is up; ``rtt_s`` is of the last answer, of the admission before that."""

    peer: int
    dialed: bool
    up_since: float
    rtt_s: float
    remote_address: str


@dataclass(frozen=True, slots=True)
class PeeringStatistics:
    """Cumulative, but ``members``, ``links`` and ``strangers``, which are now."""

    rounds: int
    void_rounds: dict[str, int]
    """By reason: ``late`` (this broker was), ``silent`` (nobody answered)."""
    late_answers: int
    refutations: int
    refused_records: int
    syncs: int
    refused: dict[str, int]
    """Connections that were not admitted, or lost for a broken rule, by reason."""
    dial_failures: dict[str, int]
    members: int
    links: int
    strangers: int


class _Gone(Exception):
    """The group that a dial was making ended before it was up; says why."""


class _Group:
    """A link in the making, or up."""

    __slots__ = (
        "admission",
        "bus",
        "changed",
        "deadline",
        "dial",
        "end_reason",
        "ended",
        "goodbye",
        "news",
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
        self.up = False
        self.up_since = 0.0
        self.ended = False
        self.end_reason = ""
        self.goodbye = False
        self.rtt_s = 0.0
        self.spoke_at = now
        self.news: dict[int, MemberRecord] = {}
        self.deadline: asyncio.TimerHandle | None = None
        self.changed: asyncio.Future[None] | None = None

    @property
    def peer(self) -> Hello:
        peer = self.admission.peer
        assert peer is not None, "the peer has said HELLO"
        return peer

    def notify(self) -> None:
        if self.changed is not None and not self.changed.done():
            self.changed.set_result(None)

    async def reached(self, stage: Stage) -> None:
        """Return at that stage of the admission; raises `_Gone` if the group ends before."""
        while self.admission.stage is not stage:
            if self.ended:
                break
            self.changed = asyncio.get_running_loop().create_future()
            await self.changed
        if self.ended:
            raise _Gone(self.end_reason)


class _Paced:
    """Calls ``act`` at the end of the loop turn in which it is asked to, but not more often than every
    ``pause_s``."""

    def __init__(self, act: Callable[[], None], pause_s: float) -> None:
        self._act = act
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._last = -pause_s
        self._handle: asyncio.Handle | None = None

    def ask(self) -> None:
        if self._handle is None:
            due = self._last + self._pause_s
            late = due <= self._loop.time()
            self._handle = self._loop.call_soon(self._run) if late else self._loop.call_at(due, self._run)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self._last = self._loop.time()
        self._act()


class _Bus:
    """Receiver of the Bus socket."""

    def __init__(self, peering: Peering) -> None:
        self._peering = peering

    def pipe_attached(self, pipe: Pipe) -> None:
        self._peering._bus_attached(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        if isinstance(pipe.context, _Group):
            self._peering._end(pipe.context, reason)

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self._peering._bus_frames(pipe, frames)

    def pipe_writable(self, pipe: Pipe) -> None:
        self._peering._hooks.link_writable(pipe)


class _Heartbeat:
    """Receiver of a survey socket. A pipe belongs to nobody until its first frame, BIND, brought a token."""

    def __init__(
        self, name: str, peering: Peering, received: Callable[[_Group, Pipe, list[bytes]], None]
    ) -> None:
        self._name = name
        self._peering = peering
        self._received = received

    def pipe_attached(self, pipe: Pipe) -> None:
        if not pipe.dialed:
            self._peering._survey_attached(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._peering._no_stranger(pipe)
        if isinstance(pipe.context, _Group):
            self._peering._end(pipe.context, f"heartbeat connection lost: {reason}")

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if pipe.context is None:
            self._peering._bind(self._name, pipe, frames.pop(0))
        group = pipe.context
        if isinstance(group, _Group) and frames:
            self._received(group, pipe, frames)

    def pipe_writable(self, pipe: Pipe) -> None: ...


class Peering:
    """See the module. Make it inside a running event loop, let its `sockets` listen, then `start`.

    Args:
        identity: id, boot, incarnation and the peers of an earlier run; only read.
        join: URLs of brokers to join.
        advertise: the URL others are told; None: from the URLs listened on and, for a wildcard, the local
            address of the first link.
        hooks: who hears what happens.
    """

    def __init__(
        self,
        *,
        identity: IdentityLike,
        name: str,
        mesh: str,
        mesh_key: bytes | None = None,
        join: Sequence[str] = (),
        advertise: str | None = None,
        period_s: float = 1.0,
        deadline_s: float = 0.5,
        environment: Environment,
        hooks: PeeringHooks,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._clock = loop.time
        self._hooks = hooks
        self._environment = environment
        self._mesh = mesh
        self._key = mesh_key
        self._advertise = advertise
        self._dial_s = max(1.0, period_s)
        self._admission_s = 2 * self._dial_s
        rng = environment.rng
        me = MemberRecord(
            identity.id, identity.incarnation, State.ALIVE, identity.boot, name, environment.host, "", ""
        )
        known = [peer.url for peer in identity.peers]
        self.membership = Membership(
            me,
            options=MembershipOptions(period_s=period_s, deadline_s=deadline_s),
            join=bool(join or known),
            rng=rng,
            now=loop.time(),
        )
        self.interest = InterestTable()
        self.interest.set_joining(join)
        self.overlay = Overlay(
            me.id, join=join, known=known, options=OverlayOptions.of(period_s), rng=rng, now=loop.time()
        )
        # Who was told nothing but has old acquaintances is alone, and ready, if none of them answers soon.
        self._join_due = float("inf") if join else loop.time() + 2 * period_s
        self._linked_once = False
        self._table_heard = False
        options = SocketOptions(send_queue=BUS_QUEUE, handshake_timeout_s=self._dial_s, linger_s=LEAVE_S)
        answers = _Heartbeat("surveyor", self, self._answers)
        surveys = _Heartbeat("respondent", self, self._surveys)
        self._bus = Bus0(raw=True, receiver=_Bus(self), options=options, rng=_child(rng))
        self._surveyor = Surveyor0(raw=True, receiver=answers, options=options, rng=_child(rng))
        self._respondent = Respondent0(raw=True, receiver=surveys, options=options, rng=_child(rng))
        self._links: dict[int, _Group] = {}
        self._strangers: dict[_Group, None] = {}
        self._tokens: dict[bytes, _Group] = {}
        self._unbound: dict[Pipe, asyncio.TimerHandle] = {}
        self._epochs: dict[int, int] = {}
        self._dials: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._news = _Paced(self._send_news, NEWS_PAUSE_S)
        self._wants = _Paced(self._send_interest, INTEREST_PAUSE_S)
        self._round_sent = 0.0
        self._urls: list[str] = []
        self._wildcard_port = ""
        self._absent: tuple[str, ...] = ()
        self._refused: dict[str, int] = {}
        self._dial_failures: dict[str, int] = {}
        self._complained: dict[str, str] = {}
        self._late_answers = 0
        self._started = False
        self._closed = False
        self._all_heard: asyncio.Future[None] | None = None

    # --- what the broker reads

    @property
    def sockets(self) -> list[Socket]:
        """Those that the broker's listeners serve."""
        return [self._bus, self._surveyor, self._respondent]

    @property
    def url(self) -> str:
        """Where others are told to find this broker; its loopback address while a wildcard has no other."""
        return self.membership.me.peer_url or self._on_loopback()

    @property
    def client_url(self) -> str:
        """Where clients find it."""
        return self.membership.me.client_url or self._on_loopback()

    @property
    def state(self) -> NodeState:
        return self.membership.node_state

    @property
    def incarnation(self) -> int:
        return self.membership.me.incarnation

    def members(self) -> list[MemberView]:
        """All that are known, this broker first."""
        me = self.membership.me
        others = [MemberView(record, since, False) for record, since in self.membership.others()]
        return [MemberView(me, self.membership.since(me.id), True), *others]

    def live(self) -> list[tuple[int, str]]:
        """Ids and names of the others that are alive or suspect."""
        return [(record.id, record.name) for record in self.membership.live()]

    def links(self) -> list[LinkInfo]:
        """Those that are up."""
        return [
            LinkInfo(id, group.bus.dialed, group.up_since, group.rtt_s, group.bus.remote_address)
            for id, group in self._links.items()
        ]

    def statistics(self) -> PeeringStatistics:
        counted = self.membership.statistics()
        return PeeringStatistics(
            rounds=counted.rounds,
            void_rounds={"late": counted.late_rounds, "silent": counted.silent_rounds},
            late_answers=self._late_answers,
            refutations=counted.refutations,
            refused_records=counted.refused_records,
            syncs=counted.syncs,
            refused=dict(self._refused),
            dial_failures=dict(self._dial_failures),
            members=counted.members,
            links=len(self._links),
            strangers=len(self._strangers) + len(self._unbound),
        )

    # --- what the broker does

    async def start(self, urls: Sequence[str]) -> None:
        """Begin: ``urls`` are those listened on, as bound. Dials whom it was told to join; does not wait."""
        self._urls = list(urls)
        peer_url = self._advertise or self._own_url()
        self.membership.begin(peer_url, peer_url, self._clock())
        self._started = True
        self._pump()

    def set_interest(self, patterns: Iterable[Pattern]) -> int:
        """Replace what this broker wants; returns the version that holds it. `PeeringHooks.barrier_reached`
        follows in a later loop turn, also where nothing changed."""
        before = self.interest.version
        version = self.interest.set_own(patterns)
        if version != before:
            self._wants.ask()
        done = self.interest.wait(version, self._clock())
        if done is not None:
            self._loop.call_soon(self._barriers, [done])
        else:
            self._arm()
        return version

    def drop_link(self, member: int, reason: str) -> None:
        """The session on a link broke a rule; the link goes and is dialled again."""
        group = self._links.get(member)
        if group is not None:
            log.warning("link to %s dropped: %s", group.peer.name, reason)
            self._count(self._refused, "session")
            self._end(group, reason)

    async def leave(self) -> None:
        """Tell all that this broker goes, give them up to `LEAVE_S` to hear, and hang up."""
        if self.membership.node_state is NodeState.LEAVING:
            return
        self._news.cancel()
        self._wants.cancel()
        self._act(self.membership.leave())
        waiting = [group for group in self._links.values() if not group.goodbye]
        if waiting:
            self._all_heard = self._loop.create_future()
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._all_heard
            except TimeoutError:
                pass
        await self._stop_dials()
        for group in [*self._links.values(), *self._strangers]:
            self._end(group, "left", flush=True)

    async def aclose(self) -> None:
        """Let go of everything, without a word if `leave` was not called."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._news.cancel()
        self._wants.cancel()
        await self._stop_dials()
        for group in [*self._links.values(), *self._strangers]:
            self._end(group, "closed")
        for socket in self.sockets:
            await socket.aclose()

    async def _stop_dials(self) -> None:
        dials = list(self._dials)
        for task in dials:
            task.cancel()
        if dials:
            await asyncio.wait(dials)

    # --- the machines' wishes

    def _act(self, instructions: list[Instruction]) -> None:
        now = self._clock()
        for instruction in instructions:
            match instruction:
                case Survey(round, members):
                    self._survey(round, members)
                case Tell(records, except_member):
                    self._tell(records, except_member)
                case TellAll(member, reply):
                    self._tell_all(member, reply)
                case MemberChanged(record, from_state, reason, via):
                    self.overlay.member_changed(record, now)
                    self._hooks.member_changed(record, from_state, reason, via)
                    self._live_changed()
                case MemberMoved(record):
                    self.overlay.member_changed(record, now)
                case SelfChanged(record):
                    self._hooks.self_changed(record)
                case DropLink(member, reason):
                    group = self._links.get(member)
                    if group is not None:
                        self._end(group, reason, flush=True)
                case Redial():
                    self.overlay.redial(now)
                case NodeChanged(_, state):
                    if state is not NodeState.JOINING:
                        self._barriers(self.interest.set_joining(()))
                    self._hooks.state_changed(state)
        if instructions:
            self._pump()

    def _pump(self) -> None:
        """Dial what is due and set the one timer."""
        if self._closed or not self._started or self.membership.node_state is NodeState.LEAVING:
            return
        for dial in self.overlay.tick(self._clock()):
            self._begin_dial(dial)
        self._arm()

    def _begin_dial(self, dial: Dial) -> None:
        task = self._loop.create_task(self._dial(dial), name=f"dial {dial.url}")
        self._dials[task] = None
        task.add_done_callback(self._dial_ended)

    def _dial_ended(self, task: asyncio.Task[None]) -> None:
        del self._dials[task]
        if not task.cancelled() and (error := task.exception()) is not None:  # a defect of ours: say it now
            context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)

    def _arm(self) -> None:
        if self._closed or not self._started:
            return
        due = min(
            self.membership.next_deadline(),
            self.overlay.next_deadline(),
            self.interest.next_deadline(),
            self._join_due if self.state is NodeState.JOINING else float("inf"),
        )
        timer = self._timer
        if timer is not None:
            if timer.when() <= due:
                return  # a timer that comes early finds nothing due and is set again
            timer.cancel()
            self._timer = None
        if due < float("inf"):
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock()
        self._act(self.membership.tick(now))
        self._barriers(self.interest.tick(now))
        if now >= self._join_due:
            self._act(self.membership.joined())
        self._pump()

    def _live_changed(self) -> None:
        live = self.live()
        self._barriers(self.interest.members(dict(live)))
        self._hooks.live_changed(live)
        self._check_absent()

    def _check_absent(self) -> None:
        absent = self.interest.absent()
        if absent != self._absent:
            self._absent = absent
            self._hooks.absent_changed(absent)
        if self._table_heard and self._links and not absent:
            self._act(self.membership.joined())

    def _barriers(self, done: list[BarrierDone]) -> None:
        for barrier in done:
            self._hooks.barrier_reached(barrier.version, barrier.unreached)

    # --- saying

    def _survey(self, round: int, members: tuple[int, ...]) -> None:
        """One encoding for all."""
        body = encode(LinkKind.SURVEY, self.membership.digest, self.interest.version)
        frame = encode_word(END_BIT | round & ROUND_MASK) + body
        self._round_sent = self._clock()
        for member in members:
            group = self._links.get(member)
            if group is not None and group.surveyor is not None:
                group.surveyor.send(frame)

    def _tell(self, records: tuple[MemberRecord, ...], except_member: int) -> None:
        if self.membership.node_state is NodeState.LEAVING:
            for group in self._links.values():
                # Behind what is queued: who hears that we left may hang up.
                for frame in members_frames(list(records)):
                    if not group.bus.send(frame):
                        group.bus.send_control(frame)
            return
        for member, group in self._links.items():
            if member != except_member:
                for record in records:
                    group.news[record.id] = record
        self._news.ask()

    def _send_news(self) -> None:
        for group in self._links.values():
            if group.news:
                frames = members_frames(list(group.news.values()))
                group.news = {}
                self._bus.send_to(group.bus, frames, control=True)

    def _tell_all(self, member: int, reply: bool) -> None:
        group = self._links.get(member)
        if group is not None:
            group.news = {}
            frames = members_frames(self.membership.records(), reply=reply)
            self._bus.send_to(group.bus, frames, control=True)

    def _send_interest(self) -> None:
        for member in self.interest.behind():
            group = self._links[member]
            self._bus.send_to(group.bus, self.interest.pending(member), control=True)

    # --- hearing: the Bus

    def _bus_attached(self, pipe: Pipe) -> None:
        if pipe.dialed:
            return
        if not self._started or self._closed or self.state is NodeState.LEAVING:
            raise PipeRefused("this broker is starting or leaving")
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            self._refuse(oldest, Refused("crowded out", "too many strangers are at the door; come again"))
        self._begin(pipe, None)

    def _begin(self, bus: Pipe, dial: Dial | None) -> _Group:
        """A Bus connection begins its admission."""
        self._learn_url(bus)
        me = self.membership.me
        token = self._environment.token
        hello = Hello(
            mesh=self._mesh,
            id=me.id,
            boot=me.boot,
            incarnation=me.incarnation,
            name=me.name,
            host=me.host,
            peer_url=me.peer_url,
            client_url=me.client_url,
            epoch=0,
            challenge=token(CHALLENGE_SIZE),
        )
        admission = Admission(
            hello,
            dialed=dial is not None,
            mesh_key=self._key,
            token=token(TOKEN_SIZE),
            epoch_after=lambda id: self._epochs.get(id, 0),
            expect=dial.member if dial is not None else 0,
        )
        group = _Group(bus, admission, dial, self._clock())
        bus.context = group
        self._strangers[group] = None
        group.deadline = self._loop.call_later(self._admission_s, self._admission_late, group)
        for frame in admission.begin():
            bus.send_control(frame)
        return group

    def _admission_late(self, group: _Group) -> None:
        stage = group.admission.stage.value
        sentence = f"not admitted within {self._admission_s:g} s, still waiting for {stage}"
        self._refuse(group, Refused("deadline", sentence))

    def _bus_frames(self, pipe: Pipe, frames: list[bytes]) -> None:
        group = pipe.context
        if not isinstance(group, _Group):
            pipe.close("it spoke before its turn")
            return
        try:
            if not group.up:
                frames = self._admit(group, frames)
            if frames and not group.ended:
                self._link_frames(group, frames)
        except Refused as refusal:
            self._refuse(group, refusal)
        except LinkError as error:
            log.warning("link to %s dropped: %s", group.peer.name, error)
            self._count(self._refused, "malformed")
            self._end(group, str(error))

    def _admit(self, group: _Group, frames: list[bytes]) -> list[bytes]:
        """Frames of an admission; returns those behind it. Raises `Refused`."""
        admission = group.admission
        for number, frame in enumerate(frames):
            if group.up or group.ended:
                return frames[number:]
            before = admission.stage
            answers = admission.received(frame)
            if before is Stage.HELLO and group.dial is not None:
                self.overlay.met(group.dial.url, group.peer.id)
                self._check_needed(group.peer)
            for answer in answers:
                group.bus.send_control(answer)
            now = self._clock()
            if before is Stage.HELLO:
                group.rtt_s = now - group.spoke_at
                group.spoke_at = now
            elif admission.stage is Stage.BIND:
                group.rtt_s = now - group.spoke_at
                self._tokens[admission.token] = group
            elif admission.stage is Stage.UP:
                self._up(group)
            group.notify()
        return []

    def _check_needed(self, peer: Hello) -> None:
        """Who was dialled by a second address, or at that of somebody who is dead, may be linked already. A
        new link has the greater epoch, so it is for the dialler not to make one. Raises `Refused`."""
        old = self._links.get(peer.id)
        if old is not None and old.peer.boot == peer.boot and self.membership.answers(peer.id):
            raise Refused("duplicate", "these two brokers have a link that works")

    def _link_frames(self, group: _Group, frames: list[bytes]) -> None:
        """Frames on a link that is up. Raises `LinkError`."""
        member = group.peer.id
        session = []
        for frame in frames:
            if len(frame) < 2 or frame[0] & 0xF0 != 0x90:
                raise LinkError(f"a frame of {len(frame)} bytes on a link is no array of a kind")
            if frame[1] <= SESSION_KIND_MAX:
                session.append(frame)
            elif frame[1] > LINK_KIND_MAX:
                raise LinkError(f"a link frame has kind {frame[1]}, at most {LINK_KIND_MAX} is known")
            elif not group.ended:
                self._link_frame(group, member, decode(frame))
        if session and not group.ended:
            self._hooks.link_frames(member, session)

    def _link_frame(self, group: _Group, member: int, message: list[Any]) -> None:
        interest = self.interest
        match message:
            case [LinkKind.MEMBERS, reply, records]:
                self._members_heard(group, member, records)
                if reply and not group.ended:
                    self._tell_all(member, False)
            case [LinkKind.INTEREST, version, part, last, patterns]:
                if interest.whole_received(member, version, part, bool(last), patterns):
                    self._interest_heard(group, member)
            case [LinkKind.INTEREST_CHANGE, base, version, added, removed]:
                if interest.change_received(member, base, version, added, removed):
                    self._interest_heard(group, member)
                elif interest.ask(member):
                    group.bus.send_control(encode(LinkKind.INTEREST_WANTED))
            case [LinkKind.INTEREST_HELD, version]:
                self._barriers(interest.acknowledged(member, version))
            case [LinkKind.INTEREST_WANTED]:
                self._bus.send_to(group.bus, interest.wanted(member), control=True)
            case [LinkKind.GOODBYE]:
                group.goodbye = True
                self._check_heard()
            case [kind, *_]:
                raise LinkError(f"{LinkKind(kind).name} is not allowed on a link that is up")

    def _members_heard(self, group: _Group, member: int, records: list[MemberRecord]) -> None:
        if any(record.id == member and record.state is State.LEFT for record in records):
            group.bus.send_control(encode(LinkKind.GOODBYE))
            group.goodbye = True  # it waits for nobody who leaves as well
            self._check_heard()
        self._act(self.membership.heard(records, member, self._clock()))
        if not self._table_heard:
            self._table_heard = True
            self._check_absent()

    def _interest_heard(self, group: _Group, member: int) -> None:
        self._hooks.interest_changed(member, self.interest.patterns(member))
        group.bus.send_control(encode(LinkKind.INTEREST_HELD, self.interest.held_version(member)))
        self._check_absent()

    # --- hearing: surveys and answers

    def _survey_attached(self, pipe: Pipe) -> None:
        if not self._started or self._closed:
            raise PipeRefused("this broker is starting or leaving")
        if len(self._unbound) >= STRANGERS_MAX:
            next(iter(self._unbound)).close("too many heartbeat connections without a token")
            self._count(self._refused, "crowded out")
        self._unbound[pipe] = self._loop.call_later(self._admission_s, self._unbound_late, pipe)

    def _unbound_late(self, pipe: Pipe) -> None:
        self._count(self._refused, "deadline")
        pipe.close(f"no token within {self._admission_s:g} s")

    def _no_stranger(self, pipe: Pipe) -> None:
        deadline = self._unbound.pop(pipe, None)
        if deadline is not None:
            deadline.cancel()

    def _bind(self, which: str, pipe: Pipe, frame: bytes) -> None:
        """The first frame of a survey connection that somebody opened to us."""
        self._no_stranger(pipe)
        try:
            message = decode(frame[WORD_SIZE:])
            if message[0] != LinkKind.BIND:
                raise LinkError("the first frame of a heartbeat connection must be BIND")
            group = self._tokens.get(message[1])
            if group is None:
                raise LinkError("the token of a heartbeat connection is not known")
        except LinkError as error:
            self._count(self._refused, "token")
            pipe.close(str(error))
            return
        try:
            complete = group.admission.bind(which)
        except Refused as refusal:
            pipe.close(str(refusal))
            self._refuse(group, refusal)
            return
        self._keep(group, which, pipe)
        if complete:
            del self._tokens[group.admission.token]
            self._up(group)

    def _keep(self, group: _Group, which: str, pipe: Pipe) -> None:
        pipe.context = group
        if which == "surveyor":
            group.surveyor = pipe
        else:
            group.respondent = pipe

    def _surveys(self, group: _Group, pipe: Pipe, frames: list[bytes]) -> None:
        """Questions of the other broker. It may ask a moment before its READY reaches us."""
        for frame in frames:
            heard = self._heartbeat(group, frame, LinkKind.SURVEY)
            if heard is None:
                return
            body = encode(LinkKind.ANSWER, self.membership.digest, self.interest.version)
            pipe.send(frame[:WORD_SIZE] + body)
            if group.up:
                self._hooks.heard_survey(group.peer.id, peek(frame) & ROUND_MASK)
                self._compare(group, *heard)

    def _answers(self, group: _Group, pipe: Pipe, frames: list[bytes]) -> None:
        for frame in frames:
            heard = self._heartbeat(group, frame, LinkKind.ANSWER)
            if heard is None or not group.up:
                return
            round, now, member = peek(frame) & ROUND_MASK, self._clock(), group.peer.id
            if self.membership.is_open(round):
                group.rtt_s = now - self._round_sent
                self._hooks.heard_answer(member, round, group.rtt_s)
                self._act(self.membership.answered(member, round, now))
            else:
                self._late_answers += 1
            self._compare(group, *heard)

    def _heartbeat(self, group: _Group, frame: bytes, kind: LinkKind) -> tuple[bytes, int] | None:
        """Digest and interest version of a survey or an answer; None ends the link."""
        if group.ended or group.admission.stage not in (Stage.READY, Stage.UP):
            return None
        try:
            message = decode(frame[WORD_SIZE:])
            if message[0] != kind or not frame[0] & 0x80:
                raise LinkError(f"{LinkKind(message[0]).name} came where only {kind.name} may")
        except LinkError as error:
            self._count(self._refused, "malformed")
            self._end(group, str(error))
            return None
        return message[1], message[2]

    def _compare(self, group: _Group, digest: bytes, version: int) -> None:
        """What the other holds against what we do; whatever was lost is fetched."""
        if group.ended:
            return
        member = group.peer.id
        self._act(self.membership.heard_digest(member, digest, self._clock()))
        if not group.ended and self.interest.heard_version(member, version):
            group.bus.send_control(encode(LinkKind.INTEREST_WANTED))

    # --- links

    async def _dial(self, dial: Dial) -> None:
        """One attempt at a link: the Bus, its admission, the two survey connections, READY."""
        group: _Group | None = None
        try:
            async with asyncio.timeout(self._admission_s):
                bus = await self._bus.dial_once(dial.url, self._dial_s)
                group = self._begin(bus, dial)
                await group.reached(Stage.READY)
                url = bus.remote_address or dial.url  # the same address, whatever the name says next
                word = encode_word(END_BIT)
                bind = word + encode(LinkKind.BIND, group.admission.token)
                for which, socket in (("surveyor", self._surveyor), ("respondent", self._respondent)):
                    pipe = await socket.dial_once(url, self._dial_s)
                    self._keep(group, which, pipe)
                    if group.ended or pipe.closed:
                        pipe.close("the link ended while it was made")
                        raise _Gone(group.end_reason or "a heartbeat connection was lost at once")
                    pipe.send_control(bind)
                await group.reached(Stage.UP)
        except (SPError, OSError, _Gone, TimeoutError) as error:
            self._dial_over(dial, group, str(error) or f"no link within {self._admission_s:g} s")
        except asyncio.CancelledError:
            self._dial_over(dial, group, "stopped")
            raise
        else:
            if not group.up:
                self._dial_over(dial, group, group.end_reason)

    def _dial_over(self, dial: Dial, group: _Group | None, reason: str) -> None:
        """A dial brought no link."""
        if group is None:
            self._count(self._dial_failures, "unreachable")
        else:
            self._end(group, reason)
        self.overlay.dial_failed(dial.url, dial.member, self._clock())
        if self._complained.get(dial.url) != reason:
            self._complained[dial.url] = reason
            level = logging.WARNING if group is not None and dial.member == 0 else logging.INFO
            if reason != "stopped" and not (group is not None and group.end_reason == "duplicate"):
                log.log(level, "no link to %s: %s", dial.url, reason)
        self._pump()

    def _up(self, group: _Group) -> None:
        """All three connections are there; a duplicate is decided now."""
        hello = group.peer
        member = hello.id
        old = self._links.get(member)
        if old is not None:
            if not supersedes(
                group.admission.rank,
                old.admission.rank,
                new_hello=hello,
                old_hello=old.peer,
                old_answers=self.membership.answers(member),
            ):
                self._refuse(group, Refused("duplicate", "there is a better link between these two brokers"))
                return
            self._take_down(old, "replaced")
        now = self._clock()
        del self._strangers[group]
        if group.deadline is not None:
            group.deadline.cancel()
        group.up, group.up_since = True, now
        self._links[member] = group
        self._epochs[member] = max(self._epochs.get(member, 0), group.admission.rank.epoch)
        self.overlay.link_up(member, group.dial.url if group.dial is not None else "", now)
        if group.dial is not None:
            self._complained.pop(group.dial.url, None)
        else:
            group.bus.send_control(encode(LinkKind.READY))
        if not self._linked_once:
            self._linked_once = True
            self._join_due = now + JOIN_S
        interest = self.interest.link_up(member, hello.boot)
        self._bus.send_to(group.bus, interest, control=True)
        self._act(self.membership.link_up(hello.record, now))
        if group.ended:
            return
        self._hooks.link_up(member, hello.name, group.bus, group.rtt_s)
        self._check_absent()
        self._pump()

    def _refuse(self, group: _Group, refusal: Refused) -> None:
        """Say why, hang up, count."""
        dial = group.dial
        if dial is not None and refusal.reason == "self":
            self.overlay.is_self(dial.url)
        self._count(self._refused if dial is None else self._dial_failures, refusal.reason)
        sentence = str(refusal)
        if dial is None and refusal.reason in ("version", "mesh", "key", "conflict"):
            log.warning("a broker at %s was refused: %s", group.bus.remote_address, sentence)
        group.bus.send_control(encode(LinkKind.REFUSED, refusal.reason, sentence[:SENTENCE_MAX]))
        self._end(group, refusal.reason if refusal.reason == "duplicate" else sentence, flush=True)

    def _end(self, group: _Group, reason: str, *, flush: bool = False) -> None:
        """A group is over, whatever it was."""
        if group.ended:
            return
        if group.up:
            member = group.peer.id
            self._take_down(group, reason, flush=flush)
            now = self._clock()
            self.interest.link_down(member)
            self.overlay.link_down(member, now)
            self._act(self.membership.link_down(member, now))
            self._check_absent()
            self._check_heard()
            self._pump()
        else:
            self._let_go(group, reason, flush=flush)

    def _take_down(self, group: _Group, reason: str, *, flush: bool = False) -> None:
        """A link is no longer the member's: tell the broker and hang up."""
        del self._links[group.peer.id]
        self._let_go(group, reason, flush=flush)
        self._hooks.link_down(group.peer.id, reason, group.bus.dialed)

    def _let_go(self, group: _Group, reason: str, *, flush: bool) -> None:
        group.ended, group.end_reason = True, reason
        self._strangers.pop(group, None)
        self._tokens.pop(group.admission.token, None)
        if group.deadline is not None:
            group.deadline.cancel()
        for pipe in (group.bus, group.surveyor, group.respondent):
            if pipe is not None:
                pipe.close(reason, flush=flush)
        group.notify()

    def _check_heard(self) -> None:
        """Leaving: have all that are linked heard it?"""
        future = self._all_heard
        if future is not None and not future.done() and all(g.goodbye for g in self._links.values()):
            future.set_result(None)

    # --- where this broker is

    def _own_url(self) -> str:
        """The address to advertise, as far as the listeners tell: tcp before ipc, other hosts before
        loopback. A wildcard's is only known with the first link."""
        tcp = [url for url in self._urls if url.startswith("tcp")]
        for url in tcp:
            if is_wildcard_url(url):
                self._wildcard_port = url.rpartition(":")[2]
                return ""
        outside = [url for url in tcp if not _is_loopback(url)]
        return _first(outside) or _first(tcp) or _first(self._urls)

    def _on_loopback(self) -> str:
        """Of a wildcard bind: an address that works on this host at least."""
        return f"tcp://127.0.0.1:{self._wildcard_port}" if self._wildcard_port else ""

    def _learn_url(self, bus: Pipe) -> None:
        """A wildcard bind advertises the address that its first link has on this side; one that other hosts
        can reach takes the place of a loopback address."""
        if not self._wildcard_port or self._advertise or not bus.local_address.startswith("tcp"):
            return
        url = f"{bus.local_address.rpartition(':')[0]}:{self._wildcard_port}"
        told = self.membership.me.peer_url
        if not told or (_is_loopback(told) and not _is_loopback(url)):
            self._act(self.membership.set_urls(url, url))

    def _count(self, counters: dict[str, int], reason: str) -> None:
        counters[reason] = counters.get(reason, 0) + 1


def _child(rng: random.Random) -> random.Random:
    """Randomness of its own for each socket, so that one's draws do not shift another's."""
    return random.Random(rng.getrandbits(64))


def _first(urls: Sequence[str]) -> str:
    return urls[0] if urls else ""


def _is_loopback(url: str) -> bool:
    host = url.partition("://")[2]
    return host.startswith(("127.", "localhost", "[::1]"))


__all__ = [
    "IdentityLike",
    "LinkInfo",
    "MemberRecord",
    "MemberView",
    "NodeState",
    "Peering",
    "PeeringHooks",
    "PeeringStatistics",
]
