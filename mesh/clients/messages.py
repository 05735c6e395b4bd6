"""Messages as programs see them: `Delivery`, `Request` and `Batch`, for `Client` and `BlockingClient`.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from typing import Any, Protocol

import msgspec

from mesh.clients.arguments import checked_body, checked_seconds
from mesh.clients.feeds import Run, Token
from mesh.errors import BlockError, MeshError
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue
from mesh.wire.session_frames import Status


class Consumer(Protocol):
    """The subscription that brought a message."""

    dropped: int
    malformed: int
    """Messages and questions not handed to the program because their headers cannot be decoded."""
    late: int
    """Answers not given because the session in which they were asked was over."""

    def redeliver(self, delivery: Delivery, after: float) -> None: ...

    def answer(self, token: Token, body: bytes, status: int) -> bool: ...

    def extend(self, token: Token, seconds: float) -> bool: ...


class Delivery(msgspec.Struct, eq=False, gc=False):
    """One message. `done`, `retry` and `drop` settle it; for a request they are the answer.

    `done`, `drop` and `extend` return False only for a request whose connection is gone. Its asker knows that
    (`Unknown`), and no answer reaches it any more.

    It is a `msgspec.Struct` because one is made for every message: 56 ns against 148 for a class with
    ``__init__``. The garbage collector does not track it: the only cycle it could be in, by `retry`, ends
    with its subscription.
    """

    topic: str
    body: bytes
    _packed: bytes | None
    _consumer: Consumer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} {len(self.body)} bytes, attempt {self.attempt}>"

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The publisher's headers; empty for none. A subscription hands over only messages with readable
        headers (`keep_sound`)."""
        return (blocks.unpack_headers(self._packed) if self._packed else None) or {}

    @property
    def key(self) -> str | None:
        """The publisher's own id for the message, if it gave one."""
        key = self.headers.get("key")
        return key if isinstance(key, str) else None

    @property
    def attempt(self) -> int:
        """Number of this attempt: 1, plus one for each `retry`."""
        return 1

    @property
    def is_request(self) -> bool:
        """True if somebody waits for `done(result)`."""
        return False

    def done(self, result: bytes | None = None) -> bool:
        """Settle the message as processed. Only a request takes a result."""
        if result is not None:
            raise MeshError(f"the message on {self.topic!r} was published, nobody waits for a result")
        return True

    def retry(self, after: float = 0.0) -> None:
        """Have it delivered to this subscription again after that many seconds, with `attempt` increased."""
        self._consumer.redeliver(Redelivery.of(self), checked_seconds("after", after))

    def drop(self, reason: str = "") -> bool:
        """Refuse the message: it cannot be processed. The subscription's ``dropped`` counts it."""
        self._consumer.dropped += 1
        return True

    def extend(self, seconds: float = 30.0) -> bool:
        """Ask for more time. Only a request has a deadline; a published message may take as long as it
        likes."""
        return True


class Redelivery(Delivery, eq=False, gc=False):
    """A message that `Delivery.retry` brought back."""

    _attempt: int
    _origin: Delivery

    @classmethod
    def of(cls, delivery: Delivery) -> Redelivery:
        origin = delivery._origin if isinstance(delivery, Redelivery) else delivery
        return cls(
            delivery.topic, delivery.body, delivery._packed, delivery._consumer, delivery.attempt + 1, origin
        )

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def is_request(self) -> bool:
        return self._origin.is_request

    def done(self, result: bytes | None = None) -> bool:
        return self._origin.done(result)

    def drop(self, reason: str = "") -> bool:
        return self._origin.drop(reason)

    def extend(self, seconds: float = 30.0) -> bool:
        return self._origin.extend(seconds)


