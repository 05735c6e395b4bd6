"""When a client sends a block of level stored again within one session. Pure.

*Refused again.* A broker that refuses a block which an earlier session has sent knows nothing of what homes
did with it then. The block is sent again after a pause, `REFUSED_S`, which doubles up to `REFUSED_MAX_S`.

*A large body that takes long.* A home that starts drops the pieces of unfinished bodies, and the entry broker
keeps no piece that each home had. So a body may wait for pieces that nobody has but its publisher. If the
broker has said that it takes long (PENDING), all of it is sent again after `BODY_S`, which doubles. Brokers
drop the pieces that they have, and homes know them.

Both go on for as long as somebody waits for the messages. A new session sends everything again, so it begins
with nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from mesh.clients.unacknowledged import Sealed

REFUSED_S: Final = 0.1
REFUSED_MAX_S: Final = 2.0
"""First and longest pause before a block that was refused is sent again."""
BODY_S: Final = 2.0
BODY_MAX_S: Final = 32.0
"""First and longest pause before a large body is sent again."""


class Resending:
    """See the module. ``at``: when `due` is to be called."""

    __slots__ = ("_bodies", "_refused", "_refused_at", "_refused_pause_s", "at")

    def __init__(self) -> None:
        self.at = inf
        self._refused: list[Sealed] = []
        self._refused_at = inf
        self._refused_pause_s = REFUSED_S
        self._bodies: dict[Sealed, tuple[float, float]] = {}
        """When each is sent again, and after how long once more."""

    def clear(self) -> None:
        """A new session, or the end."""
        self._refused.clear()
        self._bodies.clear()
        self.at = self._refused_at = inf
        self._refused_pause_s = REFUSED_S

    def refused(self, sealed: Sealed, now: float) -> None:
        """A copy was refused, of which an earlier session has sent one, too."""
        sealed.put_off = True
        self._refused.append(sealed)
        if self._refused_at == inf:
            self._refused_at = now + self._refused_pause_s
            self._refused_pause_s = min(2 * self._refused_pause_s, REFUSED_MAX_S)
            self.at = min(self.at, self._refused_at)

    def takes_long(self, sealed: Sealed, now: float) -> None:
        """The broker says so."""
        if len(sealed.blocks) > 1 and sealed not in self._bodies:
            self._bodies[sealed] = now + BODY_S, 2 * BODY_S
            self.at = min(self.at, now + BODY_S)

    def due(self, now: float, is_sent: Callable[[Sealed], bool]) -> list[Sealed]:
        """What is to be sent again now, or forgotten if nobody waits for it. ``is_sent``: whether all that
        was to be sent of one before has been."""
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
