"""Clients' sessions: how one begins, what it may say beside blocks, and how it ends. Pure.

A session begins with HELLO and ends with BYE, with its pipe, with a newer HELLO on its backtrace, with
silence, or with the first rule it breaks. Whatever the end, everything of it goes: subscriptions and their
interest, blocks that waited for it (their publishers get their credit back), questions it asked and
answers it owes.
"""

from __future__ import annotations

from typing import Any, Final

from mesh.dataplane.local_interest import Wants
from mesh.dataplane.outlets import Outlet, Source
from mesh.dataplane.ports import ExchangeOptions, Peer, Pipe, Session, Subscription, Tally, Turn
from mesh.dataplane.requests import Asking, Local, Matter, Said
from mesh.errors import MeshError, SessionError, TopicError
from mesh.topics import check_pattern
from mesh.topics.routing import Router
from mesh.wire import blocks
from mesh.wire.capabilities import SUBSCRIBE_REFUSED
from mesh.wire.session_frames import (
    SUBSCRIPTIONS_MAX,
    Keepalive,
    Kind,
    ReceiveWindow,
    Role,
    decode,
    encode,
)
from mesh.wire.session_opening import read_hello, welcome

UNREAD_MAX: Final = 16 << 20
"""Bytes of answers that one client may leave unread; these are not under credit."""

SENTENCE_MAX: Final = 250
"""Characters of a refusal."""


class AboveLimit(SessionError):
    """A subscription is above a limit. It costs the session only if the client knows no other answer."""


def consumed(turn: Turn, outlet: Outlet, messages: int, size: int, now: float) -> None:
    outlet.granted(messages, size, now)
    if not outlet.queue:
        turn.waiting.pop(outlet, None)


