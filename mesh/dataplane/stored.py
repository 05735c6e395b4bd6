"""All blocks of level stored under way: the answers of their homes, and when they are offered again or
given up.

The entry broker stores nothing. It keeps what is under way (`mesh.dataplane.publications`) in memory, and
offers it again until every home has said that it is kept.

A publication is also given up, without a word to its publisher, who sends it again if it still waits:

* when the publisher says that it waits for it no more;
* `ORPHANED_S` after the publisher's last session here ended;
* the oldest of those whose session is over, when these have more than `ORPHANS_BYTES_MAX`.

Those of a session are bounded by its credit, but for the bodies of which it holds no piece now: `BODIES_MAX`
of one publisher, of which the oldest is forgotten. Its pieces make it known again. Pure.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final

from mesh.dataplane.backlogs import Buffer
from mesh.dataplane.credit import HeldCredit
from mesh.dataplane.durable_routes import KnownHome
from mesh.dataplane.publications import CONFLICT, Key, Part, Publication, Source
from mesh.dataplane.sessions import Session
from mesh.wire.durable_frames import Kept

SLOW_S: Final = 0.5
"""A publisher is told of what takes longer."""
PAUSES_S: Final = (4.5, 10.0, 20.0, 40.0, 60.0)
"""After that, when a publication is offered again to homes that have not said; then always after the last of
these."""
ORPHANED_S: Final = 60.0
ORPHANS_BYTES_MAX: Final = 64 << 20
PUBLICATION_BYTES: Final = 1000
"""What a publication takes beside its blocks, about."""
BODIES_MAX: Final = 256


class StoredPublications:
    """All publications under way."""

    def __init__(self) -> None:
        self._sources: dict[Key, Source] = {}
        self._young: dict[Publication, None] = {}
        """Those that are not slow yet."""
        self._due: list[deque[tuple[float, Publication]]] = [deque() for _ in PAUSES_S]
        """When others are offered again, by how often they were."""
        self._orphans: OrderedDict[Publication, int] = OrderedDict()
        """Those whose session is over, and what they take."""
        self._orphan_bytes = 0
        self._forgotten: list[Publication] = []
        """Large bodies given up for want of room since `expire` was called last."""

    def __len__(self) -> int:
        return sum(len(source.publications) for source in self._sources.values())

    def __iter__(self) -> Iterator[Publication]:
        """In the order in which each publisher's came."""
        for source in self._sources.values():
            yield from source.publications.values()

    def find(self, key: Key, first: int) -> Publication | None:
        source = self._sources.get(key)
        return None if source is None else source.publications.get(first)

    # --- what a publisher says

    def begin(
        self,
        sender: Session,
        topic: bytes,
        first: int,
        last: int,
        homes: Iterable[KnownHome],
        lowest: int,
        now: float,
        *,
        piecewise: bool,
    ) -> Publication:
        """Something new of a session, to be kept at these homes; it has no parts yet."""
        key = sender.publisher.key
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(sender.publisher)
        source.lowest = max(source.lowest, lowest)
        publication = Publication(source, sender, topic, first, last, homes, now, piecewise=piecewise)
        source.publications[first] = publication
        self._young[publication] = None
        self._set_sender(publication, sender, now)
        return publication

    def add(self, publication: Publication, offset: int, block: Buffer, count: int, held: HeldCredit) -> Part:
        """A block of it, whose credit is held once for it; it is to be offered to those in ``waiting``."""
        part = publication.parts[offset] = Part(publication, offset, block, count, held)
        publication.source.idle.pop(publication, None)
        if publication in self._orphans:
            self._orphans[publication] += len(block)
            self._orphan_bytes += len(block)
        return part

    def sent_again(
        self, publication: Publication, part: Part, sender: Session, held: HeldCredit, now: float
    ) -> None:
        """A retry of what is under way: it shares the outcome. Of a session's two copies one holds its
        credit."""
        if part.held.ingress is not held.ingress:
            part.held, held = held, part.held
        held.release()
        if sender is not publication.sender:
            publication.told = None
            self._set_sender(publication, sender, now)

    def waits_from(self, key: Key, lowest: int) -> list[Publication]:
        """A publisher waits for nothing below ``lowest``: gives up what ends below it, and returns that."""
        source = self._sources.get(key)
        if source is None or lowest <= source.lowest:
            return []
        source.lowest = lowest
        below = []
        for publication in source.publications.values():
            if publication.first >= lowest:
                break  # in the order of their numbers, but for retries
            if publication.last < lowest:
                below.append(publication)
        for publication in below:
            self.end(publication)
        return below

    def session_over(self, session: Session, now: float) -> list[Publication]:
        """Go on with what it sent, for a while; returns what is given up at once, for want of room."""
        source = self._sources.get(session.publisher.key)
        if source is None:
            return []
        if not session.publisher.sessions:
            source.over_at = now
        for publication in source.publications.values():
            if publication.sender is session:
                self._orphan(publication)
        given_up = []
        while self._orphan_bytes > ORPHANS_BYTES_MAX:
            given_up.append(next(iter(self._orphans)))
            self.end(given_up[-1])
        return given_up

    # --- what homes say

    def answered(
        self, home: KnownHome, key: Key, first: int, offset: int, verdict: int, sentence: str
    ) -> Publication | None:
        """Take a home's answer to one copy of one block. Returns the publication, unless it is over or had
        this answer before."""
        publication = self.find(key, first)
        part = None if publication is None else publication.parts.get(offset)
        if publication is None or part is None or home not in part.waiting:
            return None
        match verdict:
            case Kept.KEPT:
                publication.kept[home] = None
                publication.refused.pop(home, None)
                for each in list(publication.parts.values()):  # of a body the others are kept as well
                    self._has(publication, each, home)
            case Kept.PART if publication.piecewise:
                self._has(publication, part, home)
            case Kept.UNWANTED:
                self.no_home(publication, home)
            case Kept.CONFLICT:
                publication.refused[home] = CONFLICT
                publication.final[home] = None
            case Kept.PAST:
                publication.past[home] = None
                publication.final[home] = None
            case Kept.REFUSED:
                part.waiting[home] -= 1
                if part.waiting[home] <= 0:
                    publication.refused[home] = sentence
            case Kept.DOUBT:
                part.waiting[home] -= 1
                publication.doubted = True
        return publication

    def no_home(self, publication: Publication, home: KnownHome) -> None:
        """A home does not count any more: what wanted the topic there was removed."""
        publication.homes.pop(home, None)
        publication.refused.pop(home, None)
        publication.past.pop(home, None)
        for part in list(publication.parts.values()):
            self._has(publication, part, home)

    @staticmethod
    def ask_again(part: Part, home: KnownHome) -> bool:
        """Whether a part is to be offered to a home again. One that refused for certain is asked again only
        if another has kept it, or holds it for past, as it cannot be refused any more then."""
        publication = part.publication
        if publication.over or home not in part.waiting or home in publication.final:
            return False
        if home in publication.refused:
            if not publication.kept and not publication.past:
                return False
            del publication.refused[home]
        return True

    # --- time

    def slow(self, now: float) -> list[Publication]:
        """Those that have become slow; they are to be offered again from now on."""
        found = []
        for publication in self._young:
            if now - publication.began_at < SLOW_S:
                break
            found.append(publication)
            self._due[0].append((now + PAUSES_S[0], publication))
        for publication in found:
            del self._young[publication]
        return found

    def due(self, now: float) -> list[Publication]:
        """Those that are to be offered again now."""
        found = []
        for often, line in enumerate(self._due):
            following = min(often + 1, len(PAUSES_S) - 1)
            while line and line[0][0] <= now:
                _, publication = line.popleft()
                if not publication.over:
                    found.append((following, publication))
        for following, publication in found:
            self._due[following].append((now + PAUSES_S[following], publication))
        return [publication for _, publication in found]

    def expire(self, now: float) -> list[Publication]:
        """Give up what publishers without a session here left behind for long. Returns that, and what was
        given up for want of room. Publishers with nothing under way are forgotten."""
        given_up: list[Publication] = []
        forgotten, self._forgotten = self._forgotten, []
        for key, source in list(self._sources.items()):
            if source.over_at is not None and source.record.sessions:
                source.over_at = None
            if source.over_at is not None and now - source.over_at >= ORPHANED_S:
                given_up += source.publications.values()
                del self._sources[key]
            elif not source.publications:
                del self._sources[key]
        for publication in given_up:
            self.end(publication)
        return forgotten + given_up

    def end(self, publication: Publication) -> None:
        """It is over: all credit goes back."""
        publication.over = True
        publication.source.publications.pop(publication.first, None)
        publication.source.idle.pop(publication, None)
        self._young.pop(publication, None)
        self._orphan_bytes -= self._orphans.pop(publication, 0)
        for part in publication.parts.values():
            part.held.release()
        publication.parts.clear()

    # ---

    def _has(self, publication: Publication, part: Part, home: KnownHome) -> None:
        """A home need not keep a part any more. Once none need, the part is let go."""
        part.waiting.pop(home, None)
        if part.waiting or publication.parts.get(part.offset) is not part:
            return
        del publication.parts[part.offset]
        part.held.release()
        if publication.piecewise and not publication.parts:
            idle = publication.source.idle
            idle[publication] = None
            if len(idle) > BODIES_MAX:
                self._forgotten.append(next(iter(idle)))
                self.end(self._forgotten[-1])

    def _set_sender(self, publication: Publication, sender: Session, now: float) -> None:
        publication.sender = sender
        self._orphan_bytes -= self._orphans.pop(publication, 0)
        if not sender.closed:
            publication.source.over_at = None
        else:  # its block waited behind the gate
            self._orphan(publication)
            if not sender.publisher.sessions:
                publication.source.over_at = now

    def _orphan(self, publication: Publication) -> None:
        size = PUBLICATION_BYTES + sum(len(part.block) for part in publication.parts.values())
        self._orphans[publication] = size
        self._orphan_bytes += size
