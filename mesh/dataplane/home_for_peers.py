"""Blocks of level stored that other brokers send to this home, and its answers to them.

A block with the flag KEEP on a link goes to the home of this broker (`Home.keep`). Each copy does and gets an
answer (KEPT), since the home's journal knows which messages it has. This broker's live subscribers get the
block when it first arrives. For them copies are recognised as at any level; the journal is not involved.

After a link broke, the pieces of a large body come again one by one. `HandedPieces` remembers which of them
the live subscribers got, so that they get each of them once and in order.

**Bounds.** Answers are collected during a turn. They count as unwritten bytes of a link (`Neighbour.ask`).
Answers beyond that are dropped and counted (``not_told``): the entry broker offers the block again. The
lowest numbers of `PUBLISHERS_MAX` publishers are remembered for a link. Beyond that the first is forgotten,
and the home itself can forget less. `BODIES_MAX` bodies are remembered. Subscribers may get a piece of a
forgotten body twice, which ends it for them.

Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from mesh.dataplane.counters import Tally
from mesh.dataplane.members import Neighbour
from mesh.dataplane.ports import Turn
from mesh.wire import blocks
from mesh.wire.durable_frames import Durable, Kept
from mesh.wire.session_frames import NAME_MAX, encode

ANSWERS_MAX: Final = 512
"""Answers in one frame, so that it stays below the receive limit of a socket."""
BODIES_MAX: Final = 1024
PUBLISHERS_MAX: Final = 16384

Told = Callable[[Kept, str], None]
"""The outcome for a block, with a sentence for REFUSED and DOUBT. Called once, perhaps before `Home.keep`
returns. The broker's next turn continues: see `Exchange.work`."""
Body = tuple[int, int, int]
"""Publisher, boot and number of a large body."""


class Home(Protocol):
    """Keeps blocks on this broker's disk for the durable subscriptions that were made here."""

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
        /,
    ) -> None:
        """Keep a well-formed block, whose messages have the numbers ``first`` to ``last``.

        ``lowest``: its publisher waits for nothing below; 0: not known. ``offset``: the place of a piece in
        its body. The block may be a copy of an earlier one, or of one whose commit is in progress. ``again``:
        it may have come before this broker last started.
        """


class HandedPieces:
    """The pieces of large bodies that live subscribers got."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[Body, set[int]] = OrderedDict()

    def is_new(self, body: Body, offset: int) -> bool:
        """True if they have not got this piece. From now on they have."""
        offsets = self._offsets.get(body)
        if offsets is None:
            offsets = self._offsets[body] = set()
            if len(self._offsets) > BODIES_MAX:
                self._offsets.popitem(last=False)
        if offset in offsets:
            return False
        offsets.add(offset)
        return True


class HomeForPeers:
    """Keeps the blocks that other brokers send. ``home`` is None if nothing can be kept."""

    def __init__(self, turn: Turn, tally: Tally, work_pending: Callable[[], None]) -> None:
        self.home: Home | None = None
        self.pieces = HandedPieces()
        self._turn = turn
        self._tally = tally
        self._work_pending = work_pending
        self._answers: dict[Neighbour, list[tuple[int, int, int, int, int, int, str]]] = {}

    def keep(
        self,
        link: Neighbour,
        block: bytes,
        first: int,
        count: int,
        publisher: int,
        boot: int,
        *,
        again: bool,
    ) -> None:
        """Keep a checked block from another broker. ``again``: perhaps not for the first time."""
        offset, last = blocks.offset_of(block), first + count - 1
        told = partial(self._told, link, publisher, boot, first, last, offset)
        if self.home is None:
            told(Kept.REFUSED, "it keeps no messages")
            return
        lowest = link.lowest_heard.get((publisher, boot), 0)
        self.home.keep(block, publisher, boot, first, last, lowest, offset, told, again)

    def heard_lowest(self, link: Neighbour, publisher: int, boot: int, lowest: int) -> None:
        """LOWEST: a publisher waits for nothing below that number."""
        heard = link.lowest_heard
        heard[publisher, boot] = max(lowest, heard.get((publisher, boot), 0))
        if len(heard) > PUBLISHERS_MAX:
            heard.popitem(last=False)

    def _told(
        self,
        link: Neighbour,
        publisher: int,
        boot: int,
        first: int,
        last: int,
        offset: int,
        verdict: Kept,
        sentence: str,
    ) -> None:
        if link.over:
            return
        answers = self._answers.get(link)
        if answers is None:
            if not self._answers:
                self._turn.ends.append(self._tell)
                self._work_pending()  # the answer may come between turns
            answers = self._answers[link] = []
        answers.append((publisher, boot, first, last, offset, int(verdict), sentence[:NAME_MAX]))

    def _tell(self) -> None:
        answers, self._answers = self._answers, {}
        for link, told in answers.items():
            for start in range(0, len(told), ANSWERS_MAX):
                part = told[start : start + ANSWERS_MAX]
                if not link.over and not link.ask(encode(Durable.KEPT, part)):
                    self._tally.drop("not_told", sum(entry[3] - entry[2] + 1 for entry in part))
