"""Answers to publishers about their blocks of level stored: kept, refused, past, or which homes have kept
them so far.

Acknowledgements and refusals of a turn are said at its end, those of a session together. If a block takes
long, or may never be acknowledged, its publisher is told which homes have kept it and which have not
(PENDING), about twice a second and only if that changed.

**Bounds.** `REASONS_MAX` different sentences with which one turn refuses a session's blocks; further ones are
told as one. `FRAMES_MAX` PENDING frames to a session at once; the others follow. Pure.
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
        """Ranges to be acknowledged in this turn, by the homes and who was absent."""
        self._refused: dict[Session, None] = {}
        self._changed: dict[Publication, None] = {}
        """Those of whose state their publishers are to be told."""

    def acknowledge(
        self, session: Session, first: int, last: int, homes: tuple[str, ...], absent: tuple[str, ...]
    ) -> None:
        """These numbers are kept at ``homes``; ``absent`` were so when live subscribers got them."""
        self._say_at_the_end()
        merge(self._acks.setdefault(session, {}).setdefault((homes, absent), []), first, last)

    def refuse(self, session: Session, first: int, last: int, sentence: str, piecewise: bool) -> None:
        """These numbers are kept nowhere, for certain."""
        self._say_at_the_end()
        self._refused[session] = None
        sentence = sentence[:SENTENCE_MAX]
        if len(session.refused) >= REASONS_MAX and sentence not in session.refused:
            sentence = MANY_REASONS
        self._intake.refused(session, first, last, sentence, piecewise=piecewise)

    def past(self, publication: Publication) -> None:
        """Homes hold these numbers for past: the publisher told them that it waits for them no more."""
        names = [home.name for home in publication.past]
        frame = encode(Durable.PAST, publication.first, publication.last, names[:NAMES_MAX])
        publication.sender.send_control(frame)

    def changed(self, publications: Iterable[Publication]) -> None:
        """Their publishers are to be told who has kept them and who has not, at the next `tell_pending`."""
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
        """Send what `changed` gathered; to be called about twice a second."""
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
