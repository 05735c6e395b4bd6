"""Blocks of clients that wait behind the gate: how they pass, and when they are refused. Pure.

A client may leave while its blocks wait. They are still routed, since the client may not have waited for the
acknowledgement. If it returns and retries a waiting block, the waiting block moves to the new session, which
then gets the acknowledgement. It would be wrong to refuse that retry because the gate is full: the block is
held. But the pieces of a large body do not move if one of them was refused. That body is refused as a whole,
and its retry waits as a whole, so that its pieces stay in order.

A held block spends its sender's credit when it passes, in order, like any other. Until then it counts in the
`_Share` of its session. A block that exceeds the credit left by window and share costs the session, as with
an open gate. A session has at most `gate.SHARE_MAX` frames in the gate, so that others have room.
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
from mesh.errors import CreditExceeded, PeerError, TopicError
from mesh.wire.session_frames import DATA_SIZE, messages_in

Refuse = Callable[[Pipe, bytes, PeerError | TopicError, float], None]
"""Called when the client behind a pipe and a backtrace broke a rule."""


class HeldBlock:
    """A frame of a session, behind a backtrace of ``start`` bytes. It counts as at least one message, so that
    every frame costs credit."""

    __slots__ = ("frame", "messages", "session", "size", "start")

    def __init__(self, session: Session, frame: bytes, start: int) -> None:
        self.session = session
        self.frame = frame
        self.start = start
        self.messages = max(1, messages_in(frame, start))
        self.size = max(0, len(frame) - start - DATA_SIZE)

    @property
    def cut(self) -> bool:
        """True if another piece of its body was refused."""
        cut_bodies = self.session.cut_bodies
        return bool(cut_bodies) and accepted_as(self.frame, self.start)[0] in cut_bodies


class _Share:
    """Held frames, messages and bytes of one session."""

    __slots__ = ("frames", "messages", "size")

    def __init__(self) -> None:
        self.frames = self.messages = self.size = 0

    def change(self, block: HeldBlock, by: int) -> None:
        self.frames += by
        self.messages += by * block.messages
        self.size += by * block.size


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
        """Held blocks of level accepted, by publisher, boot and the key that retries share."""
        self._passed: dict[Session, None] = {}
        """Sessions whose blocks passed in this step."""
        self._shares: dict[Session, _Share] = {}

    def hold(self, session: Session, frame: bytes, start: int, now: float) -> None:
        """Hold a DATA frame while the gate is closed, or refuse it if it does not fit. Raises
        `CreditExceeded`, and the errors of `Intake.client_block`."""
        block = HeldBlock(session, frame, start)
        share = self._shares.get(session) or _Share()
        self._check_credit(block, share)
        same = accepted_as(frame, start)
        key = (*session.publisher.key, *same)
        first = self._accepted.get(key)
        if first is not None and first.session.closed and not first.cut:
            self._release(first)
            first.session = session
            self._take(first, share)
        elif share.frames < gate.SHARE_MAX and self._gate.hold(len(frame), partial(self._pass, block)):
            self._take(block, share)
            if same:
                self._accepted[key] = block
        else:
            sentence = f"broker {self._name} {gate.REASON}"
            self._intake.refuse_block(session, frame, start, sentence, "joining", now)

    def _check_credit(self, block: HeldBlock, share: _Share) -> None:
        """Raises `CreditExceeded` if held blocks have spent the session's credit."""
        window = block.session.ingress.window
        messages, size = window.messages_left - share.messages, window.bytes_left - share.size
        if messages <= 0 or size <= 0:
            raise CreditExceeded(
                f"a block of {block.messages} messages and {block.size} bytes was sent at a credit of "
                f"{messages} messages and {size} bytes"
            )

    def _take(self, block: HeldBlock, share: _Share) -> None:
        share.change(block, 1)
        self._shares[block.session] = share

    def _release(self, block: HeldBlock) -> None:
        share = self._shares[block.session]
        share.change(block, -1)
        if not share.frames:
            del self._shares[block.session]

    def step(self, now: float) -> bool:
        """Let a part pass the gate, and acknowledge it. False if the gate is open."""
        try:
            return self._gate.step(now)
        finally:
            passed, self._passed = self._passed, {}
            for session in passed:
                self._intake.acknowledge(session)

    def _pass(self, block: HeldBlock, now: float) -> None:
        session, frame, start = block.session, block.frame, block.start
        self._release(block)
        key = (*session.publisher.key, *accepted_as(frame, start))
        if self._accepted.get(key) is block:  # otherwise a retry of it waits too
            del self._accepted[key]
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
        """Route a block of a session that has ended. The session's counters are already in the totals."""
        messages, size = session.messages_in, session.bytes_in
        session.publisher = self._publishers.get(*session.publisher.key)  # it may have been forgotten
        with suppress(PeerError, TopicError):
            self._intake.client_block(session, frame, start, now)
        self._tally.messages_in += session.messages_in - messages
        self._tally.bytes_in += session.bytes_in - size
