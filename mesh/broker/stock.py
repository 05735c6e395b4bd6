"""Stock SP sockets as clients of a broker: ``topic``, one space, payload; no session, no credit.

* REQ: ``topic payload`` publishes and gets one line back, ``accepted topic=news.uk broker=alpha seq=17``, or
  ``error: `` and a sentence. `` absent=beta,gamma`` at the end names brokers that could not be reached. A
  topic that begins with ``$``, such as ``$sys.status``, is a request to the mesh, and gets the answer of the
  nearest broker.
* PUSH and PUB: ``topic payload`` publishes without any reply. A frame of another form costs the connection,
  and the log says why. While the broker is joining, their messages wait at its gate (`mesh.dataplane.gate`).
  A connection that fills its share there is not read until a part of it has passed.
* SUB: gets ``topic payload`` for every match of its subscriptions (SP filters at the subscriber).

A stock SUB never tells its topics. So each one makes its broker want the ``export`` patterns. The exchange
treats it as a subscriber of another protocol, with its own encoder (`StockEncoder`) and a bound in bytes.
Messages beyond the bound are dropped, newest first as PUB does, and counted.

The principal of each decides what it may do (`mesh.broker.stock_guests`).

Nothing here waits: frames come in, and the exchange and pipes are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from mesh.access.door import NotAllowed, Standing
from mesh.broker.stock_guests import StockGuests
from mesh.dataplane import gate
from mesh.dataplane.backlogs import Buffer
from mesh.dataplane.gate import Gate, Part
from mesh.dataplane.outlets import Encoder
from mesh.errors import BlockError, MeshError, NotAccepted, SessionError, TopicError
from mesh.logs import log
from mesh.topics import check_public_topic
from mesh.wire import blocks
from mesh.wire.session_frames import Status
from protocols import PipeView
from protocols.peer_warnings import PeerWarnings, host_of, name_of
from protocols.pipe import HELD, Pipe

TOPICS_CACHED: Final = 4096
"""Valid topics that each receiver remembers before it starts afresh."""
ANSWER_TIMEOUT_S: Final = 2.0
TEXT_SHOWN: Final = 40

Clock = Callable[[], float]


class StockReceipt(Protocol):
    """The exchange's receipt for an accepted publish."""

    @property
    def seq(self) -> int: ...
    @property
    def absent(self) -> tuple[str, ...]: ...


class Subscribers(Protocol):
    """Delivers to stock SUB sockets; `mesh.dataplane.foreign_subscribers` implements it."""

    def add(self, pipe: Pipe, patterns: Sequence[str], encode: Encoder) -> None: ...

    def change(self, pipe: Pipe, patterns: Sequence[str]) -> None: ...

    def remove(self, pipe: Pipe) -> None: ...


class StockExchange(Protocol):
    """The part of the exchange that stock sockets need."""

    @property
    def gate(self) -> Gate: ...
    @property
    def subscribers(self) -> Subscribers: ...

    def holds(self, now: float) -> bool: ...

    def drop(self, reason: str, count: int) -> None: ...

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> StockReceipt: ...

    def request(
        self, topic: str, body: bytes, timeout_s: float, callback: Callable[[int, bytes], None], now: float
    ) -> None: ...

    def pipe_writable(self, pipe: Pipe, now: float) -> None: ...


