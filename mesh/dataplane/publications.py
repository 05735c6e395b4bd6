"""A block of level stored, or a large body, in flight: the homes that have kept it, and its outcome.

A `Publication` is acknowledged as a whole. Its `Part`s are the blocks that carry it: one, or the pieces of
the body. Each is held in memory, with its sender's credit, until every home has confirmed that it is kept.

**The answers of a home**, for a publication::

    nothing ---> kept      for certain: all of it is on its disk
            ---> refused   for certain: it does not have it, and no copy is on its way there
            ---> past      its publisher said earlier that it no longer waits for these numbers
            ---> doubtful  it may be kept; nobody knows
            ---> unwanted  the home no longer counts

A doubtful home is asked again. ``waiting`` of a part counts the copies on their way to each home that has not
kept it. A home answers each copy, in any order. It judges a copy by those that came before. So a refusal is
certain once the last copy on its way is refused. Copies that a link lost no longer count, since the next one
comes after them.

**Its outcome**, as soon as every home that counts has kept it or refused it for certain::

    all kept                 acknowledged, with the names of the homes
    all refused              refused, with the sentence of the first
    none counts              refused: nobody keeps it
    all kept it, or past     neither: its publisher is told which homes consider it past, and decides itself
    some kept, some refused  not ended: it is offered again to those that refused; past counts as kept here

One refused piece refuses a large body; the last missing piece, once kept, completes it. A piece is released
once every home has it. Otherwise a body could not exceed its sender's credit. Pure.
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
        """Homes that have not kept it, and the number of copies on their way to each."""


class Publication:
    """A block or a large body, acknowledged as a whole. The module's docstring explains it."""

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
        """The session that sent it last, which learns the outcome."""
        self.topic = topic
        self.first = first
        self.last = last
        self.homes: dict[KnownHome, None] = dict.fromkeys(homes)
        self.absent: tuple[str, ...] = ()
        """Brokers that were absent when live subscribers got it."""
        self.crc = 0
        """The CRC of the block if it is a single one."""
        self.began_at = now
        self.piecewise = piecewise
        self.parts: dict[int, Part] = {}
        """Parts that some home has not kept, by their offsets in the body."""
        self.kept: dict[KnownHome, None] = {}
        self.refused: dict[KnownHome, str] = {}
        """Homes that refused it for certain, with their sentences."""
        self.past: dict[KnownHome, None] = {}
        """Homes that its publisher told that it no longer waits for it."""
        self.final: dict[KnownHome, None] = {}
        """Homes whose answer will not change."""
        self.doubted = False
        """True if a home does not know whether it has kept it."""
        self.told: tuple[list[str], list[str]] | None = None
        """The homes that have kept it, and the others, as last told to its publisher."""
        self.over = False

    @property
    def is_doubtful(self) -> bool:
        """True if its publisher must be told which homes have kept it. That is so if only some did, if it may
        never be acknowledged, or if the publisher was told something else before."""
        return bool(self.told or self.final or self.doubted or (self.kept and self.refused))

    @property
    def state(self) -> tuple[list[str], list[str]]:
        """Names of the homes that have kept it, and of the others."""
        kept = self.kept
        return [home.name for home in kept], [home.name for home in self.homes if home not in kept]

    def outcome(self) -> Ending | None:
        """Its outcome. None while it is in flight."""
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
    """The outcome of a publication. If it is not kept, a sentence says why; it is empty if there is no
    home."""

    kept: bool
    sentence: str = ""


KEPT: Final = Ending(True)
UNWANTED: Final = Ending(False)
PAST: Final = Ending(False, "past")


class Source:
    """One run of a publisher with publications in flight, in order of arrival."""

    __slots__ = ("idle", "key", "lowest", "over_at", "publications", "record")

    def __init__(self, record: Publisher) -> None:
        self.key = record.key
        self.record = record
        self.lowest = 0
        """The publisher waits for nothing below."""
        self.publications: dict[int, Publication] = {}
        """By the first number."""
        self.idle: dict[Publication, None] = {}
        """Large bodies whose pieces so far were all released."""
        self.over_at: float | None = None
        """When its last session here ended."""
