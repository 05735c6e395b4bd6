"""Stock SP sockets as clients of a broker: ``topic``, one space, payload; no session, no credit.

* REQ: ``topic payload`` publishes and gets one line back, ``accepted topic=news.uk broker=alpha seq=17``, or
  ``error: `` and a sentence. `` absent=beta,gamma`` behind it names brokers that could not be reached.
  A topic that begins with ``$``, such as ``$sys.status``, asks the mesh instead
  and gets what the nearest broker that knows answers.
* PUSH and PUB: ``topic payload`` publishes, fire and forget; a frame that is not so costs the connection.
* SUB: ``topic payload`` of whatever its subscriptions match (SP filters at the subscriber).

A stock SUB never tells its topics. So while one is attached its broker wants the ``export`` patterns: the
tap. Each SUB has its own bounded queue (the socket's ``send_queue``); what does not fit is dropped, newest
first as PUB does, and counted.

Nothing here waits: frames come in, the exchange and pipes are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from mesh.dataplane import gate
from mesh.dataplane.gate import Gate
from mesh.errors import MeshError, NotAccepted, TopicError
from mesh.topics import check_public_topic
from mesh.wire.session_frames import Status
from protocols.pipe import Pipe

TOPICS_CACHED: Final = 4096
"""Topics known to be good that each receiver remembers; then it starts afresh."""
ANSWER_TIMEOUT_S: Final = 2.0
TEXT_SHOWN: Final = 40

Clock = Callable[[], float]
Tap = Callable[[str, list[bytes]], None]


class StockReceipt(Protocol):
    """What the exchange says of an accepted publish."""

    @property
    def seq(self) -> int: ...
    @property
    def absent(self) -> tuple[str, ...]: ...


class StockExchange(Protocol):
    """The part of the exchange that stock sockets need."""

    @property
    def gate(self) -> Gate: ...

    def drop(self, reason: str, count: int) -> None: ...

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> StockReceipt: ...

    def request(
        self, topic: str, body: bytes, timeout_s: float, callback: Callable[[int, bytes], None], now: float
    ) -> None: ...

    def add_tap(self, patterns: Sequence[str], callback: Tap) -> int: ...

    def remove_tap(self, id: int) -> None: ...


class TopicCheck:
    """Which topics are good, remembered, since a publisher names few of them very often."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def check(self, topic: bytes) -> str:
        """The topic as text; raises `TopicError` for what may not be published to."""
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
    """Text of what may be a topic; raises `TopicError`."""
    try:
        return topic.decode("ascii")
    except UnicodeDecodeError:
        shown = repr(topic[:TEXT_SHOWN])[1:]
        raise TopicError(f"{shown} is no topic; send one such as news.uk, a space, a payload") from None


class StockRequests:
    """What stock REQ sockets get back: always one reply."""

    def __init__(self, exchange: StockExchange, broker_name: str, clock: Clock) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._broker_name = broker_name
        self._clock = clock
        self._topics = TopicCheck()

    def answer(self, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Serve one request; ``reply`` is called once, mostly before this returns."""
        topic, _, payload = body.partition(b" ")
        try:
            if topic[:1] == b"$":
                self._ask(decode_topic(topic), payload, reply)
                return
            text = self._topics.check(topic)
            if self._exchange.gate.closed:
                self._hold(body, reply)
                return
            receipt = self._exchange.publish(text, [payload], "accepted", self._clock())
        except (MeshError, ValueError) as error:
            self.refused += 1
            reply(f"error: {error}".encode())
            return
        self.published += 1
        absent = f" absent={','.join(receipt.absent)}" if receipt.absent else ""
        reply(f"accepted topic={text} broker={self._broker_name} seq={receipt.seq}{absent}".encode())

    def _hold(self, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Serve it once it is known who wants it. Raises `NotAccepted` if too much waits already."""
        if not self._exchange.gate.hold(len(body), lambda now: self.answer(body, reply)):
            raise NotAccepted(f"broker {self._broker_name} {gate.REASON}")

    def _ask(self, topic: str, payload: bytes, reply: Callable[[bytes], None]) -> None:
        def answered(status: int, body: bytes) -> None:
            if status == Status.OK:
                reply(body)
            elif status == Status.NO_RESPONDERS:
                reply(f"error: nobody answers {topic}".encode())
            else:
                reply(f"error: no answer to {topic} in {ANSWER_TIMEOUT_S:g} s".encode())

        self._exchange.request(topic, payload, ANSWER_TIMEOUT_S, answered, self._clock())


class StockPublishers:
    """Receiver of the sockets that stock PUSH and PUB dial: runs of one topic are published together."""

    def __init__(self, exchange: StockExchange, clock: Clock) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._clock = clock
        self._topics = TopicCheck()

    def pipe_attached(self, pipe: Pipe) -> None: ...

    def pipe_detached(self, pipe: Pipe, reason: str) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        now = self._clock()
        try:
            if self._exchange.gate.closed:
                self._hold(pipe, frames)
                return
            for topic, bodies in runs(frames):
                self._exchange.publish(self._topics.check(topic), bodies, "sent", now)
                self.published += len(bodies)
        except (MeshError, ValueError) as error:
            self.refused += 1
            pipe.close(f"stock publisher: {error}")

    def _hold(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Publish them once it is known who wants them; nobody waits to hear, so what does not fit is
        counted."""
        size = sum(map(len, frames))
        if not self._exchange.gate.hold(size, lambda now: self.frames_received(pipe, frames)):
            self._exchange.drop("joining", len(frames))


class StockTaps:
    """Receiver of the socket that stock SUBs dial: one tap on the exchange while at least one is attached."""

    def __init__(self, exchange: StockExchange, export: Sequence[str]) -> None:
        self.delivered = 0
        self.dropped = 0
        self._exchange = exchange
        self._export = tuple(export)
        self._pipes: dict[int, Pipe] = {}
        self._tap: int | None = None

    def set_export(self, export: Sequence[str]) -> None:
        """Show other patterns from now on."""
        self._export = tuple(export)
        if self._tap is not None:
            self._exchange.remove_tap(self._tap)
            self._tap = None
        self._begin()

    def pipe_attached(self, pipe: Pipe) -> None:
        self._pipes[pipe.id] = pipe
        self._begin()

    def _begin(self) -> None:
        if self._tap is None and self._export and self._pipes:
            self._tap = self._exchange.add_tap(self._export, self.deliver)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._pipes.pop(pipe.id, None)
        if not self._pipes and self._tap is not None:
            self._exchange.remove_tap(self._tap)
            self._tap = None

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        pipe.close("a SUB socket does not send")

    def deliver(self, topic: str, bodies: list[bytes]) -> None:
        """One encoding, many pipes."""
        prefix = topic.encode() + b" "
        frames = [prefix + body for body in bodies]
        for pipe in self._pipes.values():
            taken = pipe.send_many(frames)
            self.delivered += taken
            self.dropped += len(frames) - taken


def runs(frames: Sequence[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Frames ``topic payload``, at least one, as (topic, payloads), neighbours of one topic together."""
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
