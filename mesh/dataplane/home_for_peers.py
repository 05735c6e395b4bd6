"""Blocks of level stored that other brokers bring to this home, and what it says of them.

A block that comes over a link with the flag KEEP goes to the home of this broker (`Home.keep`), each copy of
it, and each copy is answered (KEPT): the home's journal knows which came before. This broker's live
subscribers get the block when it comes, and once. De-duplication as at any level tells copies apart for them;
the journal knows nothing of it.

Pieces of a large body come again one by one, when a link broke. `HandedPieces` remembers which of them the
live subscribers were given, so that they get each of them once and in order.

**Bounds.** Answers are gathered in a turn, and are among what a link may leave unwritten (`Neighbour.ask`).
What is beyond that is dropped and counted (``not_told``): the entry broker offers the block again. A link's
lowest numbers are remembered of `PUBLISHERS_MAX` publishers. Beyond that the first is forgotten, and the home
can forget less itself. `BODIES_MAX` bodies are remembered. Subscribers may get a piece of a forgotten one
twice, which ends it for them.

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
"""Answers in one frame, so that it stays below what a socket receives."""
BODIES_MAX: Final = 1024
PUBLISHERS_MAX: Final = 16384

Told = Callable[[Kept, str], None]
"""What became of a block, with a sentence for REFUSED and DOUBT; called once, perhaps before `Home.keep`
returns. The broker's next turn carries it on: see `Exchange.work`."""
Body = tuple[int, int, int]
"""Publisher, boot and number of a large body."""


class Home(Protocol):
    """What keeps blocks on this broker's disk for the durable subscriptions that were made here."""

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

        ``lowest``: its publisher waits for nothing below; 0: not known. ``offset``: of a piece in its body.
        It may be a copy of a block that came before, or whose commit is under way; ``again``: it may have
        come before this broker last started.
        """


class HandedPieces:
    """Which pieces of large bodies live subscribers were given."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[Body, set[int]] = OrderedDict()

    def is_new(self, body: Body, offset: int) -> bool:
        """Whether this piece was not given to them, which it is from now on."""
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
    """See the module. ``home`` is None where nothing can be kept."""

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
        """A checked block that another broker brought to be kept; ``again``: perhaps not for the first
        time."""
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
                self._work_pending()  # whoever tells may do so between the turns
            answers = self._answers[link] = []
        answers.append((publisher, boot, first, last, offset, int(verdict), sentence[:NAME_MAX]))

    def _tell(self) -> None:
        answers, self._answers = self._answers, {}
        for link, told in answers.items():
            for start in range(0, len(told), ANSWERS_MAX):
                part = told[start : start + ANSWERS_MAX]
                if not link.over and not link.ask(encode(Durable.KEPT, part)):
                    self._tally.drop("not_told", sum(entry[3] - entry[2] + 1 for entry in part))
