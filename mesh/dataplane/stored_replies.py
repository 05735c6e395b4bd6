"""Replies to publishers about their blocks of level stored: kept, refused, past, or which homes have kept
them.

Acknowledgements and refusals of a turn are sent at its end, one set for each session. If a block takes long,
or may never be acknowledged, its publisher is told which homes have kept it and which have not (PENDING).
That happens about twice a second, and only after a change.

**Bounds.** One turn uses at most `REASONS_MAX` different sentences to refuse a session's blocks; further ones
share one sentence. At most `FRAMES_MAX` PENDING frames go to a session at once; the others follow. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mesh.dataplane.intake import Intake, merge
from mesh.dataplane.ports import Turn
from mesh.dataplane.publications import Publication
from mesh.dataplane.sessions import Session
from mesh.wire import blocks
from mesh.wire.durable_frames import NAMES_MAX, SENTENCE_MAX, Durable
from mesh.wire.session_frames import Kind, encode

REASONS_MAX: Final = 16
FRAMES_MAX: Final = 64
MANY_REASONS: Final = "not stored; too many messages were refused for different reasons to list each reason"


class StoredReplies:
    """See the module."""

    def __init__(self, intake: Intake, turn: Turn) -> None:
        self._intake = intake
        self._turn = turn
        self._acks: dict[Session, dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[int]]]] = {}
        """Ranges to acknowledge in this turn, by the homes and the absent brokers."""
        self._refused: dict[Session, None] = {}
        self._changed: dict[Publication, None] = {}
        """Publications whose publishers should be told the state."""

    def acknowledge(
        self, session: Session, first: int, last: int, homes: tuple[str, ...], absent: tuple[str, ...]
    ) -> None:
        """These numbers are kept at ``homes``. Brokers in ``absent`` missed the delivery to live
        subscribers."""
        self._say_at_the_end()
        merge(self._acks.setdefault(session, {}).setdefault((homes, absent), []), first, last)

    def refuse(self, session: Session, first: int, last: int, sentence: str, piecewise: bool) -> None:
        """These numbers are certainly kept nowhere."""
        self._say_at_the_end()
        self._refused[session] = None
        sentence = sentence[:SENTENCE_MAX]
        if len(session.refused) >= REASONS_MAX and sentence not in session.refused:
            sentence = MANY_REASONS
        self._intake.refused(session, first, last, sentence, piecewise=piecewise)

    def past(self, publication: Publication) -> None:
        """Homes consider these numbers past: the publisher told them that it no longer waits for them."""
        names = [home.name for home in publication.past]
        frame = encode(Durable.PAST, publication.first, publication.last, names[:NAMES_MAX])
        publication.sender.send_control(frame)

    def changed(self, publications: Iterable[Publication]) -> None:
        """The next `tell_pending` tells their publishers which homes have kept them and which have not."""
        self._changed.update(dict.fromkeys(publications))

    def _say_at_the_end(self) -> None:
        if not self._acks and not self._refused:
            self._turn.ends.append(self._say)

    def _say(self) -> None:
        acks, self._acks = self._acks, {}
        refused, self._refused = self._refused, {}
        for session in refused:
            self._intake.acknowledge(session)
        for session, ranges_of in acks.items():
            for (homes, absent), ranges in ranges_of.items():
                session.send_control(encode(Kind.ACK, blocks.STORED, ranges, absent, homes))
            self._turn.first[session.port.pipe] = None

    def tell_pending(self) -> None:
        """Send what `changed` collected. Call this about twice a second."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        frames: dict[Session, list[list[Any]]] = {}
        for publication in changed:
            session, state = publication.sender, publication.state
            if publication.over or session.closed or publication.told == state:
                continue
            said = frames.setdefault(session, [])
            kept, waiting = state
            if said and said[-1][1] + 1 == publication.first and said[-1][2:] == [kept, waiting]:
                said[-1][1] = publication.last
            elif len(said) < FRAMES_MAX:
                said.append([publication.first, publication.last, kept, waiting])
            else:
                self._changed[publication] = None
                continue
            publication.told = state
        for session, said in frames.items():
            for first, last, kept, waiting in said:
                session.send(encode(Durable.PENDING, first, last, kept[:NAMES_MAX], waiting[:NAMES_MAX]))
