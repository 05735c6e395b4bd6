"""A client's end of the session. Pure; `Client` and `BlockingClient` are two shells around it.

States: *away* (no connection, or no WELCOME yet) and *settled*. A shell reports each connection with
`connected` and its end with `disconnected`. Between `connected` and the WELCOME only HELLO is on the wire.
After WELCOME everything that outlives a connection is said again: subscriptions, unacknowledged blocks
(unchanged, marked ``AGAIN``), and questions that were not asked yet.

``introduction`` holds who the client is, the base class in ``publishing`` what is published, ``feeds`` what
arrives, ``work_feeds`` what arrives of durable subscriptions, and ``questions`` what was asked. This module
holds what they share: one connection, one order of frames, one end.

After each call a shell looks at the frames to send (`take_control`, `take_frames`) and wakes what the call
returned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Self

from mesh.access.credentials import Credential
from mesh.clients.feeds import Feed, Feeds, Run, Token
from mesh.clients.introduction import Introduction
from mesh.clients.publishing import Publishing
from mesh.clients.questions import Question, Questions
from mesh.clients.tickets import Waitable
from mesh.clients.work_feeds import WorkCounters, WorkFeed, WorkFeeds
from mesh.errors import MeshError, NotAccepted, SessionError
from mesh.printable import listed
from mesh.wire.capabilities import (
    FIRST,
    PUBLISHER_SECRET,
    STORED,
    Agreed,
    VersionMismatch,
)
from mesh.wire.durable_frames import WORK, Durable
from mesh.wire.session_frames import (
    BODY_MAX,
    DATA,
    Keepalive,
    Kind,
    Leaving,
    SendCredit,
    Status,
    credit_frame,
    decode,
    encode,
    milliseconds,
    name_of,
)
from mesh.wire.session_opening import (
    SECRET_SIZE,
    Welcome,
    publisher_of,
    read_welcome,
)


@dataclass(frozen=True, slots=True)
class ConversationStatistics:
    """Counters of one client; cumulative over its sessions."""

    published: int
    blocks_out: int
    dropped: int
    """Messages that `publish_nowait` did not take for want of credit."""
    received: int
    lost_blocks: int
    """The sum of `Subscription.lost`."""
    bad_blocks: int
    sessions: int
    forgotten: int = 0
    """Publishers, and ranges of their numbers, that subscriptions forgot for want of room (256 publishers,
    1024 ranges of each). A retry of a forgotten one may come through twice."""
    unheard: int = 0
    """Failed messages of `publish_soon` at whose failure nobody looked."""


def new_prefix(rng: random.Random) -> bytes:
    """A new SP backtrace for a session's frames: a request id."""
    return (0x80000000 | rng.getrandbits(31)).to_bytes(4, "big")


