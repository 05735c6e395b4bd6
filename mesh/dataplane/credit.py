"""Credit of senders: it returns to them when a block has left every queue here.

An `Ingress` is a publisher's session or a link, with its receive window. A waiting block may hold its
sender's credit (`HeldCredit`). The credit returns when the last outlet in which the block waits has sent or
dropped it. That is the back-pressure; reading is never paused. A principal with a rate limit gets no more
credit than its rate allows (`Pace`).

Pure.
"""

from __future__ import annotations

from typing import Protocol

from mesh.wire.session_frames import ReceiveWindow, credit_frame


class Grantee(Protocol):
    """A sender of blocks, which is granted credit."""

    def send_control(self, frame: bytes) -> None:
        """Send a frame ahead of data. No effect once the sender has left."""


class Pace(Protocol):
    """The rate limit of a sender (`mesh.access.door.Standing`)."""

    def keeps_back(self, paced: Ingress, messages: int, /) -> bool:
        """True if credit for so many messages has to wait. Then ``paced.grant()`` is called later."""


class Ingress:
    """One sender of blocks and its window. ``due`` collects the senders that are due a grant."""

    __slots__ = ("_due", "_is_due", "_pace", "is_link", "owner", "window")

    def __init__(
        self,
        owner: Grantee,
        window: ReceiveWindow,
        due: list[Ingress],
        *,
        is_link: bool,
        pace: Pace | None = None,
    ) -> None:
        self.owner = owner
        self._pace = pace
        self.window = window
        self.is_link = is_link
        self._is_due = False
        self._due = due

    def settle(self, messages: int, size: int) -> None:
        """A block of this sender has left every queue here. (Inlines `ReceiveWindow.settle`, which saves two
        calls for each block.)"""
        window = self.window
        window.owed_messages += messages
        window.owed_bytes += size
        if not self._is_due and (
            window.owed_messages * 4 >= window.messages or window.owed_bytes * 4 >= window.bytes
        ):
            self._is_due = True
            self._due.append(self)

    def grant(self) -> None:
        """Give back all credit that is due."""
        self._is_due = False
        owed = self.window.owed_messages
        if self._pace is not None and owed and self._pace.keeps_back(self, owed):
            return
        messages, size = self.window.grant()
        if messages or size:
            self.owner.send_control(credit_frame(0, messages, size))


class HeldCredit:
    """The credit of one block, shared by the outlets in which it waits. The last one gives it back."""

    __slots__ = ("ingress", "messages", "outlets", "size")

    def __init__(self, ingress: Ingress, messages: int, size: int) -> None:
        self.ingress = ingress
        self.messages = messages
        self.size = size
        self.outlets = 0

    def release(self) -> None:
        self.outlets -= 1
        if self.outlets == 0:
            self.ingress.settle(self.messages, self.size)
