"""When a client resends a block of level stored within one session. Pure.

*Refused again.* A broker may refuse a block that an earlier session has sent. It does not know what homes did
with the earlier copy. So the block is resent after a pause, `REFUSED_S`, which doubles up to `REFUSED_MAX_S`.

*A large body that takes long.* A starting home drops the pieces of unfinished bodies, and the entry broker
keeps no piece that every home has had. So a body may wait for pieces that only its publisher has. If the
broker has said that it takes long (PENDING), the whole body is resent after `BODY_S`, which doubles. Brokers
drop the pieces that they have, and homes recognise them.

Both go on for as long as somebody waits for the messages. A new session resends everything anyway, so it
begins with nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from mesh.clients.unacknowledged import Sealed

REFUSED_S: Final = 0.1
REFUSED_MAX_S: Final = 2.0
"""First and longest pause before a refused block is resent."""
BODY_S: Final = 2.0
BODY_MAX_S: Final = 32.0
"""First and longest pause before a large body is resent."""


class Resending:
    """The blocks to resend. ``at``: when to call `due`."""

    __slots__ = ("_bodies", "_refused", "_refused_at", "_refused_pause_s", "at")

    def __init__(self) -> None:
        self.at = inf
        self._refused: list[Sealed] = []
        self._refused_at = inf
        self._refused_pause_s = REFUSED_S
        self._bodies: dict[Sealed, tuple[float, float]] = {}
        """When each body is resent, and the pause after that."""

    def clear(self) -> None:
        """Forget everything: a new session begins, or the client ends."""
        self._refused.clear()
        self._bodies.clear()
        self.at = self._refused_at = inf
        self._refused_pause_s = REFUSED_S

    def refused(self, sealed: Sealed, now: float) -> None:
        """Note that a copy was refused, after an earlier session had sent one."""
        sealed.put_off = True
        self._refused.append(sealed)
        if self._refused_at == inf:
            self._refused_at = now + self._refused_pause_s
            self._refused_pause_s = min(2 * self._refused_pause_s, REFUSED_MAX_S)
            self.at = min(self.at, self._refused_at)

    def takes_long(self, sealed: Sealed, now: float) -> None:
        """Note that the broker said that it takes long."""
        if len(sealed.blocks) > 1 and sealed not in self._bodies:
            self._bodies[sealed] = now + BODY_S, 2 * BODY_S
            self.at = min(self.at, now + BODY_S)

    def due(self, now: float, is_sent: Callable[[Sealed], bool]) -> list[Sealed]:
        """The blocks to resend now, or to forget if nobody waits for them. ``is_sent``: whether the previous
        copy has been sent whole."""
        if now < self.at:
            return []
        found: list[Sealed] = []
        if now >= self._refused_at:
            found, self._refused = self._refused, []
            self._refused_at = inf
            for sealed in found:
                sealed.put_off = False
        for sealed, (at, pause_s) in list(self._bodies.items()):
            if sealed.over or sealed.ticket.done:
                del self._bodies[sealed]
            elif now >= at:
                if not sealed.put_off and sealed not in found and is_sent(sealed):
                    found.append(sealed)
                self._bodies[sealed] = now + pause_s, min(2 * pause_s, BODY_MAX_S)
        self.at = min((at for at, _ in self._bodies.values()), default=inf)
        self.at = min(self.at, self._refused_at)
        return found
