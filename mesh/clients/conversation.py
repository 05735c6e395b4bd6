"""A client's end of the session. Pure; `Client` and `BlockingClient` are two shells around it.

States: *away* (no connection, or no WELCOME yet) and *settled*. A shell tells of `connected` and
`disconnected`; between a `connected` and the WELCOME only HELLO is on the wire. With WELCOME everything
that outlives a connection is said again: subscriptions, blocks that are not acknowledged (unchanged,
marked ``AGAIN``), questions that were not asked yet. What was asked and not answered when the connection
went is over (`Unknown`): a request is never repeated by itself.

**Receiving.** `received` reads a run of frames and appends one `Run` to each `Feed` (subscription) it
concerns: lists of topics and bodies, no object a message. The credit of a run goes back when the
application takes the next one.

What a shell must look at afterwards: frames to send (`take_control`, `take_frames`) and whom to wake (the
list `received` returns).
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mesh import blocks
from mesh.clients.publishing import TOPICS_MAX, Publishing, Waitable
from mesh.errors import (
    BlockError,
    Disconnected,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    SessionError,
    Unknown,
)
from mesh.session import (
    BODY_MAX,
    DATA,
    DATA_SIZE,
    SUBSCRIPTIONS_MAX,
    VERSION,
    Keepalive,
    Kind,
    ReceiveWindow,
    SendCredit,
    Status,
    credit_frame,
    decode,
    encode,
    milliseconds,
    read_data,
)
from mesh.topics import check_pattern, check_topic

WINDOW: Final = 8192
WINDOW_BYTES: Final = 4 << 20
"""Default credit of a subscription."""

GRANT_S: Final = 0.5

_RECEIVED: Final = struct.Struct(">4xIBBHIQBIBBBBIIQQQ")
_received: Final = _RECEIVED.unpack_from
_MARK: Final = 0x9305C410
_BODY_AT: Final = 4 + DATA_SIZE + blocks.HEAD_SIZE


class Run:
    """Messages that arrived together for one subscription, as lists of one length.

    ``tokens`` is None for published messages; for questions it holds a token for each.
    """

    __slots__ = ("bodies", "epoch", "headers", "messages", "size", "tokens", "topics")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.topics: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[bytes] | None = None
        self.tokens: list[int] | None = None
        self.messages = 0
        self.size = 0


class Feed(Waitable):
    """One subscription: runs that wait for the application, and the window that bounds them."""

    __slots__ = (
        "assembler",
        "bad_blocks",
        "closed",
        "current",
        "epoch",
        "error",
        "expected",
        "granted_at",
        "lost_blocks",
        "messages",
        "number",
        "patterns",
        "ready",
        "role",
        "runs",
        "seen",
        "size",
        "unreached",
        "window",
    )

    def __init__(self, number: int, patterns: list[str], role: int, messages: int, size: int) -> None:
        super().__init__()
        self.number = number
        self.patterns = patterns
        self.role = role
        self.messages = messages
        self.size = size
        self.window = ReceiveWindow(messages, size)
        self.epoch = 0
        self.runs: deque[Run] = deque()
        self.current: Run | None = None
        self.ready = False
        self.unreached: tuple[str, ...] = ()
        self.closed = False
        self.error: MeshError | None = None
        self.expected = 1
        self.granted_at = 0.0
        self.lost_blocks = 0
        """Blocks the broker dropped because this subscriber was slow."""
        self.bad_blocks = 0
        self.assembler = blocks.Assembler(bodies_max=16)
        self.seen = blocks.Seen(publishers_max=256)

    def again(self) -> None:
        """A new session: a fresh window, to which runs of the old one no longer count."""
        self.epoch += 1
        self.window = ReceiveWindow(self.messages, self.size)
        self.expected = 1
        self.ready = False


@dataclass(slots=True)
class Answer:
    """One answer to a survey."""

    broker: str
    responder: str
    body: bytes
    headers: dict[str, blocks.HeaderValue] | None


@dataclass(slots=True)
class SurveyResult:
    """What a survey brought. ``late`` goes on growing for one more deadline after the result was returned."""

    answers: list[Answer] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Those asked who did not answer, and brokers that were silent."""
    late: list[Answer] = field(default_factory=list)
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    """Those who said they would not answer, as ``name: reason``."""


