"""The broker's data plane: who is connected, who wants what, and every block's way through. Pure.

Around it a broker has two kinds of neighbours: *sessions* of clients, known by (pipe, backtrace), and
*peers*, the other brokers, known by member id. Both send blocks under credit (`mesh.wire.session_frames`),
both are
fed through outlets (`mesh.dataplane.outlets`); what arrives from a peer goes to local subscriptions only,
one hop,
so rings deliver once.

How it is driven: feed it (`client_frames`, `peer_frames`, `peer_up`, ...), each call with ``now``; it
queues frames on the pipes it was given before the call returns, collected per pipe and handed over once.
`tick` is called when it asks for it. Nothing here waits, reads a clock or holds policy of the shell's.

A rule broken by a client costs its session (and its connection, unless that is shared with others behind
an SP device); by a peer raises `PeerError` out of `peer_frames`, and whoever owns the link drops it.

Pipes are duck-typed, see `Pipe`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from mesh.dataplane import gate
from mesh.dataplane.gate import Gate
from mesh.dataplane.local_interest import Wants
from mesh.dataplane.outlets import Buffer, Held, Source
from mesh.dataplane.ports import (
    ExchangeOptions,
    LinkOutlet,
    LinkStatistics,
    LocalAsker,
    Peer,
    Pipe,
    Responder,
    Session,
    Tally,
    Tap,
    Turn,
)
from mesh.dataplane.requests import Asking, Local, Matter, Said
from mesh.dataplane.sessions import UNREAD_MAX, Sessions, consumed
from mesh.errors import BlockError, PeerError, SessionError, TopicError
from mesh.topics import check_pattern, check_topic
from mesh.topics.routing import Router
from mesh.wire import blocks
from mesh.wire.session_frames import (
    AGAIN,
    DATA,
    DATA_CONSTANTS,
    DATA_SIZE,
    Kind,
    Receipt,
    ReceiveWindow,
    Role,
    credit_frame,
    decode,
    encode,
    read_data,
)
from mesh.wire.session_opening import verified
from protocols.wire import backtrace

HEADS_SIZE: Final = DATA_SIZE + blocks.HEAD_SIZE
_heads: Final = struct.Struct(">IBBHIQBIBBBBIIQQQ").unpack_from
"""Heads of DATA and of the block in it, by one call: all a broker looks at."""
DATA_MARK: Final = int.from_bytes(bytes(DATA_CONSTANTS[:4]), "big")
VIEW_MIN: Final = 8192
"""From this size on a block is passed on as a view into its frame; below, a copy is cheaper."""

HELLO: Final = int(Kind.HELLO)
"""Kinds of clients' frames that need a route."""

SCAN_S: Final = 0.5
"""How often keepalives and stalled consumers are looked at."""
NO_LOSS: Final = ("duplicate", "answer_unknown", "not_asked", "link_down_in")
"""Reasons to drop that lose nobody a message."""
GONE_MAX: Final = 1024
"""Former members whose counters are kept by themselves."""
LONE_S: Final = 0.0002
"""A pipe is written to at once when that has not happened for so long: a lone message's round trip counts.
In a crowd frames share the write at the end of the loop turn."""


class Hooks(Protocol):
    """What the exchange asks of the broker around it."""

    def local_interest_changed(self, patterns: list[tuple[str, int]]) -> int:
        """This broker's whole interest as (pattern, role) pairs; called for each new subscription, even if
        it adds nothing.

        Returns the interest version that holds it. Once every live broker has acknowledged that version,
        or the time for it is over, the broker calls `Exchange.barrier_reached(version, unreached)`.
        """


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Cumulative counters of the data plane; ``sessions``, ``subscriptions`` and ``taps`` are as of now."""

    published: int
    """Messages that entered the mesh here."""
    delivered: int
    """Messages handed to this broker's own subscribers and taps."""
    dropped: int
    unwanted: int
    """Messages that nobody wanted when they came."""
    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    sessions: int
    subscriptions: int
    drops: dict[str, int]
    refused: dict[str, int]
    taps: list[str]
    interest: list[str]
    questions: int
    """Requests and surveys without a result yet, now."""
    publishers: int
    """Publishers whose messages are checked for repetition, now."""
    queued: int
    """Messages that wait for links, now."""


