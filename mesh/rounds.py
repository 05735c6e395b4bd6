"""The heartbeat on the wire: surveys, their answers, and what both carry.

`mesh.membership` decides when a round begins, which answers count and who is dead; here its question goes
to all linked members in one encoding, the questions of others are answered at once, and round trips are
measured. Both directions carry the digest of the table and the version of the interest of whoever speaks:
what differs was lost with a link, and is fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from mesh.errors import LinkError
from mesh.interest import InterestTable
from mesh.link import LinkKind, Stage, decode, encode
from mesh.linking import Link
from mesh.membership import Instruction, Membership
from protocols import Pipe
from protocols.wire.backtrace import END_BIT, WORD_SIZE, encode_word, peek

ROUND_MASK: Final = 0x7FFFFFFF


class RoundHooks(Protocol):
    """What the broker hears of rounds."""

    def heard_survey(self, member: int, round: int) -> None: ...

    def heard_answer(self, member: int, round: int, rtt_s: float) -> None:
        """An answer in time."""


class Rounds:
    """See the module. ``act`` executes what the membership machine wants."""

    def __init__(
        self,
        membership: Membership,
        interest: InterestTable,
        *,
        act: Callable[[list[Instruction]], None],
        hooks: RoundHooks,
    ) -> None:
        self._membership = membership
        self._interest = interest
        self._act = act
        self._hooks = hooks
        self._clock = asyncio.get_running_loop().time
        self._asked_at = 0.0
        # At rest all brokers say the same, round after round: what was packed and read last is kept.
        self._said: dict[LinkKind, tuple[bytes, int, bytes]] = {}
        self._read: dict[LinkKind, tuple[bytes, bytes, int]] = {}
        self.late_answers = 0

    def ask(self, round: int, links: Iterable[Link]) -> None:
        """Begin a round on these links."""
        frame = encode_word(END_BIT | round & ROUND_MASK) + self._spoken(LinkKind.SURVEY)
        self._asked_at = self._clock()
        for link in links:
            if link.surveyor is not None:
                link.surveyor.send(frame)

    def surveys_received(self, link: Link, pipe: Pipe, frames: list[bytes]) -> None:
        """Questions of the other broker. It may ask a moment before its READY reaches us. Raises
        `LinkError`."""
        for frame in frames:
            if not _may_speak(link):
                return
            digest, version = self._opened(frame, LinkKind.SURVEY)
            pipe.send(frame[:WORD_SIZE] + self._spoken(LinkKind.ANSWER))
            if link.up:
                self._hooks.heard_survey(link.peer.id, peek(frame) & ROUND_MASK)
                self._compare(link, digest, version)

    def answers_received(self, link: Link, pipe: Pipe, frames: list[bytes]) -> None:
        """Answers of the other broker. Raises `LinkError`."""
        for frame in frames:
            if not _may_speak(link):
                return
            digest, version = self._opened(frame, LinkKind.ANSWER)
            if not link.up:
                return
            self._answered(link, peek(frame) & ROUND_MASK)
            self._compare(link, digest, version)

    def _answered(self, link: Link, round: int) -> None:
        now, member = self._clock(), link.peer.id
        if not self._membership.is_open(round):
            self.late_answers += 1
            return
        link.rtt_s = now - self._asked_at
        self._hooks.heard_answer(member, round, link.rtt_s)
        self._act(self._membership.answered(member, round, now))

    def _compare(self, link: Link, digest: bytes, version: int) -> None:
        """What the other holds against what we do; whatever was lost is fetched."""
        if link.ended:
            return
        member = link.peer.id
        self._act(self._membership.heard_digest(member, digest, self._clock()))
        if not link.ended and self._interest.heard_version(member, version):
            link.say([encode(LinkKind.INTEREST_WANTED)])

    def _spoken(self, kind: LinkKind) -> bytes:
        digest, version = self._membership.digest, self._interest.version
        said = self._said.get(kind)
        if said is None or said[0] != digest or said[1] != version:
            said = self._said[kind] = (digest, version, encode(kind, digest, version))
        return said[2]

    def _opened(self, frame: bytes, kind: LinkKind) -> tuple[bytes, int]:
        """Digest and interest version of a survey or an answer. Raises `LinkError`."""
        if not frame[0] & 0x80:
            raise LinkError(f"a round's frame of {len(frame)} bytes has no end to its backtrace")
        body = frame[WORD_SIZE:]
        read = self._read.get(kind)
        if read is None or read[0] != body:
            message = decode(body)
            if message[0] != kind:
                raise LinkError(f"{LinkKind(message[0]).name} came where only {kind.name} may")
            read = self._read[kind] = (body, message[1], message[2])
        return read[1], read[2]


def _may_speak(link: Link) -> bool:
    return not link.ended and link.admission.stage in (Stage.READY, Stage.UP)
