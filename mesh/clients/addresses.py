"""Where a client dials next. Pure.

A client that was given one address stays with the broker there. One that was given several *moves*: it
dials them in *rounds*. A round has every address once, in an order drawn anew, and begins when a session is
lost or the round before is over. The address of the last session comes last, since its broker is the most
likely to be gone. A pause that grows lies between rounds, and a short one between the attempts of one round.
A session that ends at once is an attempt like any other.

**Told addresses.** Brokers tell those of the other live brokers. A moving client adds them to the ones that
it was given, and never forgets these. It takes at most `TOLD_MAX`, the last ones told, and of these only what
keeps the connection as safe as the given ones (`is_acceptable`): a broker must not send a client from TLS to
plain text, to a file of its own host, or to the client's own loopback from afar.

The two default places of a client without an address (the local ipc socket, then TCP) are dialled in order
until somebody listens; from its first session on it stays there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mesh.printable import listed
from mesh.wire.session_frames import ADDRESS_SIZE_MAX, ADDRESSES_MAX

TOLD_MAX: Final = ADDRESSES_MAX
"""Told addresses that a client keeps."""
PLAIN: Final = ("tcp", "ws")
SECURE: Final = ("tls+tcp", "wss")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client looks for a broker."""

    urls: tuple[str, ...]
    moves: bool = False
    """It may change brokers."""

    def __str__(self) -> str:
        return listed(self.urls)


class Addresses:
    """See the module."""

    __slots__ = ("_given", "_last", "_moves", "_rng", "_round", "_told", "_tried", "url")

    def __init__(self, place: Place, rng: random.Random) -> None:
        self.url = place.urls[0]
        """Where the session is, was last, or is sought."""
        self._given = tuple(dict.fromkeys(place.urls))
        self._moves = place.moves
        self._rng = rng
        self._told: tuple[str, ...] = ()
        self._last = ""
        """Where the last session was."""
        self._round: list[str] = []
        """Where it was not tried yet; the next one last."""
        self._tried: list[str] = []
        """What is said of the attempts of this round."""

    @property
    def moves(self) -> bool:
        return self._moves

    @property
    def known(self) -> tuple[str, ...]:
        """All of them; the last session's broker does not tell its own."""
        last = (self._last,) if self._last else ()
        return tuple(dict.fromkeys((*self._given, *self._told, *last)))

    @property
    def left(self) -> int:
        """Attempts of this round that are still to come."""
        return len(self._round)

    @property
    def tried(self) -> str:
        """The beginning of a sentence about an attempt: how those before it in this round went."""
        return "".join(f"{sentence}, and " for sentence in self._tried)

    def next(self) -> str:
        """Where the next attempt goes."""
        if not self._round:
            self._begin_round()
        self.url = self._round.pop()
        return self.url

    def _begin_round(self) -> None:
        known = list(self.known)
        if self._moves:
            self._rng.shuffle(known)
        if self._last in known:
            known.remove(self._last)
            known.append(self._last)
        self._round = known[::-1]
        self._tried = []

    def failed(self, why: str, *, refused: bool) -> int:
        """The attempt brought no session; ``refused``: nobody listens there. Returns how many others are
        tried in this round."""
        if self._round and (self._moves or refused):
            self._tried.append(f"nobody listens at {self.url}" if refused else why)
        else:
            self._round = []
        return len(self._round)

    def began(self) -> None:
        """There is a session at `url`."""
        self._last = self.url
        self._tried = []
        if not self._moves:
            self._given = (self.url,)
            self._round = []

    def lost(self, *, lasted: bool) -> int:
        """The session is over. One that has lasted ends the round; one that has not was an attempt of it.
        Returns how many others are tried before this one."""
        if not lasted:
            return len(self._round)
        self._begin_round()
        return len(self._round) - 1

    def others(self) -> list[str]:
        """All but `url`, in an order drawn anew."""
        known = [url for url in self.known if url != self.url]
        self._rng.shuffle(known)
        return known

    def told(self, urls: Sequence[str]) -> None:
        """A broker told the addresses of others, which can be dialled. None at all are no news: it may be cut
        off from them."""
        taken = [url for url in urls if self._moves and is_acceptable(url, self._given)]
        if taken:
            self._told = tuple(taken[:TOLD_MAX])


def is_acceptable(url: str, given: Sequence[str]) -> bool:
    """Whether a told address is as safe as the given ones."""
    if len(url) > ADDRESS_SIZE_MAX:
        return False
    secure, local = _is_secure(url), _is_loopback(url)
    if secure is None or (local and not any(map(_is_local, given))):
        return False
    return secure or not all(map(_is_secure, given))


def _scheme(url: str) -> str:
    return url.partition("://")[0].rstrip("46")


def _is_secure(url: str) -> bool | None:
    """None: it names no host."""
    scheme = _scheme(url)
    return True if scheme in SECURE else False if scheme in PLAIN else None


def _is_loopback(url: str) -> bool:
    rest = url.partition("://")[2].partition("/")[0]
    host = rest[1:].partition("]")[0] if rest.startswith("[") else rest.partition(":")[0]
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_local(url: str) -> bool:
    return _is_secure(url) is None or _is_loopback(url)
