"""Which address a client dials next. Pure.

A client with one address stays with the broker there. A client with several *moves*: it dials them in
*rounds*. A round tries every address once, in a new random order. It begins when a session is lost or the
previous round ends. The address of the last session comes last, since its broker is the most likely to be
gone. Pauses between rounds grow; pauses between the attempts of one round are short. A session that ends at
once counts as an attempt.

**Told addresses.** Brokers tell clients the addresses of the other live brokers. A moving client adds them to
the given addresses, which it never forgets. It keeps the last `TOLD_MAX` told addresses, and only those as
safe as the given ones (`is_acceptable`). A broker must not send a client from TLS to plain text, to a file of
its own host, or from a remote address to the client's own loopback.

A client without an address tries two default places in order, the local ipc socket and then TCP, until one
answers. After its first session it stays there.
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
"""How many told addresses a client keeps."""
PLAIN: Final = ("tcp", "ws")
SECURE: Final = ("tls+tcp", "wss")


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses at which a client looks for a broker."""

    urls: tuple[str, ...]
    moves: bool = False
    """True if the client may change brokers."""

    def __str__(self) -> str:
        return listed(self.urls)


class Addresses:
    """The addresses that a client knows, and the order in which it dials them."""

    __slots__ = ("_given", "_last", "_moves", "_rng", "_round", "_told", "_tried", "url")

    def __init__(self, place: Place, rng: random.Random) -> None:
        self.url = place.urls[0]
        """The address of the session, of the last one, or of the current attempt."""
        self._given = tuple(dict.fromkeys(place.urls))
        self._moves = place.moves
        self._rng = rng
        self._told: tuple[str, ...] = ()
        self._last = ""
        """The address of the last session."""
        self._round: list[str] = []
        """Addresses still to be tried in this round, in reverse order."""
        self._tried: list[str] = []
        """Sentences about the failed attempts of this round."""

    @property
    def moves(self) -> bool:
        return self._moves

    @property
    def known(self) -> tuple[str, ...]:
        """All known addresses. They include the last session's, since a broker does not tell its own."""
        last = (self._last,) if self._last else ()
        return tuple(dict.fromkeys((*self._given, *self._told, *last)))

    @property
    def left(self) -> int:
        """Number of attempts left in this round."""
        return len(self._round)

    @property
    def tried(self) -> str:
        """How the earlier attempts of this round failed: the beginning of a sentence about the current
        one."""
        return "".join(f"{sentence}, and " for sentence in self._tried)

    def next(self) -> str:
        """Choose the address of the next attempt."""
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
        """Note that the attempt brought no session; return how many addresses are left in this round.
        ``refused``: nobody listens there."""
        if self._round and (self._moves or refused):
            self._tried.append(f"nobody listens at {self.url}" if refused else why)
        else:
            self._round = []
        return len(self._round)

    def began(self) -> None:
        """Note that a session began at `url`."""
        self._last = self.url
        self._tried = []
        if not self._moves:
            self._given = (self.url,)
            self._round = []

    def lost(self, *, lasted: bool) -> int:
        """Note that the session ended; return how many other addresses come before this one. A session that
        lasted ends the round; one that did not was an attempt of it."""
        if not lasted:
            return len(self._round)
        self._begin_round()
        return len(self._round) - 1

    def others(self) -> list[str]:
        """All addresses but `url`, in a new random order."""
        known = [url for url in self.known if url != self.url]
        self._rng.shuffle(known)
        return known

    def told(self, urls: Sequence[str]) -> None:
        """Take the addresses of other brokers, as a broker told them. An empty list changes nothing: the
        broker may be cut off from the others."""
        taken = [url for url in urls if self._moves and is_acceptable(url, self._given)]
        if taken:
            self._told = tuple(taken[:TOLD_MAX])


def is_acceptable(url: str, given: Sequence[str]) -> bool:
    """True if a told address is as safe as the given ones."""
    if len(url) > ADDRESS_SIZE_MAX:
        return False
    secure, local = _is_secure(url), _is_loopback(url)
    if secure is None or (local and not any(map(_is_local, given))):
        return False
    return secure or not all(map(_is_secure, given))


def _scheme(url: str) -> str:
    return url.partition("://")[0].rstrip("46")


def _is_secure(url: str) -> bool | None:
    """True if the address demands TLS; None if it names no host."""
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
