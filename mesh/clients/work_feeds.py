"""Durable subscriptions in a client: what arrived, what is settled, what is to be reported. Pure.

A `WorkFeed` is one durable subscription in one session after another. Its home sends WORK: neighbouring
messages of a row of its journal, here a `Portion`. The program settles them. Settlements gather by row until
`WorkFeed.take_said` makes frames of them: one DONE for a whole turn.

A portion belongs to the session in which it came. When that ends, the home offers unsettled messages to other
consumers, and the portion is *void*. It is not handed out any more; calls that settle its messages return
False and are counted in ``late``. The next session may bring the same messages again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mesh.clients.feeds import check_window
from mesh.clients.messages import unreadable
from mesh.clients.publishing import TOPICS_MAX
from mesh.clients.tickets import Waitable
from mesh.errors import BlockError, Detached, HeldElsewhere, MeshError, NotAccepted, OtherPatterns
from mesh.topics import check_pattern
from mesh.wire import blocks
from mesh.wire.durable_frames import (
    BACK_OFF,
    PATTERNS_MAX,
    REDELIVERED,
    SENTENCE_MAX,
    WORK_SIZE,
    Durable,
    name_problem,
    read_work,
)
from mesh.wire.fields import shown
from mesh.wire.session_frames import BYTES_MAX, MESSAGES_MAX, SUBSCRIPTIONS_MAX, encode, milliseconds

WORK_WINDOW: Final = 256
"""Messages of a durable subscription that a client holds unsettled, by default."""
ROWS_MAX: Final = 1024
"""Rows in one DONE frame, which stays below a socket's limit even if each has the longest bitmap."""


class WorkCounters:
    """Counters of one durable subscription in a client, over all its sessions; they only grow."""

    __slots__ = ("interrupted", "late", "malformed")

    def __init__(self) -> None:
        self.late = 0
        """Messages settled after their session was over."""
        self.malformed = 0
        """Messages that became dead letters here because they or their headers cannot be decoded."""
        self.interrupted = 0
        """How often a session that carried it was lost."""


class Portion:
    """Neighbouring messages of one row that came together. Only what became of them changes.

    A set of messages is a bit mask: bit i is message ``first + i`` of the row.
    """

    __slots__ = (
        "attempt",
        "bodies",
        "boot",
        "epoch",
        "feed",
        "first",
        "flags",
        "headers",
        "left",
        "publisher",
        "row",
        "sequence",
        "topic",
    )

    def __init__(
        self,
        feed: WorkFeed,
        place: tuple[int, int, int, int],
        topic: str,
        bodies: Sequence[bytes],
        headers: list[bytes] | None,
        origin: tuple[int, int, int],
    ) -> None:
        self.feed = feed
        self.epoch = feed.epoch
        self.row, self.first, self.attempt, self.flags = place
        self.topic = topic
        self.bodies = bodies
        self.headers = headers
        self.publisher, self.boot, self.sequence = origin
        self.left = (1 << len(bodies)) - 1
        """The messages that are not settled."""

    @property
    def void(self) -> bool:
        """True if the session in which it came is over."""
        return self.epoch != self.feed.epoch

    @property
    def redelivered(self) -> bool:
        return bool(self.flags & REDELIVERED)

    def done(self, messages: int) -> bool:
        """Settle messages as done; False if none of them was this session's to settle."""
        settled = self._settle(messages)
        if settled:
            said = self.feed.settled
            said[self.row] = said.get(self.row, 0) | settled << self.first
        return bool(settled)

    def retry(self, index: int, after_s: float | None) -> bool:
        """Have a message delivered again, after a time or after a delay that the home chooses. False as in
        `done`."""
        after_ms = BACK_OFF if after_s is None else milliseconds(after_s) if after_s else 0
        return self._give_back(index, Durable.RETRY, after_ms)

    def drop(self, index: int, reason: str) -> bool:
        """Make a message a dead letter. False as in `done`."""
        return self._give_back(index, Durable.DROP, reason[:SENTENCE_MAX])

    def _give_back(self, index: int, kind: Durable, how: object) -> bool:
        if not self._settle(1 << index):
            return False
        self.feed.given_back.append(encode(kind, self.feed.number, self.row, self.first + index, how))
        return True

    def _settle(self, messages: int) -> int:
        settled = self.left & messages
        self.left ^= settled
        feed, count = self.feed, settled.bit_count()
        if self.void:
            feed.counters.late += count
            return 0
        feed.unsettled -= count
        feed.unsaid += count
        return settled


