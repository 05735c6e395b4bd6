"""Blocks of level stored on their way to the journal, and the answer to each. Pure.

The blocks of one turn are submitted together. The answer to a block is a `Kept`:

* A block that comes again while its commit is in progress shares its outcome.
* When the disk is full or too slow, the journal refuses a block before it checks whether it came before. So
  the journal is asked: blocks of an earlier commit are on disk, and only new ones are refused.
* When the journal fails, blocks of the failed commits may be found when it is opened again. So these blocks
  are in doubt, now and whenever they come again. Others are refused from then on.

``again`` says that a block may have come before. While the journal cannot be asked, that stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from mesh.dataplane.durables import Durables
from mesh.dataplane.home_journal import HomeJournal
from mesh.errors import BlockError, JournalFailed, StoreFull
from mesh.journal.port import Result
from mesh.journal.records import Answer, Store, Verdict
from mesh.wire.blocks import HEAD_SIZE, PIECE, check
from mesh.wire.durable_frames import SENTENCE_MAX, Kept

Told = Callable[[Kept, str], None]
"""The outcome for a block, with a sentence for `Kept.REFUSED` and `Kept.DOUBT`."""
Key = tuple[int, int, int, int]
"""Publisher, boot, first number, offset of the piece."""

TOGETHER_BYTES_MAX: Final = 1 << 20
"""Bytes of blocks submitted together. A submission is part of one commit, and commits should be short."""
SAID: Final = {
    Verdict.STORED: Kept.KEPT,
    Verdict.DUPLICATE: Kept.KEPT,
    Verdict.PART: Kept.PART,
    Verdict.CONFLICT: Kept.CONFLICT,
    Verdict.PAST: Kept.PAST,
    Verdict.UNWANTED: Kept.UNWANTED,
}


class Block:
    """One block on its way to the journal, and the callbacks for its answer."""

    __slots__ = ("again", "key", "store", "told")

    def __init__(self, key: Key, store: Store, told: Told, again: bool) -> None:
        self.key = key
        self.store = store
        self.told = [told]
        self.again = again

    def tell(self, kept: Kept, sentence: str = "") -> None:
        for told in self.told:
            told(kept, sentence)


class Keeping:
    """Submits blocks to the journal. ``stored`` is called with each committed block and its answer. ``full``
    is called with the subscriptions that wanted a block for which the disk has no room, and its message
    count."""

    def __init__(
        self,
        durables: Durables,
        journal: HomeJournal,
        stored: Callable[[Store, Answer], None],
        full: Callable[[tuple[int, ...], int], None],
    ) -> None:
        self._durables = durables
        self._journal = journal
        self._stored = stored
        self._full = full
        self._batch: list[Block] = []
        self._under_way: dict[Key, Block] = {}
        self._doubtful: dict[Key, None] = {}
        self.stored = 0
        """Messages, or pieces of large bodies, that were committed."""
        self.duplicates = 0
        """Messages that came again."""
        self.refused = 0
        """Messages for which there was no room."""

    @property
    def gathered(self) -> bool:
        """True if there are blocks to submit."""
        return bool(self._batch)

    def is_for(self, id: int) -> bool:
        """True if a block for that subscription is on its way to the journal."""
        return any(id in block.store.wants for block in self._under_way.values())

    def keep(
        self,
        block: bytes,
        publisher: int,
        boot: int,
        first: int,
        last: int,
        lowest: int,
        offset: int,
        told: Told,
        again: bool,
    ) -> None:
        """Keep a block. ``told`` may be called before this returns."""
        key = (publisher, boot, first, offset)
        refusing = self._journal.refusing
        if refusing:
            doubt = again or key in self._doubtful
            told(Kept.DOUBT if doubt else Kept.REFUSED, refusing[:SENTENCE_MAX])
            return
        wants = self._durables.wanting(block[HEAD_SIZE : HEAD_SIZE + block[3]])
        if not wants:
            told(Kept.UNWANTED, "")
            return
        under_way = self._under_way.get(key)
        if under_way is not None and under_way.store.block == block:
            under_way.told.append(told)
            under_way.again = under_way.again or again
            return
        if block[1] & PIECE:
            try:  # an unreadable block would fail the whole commit
                check(block, 0)
            except BlockError as error:
                told(Kept.REFUSED, str(error)[:SENTENCE_MAX])
                return
        new = Block(key, Store(publisher, boot, first, last, lowest, block, wants), told, again)
        self._batch.append(new)
        if under_way is None:
            self._under_way[key] = new

    def submit(self) -> None:
        """Submit the blocks of this turn."""
        part: list[Block] = []
        size = 0
        for block in self._batch:
            if part and size + len(block.store.block) > TOGETHER_BYTES_MAX:
                self._submit(part)
                part, size = [], 0
            part.append(block)
            size += len(block.store.block)
        self._batch = []
        if part:
            self._submit(part)

    def _submit(self, part: list[Block]) -> None:
        self._journal.submit([block.store for block in part], partial(self._committed, part))

    def _committed(self, part: Sequence[Block], result: Result, now: float) -> None:
        if isinstance(result, Exception) and self._journal.is_open:
            self._look_for(part, result)
            return
        for block in part:
            self._is_over(block)
        if isinstance(result, JournalFailed):
            self._doubtful.update(dict.fromkeys(block.key for block in part))
            for block in part:
                block.tell(Kept.DOUBT, str(result)[:SENTENCE_MAX])
        elif isinstance(result, Exception):  # the journal failed before it got these
            for block in part:
                doubt = block.again or block.key in self._doubtful
                block.tell(Kept.DOUBT if doubt else Kept.REFUSED, str(result)[:SENTENCE_MAX])
        else:
            for block, answer in zip(part, result, strict=True):
                count = block.store.last - block.store.first + 1
                if answer.row:
                    self._stored(block.store, answer)
                if answer.verdict is Verdict.DUPLICATE:
                    self.duplicates += count
                elif answer.row or answer.verdict is Verdict.PART:
                    self.stored += count
                block.tell(SAID[answer.verdict])

    def _look_for(self, part: Sequence[Block], why: Exception) -> None:
        """There is no room: find out which of these blocks an earlier commit kept."""
        stores = [block.store for block in part]

        def judge(journal: Any) -> list[Verdict]:
            return [journal.judge(store) for store in stores]

        def judged(found: Sequence[Verdict] | Exception, now: float) -> None:
            for number, block in enumerate(part):
                self._is_over(block)
                if isinstance(found, Exception):
                    self._doubtful[block.key] = None
                    block.tell(Kept.DOUBT, str(found)[:SENTENCE_MAX])
                elif found[number] is Verdict.STORED:
                    count = block.store.last - block.store.first + 1
                    self.refused += count
                    if isinstance(why, StoreFull):
                        self._full(block.store.wants, count)
                    block.tell(Kept.REFUSED, str(why)[:SENTENCE_MAX])
                else:
                    block.tell(SAID[found[number]])

        self._journal.ask(judge, judged)

    def _is_over(self, block: Block) -> None:
        if self._under_way.get(block.key) is block:
            del self._under_way[block.key]
