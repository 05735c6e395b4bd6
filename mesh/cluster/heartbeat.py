"""The heartbeat on the wire: surveys, their answers, and the content of both.

`mesh.cluster.membership` decides when a round begins, which answers count and which members are dead. This
module sends its question to all linked members in one encoding, answers the questions of others at once, and
measures round trips. Both directions carry the digest of the table and the version of the sender's interest.
A difference means that something was lost with a link, and it is fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from mesh.cluster.admission import Stage
from mesh.cluster.link import Link
from mesh.cluster.membership import Instruction, Membership
from mesh.cluster.remote_interest import InterestTable
from mesh.errors import LinkError
from mesh.wire.link_frames import LinkKind, decode, encode
from protocols import Pipe
from protocols.wire.backtrace import END_BIT, WORD_SIZE, encode_word

ROUND_MASK: Final = 0x7FFFFFFF
_SURVEY: Final = LinkKind.SURVEY  # globals are faster than members of an enum
_ANSWER: Final = LinkKind.ANSWER
_ENDS: Final = END_BIT >> 24
"""The least first byte of a word that ends a backtrace."""
_number: Final = int.from_bytes  # bound once: looking up a class method is slow
READ_KEPT: Final = 64
"""Bodies whose decoded form is cached before the cache is emptied."""


Read = tuple[LinkKind, bytes, int]
"""A survey or an answer: its kind, digest and interest version."""


class RoundHooks(Protocol):
    """Callbacks of the broker about rounds."""

    def heard_survey(self, member: int, round: int, now: float) -> None: ...

    def heard_answer(self, member: int, round: int, rtt_s: float, now: float) -> None:
        """An answer arrived in time."""


class Rounds:
    """The rounds of one broker. ``act`` executes instructions of the membership machine."""

    def __init__(
        self,
        membership: Membership,
        interest: InterestTable,
        *,
        act: Callable[[list[Instruction]], None],
        hooks: RoundHooks,
    ) -> None:
        self._membership = membership
        self._roster = membership.roster
        self._interest = interest
        self._act = act
        self._heard_survey, self._heard_answer = hooks.heard_survey, hooks.heard_answer
        self._clock = asyncio.get_running_loop().time
        self._asked_at = 0.0
        # At rest all brokers send the same in each round, so encoded and decoded bodies are cached.
        self._encoded: dict[LinkKind, tuple[bytes, int, bytes]] = {}
        self._read: dict[bytes, Read] = {}
        self.late_answers = 0

    def ask(self, round: int, links: Iterable[Link]) -> None:
        """Begin a round on these links."""
        frame = encode_word(END_BIT | round & ROUND_MASK) + self._frame(_SURVEY)
        self._asked_at = self._clock()
        for link in links:
            if link.surveyor is not None:
                link.surveyor.send_now(frame)

    def surveys_received(self, link: Link, pipe: Pipe, frames: list[bytes]) -> None:
        """Handle questions of the other broker. It may ask just before its READY reaches us. Raises
        `LinkError`."""
        alone = len(frames) == 1
        clock, heard_survey = self._clock, self._heard_survey  # reading attributes is faster than calling
        known = self._read
        for frame in frames:
            if link.ended or not (link.up or link.admission.stage is Stage.READY):
                return
            read = known.get(frame[WORD_SIZE:])
            if read is None or read[0] is not _SURVEY or frame[0] < _ENDS:
                read = self._opened(frame, _SURVEY)  # the first of its kind, or none; the cache saves a call
            head = frame[:WORD_SIZE]
            answer = head + self._frame(_ANSWER)
            if alone:
                pipe.send_now(answer)
            else:
                pipe.send(answer)
            if link.up:
                now = clock()
                heard_survey(link.member, _number(head) & ROUND_MASK, now)
                if link.compared != (read[1], read[2], self._roster.digest):
                    self._compare(link, read, now)

    def answers_received(self, link: Link, pipe: Pipe, frames: list[bytes]) -> None:
        """Handle answers of the other broker. Raises `LinkError`."""
        clock, known = self._clock, self._read
        for frame in frames:
            if link.ended or not (link.up or link.admission.stage is Stage.READY):
                return
            read = known.get(frame[WORD_SIZE:])
            if read is None or read[0] is not _ANSWER or frame[0] < _ENDS:
                read = self._opened(frame, _ANSWER)
            if not link.up:
                return
            now = clock()
            self._answered(link, _number(frame[:WORD_SIZE]) & ROUND_MASK, now)
            if link.compared != (read[1], read[2], self._roster.digest):
                self._compare(link, read, now)

    def _answered(self, link: Link, round: int, now: float) -> None:
        member, membership, heard_answer = link.member, self._membership, self._heard_answer
        if not membership.is_open(round):
            self.late_answers += 1
            return
        link.rtt_s = rtt_s = now - self._asked_at
        heard_answer(member, round, rtt_s, now)
        instructions = membership.answered(member, round, now)
        if instructions:
            self._act(instructions)

    def _compare(self, link: Link, read: Read, now: float) -> None:
        """Compare what the other side holds with what we hold, and fetch whatever was lost. Nothing can be
        lost while both say the same as when they last agreed (``link.compared``)."""
        if link.ended:
            return
        _, digest, version = read
        member, own = link.member, self._roster.digest
        self._act(self._membership.heard_digest(member, digest, now))
        if not link.ended and self._interest.heard_version(member, version, now):
            link.say([encode(LinkKind.INTEREST_WANTED)])
        elif digest == own and self._interest.held_version(member) >= version:
            link.compared = (digest, version, own)

    def _frame(self, kind: LinkKind) -> bytes:
        digest, version = self._roster.digest, self._interest.version
        encoded = self._encoded.get(kind)
        if encoded is None or encoded[0] != digest or encoded[1] != version:
            encoded = self._encoded[kind] = (digest, version, encode(kind, digest, version))
        return encoded[2]

    def _opened(self, frame: bytes, kind: LinkKind) -> Read:
        """The content of a survey or an answer. Raises `LinkError`."""
        if frame[0] < _ENDS:
            raise LinkError(f"a round's frame of {len(frame)} bytes has no end to its backtrace")
        body = frame[WORD_SIZE:]
        read = self._read.get(body)
        if read is None:
            message = decode(body)
            if len(self._read) >= READ_KEPT:
                self._read.clear()
            if message[0] == kind:
                read = self._read[body] = (kind, message[1], message[2])
        if read is None or read[0] is not kind:
            raise LinkError(f"{LinkKind(body[1]).name} came where only {kind.name} may")
        return read