class WorkFeed(Waitable):
    """One durable subscription, at one broker after another; woken by anything that its owner waits for."""

    __slots__ = (
        "assembler",
        "closed",
        "counters",
        "epoch",
        "error",
        "given_back",
        "messages",
        "name",
        "number",
        "patterns",
        "portions",
        "ready",
        "settled",
        "size",
        "unreached",
        "unsaid",
        "unsettled",
        "waiting",
    )

    def __init__(
        self, number: int, name: str, patterns: list[str], messages: int, size: int, counters: WorkCounters
    ) -> None:
        super().__init__()
        self.counters = counters
        self.number = number
        self.name = name
        self.patterns = patterns
        self.messages = messages
        self.size = size
        self.epoch = 0
        self.ready = False
        """True while it is attached."""
        self.closed = False
        self.error: MeshError | None = None
        """Why it is over, unless the program closed it."""
        self.waiting = 0
        """Messages that waited at the home when this client attached."""
        self.unreached: tuple[str, ...] = ()
        self.portions: deque[Portion] = deque()
        """Portions that arrived and that the program has not taken."""
        self.assembler = blocks.Assembler()
        self.settled: dict[int, int] = {}
        """Messages that are done and not reported, by row."""
        self.given_back: list[bytes] = []
        self.unsettled = 0
        self.unsaid = 0
        """Messages settled since the last report."""

    def announcement(self) -> bytes:
        """The frame that asks a broker for it."""
        return encode(Durable.ATTACH, self.number, self.name, self.patterns, self.messages, self.size)

    def attached(self, waiting: int, unreached: Sequence[str]) -> None:
        self.ready = True
        self.waiting = waiting
        self.unreached = tuple(unreached)

    def lose(self) -> None:
        """Note that it is no longer attached: its portions are void, and unsent settlements are dropped."""
        self.counters.interrupted += self.ready
        self.ready = False
        self.epoch += 1
        self.portions.clear()
        self.assembler = blocks.Assembler()
        self.settled.clear()
        self.given_back.clear()
        self.unsettled = self.unsaid = 0

    def end(self, error: MeshError | None = None) -> None:
        """End the subscription."""
        self.ready = False
        self.lose()
        self.closed = True
        self.error = error

    def take(self) -> Portion | None:
        """Take the next portion for the program."""
        return self.portions.popleft() if self.portions else None

    def take_all(self) -> list[Portion]:
        """Take everything that has arrived."""
        portions, self.portions = list(self.portions), deque()
        return portions

    @property
    def said_late(self) -> bool:
        """True when so many settlements are unreported that the home may be waiting for them before it sends
        more."""
        return 4 * self.unsaid >= self.messages

    def take_said(self) -> list[bytes]:
        """Take the frames that report the settlements since the last time."""
        frames, self.given_back = self.given_back, []
        settled, self.settled = self.settled, {}
        self.unsaid = 0
        rows = [[row, *_packed(messages)] for row, messages in settled.items()]
        for at in range(0, len(rows), ROWS_MAX):
            frames.append(encode(Durable.DONE, self.number, rows[at : at + ROWS_MAX]))
        return frames

    def add(self, frame: bytes, place: tuple[int, int, int, int], topics: dict[bytes, str]) -> int:
        """Add the messages of a WORK frame and return their number. Those that cannot be decoded become dead
        letters."""
        try:
            opened = blocks.open_block(frame, 4 + WORK_SIZE)
            topic = topics.get(opened.topic) or _decoded(opened.topic, topics)
        except BlockError as error:
            self._drop_unreadable(frame, place, str(error))
            return 0
        bodies, headers = opened.bodies, opened.headers
        if opened.whole_size:
            whole = self.assembler.add(opened)
            if whole is None:
                return 0
            bodies, headers = [whole[0]], [whole[1]]
        origin = opened.publisher, opened.boot, opened.sequence
        self.unsettled += len(bodies)
        portion = Portion(self, place, topic, bodies, headers, origin)
        wrong = unreadable(headers) if headers is not None else None
        if wrong:
            self.portions += self._sound_of(portion, wrong)
        else:
            self.portions.append(portion)
        return len(bodies)

    def _drop_unreadable(self, frame: bytes, place: tuple[int, int, int, int], why: str) -> None:
        """Make dead letters of all messages that a malformed block claims to hold."""
        count = int.from_bytes(frame[4 + WORK_SIZE + 4 : 4 + WORK_SIZE + 8], "big")
        nothing = [b""] * min(max(1, count), blocks.COUNT_MAX)
        portion = Portion(self, place, "", nothing, None, (0, 0, 0))
        self.unsettled += len(nothing)
        self.counters.malformed += len(nothing)
        for index in range(len(nothing)):
            portion.drop(index, why)

    def _sound_of(self, portion: Portion, wrong: dict[bytes, str]) -> Iterator[Portion]:
        """Yield the parts of a portion whose headers can be decoded; the other messages become dead
        letters."""
        headers = portion.headers or []
        start = 0
        for index, encoded in enumerate([*headers, None]):
            if encoded is not None and encoded not in wrong:
                continue
            if index > start:
                place = portion.row, portion.first + start, portion.attempt, portion.flags
                origin = portion.publisher, portion.boot, portion.sequence + start
                yield Portion(
                    self, place, portion.topic, portion.bodies[start:index], headers[start:index], origin
                )
            if encoded is not None:
                self.counters.malformed += 1
                portion.drop(index, wrong[encoded])
            start = index + 1


