"""The agreement of two programs: the versions and the capabilities in HELLO and WELCOME.

The first field of a link's HELLO, and of a session's HELLO and WELCOME, is the newest version that the sender
speaks. The last field is an *offer*: the oldest version that it speaks, and the names of its capabilities::

    [kind, newest, ... the other fields of version 1 ..., [oldest, [capability, ...]]]

Both sides then speak the newest version that both know, and use a capability only if both named it
(`Offer.agree`). A side that needs a capability which the other lacks refuses with `Agreed.require`, whose
sentence names it.

**Version 1** knows no offer, and refuses frames with more fields than its own. So HELLO and WELCOME without
an offer mean version 1 and no capabilities. A peer that such a program refuses dials again and says exactly
the fields of version 1 (`FIRST`). From version 2 on, a reader ignores fields behind those that it knows.

**Names** are chosen once. A capability never changes its meaning; another meaning gets another name. New
names are added to `LINK` or `SESSION` below, with a line that says what they allow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mesh.errors import PeerError
from mesh.wire.fields import FieldError, list_of, number, shown, text

VERSION_MAX: Final = 1 << 16
NAME_MAX: Final = 32
NAMES_MAX: Final = 64
"""Most capabilities in one offer."""

INTEREST_OWNER: Final = "interest-owner"
"""Link: frames of interest name the member whose interest they carry."""
RECEIVED: Final = "received"
"""Link: each side begins with the number of messages that it received over earlier links. So the loss at the
end of a link can be counted."""

PUBLISHER_SECRET: Final = "publisher-secret"
"""Session: HELLO carries the secret from which the client's publisher id is derived."""
PATTERN_PARTS: Final = "pattern-parts"
"""Session: PATTERNS frames before a SUBSCRIBE carry some of its patterns, so that it may have many."""
SUBSCRIBE_REFUSED: Final = "subscribe-refused"
"""Session: UNSUBSCRIBED refuses a subscription that is above a limit, and the session goes on."""
INTERRUPTED: Final = "interrupted"
"""Session: INTERRUPTED says that subscriptions may lack messages, since the broker was apart from others."""
ADDRESSES: Final = "addresses"
"""Session: ADDRESSES names the other live brokers for clients, after WELCOME and after each change."""
GOAWAY: Final = "goaway"
"""Session: GOAWAY says that the broker is about to leave."""
MOVES: Final = "moves"
"""Session: the client goes to another broker at GOAWAY, and says MOVED once it is there."""
MARK: Final = "mark"
"""Link: MARK is returned behind all frames that wait."""
DURABLE: Final = "durable"
"""Link: frames of durable interest, blocks of level stored, and the frames of `mesh.wire.durable_frames`. A
broker without it is the home of no durable subscription, and is told of none."""
STORED: Final = "stored"
"""Session: blocks of level stored, and the frames of `mesh.wire.durable_frames`."""
PROOF: Final = "proof"
"""Session: HELLO may name what the client can prove. Then CHALLENGE and PROVE come before WELCOME, and
WELCOME names the client's principal."""


class VersionMismatch(PeerError):
    """Two programs have no version in common, or one lacks a capability that is needed."""

    reason = "version"


@dataclass(frozen=True, slots=True)
class Agreed:
    """The agreement of both sides: one version, and the capabilities that both have."""

    version: int
    capabilities: frozenset[str]

    def has(self, capability: str) -> bool:
        return capability in self.capabilities

    def require(self, capability: str, peer: str) -> None:
        """Raises `VersionMismatch` if ``peer`` (a name to show) lacks it."""
        if capability not in self.capabilities:
            raise VersionMismatch(
                f"{peer} speaks version {self.version} without {capability!r}, which this needs"
            )


@dataclass(frozen=True, slots=True)
class Offer:
    """One side's offer: the versions from ``oldest`` to ``newest``, and its capabilities."""

    oldest: int
    newest: int
    capabilities: frozenset[str]

    @classmethod
    def of(cls, oldest: int, newest: int, capabilities: Iterable[str]) -> Offer:
        return cls(oldest, newest, frozenset(capabilities))

    def without(self, *capabilities: str) -> Offer:
        """The same offer without these capabilities."""
        return Offer(self.oldest, self.newest, self.capabilities.difference(capabilities))

    def packed(self) -> list[Any]:
        """The offer as the last field of HELLO and WELCOME; ``newest`` is the first field."""
        return [self.oldest, sorted(self.capabilities)]

    def agree(self, peer: Offer) -> Agreed:
        """Find what both speak. Raises `VersionMismatch` if they have no version in common."""
        version = min(self.newest, peer.newest)
        if version < max(self.oldest, peer.oldest):
            raise VersionMismatch(f"the peer speaks {peer.versions}, this side {self.versions}")
        return Agreed(version, self.capabilities & peer.capabilities)

    @property
    def versions(self) -> str:
        """The versions to show: ``version 2`` or ``versions 1 to 2``."""
        if self.oldest == self.newest:
            return f"version {self.newest}"
        return f"versions {self.oldest} to {self.newest}"


def read_offer(newest: int, rest: list[Any]) -> Offer:
    """Read the offer of a HELLO or WELCOME whose first field is ``newest``.

    ``rest`` holds the fields behind those of version 1: none, or an offer and fields that a later version has
    added. Raises `FieldError`.
    """
    if not rest:
        return Offer(newest, newest, frozenset())
    packed = rest[0]
    if type(packed) is not list or len(packed) < 2:
        raise FieldError(f"field offer is {shown(packed)}, expected [oldest version, capabilities]")
    oldest = _version("offer.oldest", packed[0])
    if oldest > newest:
        raise FieldError(f"field offer names versions {oldest} to {newest}")
    return Offer(oldest, newest, frozenset(_names("offer.capabilities", packed[1])))


_version: Final = number(VERSION_MAX)
_names: Final = list_of(text(NAME_MAX), NAMES_MAX)

FIRST: Final = Offer(1, 1, frozenset())
"""The offer of version 1, on links and in sessions."""
LINK: Final = Offer.of(1, 2, [INTEREST_OWNER, RECEIVED, MARK, DURABLE])
SESSION: Final = Offer.of(
    1,
    2,
    [
        PUBLISHER_SECRET,
        PATTERN_PARTS,
        SUBSCRIBE_REFUSED,
        INTERRUPTED,
        ADDRESSES,
        GOAWAY,
        MOVES,
        STORED,
        PROOF,
    ],
)
"""The offer of brokers in sessions. Clients offer the part of it that they support."""
