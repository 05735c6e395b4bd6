"""`Client`: a program's connection to the mesh, on asyncio.

This is the public surface. Below it, in `mesh.clients`, ``connection`` makes and keeps the connection,
``publisher`` publishes, ``writer`` decides when gathered messages leave, and ``subscription`` hands out what
arrives. All of them work on one `Conversation`, which is pure and which `BlockingClient` uses, too.

`Client.publish` at level sent and `Client.publish_nowait` are called so often that one more call inside them
would be noticed. So they gather the message here, and leave rarer cases to the publisher.

**Cancelling.** A cancelled ``publish`` (level accepted) takes its message back if it was not sealed yet;
otherwise the message may arrive. A cancelled ``request`` is not asked if there was no session yet; otherwise
its answer is dropped. A subscription that is cancelled while it is awaited or entered is closed. A cancelled
wait for a delivery loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast, overload

from mesh.clients.addresses import Place
from mesh.clients.arguments import (
    by_topic,
    checked_body,
    checked_name,
    checked_pending_max,
    checked_seconds,
    level_number,
    packed,
)
from mesh.clients.calls import (
    ANSWERS_DURABLY,
    CONNECT_TIMEOUT_S,
    GATHERED,
    GRACE_S,
    KEEPALIVE_S,
    NO_OUTBOX,
    REQUEST_TIMEOUT_S,
    SURVEY_DEADLINE_S,
)
from mesh.clients.connection import ClientConnection
from mesh.clients.conversation import Conversation, ConversationStatistics
from mesh.clients.credentials import credential_of
from mesh.clients.feeds import WINDOW, WINDOW_BYTES
from mesh.clients.finding import broker_place
from mesh.clients.moving_conversation import MovingConversation
from mesh.clients.outbox import ClientOutbox, OutboxState, checked_outbox
from mesh.clients.outbox_conversation import OutboxConversation
from mesh.clients.pending import PENDING_MAX
from mesh.clients.publisher import Publisher
from mesh.clients.publishing import MESSAGE_COST
from mesh.clients.publishing_soon import Pending, PendingBatch, SoonPublisher
from mesh.clients.questions import Question, SurveyResult
from mesh.clients.subscription import Subscription
from mesh.clients.work import Work
from mesh.clients.work_feeds import WORK_WINDOW
from mesh.clients.writer import Writer
from mesh.environment import Environment
from mesh.errors import Disconnected, MeshError
from mesh.outbox.records import MAX_BYTES
from mesh.wire.blocks import HeaderValue
from mesh.wire.session_frames import Receipt, Role
from protocols import TlsConfig, check_dialable


class _NotOpen:
    """Stands in place of the parts that `Client.open` makes. An early call raises an error, and no call has
    to check."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Disconnected(NOT_OPEN)


NOT_OPEN: Final = "the client is not open; use it inside `async with Client() as mesh:`"
_NOT_OPEN: Final = _NotOpen()


