"""Blocks of level stored at the broker that their publisher is connected to.

A block goes to all live subscribers at once, as at any level, and to each home with a durable subscription
that wants its topic. `mesh.dataplane.durable_routes` knows these homes, and their answers decide
(`mesh.dataplane.stored`). This module connects both to sessions, whose publishers learn the outcome
(`mesh.dataplane.stored_replies`), and to homes, which get copies (`mesh.dataplane.offering`). A home that is
also a live taker gets one copy.

This broker refuses a block only if certainly nobody has it: no home wants its topic, a home that wants it has
no link, or it is not known what some member keeps. Once the block was delivered, only the homes can refuse
it.

**Retries.** A retry of a block in flight shares the outcome of the first copy, whichever session it comes
from. Recently acknowledged blocks (`PAST_MAX`, with their CRC) are acknowledged again. Any other retry is
offered to the homes, whose journals know it. The same numbers with other messages are a conflict and refused.

Pure.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mesh.dataplane.backlogs import Buffer
from mesh.dataplane.counters import Tally
from mesh.dataplane.credit import HeldCredit
from mesh.dataplane.durable_routes import DurableRoutes, KnownHome
from mesh.dataplane.home_for_peers import HomeForPeers
from mesh.dataplane.intake import Intake
from mesh.dataplane.members import Members, Neighbour
from mesh.dataplane.offering import Offering
from mesh.dataplane.ports import Turn
from mesh.dataplane.publications import CONFLICT, PAST, Key, Part, Publication
from mesh.dataplane.refused_topics import RefusedTopics
from mesh.dataplane.sessions import Session
from mesh.dataplane.stored import StoredPublications
from mesh.dataplane.stored_replies import StoredReplies
from mesh.errors import SessionError
from mesh.wire import blocks
from mesh.wire.durable_frames import BEHIND_MAX, Kept

PAST_MAX: Final = 16384

Past = tuple[int, int, tuple[str, ...], tuple[str, ...]]
"""Last number and CRC of an acknowledged block, the homes that keep it, and the brokers that were absent.
Without homes: the block was given up, and a home may still answer."""


class EntryBroker:
    """The entry broker of its clients' stored blocks. ``unknown``: live members whose durable subscriptions
    are not known."""

    def __init__(
        self,
        *,
        id: int,
        name: str,
        members: Members,
        intake: Intake,
        own: HomeForPeers,
        turn: Turn,
        tally: Tally,
        work_pending: Callable[[], None],
    ) -> None:
        self.routes = DurableRoutes()
        self.unknown: tuple[str, ...] = ()
        self._id = id
        self._name = name
        self._members = members
        self._intake = intake
        self._own = own
        self._tally = tally
        self._work_pending = work_pending
        self._stored = StoredPublications()
        self._past: OrderedDict[tuple[Key, int], Past] = OrderedDict()
        self._refused_topics = RefusedTopics()
        self.refused = self._refused_topics.refused
        """Call this when a block of level stored was refused before it came here."""
        self._replies = StoredReplies(intake, turn)
        self.offering = Offering(
            id, self.routes, self._stored, intake, own, turn, told=self._told, work_pending=work_pending
        )

    @property
    def storing(self) -> int:
        """Blocks and large bodies in flight to their homes."""
        return len(self._stored)

    # --- what clients send

    def client_block(
        self,
        session: Session,
        block: Buffer,
        sequence: int,
        count: int,
        topic: bytes,
        takers: tuple[Any, ...],
        behind: int,
        flags: int,
        now: float,
        *,
        follows: bool = False,
    ) -> None:
        """Take a checked block of a session that had credit for it. ``takers``: its live takers now.
        ``follows``: see `RefusedTopics`. Raises `SessionError`."""
        lowest = 0
        if behind < BEHIND_MAX:
            lowest = sequence - behind
            if lowest < 0:
                raise SessionError(
                    f"a block that begins with {sequence} says that its publisher waits for {lowest}"
                )
            self._give_up(self._stored.waits_from(session.publisher.key, lowest))
        piecewise = bool(block[1] & blocks.PIECE)
        if not follows and not (piecewise and blocks.offset_of(block)):
            self._refused_topics.begin(session, topic)
        held = HeldCredit(session.ingress, count, len(block))
        held.outlets = 1
        if self._shares(session, block, sequence, count, held, now):
            return
        last = sequence + count - 1
        publication = self._stored.find(session.publisher.key, sequence)
        if publication is None:
            homes = self.routes.wanting(topic)
            refusal = self._refusal(topic, homes)
            if follows and self._refused_topics.holds(session, topic):
                refusal = f"an earlier message on {topic.decode()} was refused"
            if refusal:
                held.release()
                self._refused_topics.refused(session, topic)
                self._replies.refuse(session, sequence, last, refusal, piecewise)
                return
            publication = self._stored.begin(
                session, topic, sequence, last, homes, lowest, now, piecewise=piecewise
            )
        part = self._stored.add(publication, blocks.offset_of(block), block, count, held)
        if not piecewise:
            publication.crc = zlib.crc32(part.block)
        try:
            self._hand_out(part, takers, flags, now)
            self._offer_to_all(part, flags, now)
        except BaseException:  # its publisher hears nothing and sends it again
            self._stored.end(publication)
            raise

    def heard_lowest(self, session: Session, lowest: int) -> None:
        """A client without credit waits for nothing below that number."""
        self._give_up(self._stored.waits_from(session.publisher.key, lowest))

    def is_retry(self, session: Session, block: Buffer, sequence: int, count: int, now: float) -> bool:
        """True if a block that cannot be accepted now is a retry and was handled as one. Its credit is then
        settled here."""
        held = HeldCredit(session.ingress, count, len(block))
        held.outlets = 1
        return self._shares(session, block, sequence, count, held, now)

    def _shares(
        self,
        session: Session,
        block: Buffer,
        sequence: int,
        count: int,
        held: HeldCredit,
        now: float,
    ) -> bool:
        """True if a block is a retry of, or conflicts with, one that is in flight or was acknowledged."""
        key, last, piecewise = session.publisher.key, sequence + count - 1, bool(block[1] & blocks.PIECE)
        past = self._past.get((key, sequence))
        if past is not None:
            same = not piecewise and past[:2] == (last, zlib.crc32(block))
            if not same:
                held.release()
                self._replies.refuse(session, sequence, last, CONFLICT, piecewise)
                return True
            if past[2]:
                held.release()
                self._tally.drop("duplicate", count)
                self._replies.acknowledge(session, sequence, last, *past[2:])
                return True
        publication = self._stored.find(key, sequence)
        if publication is None:
            return False
        part = publication.parts.get(blocks.offset_of(block))
        if publication.piecewise == piecewise and part is None:
            return False
        if part is None or bytes(part.block) != bytes(block):
            held.release()
            self._replies.refuse(session, sequence, last, CONFLICT, piecewise)
            return True
        self._tally.drop("duplicate", count)
        was_told = publication.told is not None
        self._stored.sent_again(publication, part, session, held, now)
        if was_told:
            self._replies.changed((publication,))
        return True

    def _refusal(self, topic: bytes, homes: tuple[KnownHome, ...]) -> str:
        """Why no home can be asked to keep a topic now. Empty if homes can be asked."""
        if self.unknown:
            return f"broker {self._name} does not know yet what is kept at {', '.join(self.unknown)}"
        if not homes:
            return _no_home(topic)
        away = [self._called(home) for home in homes if home.link is None and home.id != self._id]
        if away:
            return (
                f"there is no link to {', '.join(away)}, where {topic.decode()} is kept; if it will not come"
                f" back: mesh queue forget {away[0]}"
            )
        if self._own.home is None and any(home.id == self._id for home in homes):
            return f"broker {self._name} keeps no messages"
        return ""

    def _called(self, home: KnownHome) -> str:
        """Its name, or its id if another live broker has that name, as happens after a home lost its state
        folder."""
        live = self._members.live.items()
        if home.name == self._name or any(name == home.name for id, name in live if id != home.id):
            return f"{home.id:016x}"
        return home.name

    def _hand_out(self, part: Part, takers: tuple[Any, ...], flags: int, now: float) -> None:
        """Deliver to live subscribers, unless they had the block. A home gets its copy to keep instead."""
        publication, count = part.publication, part.count
        record, first = publication.sender.publisher, publication.first
        if publication.piecewise:
            new = not record.knows(first, count)
        else:
            new = record.reserve(first, count)
        publication.absent = self._intake.absent
        if not new:
            self._tally.drop("duplicate", count)
            missed = record.absent_for(first, count)
            publication.absent = tuple(dict.fromkeys((*self._intake.absent, *missed)))
            return
        self._tally.published += count
        outlets = [home.link.outlet for home in part.waiting if home.link is not None]
        live = tuple([taker for taker in takers if taker not in outlets])
        try:
            if live:
                self._intake.hand_out(live, part.block, count, 0, flags, None, now, part.held)
        except BaseException:
            if not publication.piecewise:
                record.release(first)
            raise
        if publication.piecewise:
            if not blocks.is_last_piece(bytes(part.block), 0):
                return
            record.reserve(first, 1)
        record.commit(first, self._intake.absent)

    # --- questions to homes and their answers

    def _offer_to_all(self, part: Part, flags: int, now: float) -> None:
        publication = part.publication
        homes = list(part.waiting)
        if len(homes) > 1:
            homes.sort(key=lambda home: home.id != self._id)
        for number, home in enumerate(homes):
            self.offering.offer(part, home, flags, now)
            if home in publication.refused and not publication.piecewise:
                for other in homes[number + 1 :]:  # this broker asks only itself: no other home is asked
                    self._stored.no_home(publication, other)
                self._decide(publication)
            if publication.over:
                return

    def _told(self, home: KnownHome, key: Key, first: int, offset: int, verdict: Kept, sentence: str) -> None:
        """The home of this broker itself answers for a block."""
        self._answered(home, key, first, offset, verdict, sentence)
        self._work_pending()  # it may answer between turns

    def kept(self, link: Neighbour, answers: Iterable[tuple[int, int, int, int, int, int, str]]) -> None:
        """KEPT: another home answers for blocks."""
        home = self.routes.homes.get(link.member.id)
        if home is None:
            return  # its durable subscription was removed
        for publisher, boot, first, _, offset, verdict, sentence in answers:
            if sentence:
                sentence = f"home {home.name}: {sentence}"
            self._answered(home, (publisher, boot), first, offset, verdict, sentence)

    def _answered(
        self, home: KnownHome, key: Key, first: int, offset: int, verdict: int, sentence: str
    ) -> None:
        publication = self._stored.answered(home, key, first, offset, verdict, sentence)
        if publication is not None:
            self._decide(publication)
            if not publication.over and publication.is_doubtful:
                self._replies.changed((publication,))

    def _decide(self, publication: Publication) -> None:
        """Tell the publisher if the publication has ended."""
        outcome = publication.outcome()
        if outcome is None or publication.over:
            return
        self._stored.end(publication)
        session, first, last = publication.sender, publication.first, publication.last
        if outcome is PAST:
            self._replies.past(publication)
            return
        if not outcome.kept:
            self._refused_topics.refused(session, publication.topic)
            sentence = outcome.sentence or _no_home(publication.topic)
            self._replies.refuse(session, first, last, sentence, publication.piecewise)
            return
        homes = tuple([home.name for home in publication.kept])
        self._remember(publication, homes)
        self._replies.acknowledge(session, first, last, homes, publication.absent)

    def _remember(self, publication: Publication, homes: tuple[str, ...]) -> None:
        if publication.piecewise:
            return  # the homes know its pieces
        past, source = self._past, publication.source
        past[source.key, publication.first] = (publication.last, publication.crc, homes, publication.absent)
        if len(past) > PAST_MAX:
            past.popitem(last=False)

    # --- homes and links

    def home_changed(
        self, id: int, name: str, url: str, added: Mapping[str, Iterable[str]], removed: Iterable[str]
    ) -> None:
        """Durable subscriptions were made or removed at a broker. Raises `TopicError` before any change."""
        home = self.routes.change(id, name, url, added, removed)
        member = self._members.table.get(id)
        link = None if member is None else member.neighbour
        if home.link is None and link is not None and link.durable:
            home.link = link
        for publication in list(self._stored):
            if home in publication.homes and home not in publication.kept:
                if home not in self.routes.wanting(publication.topic):
                    self._stored.no_home(publication, home)
                    self._decide(publication)

    # --- time

    def session_over(self, session: Session, now: float) -> None:
        """A session ended."""
        self._refused_topics.session_over(session)
        self._give_up(self._stored.session_over(session, now))

    def scan(self, now: float) -> None:
        """Do the work that is due. Call this about twice a second."""
        self._replies.changed(self._stored.slow(now))
        unanswered = [
            (part, home, copies)
            for publication in self._stored.due(now)
            for part in publication.parts.values()
            for home, copies in part.waiting.items()
        ]
        self.offering.offer_again(unanswered, now)
        self._give_up(self._stored.expire(now))
        self._replies.tell_pending()

    def _give_up(self, publications: Iterable[Publication]) -> None:
        for publication in publications:
            self._tally.drop("stored_given_up", publication.last - publication.first + 1)
            self._remember(publication, ())


def _no_home(topic: bytes) -> str:
    """The refusal for a topic that no durable subscription matches."""
    return f"nobody keeps {topic.decode()}; make a durable subscription that matches it"
