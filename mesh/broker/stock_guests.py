"""The identities of clients behind stock SP sockets: from their certificates, or anonymous.

Stock clients send no HELLO, so they can prove nothing else. Rights and limits apply to them as to sessions. A
socket that may do nothing at all is refused when it connects (`admit`), and so is one too many. The reason is
counted, and the log names the rule. A publisher that exceeds its principal's rate is not read for a while,
which its own socket notices as a full queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mesh.access import Action
from mesh.access.door import AboveLimit, Door, Guest, NotAllowed, Origin, Standing
from protocols import Pipe, PipeRefused, PipeView

PACED: Final = 8
"""A reason to pause reading, besides those of `protocols.pipe`."""


class StockGuests:
    """Identities and rights of stock clients. ``later(seconds, call)`` calls in so many seconds."""

    def __init__(
        self,
        door: Door,
        origin_of: Callable[[Pipe | PipeView], Origin],
        later: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self._door = door
        self._origin_of = origin_of
        self._later = later
        self._guests: dict[Pipe, Guest] = {}

    def admit(self, action: Action, shown: Sequence[str], pipe: Pipe | PipeView) -> None:
        """Check a socket that can do only ``action`` before it is let in. ``shown``: the patterns that it
        would receive. Raises `PipeRefused`."""
        if pipe.dialed:
            return
        try:
            guest = self._door.unproven(self._origin_of(pipe))
            self._door.check_room(guest)
            rights = guest.standing.rights
            if rights is not None:
                gives = rights.narrowed(tuple(shown)) if action == "subscribe" else rights.gives(action)
                if not gives:
                    raise NotAllowed(rights.refusal_of_all(action))
        except (NotAllowed, AboveLimit) as error:
            raise PipeRefused(str(error), reason=error.reason) from error

    def of(self, pipe: Pipe) -> Standing:
        """The principal behind a connection, which counts as one of its connections from the first call on.
        Raises `NotAllowed`, `AboveLimit`."""
        guest = self._guests.get(pipe)
        if guest is None:
            guest = self._door.unproven(self._origin_of(pipe))
            self._door.enter(guest)
            self._guests[pipe] = guest
        return guest.standing

    def gone(self, pipe: Pipe) -> None:
        guest = self._guests.pop(pipe, None)
        if guest is not None:
            self._door.leave(guest)

    def refusal(self, pipe: Pipe, topic: str, encoded: bytes, bodies: Sequence[bytes]) -> str:
        """Why messages may not be published, with the rule. Empty if they may. Raises as `of`."""
        rights = self.of(pipe).rights
        if rights is None:
            return ""
        why = rights.refusal_to_publish(encoded)
        if not why and rights.message_bytes_max is not None:
            why = rights.refusal_of_size(max(map(len, bodies)))
        return why

    def published(self, pipe: Pipe, count: int) -> None:
        """So many messages were published. A connection above its rate is not read for a while."""
        guest = self._guests.get(pipe)
        bucket = None if guest is None else guest.standing.bucket
        if bucket is None:
            return
        bucket.level -= count
        if wait_s := bucket.wait_s():
            pipe.pause(PACED)
            self._later(wait_s, partial(pipe.resume, PACED))

    def end_invalid(self) -> None:
        """After a reload: close the connections of clients that are no longer admitted."""
        for pipe, guest in list(self._guests.items()):
            if not self._door.is_valid(guest):
                sentence = f"principal {guest.standing.name!r} is not known by this certificate any more"
                if not guest.method:
                    sentence = "anonymous clients are not served any more"
                pipe.close(f"{sentence}, since the configuration was reloaded")
