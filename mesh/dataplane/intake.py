"""Incoming blocks: read, checked, kept from being delivered twice, delivered and acknowledged.

A block of level accepted is reserved with its publisher, delivered, committed, and acknowledged at the end of
the turn (`mesh.dataplane.deduplication`). A failure before the commit leaves it unacknowledged, so its
publisher sends it again.

A block from another broker goes only to this broker's own subscribers, one hop, so rings deliver once. Its
contents were checked where it entered the mesh, and clients check them again.

Pure.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

from mesh.access.door import NotAllowed
from mesh.dataplane.backlogs import Buffer
from mesh.dataplane.counters import Tally
from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.deduplication import Publisher, Publishers
from mesh.dataplane.home_for_peers import HomeForPeers
from mesh.dataplane.members import Member, Neighbour
from mesh.dataplane.sessions import LocalTaker, Session
from mesh.errors import BlockError, SessionError, TopicError
from mesh.topics.routing import Route, Router
from mesh.wire import blocks, capabilities
from mesh.wire.blocks import STORED
from mesh.wire.durable_frames import FOLLOWS, KEEP
from mesh.wire.session_frames import (
    AGAIN,
    DATA_CONSTANTS,
    DATA_SIZE,
    Kind,
    encode,
    read_data,
)

HEADS_SIZE: Final = DATA_SIZE + blocks.HEAD_SIZE
_heads: Final = struct.Struct(">IBBHIQBIBBBBIIQQQ").unpack_from
"""Unpacks the heads of DATA and of its block in one call. A broker looks at nothing else."""
DATA_MARK: Final = int.from_bytes(bytes(DATA_CONSTANTS[:4]), "big")
CUT: Final = "a piece of the body was not accepted"
CUT_MAX: Final = 256
"""Partly refused large bodies that a session remembers."""
VIEW_MIN: Final = 8192
"""From this size a block is passed on as a view into its frame. Below it, a copy is cheaper."""


class StoredBlocks(Protocol):
    """Handles clients' blocks of level stored (`mesh.dataplane.entry_broker`)."""

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
        /,
        *,
        follows: bool = False,
    ) -> None: ...

    def refused(self, session: Session, topic: bytes, /) -> None: ...

    def is_retry(self, session: Session, block: Buffer, sequence: int, count: int, now: float, /) -> bool: ...


