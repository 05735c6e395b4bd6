"""Clients' sessions: how they begin, their control frames, and how they end. Pure.

A session begins with HELLO, and with PROVE where `mesh.dataplane.opening` requires it. It ends with BYE, with
its pipe, with a newer HELLO on its backtrace, by silence, or at the first broken rule. Each end removes
everything of the session: subscriptions and their interest, waiting blocks (whose publishers get their credit
back), questions it asked and answers it owes. The entry broker works for a while on what it published at
level stored (``session_over``). `mesh.dataplane.subscribing` decides what it may subscribe to.

**Messages in flight when a session ends.** Messages that waited here were not delivered and are counted at
once (``subscriber_gone``). Messages that were written to the connection without a grant may have arrived or
not. Nobody will report that, since a client that returns has a new session. So they count as *unresolved*, an
upper bound of the loss, and not as delivered. After BYE or UNSUBSCRIBE nothing is owed, since the client
wanted no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mesh.access.door import AboveLimit, Door, Guest, NotAllowed
from mesh.dataplane.counters import Tally
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.draining import Draining
from mesh.dataplane.home import Home
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.members import Member
from mesh.dataplane.opening import Openings, OriginOf
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.ports import Pipe, Port, Turn
from mesh.dataplane.questions import Answer, Query
from mesh.dataplane.requests import Requests
from mesh.dataplane.sessions import LocalTaker, Session
from mesh.dataplane.subscribing import SENTENCE_MAX, Subscribing
from mesh.errors import PeerError, SessionError, TopicError
from mesh.topics import check_topic
from mesh.topics.routing import Router
from mesh.wire import blocks
from mesh.wire.capabilities import ADDRESSES, INTERRUPTED, MOVES, STORED
from mesh.wire.durable_frames import KIND_MIN, Durable
from mesh.wire.session_frames import (
    ADDRESS_SIZE_MAX,
    ADDRESSES_MAX,
    Keepalive,
    Kind,
    Leaving,
    decode,
    encode,
    messages_in,
    name_of,
)
from mesh.wire.session_opening import Hello, read_hello, welcome
from protocols.wire import backtrace


class BrokerLeaves(SessionError):
    """A client asked for a session while the broker leaves."""

    reason = "leaving"


class AnswersUnread(SessionError):
    """A client asks questions and does not read the answers."""

    reason = "answers_unread"


class ClientSilent(SessionError):
    """A client was silent for longer than it promised."""

    reason = "silent"


def messages_behind_backtrace(frame: bytes) -> int:
    """Messages in a frame of a session."""
    return messages_in(frame, backtrace.split(frame))


class ClientPipe:
    """One connection of clients: its port, and its sessions by backtrace. Behind an SP device there may be
    many."""

    __slots__ = ("port", "sessions", "unresolved")

    def __init__(self, port: Port) -> None:
        self.port = port
        self.sessions: dict[bytes, Session] = {}
        self.unresolved = 0
        """At most so many messages were in flight to sessions that ended without BYE. Some may still wait in
        the pipe."""


class SessionControl:
    """Sessions of all pipes that clients use; see the module."""

    def __init__(
        self,
        *,
        id: int,
        name: str,
        mesh: str,
        options: ExchangeOptions,
        turn: Turn,
        router: Router[LocalTaker, Member],
        interest: LocalInterest,
        requests: Requests,
        publishers: Publishers,
        draining: Draining,
        tally: Tally,
        session_over: Callable[[Session, float], None],
        heard_lowest: Callable[[Session, int], None],
        door: Door,
        origin_of: OriginOf,
    ) -> None:
        self.pipes: dict[Pipe, ClientPipe] = {}
        self.leaving = ""
        """Why this broker leaves; empty while it stays."""
        self._addresses: list[str] = []
        """URLs of other live brokers for clients."""
        self._id = id
        self._name = name
        self._mesh = mesh
        self._options = options
        self._turn = turn
        self._subscribing = Subscribing(name, options, turn, router, interest, requests, tally, self.refuse)
        self._requests = requests
        self._publishers = publishers
        self._draining = draining
        self._tally = tally
        self._session_over = session_over
        self._heard_lowest = heard_lowest
        self._door = door
        self._openings = Openings(id, name, mesh, door, origin_of)
        self.home: Home | None = None
        """Keeps messages for durable subscriptions; None without a journal."""
        self._last_id = 0
        self._count = 0
        """Number of sessions on all pipes."""

    @property
    def refusals_held(self) -> int:
        """Refusals of wrong proofs that are held back."""
        return self._openings.held

    def all(self) -> list[Session]:
        return [session for client in self.pipes.values() for session in client.sessions.values()]

    # --- beginning

    def open(self, pipe: Pipe, prefix: bytes, frame: bytes, now: float) -> Session | None:
        """Open a session on a pipe, by HELLO or PROVE. None while its client is challenged, or waits to be
        refused. Raises `PeerError`."""
        kind, *fields = decode(frame, len(prefix))
        guest: Guest | None
        if kind == Kind.PROVE:
            proven = self._openings.prove(pipe, prefix, fields[0], now)
            if proven is None:
                return None
            hello, guest = proven
        elif kind == Kind.HELLO:
            self._end_old(pipe, prefix, now)
            hello = read_hello(fields)
            guest = self._openings.hello(pipe, prefix, frame[len(prefix) :], hello, now)
        else:
            raise SessionError(f"a {name_of(kind)} frame came before HELLO")
        if self.leaving:
            raise BrokerLeaves(f"broker {self._name} is leaving: {self.leaving}")
        return None if guest is None else self._begin(pipe, prefix, hello, guest, now)

    def _end_old(self, pipe: Pipe, prefix: bytes, now: float) -> None:
        place = self.pipes.get(pipe)
        old = None if place is None else place.sessions.pop(prefix, None)
        if place is not None and old is not None:
            self._end(place, old, now)

    def _begin(self, pipe: Pipe, prefix: bytes, hello: Hello, guest: Guest, now: float) -> Session:
        options = self._options
        place = self.pipes.get(pipe)
        if place is None:
            port = Port(self._turn, pipe, options.unwritten_bytes_max, messages_behind_backtrace)
            place = self.pipes[pipe] = ClientPipe(port)
        if len(place.sessions) >= options.sessions_per_pipe_max:
            raise AboveLimit(f"more than {options.sessions_per_pipe_max} sessions on one connection")
        if self._count >= options.sessions_max:
            raise AboveLimit(f"broker {self._name} has {self._count} sessions, which is its limit")
        self._door.enter(guest)
        self._count += 1
        self._last_id += 1
        principal = guest.standing.told_name
        session = place.sessions[prefix] = Session(
            self._last_id,
            place.port,
            prefix,
            name=hello.name or f"client-{hello.client:016x}",
            agreed=hello.agreed,
            publisher=self._publishers.begin(hello.publisher(principal), hello.boot),
            keepalive=Keepalive(hello.keepalive_s, now),
            options=options,
            guest=guest,
        )
        window = session.ingress.window
        if guest.standing.keeps_back(session.ingress, window.messages):  # sent as soon as there is room
            window.owed_messages, window.messages_left = window.messages, 0
        session.send_control(
            welcome(
                hello.agreed,
                self._id,
                self._name,
                self._mesh,
                session.id,
                window.messages_left,
                window.bytes,
                principal,
            )
        )
        if self._addresses:
            self._tell_addresses(session)
        return session

    def set_addresses(self, urls: Sequence[str]) -> None:
        """Set where clients find other live brokers. Present clients are told if it changed."""
        addresses = [url for url in dict.fromkeys(urls) if 0 < len(url) <= ADDRESS_SIZE_MAX][:ADDRESSES_MAX]
        if addresses == self._addresses:
            return
        self._addresses = addresses
        for session in self.all():
            self._tell_addresses(session)

    def _tell_addresses(self, session: Session) -> None:
        if session.agreed.has(ADDRESSES):
            session.send_control(encode(Kind.ADDRESSES, self._addresses))

    # --- what a client may say beside blocks

    def control(self, session: Session, frame: list[Any], now: float) -> None:
        """Handle a frame of any kind but DATA. Raises `PeerError`, `TopicError`."""
        match frame:
            case [Kind.CREDIT, number, messages, size]:
                subscription = session.subscriptions.get(number)
                if subscription is not None:  # otherwise the frame crossed its UNSUBSCRIBE
                    subscription.granted(messages, size, now)
            case [Kind.PATTERNS, number, patterns]:
                self._subscribing.keep_part(session, number, patterns, now)
            case [Kind.SUBSCRIBE, number, patterns, role, messages, size]:
                self._subscribing.subscribe(session, number, patterns, role, messages, size, now)
            case [Kind.UNSUBSCRIBE, number]:
                self._subscribing.unsubscribe(session, number, now)
            case [Kind.REQUEST, id, topic, body, headers, timeout_ms]:
                self._ask(session, id, Query(topic, body, headers), timeout_ms / 1000, False, now)
            case [Kind.SURVEY, id, topic, body, headers, timeout_ms]:
                self._ask(session, id, Query(topic, body, headers), timeout_ms / 1000, True, now)
            case [Kind.ANSWER, token, status, body, headers]:
                blocks.unpack_headers(headers)
                self._requests.answer(session, token, Answer(status, body, headers, session.name), now)
            case [Kind.EXTEND, token, more_ms]:
                self._requests.extend(session, token, more_ms, now)
            case [Kind.PING, stamp]:
                session.send_control(encode(Kind.PONG, stamp))
            case [Kind.PONG, _]:
                pass
            case [Kind.LEAVING, Leaving.MOVED, _, _]:
                session.agreed.require(MOVES, "the session")
                self._draining.moved(session)
            case [Kind.BYE, _] | [Kind.ERROR, _, _]:
                place = self.pipes[session.port.pipe]
                del place.sessions[session.prefix]
                self._end(place, session, now, said_bye=frame[0] == Kind.BYE)
            case [Durable.LOWEST, publisher, boot, lowest]:
                session.agreed.require(STORED, "the session")
                if (publisher, boot) != session.publisher.key:
                    raise SessionError("a LOWEST frame names another publisher than its session's HELLO")
                self._heard_lowest(session, lowest)
            case [kind, *_] if kind >= KIND_MIN:
                session.agreed.require(STORED, "the session")
                if self.home is None:
                    raise SessionError(f"broker {self._name} has no durable subscriptions")
                self.home.control(session, frame, now)
            case [kind, *_]:
                raise SessionError(f"a {name_of(kind)} frame is not for a client to send")

    def _ask(
        self, session: Session, id: int, query: Query, timeout_s: float, survey: bool, now: float
    ) -> None:
        blocks.unpack_headers(query.headers)
        rights = session.standing.rights
        if rights is not None:
            check_topic(query.topic)
            if refusal := rights.refusal("ask", query.topic):
                self._tally.refuse(NotAllowed.reason)
                self._requests.refuse(session, id, survey, refusal)
                return
        self._requests.ask(session, id, query, timeout_s, survey, now)

    # --- other rights, by a reload

    def rights_changed(self, now: float) -> None:
        """End sessions whose client is no longer admitted, and whatever the others may no longer do."""
        for session in self.all():
            if session.closed:
                continue
            if not self._door.is_valid(session.guest):
                sentence = (
                    f"broker {self._name} does not know principal {session.standing.name!r} by this proof"
                )
                error = NotAllowed(f"{sentence} any more, since its configuration was reloaded")
                self.refuse(session.port.pipe, session.prefix, error, now)
                continue
            self._subscribing.end_what_is_not_allowed(session, now)
            if self.home is not None and not session.closed:
                self.home.end_what_is_not_allowed(session, now)

    # --- the end

    def refuse(self, pipe: Pipe, prefix: bytes, error: PeerError | TopicError, now: float) -> None:
        """A client broke a rule. It is told why and loses its session, and its connection if it shares that
        with nobody."""
        self._tally.refuse(error.reason)
        pipe.send_control(prefix + encode(Kind.ERROR, error.reason, str(error)[:SENTENCE_MAX]))
        place = self.pipes.get(pipe)
        session = place.sessions.pop(prefix, None) if place is not None else None
        if place is not None and session is not None:
            self._end(place, session, now)
        if len(prefix) == 4:  # no device in between: only this client uses the connection
            self.gone(pipe, now, flushed=True)
            pipe.close(f"{error.reason}: {error}", flush=True)

    def end_unread(self, now: float) -> None:
        """End clients that ask and have left the answers of this turn unread."""
        unread, self._turn.unread = self._turn.unread, {}
        limit = self._options.answer_bytes_max
        for session in unread:
            if not session.closed and session.unread > limit:
                error = AnswersUnread(f"more than {limit} bytes of answers were left unread")
                self.refuse(session.port.pipe, session.prefix, error, now)

    def gone(self, pipe: Pipe, now: float, *, flushed: bool = False) -> None:
        """A pipe has closed. ``flushed``: it still writes what it was given."""
        self._openings.gone(pipe)
        place = self.pipes.pop(pipe, None)
        if place is None:
            return
        port = place.port
        for session in list(place.sessions.values()):
            self._end(place, session, now)
        kept, owed = port.close(flushed=flushed)
        unresolved = min(port.messages_out, max(0, place.unresolved - owed))
        self._tally.drop("subscriber_gone", kept)
        self._tally.unresolved += unresolved
        self._tally.delivered += port.messages_out - unresolved
        self._tally.messages_out += port.messages_out
        self._tally.bytes_out += port.bytes_out

    def scan(self, now: float, late_s: float) -> None:
        """End silent sessions and whatever they left unfinished. ``late_s``: how late this call is."""
        self._subscribing.expire_parts(now - late_s)
        for pipe, prefix, error in self._openings.over(now - late_s):
            self.refuse(pipe, prefix, error, now)
        for session in self.all():
            keepalive = session.keepalive
            if not session.closed and keepalive.lapsed(now, late_s):
                silence = ClientSilent(
                    f"nothing heard for {now - keepalive.heard_at:.1f} s, "
                    f"three times the {keepalive.interval_s:g} s that HELLO named"
                )
                self.refuse(session.port.pipe, session.prefix, silence, now)

    def tell_interrupted(self) -> None:
        """Tell clients with subscriptions that they may have missed messages. None of these were owed."""
        for session in self.all():
            if session.subscriptions and session.agreed.has(INTERRUPTED):
                session.send(encode(Kind.INTERRUPTED))

    def _end(self, place: ClientPipe, session: Session, now: float, *, said_bye: bool = False) -> None:
        """End a session that the caller has taken out of its table."""
        under_way = sum(subscription.under_way for subscription in session.subscriptions.values())
        self._subscribing.end_all(session, now)
        if self.home is not None:
            self.home.session_over(session, now, died=not said_bye)
        session.closed = True
        self._door.leave(session.guest)
        self._count -= 1
        self._publishers.end(session.publisher)
        self._session_over(session, now)
        taken_back = session.port.discard(session.prefix)
        self._tally.drop("subscriber_gone", taken_back)
        if said_bye:
            place.port.disown(max(0, under_way - taken_back))
        else:
            place.unresolved += max(0, under_way - taken_back)
        self._requests.asker_gone(session)
        self._tally.messages_in += session.messages_in
        self._tally.bytes_in += session.bytes_in
