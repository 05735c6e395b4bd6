"""A client's subscriptions: what arrives for each, and the window that bounds it. Pure.

Each block is read into a `Run` for every `Feed` (subscription) that it concerns. A run holds lists of topics
and bodies, and no object per message. Runs wait in their feed until the application takes them. A run's
credit goes back when the application takes the next run.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mesh.clients.publishing import TOPICS_MAX
from mesh.clients.tickets import Waitable
from mesh.errors import BlockError, MeshError, SessionError
from mesh.topics import check_pattern
from mesh.wire import blocks
from mesh.wire.capabilities import PATTERN_PARTS, Agreed
from mesh.wire.session_frames import (
    BODY_MAX,
    BYTES_MAX,
    DATA_SIZE,
    MESSAGES_MAX,
    PATTERNS_BYTES,
    SUBSCRIPTIONS_MAX,
    Kind,
    ReceiveWindow,
    encode,
    read_data,
)

WINDOW: Final = 8192
WINDOW_BYTES: Final = 4 << 20
"""Default credit of a subscription, in bytes."""

GRANT_S: Final = 0.5

_RECEIVED: Final = struct.Struct(">4xIBBHIQBIBBBBIIQQQ")
_received: Final = _RECEIVED.unpack_from
_MARK: Final = 0x9305C410
_COUNT_MAX: Final = blocks.COUNT_MAX
_EQUAL: Final = blocks.EQUAL
_FORMAT: Final = blocks.FORMAT
_BODY_AT: Final = 4 + DATA_SIZE + blocks.HEAD_SIZE


class Token(NamedTuple):
    """Names the question that an answer is to. The broker's ``number`` for the question is valid only in the
    session of this client in which the question was asked."""

    session: int
    number: int


class Run:
    """Messages that arrived together for one subscription, as lists of equal length.

    ``tokens`` is None for published messages; for questions it holds a token each. ``numbers`` holds four
    integers for each block: publisher, boot, sequence number of its first message, and number of messages.
    The list is flat, so that a block adds nothing for the garbage collector to visit; `origins` groups it.
    """

    __slots__ = ("bodies", "epoch", "headers", "messages", "numbers", "size", "tokens", "topics")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.topics: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[bytes] | None = None
        self.tokens: list[Token] | None = None
        self.numbers: list[int] = []
        self.messages = 0
        self.size = 0

    def origins(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (publisher, boot, first sequence number, count) of each block, in the order of the messages:
        what an acknowledgement names."""
        each = iter(self.numbers)
        return zip(each, each, each, each, strict=True)