class Request(Delivery, eq=False, gc=False):
    """A request or survey. `done(result)` answers it, `drop(reason)` refuses it. If the connection is gone,
    the subscription's ``late`` counts the answer."""

    _token: Token
    answered: bool = False

    @property
    def is_request(self) -> bool:
        return True

    def done(self, result: bytes | None = None) -> bool:
        """Answer with ``result`` (empty if None). Raises `MeshError` the second time."""
        return self._answer(b"" if result is None else checked_body(result), Status.OK)

    def drop(self, reason: str = "") -> bool:
        """Refuse to answer: the asker gets `NotAccepted` with the reason."""
        if not isinstance(reason, str):
            raise TypeError(f"a reason is a str, not {type(reason).__name__}")
        told = self._answer(reason.encode(), Status.DROPPED)
        self._consumer.dropped += 1
        return told

    def extend(self, seconds: float = 30.0) -> bool:
        """Tell the asker that the answer needs that much more time than the asker allowed."""
        return self._consumer.extend(self._token, checked_seconds("seconds", seconds))

    def _answer(self, body: bytes, status: int) -> bool:
        """Raises ValueError for a body above the limit of answers; then another one may be given."""
        if self.answered:
            raise MeshError(f"the request on {self.topic!r} has been answered already")
        told = self._consumer.answer(self._token, body, status)
        self.answered = True
        return told


class Batch:
    """Messages that arrived together: ``topics`` and ``bodies`` are lists of equal length."""

    __slots__ = ("_consumer", "_run", "bodies", "topics")

    def __init__(self, run: Run, consumer: Consumer) -> None:
        self.topics = run.topics
        self.bodies = run.bodies
        self._run = run
        self._consumer = consumer

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return zip(self.topics, self.bodies, strict=True)

    @property
    def headers(self) -> list[dict[str, HeaderValue]]:
        """The headers of each message."""
        return [delivery.headers for delivery in self.deliveries()]

    def deliveries(self) -> Iterator[Delivery]:
        """Yield the same messages as objects, for programs that want `done` and its like."""
        return deliveries(self._run, self._consumer)


def deliveries(run: Run, consumer: Consumer) -> Iterator[Delivery]:
    packed: Any = repeat(None) if run.headers is None else run.headers
    if run.tokens is None:
        return map(Delivery, run.topics, run.bodies, packed, repeat(consumer))
    return map(Request, run.topics, run.bodies, packed, repeat(consumer), run.tokens)


def keep_sound(run: Run, consumer: Consumer) -> bool:
    """Take messages with undecodable headers out of a run; True if messages are left.

    Such headers are another program's fault; brokers that check for them send none. The messages are counted
    in ``malformed``, and a question is refused with the reason. The rest is delivered as usual. A run without
    headers costs no more than this look.
    """
    if run.headers is None or not any(run.headers):
        return bool(run.bodies)
    wrong = unreadable(run.headers)
    if wrong:
        consumer.malformed += sum(encoded in wrong for encoded in run.headers)
        for token, encoded in zip(run.tokens or (), run.headers, strict=False):
            if encoded in wrong:
                consumer.answer(token, wrong[encoded].encode(), Status.DROPPED)
        _keep(run, [encoded not in wrong for encoded in run.headers])
    return bool(run.bodies)


def unreadable(headers: Sequence[bytes]) -> dict[bytes, str]:
    """The encoded headers that cannot be unpacked, each with the reason."""
    wrong = {}
    for encoded in dict.fromkeys(headers):  # most publishers give all their messages the same headers
        try:
            blocks.unpack_headers(encoded)
        except BlockError as error:
            wrong[encoded] = str(error)
    return wrong


def _keep(run: Run, chosen: Sequence[bool]) -> None:
    run.topics = list(compress(run.topics, chosen))
    run.bodies = list(compress(run.bodies, chosen))
    run.headers = list(compress(run.headers or (), chosen))
    if run.tokens is not None:
        run.tokens = list(compress(run.tokens, chosen))
    origins = [
        (publisher, boot, first + index, 1)
        for publisher, boot, first, count in run.origins()
        for index in range(count)
    ]
    run.numbers = [number for origin in compress(origins, chosen) for number in origin]
