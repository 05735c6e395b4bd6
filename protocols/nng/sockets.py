"""The sockets over NNG by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from protocols.channel import Body, as_topic
from protocols.errors import Closed, NotSupported, StateError, SurveyOver
from protocols.nng.binding import pynng
from protocols.nng.settings import milliseconds
from protocols.nng.socket import Context, Socket
from protocols.options import DEFAULT, Default, TimeLimit, survey_seconds
from protocols.serving import Handler, request, serve


class Pair0(Socket):
    """Talks to one peer, both ways."""

    _kind = "Pair0"
    _needs_peer = True


class Pair1(Socket):
    """Talks to one peer, both ways; each message carries a hop count."""

    _kind = "Pair1"
    _needs_peer = True


class Push0(Socket):
    """Sends each message to one puller, in turn."""

    _kind = "Push0"
    _needs_peer = True


class Pull0(Socket):
    """Receives the messages that pushers distribute."""

    _kind = "Pull0"


class Pub0(Socket):
    """Sends each message to every subscriber; never waits."""

    _kind = "Pub0"
    _waits_for_room = False


class Sub0(Socket):
    """Receives messages that begin with one of the ``topics``; without topics, none."""

    _kind = "Sub0"

    def __init__(self, *, topics: Sequence[str | Body] = (), **others: Any) -> None:
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is a list of prefixes, as in topics=[{topics!r}]")
        super().__init__(**others)
        self._topics: tuple[bytes, ...] = ()
        for topic in topics:
            self.subscribe(topic)

    def subscribe(self, topic: str | Body) -> None:
        """Receive messages that begin with ``topic`` (a str is encoded as UTF-8); ``""`` matches all."""
        self._check_open()
        self._nng.subscribe(as_topic(topic))
        self._topics = tuple(dict.fromkeys((*self._topics, as_topic(topic))))

    def unsubscribe(self, topic: str | Body) -> None:
        """End a subscription and drop queued messages that no topic matches any more. Raises `StateError` if
        not subscribed.
        """
        self._check_open()
        try:
            self._nng.unsubscribe(as_topic(topic))
        except pynng.NoEntry as error:
            raise StateError(f"not subscribed to {as_topic(topic)!r}") from error
        self._topics = tuple(each for each in self._topics if each != as_topic(topic))

    def _take(self) -> bytes | None:
        """Take a message. NNG purges its queue when a topic is removed, but not what a given-up `recv`
        received.
        """
        while (body := super()._take()) is not None and not body.startswith(self._topics):
            continue
        return body


class Bus0(Socket):
    """Sends each message to every direct peer. Best effort."""

    _kind = "Bus0"
    _waits_for_room = False


class Req0(Socket):
    """Asks one of the peers and receives its answer."""

    _kind = "Req0"
    _turns = True
    _exclusive = True
    _asks = True
    _needs_peer = True

    async def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer, like `protocols.Req0.request`."""
        async with self.new_context() as context:
            return await request(context, body, timeout, self.options)


class Rep0(Socket):
    """Receives questions and answers each."""

    _kind = "Rep0"
    _turns = True
    _exclusive = True
    _answers = True
    _may_try = False  # NNG forgets the question when it refuses the answer for lack of room

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer each question with the result of ``handler``, like `protocols.Rep0.serve`."""
        await serve(self.new_context, handler, concurrency)


class Surveyor0(Socket):
    """Asks all peers; iterating yields the answers and ends with the survey."""

    _kind = "Surveyor0"
    _turns = True
    _asks = True
    _may_peek = False  # NNG treats a non-blocking recv as one that gave up, and ends the survey
    _waits_for_room = False
    _iteration_ends = (Closed, SurveyOver)

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> Context:
        """Open a separate survey on this socket for ``survey_s`` seconds (the socket's by default)."""
        context = super().new_context()
        open_s = survey_seconds(survey_s)
        if open_s is not None:
            pynng.nng.MsOption("surveyor:survey-time").__set__(context._nng, milliseconds(open_s))
        return context

    async def survey(self, body: Body, **others: Any) -> NoReturn:
        raise NotSupported("NNG does not tell whom it asked; use send() and iterate")


class Respondent0(Socket):
    """Receives surveys and answers each."""

    _kind = "Respondent0"
    _turns = True
    _exclusive = True
    _answers = True
    _may_try = False  # NNG forgets the question when it refuses the answer for lack of room

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer each question with the result of ``handler``, like `protocols.Rep0.serve`."""
        await serve(self.new_context, handler, concurrency)


class Star0(Socket):
    """NNG has no Star; making one raises `NotSupported`."""

    def __init__(self, **others: Any) -> None:
        raise NotSupported("NNG has no star; use protocols.Star0")