class Sessions:
    """Sessions of all pipes that clients use, by pipe and backtrace."""

    def __init__(
        self,
        *,
        id: int,
        name: str,
        mesh: str,
        options: ExchangeOptions,
        turn: Turn,
        router: Router[Local, Peer],
        wants: Wants,
        asking: Asking,
        tally: Tally,
    ) -> None:
        self.pipes: dict[Pipe, dict[bytes, Session]] = {}
        self.leaving = ""
        """Why this broker leaves; empty while it stays."""
        self._id = id
        self._name = name
        self._mesh = mesh
        self._options = options
        self._turn = turn
        self._router = router
        self._wants = wants
        self._asking = asking
        self._tally = tally
        self._last_id = 0

    def all(self) -> list[Session]:
        return [session for table in self.pipes.values() for session in table.values()]

    def gone(self, pipe: Pipe, now: float) -> None:
        """A pipe is closed."""
        for session in list(self.pipes.pop(pipe, {}).values()):
            self.end(session, now)

    def hello(
        self, pipe: Pipe, sessions: dict[bytes, Session], prefix: bytes, frame: bytes, now: float
    ) -> Session:
        """A new session on a pipe. Raises `PeerError`."""
        kind, *fields = decode(frame, len(prefix))
        if kind != Kind.HELLO:
            raise SessionError(f"a {Kind(kind).name} frame came before HELLO")
        hello = read_hello(fields)
        if self.leaving:
            raise SessionError(f"broker {self._name} is leaving: {self.leaving}")
        old = sessions.pop(prefix, None)
        if old is not None:
            self.end(old, now)
        if len(sessions) >= self._options.sessions_per_pipe_max:
            raise SessionError(f"more than {self._options.sessions_per_pipe_max} sessions on one connection")
        self._last_id += 1
        session = sessions[prefix] = Session(self._turn, pipe, prefix, self._last_id)
        session.name = hello.name or f"client-{hello.client:016x}"
        session.client, session.boot = hello.publisher, hello.boot
        session.agreed = hello.agreed
        session.keepalive = Keepalive(hello.keepalive_s, now)
        options = self._options
        window = ReceiveWindow(options.session_messages, options.session_bytes)
        session.source = Source(session, window, self._turn.due, is_link=False)
        session.send_control(
            welcome(hello.agreed, self._id, self._name, self._mesh, session.id, window.messages, window.bytes)
        )
        return session

    def control(self, session: Session, frame: list[Any], now: float) -> None:
        """A frame of any kind but DATA. Raises `PeerError`, `TopicError`."""
        match frame:
            case [Kind.CREDIT, number, messages, size]:
                subscription = session.subscriptions.get(number)
                if subscription is not None:  # otherwise it crossed its UNSUBSCRIBE
                    consumed(self._turn, subscription, messages, size, now)
            case [Kind.PATTERNS, number, patterns]:
                session.add_part(number, patterns)
            case [Kind.SUBSCRIBE, number, patterns, role, messages, size]:
                patterns = session.take_parts(number) + patterns
                try:
                    self._subscribe(session, number, patterns, role, messages, size, now)
                except AboveLimit as error:
                    if not session.agreed.has(SUBSCRIBE_REFUSED):
                        raise
                    session.send(encode(Kind.UNSUBSCRIBED, number, str(error)[:SENTENCE_MAX]))
            case [Kind.UNSUBSCRIBE, number]:
                subscription = session.subscriptions.pop(number, None)
                if subscription is not None:
                    self._unsubscribe(subscription, now)
            case [Kind.REQUEST, id, topic, body, headers, timeout_ms]:
                blocks.unpack_headers(headers)
                self._asking.ask(session, id, Matter(topic, body, headers), timeout_ms / 1000, False, now)
            case [Kind.SURVEY, id, topic, body, headers, timeout_ms]:
                blocks.unpack_headers(headers)
                self._asking.ask(session, id, Matter(topic, body, headers), timeout_ms / 1000, True, now)
            case [Kind.ANSWER, token, status, body, headers]:
                blocks.unpack_headers(headers)
                self._asking.answer(session, token, Said(status, body, headers, session.name), now)
            case [Kind.EXTEND, token, more_ms]:
                self._asking.extend(session, token, more_ms, now)
            case [Kind.PING, stamp]:
                session.send_control(encode(Kind.PONG, stamp))
            case [Kind.PONG, _]:
                pass
            case [Kind.BYE, _] | [Kind.ERROR, _, _]:
                self.pipes.get(session.pipe, {}).pop(session.prefix, None)
                self.end(session, now)
            case [kind, *_]:
                raise SessionError(f"a {Kind(kind).name} frame is not for a client to send")

    def _subscribe(
        self,
        session: Session,
        number: int,
        patterns: list[str],
        role: int,
        messages: int,
        size: int,
        now: float,
    ) -> None:
        if number == 0 or number in session.subscriptions:
            raise SessionError(f"subscription number {number} is taken")
        if not patterns or not messages or not size:
            raise SessionError("a subscription needs at least one pattern and a window above zero")
        if len(session.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise AboveLimit(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        patterns = list(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
        if role == Role.ANSWERS and any(pattern.startswith("$") for pattern in patterns):
            raise TopicError("only brokers answer on topics that begin with '$'")
        subscription = Subscription(session, number, patterns, role, self._options.delivery, now)
        subscription.granted(messages, size, now)
        session.subscriptions[number] = subscription
        self._router.subscribe(patterns, role, subscription)
        self._wants.add(patterns, role)
        self._wants.confirm(session, number)

    def refuse(
        self, pipe: Pipe, sessions: dict[bytes, Session], prefix: bytes, error: MeshError, now: float
    ) -> None:
        """A client broke a rule: it is told why and loses its session, and its connection if it is its
        own."""
        reason = type(error).__name__
        self._tally.refused[reason] = self._tally.refused.get(reason, 0) + 1
        session = sessions.pop(prefix, None)
        pipe.send_control(prefix + encode(Kind.ERROR, reason, str(error)[:SENTENCE_MAX]))
        if session is not None:
            self.end(session, now)
        if len(prefix) == 4:  # no device in between: the connection is this client's alone
            others = list(sessions.values())
            sessions.clear()
            self.pipes.pop(pipe, None)
            for other in others:
                self.end(other, now)
            pipe.close(f"{reason}: {error}", flush=True)

    def end(self, session: Session, now: float) -> None:
        """It is over; whoever calls has taken it out of its table."""
        for subscription in list(session.subscriptions.values()):
            self._unsubscribe(subscription, now)
        session.closed = True
        session.subscriptions.clear()
        session.ready = []
        self._wants.forget(session)
        self._asking.asker_gone(session)
        self._tally.messages_in += session.messages_in
        self._tally.bytes_in += session.bytes_in

    def _unsubscribe(self, subscription: Subscription, now: float) -> None:
        """Takes it out of everything but its session's table."""
        self._router.unsubscribe(subscription.patterns, subscription)
        self._wants.remove(subscription.patterns, subscription.role)
        left = subscription.close()
        self._turn.waiting.pop(subscription, None)
        if left:
            self._tally.drop("subscriber_gone", left)
        if subscription.dropped:
            self._tally.drop("slow_subscriber", subscription.dropped)
        self._tally.delivered += subscription.messages_out
        self._tally.messages_out += subscription.messages_out
        self._tally.bytes_out += subscription.bytes_out
        self._asking.subscriber_gone(subscription, now)

    def overrun(self, session: Session, now: float) -> None:
        """A client asks and does not read the answers."""
        sentence = f"more than {UNREAD_MAX} bytes of answers were left unread"
        sessions = self.pipes.get(session.pipe, {})
        self.refuse(session.pipe, sessions, session.prefix, SessionError(sentence), now)

    def scan(self, now: float, late_s: float) -> None:
        """End the sessions that are silent; ``late_s`` is how late this very look is."""
        for pipe, sessions in list(self.pipes.items()):
            for prefix, session in list(sessions.items()):
                if not session.closed and session.keepalive.lapsed(now, late_s):
                    silence = SessionError(
                        f"nothing heard for {now - session.keepalive.heard_at:.1f} s, "
                        f"three times the {session.keepalive.interval_s:g} s that HELLO named"
                    )
                    self.refuse(pipe, sessions, prefix, silence, now)