class TopicCheck:
    """Remembers valid topics, since a publisher uses few of them very often."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def check(self, topic: bytes) -> str:
        """The topic as text. Raises `TopicError` for one that may not be published to."""
        known = self._known.get(topic)
        if known is not None:
            return known
        text = decode_topic(topic)
        check_public_topic(text)
        if len(self._known) >= TOPICS_CACHED:
            self._known.clear()
        self._known[topic] = text
        return text


def decode_topic(topic: bytes) -> str:
    """The text of a possible topic. Raises `TopicError`."""
    try:
        return topic.decode("ascii")
    except UnicodeDecodeError:
        shown = repr(topic[:TEXT_SHOWN])[1:]
        raise TopicError(f"{shown} is not a topic; send one such as news.uk, a space and a payload") from None


class StockRequests:
    """Replies to stock REQ sockets: always one for each request."""

    def __init__(self, exchange: StockExchange, broker_name: str, clock: Clock, guests: StockGuests) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._broker_name = broker_name
        self._clock = clock
        self._guests = guests
        self._topics = TopicCheck()
        self._held = Part(exchange.gate)

    def answer(self, pipe: Pipe, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Serve one request that came by a pipe. ``reply`` is called once, mostly before this returns."""
        topic, _, payload = body.partition(b" ")
        try:
            rights = self._guests.of(pipe).rights
            if topic[:1] == b"$":
                text = decode_topic(topic)
                if rights is not None and (refusal := rights.refusal("ask", text)):
                    raise NotAllowed(refusal)
                self._ask(text, payload, reply)
                return
            text = self._topics.check(topic)
            if rights is not None and (refusal := self._guests.refusal(pipe, text, topic, [payload])):
                raise NotAllowed(refusal)
            self._guests.published(pipe, 1)
            now = self._clock()
            if self._exchange.holds(now):
                self._hold(pipe, text, payload, reply)
            else:
                self._publish(text, payload, reply, now)
        except (MeshError, ValueError) as error:
            self.refused += 1
            reply(f"error: {error}".encode())

    def _publish(self, text: str, payload: bytes, reply: Callable[[bytes], None], now: float) -> None:
        try:
            receipt = self._exchange.publish(text, [payload], "accepted", now)
        except (MeshError, ValueError) as error:
            self.refused += 1
            reply(f"error: {error}".encode())
            return
        self.published += 1
        absent = f" absent={','.join(receipt.absent)}" if receipt.absent else ""
        reply(f"accepted topic={text} broker={self._broker_name} seq={receipt.seq}{absent}".encode())

    def _hold(self, pipe: Pipe, text: str, payload: bytes, reply: Callable[[bytes], None]) -> None:
        """Serve it once the interest of others is known. Raises `NotAccepted` if too much waits already."""
        size = len(text) + 1 + len(payload) + gate.FRAME_COST
        if not self._held.hold(pipe, size, partial(self._publish, text, payload, reply)):
            raise NotAccepted(f"broker {self._broker_name} {gate.REASON}")

    def _ask(self, topic: str, payload: bytes, reply: Callable[[bytes], None]) -> None:
        def answered(status: int, body: bytes) -> None:
            if status == Status.OK:
                reply(body)
            elif status == Status.NO_RESPONDERS:
                reply(f"error: nobody answers {topic}".encode())
            elif status == Status.DROPPED:
                reply(b"error: " + body)
            else:
                reply(f"error: no answer to {topic} in {ANSWER_TIMEOUT_S:g} s".encode())

        self._exchange.request(topic, payload, ANSWER_TIMEOUT_S, answered, self._clock())