class Feed(Waitable):
    """One subscription: the runs that wait for the application, and the window that bounds them."""

    __slots__ = (
        "assembler",
        "bad_blocks",
        "closed",
        "current",
        "epoch",
        "error",
        "expected",
        "granted_at",
        "interrupted",
        "lost_blocks",
        "messages",
        "number",
        "overlap",
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
        """Why it is over, unless the program closed it."""
        self.expected = 1
        self.granted_at = 0.0
        self.lost_blocks = 0
        """Blocks that the broker dropped because this subscriber was slow."""
        self.interrupted = 0
        """How often messages may be missing: its session was lost and made anew, or its broker was apart from
        others."""
        self.bad_blocks = 0
        self.assembler = blocks.Assembler()
        self.seen = blocks.Seen(publishers_max=256)
        self.overlap: blocks.Seen | None = None
        """Blocks of level sent that came since the client began to move: each may come from both brokers."""

    @property
    def lost(self) -> int:
        """Blocks that the broker dropped, and large bodies given up here because too many came in pieces at
        once."""
        return self.lost_blocks + self.assembler.given_up

    def again(self) -> None:
        """Begin a new session with a fresh window; runs of the old session no longer count against it."""
        self.epoch += 1
        self.interrupted += self.ready
        self.window = ReceiveWindow(self.messages, self.size)
        self.expected = 1
        self.ready = False

    def begin_overlap(self) -> None:
        """Begin to remember blocks, as the subscription is now made at a second broker."""
        self.overlap = blocks.Seen(publishers_max=256)

    def move(self, confirmed: tuple[str, ...] | None, *, gap: bool) -> None:
        """Go on in the session that was made beside this one, with a fresh window. ``confirmed``: as in
        `Landing.confirmed`. ``gap``: the previous session did not end in order."""
        self.again()
        self.interrupted -= not gap
        self.ready = confirmed is not None
        self.unreached = confirmed or ()

    def announcement(self, agreed: Agreed, broker: str) -> list[bytes]:
        """The frames that ask a broker for the subscription; a fresh window begins. Raises as `request`."""
        frames = self.request(agreed, broker)
        self.again()
        return frames

    def request(self, agreed: Agreed, broker: str) -> list[bytes]:
        """The frames that ask a broker for the subscription.

        Raises `VersionMismatch` if there are more patterns than a broker of its version takes.
        """
        *parts, last = _parts(self.patterns)
        if parts and not agreed.has(PATTERN_PARTS):
            if sum(map(len, self.patterns)) > BODY_MAX - 4 * len(self.patterns):
                agreed.require(PATTERN_PARTS, f"broker {broker}")
            parts, last = [], self.patterns
        frames = [encode(Kind.PATTERNS, self.number, part) for part in parts]
        frames.append(encode(Kind.SUBSCRIBE, self.number, last, self.role, self.messages, self.size))
        return frames

    def fail(self, error: MeshError) -> None:
        """End with an error, which is raised once everything that came has been taken."""
        self.closed = True
        self.error = error

    def skip_to(self, sequence: int) -> None:
        """Note that the next block has this number, since those before it were dropped. Raises
        `SessionError`."""
        if sequence < self.expected:
            raise SessionError(f"block {sequence} of subscription {self.number} after {self.expected - 1}")
        self.lost_blocks += sequence - self.expected

    def take(self, now: float, settled: bool) -> tuple[int, int] | None:
        """Make the next run the current one; the application is done with the one before.

        Returns the credit to be given back, if it is time: at a quarter of the window, and twice a second. So
        the broker can tell a slow application from a stopped one.
        """
        done, self.current = self.current, self.runs.popleft() if self.runs else None
        if done is None or not settled or done.epoch != self.epoch:
            return None
        if not self.window.settle(done.messages, done.size) and now - self.granted_at < GRANT_S:
            return None
        self.granted_at = now
        return self.window.grant()


def _parts(patterns: list[str]) -> list[list[str]]:
    """Cut the patterns into lists of at most `PATTERNS_BYTES`."""
    parts: list[list[str]] = [[]]
    size = 0
    for pattern in patterns:
        size += len(pattern) + 2
        if size > PATTERNS_BYTES:
            parts.append([])
            size = len(pattern) + 2
        parts[-1].append(pattern)
    return parts


class Feeds:
    """All subscriptions of one client, by number."""

    def __init__(self) -> None:
        self._feeds: dict[int, Feed] = {}
        self._number = 0
        self._topics: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._feeds.values())

    def get(self, number: int) -> Feed | None:
        return self._feeds.get(number)

    def interrupted(self) -> None:
        """Note that messages may be missing in every subscription."""
        for feed in self._feeds.values():
            feed.interrupted += feed.ready

    def add(self, patterns: Sequence[str], role: int, messages: int, size: int) -> Feed:
        """Add a subscription. Raises `TopicError`, ValueError."""
        if not patterns:
            raise ValueError("subscribe needs at least one pattern, such as 'news.#'")
        check_window("messages", messages, MESSAGES_MAX)
        check_window("bytes", size, BYTES_MAX)
        checked = [check_pattern(pattern) for pattern in patterns]
        if len(self._feeds) >= SUBSCRIPTIONS_MAX:
            raise ValueError(
                f"a client has at most {SUBSCRIPTIONS_MAX} subscriptions; one may have many patterns"
            )
        number = self.next_number()
        feed = self._feeds[number] = Feed(number, checked, role, messages, size)
        return feed

    def next_number(self) -> int:
        """A number that no subscription of this client has had. Durable ones take theirs here, too."""
        self._number += 1
        return self._number

    def remove(self, feed: Feed) -> bool:
        """Remove a subscription; False if it was removed already."""
        feed.closed = True
        return self._feeds.pop(feed.number, None) is not None

    # ------------------------------------------------------------------ reading

    def read_question(
        self, number: int, token: Token, topic: str, body: bytes, headers: bytes, size: int
    ) -> Feed | None:
        """Add a request or survey to a subscription, as a run of its own; None if the subscription is
        gone."""
        feed = self._feeds.get(number)
        if feed is None:
            return None
        run = Run(feed.epoch)
        run.topics, run.bodies, run.headers, run.tokens = [topic], [body], [headers], [token]
        feed.window.arrive(1, size)
        run.messages, run.size = 1, size
        feed.runs.append(run)
        return feed

    def read_block(self, frame: bytes, runs: dict[Feed, Run]) -> None:
        """Read a DATA frame into the run of its feed, and begin one if necessary. Raises `PeerError`."""
        if len(frame) < _BODY_AT:
            raise SessionError(f"a DATA frame of {len(frame)} bytes is shorter than its heads")
        (
            mark, _, _, zero, number, sequence, bin32, size,
            form, kind, level, topic_size, count, record, first, publisher, boot,
        ) = _received(frame)  # fmt: skip
        if mark != _MARK or bin32 != 0xC6 or zero or size != len(frame) - 4 - DATA_SIZE:
            read_data(frame, 4)  # explains what is wrong, unless it is something that it does not check
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
            feed.skip_to(sequence)
        feed.expected = sequence + 1
        run = runs.get(feed)
        if run is None:
            run = runs[feed] = Run(feed.epoch)
        run.messages += count
        run.size += size
        at = _BODY_AT + topic_size
        seen = feed.seen if level else feed.overlap
        if seen is not None and not kind & blocks.PIECE and not seen.add(publisher, boot, first, count):
            return
        topic = self._topics.get(frame[_BODY_AT:at])
        if (
            topic is None
            or kind != _EQUAL
            or form != _FORMAT
            or not 0 < count <= _COUNT_MAX
            or at + count * record != len(frame)
        ):
            self._read_other(frame, feed, run)
            return
        if count == 1:
            run.topics.append(topic)
            run.bodies.append(frame[at:])
        else:
            run.topics += [topic] * count
            run.bodies += blocks.equal_slices(frame, at, count, record)
        run.numbers += (publisher, boot, first, count)
        if run.headers is not None:
            run.headers += [b""] * count

    def _read_other(self, frame: bytes, feed: Feed, run: Run) -> None:
        """Read the rarer kinds of blocks: the first of a topic, mixed lengths, headers, pieces of a large
        body."""
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
            seen = feed.seen if opened.level else feed.overlap
            if seen is not None and not seen.add(opened.publisher, opened.boot, opened.sequence, 1):
                return
            bodies, headers = [whole[0]], [whole[1]]
        if run.headers is None and headers is not None:
            run.headers = [b""] * len(run.bodies)
        run.topics += [topic] * len(bodies)
        run.bodies += bodies
        run.numbers += (opened.publisher, opened.boot, opened.sequence, len(bodies))
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


def check_window(what: str, number: object, most: int) -> None:
    """Check a window. A bad one would make the broker end the session. Raises ValueError."""
    if type(number) is not int or not 1 <= number <= most:
        raise ValueError(f"a window of {str(number)[:40]} {what}: expected a whole number from 1 to {most}")