def _packed(messages: int) -> tuple[int, bytes]:
    """The index of the first message, and a bitmap from there on."""
    first = (messages & -messages).bit_length() - 1
    bits = messages >> first
    return first, bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _decoded(encoded: bytes, topics: dict[bytes, str]) -> str:
    try:
        topic = encoded.decode("ascii")
    except UnicodeDecodeError as error:
        raise BlockError(f"topic {encoded!r} is not ASCII") from error
    if len(topics) >= TOPICS_MAX:
        topics.clear()
    topics[encoded] = topic
    return topic


class WorkFeeds:
    """All durable subscriptions of one client at one broker, by number."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        self._feeds: dict[int, WorkFeed] = {}
        self._topics: dict[bytes, str] = {}
        self.received = 0
        """Messages that came."""

    def __iter__(self) -> Iterator[WorkFeed]:
        return iter(list(self._feeds.values()))

    def add(
        self, name: str, patterns: Sequence[str], messages: int, size: int, counters: WorkCounters
    ) -> WorkFeed:
        """Add a subscription. Raises `TopicError`, TypeError, ValueError."""
        check_durable_name(name)
        check_window("messages", messages, MESSAGES_MAX)
        check_window("bytes", size, BYTES_MAX)
        checked = [check_pattern(pattern) for pattern in patterns]
        if len(checked) > PATTERNS_MAX:
            raise ValueError(
                f"a durable subscription has at most {PATTERNS_MAX} patterns, not {len(checked)}"
            )
        if len(self._feeds) >= SUBSCRIPTIONS_MAX:
            raise ValueError(f"a client has at most {SUBSCRIPTIONS_MAX} durable subscriptions")
        feed = WorkFeed(self._next_number(), name, checked, messages, size, counters)
        self._feeds[feed.number] = feed
        return feed

    def remove(self, feed: WorkFeed) -> bool:
        """Remove a subscription; False if it was removed already."""
        return self._feeds.pop(feed.number, None) is not None

    def read(self, frame: bytes) -> WorkFeed | None:
        """Read a WORK frame into its feed; None if the feed is gone. Raises `PeerError`."""
        number, *place = read_work(frame, 4)
        feed = self._feeds.get(number)
        if feed is not None:
            row, first, attempt, flags = place
            self.received += feed.add(frame, (row, first, attempt, flags), self._topics)
        return feed

    def attached(self, number: int, waiting: int, unreached: Sequence[str]) -> list[Waitable]:
        feed = self._feeds.get(number)
        if feed is None:
            return []
        feed.attached(waiting, unreached)
        return [feed]

    def detached(self, number: int, reason: str, sentence: str, url: str, broker: str) -> list[Waitable]:
        """Note that the broker refuses it, or has ended it. A leaving broker ends its sessions next; then the
        subscription is asked for at the broker of the next session."""
        feed = self._feeds.get(number)
        if feed is None:
            return []
        was_ready = feed.ready
        if reason == "leaving":
            feed.lose()
            return [feed]
        del self._feeds[number]
        feed.end(_error_of(was_ready, f"broker {broker}: {sentence}", reason, url))
        return [feed]


def _error_of(was_ready: bool, sentence: str, reason: str, url: str) -> MeshError:
    if reason == "held_elsewhere":
        return HeldElsewhere(sentence, url)
    if reason == "other_patterns":
        return OtherPatterns(sentence)
    return (Detached if was_ready else NotAccepted)(sentence)


def check_durable_name(name: Any) -> str:
    """Check the name of a durable subscription. Raises TypeError, ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a durable subscription is a str, not {shown(name)}")
    if problem := name_problem(name):
        raise ValueError(f"the name of a durable subscription {problem}")
    return name