class StockPublishers:
    """Receiver of the sockets that stock PUSH and PUB dial. Consecutive messages of one topic are published
    together."""

    def __init__(self, exchange: StockExchange, clock: Clock, guests: StockGuests) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._clock = clock
        self._guests = guests
        self._topics = TopicCheck()
        self._held = Part(exchange.gate)
        self._warnings = PeerWarnings(log)

    def pipe_attached(self, pipe: Pipe) -> None:
        try:
            self._guests.of(pipe)
        except SessionError as error:  # it was admitted a moment ago
            pipe.close(str(error))

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._guests.gone(pipe)

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        now = self._clock()
        if self._exchange.holds(now):
            self._hold(pipe, frames, now)
        else:
            self._publish(pipe, frames, now)

    def _publish(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        left = len(frames)
        try:
            for topic, bodies in runs(frames):
                text = self._topics.check(topic)
                left -= len(bodies)  # published, or counted by the exchange
                if refusal := self._guests.refusal(pipe, text, topic, bodies):
                    self.refused += len(bodies)
                    self._exchange.drop(NotAllowed.reason, len(bodies))
                    self._warn(pipe, now, refusal, "loses %d messages: %s", len(bodies), refusal)
                    continue
                self._exchange.publish(text, bodies, "sent", now)
                self.published += len(bodies)
                self._guests.published(pipe, len(bodies))
        except NotAccepted:
            self._exchange.drop("leaving", left)
        except (MeshError, ValueError) as error:
            self.refused += 1
            self._exchange.drop("bad_topic", left)
            self._warn(pipe, now, type(error), "loses its connection and %d messages: %s", left, error)
            pipe.close(f"stock publisher: {error}")

    def _warn(self, pipe: Pipe, now: float, kind: object, sentence: str, *words: object) -> None:
        peer = name_of(pipe.connection)
        key = (host_of(peer), kind)
        self._warnings.warn(now, key, "a stock publisher at %s " + sentence, peer, *words)

    def _hold(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        """Publish them once the interest of others is known. Nobody waits for a reply, so messages without
        room are counted."""
        size = sum(map(len, frames)) + gate.FRAME_COST * len(frames)
        if not self._held.hold(pipe, size, partial(self._pass, pipe, frames)):
            self._exchange.drop("joining", len(frames))
            sentence = "loses %d messages: this broker %s"
            self._warn(pipe, now, "joining", sentence, len(frames), gate.REASON)
        elif self._held.is_full(pipe):
            pipe.pause(HELD)

    def _pass(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        if not self._held.is_full(pipe):
            pipe.resume(HELD)
        self._publish(pipe, frames, now)


class LastOpened:
    """Caches the last opened block, since the exchange offers each to all stock subscribers in turn."""

    __slots__ = ("block", "frames", "piece", "topic")

    def __init__(self) -> None:
        self.block: Buffer = b""
        self.topic = b""
        self.frames: list[bytes] = []
        """The frames of the block. For the last piece of a large body: set once a first subscriber has all
        pieces."""
        self.piece: blocks.Opened | None = None
        """The block, if it is a piece of a large body."""

    def open(self, block: Buffer) -> None:
        self.block, self.topic, self.frames, self.piece = block, b"", [], None
        try:
            opened = blocks.open_block(bytes(block))
        except BlockError:
            return  # from another broker; blocks of clients were checked when they came in
        self.topic = opened.topic
        if opened.whole_size:
            self.piece = opened
        else:
            prefix = opened.topic + b" "
            self.frames = [prefix + body for body in opened.bodies]


class StockEncoder:
    """Makes the frames for one stock subscriber: ``topic payload`` for each message, with large bodies
    assembled. Each subscriber has its own assembler, since a slow one gets pieces later than others.

    ``drop`` counts large bodies given up because too many were unfinished at once. Messages that ``standing``
    may not receive are left out.
    """

    def __init__(
        self, last: LastOpened, drop: Callable[[str, int], None], standing: Standing | None = None
    ) -> None:
        self._standing = standing
        self._last = last
        self._drop = drop
        self._assembler = blocks.Assembler()

    def encode(self, frames: list[bytes], block: Buffer, hops: int, flags: int, sequence: int) -> None:
        last = self._last
        if block is not last.block:
            last.open(block)
        rights = None if self._standing is None else self._standing.rights
        if rights is not None and not rights.may_hear(last.topic):
            return
        if last.piece is None or self._ends_body(last.piece):
            frames += last.frames

    def _ends_body(self, piece: blocks.Opened) -> bool:
        """Take a piece. Returns whether its body is now complete, and the frame."""
        before = self._assembler.given_up
        whole = self._assembler.add(piece)
        if whole is None:
            self._drop("unfinished_body", self._assembler.given_up - before)
            return False
        if not self._last.frames:
            self._last.frames = [b"%b %b" % (piece.topic, whole[0])]
        return True


class StockSubscribers:
    """Receiver of the socket that stock SUBs dial."""

    def __init__(
        self, exchange: StockExchange, export: Sequence[str], clock: Clock, guests: StockGuests
    ) -> None:
        self._exchange = exchange
        self._export = tuple(export)
        self._clock = clock
        self._guests = guests
        self._last = LastOpened()
        self._pipes: dict[Pipe, Standing] = {}

    def set_export(self, export: Sequence[str]) -> None:
        """Export other patterns from now on."""
        self._export = tuple(export)
        self.rights_changed()

    def rights_changed(self) -> None:
        """The rights of the subscribers changed, or the exported patterns."""
        for pipe, standing in list(self._pipes.items()):
            shown = self._shown_to(standing)
            self._exchange.subscribers.change(pipe, shown)
            if self._export and not shown:
                pipe.close(f"principal {standing.name!r} may no longer receive any of the exported patterns")

    def admit(self, pipe: Pipe | PipeView) -> None:
        """Raises `PipeRefused`."""
        self._guests.admit("subscribe", self._export, pipe)

    def _shown_to(self, standing: Standing) -> tuple[str, ...]:
        rights = standing.rights
        return self._export if rights is None else tuple(rights.narrowed(self._export))

    def pipe_attached(self, pipe: Pipe) -> None:
        try:
            standing = self._guests.of(pipe)
        except SessionError as error:  # it was admitted a moment ago
            pipe.close(str(error))
            return
        self._pipes[pipe] = standing
        encoder = StockEncoder(self._last, self._exchange.drop, standing)
        self._exchange.subscribers.add(pipe, self._shown_to(standing), encoder.encode)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._pipes.pop(pipe, None)
        self._guests.gone(pipe)
        self._exchange.subscribers.remove(pipe)

    def pipe_writable(self, pipe: Pipe) -> None:
        self._exchange.pipe_writable(pipe, self._clock())

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        pipe.close("a SUB socket does not send")


def runs(frames: Sequence[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Frames ``topic payload``, at least one, as (topic, payloads), with neighbours of one topic together."""
    prefix = frames[0].partition(b" ")[0] + b" "
    start = len(prefix)
    bodies = [frame[start:] for frame in frames if frame.startswith(prefix)]
    if len(bodies) == len(frames):  # one topic: three times as fast as below
        return [(prefix[:-1], bodies)]
    result: list[tuple[bytes, list[bytes]]] = []
    current: bytes | None = None
    for frame in frames:
        topic, _, payload = frame.partition(b" ")
        if topic != current:
            bodies = []
            result.append((topic, bodies))
            current = topic
        bodies.append(payload)
    return result
