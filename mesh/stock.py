"""Stock SP sockets as clients of a broker: ``topic``, one space, payload; no session, no credit.

* REQ: ``topic payload`` publishes and gets one line back, ``accepted topic=news.uk broker=alpha seq=17``, or
  ``error: `` and a sentence. A topic of the broker's own, such as ``$sys.status``, is answered by what it
  holds.
* PUSH and PUB: ``topic payload`` publishes, fire and forget; a frame that is not so costs the connection.
* SUB: ``topic payload`` of whatever its subscriptions match (SP filters at the subscriber).

A stock SUB never tells its topics. So while one is attached its broker wants the ``export`` patterns: the
tap. Each SUB has its own bounded queue (the socket's ``send_queue``); what does not fit is dropped, newest
first as PUB does, and counted.

Nothing here waits: frames come in, the exchange and pipes are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from mesh.errors import MeshError, TopicError
from mesh.topics import check_public_topic
from protocols.pipe import Pipe

TOPICS_CACHED: Final = 4096
"""Topics known to be good that each receiver remembers; then it starts afresh."""
TEXT_SHOWN: Final = 40

Tap = Callable[[bytes, Sequence[bytes]], None]


class StockReceipt(Protocol):
    """What the exchange says of an accepted publish."""

    @property
    def sequence(self) -> int: ...


class StockExchange(Protocol):
    """The part of the exchange that stock sockets need."""

    def publish(self, topic: bytes, bodies: Sequence[bytes], level: str) -> StockReceipt: ...

    def add_tap(self, patterns: Sequence[str], callback: Tap) -> int: ...

    def remove_tap(self, tap: int) -> None: ...


class TopicCheck:
    """Which topics are good, remembered, since a publisher names few of them very often."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}

    def check(self, topic: bytes) -> None:
        """Raise `TopicError` for what may not be published to."""
        if topic in self._known:
            return
        try:
            text = topic.decode("ascii")
        except UnicodeDecodeError:
            shown = repr(topic[:TEXT_SHOWN])[1:]
            raise TopicError(f"{shown} is no topic; send one such as news.uk, a space, a payload") from None
        check_public_topic(text)
        if len(self._known) >= TOPICS_CACHED:
            self._known.clear()
        self._known[topic] = None


class StockRequests:
    """What stock REQ sockets get back; ``answers`` are the broker's own topics and what they hold."""

    def __init__(
        self, exchange: StockExchange, broker_name: str, answers: Mapping[str, Callable[[], bytes]]
    ) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._broker_name = broker_name
        self._answers = answers
        self._topics = TopicCheck()

    def answer(self, body: bytes) -> bytes:
        """The reply to one request, always one."""
        topic, _, payload = body.partition(b" ")
        try:
            if topic[:1] == b"$" and (known := self._answers.get(topic.decode("ascii", "replace"))):
                return known()
            self._topics.check(topic)
            receipt = self._exchange.publish(topic, [payload], "accepted")
        except MeshError as error:
            self.refused += 1
            return f"error: {error}".encode()
        self.published += 1
        return f"accepted topic={topic.decode()} broker={self._broker_name} seq={receipt.sequence}".encode()


class StockPublishers:
    """Receiver of the sockets that stock PUSH and PUB dial: runs of one topic are published together."""

    def __init__(self, exchange: StockExchange) -> None:
        self.published = 0
        self.refused = 0
        self._exchange = exchange
        self._topics = TopicCheck()

    def pipe_attached(self, pipe: Pipe) -> None: ...

    def pipe_detached(self, pipe: Pipe, reason: str) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        try:
            for topic, bodies in runs(frames):
                self._topics.check(topic)
                self._exchange.publish(topic, bodies, "sent")
                self.published += len(bodies)
        except MeshError as error:
            self.refused += 1
            pipe.close(f"stock publisher: {error}")


class StockTaps:
    """Receiver of the socket that stock SUBs dial: one tap on the exchange while at least one is attached."""

    def __init__(self, exchange: StockExchange, export: Sequence[str]) -> None:
        self.delivered = 0
        self.dropped = 0
        self._exchange = exchange
        self._export = tuple(export)
        self._pipes: dict[int, Pipe] = {}
        self._tap: int | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """What is wanted for stock subscribers now."""
        return () if self._tap is None else self._export

    def pipe_attached(self, pipe: Pipe) -> None:
        self._pipes[pipe.id] = pipe
        if self._tap is None and self._export:
            self._tap = self._exchange.add_tap(self._export, self.deliver)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._pipes.pop(pipe.id, None)
        if not self._pipes and self._tap is not None:
            self._exchange.remove_tap(self._tap)
            self._tap = None

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        pipe.close("a SUB socket does not send")

    def deliver(self, topic: bytes, bodies: Sequence[bytes]) -> None:
        """One encoding, many pipes."""
        prefix = topic + b" "
        frames = [prefix + body for body in bodies]
        for pipe in self._pipes.values():
            taken = pipe.send_many(frames)
            self.delivered += taken
            self.dropped += len(frames) - taken


def runs(frames: Sequence[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Frames ``topic payload`` as (topic, payloads) in order, neighbours of one topic together."""
    result: list[tuple[bytes, list[bytes]]] = []
    current: bytes | None = None
    bodies: list[bytes] = []
    for frame in frames:
        topic, _, payload = frame.partition(b" ")
        if topic != current:
            bodies = []
            result.append((topic, bodies))
            current = topic
        bodies.append(payload)
    return result
