"""A hypothesis machine runs sessions, crashes, settlements and kills of the broker beside a model."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.work.options import WorkOptions
from mesh.work.orders import Bury, Deliver
from mesh.work.rows import FORMER_MAX
from tests.mesh.work.home import Home, Message

# Endless patience, so that a suspect is alone whatever happens; `test_workers` tests its end.
OPTIONS = WorkOptions(attempts_max=2, ahead_bytes=4000, held_max=20, patience_s=1e9, patience_max_s=1e9)
WINDOWS = st.sampled_from((1, 2, 5, 40))
COUNTS = st.sampled_from((1, 1, 2, 7, 64))
ROWS = st.lists(COUNTS, min_size=1, max_size=4)
WAITS = st.sampled_from((0.0, 0.04, 0.3, 29.0, 70.0))
PICKS = st.integers(0, 1 << 20)


class Model(Home):
    """Which deliveries are allowed, kept for each message by itself, without a queue."""

    def __init__(self) -> None:
        super().__init__(OPTIONS, slow=True)
        self.windows: dict[int, int] = {}
        self.holder: dict[Message, int] = {}
        self.over: set[Message] = set()  # settled, or buried
        self.attempts: dict[Message, int] = defaultdict(int)
        self.not_before: dict[Message, float] = {}
        self.suspects: set[Message] = set()
        self.former: dict[int, dict[int, set[Message]]] = defaultdict(dict)
        self.last_first: dict[int, Message] = {}
        self.had: set[Message] = set()
        self.condemned: set[Message] = set()  # they must be buried
        self.dead: set[Message] = set()

    def in_flight(self, consumer: int) -> list[Message]:
        return [message for message, holder in self.holder.items() if holder == consumer]

    def receive(self, order: Deliver) -> None:
        super().receive(order)
        got = [(order.row, order.first + index) for index in range(order.count)]
        for message in got:
            assert message not in self.over, "nothing settled is delivered again"
            assert message not in self.holder, "no other consumer has it"
            assert self.not_before.get(message, 0.0) <= self.now, "not before its delay is over"
            assert order.attempt == self.attempts[message] + 1
            assert order.redelivered is (message in self.had)
            assert order.suspect is (message in self.suspects)
            if not order.redelivered:
                assert self.last_first.get(order.consumer, (0, 0)) < message, "first deliveries are in order"
                self.last_first[order.consumer] = message
            self.had.add(message)
        if order.suspect:
            assert order.count == 1
            assert not self.in_flight(order.consumer), "a suspect is alone"
        else:
            assert not self.suspects.intersection(self.in_flight(order.consumer)), "and stays alone"
        self.holder.update(dict.fromkeys(got, order.consumer))
        assert len(self.in_flight(order.consumer)) <= self.windows[order.consumer], "within the window"

    def bury(self, order: Bury) -> None:
        super().bury(order)
        message = order.row, order.index
        assert message in self.condemned, "only after as many attempts, or when it was dropped"
        assert message not in self.dead, "once"
        assert order.attempts == self.attempts[message]
        self.dead.add(message)

    # --- the same events, for each message

    def came(self, consumer: int, window: int) -> None:
        self.windows[consumer] = window
        self.queue.attach(consumer, window)

    def left(self, consumer: int, *, died: bool) -> None:
        held = self.in_flight(consumer)
        del self.windows[consumer]
        for message in held:
            self.gives_back(consumer, message)
            if died:
                self.suspects.add(message)
        if died and len(held) == 1:
            self.fails(held[0], None)
        self.queue.detach(consumer, self.now, died=died)

    def gives_back(self, consumer: int, message: Message) -> None:
        del self.holder[message]
        former = self.former[message[0]]
        former[consumer] = former.pop(consumer, set()) | {message}
        if len(former) > FORMER_MAX:
            del former[next(iter(former))]

    def fails(self, message: Message, after_s: float | None) -> None:
        self.attempts[message] += 1
        if self.attempts[message] >= OPTIONS.attempts_max:  # type: ignore[operator]
            self.condemn(message)
        else:
            wait_s = 0.1 * 2 ** (self.attempts[message] - 1) if after_s is None else after_s
            self.not_before[message] = self.now + wait_s

    def condemn(self, message: Message) -> None:
        self.condemned.add(message)
        self.settle(message)

    def settle(self, message: Message) -> None:
        self.over.add(message)
        self.holder.pop(message, None)
        self.suspects.discard(message)

    def says_done(self, consumer: int, row: int, first: int, bitmap: int) -> None:
        for index in range(bitmap.bit_length()):
            message = row, first + index
            held_once = message in self.former[row].get(consumer, ())
            if (
                bitmap >> index & 1
                and message not in self.over
                and (self.holder.get(message) == consumer or held_once)
            ):
                self.settle(message)
        self.queue.done(consumer, row, first, bitmap, self.now)

    def dies_and_starts(self) -> None:
        self.restart()
        self.windows, self.holder, self.suspects, self.former = {}, {}, set(), defaultdict(dict)
        self.had, self.last_first, self.not_before = set(), {}, {}
        self.over = set(self.settled())
        self.condemned = {message for message in self.condemned if message in self.dead}
        assert self.dead <= self.over, "a dead letter is settled in the same commit"
        self.attempts = defaultdict(int)
        for row, kept in self.kept.items():
            self.attempts.update({(row, index): count for index, count in kept.attempts.items()})


class WorkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Model()
        self.next_consumer = 1

    # --- rules

    @initialize(slow=st.booleans(), early=st.booleans(), windows=st.lists(WINDOWS, max_size=3), counts=ROWS)
    def a_home_is_there(self, slow: bool, early: bool, windows: list[int], counts: list[int]) -> None:
        self.home.slow, self.home.early = slow, early
        self.home.store(*counts)
        for window in windows:
            self.a_session_begins(window)

    def a_session_begins(self, window: int) -> None:
        self.home.came(self.next_consumer, window)
        self.next_consumer += 1

    @rule(counts=ROWS)
    def rows_are_committed(self, counts: list[int]) -> None:
        self.home.store(*counts)

    @precondition(lambda self: len(self.home.windows) < 4)
    @rule(window=WINDOWS)
    def somebody_comes(self, window: int) -> None:
        self.a_session_begins(window)

    @precondition(lambda self: self.home.windows)
    @rule(pick=PICKS, died=st.booleans(), window=st.none() | WINDOWS, seconds=WAITS)
    def somebody_goes(self, pick: int, died: bool, window: int | None, seconds: float) -> None:
        """In most cases it comes back after a while."""
        self.home.left(self.somebody(pick), died=died)
        self.time_passes(seconds)
        if window is not None:
            self.a_session_begins(window)

    @precondition(lambda self: self.home.windows)
    @rule(pick=PICKS, window=st.integers(0, 5))
    def a_window_changes(self, pick: int, window: int) -> None:
        consumer = self.somebody(pick)
        held = len(self.home.in_flight(consumer))
        self.home.windows[consumer] = max(window, held)
        self.home.queue.resize(consumer, window)
        self.home.windows[consumer] = max(window, held)

    @precondition(lambda self: self.home.holder)
    @rule(pick=PICKS, bitmap=st.integers(1, (1 << 70) - 1))
    def some_are_done(self, pick: int, bitmap: int) -> None:
        (row, index), consumer = self.some_held(pick)
        self.home.says_done(consumer, row, index, bitmap | 1)

    @precondition(lambda self: self.home.windows)
    @rule(pick=PICKS)
    def a_consumer_settles_all_it_has(self, pick: int) -> None:
        consumer = self.somebody(pick)
        for row, index in self.home.in_flight(consumer):
            self.home.says_done(consumer, row, index, 1)

    @precondition(lambda self: self.home.holder)
    @rule(pick=PICKS, after_s=st.sampled_from((None, 0.0, 0.05, 30.0)))
    def one_is_retried(self, pick: int, after_s: float | None) -> None:
        message, consumer = self.some_held(pick)
        self.home.gives_back(consumer, message)
        self.home.suspects.discard(message)
        self.home.fails(message, after_s)
        self.home.queue.retry(consumer, *message, self.home.now, after_s)

    @precondition(lambda self: self.home.holder)
    @rule(pick=PICKS, killed=st.booleans())
    def one_is_dropped(self, pick: int, killed: bool) -> None:
        """Perhaps just before the broker is killed: then it is both a dead letter and settled, or neither."""
        message, consumer = self.some_held(pick)
        self.home.attempts[message] += 1
        self.home.condemn(message)
        self.home.queue.drop(consumer, *message, self.home.now, "no such user")
        if killed:
            self.home.step()
            self.the_broker_is_killed()

    @precondition(lambda self: any(self.home.former.values()))
    @rule(pick=PICKS, bitmap=st.integers(1, 255))
    def somebody_who_had_them_says_done(self, pick: int, bitmap: int) -> None:
        rows = [row for row, former in self.home.former.items() if former]
        row = rows[pick % len(rows)]
        consumers = list(self.home.former[row])
        consumer = consumers[pick % len(consumers)]
        first = min(self.home.former[row][consumer])[1]
        self.home.says_done(consumer, row, first, bitmap)

    @rule(
        consumer=st.integers(0, 12),
        row=st.integers(0, 12),
        index=st.integers(0, 5000),
        bitmap=st.integers(1, (1 << 80) - 1),
        what=st.sampled_from(("done", "retry", "drop")),
    )
    def nonsense_is_said_three_times(
        self, consumer: int, row: int, index: int, bitmap: int, what: str
    ) -> None:
        """About messages that this consumer does not hold, and never did."""
        home, queue = self.home, self.home.queue
        if home.holder.get((row, index)) == consumer:
            return
        if what == "done":
            own = home.former[row].get(consumer, set()) | set(home.in_flight(consumer))
            bitmap &= ~sum(1 << (i - index) for r, i in own if r == row and i >= index)
        before = queue.snapshot()
        ignored = self.ignored
        for _ in range(3):
            if what == "done":
                queue.done(consumer, row, index, bitmap, home.now)
            elif what == "retry":
                queue.retry(consumer, row, index, home.now)
            else:
                queue.drop(consumer, row, index, home.now, "whatever")
        assert queue.snapshot() == before
        assert self.ignored == ignored + 3 * (bitmap.bit_count() if what == "done" else 1)

    @rule(number=st.sampled_from((1, 2, None)))
    def the_journal_has_read(self, number: int | None) -> None:
        self.home.answer(number)

    @precondition(lambda self: self.home.fetches_asked)
    @rule(pick=PICKS)
    def a_row_cannot_be_read(self, pick: int) -> None:
        fetches = self.home.fetches_asked
        fetch = fetches[pick % len(fetches)]
        self.home.reads.remove(fetch)
        self.home.queue.unreadable(fetch.row, self.home.now)

    @rule(seconds=WAITS)
    def time_passes(self, seconds: float) -> None:
        self.home.run(seconds)

    @rule()
    def a_commit_is_made(self) -> None:
        self.home.step(commit=True)
        assert set(self.home.settled()) == self.home.over

    @rule()
    def the_broker_is_killed(self) -> None:
        self.home.dies_and_starts()
        self.a_session_begins(5)

    # --- invariants

    @rule(ahead=st.booleans())
    def other_queues_read_much_or_little(self, ahead: bool) -> None:
        self.home.ahead = ahead

    @invariant()
    def all_that_was_ordered_is_within_the_rules(self) -> None:
        self.home.step()

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        queue = self.home.queue
        for number, row in queue._rows.items():
            places = [
                row.settled,
                row.fresh,
                *row.out.values(),
                queue._returned.records(number),
                queue._suspects.records(number),
                queue._delays.records(number),
            ]
            assert sum(place.bit_count() for place in places) == row.whole.bit_count()
            union = 0
            for place in places:
                union |= place
            assert union == row.whole
            for consumer, records in row.out.items():
                held = {index for (r, index), c in self.home.holder.items() if (r, c) == (number, consumer)}
                assert held == {index for index in range(records.bit_length()) if records >> index & 1}
            settled = {index for r, index in self.home.over if r == number}
            assert settled == {index for index in range(64) if row.settled >> index & 1}
        snapshot = queue.snapshot()
        assert (
            snapshot.in_flight == len(self.home.holder) == sum(c.in_flight for c in queue._consumers.values())
        )
        assert queue._probing._suspected == sum(row.suspected.bit_count() for row in queue._rows.values())

    @invariant()
    def memory_is_bounded(self) -> None:
        queue = self.home.queue
        bytes_held = [len(row.block) for row in queue._rows.values() if row.block is not None]
        assert sum(bytes_held) <= OPTIONS.ahead_bytes + 18 * max([0, *bytes_held])
        rows = queue._rows.values()
        assert queue.ahead == queue._backlog.size + sum(row.fetched for row in rows)
        again = [row for row in rows if row.block and not row.fresh]
        assert all(row.fetched == len(row.block or b"") for row in again)
        held = queue.snapshot()
        assert len(queue._delays._heap) <= 2 * held.delayed + 65
        assert len(queue._roster) <= len(self.home.windows)

    def teardown(self) -> None:
        """Once one consumer lives, all stored messages are worked off."""
        home = self.home
        for consumer in list(home.windows):
            home.left(consumer, died=False)
        home.slow = False
        home.came(1 << 30, 3)
        for _ in range(20 * len(home.counts) * 64 + 20):
            home.answer()
            home.step()
            held = home.in_flight(1 << 30)
            for row, index in held:
                home.says_done(1 << 30, row, index, 1)
            if not held:
                if home.queue.next_due is None:
                    break
                home.run(max(0.0, home.queue.next_due - home.now))
        home.step(commit=True)
        everything = {(row, index) for row, count in home.counts.items() for index in range(count)}
        assert set(home.settled()) == home.over == everything
        assert home.dead == home.condemned
        assert not home.kept and not home.queue._rows

    # --- helpers

    def somebody(self, pick: int) -> int:
        return list(self.home.windows)[pick % len(self.home.windows)]

    def some_held(self, pick: int) -> tuple[Message, int]:
        return list(self.home.holder.items())[pick % len(self.home.holder)]

    @property
    def ignored(self) -> int:
        counters = self.home.queue.counters
        return counters.unknown + counters.settled_before + counters.not_held


TestWork = WorkMachine.TestCase
TestWork.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
