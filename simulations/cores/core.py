"""The interface between cores and their runner: messages, and changes of what brokers see of each other."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Message = tuple[Any, ...]
"""Nobody changes one after it was sent."""


class Change(NamedTuple):
    """A broker saw another one come into another state. A large split makes millions of them."""

    at_s: float
    observer: str
    subject: str
    from_state: str
    to_state: str
    reason: str


class Core(Protocol):
    """The behaviour of the brokers of all places: one object for all of them.

    Places and wires are numbers. A core is called for places that run, and for no others; it says when it
    wants to be called without a message by `Field.wake`.
    """

    def begin(self, place: int, now_ns: int) -> None:
        """A life begins here, and nothing is left of one before."""

    def receive(self, wire: int, message: Message, now_ns: int) -> Message | None:
        """A message came by this wire; what is returned goes back at once."""

    def tick(self, place: int, now_ns: int) -> None:
        """The time has come that it wanted to be called at."""

    def lost(self, wire: int, now_ns: int) -> None:
        """The process at the other end of this wire died, and the kernel there said so to this one."""

    def view(self, place: int) -> dict[str, str]:
        """Whom it holds for what, by name."""