class Intake:
    """Reads and delivers blocks. ``absent``: names of live brokers that a publish cannot reach now, or whose
    interest is not known; acknowledgements name them. ``stored`` takes the blocks of level stored."""

    stored: StoredBlocks

    def __init__(
        self,
        router: Router[LocalTaker, Member],
        publishers: Publishers,
        home_for_peers: HomeForPeers,
        tally: Tally,
    ) -> None:
        self.absent: tuple[str, ...] = ()
        self.refusing = ""
        """Why nothing is accepted now. Empty if blocks are accepted."""
        self.refused_as = ""
        """The drop reason for refused messages whose publishers wait for no answer."""
        self._router = router
        self._routes = router.cache
        self._publishers = publishers
        self._home_for_peers = home_for_peers
        self._tally = tally

    def client_block(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """A DATA frame of a client, behind a backtrace of ``start`` bytes. Raises `PeerError`,
        `TopicError`."""
        end = len(frame)
        if end < start + HEADS_SIZE:
            raise SessionError(
                f"a DATA frame of {end - start} bytes is shorter than its heads of {HEADS_SIZE}"
            )
        (
            mark, hops, flags, zero, number, link, bin32, size,
            form, kind, level, topic_size, count, record, sequence, publisher, boot,
        ) = _heads(frame, start)  # fmt: skip
        at = start + DATA_SIZE
        if mark != DATA_MARK or bin32 != 0xC6 or zero or flags > AGAIN or size != end - at:
            read_data(frame, start)
            raise SessionError("a DATA frame's head does not have its fixed form")
        if (hops or number or link) and (hops or link > FOLLOWS or level != STORED):
            raise SessionError(f"a client's block names {hops} hops, subscription {number}, sequence {link}")
        topic_at = start + HEADS_SIZE
        bodies_at = topic_at + topic_size
        if (
            kind != blocks.EQUAL
            or form != blocks.FORMAT
            or level > blocks.ACCEPTED
            or not 0 < count <= blocks.COUNT_MAX
            or bodies_at + count * record != end
            or sequence >> 62
        ):
            blocks.check(frame, at)  # the rarer forms, and all errors
            blocks.check_headers(frame, at)
            if level == STORED:
                session.agreed.require(capabilities.STORED, "the session")
                if kind & blocks.PIECE:
                    blocks.check_piece(frame, at)
        if size > blocks.BLOCK_MAX:
            raise BlockError(f"a block of {size} bytes is above the limit of {blocks.BLOCK_MAX}")
        if publisher != session.client or boot != session.boot:
            raise SessionError("a block names another publisher than its session's HELLO")
        ingress = session.ingress
        window = ingress.window
        if window.messages_left <= 0 or window.bytes_left <= 0:
            window.arrive(count, size)  # raises
        window.messages_left -= count
        window.bytes_left -= size
        session.messages_in += count
        session.bytes_in += size
        topic = frame[topic_at:bodies_at]
        route = self._routes.get(topic)
        if route is None or not route.fresh[0]:
            route = self._router.route(topic)
        if topic[0] == 0x24:
            raise TopicError(f"topic {route.topic!r} begins with '$': such topics are the mesh's own")
        rights, why, counted_as = session.standing.rights, self.refusing, self.refused_as or "joining"
        if rights is not None and not why:
            known = rights.publishing.get(topic)
            why = rights.refusal_to_publish(topic) if known is None else known
            if not why and rights.message_bytes_max is not None:
                why = rights.refusal_of_size(blocks.largest_body(frame, at))
            counted_as = NotAllowed.reason
        cut = kind & blocks.PIECE and sequence in session.cut_bodies
        if cut and level == STORED and flags and not blocks.offset_of(frame, at):
            cut = False  # the first piece: the whole body comes again, however often it is refused
            del session.cut_bodies[sequence]
        if why or cut:
            if level != STORED or not self.stored.is_retry(session, frame[at:], sequence, count, now):
                self._refuse(session, sequence, count, size, level, kind, why or CUT, counted_as)
                if level == STORED:
                    self.stored.refused(session, topic)
            return
        block: Buffer = frame[at:] if size < VIEW_MIN else memoryview(frame)[at:]
        takers = route.everybody
        if not level:
            self._tally.published += count
            self.hand_out(takers, block, count, 0, flags, ingress, now)
            return
        if level == STORED:
            self.stored.client_block(
                session, block, sequence, count, topic, takers, number, flags, now, follows=bool(link)
            )
            return
        record_of = session.publisher
        if kind & blocks.PIECE:  # a large body is accepted with its last piece
            if record_of.knows(sequence, count):
                self._duplicate(session, sequence, count)
                self._pass_on(route, block, count, flags, ingress, now)
                return
            self._tally.published += count
            self.hand_out(takers, block, count, 0, flags, ingress, now)
            if blocks.is_last_piece(frame, at):
                record_of.reserve(sequence, 1)
                record_of.commit(sequence, self.absent)
                merge(session.acks, sequence, sequence)
            return
        if not record_of.reserve(sequence, count):
            self._duplicate(session, sequence, count)
            self._pass_on(route, block, count, flags, ingress, now)
            return
        try:
            self.hand_out(takers, block, count, 0, flags, ingress, now)
        except BaseException:
            record_of.release(sequence)
            raise
        record_of.commit(sequence, self.absent)
        self._tally.published += count
        merge(session.acks, sequence, sequence + count - 1)

    def refuse_block(
        self, session: Session, frame: bytes, start: int, why: str, counted_as: str, now: float
    ) -> None:
        """Refuse a DATA frame that cannot be accepted now. Raises as `client_block` does."""
        before = self.refusing, self.refused_as
        if not self.refusing:
            self.refusing, self.refused_as = why, counted_as
        try:
            self.client_block(session, frame, start, now)
        finally:
            self.refusing, self.refused_as = before

    def peer_block(self, link: Neighbour, frame: bytes, now: float) -> None:
        """A DATA frame of another broker. Raises `PeerError`, `TopicError`."""
        end = len(frame)
        if end < HEADS_SIZE:
            raise SessionError(f"a DATA frame of {end} bytes is shorter than its heads of {HEADS_SIZE}")
        (
            mark, hops, flags, zero, _, number, bin32, size,
            _, kind, level, topic_size, count, _, sequence, publisher, boot,
        ) = _heads(frame)  # fmt: skip
        if mark != DATA_MARK or bin32 != 0xC6 or zero or flags > AGAIN or size != end - DATA_SIZE:
            if flags & ~AGAIN != KEEP or level != STORED or not link.durable:
                read_data(frame)  # raises
            if mark != DATA_MARK or bin32 != 0xC6 or zero or size != end - DATA_SIZE:
                raise SessionError("a DATA frame's head does not have its fixed form")
            blocks.check(frame, DATA_SIZE)  # before it is kept for long
            if kind & blocks.PIECE:
                blocks.check_piece(frame, DATA_SIZE)
        if hops:
            raise SessionError(f"a block with {hops} hops came over a link; in a full mesh it has 0")
        if size > blocks.BLOCK_MAX:
            raise BlockError(f"a block of {size} bytes is above the limit of {blocks.BLOCK_MAX}")
        if number < link.expected:
            raise SessionError(f"link sequence {number} after {link.expected - 1}")
        ingress, member = link.ingress, link.member
        ingress.window.arrive(count, size)
        member.lost += number - link.expected
        link.expected = number + 1
        member.messages_in += count
        member.bytes_in += size
        topic = frame[HEADS_SIZE : HEADS_SIZE + topic_size]
        route = self._routes.get(topic)
        if route is None or not route.fresh[0]:
            route = self._router.route(topic)
        block: Buffer = frame[DATA_SIZE:] if size < VIEW_MIN else memoryview(frame)[DATA_SIZE:]
        if not level:
            self.hand_out(route.local, block, count, hops + 1, flags, ingress, now)
            return
        record_of = self._publishers.get(publisher, boot)
        if flags > AGAIN:
            again = bool(flags & AGAIN)
            self._hand_out_once(route.local, record_of, frame, block, sequence, count, again, ingress, now)
            self._home_for_peers.keep(link, bytes(block), sequence, count, publisher, boot, again=again)
            return
        # a link may lose pieces, so it commits none
        if kind & blocks.PIECE and not record_of.knows(sequence, 1):
            self.hand_out(route.local, block, count, hops + 1, flags, ingress, now)
            return
        if not record_of.reserve(sequence, count):
            self._tally.drop("duplicate", count)
            ingress.settle(count, size)
            return
        try:
            self.hand_out(route.local, block, count, hops + 1, flags, ingress, now)
        except BaseException:
            record_of.release(sequence)
            raise
        record_of.commit(sequence)

    def _hand_out_once(
        self,
        takers: tuple[Any, ...],
        record_of: Publisher,
        frame: bytes,
        block: Buffer,
        sequence: int,
        count: int,
        again: bool,
        ingress: Ingress,
        now: float,
    ) -> None:
        """Deliver a block that is also kept here to the subscribers that have not had it. It may come many
        times."""
        is_piece = bool(frame[DATA_SIZE + 1] & blocks.PIECE)
        if is_piece:
            new = not record_of.knows(sequence, 1) and self._home_for_peers.pieces.is_new(
                (*record_of.key, sequence), blocks.offset_of(frame, DATA_SIZE)
            )
        else:
            new = record_of.reserve(sequence, count)
        if not new:
            self._tally.drop("duplicate", count)
        if not new or not takers:
            ingress.settle(count, len(block))
        else:
            try:
                self.hand_out(takers, block, count, 1, AGAIN if again else 0, ingress, now)
            except BaseException:
                if not is_piece:
                    record_of.release(sequence)
                raise
        if new and not is_piece:
            record_of.commit(sequence)

    def hand_out(
        self,
        takers: tuple[Any, ...],
        block: Buffer,
        count: int,
        hops: int,
        flags: int,
        ingress: Ingress | None,
        now: float,
        held: HeldCredit | None = None,
    ) -> None:
        """Deliver a block to all its takers. Its credit returns to the sender unless the block waits
        somewhere. ``held``: the credit is held already; without an ingress it stays held."""
        if not takers:
            self._tally.unwanted += count
        for taker in takers:
            if not taker.offer(block, count, hops, flags):
                if held is None and ingress is not None:
                    held = HeldCredit(ingress, count, len(block))
                taker.wait(block, count, hops, flags, held, now)
        if ingress is not None and (held is None or not held.outlets):
            ingress.settle(count, len(block))

    def acknowledge(self, session: Session) -> None:
        """Tell the publisher which messages of this turn were refused and which were committed."""
        if session.refused:
            for reason, ranges in session.refused.items():
                session.send_control(encode(Kind.REFUSED, ranges, reason))
            session.refused = {}
        if session.acks and not session.closed:
            absent = list(self.absent)
            if session.missed_by:
                absent = list(dict.fromkeys((*absent, *session.missed_by)))
                session.missed_by = {}
            session.send_control(encode(Kind.ACK, blocks.ACCEPTED, session.acks, absent))
            session.acks = []

    def _pass_on(
        self,
        route: Route[LocalTaker, Member],
        block: Buffer,
        count: int,
        flags: int,
        ingress: Ingress,
        now: float,
    ) -> None:
        """Pass a retry of a known block on to the other brokers. The first copy may have come over the link
        of a broker that died before it had sent it to all of them. A broker that has the block drops it."""
        local = set(route.local)
        takers = tuple(taker for taker in route.everybody if taker not in local) if flags & AGAIN else ()
        if takers:
            self.hand_out(takers, block, count, 0, flags, ingress, now)
        else:
            ingress.settle(count, len(block))

    def _duplicate(self, session: Session, sequence: int, count: int) -> None:
        """Acknowledge a retry of an accepted block again, with the names of the brokers that were absent
        then."""
        self._tally.drop("duplicate", count)
        merge(session.acks, sequence, sequence + count - 1)
        session.missed_by.update(dict.fromkeys(session.publisher.absent_for(sequence, count)))

    def _refuse(
        self,
        session: Session,
        sequence: int,
        count: int,
        size: int,
        level: int,
        kind: int,
        why: str,
        counted_as: str,
    ) -> None:
        """Refuse a block. A retry of an accepted block is not refused but a duplicate, as always. A large
        body is refused as a whole with its first refused piece."""
        session.ingress.settle(count, size)
        last = sequence + count - 1
        if level == blocks.ACCEPTED and session.publisher.knows(sequence, count):
            self._duplicate(session, sequence, count)
            return
        self.refused(session, sequence, last, why, piecewise=bool(kind & blocks.PIECE))
        if not level:  # its publisher waits for no answer
            self._tally.drop(counted_as, count)

    @staticmethod
    def refused(session: Session, first: int, last: int, reason: str, *, piecewise: bool) -> None:
        """Make `acknowledge` report these messages as refused, and refuse other pieces of the body."""
        if piecewise:
            session.cut_bodies[first] = None
            if len(session.cut_bodies) > CUT_MAX:
                del session.cut_bodies[next(iter(session.cut_bodies))]
        merge(session.refused.setdefault(reason, []), first, last)


def accepted_as(frame: bytes, start: int) -> tuple[int, ...]:
    """The key that a retry of a block of level accepted or stored shares with its first copy, but with no
    other block of its publisher. Empty for level sent, or for a frame that will be refused."""
    if len(frame) < start + HEADS_SIZE:
        return ()
    *_, kind, level, topic_size, _, _, sequence, _, _ = _heads(frame, start)
    if level not in (blocks.ACCEPTED, STORED):
        return ()
    if not kind & blocks.PIECE:
        return (sequence,)
    at = start + HEADS_SIZE + topic_size
    return (sequence, *frame[at : at + blocks.PIECE_SIZE])


def merge(ranges: list[list[int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1][1] = last
    elif not ranges or ranges[-1][1] != last:  # all pieces of a body have one number
        ranges.append([first, last])
