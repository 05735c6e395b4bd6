"""The interface between cores and their runner: messages, and changes in how brokers see each other."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Message = tuple[Any, ...]
"""A message, which nobody changes after it was sent."""


class Change(NamedTuple):
    """One broker saw another change its state. A large split makes millions of these."""

    at_s: float
    observer: str
    subject: str
    from_state: str
    to_state: str
    reason: str


class Core(Protocol):
    """The behaviour of the brokers of all places: one object for all of them.

    Places and wires are numbers. A core is called only for places that run. It uses `Field.wake` to be called
    without a message.
    """

    def begin(self, place: int, now_ns: int) -> None:
        """A life begins here, and nothing of an earlier one remains."""

    def receive(self, wire: int, message: Message, now_ns: int) -> Message | None:
        """A message arrived by this wire; the returned messages go back at once."""

    def tick(self, place: int, now_ns: int) -> None:
        """The time that the core asked for has come."""

    def lost(self, wire: int, now_ns: int) -> None:
        """The process at the other end of this wire died, and its kernel reported that to this one."""

    def view(self, place: int) -> dict[str, str]:
        """The broker's view: the state of each member, by name."""