class Exchange:
    """One broker's data plane. See the module's docstring for how it is driven."""

    def __init__(
        self,
        *,
        id: int,
        boot: int,
        name: str,
        mesh: str,
        hooks: Hooks,
        options: ExchangeOptions | None = None,
        now: float = 0.0,
    ) -> None:
        self.id = id
        self.boot = boot
        self.name = name
        self.mesh = mesh
        self.options = options or ExchangeOptions()
        self.gate = Gate()
        """Closed while this broker does not know who wants what."""
        self._refusing = ""
        """Why no block is accepted now; empty while they are."""
        self._turn = Turn()
        self._tally = Tally()
        self._router: Router[Local, Peer] = Router()
        self._routes = self._router.cache
        self._peers: dict[int, Peer] = {}
        self._gone: dict[int, Peer] = {}
        self._live: dict[int, str] = {}
        self._absent: tuple[str, ...] = ()
        self._taps: dict[int, Tap] = {}
        self._seen = blocks.Seen()
        self._publisher = verified(id)
        self._sequence = 0
        self._tap_id = 0
        self._asking = Asking(id, name, self._router, self._peers, self._live, self.gate)
        self._wants = Wants(hooks.local_interest_changed)
        self._sessions = Sessions(
            id=id,
            name=name,
            mesh=mesh,
            options=self.options,
            turn=self._turn,
            router=self._router,
            wants=self._wants,
            asking=self._asking,
            tally=self._tally,
        )
        self._pipes = self._sessions.pipes
        self._next_scan = now + SCAN_S
        self._published = 0
        self._unwanted = 0

    # ------------------------------------------------------------------ clients

    def client_frames(self, pipe: Pipe, frames: list[bytes], now: float) -> list[bytes]:
        """Frames (backtrace and all) of a pipe that clients use; returns those that are no session frames.

        What comes back is a stock client's ``topic payload``, with its backtrace, for the broker to serve.
        """
        strays: list[bytes] = []
        sessions = self._pipes.get(pipe)
        if sessions is None:
            sessions = self._pipes[pipe] = {}
        touched: dict[Session, None] = {}
        for frame in frames:
            start = 4 if len(frame) > 5 and frame[0] & 0x80 else backtrace.split(frame)
            if start < 4:
                continue  # a raw Rep0 lets no such frame through
            if len(frame) <= start or frame[start] & 0xF0 != 0x90:
                strays.append(frame)
                continue
            prefix = frame[:start]
            session = sessions.get(prefix)
            try:
                if session is None or len(frame) < start + 2 or frame[start + 1] == HELLO:
                    session = self._sessions.hello(pipe, sessions, prefix, frame, now)
                elif frame[start + 1] == DATA and self.gate.closed:
                    self._hold_block(session, frame, start, now)
                elif frame[start + 1] == DATA:
                    self._client_block(session, frame, start, now)
                else:
                    self._sessions.control(session, decode(frame, start), now)
                    if self._pipes.get(pipe) is not sessions:
                        break  # an answer closed the pipe under us
                touched[session] = None
            except (PeerError, TopicError) as error:
                self._sessions.refuse(pipe, sessions, prefix, error, now)
                if pipe not in self._pipes:
                    break
        for session in touched:
            session.keepalive.heard_at = now
            if session.acks and not session.closed:
                self._acknowledge(session)
        if not sessions and self._pipes.get(pipe) is sessions:
            del self._pipes[pipe]
        self._hand_over(now)
        return strays

    def client_gone(self, pipe: Pipe, now: float) -> None:
        """A pipe that clients used is closed."""
        self._sessions.gone(pipe, now)
        self._hand_over(now)

    def pipe_writable(self, pipe: Pipe) -> None:
        """A pipe that refused frames has room again."""
        for session in self._pipes.get(pipe, {}).values():
            if session.ready:
                self._turn.dirty.append(session)
        for peer in self._peers.values():
            if peer.pipe is pipe and peer.ready:
                self._turn.dirty.append(peer)
        self._hand_over(0.0)

    def _client_block(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """A block from a client: checked, de-duplicated where it may be a retry, routed, acknowledged."""
        end = len(frame)
        if end < start + HEADS_SIZE:
            raise SessionError(
                f"a DATA frame of {end - start} bytes is shorter than its heads of {HEADS_SIZE}"
            )
        (
            mark, hops, flags, zero, number, link, bin32, size,
            form, kind, level, topic_size, count, record, sequence, publisher, boot,
        ) = _heads(frame, start)  # fmt: skip
        at = start + DATA_SIZE
        if mark != DATA_MARK or bin32 != 0xC6 or zero or flags > AGAIN or size != end - at:
            read_data(frame, start)
            raise SessionError("a DATA frame's head does not have its fixed form")
        if hops or number or link:
            raise SessionError(f"a client's block names {hops} hops, subscription {number}, sequence {link}")
        topic_at = start + HEADS_SIZE
        bodies_at = topic_at + topic_size
        if (
            kind != blocks.EQUAL
            or form != blocks.FORMAT
            or level > blocks.ACCEPTED
            or not 0 < count <= blocks.COUNT_MAX
            or bodies_at + count * record != end
            or sequence >> 62
        ):
            blocks.check(frame, at)  # the rarer forms, and all that is wrong
            blocks.check_headers(frame, at)
        if size > blocks.BLOCK_MAX:
            raise BlockError(f"a block of {size} bytes is above the limit of {blocks.BLOCK_MAX}")
        if publisher != session.client or boot != session.boot:
            raise SessionError("a block names another publisher than its session's HELLO")
        source = session.source
        window = source.window
        if window.messages_left <= 0 or window.bytes_left <= 0:
            window.arrive(count, size)  # raises
        window.messages_left -= count
        window.bytes_left -= size
        session.messages_in += count
        session.bytes_in += size
        topic = frame[topic_at:bodies_at]
        route = self._routes.get(topic) or self._router.route(topic)
        if topic[0] == 0x24:
            raise TopicError(f"topic {route.topic!r} begins with '$': such topics are the mesh's own")
        if self._refusing:
            self._refuse_block(session, sequence, count, size, level)
            return
        if level:
            whole = not kind & blocks.PIECE
            if whole or blocks.is_last_piece(frame, at):
                _merge(session.acks, sequence, sequence + count - 1)
            if whole and not self._seen.add(publisher, boot, sequence, count):
                self._tally.drop("duplicate", count)
                source.settle(count, size)
                return
        self._published += count
        block: Buffer = frame[at:] if size < VIEW_MIN else memoryview(frame)[at:]
        takers = route.everybody
        if not takers:
            self._unwanted += count
        self._hand_out(takers, block, count, 0, flags, source, now)

    def _refuse_block(self, session: Session, sequence: int, count: int, size: int, level: int) -> None:
        reason = self._refusing
        session.send_control(encode(Kind.REFUSED, [[sequence, sequence + count - 1]], reason))
        session.source.settle(count, size)
        if not level:  # its publisher waits for no answer
            self._tally.drop("leaving" if self._sessions.leaving else "joining", count)

    # ------------------------------------------------------------------ while interest is not known

    def _hold_block(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """A block of a client, which comes back through `_held_block`. What does not fit is refused. Raises
        as `_client_block` does."""
        if not self.gate.hold(len(frame), partial(self._held_block, session, frame, start)):
            self._refusing = self._sessions.leaving or f"broker {self.name} {gate.REASON}"
            try:
                self._client_block(session, frame, start, now)
            finally:
                self._refusing = self._sessions.leaving

    def _held_block(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """Also of a client that has gone: it may not have waited to hear."""
        try:
            self._client_block(session, frame, start, now)
        except (PeerError, TopicError) as error:
            sessions = self._pipes.get(session.pipe)
            if sessions is not None and not session.closed:
                self._sessions.refuse(session.pipe, sessions, session.prefix, error, now)
        if session.acks and not session.closed:
            self._acknowledge(session)

    def drop(self, reason: str, count: int) -> None:
        """Count messages that the broker around dropped before they came here."""
        self._tally.drop(reason, count)

    def open_gate(self, now: float) -> None:
        """It is known who wants what, or who is missing (`set_absent`): route what was held."""
        self.gate.open(now)
        self._hand_over(now)

    def _hand_out(
        self,
        takers: tuple[Local | Peer, ...],
        block: Buffer,
        count: int,
        hops: int,
        flags: int,
        source: Source | None,
        now: float,
    ) -> None:
        """A block to everybody it is for. Its credit goes back to its source unless it has to wait
        somewhere."""
        held: Held | None = None
        for taker in takers:
            if not taker.offer(block, count, hops, flags):
                if held is None and source is not None:
                    held = Held(source, count, len(block))
                taker.wait(block, count, hops, flags, held, now)
        if source is not None and (held is None or not held.outlets):
            source.settle(count, len(block))

    def _acknowledge(self, session: Session) -> None:
        session.send_control(encode(Kind.ACK, blocks.ACCEPTED, session.acks, list(self.absent())))
        session.acks = []

    def absent(self) -> tuple[str, ...]:
        """Names of live brokers that a publish here cannot reach now, or whose interest is not known."""
        return self._absent

    def barrier_reached(self, version: int, unreached: Sequence[str] = ()) -> None:
        """Every live broker knows this broker's interest up to ``version``, except those named."""
        self._wants.reached(version, unreached)
        self._hand_over(0.0)

    # ------------------------------------------------------------------ the program around the broker

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> Receipt:
        """Messages of a stock client, or the broker's own: this broker is their publisher.

        Raises `TopicError`, and ValueError for a body above the limit.
        """
        encoded = check_topic(topic)
        number = blocks.LEVELS.index(level)
        for body in bodies:
            if len(body) > blocks.BODY_MAX:
                raise ValueError(f"a body of {len(body)} bytes is above the limit of {blocks.BODY_MAX}")
        first = self._sequence + 1
        route = self._router.route(encoded)
        for start, stop in blocks.cut(bodies) if bodies else ():
            for block, count in self._seal(encoded, bodies[start:stop], number):
                if not route.everybody:
                    self._unwanted += count
                self._hand_out(route.everybody, block, count, 0, 0, None, now)
        self._published += len(bodies)
        self._hand_over(now)
        return Receipt(level, self.name, first, len(bodies), self.absent())

    def _seal(self, topic: bytes, bodies: Sequence[bytes], level: int) -> list[tuple[bytes, int]]:
        sequence = self._sequence + 1
        self._sequence += len(bodies)
        if len(bodies) == 1 and len(bodies[0]) > blocks.SPLIT:
            pieces = blocks.seal_pieces(
                topic, bodies[0], publisher=self._publisher, boot=self.boot, sequence=sequence, level=level
            )
            return [(piece, 1) for piece in pieces]
        block = blocks.seal(
            topic, bodies, publisher=self._publisher, boot=self.boot, sequence=sequence, level=level
        )
        return [(block, len(bodies))]

    def add_tap(self, patterns: Sequence[str], callback: Callable[[str, list[bytes]], None]) -> int:
        """Hand all messages that match to ``callback(topic, bodies)``; they are this broker's interest.
        Returns an id."""
        checked = list(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
        self._tap_id += 1
        tap = self._taps[self._tap_id] = Tap(self._tap_id, checked, callback)
        self._router.subscribe(checked, Role.LISTEN, tap)
        self._wants.add(checked, Role.LISTEN)
        self._wants.flush()
        return tap.id

    def remove_tap(self, id: int) -> None:
        tap = self._taps.pop(id, None)
        if tap is not None:
            self._router.unsubscribe(tap.patterns, tap)
            self._wants.remove(tap.patterns, Role.LISTEN)
            self._tally.delivered += tap.delivered
            self._wants.flush()

    def respond(self, pattern: str, handler: Callable[[str, bytes], bytes]) -> None:
        """Answer requests and surveys on a pattern inside this broker, for as long as it runs."""
        responder = Responder([check_pattern(pattern)], handler)
        self._router.subscribe(responder.patterns, Role.ANSWERS, responder)
        self._wants.add(responder.patterns, Role.ANSWERS)
        self._wants.flush()

    def request(
        self,
        topic: str,
        body: bytes,
        timeout_s: float,
        callback: Callable[[int, bytes], None],
        now: float,
    ) -> None:
        """Ask for a stock client; ``callback(status, body)`` is called once, perhaps before this returns.

        ``status`` is a `mesh.wire.session_frames.Status`. Raises `TopicError`.
        """
        self._asking.ask(LocalAsker(callback), 0, Matter(topic, body, b""), timeout_s, False, now)
        self._hand_over(now)

    # ------------------------------------------------------------------ other brokers

    def members_changed(self, live: Iterable[tuple[int, str]]) -> None:
        """All brokers that are alive or suspect, this one not among them; of the others interest is
        forgotten."""
        self._live.clear()
        self._live.update(live)
        for id, peer in list(self._peers.items()):
            if id not in self._live and peer.pipe is None:
                self._forget(peer)
            elif id in self._live:
                peer.name = self._live[id]

    def set_absent(self, names: Iterable[str]) -> None:
        """Live brokers whose interest is not known here or that have no link; receipts name them."""
        self._absent = tuple(names)

    def set_peer_interest(self, member_id: int, patterns: Iterable[tuple[str, int]]) -> None:
        """Replace what a broker wants: (pattern, role) pairs. Raises `TopicError`."""
        peer = self._peer(member_id)
        self._router.set_remote(peer, patterns)
        peer.interest_known = True

    def peer_up(self, member_id: int, name: str, pipe: Pipe, rtt_s: float, now: float) -> None:
        """A link is admitted; its Bus pipe carries blocks from now on. Replaces an earlier link."""
        peer = self._peer(member_id)
        if peer.pipe is not None:
            self._link_over(peer, now)
        peer.name, peer.pipe, peer.rtt_s = name, pipe, rtt_s
        peer.expected = 1
        peer.outlet = LinkOutlet(peer, self.options.link_delivery, now)
        window = ReceiveWindow(self.options.link_messages, self.options.link_bytes)
        peer.source = Source(peer, window, self._turn.due, is_link=True)
        pipe.send_control(credit_frame(0, window.messages, window.bytes))

    def peer_down(self, member_id: int, now: float) -> None:
        """A link is over. The broker's interest is kept until `members_changed` no longer names it."""
        peer = self._peers.get(member_id)
        if peer is None:
            return
        if peer.pipe is not None:
            self._link_over(peer, now)
        if member_id not in self._live:
            self._forget(peer)
        self._hand_over(now)

    def peer_rtt(self, member_id: int, rtt_s: float) -> None:
        """A new measure of the round trip to a broker; the nearest gets requests first."""
        peer = self._peers.get(member_id)
        if peer is not None:
            peer.rtt_s = rtt_s

    def peer_frames(self, member_id: int, frames: list[bytes], now: float) -> None:
        """Session frames (kinds 0 to 31) from a broker's Bus pipe. Raises `PeerError`: the link must be
        dropped."""
        peer = self._peer(member_id)
        if peer.pipe is None:  # of a link that is over
            self._tally.drop("link_down_in", len(frames))
            return
        try:
            for frame in frames:
                if len(frame) > 1 and frame[1] == DATA and frame[0] & 0xF0 == 0x90:
                    self._peer_block(peer, frame, now)
                else:
                    self._peer_control(peer, decode(frame), now)
        except TopicError as error:
            raise SessionError(str(error)) from error
        finally:
            self._hand_over(now)

    def _peer_block(self, peer: Peer, frame: bytes, now: float) -> None:
        """A block from another broker: it goes to this broker's own subscribers. Their clients check its
        inside."""
        end = len(frame)
        if end < HEADS_SIZE:
            raise SessionError(f"a DATA frame of {end} bytes is shorter than its heads of {HEADS_SIZE}")
        (
            mark, hops, flags, zero, _, number, bin32, size,
            _, kind, level, topic_size, count, _, sequence, publisher, boot,
        ) = _heads(frame)  # fmt: skip
        if mark != DATA_MARK or bin32 != 0xC6 or zero or flags > AGAIN or size != end - DATA_SIZE:
            read_data(frame)
            raise SessionError("a DATA frame's head does not have its fixed form")
        if hops:
            raise SessionError(f"a block with {hops} hops came over a link; in a full mesh it has 0")
        if size > blocks.BLOCK_MAX:
            raise BlockError(f"a block of {size} bytes is above the limit of {blocks.BLOCK_MAX}")
        if number < peer.expected:
            raise SessionError(f"link sequence {number} after {peer.expected - 1}")
        peer.source.window.arrive(count, size)
        peer.lost += number - peer.expected
        peer.expected = number + 1
        peer.messages_in += count
        peer.bytes_in += size
        topic = frame[HEADS_SIZE : HEADS_SIZE + topic_size]
        route = self._routes.get(topic) or self._router.route(topic)
        if level and not kind & blocks.PIECE and not self._seen.add(publisher, boot, sequence, count):
            self._tally.drop("duplicate", count)
            peer.source.settle(count, size)
            return
        block: Buffer = frame[DATA_SIZE:] if size < VIEW_MIN else memoryview(frame)[DATA_SIZE:]
        self._hand_out(route.local, block, count, hops + 1, flags, peer.source, now)

    def _peer_control(self, peer: Peer, frame: list[Any], now: float) -> None:
        match frame:
            case [Kind.CREDIT, 0, messages, size]:
                if peer.outlet is not None:
                    consumed(self._turn, peer.outlet, messages, size, now)
            case [Kind.FORWARD, token, survey, topic, body, headers, timeout_ms]:
                self._asking.forwarded(
                    peer, token, bool(survey), Matter(topic, body, headers), timeout_ms / 1000, now
                )
            case [Kind.ASKED, token, names]:
                self._asking.peer_asked(peer, token, names, now)
            case [Kind.RETURN, token, responder, status, body, headers, name]:
                self._asking.arrived(peer.id, token, responder, Said(status, body, headers, name), now)
            case [Kind.LONGER, token, more_ms]:
                self._asking.longer(token, more_ms, now)
            case [Kind.PING, stamp]:
                peer.send(encode(Kind.PONG, stamp))
            case [Kind.PONG, _]:
                pass
            case [kind, *_]:
                raise SessionError(f"a {Kind(kind).name} frame is not for a broker to send")

    def _link_over(self, peer: Peer, now: float) -> None:
        outlet = peer.outlet
        peer.pipe = None
        peer.ready = []
        if outlet is not None:
            left = outlet.close()
            self._turn.waiting.pop(outlet, None)
            peer.retired[0] += outlet.messages_out
            peer.retired[1] += outlet.bytes_out
            peer.drop("slow_link", outlet.dropped)
            peer.drop("link_down", left)
            peer.outlet = None
        self._asking.broker_gone(peer, now)

    def _peer(self, member_id: int) -> Peer:
        peer = self._peers.get(member_id)
        if peer is None:
            name = self._live.get(member_id, f"{member_id:016x}")
            peer = self._gone.pop(member_id, None) or Peer(self._turn, member_id, name)
            peer.name = name
            self._peers[member_id] = peer
        return peer

    def _forget(self, peer: Peer) -> None:
        """It is no member any more: its interest goes, its counters stay in case it returns."""
        self._router.set_remote(peer, ())
        peer.interest_known = False
        del self._peers[peer.id]
        self._gone[peer.id] = peer
        if len(self._gone) > GONE_MAX:
            oldest = self._gone.pop(next(iter(self._gone)))
            for reason, count in oldest.drops.items():
                self._tally.drop(reason, count)
            self._tally.messages_in += oldest.messages_in
            self._tally.bytes_in += oldest.bytes_in
            self._tally.messages_out += oldest.retired[0]
            self._tally.bytes_out += oldest.retired[1]

    # ------------------------------------------------------------------ time, output, numbers

    def tick(self, now: float) -> float:
        """Do what is due; returns when to call again (never later than half a second from now)."""
        due = self._asking.expire(now)
        if now >= self._next_scan:
            late_s = now - self._next_scan
            self._next_scan = now + SCAN_S
            self._scan(now, late_s)
        turn = self._turn
        if turn.dirty or turn.due or self._wants.changed:
            self._hand_over(now)
        return self._next_scan if due is None or due > self._next_scan else due

    def _scan(self, now: float, late_s: float) -> None:
        for outlet in list(self._turn.waiting):
            outlet.check_stall(now)
            if not outlet.queue:
                del self._turn.waiting[outlet]
        self._sessions.scan(now, late_s)

    def leave(self, reason: str, now: float) -> None:
        """Tell every client that this broker goes; what is published from now on is refused."""
        self._sessions.leaving = self._refusing = reason
        self.open_gate(now)  # what was held is refused
        for session in self._sessions.all():
            session.send(encode(Kind.BYE, reason))
        self._hand_over(now)

    def _hand_over(self, now: float) -> None:
        """What this turn produced: interest, frames to their pipes, one call each, and credit to those who
        earned it."""
        turn = self._turn
        self._wants.flush()
        if turn.dirty:
            dirty, turn.dirty = turn.dirty, []
            for port in dirty:
                pipe, frames = port.pipe, port.ready
                if isinstance(port, Session) and port.unread > UNREAD_MAX and not port.closed:
                    self._sessions.overrun(port, now)
                    continue
                if pipe is None or not frames:
                    continue
                taken = pipe.send_many(frames)
                if now - port.handed_over_at > LONE_S:
                    port.handed_over_at = now
                    pipe.flush()
                port.ready = frames[taken:] if taken < len(frames) else []
        if turn.due:
            due = turn.due.copy()
            turn.due.clear()  # sources keep a reference to this very list
            for source in due:
                self._grant(source)

    def _grant(self, source: Source) -> None:
        source.is_due = False
        frame = credit_frame(0, *source.window.grant())
        owner = source.owner
        if isinstance(owner, Session):
            if not owner.closed:
                owner.send_control(frame)
        elif isinstance(owner, Peer) and owner.source is source and owner.pipe is not None:
            owner.pipe.send_control(frame)

    def link_statistics(self, member_id: int) -> LinkStatistics:
        """Counters of the link to a broker; zeros for one never linked."""
        peer = self._peers.get(member_id) or self._gone.get(member_id)
        return peer.statistics() if peer is not None else LinkStatistics(0, 0, 0, 0, 0, 0, 0)

    def traffic(self) -> tuple[int, int, int, int]:
        """Messages in and out, bytes in and out: the part of `statistics` that is asked for often."""
        tally = self._tally
        messages_in, bytes_in = tally.messages_in, tally.bytes_in
        messages_out, bytes_out = tally.messages_out, tally.bytes_out
        for peer in (*self._peers.values(), *self._gone.values()):
            messages_in += peer.messages_in
            bytes_in += peer.bytes_in
            messages_out += peer.retired[0]
            bytes_out += peer.retired[1]
            if peer.outlet is not None:
                messages_out += peer.outlet.messages_out
                bytes_out += peer.outlet.bytes_out
        for session in self._sessions.all():
            messages_in += session.messages_in
            bytes_in += session.bytes_in
            for subscription in session.subscriptions.values():
                messages_out += subscription.messages_out
                bytes_out += subscription.bytes_out
        return messages_in, messages_out, bytes_in, bytes_out

    def statistics(self) -> ExchangeStatistics:
        sessions = self._sessions.all()
        subscriptions = [sub for session in sessions for sub in session.subscriptions.values()]
        peers = [*self._peers.values(), *self._gone.values()]
        drops = dict(self._tally.drops)
        if self._asking.unknown:
            drops["answer_unknown"] = self._asking.unknown
        if self._asking.not_asked:
            drops["not_asked"] = self._asking.not_asked
        for subscription in subscriptions:
            if subscription.dropped:
                drops["slow_subscriber"] = drops.get("slow_subscriber", 0) + subscription.dropped
        for peer in peers:
            slow = {"slow_link": peer.outlet.dropped} if peer.outlet and peer.outlet.dropped else {}
            for reason, count in (*peer.drops.items(), *slow.items()):
                drops[reason] = drops.get(reason, 0) + count
        out = sum(sub.messages_out for sub in subscriptions)
        tapped = sum(tap.delivered for tap in self._taps.values())
        messages_in, messages_out, bytes_in, bytes_out = self.traffic()
        return ExchangeStatistics(
            published=self._published,
            delivered=self._tally.delivered + out + tapped,
            dropped=sum(count for reason, count in drops.items() if reason not in NO_LOSS),
            unwanted=self._unwanted,
            msgs_in=messages_in,
            msgs_out=messages_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            sessions=len(sessions),
            subscriptions=len(subscriptions),
            drops=drops,
            refused=dict(self._tally.refused),
            taps=[" ".join(tap.patterns) for tap in self._taps.values()],
            interest=[pattern for pattern, _ in self._wants.patterns],
            questions=self._asking.open_questions,
            publishers=len(self._seen),
            queued=sum(peer.outlet.queued_messages for peer in peers if peer.outlet is not None),
        )


def _merge(ranges: list[list[int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1][1] = last
    else:
        ranges.append([first, last])