class Question(Waitable):
    """A request or a survey of this client."""

    __slots__ = (
        "body",
        "deadline",
        "done",
        "error",
        "headers",
        "id",
        "reply",
        "reply_headers",
        "result",
        "sent",
        "survey",
        "timeout_s",
        "topic",
    )

    def __init__(
        self, id: int, topic: str, body: bytes, headers: bytes, survey: bool, timeout_s: float, now: float
    ) -> None:
        super().__init__()
        self.id = id
        self.topic = topic
        self.body = body
        self.headers = headers
        self.survey = survey
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.sent = False
        self.done = False
        self.error: MeshError | None = None
        self.reply = b""
        self.reply_headers = b""
        self.result = SurveyResult()


@dataclass(frozen=True, slots=True)
class ConversationStatistics:
    """Counters of one client; cumulative over its sessions."""

    published: int
    blocks_out: int
    dropped: int
    """Messages `publish_nowait` did not take for want of credit."""
    received: int
    lost_blocks: int
    bad_blocks: int
    sessions: int


class Conversation(Publishing):
    """The session of one client with whichever broker it is connected to.

    ``prefix`` is the SP backtrace of all its frames (a request id). ``client`` and ``boot`` name it as a
    publisher.
    """

    def __init__(
        self, *, client: int, boot: int, name: str, prefix: bytes, keepalive_s: float, now: float
    ) -> None:
        super().__init__(client=client, boot=boot, prefix=prefix)
        self.name = name
        self.keepalive_s = keepalive_s
        self.keepalive = Keepalive(keepalive_s, now)
        self.mesh = ""
        self.attached = False
        self.last_error = ""
        self.opened = Waitable()
        """Woken when a session begins, and when one ends."""
        self.gate = Waitable()
        """Woken when there is credit again."""
        self.heard = Waitable()
        """Woken when the broker has read everything sent before a `sync`."""
        self.synced = 0
        self._stamp = 0
        self._topics: dict[bytes, str] = {}
        self._feeds: dict[int, Feed] = {}
        self._number = 0
        self._questions: dict[int, Question] = {}
        self._question_id = 0
        self._control: list[bytes] = []
        self._received = 0
        self._sessions = 0

    @classmethod
    def of(cls, rng: random.Random, *, name: str, keepalive_s: float, now: float) -> Conversation:
        """That of a client which draws its ids: a request id, a name as a publisher, and this life of it."""
        prefix = (0x80000000 | rng.getrandbits(31)).to_bytes(4, "big")
        return cls(
            client=rng.getrandbits(62) + 1,
            boot=rng.getrandbits(62) + 1,
            name=name,
            prefix=prefix,
            keepalive_s=keepalive_s,
            now=now,
        )

    def standing(self, url: str) -> str:
        """With whom there is a session, or why there is none with ``url``: part of a sentence."""
        if self.settled:
            return f"connected to {self.broker}"
        return self.last_error or f"no connection to {url}"

    # ------------------------------------------------------------------ the connection

    def connected(self, now: float) -> None:
        """A pipe to a broker is there: say HELLO on it."""
        self.attached = True
        self.settled = False
        self.keepalive = Keepalive(self.keepalive_s, now)
        self._control.clear()
        self._frames.clear()
        self._say(Kind.HELLO, VERSION, self.client, self.boot, self.name, round(self.keepalive_s * 1000))

    def disconnected(self, now: float) -> list[Waitable]:
        """The pipe is gone. Questions that had been asked end as `Unknown`; the rest waits for the next
        session."""
        self.attached = False
        self.settled = False
        self.credit = SendCredit()
        self.shut()
        self._control.clear()
        self._frames.clear()
        woken: list[Waitable] = [self.opened, self.heard]
        for question in list(self._questions.values()):
            if question.sent:
                if not question.done:
                    self._fail(
                        question, Unknown("the connection to the broker was lost before an answer came")
                    )
                    woken.append(question)
                self._questions.pop(question.id, None)
        return woken

    def tick(self, now: float, late_s: float = 0.0) -> bool:
        """Once a keepalive interval: say PING. True when the broker has been silent for three and must be
        dropped."""
        if not self.attached or not self.keepalive_s:
            return False
        if self.keepalive.lapsed(now, late_s):
            return True
        if self.settled:
            self._say(Kind.PING, 0)
        return False

    def sync(self) -> int:
        """Ask, behind everything sent so far, for a sign; ``synced`` is at least this number once it came."""
        self._stamp += 1
        if self.settled:
            self._frames.append(self.prefix + encode(Kind.PING, self._stamp))
        return self._stamp

    def close(self, reason: str) -> list[Waitable]:
        """The program is done: BYE is left to be sent, everything that waits is woken with an error."""
        if self.settled:
            self._frames.append(self.prefix + encode(Kind.BYE, reason))
        woken: list[Waitable] = [self.opened, self.gate, *self._give_up_publishing()]
        for question in self._questions.values():
            if not question.done:
                self._fail(question, Disconnected("the client was closed"))
                woken.append(question)
        self._questions.clear()
        for feed in self._feeds.values():
            feed.closed = True
            woken.append(feed)
        return woken

    def take_control(self) -> list[bytes]:
        """Frames that go ahead of data, with their backtrace."""
        control, self._control = self._control, []
        return control

    def take_frames(self) -> list[bytes]:
        """Frames in order, with their backtrace."""
        frames, self._frames = self._frames, []
        return frames

    @property
    def has_output(self) -> bool:
        return bool(self._control or self._frames)

    def _say(self, kind: int, *fields: object) -> None:
        self._control.append(self.prefix + encode(kind, *fields))

    # ------------------------------------------------------------------ subscriptions

    def subscribe(self, patterns: Sequence[str], role: int, messages: int, size: int) -> Feed:
        """A new subscription, announced now or when a session begins. Raises `TopicError`, ValueError."""
        if not patterns:
            raise ValueError("subscribe needs at least one pattern, such as 'news.#'")
        if messages < 1 or size < 1:
            raise ValueError(f"a window of {messages} messages and {size} bytes must be above zero")
        checked = [check_pattern(pattern) for pattern in patterns]
        if len(self._feeds) >= SUBSCRIPTIONS_MAX:
            raise ValueError(
                f"a client has at most {SUBSCRIPTIONS_MAX} subscriptions; one may have many patterns"
            )
        self._number += 1
        feed = self._feeds[self._number] = Feed(self._number, checked, role, messages, size)
        if self.settled:
            self._announce(feed)
        return feed

    def unsubscribe(self, feed: Feed) -> None:
        if self._feeds.pop(feed.number, None) is not None and self.settled:
            self._frames.append(self.prefix + encode(Kind.UNSUBSCRIBE, feed.number))
        feed.closed = True

    def _announce(self, feed: Feed) -> None:
        feed.again()
        self._frames.append(  # in order: there may be more of them than control frames a pipe holds
            self.prefix
            + encode(Kind.SUBSCRIBE, feed.number, feed.patterns, feed.role, feed.messages, feed.size)
        )

    def next_run(self, feed: Feed, now: float = 0.0) -> Run | None:
        """The next run for the application, which is thereby done with the one before.

        Its credit goes back by the quarter window, and twice a second: the broker shall see that a slow
        application is not one that has stopped.
        """
        done, feed.current = feed.current, None
        if (
            done is not None
            and self.settled
            and done.epoch == feed.epoch
            and (feed.window.settle(done.messages, done.size) or now - feed.granted_at >= GRANT_S)
        ):
            feed.granted_at = now
            self._control.append(self.prefix + credit_frame(feed.number, *feed.window.grant()))
        if feed.runs:
            feed.current = feed.runs.popleft()
        return feed.current

    # ------------------------------------------------------------------ questions

    def ask(
        self, topic: str, body: bytes, headers: bytes, *, survey: bool, timeout_s: float, now: float
    ) -> Question:
        """A request or survey, sent now or when a session begins. Raises `TopicError`, ValueError."""
        if not timeout_s > 0:
            raise ValueError(f"a timeout of {timeout_s} s is not above zero")
        check_topic(topic)
        if len(body) > BODY_MAX:
            raise ValueError(f"a body of {len(body)} bytes is above the {BODY_MAX} of requests and surveys")
        self._question_id += 1
        question = Question(self._question_id, topic, body, headers, survey, timeout_s, now)
        self._questions[question.id] = question
        if self.settled:
            self._put(question, now)
        return question

    def _put(self, question: Question, now: float) -> None:
        question.sent = True
        kind = Kind.SURVEY if question.survey else Kind.REQUEST
        left_ms = milliseconds(question.deadline - now)
        self._frames.append(
            self.prefix + encode(kind, question.id, question.topic, question.body, question.headers, left_ms)
        )

    def give_up(self, question: Question, now: float) -> None:
        """Its time is over on this side too; an answer that still comes is dropped."""
        if question.done:
            return
        self._questions.pop(question.id, None)
        where = f"broker {self.broker} did not answer" if question.sent else "there was no connection"
        self._fail(
            question, MeshTimeout(f"no answer on {question.topic!r} in {question.timeout_s:g} s: {where}")
        )

    def answer(self, token: int, body: bytes, headers: bytes = b"", *, status: int = Status.OK) -> None:
        """Answer a question that was put to one of this client's subscriptions."""
        if len(body) > BODY_MAX:
            raise ValueError(f"an answer of {len(body)} bytes is above the limit of {BODY_MAX}")
        if self.settled:  # otherwise the asker has been told already that this session is gone
            self._frames.append(self.prefix + encode(Kind.ANSWER, token, int(status), body, headers))

    def extend(self, token: int, more_s: float) -> None:
        """Ask for more time to answer."""
        if self.settled:
            self._frames.append(self.prefix + encode(Kind.EXTEND, token, milliseconds(more_s)))

    def _fail(self, question: Question, error: MeshError) -> None:
        question.done = True
        question.error = error

    # ------------------------------------------------------------------ receiving

    def received(self, frames: list[bytes], now: float) -> list[Waitable]:
        """Read frames of the pipe, backtrace and all; returns whom to wake.

        Raises `PeerError` when the broker broke a rule: the connection must be dropped.
        """
        self.keepalive.heard_at = now
        runs: dict[Feed, Run] = {}
        woken: list[Waitable] = []
        try:
            for frame in frames:
                if len(frame) > 5 and frame[5] == DATA and frame[4] & 0xF0 == 0x90:
                    self._received_block(frame, runs)
                elif frame[:4] == self.prefix:
                    fields = decode(frame, 4)
                    if fields[0] == Kind.ASK:
                        woken += self._asked(fields, len(frame) - 4)
                    else:
                        woken += self._received_control(fields, now)
        finally:  # what came before a broken frame, or an ERROR, is not lost with it
            for feed, run in runs.items():
                feed.runs.append(run)
                self._received += len(run.bodies)
                woken.append(feed)
        return woken

    def _received_block(self, frame: bytes, runs: dict[Feed, Run]) -> None:
        if len(frame) < _BODY_AT:
            raise SessionError(f"a DATA frame of {len(frame)} bytes is shorter than its heads")
        (
            mark, _, _, zero, number, sequence, bin32, size,
            form, kind, level, topic_size, count, record, first, publisher, boot,
        ) = _received(frame)  # fmt: skip
        if mark != _MARK or bin32 != 0xC6 or zero or size != len(frame) - 4 - DATA_SIZE:
            read_data(frame, 4)  # says what is wrong, if it is one of the things it looks at
            raise SessionError("a DATA frame's head does not have its fixed form")
        feed = self._feeds.get(number)
        if feed is None:
            return  # it crossed our UNSUBSCRIBE
        window = feed.window
        if window.messages_left <= 0 or window.bytes_left <= 0:
            window.arrive(count, size)  # raises
        window.messages_left -= count
        window.bytes_left -= size
        if sequence != feed.expected:
            feed.lost_blocks += sequence - feed.expected
        feed.expected = sequence + 1
        run = runs.get(feed)
        if run is None:
            run = runs[feed] = Run(feed.epoch)
        run.messages += count
        run.size += size
        at = _BODY_AT + topic_size
        if level and not kind & blocks.PIECE and not feed.seen.add(publisher, boot, first, count):
            return
        if kind != blocks.EQUAL or form != blocks.FORMAT or at + count * record != len(frame):
            self._received_other(frame, feed, run)
            return
        encoded = frame[_BODY_AT:at]
        topic = self._topics.get(encoded) or self._decode_topic(encoded)
        if count == 1:
            run.topics.append(topic)
            run.bodies.append(frame[at:])
        else:
            run.topics += [topic] * count
            run.bodies += blocks.equal_slices(frame, at, count, record)
        if run.headers is not None:
            run.headers += [b""] * count

    def _received_other(self, frame: bytes, feed: Feed, run: Run) -> None:
        """Blocks of mixed lengths, with headers, or a piece of a large body."""
        try:
            opened = blocks.open_block(frame, 4 + DATA_SIZE)
            topic = self._topics.get(opened.topic) or self._decode_topic(opened.topic)
        except BlockError:
            feed.bad_blocks += 1  # another client's fault: it costs neither this session nor its broker
            return
        bodies, headers = opened.bodies, opened.headers
        if opened.whole_size:
            whole = feed.assembler.add(opened)
            if whole is None:
                return
            if opened.level and not feed.seen.add(opened.publisher, opened.boot, opened.sequence, 1):
                return
            bodies, headers = [whole[0]], [whole[1]]
        if run.headers is None and headers is not None:
            run.headers = [b""] * len(run.bodies)
        run.topics += [topic] * len(bodies)
        run.bodies += bodies
        if run.headers is not None:
            run.headers += headers if headers is not None else [b""] * len(bodies)

    def _decode_topic(self, encoded: bytes) -> str:
        try:
            topic = encoded.decode("ascii")
        except UnicodeDecodeError as error:
            raise BlockError(f"topic {encoded!r} is not ASCII") from error
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics[encoded] = topic
        return topic

    def _received_control(self, frame: list[Any], now: float) -> list[Waitable]:
        match frame:
            case [Kind.CREDIT, 0, messages, size]:
                self.credit.grant(messages, size)
                return self._credit_came()
            case [Kind.ACK, _, ranges, absent]:
                return self._acknowledged(ranges, absent)
            case [Kind.REFUSED, ranges, reason]:
                return self._refused(ranges, reason)
            case [Kind.WELCOME, version, _, broker, mesh, _, messages, size]:
                return self._welcomed(version, broker, mesh, messages, size, now)
            case [Kind.SUBSCRIBED, number, unreached]:
                feed = self._feeds.get(number)
                if feed is None:
                    return []
                feed.ready = True
                feed.unreached = tuple(unreached)
                return [feed]
            case [Kind.REPLY, id, status, body, headers, broker, responder]:
                return self._replied(id, status, body, headers, broker, responder)
            case [Kind.SURVEYED, id, asked, missing]:
                return self._surveyed(id, asked, missing)
            case [Kind.LONGER, id, more_ms]:
                if id in self._questions:
                    self._questions[id].deadline += more_ms / 1000
            case [Kind.PING, stamp]:
                self._say(Kind.PONG, stamp)
            case [Kind.ERROR, code, sentence]:
                self.last_error = f"{code}: {sentence}"
                raise SessionError(f"the broker ended the session ({code}): {sentence}")
            case [Kind.BYE, reason]:
                self.last_error = f"broker {self.broker} left: {reason}"
                self.settled = False
                return [self.opened]
            case [Kind.PONG, stamp]:
                self.synced = max(self.synced, stamp)
                return [self.heard]
            case [kind, *_]:
                raise SessionError(f"a {Kind(kind).name} frame is not for a broker to send")
        return []

    def _welcomed(
        self, version: int, broker: str, mesh: str, messages: int, size: int, now: float
    ) -> list[Waitable]:
        if version != VERSION:
            raise SessionError(f"broker {broker} speaks session version {version}, this client {VERSION}")
        self.broker, self.mesh = broker, mesh
        self.settled = True
        self.last_error = ""
        self._sessions += 1
        self.credit = SendCredit(messages, size)
        for feed in self._feeds.values():
            self._announce(feed)
        self._resume()
        for question in self._questions.values():
            if not question.sent:
                self._put(question, now)
        return [self.opened, *self._credit_came()]

    def _credit_came(self) -> list[Waitable]:
        if self.room > 0 or not self.credit.open:
            return []  # nobody waits, or nobody is helped
        self.resume()
        return [self.gate] if self.room > 0 else []

    def _asked(self, ask: list[Any], size: int) -> list[Waitable]:
        _, number, token, _, topic, body, headers, _ = ask
        feed = self._feeds.get(number)
        if feed is None:
            self.answer(token, b"not subscribed any more", status=Status.DROPPED)
            return []
        run = Run(feed.epoch)
        run.topics, run.bodies, run.headers, run.tokens = [topic], [body], [headers], [token]
        feed.window.arrive(1, size)
        run.messages, run.size = 1, size
        feed.runs.append(run)
        return [feed]

    def _replied(
        self, id: int, status: int, body: bytes, headers: bytes, broker: str, responder: str
    ) -> list[Waitable]:
        question = self._questions.get(id)
        if question is None:
            return []
        if question.survey:
            self._survey_reply(question, status, body, headers, broker, responder)
            return []
        del self._questions[id]
        if question.done:
            return []
        match status:
            case Status.OK:
                question.done = True
                question.reply, question.reply_headers = body, headers
            case Status.NO_RESPONDERS:
                self._fail(question, NoResponders(f"nobody who answers subscribes to {question.topic!r}"))
            case Status.DROPPED:
                reason = body.decode("utf-8", "replace")
                self._fail(question, NotAccepted(f"{responder} at {broker} refused to answer: {reason}"))
            case Status.GONE:
                who = responder or broker
                self._fail(question, Unknown(f"{who} was asked and disappeared before it answered"))
            case _:
                self._fail(
                    question,
                    MeshTimeout(f"no answer on {question.topic!r} in {question.timeout_s:g} s"),
                )
        return [question]

    def _survey_reply(
        self, question: Question, status: int, body: bytes, headers: bytes, broker: str, responder: str
    ) -> None:
        if status == Status.OK:
            try:
                unpacked = blocks.unpack_headers(headers)
            except BlockError:
                unpacked = None
            answer = Answer(broker, responder, body, unpacked)
            (question.result.late if question.done else question.result.answers).append(answer)
        elif not question.done:
            question.result.refused.append(f"{responder}: {body.decode('utf-8', 'replace')}")

    def _surveyed(self, id: int, asked: int, missing: list[str]) -> list[Waitable]:
        question = self._questions.get(id)
        if question is None or question.done:
            return []
        question.done = True
        question.result.asked = asked
        question.result.missing = missing
        if not missing:
            del self._questions[id]
        return [question]

    def forget_late(self, now: float) -> None:
        """Surveys whose late answers are no longer waited for."""
        for question in list(self._questions.values()):
            if question.done and now > question.deadline + question.timeout_s:
                del self._questions[question.id]

    def statistics(self) -> ConversationStatistics:
        return ConversationStatistics(
            published=self._published,
            blocks_out=self._blocks_out,
            dropped=self.dropped,
            received=self._received,
            lost_blocks=sum(feed.lost_blocks for feed in self._feeds.values()),
            bad_blocks=sum(feed.bad_blocks for feed in self._feeds.values()),
            sessions=self._sessions,
        )