class Conversation(Publishing):
    """The session of one client with the broker that it is connected to at the time.

    ``prefix`` is the SP backtrace of all its frames (a request id). Its publisher id is derived from
    ``secret`` and from the principal that ``credential`` proves. ``boot`` tells this life of the client from
    others.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        boot: int,
        name: str,
        prefix: bytes,
        keepalive_s: float,
        now: float,
        credential: Credential | None = None,
    ) -> None:
        super().__init__(publisher=publisher_of(secret), boot=boot, prefix=prefix)
        self.introduction = Introduction(secret, name, keepalive_s, credential)
        self.principal = ""
        """The principal that the broker sees in this client; empty if it knows none."""
        self.agreed = Agreed(FIRST.newest, FIRST.capabilities)
        """The protocol agreed upon in the current or last session."""
        self.name = name
        self.keepalive_s = keepalive_s
        self.keepalive = Keepalive(keepalive_s, now)
        self.mesh = ""
        self.told: tuple[str, ...] = ()
        """Addresses of other live brokers, as the current or last broker told them."""
        self.said_bye = False
        """True if the broker said BYE in the current or last session."""
        self.attached = False
        self.last_error = ""
        """Why there is no session, or why the last one ended."""
        self._told = False
        """True if the broker said why it ends the current connection."""
        self.opened = Waitable()
        """Woken when a session begins, and when one ends."""
        self.gate = Waitable()
        """Woken when there is credit again, and when a session ends."""
        self.heard = Waitable()
        """Woken when the broker has read everything sent before a `sync`."""
        self.synced = 0
        self._stamp = 0
        self.feeds = Feeds()
        self.works = WorkFeeds(self.feeds.next_number)
        self.questions = Questions()
        self._control: list[bytes] = []
        self._unwoken: list[Waitable] = []
        """Items that were not woken because of a broken frame. They are woken at the end of the
        connection."""
        self._received = 0
        self._sessions = 0

    @classmethod
    def of(
        cls,
        rng: random.Random,
        token: Callable[[int], bytes],
        *,
        name: str,
        keepalive_s: float,
        now: float,
        credential: Credential | None = None,
    ) -> Self:
        """Make the conversation of a new client, with a request id, a boot number, and a secret drawn by
        ``token``."""
        prefix = new_prefix(rng)
        return cls(
            secret=token(SECRET_SIZE),
            boot=rng.getrandbits(62) + 1,
            name=name,
            prefix=prefix,
            keepalive_s=keepalive_s,
            now=now,
            credential=credential,
        )

    @property
    def falls_back(self) -> bool:
        """True if the broker refused an unknown capability. Then dial again at once: the next HELLO suits
        it."""
        return self.introduction.falls_back

    def standing(self, url: str) -> str:
        """The broker of the current session, or why there is none with ``url``: part of a sentence."""
        if self.settled:
            return f"connected to {self.broker}"
        return self.last_error or f"no connection to {url}"

    # ------------------------------------------------------------------ the connection

    def connected(self, now: float) -> None:
        """A pipe to a broker exists: say HELLO on it."""
        self.attached = True
        self.settled = False
        self._told = False
        self.keepalive = Keepalive(self.keepalive_s, now)
        self._control.clear()
        self._frames.clear()
        self.leaves_at = inf
        self.said_bye = False
        unacknowledged = self.publisher if self._unacked else None
        self._control.append(self.prefix + self.introduction.begin(self.boot, unacknowledged))

    def disconnected(self, why: str = "") -> list[Waitable]:
        """The pipe is gone. ``why`` tells the reason, unless the broker has told it. Questions that had been
        asked end as `Unknown`; the rest waits for the next session."""
        if why and not self._told:
            self.last_error = why
        self.attached = False
        self.introduction.over()
        self.settled = False
        self.credit = SendCredit()
        self.shut()
        self._control.clear()
        self._frames.clear()
        woken, self._unwoken = self._unwoken, []
        for work in self.works:
            work.lose()
            woken.append(work)
        return [*woken, self.opened, self.gate, self.heard, *self.questions.disconnected()]

    # ------------------------------------------------------------------ life

    def tick(self, now: float, late_s: float = 0.0) -> bool:
        """Say PING, once a keepalive interval. True if the broker has been silent for three intervals and
        must be dropped."""
        if not self.attached or not self.keepalive_s:
            return False
        if self.keepalive.lapsed(now, late_s):
            return True
        self.ping()
        return False

    def ping(self) -> None:
        """Probe the broker, ahead of all data."""
        if self.settled:
            self._say(Kind.PING, 0)

    def sync(self) -> int:
        """Probe the broker behind all frames that wait. ``synced`` is at least the returned number once the
        answer came."""
        for work in self.works:
            self.tell(work)
        self._stamp += 1
        if self.settled:
            self._frames.append(self.prefix + encode(Kind.PING, self._stamp))
        return self._stamp

    def close(self, reason: str) -> list[Waitable]:
        """The program is done: leave BYE to be sent, and wake everything that waits with an error."""
        for work in self.works:
            self.tell(work)
            work.end()
        if self.settled:
            self._frames.append(self.prefix + encode(Kind.BYE, reason))
            self.settled = False
        woken: list[Waitable] = [self.opened, self.gate, *self._give_up_publishing()]
        woken += self.questions.close()
        for feed in self.feeds:
            feed.closed = True
            woken.append(feed)
        return [*woken, *self.works]

    def take_control(self) -> list[bytes]:
        """Take the frames that go ahead of data, with their backtrace."""
        control, self._control = self._control, []
        return control

    def take_frames(self) -> list[bytes]:
        """Take the frames in order, with their backtrace."""
        frames, self._frames = self._frames, []
        return frames

    @property
    def has_output(self) -> bool:
        return bool(self._control or self._frames)

    def _say(self, kind: int, *fields: object) -> None:
        self._control.append(self.prefix + encode(kind, *fields))

    # ------------------------------------------------------------------ subscriptions

    def subscribe(self, patterns: Sequence[str], role: int, messages: int, size: int) -> Feed:
        """Make a subscription, announced now or when a session begins.

        Raises:
            TopicError, ValueError: a pattern or a window cannot be used.
            VersionMismatch: the broker's version does not take so many patterns.
        """
        feed = self.feeds.add(patterns, role, messages, size)
        if self.settled:
            try:
                self._announce(feed)
            except VersionMismatch:
                self.feeds.remove(feed)
                raise
        return feed

    def unsubscribe(self, feed: Feed) -> bool:
        """End a subscription; True if the broker is told."""
        told = self.feeds.remove(feed) and self.settled
        if told:
            self._frames.append(self.prefix + encode(Kind.UNSUBSCRIBE, feed.number))
        return told

    def _announce(self, feed: Feed) -> None:
        # in order, not as control: there may be more of them than control frames that a pipe holds
        self._frames += [self.prefix + frame for frame in feed.announcement(self.agreed, self.broker)]

    def _announce_all(self) -> list[Waitable]:
        """Announce every subscription to a new broker; returns those whose patterns an old broker cannot
        take."""
        failed: list[Waitable] = []
        for feed in list(self.feeds):
            try:
                self._announce(feed)
            except VersionMismatch as error:
                self._end_feed(feed, error)
                failed.append(feed)
        return failed

    def _end_feed(self, feed: Feed, error: MeshError) -> None:
        self.feeds.remove(feed)
        feed.fail(error)

    def next_run(self, feed: Feed, now: float = 0.0) -> Run | None:
        """The next run for the application. Taking it ends the run before, whose credit goes back."""
        granted = feed.take(now, self.settled)
        if granted is not None:
            self._control.append(self.prefix + credit_frame(feed.number, *granted))
        return feed.current

    # ------------------------------------------------------------------ durable subscriptions

    def attach(
        self,
        name: str,
        patterns: Sequence[str],
        messages: int,
        size: int,
        counters: WorkCounters | None = None,
    ) -> WorkFeed:
        """Work on a durable subscription, which is asked for now or when a session begins. ``counters`` are
        those of the same work at another broker, to be continued.

        Raises:
            TopicError, TypeError, ValueError: the name, a pattern or a window cannot be used.
            NotAccepted: the broker knows no durable subscriptions.
        """
        if self.settled and not self.stores:
            raise NotAccepted(self._stores_nothing())
        work = self.works.add(name, patterns, messages, size, counters or WorkCounters())
        if self.settled:
            self._frames.append(self.prefix + work.announcement())
        return work

    def tell(self, work: WorkFeed) -> None:
        """Report the settlements."""
        if self.settled:
            self._frames += [self.prefix + frame for frame in work.take_said()]

    def detach(self, work: WorkFeed) -> None:
        """Leave in order: settlements are reported, and unsettled messages go to others."""
        if self.works.remove(work):
            self.tell(work)
            if self.settled:
                self._frames.append(self.prefix + encode(Durable.DETACH, work.number))
            work.end()

    # ------------------------------------------------------------------ questions

    def ask(
        self, topic: str, body: bytes, headers: bytes, *, survey: bool, timeout_s: float, now: float
    ) -> Question:
        """Make a request or survey, sent now or when a session begins. Raises `TopicError`, ValueError."""
        question = self.questions.add(topic, body, headers, survey=survey, timeout_s=timeout_s, now=now)
        if self.settled:
            self._frames.append(self.prefix + question.frame(now))
        return question

    def give_up(self, question: Question, why: str) -> None:
        """Time out a question on this side; an answer that still comes is dropped. ``why`` says why there is
        no session, for a question that was not asked."""
        self.questions.give_up(question, self.broker, why)

    def answer(self, token: Token, body: bytes, headers: bytes = b"", *, status: int = Status.OK) -> bool:
        """Answer a question that was put to one of this client's subscriptions.

        Returns False, and sends nothing, if the session of the question is over. The asker has been told that
        this responder is gone, and the next session may have another question of that number.
        """
        if len(body) > BODY_MAX:
            raise ValueError(f"an answer of {len(body)} bytes is above the limit of {BODY_MAX}")
        return self._say_of(token, Kind.ANSWER, int(status), body, headers)

    def extend(self, token: Token, more_s: float) -> bool:
        """Ask for more time to answer; False as in `answer`."""
        return self._say_of(token, Kind.EXTEND, milliseconds(more_s))

    def _say_of(self, token: Token, kind: Kind, *fields: object) -> bool:
        if not self.settled or token.session != self._sessions:
            return False
        self._frames.append(self.prefix + encode(kind, token.number, *fields))
        return True

    # ------------------------------------------------------------------ receiving

    def received(self, frames: list[bytes], now: float) -> list[Waitable]:
        """Read frames of the pipe, with their backtraces; returns what to wake.

        Raises `PeerError` if the broker broke a rule: the connection must be dropped.
        """
        self.keepalive.heard_at = now
        runs: dict[Feed, Run] = {}
        works: dict[WorkFeed, None] = {}
        woken = self._unwoken
        try:
            for frame in frames:
                if len(frame) > 5 and frame[5] == DATA and frame[4] & 0xF0 == 0x90:
                    self.feeds.read_block(frame, runs)
                elif frame[:4] == self.prefix:
                    if len(frame) > 5 and frame[5] == WORK:
                        work = self.works.read(frame)
                        if work is not None:
                            works[work] = None
                        continue
                    fields = decode(frame, 4)
                    if fields[0] == Kind.ASK:
                        woken += self._asked(fields, len(frame) - 4)
                    elif fields[0] == Kind.CHALLENGE:
                        self._prove(frame[4:])
                    else:
                        woken += self._received_control(fields, now)
        finally:  # frames before a broken frame or an ERROR are not lost with it
            for feed, run in runs.items():
                feed.runs.append(run)
                self._received += len(run.bodies)
                woken.append(feed)
            woken += works
        self._unwoken = []
        return woken

    def _received_control(self, frame: list[Any], now: float) -> list[Waitable]:
        match frame:
            case [Kind.CREDIT, 0, messages, size]:
                return self._credited(messages, size)
            case [Kind.ACK, _, ranges, absent, homes]:
                return self._acknowledged(ranges, absent, homes)
            case [Kind.REFUSED, ranges, reason]:
                return self._refused(ranges, reason, now)
            case [Durable.PENDING, first, last, kept, waiting]:
                return self._waits_for(first, last, kept, waiting, now)
            case [Durable.PAST, first, last, homes]:
                return self._is_past(first, last, homes, now)
            case [Kind.WELCOME, *fields]:
                return self._welcomed(read_welcome(fields, self.introduction.offered), now)
            case [Kind.SUBSCRIBED, number, unreached]:
                feed = self.feeds.get(number)
                if feed is None:
                    return []
                feed.ready = True
                feed.unreached = tuple(unreached)
                return [feed]
            case [Kind.UNSUBSCRIBED, number, reason]:
                feed = self.feeds.get(number)
                if feed is None:
                    return []
                wanted = listed(feed.patterns)
                error = NotAccepted(f"broker {self.broker} refused the subscription to {wanted}: {reason}")
                self._end_feed(feed, error)
                return [feed]
            case [Kind.INTERRUPTED]:
                self.feeds.interrupted()
            case [Kind.ADDRESSES, urls]:
                self.told = tuple(urls)
            case [Kind.LEAVING, Leaving.GOAWAY, left_ms, _]:
                self.leaves_at = now + left_ms / 1000
            case [Durable.ATTACHED, number, waiting, unreached]:
                return self.works.attached(number, waiting, unreached)
            case [Durable.DETACHED, number, reason, sentence, url]:
                return self.works.detached(number, reason, sentence, url, self.broker)
            case [Kind.REPLY, *_]:
                return self.questions.replied(frame)
            case [Kind.SURVEYED, id, asked, missing]:
                return self.questions.surveyed(id, asked, missing)
            case [Kind.LONGER, id, more_ms]:
                self.questions.prolonged(id, more_ms / 1000)
            case [Kind.PING, stamp]:
                self._say(Kind.PONG, stamp)
            case [Kind.ERROR, code, sentence]:
                self.last_error, self._told = f"{code}: {sentence}", True
                self.introduction.refused(sentence)
                raise SessionError(f"the broker ended the session ({code}): {sentence}")
            case [Kind.BYE, reason]:
                names_it = self.broker in reason  # as in "broker alpha leaves"
                self.last_error = reason if names_it else f"broker {self.broker} left: {reason}"
                self._told = True
                self.settled = False
                self.said_bye = True
                self.recent.clear()
                for work in self.works:
                    work.lose()
                return [self.opened, *self.works]
            case [Kind.PONG, stamp]:
                self.synced = max(self.synced, stamp)
                return [self.heard]
            case [kind, *_]:
                raise SessionError(f"a {name_of(kind)} frame is not for a broker to send")
        return []

    def _prove(self, challenge: bytes) -> None:
        if self.settled:
            raise SessionError("the broker challenges a client that it has let in")
        self._control.append(self.prefix + self.introduction.proof(challenge))

    def _welcomed(self, welcome: Welcome, now: float, *, announce: bool = True) -> list[Waitable]:
        self.broker, self.mesh, self.agreed = welcome.broker, welcome.mesh, welcome.agreed
        self.principal = welcome.principal
        verified = self.agreed.has(PUBLISHER_SECRET)
        failed = self._identify(self.introduction.publisher(self.principal, verified=verified))
        self.settled = True
        self.last_error = ""
        self._sessions += 1
        self.stores = self.agreed.has(STORED)
        if not self.stores:
            failed += self._refuse_stored()
        self.credit = SendCredit(welcome.messages, welcome.bytes)
        if announce:
            failed += self._announce_all()
        failed += self._attach_all()
        self._resume()
        for question in self.questions:
            if not question.sent:
                self._frames.append(self.prefix + question.frame(now))
        return [self.opened, *failed, *self._credit_came()]

    def _attach_all(self) -> list[Waitable]:
        """Announce every durable subscription to a new broker; returns those that fail since the broker is
        too old."""
        failed: list[Waitable] = []
        for work in self.works:
            if self.stores:
                self._frames.append(self.prefix + work.announcement())
            else:
                self.works.remove(work)
                work.end(NotAccepted(self._stores_nothing()))
                failed.append(work)
        return failed

    def _credited(self, messages: int, size: int) -> list[Waitable]:
        self.credit.grant(messages, size)
        return self._credit_came()

    def _credit_came(self) -> list[Waitable]:
        if self.room > 0 or not self.credit.open:
            return []  # nobody waits, or the credit helps nobody
        self.resume()
        return [self.gate] if self.room > 0 else []

    def _asked(self, ask: list[Any], size: int) -> list[Waitable]:
        _, number, asked, _, topic, body, headers, _ = ask
        token = Token(self._sessions, asked)
        feed = self.feeds.read_question(number, token, topic, body, headers, size)
        if feed is None:
            self.answer(token, b"not subscribed any more", status=Status.DROPPED)
            return []
        return [feed]

    def forget_late(self, now: float) -> None:
        """Forget surveys whose late answers are no longer waited for."""
        self.questions.forget_late(now)

    def statistics(self) -> ConversationStatistics:
        return ConversationStatistics(
            published=self._published,
            blocks_out=self._blocks_out,
            dropped=self.dropped,
            received=self._received + self.works.received,
            lost_blocks=sum(feed.lost for feed in self.feeds),
            bad_blocks=sum(feed.bad_blocks for feed in self.feeds),
            sessions=self._sessions,
            forgotten=sum(feed.seen.forgotten for feed in self.feeds),
            unheard=self.pendings.unheard,
        )
