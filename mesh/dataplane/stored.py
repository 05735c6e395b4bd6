"""All blocks of level stored in flight: the answers of their homes, and when they are offered again or given
up.

The entry broker stores nothing. It keeps blocks in flight (`mesh.dataplane.publications`) in memory, and
offers them again until every home has confirmed that it keeps them.

A publication is also given up in these cases. Its publisher is not told, and sends it again if it still
waits:

* the publisher says that it no longer waits for it;
* `ORPHANED_S` have passed since the publisher's last session here ended;
* it is the oldest of the publications without a session, and these take more than `ORPHANS_BYTES_MAX`.

The credit of a session bounds its publications, except for large bodies without a piece here now. One
publisher may have `BODIES_MAX` of these; beyond that the oldest is forgotten. Its next piece makes it known
again. Pure.
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
"""After this time a publisher is told about the state of its publication."""
PAUSES_S: Final = (4.5, 10.0, 20.0, 40.0, 60.0)
"""Pauses after that before a publication is offered again to homes that have not answered. The last one
repeats."""
ORPHANED_S: Final = 60.0
ORPHANS_BYTES_MAX: Final = 64 << 20
PUBLICATION_BYTES: Final = 1000
"""Approximate memory of a publication besides its blocks."""
BODIES_MAX: Final = 256


class StoredPublications:
    """All publications in flight."""

    def __init__(self) -> None:
        self._sources: dict[Key, Source] = {}
        self._young: dict[Publication, None] = {}
        """Publications that are not slow yet."""
        self._due: list[deque[tuple[float, Publication]]] = [deque() for _ in PAUSES_S]
        """When the others are offered again, by how often they were."""
        self._orphans: OrderedDict[Publication, int] = OrderedDict()
        """Publications whose session has ended, and their sizes."""
        self._orphan_bytes = 0
        self._forgotten: list[Publication] = []
        """Large bodies given up for lack of room since the last call of `expire`."""

    def __len__(self) -> int:
        return sum(len(source.publications) for source in self._sources.values())

    def __iter__(self) -> Iterator[Publication]:
        """Publications, in order of arrival for each publisher."""
        for source in self._sources.values():
            yield from source.publications.values()

    def find(self, key: Key, first: int) -> Publication | None:
        source = self._sources.get(key)
        return None if source is None else source.publications.get(first)

    # --- publishers

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
        """A new publication of a session, to be kept at these homes. It has no parts yet."""
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
        """Add a block, whose credit the publication holds once. Offer it to the homes in ``waiting``."""
        part = publication.parts[offset] = Part(publication, offset, block, count, held)
        publication.source.idle.pop(publication, None)
        if publication in self._orphans:
            self._orphans[publication] += len(block)
            self._orphan_bytes += len(block)
        return part

    def sent_again(
        self, publication: Publication, part: Part, sender: Session, held: HeldCredit, now: float
    ) -> None:
        """A retry of a part in flight shares its outcome. One of two copies from one session holds its
        credit."""
        if part.held.ingress is not held.ingress:
            part.held, held = held, part.held
        held.release()
        if sender is not publication.sender:
            publication.told = None
            self._set_sender(publication, sender, now)

    def waits_from(self, key: Key, lowest: int) -> list[Publication]:
        """A publisher waits for nothing below ``lowest``. Gives up and returns the publications that end
        below it."""
        source = self._sources.get(key)
        if source is None or lowest <= source.lowest:
            return []
        source.lowest = lowest
        below = []
        for publication in source.publications.values():
            if publication.first >= lowest:
                break  # in the order of their numbers, except for retries
            if publication.last < lowest:
                below.append(publication)
        for publication in below:
            self.end(publication)
        return below

    def session_over(self, session: Session, now: float) -> list[Publication]:
        """Keep the session's publications for a while. Returns those that are given up at once, for lack of
        room."""
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

    # --- answers of homes

    def answered(
        self, home: KnownHome, key: Key, first: int, offset: int, verdict: int, sentence: str
    ) -> Publication | None:
        """Take a home's answer to one copy of one block. Returns the publication, unless it has ended or had
        this answer before."""
        publication = self.find(key, first)
        part = None if publication is None else publication.parts.get(offset)
        if publication is None or part is None or home not in part.waiting:
            return None
        match verdict:
            case Kept.KEPT:
                publication.kept[home] = None
                publication.refused.pop(home, None)
                # the home keeps the other pieces of the body as well
                for each in list(publication.parts.values()):
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
        """A home no longer counts: the subscription that wanted the topic there was removed."""
        publication.homes.pop(home, None)
        publication.refused.pop(home, None)
        publication.past.pop(home, None)
        for part in list(publication.parts.values()):
            self._has(publication, part, home)

    @staticmethod
    def ask_again(part: Part, home: KnownHome) -> bool:
        """True if a part should be offered to a home again. A home that refused for certain is asked again
        only if another home has kept the part or considers it past, since it can no longer be refused then.
        """
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
        """Publications that have become slow. They are offered again from now on."""
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
        """Publications to offer again now."""
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
        """Give up old publications whose publishers have no session here. Returns these and those given up
        for lack of room. Publishers without publications are forgotten."""
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
        """The publication has ended: return all credit."""
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
        """A home need not keep a part any more. If no home needs it, it is released."""
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