class Client:
    """A program's connection to the mesh, through one broker at a time.

    ``url`` is the address of a broker, where the client stays. With a list of addresses it connects to one of
    them, drawn at random. When it loses that broker it goes to another one: one of the list, or one that a
    broker has told of.

    Enter it with ``async with``, which waits for the first session and raises `Disconnected` if there is no
    broker. After that it dials a lost broker again without end. It announces its subscriptions again and
    resends unacknowledged messages, which the brokers recognise.

    ``tls`` is for ``tls+tcp://`` and ``wss://`` addresses; without it the client trusts the system's
    authorities and shows no certificate. ``key`` is the path of a private key (``mesh key new``),
    ``token_file`` that of a token (``mesh key token``). With either the client proves to its broker who it
    is. The token itself is never sent.

    ``outbox`` is the path of a file that keeps messages of level ``outbox`` until they are stored at their
    homes. It is created if necessary, and holds at most ``outbox_max_bytes``. With an outbox, entering the
    client waits for no broker. Entering raises `Locked` if another client has the file, and an `OutboxError`
    if the file cannot be used. A damaged file is set aside and named (`OutboxDamaged`); the next client
    begins a new one.

    Raises:
        AddressError: the URL can never be dialled, or cannot be understood.
        ConfigError: the file of the key or token cannot be read, or holds something else.
        TypeError, ValueError: another argument cannot be used.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        tls: TlsConfig | None = None,
        key: str | os.PathLike[str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        keepalive_s: float = KEEPALIVE_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        pending_max: int = PENDING_MAX,
        outbox: str | os.PathLike[str] | None = None,
        outbox_max_bytes: int = MAX_BYTES,
        environment: Environment | None = None,
    ) -> None:
        self._place = broker_place(url)
        self.name = checked_name(name)
        """What brokers call this client in logs and on screens. If it is empty, they show the client's id. It
        need not be unique, and it proves nothing."""
        self._tls = tls
        self._credential = credential_of(key, token_file)
        self._keepalive_s = checked_seconds("keepalive_s", keepalive_s)
        self._connect_timeout = checked_seconds("connect_timeout", connect_timeout)
        self._pending_max = checked_pending_max(pending_max)
        self._outbox_path, self._outbox_max_bytes = checked_outbox(outbox, outbox_max_bytes)
        self._outbox: ClientOutbox | None = None
        self._environment = environment
        self._closed = False
        self._opened = False
        self._connection = cast(ClientConnection, _NOT_OPEN)
        self._conversation = cast(Conversation, _NOT_OPEN)
        self._writer = cast(Writer, _NOT_OPEN)
        self._publisher = cast(Publisher, _NOT_OPEN)
        self._soon = cast(SoonPublisher, _NOT_OPEN)
        self._works: list[Work] = []

    # ------------------------------------------------------------------ opening and closing

    @property
    def url(self) -> str:
        """The address of its broker, of the last one, or of the current attempt."""
        return self._connection.url if self._opened else self._place.urls[0]

    async def __aenter__(self) -> Client:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect. Raises `Disconnected` if there is no session within ``connect_timeout``. A client with an
        outbox opens the outbox instead, and connects in the background."""
        if self._opened or self._closed:
            raise MeshError("a Client is opened once; make another one")
        environment = self._environment or Environment.real()
        self._environment = environment
        self._connection = self._connection_to(self._place)
        self._conversation = self._connection.conversation
        self._writer = self._connection.writer
        self._publisher = Publisher(self._connection)
        self._soon = SoonPublisher(self._connection, self._pending_max)
        self._opened = True
        if self._outbox_path:
            await self._open_outbox(environment)
            self._connection.begin()
            return
        await self._connection.open()

    async def _open_outbox(self, environment: Environment) -> None:
        try:
            port = await environment.open_outbox(self._outbox_path, max_bytes=self._outbox_max_bytes)
        except BaseException:
            await self._connection.aclose()
            raise
        conversation = OutboxConversation.of_outbox(
            port.opening,
            environment.rng,
            name=self.name,
            keepalive_s=self._keepalive_s,
            now=self._connection.loop.time(),
            credential=self._credential,
        )
        self._outbox = ClientOutbox(port, self._connected_by(self._place, conversation, warns=False))

    def _connection_to(self, place: Place) -> ClientConnection:
        assert self._environment is not None, "a client has one once it is opened"
        conversation = MovingConversation.of(
            self._environment.rng,
            self._environment.token,
            name=self.name,
            keepalive_s=self._keepalive_s,
            now=asyncio.get_running_loop().time(),
            credential=self._credential,
        )
        return self._connected_by(place, conversation)

    def _connected_by(
        self, place: Place, conversation: Conversation, *, warns: bool = True
    ) -> ClientConnection:
        assert self._environment is not None, "a client has one once it is opened"
        return ClientConnection(
            place,
            conversation=conversation,
            tls=self._tls,
            connect_timeout_s=self._connect_timeout,
            rng=self._environment.rng,
            warns=warns,
        )

    def _connection_to_home(self, url: str) -> ClientConnection:
        return self._connection_to(Place((check_dialable(url),)))

    async def aclose(self) -> None:
        """Send what is gathered, say goodbye, and close. Unacknowledged publishes end as `Unknown`; messages
        in the outbox stay there."""
        self._closed = True
        for work in self._works:
            await work.aclose()
        if self._opened:
            try:
                await self._close_connections()
            finally:
                self._soon.close()

    async def _close_connections(self) -> None:
        if self._outbox is None:
            await self._connection.aclose()
        else:
            await asyncio.gather(self._outbox.aclose(), self._connection.aclose())

    # ------------------------------------------------------------------ publishing

    async def publish(
        self,
        topic: str,
        body: bytes,
        *,
        level: str = "accepted",
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one message.

        The level decides when this returns:

        * ``sent``: once the message is gathered for sending. The call waits only for credit.
        * ``accepted``: once the broker has it in memory and has routed it.
        * ``stored``: once it is on disk at the home of every durable subscription that wants it.
        * ``outbox``: once it is on this program's own disk (``Client(outbox=PATH)``). From there it goes to
          these homes whenever they can be reached.

        ``key`` is the program's own id for the message; it travels as the header of that name. ``timeout``
        (10 s) bounds the whole call.

        Raises:
            TopicError, TypeError, ValueError: the message cannot be sent as it is.
            NotAccepted: certainly not accepted (refused, or never sent in time). At level ``stored``: no home
                keeps it; live subscribers may have seen it.
            Unknown: it may have been accepted. No answer came in time, or the client was closed. At level
                ``stored`` the error names the homes that keep it and those that did not answer.
            MeshTimeout: level ``sent`` had no credit or no connection in time; the message was not taken.

        At level ``outbox``, `NotAccepted` means that the outbox had no room in time or that its disk failed.
        `Unknown` means that the disk failed, or gave no answer, while it wrote the message.
        """
        if level == "sent" and headers is None and key is None and type(body) is bytes:
            conversation = self._conversation
            if conversation.room <= 0:
                await self._publisher.wait_for_room(timeout)
            try:
                conversation.forming[topic].append(body)
            except (KeyError, TypeError):  # a new topic, or none at all
                if self._publisher.open_topic(topic, body):
                    return GATHERED
            conversation.room = room = (
                conversation.room - len(body) - 8
            )  # MESSAGE_COST, without looking it up
            if room <= 0:
                self._publisher.refuse_too_large(topic, body)
                if self._writer.seal():
                    await asyncio.sleep(0)
            return GATHERED
        encoded = packed(headers, key)
        if level == "outbox":
            return await self._with_outbox().publish([(topic, [checked_body(body)])], encoded, timeout)
        return await self._publisher.publish(topic, [checked_body(body)], level, encoded, timeout)

    def publish_nowait(self, topic: str, body: bytes) -> bool:
        """Publish at level ``sent`` without waiting. Returns False, and counts the message as dropped, if
        there is no credit."""
        conversation = self._conversation
        if conversation.room <= 0 and not self._publisher.has_room():
            conversation.dropped += 1
            return False
        if type(body) is not bytes:
            body = checked_body(body)
        try:
            conversation.forming[topic].append(body)
        except (KeyError, TypeError):
            if self._publisher.open_topic(topic, body):
                return True
        conversation.room = room = conversation.room - len(body) - MESSAGE_COST
        if room <= 0:
            self._publisher.refuse_too_large(topic, body)
            self._writer.flush()
        return True

    async def publish_many(
        self,
        messages: str | Sequence[tuple[str, bytes]],
        bodies: Sequence[bytes] | None = None,
        *,
        level: str = "accepted",
        timeout: float | None = None,
    ) -> Receipt:
        """Publish many messages in one call: a topic and a list of bodies, or a list of (topic, body) pairs.

        The receipt covers all of them; its ``seq`` is that of the first. Raises as `publish`. If it raises at
        level ``accepted``, messages of some topics may have been accepted. Level ``outbox`` keeps all of them
        or none.
        """
        if level == "outbox":
            given = [(topic, found) for topic, found, _ in by_topic(messages, bodies)]
            return await self._with_outbox().publish(given, b"", timeout)
        return await self._publisher.publish_many(by_topic(messages, bodies), level, timeout)

    def publish_soon(
        self,
        topic: str,
        body: bytes,
        *,
        level: str = "accepted",
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Pending:
        """Publish one message without waiting. The result tells later what became of it, as `publish` does.

        Messages published in one turn of the loop share a block and its acknowledgement. At level ``outbox``
        they share a sync of the disk. ``timeout`` (10 s) bounds how long the message may be pending. Then it
        ends as `Unknown`, or as `NotAccepted` if it was not sent. A message of level ``sent`` is done at
        once.

        Raises:
            NotReady: ``pending_max`` messages are pending, or there is no credit: wait for `ready`.
            TopicError, TypeError, ValueError: the message cannot be sent as it is.
            NotAccepted: the client is closed, or its broker does not speak the level.
        """
        if headers is None and key is None and level != "outbox" and type(body) is bytes:
            return self._soon.publish_plain(topic, body, level, timeout)
        checked, encoded = checked_body(body), packed(headers, key)
        if level == "outbox":
            return self._soon.publish_into(self._with_outbox(), topic, checked, encoded, timeout)
        return self._soon.publish(topic, checked, level, encoded, timeout)

    async def ready(self, timeout: float | None = None, *, level: str = "accepted") -> None:
        """Wait until `publish_soon` takes another message of that level. Raises `MeshTimeout` after
        ``timeout`` (10 s), `Disconnected` when the client is closed.

        All levels but ``outbox``, which needs no broker, become ready together.
        """
        if level != "outbox":
            level_number(level)
        await self._soon.ready(timeout, level)

    def batch(self, *, level: str = "accepted", timeout: float | None = None) -> PendingBatch:
        """Collect messages to wait for together. ``async with client.batch(level="stored") as batch`` ends
        once all that ``await batch.publish(topic, body)`` published are done. Each message waits for
        ``timeout`` (10 s) at most.

        Its end raises `BatchFailed`, which says how many messages failed, and why each did.
        """
        if level == "outbox":
            self._with_outbox()
        return PendingBatch(self.publish_soon, self._soon.ready, level, timeout)

    async def drained(self, timeout: float | None = None) -> None:
        """Wait until everything in the outbox is stored at its homes; without ``timeout`` for as long as it
        takes.

        Raises:
            MeshTimeout: some messages still wait; the error says how many, and why.
            OutboxError: some blocks are damaged, and all others are stored; or the disk failed.
            Disconnected: the client was closed, or is not open.
        """
        await self._with_outbox().drained(timeout)

    @property
    def outbox(self) -> OutboxState | None:
        """The contents of the outbox, and why it does not drain; None without an outbox."""
        return None if self._outbox is None else self._outbox.state

    def _with_outbox(self) -> ClientOutbox:
        if self._outbox is None:
            if self._outbox_path:
                raise Disconnected(NOT_OPEN)
            raise ValueError(NO_OUTBOX)
        return self._outbox

    async def flush(self, timeout: float | None = None) -> None:
        """Hand everything gathered to the connection. Raises `MeshTimeout` if credit does not come in time,
        `Disconnected` if the client is closed."""
        await self._publisher.flush(timeout)

    # ------------------------------------------------------------------ subscribing, asking, answering

    @overload
    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        durable: None = None,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self, *patterns: str, durable: str, window: int | None = None, window_bytes: int = WINDOW_BYTES
    ) -> Work: ...

    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        durable: str | None = None,
    ) -> Subscription | Work:
        """Subscribe to messages whose topics match any of the patterns. Await the result, enter it or iterate
        it.

        ``answers`` subscriptions also get requests and surveys. ``window`` messages (8 192) and
        ``window_bytes`` bound how much may be on its way to this program before the program takes it.

        ``durable`` names a durable subscription. If it does not exist, this client's broker makes it. Its
        messages wait on disk and are shared by all who attach to it. The result is then a `Work`, to be
        entered, and ``window`` (256) bounds the messages that are not settled. Without patterns the
        subscription must exist already.

        Raises:
            TopicError, TypeError, ValueError: a pattern, a window or the name cannot be used.
            NotAccepted: the broker knows no durable subscriptions.
        """
        self._must_be_open()
        if durable is not None:
            if answers:
                raise ValueError(ANSWERS_DURABLY)
            messages = WORK_WINDOW if window is None else window
            feed = self._conversation.attach(durable, patterns, messages, window_bytes)
            self._writer.hand_over()
            work = Work(self._connection, self._connection_to_home, feed)
            self._works = [each for each in self._works if not each.closed] + [work]
            return work
        role = Role.ANSWERS if answers else Role.LISTEN
        wanted = self._conversation.subscribe(
            patterns, role, WINDOW if window is None else window, window_bytes
        )
        self._writer.hand_over()
        return Subscription(self._connection, wanted)

    async def request(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Ask one subscriber that answers, the nearest first; returns what it gave to ``done``.

        Raises:
            NoResponders: there is none; raised at once.
            NotAccepted: the responder refused, with its reason.
            Unknown: the responder, or the way to it, was lost; it may have acted.
            MeshTimeout: no answer in time; raised a second later if the client's own broker does not say so
                itself.
        """
        question = await self._ask(topic, body, headers, False, checked_seconds("timeout", timeout))
        if question.error is not None:
            raise question.error
        return question.reply

    async def survey(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        deadline: float = SURVEY_DEADLINE_S,
    ) -> SurveyResult:
        """Ask every subscriber that answers, on all brokers; returns when all have answered, or at the
        deadline.

        Raises:
            Unknown, MeshTimeout: the connection to this client's own broker was lost meanwhile.
        """
        question = await self._ask(topic, body, headers, True, checked_seconds("deadline", deadline))
        if question.error is not None:
            raise question.error
        return question.result

    async def status(self) -> dict[str, Any]:
        """The snapshot of the broker that this client is connected to."""
        snapshot: dict[str, Any] = json.loads(await self.request("$sys.status"))
        return snapshot

    async def _ask(
        self,
        topic: str,
        body: bytes,
        headers: Mapping[str, HeaderValue] | None,
        survey: bool,
        timeout: float,
    ) -> Question:
        self._must_be_open()
        conversation, loop = self._conversation, self._connection.loop
        encoded = packed(headers)
        question = conversation.ask(
            topic, checked_body(body), encoded, survey=survey, timeout_s=timeout, now=loop.time()
        )
        self._writer.hand_over()
        self._writer.write_now()
        try:
            while not question.done:
                left_s = question.deadline + GRACE_S - loop.time()
                if left_s <= 0 or not await self._connection.wait(question, left_s):
                    if question.deadline + GRACE_S <= loop.time():
                        conversation.give_up(question, self._connection.why_away)
        except asyncio.CancelledError:
            conversation.give_up(question, "cancelled")
            raise
        return question

    # ------------------------------------------------------------------ state

    @property
    def connected(self) -> bool:
        """True while there is a session."""
        return self._opened and self._conversation.settled

    @property
    def broker(self) -> str:
        """The name of the broker of the current or last session."""
        return self._conversation.broker if self._opened else ""

    def statistics(self) -> ConversationStatistics:
        self._must_be_open()
        return self._conversation.statistics()

    def _must_be_open(self) -> None:
        if self._connection.closed:
            raise Disconnected("the client is closed")
