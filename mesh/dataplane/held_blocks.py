"""Blocks of clients that wait behind the gate, and what becomes of them when they pass or do not fit. Pure.

A client may go while its blocks wait; they are routed all the same, since it may not have waited to hear. If
it comes again and sends a retry of what waits, the block that waits becomes its new session's, which then
gets the acknowledgement: the gate may be too full for the retry, and to refuse it would be a lie.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mesh.dataplane import gate
from mesh.dataplane.counters import Tally
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.gate import Gate
from mesh.dataplane.intake import Intake, accepted_as
from mesh.dataplane.ports import Pipe
from mesh.dataplane.sessions import Session
from mesh.errors import PeerError, TopicError

Refuse = Callable[[Pipe, bytes, PeerError | TopicError, float], None]
"""The client behind a pipe and a backtrace broke a rule."""


class HeldBlock:
    """A frame of a session, behind a backtrace of ``start`` bytes."""

    __slots__ = ("frame", "session", "start")

    def __init__(self, session: Session, frame: bytes, start: int) -> None:
        self.session = session
        self.frame = frame
        self.start = start


class HeldBlocks:
    """See the module."""

    def __init__(
        self, name: str, gate: Gate, intake: Intake, publishers: Publishers, tally: Tally, refuse: Refuse
    ) -> None:
        self._name = name
        self._gate = gate
        self._intake = intake
        self._publishers = publishers
        self._tally = tally
        self._refuse = refuse
        self._accepted: dict[tuple[int, ...], HeldBlock] = {}
        """Those of level accepted, by publisher, boot and what a retry has in common with its first copy."""
        self._passed: dict[Session, None] = {}
        """Whose blocks passed in this step."""

    def hold(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """A DATA frame while the gate is closed; what does not fit is refused. Raises as
        `Intake.client_block` does."""
        same = accepted_as(frame, start)
        key = (*session.publisher.key, *same)
        first = self._accepted.get(key)
        if first is not None and first.session.closed:
            first.session = session
            return
        block = HeldBlock(session, frame, start)
        if not self._gate.hold(len(frame), partial(self._pass, block)):
            sentence = f"broker {self._name} {gate.REASON}"
            self._intake.refuse_block(session, frame, start, sentence, "joining", now)
        elif same:
            self._accepted[key] = block

    def step(self, now: float) -> bool:
        """Let a part pass the gate, and tell those whose it was; False: the gate is open."""
        try:
            return self._gate.step(now)
        finally:
            passed, self._passed = self._passed, {}
            for session in passed:
                self._intake.acknowledge(session)

    def _pass(self, block: HeldBlock, now: float) -> None:
        session, frame, start = block.session, block.frame, block.start
        self._accepted.pop((*session.publisher.key, *accepted_as(frame, start)), None)
        if session.closed:
            self._pass_late(session, frame, start, now)
            return
        self._passed[session] = None
        try:
            self._intake.client_block(session, frame, start, now)
        except (PeerError, TopicError) as error:
            self._intake.acknowledge(session)
            self._refuse(session.port.pipe, session.prefix, error, now)

    def _pass_late(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """Of a session that is over: what it brought is in the totals already."""
        messages, size = session.messages_in, session.bytes_in
        session.publisher = self._publishers.get(*session.publisher.key)  # it may have been forgotten
        with suppress(PeerError, TopicError):
            self._intake.client_block(session, frame, start, now)
        self._tally.messages_in += session.messages_in - messages
        self._tally.bytes_in += session.bytes_in - size
