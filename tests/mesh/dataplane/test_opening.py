"""The challenge before a session: one opening each, bounded, and limited in time."""

from __future__ import annotations

from itertools import count
from typing import Any, cast

import pytest

from mesh.access import Policy, Principal, proofs
from mesh.access.attempts import FREE
from mesh.access.credentials import TokenCredential
from mesh.access.door import Door, Origin
from mesh.dataplane import opening
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.opening import PROVE_S
from mesh.wire.capabilities import SESSION
from mesh.wire.session_frames import Kind, decode, encode
from mesh.wire.session_opening import hello
from protocols.wire import backtrace
from tests.mesh.dataplane.neighbourhood import FakePipe

TOKENS = {name: TokenCredential(f"a-token-of-some-length-of-{name}".encode()) for name in ("alice", "bob")}
ALICE, BOB = TOKENS.values()
LONE = b"\x80\x00\x00\x01"
"""The backtrace of a client with its own connection. Behind a device it has two words."""


def hashed(name: str) -> str:
    return proofs.token_text(
        proofs.stored_key(proofs.client_key(f"a-token-of-some-length-of-{name}".encode()))
    )


class Quiet:
    def local_interest_changed(self, added: Any, removed: Any) -> int:
        return 1

    def work_pending(self) -> None: ...

    def stood_still(self) -> bool:
        return False


class Desk:
    """A broker's data plane that knows alice and bob."""

    def __init__(self) -> None:
        known = tuple(Principal(name, tokens=(hashed(name),), publish=("#",)) for name in TOKENS)
        drawn = count()
        door = Door(Policy(known), lambda size: next(drawn).to_bytes(size, "big"))
        origin = Origin(near=False, host="10.0.0.9")
        self.exchange = Exchange(
            id=9, boot=1, name="a", mesh="m", hooks=Quiet(), door=door, origin_of=lambda pipe: origin
        )
        self.now = 0.0

    @property
    def principals(self) -> list[str]:
        return [session.standing.name for session in self.exchange._sessions.all()]

    @property
    def waiting(self) -> int:
        return len(self.exchange._sessions._openings)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.exchange.tick(self.now)

    def said(self, pipe: FakePipe) -> list[list[Any]]:
        frames, pipe.control[:] = list(pipe.control), []
        return [decode(frame, backtrace.split(frame)) for frame in frames]

    def says(self, pipe: FakePipe, frame: bytes, prefix: bytes = LONE) -> list[list[Any]]:
        """Send a client's frame, and return the answers."""
        self.exchange.client_frames(pipe, [prefix + frame], self.now)
        return self.said(pipe)


class Opening:
    """One client that opens a session."""

    def __init__(self, desk: Desk, credential: TokenCredential, pipe: FakePipe, prefix: bytes = LONE) -> None:
        self.desk, self.credential, self.pipe, self.prefix = desk, credential, pipe, prefix
        self.about = b""

    def greets(self) -> list[list[Any]]:
        frame = hello(SESSION, self.prefix * 8, 7, "c", 0.0, self.credential.claim)
        answers = self.desk.says(self.pipe, frame, self.prefix)
        if answers and answers[0][0] == Kind.CHALLENGE:
            self.about = proofs.statement(frame, encode(*answers[0]))
        return answers

    def proves(self, proof: bytes | None = None) -> list[list[Any]]:
        proof = self.credential.prove(self.about) if proof is None else proof
        return self.desk.says(self.pipe, encode(Kind.PROVE, proof), self.prefix)


def kinds(answers: list[list[Any]]) -> list[int]:
    return [answer[0] for answer in answers]


def test_clients_behind_one_device_authenticate_separately() -> None:
    desk, pipe = Desk(), FakePipe()
    alice = Opening(desk, ALICE, pipe, b"\x00\x00\x00\x01\x80\x00\x00\x01")
    bob = Opening(desk, BOB, pipe, b"\x00\x00\x00\x02\x80\x00\x00\x01")
    assert kinds(alice.greets()) == kinds(bob.greets()) == [Kind.CHALLENGE]
    assert kinds(bob.proves()) == kinds(alice.proves()) == [Kind.WELCOME]
    assert desk.principals == ["bob", "alice"] and desk.waiting == 0
    mallory = Opening(desk, BOB, pipe, b"\x00\x00\x00\x03\x80\x00\x00\x01")
    mallory.greets()
    assert mallory.proves(ALICE.prove(mallory.about))[0][:2] == [Kind.ERROR, "wrong_proof"]
    assert not pipe.closed, "it is not theirs alone"


