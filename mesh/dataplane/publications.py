"""A block of level stored, or a large body, that is under way: the homes that have kept it, and its
outcome.

A `Publication` is what is acknowledged as a whole. Its `Part`s are the blocks that carry it: one, or the
pieces of the body. Each is held in memory, with its sender's credit, until every home has said that it is
kept.

**What a home has said**, for a publication::

    nothing ---> kept      for certain: it has all of it on its disk
            ---> refused   for certain: it has not, and no copy is on its way there any more
            ---> past      its publisher said earlier that it waits for these numbers no more
            ---> doubtful  it may be kept, and nobody knows
            ---> unwanted  the home does not count any more

A home that is doubtful is asked again. ``waiting`` of a part counts the copies on their way to each home that
has not kept it. A home answers each copy, in any order. It judges a copy by those that came before. So a
refusal is certain once the last copy that is on its way is refused. Copies that a link lost count no more, as
the next one comes after them.

**How it ends**, as soon as every home that counts has kept it or refused it for certain::

    all kept                 acknowledged, with the names of the homes
    all refused              refused, with the sentence of the first
    none counts              refused: nobody keeps it
    all kept it, or past     neither: its publisher is told which homes hold it for past, and judges itself
    some kept, some refused  not ended: it is offered again to those that refused; past counts as kept here

Of a large body one piece that is refused refuses it, and the last missing piece that is kept keeps it. A
piece is let go once every home has it, or else a body could be no larger than its sender's credit. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mesh.dataplane.backlogs import Buffer
from mesh.dataplane.credit import HeldCredit
from mesh.dataplane.deduplication import Publisher
from mesh.dataplane.durable_routes import KnownHome
from mesh.dataplane.sessions import Session

CONFLICT: Final = "conflict: other messages came under these numbers"

Key = tuple[int, int]
"""A publisher and its boot."""


class Part:
    """One block of a publication. ``held``: credit of its sender."""

    __slots__ = ("block", "count", "held", "offset", "publication", "waiting")

    def __init__(
        self, publication: Publication, offset: int, block: Buffer, count: int, held: HeldCredit
    ) -> None:
        self.publication = publication
        self.offset = offset
        self.block = block
        self.count = count
        self.held = held
        self.waiting: dict[KnownHome, int] = dict.fromkeys(
            (home for home in publication.homes if home not in publication.kept), 0
        )
        """Homes that have not kept it, and how many copies are on their way to each."""


class Publication:
    """What is acknowledged as a whole; see the module."""

    __slots__ = (
        "absent",
        "began_at",
        "crc",
        "doubted",
        "final",
        "first",
        "homes",
        "kept",
        "last",
        "over",
        "parts",
        "past",
        "piecewise",
        "refused",
        "sender",
        "source",
        "told",
        "topic",
    )

    def __init__(
        self,
        source: Source,
        sender: Session,
        topic: bytes,
        first: int,
        last: int,
        homes: Iterable[KnownHome],
        now: float,
        *,
        piecewise: bool,
    ) -> None:
        self.source = source
        self.sender = sender
        """The session that sent it last; it hears how it ends."""
        self.topic = topic
        self.first = first
        self.last = last
        self.homes: dict[KnownHome, None] = dict.fromkeys(homes)
        self.absent: tuple[str, ...] = ()
        """Brokers that were absent when live subscribers got it."""
        self.crc = 0
        """Of the block, if it is one."""
        self.began_at = now
        self.piecewise = piecewise
        self.parts: dict[int, Part] = {}
        """Those that some home has not kept, by their offsets in the body."""
        self.kept: dict[KnownHome, None] = {}
        self.refused: dict[KnownHome, str] = {}
        """For certain, with what each said."""
        self.past: dict[KnownHome, None] = {}
        """Homes that its publisher told that it waits for it no more."""
        self.final: dict[KnownHome, None] = {}
        """Homes whose answer will stay what it is."""
        self.doubted = False
        """A home does not know whether it has kept it."""
        self.told: tuple[list[str], list[str]] | None = None
        """The homes that have kept it, and those that have not, as its publisher was told last."""
        self.over = False

    @property
    def is_doubtful(self) -> bool:
        """Whether its publisher must be told which homes have kept it: some did and some did not, it may
        never be acknowledged, or the publisher was told something else before."""
        return bool(self.told or self.final or self.doubted or (self.kept and self.refused))

    @property
    def state(self) -> tuple[list[str], list[str]]:
        """Names of the homes that have kept it, and of the others."""
        kept = self.kept
        return [home.name for home in kept], [home.name for home in self.homes if home not in kept]

    def outcome(self) -> Ending | None:
        """How it ends; None: it goes on."""
        kept, refused, past = self.kept, self.refused, self.past
        for home in self.homes:
            if home not in kept and home not in refused and home not in past:
                return None
        if refused:
            return None if kept or past else Ending(False, next(iter(refused.values())))
        if past:
            return PAST
        return KEPT if kept else UNWANTED


@dataclass(frozen=True, slots=True)
class Ending:
    """How a publication ends; if it is not kept, with a sentence, empty if that is for want of a home."""

    kept: bool
    sentence: str = ""


KEPT: Final = Ending(True)
UNWANTED: Final = Ending(False)
PAST: Final = Ending(False, "past")


class Source:
    """One run of a publisher that has publications under way, in the order in which they came."""

    __slots__ = ("idle", "key", "lowest", "over_at", "publications", "record")

    def __init__(self, record: Publisher) -> None:
        self.key = record.key
        self.record = record
        self.lowest = 0
        """It waits for nothing below."""
        self.publications: dict[int, Publication] = {}
        """By the first number."""
        self.idle: dict[Publication, None] = {}
        """Large bodies of which each piece that came was let go."""
        self.over_at: float | None = None
        """When its last session here ended."""
