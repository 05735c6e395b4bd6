"""The heartbeats that both sides send and read: cached while nothing changes, and never longer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.cluster.admission import Stage
from mesh.cluster.heartbeat import Rounds
from mesh.cluster.membership import Instruction, MemberRecord, Membership, State, TellAll
from mesh.cluster.remote_interest import InterestTable
from mesh.errors import LinkError
from mesh.wire.link_frames import LinkKind, decode, encode
from protocols.wire.backtrace import END_BIT, WORD_SIZE, encode_word

HEAD = encode_word(END_BIT | 7)


@dataclass
class Heard:
    surveys: list[int] = field(default_factory=list)

    def heard_survey(self, member: int, round: int, now: float) -> None:
        self.surveys.append(round)

    def heard_answer(self, member: int, round: int, rtt_s: float, now: float) -> None: ...


class Wire:
    """The pipe of a survey, and the link it belongs to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.ended = False
        self.up = True
        self.peer = SimpleNamespace(id=2)
        self.admission = SimpleNamespace(stage=Stage.UP)
        self.said: list[bytes] = []
        self.compared: Any = None
        self.member = 2

    def send_now(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return True

    def say(self, frames: list[bytes]) -> None:
        self.said += frames


def make(
    act: Callable[[list[Instruction]], None] = lambda instructions: None,
) -> tuple[Rounds, Membership, Heard, Any]:
    me = MemberRecord(1, 1, State.ALIVE, 1, "alpha", "host", "tcp://alpha", "tcp://alpha")
    membership = Membership(me, rng=random.Random(1), now=0.0)
    heard = Heard()
    rounds = Rounds(membership, InterestTable(1), act=act, hooks=heard)
    return rounds, membership, heard, Wire()


async def test_an_answer_has_the_present_digest_although_the_last_one_was_cached() -> None:
    rounds, membership, heard, wire = make()
    survey = HEAD + encode(LinkKind.SURVEY, bytes(8), 0)
    rounds.surveys_received(wire, wire, [survey])
    rounds.surveys_received(wire, wire, [survey])
    before = membership.digest
    membership.set_urls("tcp://elsewhere", "tcp://elsewhere")
    rounds.surveys_received(wire, wire, [survey])
    digests = [decode(frame[WORD_SIZE:])[1] for frame in wire.sent]
    assert digests == [before, before, membership.digest] and before != membership.digest
    assert all(frame[:WORD_SIZE] == HEAD for frame in wire.sent)
    assert heard.surveys == [7, 7, 7]


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (HEAD + encode(LinkKind.ANSWER, bytes(8), 0), "ANSWER came where only SURVEY may"),
        (HEAD + b"\xc1", "no msgpack"),
        (HEAD + encode(LinkKind.SURVEY, bytes(7), 0), "digest"),
        (encode_word(7) + encode(LinkKind.SURVEY, bytes(8), 0), "no end to its backtrace"),
    ],
)
async def test_a_wrong_frame_is_refused_also_behind_a_right_one(frame: bytes, complaint: str) -> None:
    rounds, _, _, wire = make()
    rounds.surveys_received(wire, wire, [HEAD + encode(LinkKind.SURVEY, bytes(8), 0)])
    with pytest.raises(LinkError, match=complaint):
        rounds.surveys_received(wire, wire, [frame])


def linked(rounds: Rounds, membership: Membership) -> None:
    other = MemberRecord(2, 1, State.ALIVE, 2, "bravo", "host", "tcp://bravo", "tcp://bravo")
    membership.link_up(other, 0.0)
    rounds._interest.link_up(2, 2)
    rounds._interest.whole_received(2, 1, 0, True, [])


def at(rounds: Rounds, now: float) -> None:
    rounds._clock = lambda: now


@pytest.mark.parametrize("kind", [LinkKind.SURVEY, LinkKind.ANSWER])
async def test_digests_that_differ_are_compared_each_time_until_tables_are_exchanged(kind: LinkKind) -> None:
    wanted: list[Instruction] = []
    rounds, membership, _, wire = make(wanted.extend)
    linked(rounds, membership)
    receive = rounds.surveys_received if kind is LinkKind.SURVEY else rounds.answers_received
    frame = HEAD + encode(kind, b"another!", 1)
    for now in (0.0, 0.3):
        at(rounds, now)
        receive(wire, wire, [frame])
        assert not wanted and wire.compared is None
    at(rounds, 0.6)
    receive(wire, wire, [frame])
    assert wanted == [TellAll(2, reply=True)]


async def test_a_version_that_is_not_held_is_compared_each_time_until_it_is_requested() -> None:
    rounds, membership, _, wire = make()
    linked(rounds, membership)
    frame = HEAD + encode(LinkKind.SURVEY, membership.digest, 5)
    for now in (0.0, 0.3):
        at(rounds, now)
        rounds.surveys_received(wire, wire, [frame])
        assert not wire.said and wire.compared is None
    at(rounds, 0.6)
    rounds.surveys_received(wire, wire, [frame])
    assert wire.said == [encode(LinkKind.INTEREST_WANTED)]


async def test_an_equal_digest_is_compared_once() -> None:
    rounds, membership, _, wire = make()
    linked(rounds, membership)
    rounds.surveys_received(wire, wire, [HEAD + encode(LinkKind.SURVEY, membership.digest, 1)])
    assert wire.compared == (membership.digest, 1, membership.digest)