def test_a_second_hello_makes_the_first_challenge_worthless() -> None:
    desk, pipe = Desk(), FakePipe()
    client = Opening(desk, ALICE, pipe)
    client.greets()
    first = client.about
    client.greets()
    assert client.about != first
    assert client.proves(ALICE.prove(first))[0][:2] == [Kind.ERROR, "wrong_proof"]
    assert desk.principals == [] and pipe.closed


def test_a_proof_is_accepted_once() -> None:
    desk, pipe = Desk(), FakePipe()
    client = Opening(desk, ALICE, pipe)
    client.greets()
    client.proves()
    assert client.proves()[0][:2] == [Kind.ERROR, "bad_session_frame"]
    assert Opening(desk, ALICE, FakePipe()).proves(bytes(32))[0][:2] == [Kind.ERROR, "bad_session_frame"]


def test_a_challenged_client_may_send_only_its_proof() -> None:
    desk, pipe = Desk(), FakePipe()
    Opening(desk, ALICE, pipe).greets()
    assert desk.says(pipe, encode(Kind.PING, 1))[0][:2] == [Kind.ERROR, "bad_session_frame"]
    assert desk.waiting == 0 and pipe.closed


def test_a_new_hello_ends_the_old_session_before_its_client_has_proved_anything() -> None:
    desk, pipe = Desk(), FakePipe()
    client = Opening(desk, ALICE, pipe)
    client.greets()
    client.proves()
    client.greets()
    assert desk.principals == []


def test_openings_time_out_and_end_with_their_connection() -> None:
    desk = Desk()
    late, gone = FakePipe(), FakePipe()
    Opening(desk, ALICE, late).greets()
    Opening(desk, ALICE, gone).greets()
    desk.exchange.client_gone(cast(Any, gone), desk.now)
    assert desk.waiting == 1
    desk.pass_time(PROVE_S + 1.0)
    assert desk.said(late)[0][:2] == [Kind.ERROR, "deadline"] and late.closed and desk.waiting == 0


def test_openings_are_bounded_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "WAITING_MAX", 2)
    desk, pipes = Desk(), [FakePipe() for _ in range(3)]
    for pipe in pipes:
        Opening(desk, ALICE, pipe).greets()
    desk.pass_time(1.0)
    assert desk.said(pipes[0])[0][:2] == [Kind.ERROR, "crowded_out"]
    assert desk.waiting == 2 and not pipes[1].closed


def test_a_delayed_refusal_is_sent_later_and_frames_until_then_are_ignored() -> None:
    desk = Desk()
    for _ in range(FREE):
        client = Opening(desk, ALICE, FakePipe())
        client.greets()
        answers = client.proves(bytes(32))
    assert answers == [], "the last one waits"
    pipe = FakePipe()
    held = Opening(desk, ALICE, pipe)
    held.greets()
    assert held.proves(bytes(32)) == held.greets() == held.proves(bytes(32)) == [] and not pipe.closed
    desk.pass_time(3.0)
    assert desk.said(pipe)[0][:2] == [Kind.ERROR, "wrong_proof"] and pipe.closed
    assert kinds(Opening(desk, BOB, FakePipe()).greets()) == [Kind.CHALLENGE], "another is not kept out"


def test_delayed_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "HELD_MAX", 1)
    desk = Desk()
    for _ in range(FREE):
        client = Opening(desk, ALICE, FakePipe())
        client.greets()
        client.proves(bytes(32))
    further = Opening(desk, ALICE, FakePipe())
    further.greets()
    assert further.proves(bytes(32))[0][:2] == [Kind.ERROR, "wrong_proof"]
