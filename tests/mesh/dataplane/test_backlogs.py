"""Blocks that wait for a consumer: whose credit they hold, and which are dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane.backlogs import Budget, LiveQueue, NoQueue, QueuedBlock
from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.options import DeliveryOptions
from mesh.wire.session_frames import ReceiveWindow

OPTIONS = DeliveryOptions(messages_max=40, bytes_max=10_000)


class Granted:
    """Counts credit given back."""

    def send_control(self, frame: bytes) -> None: ...


class Queue(LiveQueue):
    """One queue, fed by a session and by a link."""

    def __init__(self, options: DeliveryOptions = OPTIONS, budget: Budget | None = None) -> None:
        super().__init__(options, budget or Budget(1 << 40), 0.0)
        due: list[Ingress] = []
        self.session = Ingress(Granted(), ReceiveWindow(1000, 1 << 20), due, is_link=False)
        self.link = Ingress(Granted(), ReceiveWindow(1000, 1 << 20), due, is_link=True)
        self.number = 0

    def give(self, block: bytes, ingress: Ingress | None, now: float = 0.0, messages: int = 5) -> None:
        """A block that has to wait. A block that holds no credit settles at once, as in the exchange."""
        self.number += 1
        held = HeldCredit(ingress, messages, len(block)) if ingress is not None else None
        assert self.push(QueuedBlock(block, messages, number=self.number, held=held), now)
        if held is not None and not held.outlets:
            held.ingress.settle(messages, len(block))

    def numbers(self) -> list[int]:
        """The numbers of all remaining blocks, which are taken out."""
        found = []
        while (item := self.pop()) is not None:
            found.append(item.number)
        return found


def owed(ingress: Ingress) -> int:
    return ingress.window.owed_messages


def test_blocks_leave_in_order_and_give_their_senders_credit_back() -> None:
    queue = Queue()
    for _ in range(3):
        queue.give(b"x", queue.session)
    assert owed(queue.session) == 0 and queue.messages == 15
    assert queue.numbers() == [1, 2, 3]
    assert owed(queue.session) == 15 and queue.messages == 0


def test_the_last_queue_that_holds_a_block_gives_its_credit_back() -> None:
    one, two = Queue(), Queue()
    held = HeldCredit(one.session, 5, 10)
    for queue in (one, two):
        queue.push(QueuedBlock(b"x", 5, held=held), 0.0)
    one.pop()
    assert owed(one.session) == 0
    two.close()
    assert owed(one.session) == 5


def test_a_stall_releases_credit_after_ten_seconds_and_progress_ends_it() -> None:
    queue = Queue()
    queue.give(b"a", queue.session, now=0.0)
    queue.check_stall(9.9)
    assert not queue.stalled and owed(queue.session) == 0
    queue.check_stall(10.0)
    assert queue.stalled and owed(queue.session) == 5
    queue.give(b"b", queue.session, now=11.0)
    assert owed(queue.session) == 10, "a stalled consumer holds nobody up"
    queue.progress(12.0)
    assert not queue.stalled and queue.numbers() == [1, 2]
    assert owed(queue.session) == 10, "given back once"


def test_the_time_of_a_stall_begins_when_a_block_waits() -> None:
    queue = Queue()
    queue.give(b"a", queue.session, now=1000.0)
    queue.check_stall(1005.0)
    assert not queue.stalled


def test_a_links_blocks_hold_its_credit_only_above_a_quarter_and_for_three_seconds() -> None:
    queue = Queue()
    for _ in range(4):
        queue.give(b"x", queue.link)
    assert owed(queue.link) == 10, "the first two waited for free, the others at the link's expense"
    queue.check_stall(2.9)
    assert owed(queue.link) == 10
    queue.check_stall(3.0)
    assert owed(queue.link) == 20 and not queue.stalled
    queue.give(b"x", queue.link, now=3.5)
    assert owed(queue.link) == 25


def test_the_oldest_block_beyond_the_bounds_is_dropped_and_leaves_a_gap() -> None:
    queue = Queue()
    queue.give(b"first", queue.session)
    queue.check_stall(10.0)
    for _ in range(10):
        queue.give(b"x", queue.session)
    assert queue.dropped == 15 and queue.messages == 40
    assert owed(queue.session) == 55
    assert queue.numbers() == list(range(4, 12))


def test_one_block_may_be_larger_than_the_bounds() -> None:
    queue = Queue()
    queue.give(bytes(20_000), None)
    assert queue.dropped == 0
    queue.give(b"next", None)
    assert queue.dropped == 5 and queue.numbers() == [2]


def test_a_block_that_holds_credit_of_its_sender_is_never_dropped() -> None:
    queue = Queue(DeliveryOptions(messages_max=65536))
    for _ in range(3000):
        queue.give(b"held", queue.session, messages=1)
    for _ in range(200):
        queue.give(b"of a stock publisher, which has no credit", None, messages=4096)
    assert [item.number for item in queue.held()] == list(range(1, 3001))
    assert queue.dropped == 4096 * (200 - 16)
    assert queue.numbers() == [*range(1, 3001), *range(3000 + 185, 3201)]


def test_a_flood_behind_held_blocks_frees_its_memory() -> None:
    queue = Queue()
    queue.give(b"held", queue.session)
    for _ in range(10_000):
        queue.give(b"free", None)
    assert len(queue._items) < 100 and len(queue) == 9
    assert queue.messages == 45


def test_queues_of_one_session_share_a_budget_of_bytes() -> None:
    budget = Budget(5000)
    one, two = Queue(budget=budget), Queue(budget=budget)
    for _ in range(4):
        one.give(bytes(1000), None)
    for _ in range(3):
        two.give(bytes(1000), None)
    assert budget.bytes == 5000
    assert (one.dropped, two.dropped) == (0, 10), "the one that passes the bound loses"
    one.close()
    two.close()
    assert budget.bytes == 0


def test_a_block_that_cannot_leave_is_dropped_and_counted_without_a_queue() -> None:
    none = NoQueue()
    none.push(QueuedBlock(b"x", 7), 0.0)
    assert (none.dropped, none.messages, none.pop(), none.close()) == (7, 0, None, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["session", "link", "nobody", "pop", "time", "progress"]),
            st.integers(1, 8),
            st.integers(0, 400),
        ),
        max_size=150,
    )
)
def test_every_loss_is_counted_and_credit_is_conserved_in_any_sequence_of_steps(
    steps: list[tuple[str, int, int]],
) -> None:
    budget = Budget(1500)
    queue = Queue(budget=budget)
    given_in = {"session": 0, "link": 0, "nobody": 0}
    taken, last, now = 0, 0, 0.0
    for what, messages, size in steps:
        if what == "pop":
            item = queue.pop()
            if item is not None:
                assert item.number > last, "in order"
                last = item.number
                taken += item.messages
        elif what == "time":
            now += messages
            queue.check_stall(now)
        elif what == "progress":
            queue.progress(now)
        else:
            ingress = None if what == "nobody" else getattr(queue, what)
            queue.give(bytes(size), ingress, now, messages)
            given_in[what] += messages
        held = sum(item.messages for item in queue.held())
        assert 0 <= queue.messages - held <= 48 and budget.bytes == queue.free_bytes
    assert taken + queue.dropped + queue.messages == sum(given_in.values())
    assert queue.close() + taken + queue.dropped == sum(given_in.values())
    assert budget.bytes == 0
    for name in ("session", "link"):
        assert owed(getattr(queue, name)) == given_in[name]


@pytest.mark.parametrize("bound", [0, 1, 16])
def test_dropped_places_do_not_disturb_the_order(bound: int) -> None:
    queue = Queue(DeliveryOptions(messages_max=max(5, bound * 5)))
    for number in range(100):
        queue.give(b"%d" % number, queue.session if number % 7 == 0 else None)
    left = queue.numbers()
    assert left == sorted(left) and {n for n in range(1, 101) if (n - 1) % 7 == 0} <= set(left)
