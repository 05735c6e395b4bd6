"""A hypothesis machine plays publishers, consumers, a disk that fills up and fails, and kills of the broker.

In every run, a message reported as kept waits on disk, or a consumer that had it settled it, or it is a
dead letter. A refused message is nowhere. At the end a consumer gets everything that is left.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.dataplane.options import ExchangeOptions
from mesh.wire import blocks
from mesh.wire.durable_frames import DEAD_PREFIX, Durable, Kept
from tests.mesh.dataplane.homes import RawClient, Work, World

PICKS = st.integers(0, 1 << 20)
COUNTS = st.sampled_from((1, 1, 2, 5, 30))
WINDOWS = st.sampled_from((1, 3, 20))
WAITS = st.sampled_from((0.03, 0.06, 0.3, 2.0, 70.0))
MEMORY = Path("/dev/shm")
"""A folder where a sync costs nothing: no power is lost here."""
LARGE = blocks.SPLIT + 100
OPTIONS = ExchangeOptions(unwritten_bytes_max=100_000)


class Sent:
    """A block, or a large body, and the last answer for it."""

    def __init__(self, sealed: list[bytes], first: int, numbers: range) -> None:
        self.sealed = sealed
        self.first = first
        self.numbers = numbers
        self.said: list[list[tuple[Kept, str]]] = []


class HomeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.world = World(self.folder, options=OPTIONS)
        self.sent: list[Sent] = []
        self.kept: set[int] = set()
        self.refused: set[int] = set()
        self.over: set[int] = set()
        """Settled by a consumer that had it. The journal may not know it yet."""
        self.pieces: dict[tuple[RawClient, int, int], bytes] = {}
        self.held: dict[RawClient, list[tuple[Work, list[int]]]] = {}
        self.number = 0

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.drain()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    @initialize()
    def begin(self) -> None:
        self.attach(window=3)

    # --- publishers

    @rule(count=COUNTS, pump=st.booleans())
    def publish(self, count: int, pump: bool) -> None:
        first = self.world.sequence
        self.world.sequence += count
        numbers = range(first, first + count)
        bodies = [b"%d" % number for number in numbers]
        sealed = blocks.seal(b"jobs.a", bodies, publisher=5, boot=3, sequence=first, level=blocks.STORED)
        self.offer(Sent([sealed], first, numbers), pump)

    @rule(pump=st.booleans())
    def publish_large(self, pump: bool) -> None:
        first = self.world.sequence
        self.world.sequence += 1
        body = (b"%d." % first).ljust(LARGE, b"x")
        sealed = blocks.seal_pieces(b"jobs.a", body, publisher=5, boot=3, sequence=first, level=blocks.STORED)
        self.offer(Sent(sealed, first, range(first, first + 1)), pump)

    @precondition(lambda self: self.sent)
    @rule(pick=PICKS, pump=st.booleans())
    def publish_again(self, pick: int, pump: bool) -> None:
        sent = self.sent.pop(pick % len(self.sent))
        self.refused -= set(sent.numbers)
        self.offer(sent, pump, again=True)

    def offer(self, sent: Sent, pump: bool, *, again: bool = False) -> None:
        self.sent.append(sent)
        count = len(sent.numbers)
        sent.said = [
            self.world.keep_block(piece, sent.first, count, offset=n, pump=False, again=again)
            for n, piece in enumerate(sent.sealed)
        ]
        if pump:
            self.settle_down()

    # --- consumers

    @precondition(lambda self: len(self.held) < 4)
    @rule(window=WINDOWS)
    def attach(self, window: int) -> None:
        client = self.world.client()
        client.attach("mail", "jobs.#", window=window, size=1 << 22)
        if client.heard(Durable.ATTACHED):
            self.held[client] = []
        else:
            client.die()

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, how=st.sampled_from(("leave", "die", "detach")))
    def end(self, pick: int, how: str) -> None:
        client = self.one_of(pick)
        if how == "detach":
            client.tell(Durable.DETACH, 1)
        del self.held[client]
        (client.die if how == "die" else client.leave)()

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, reading=st.booleans())
    def read_or_not(self, pick: int, reading: bool) -> None:
        self.one_of(pick).reading = reading

    @precondition(lambda self: any(self.held.values()))
    @rule(pick=PICKS, bits=PICKS, how=st.sampled_from(("done", "done", "done", "retry", "drop")))
    def settle(self, pick: int, bits: int, how: str) -> None:
        busy = [client for client, held in self.held.items() if held]
        client = busy[pick % len(busy)]
        held = self.held[client]
        work, numbers = held.pop(pick % len(held))
        if how == "done":
            settled = [index for index in range(len(numbers)) if bits >> (index % 20) & 1]
            bitmap = sum(1 << index for index in settled).to_bytes(512, "little")
            client.tell(Durable.DONE, 1, [[work.row, work.first, bitmap]])
            self.over.update(numbers[index] for index in settled)
        elif how == "drop":
            client.tell(Durable.DROP, 1, work.row, work.first + bits % len(numbers), "bad")
        else:
            client.tell(Durable.RETRY, 1, work.row, work.first + bits % len(numbers), bits % 500)

    def one_of(self, pick: int) -> RawClient:
        return list(self.held)[pick % len(self.held)]

    # --- the disk, time, and kills

    @rule(full=st.sampled_from(("full", "brim", "", "")))
    def fill(self, full: str) -> None:
        if self.world.disk is not None:
            self.world.disk.full, self.world.disk.brim = full == "full", full == "brim"

    @rule(written=st.booleans())
    def fail(self, written: bool) -> None:
        if self.world.disk is not None:
            self.world.disk.failing, self.world.disk.kept = True, written

    @rule(count=st.integers(1, 3))
    def step(self, count: int) -> None:
        """The journal does a little work, and the loop one turn."""
        if self.world.disk is not None:
            self.world.disk.step(count)
        self.world.turn()

    @rule(seconds=WAITS)
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)
        self.settle_down()

    @rule()
    def restart(self) -> None:
        self.hear()
        self.held.clear()
        self.pieces.clear()
        self.world = self.world.restart()
        self.world.sequence = max((sent.numbers.stop for sent in self.sent), default=1)

    # --- invariants

    def settle_down(self) -> None:
        self.world.pump()
        self.hear()

    def hear(self) -> None:
        """Record the answers for blocks and the deliveries to consumers."""
        for sent in self.sent:
            said = [each[-1][0] for each in sent.said if each]
            if Kept.KEPT in said:
                self.kept.update(sent.numbers)
            elif Kept.REFUSED in said and len(said) == len(sent.sealed) and Kept.DOUBT not in said:
                self.refused.update(sent.numbers)
        for client, held in self.held.items():
            work, client.work = client.work, []
            for each in work:
                numbers = self.numbers_in(client, each)
                if numbers:
                    held.append((each, numbers))

    def numbers_in(self, client: RawClient, work: Work) -> list[int]:
        if not work.block.whole_size:
            return [int(body) for body in work.bodies]
        key = client, work.row, work.attempt
        if not work.block.offset:
            self.pieces[key] = b""
        body = self.pieces.get(key, b"")
        assert len(body) == work.block.offset, "pieces come in order"
        self.pieces[key] = body = body + work.bodies[0]
        if len(body) < work.block.whole_size:
            return []
        del self.pieces[key]
        number = body.partition(b".")[0]
        assert body == (number + b".").ljust(LARGE, b"x")
        return [int(number)]

    def on_disk(self, name: str = "mail") -> set[int]:
        """The journal's unsettled messages of a subscription."""
        found: set[int] = set()
        for row in self.world.rows(name) if self.world.disk is not None else ():
            settled = int.from_bytes(row.bitmap, "little") << row.floor | (1 << row.floor) - 1
            if row.parts:
                block = self.world.journal.journal.fetch(row.parts[0]).block  # type: ignore[union-attr]
                found.add(int(blocks.open_block(block).bodies[0].partition(b".")[0]))
                continue
            for index, body in enumerate(blocks.open_block(row.block).bodies):
                if not settled >> index & 1:
                    found.add(int(body.partition(b".")[0]))
        return found

    @invariant()
    def what_was_kept_is_somewhere(self) -> None:
        self.hear()
        waiting, dead = self.on_disk(), self.on_disk(DEAD_PREFIX + "mail")
        lost = self.kept - waiting - dead - self.over
        assert not lost, f"{sorted(lost)} were kept and are nowhere"
        there = self.refused & (waiting | dead)
        assert not there, f"{sorted(there)} were refused and are on disk"

    @invariant()
    def queues_have_the_consumers_that_are_attached(self) -> None:
        for queue in self.world.home.queues():
            if queue.memory is not None:
                assert queue.memory.consumers == queue.consumers

    def drain(self) -> None:
        """A new broker with a working disk, and one consumer that settles everything it gets."""
        self.restart()
        left = self.on_disk()
        got: set[int] = set()
        client = self.world.client()
        client.attach("mail", "jobs.#", window=50, size=1 << 22)
        self.held[client] = []
        for _ in range(200):
            self.settle_down()
            for work, numbers in self.held[client]:
                got.update(numbers)
                self.over.update(numbers)
                client.done(work)
            self.held[client] = []
            self.world.wait(60.0)
            if not self.on_disk():
                break
        self.settle_down()
        assert got == left and not self.world.rows()
        self.what_was_kept_is_somewhere()


HomeMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHomeMachine = HomeMachine.TestCase
