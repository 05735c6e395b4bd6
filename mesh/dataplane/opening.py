"""The opening of a session: the identity of the client, and the challenge that it must answer. Pure.

A HELLO without a proof starts its session at once. Its connection tells the identity. A HELLO that names a
key or a token gets a CHALLENGE and waits here for PROVE, at most `PROVE_S`. A nonce serves one PROVE: right
or wrong, the opening then ends. Openings are bounded over all connections (`WAITING_MAX`); a new one replaces
the oldest.

The first few wrong proofs are refused at once. Later refusals are held back (`mesh.access.attempts`), and
whatever the client sends meanwhile is ignored. So guessing is slow and costs the broker little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mesh.access import proofs
from mesh.access.door import Claim, Door, Guest, Origin, WrongProof
from mesh.dataplane.ports import Pipe
from mesh.errors import SessionError
from mesh.wire.session_frames import NONCE_SIZE, Kind, encode
from mesh.wire.session_opening import Hello

PROVE_S: Final = 5.0
WAITING_MAX: Final = 4096

HELD_MAX: Final = 1024
"""Refusals held back. Beyond them clients are refused at once."""

Place = tuple[Pipe, bytes]
"""A connection and a backtrace."""
OriginOf = Callable[[Any], Origin]
"""Returns the origin of a pipe, as the surrounding broker knows it."""


class NotProven(SessionError):
    """A client did not answer its challenge in time."""

    reason = "deadline"


class CrowdedOut(SessionError):
    """Too many clients are being challenged."""

    reason = "crowded_out"


class _Opening:
    """A HELLO that was challenged."""

    __slots__ = ("about", "claim", "hello", "until")

    def __init__(self, hello: Hello, about: bytes, claim: Claim, until: float) -> None:
        self.hello = hello
        self.about = about
        """The input of the proof. HELLO may be long and is not kept."""
        self.claim = claim
        self.until = until


class Openings:
    """See the module."""

    def __init__(self, id: int, name: str, mesh: str, door: Door, origin_of: OriginOf) -> None:
        self._id = id
        self._name = name
        self._mesh = mesh
        self._door = door
        self._origin_of = origin_of
        self._waiting: dict[Place, _Opening] = {}
        """Ordered by the end of their time."""
        self._held: dict[Place, tuple[float, WrongProof]] = {}
        """Refusals, and the time of each."""
        self._places: dict[Pipe, dict[bytes, None]] = {}
        """Backtraces in either table, by connection."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """How many refusals are held back."""
        return len(self._held)

    def hello(self, pipe: Pipe, prefix: bytes, frame: bytes, hello: Hello, now: float) -> Guest | None:
        """The sender of HELLO. None if it is challenged, or waits to be refused. ``frame`` is the HELLO
        without its backtrace. Raises `SessionError`."""
        if (pipe, prefix) in self._held:
            return None
        self._forget(pipe, prefix)
        origin = self._origin_of(pipe)
        if hello.claim is None:
            return self._door.unproven(origin)
        try:
            claim = self._door.claim(*hello.claim, origin, now)
        except WrongProof as error:
            self._hold(pipe, prefix, error, now)
            return None
        challenge = encode(Kind.CHALLENGE, self._door.nonce(NONCE_SIZE), self._id, self._name, self._mesh)
        about = proofs.statement(frame, challenge)
        self._waiting[pipe, prefix] = _Opening(hello, about, claim, now + PROVE_S)
        self._places.setdefault(pipe, {})[prefix] = None
        pipe.send_control(prefix + challenge)
        return None

    def prove(self, pipe: Pipe, prefix: bytes, proof: bytes, now: float) -> tuple[Hello, Guest] | None:
        """The sender of PROVE with its HELLO. None if it waits to be refused. Raises `SessionError`."""
        if (pipe, prefix) in self._held:
            return None
        opening = self._forget(pipe, prefix)
        if opening is None:
            raise SessionError("a PROVE frame came without a challenge")
        try:
            return opening.hello, self._door.proven(opening.claim, opening.about, proof, now)
        except WrongProof as error:
            self._hold(pipe, prefix, error, now)
            return None

    def _hold(self, pipe: Pipe, prefix: bytes, error: WrongProof, now: float) -> None:
        """Refuse later. Raises the error now if no wait applies, or if too many refusals wait."""
        if error.held_s <= 0 or len(self._held) >= HELD_MAX:
            raise error
        self._held[pipe, prefix] = now + error.held_s, error
        self._places.setdefault(pipe, {})[prefix] = None

    def _forget(self, pipe: Pipe, prefix: bytes) -> _Opening | None:
        place = self._places.get(pipe)
        if place is None:
            return None
        place.pop(prefix, None)
        if not place:
            del self._places[pipe]
        self._held.pop((pipe, prefix), None)
        return self._waiting.pop((pipe, prefix), None)

    def over(self, now: float) -> list[tuple[Pipe, bytes, SessionError]]:
        """Openings that are given up, each with its reason."""
        found: list[tuple[Pipe, bytes, SessionError]] = [
            (*place, error) for place, (until, error) in self._held.items() if now >= until
        ]
        surplus = len(self._waiting) - WAITING_MAX
        for number, (place, opening) in enumerate(self._waiting.items()):
            if now >= opening.until:
                found.append((*place, NotProven(f"no PROVE frame came within {PROVE_S:g} s")))
            elif number < surplus:
                found.append((*place, CrowdedOut(f"more than {WAITING_MAX} clients are being challenged")))
            else:
                break
        for pipe, prefix, _ in found:
            self._forget(pipe, prefix)
        return found

    def gone(self, pipe: Pipe) -> None:
        """A connection has ended."""
        for prefix in list(self._places.get(pipe, ())):
            self._forget(pipe, prefix)
