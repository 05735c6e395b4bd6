"""The things that callers wait for:  `Waitable`, and `Ticket`, the acknowledgement of a batch of messages.
Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy

from mesh.errors import MeshError, NotAccepted, Unknown
from mesh.printable import listed
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt


class Waitable:
    """Something that a caller may wait for. The shell calls ``waiters`` in order, once each. They are in a
    dict, as thousands may give up in any order."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Callable[[], None], None] = {}

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter()


class Ticket(Waitable):
    """The acknowledgement of one batch: done when every block of it has reached its level, or one has failed.

    Several callers may share a batch of several blocks, so each asks for the `receipt` of its own messages.
    """

    __slots__ = (
        "_accepted",
        "_refused",
        "absent",
        "broker",
        "cancelled",
        "done",
        "error",
        "first",
        "homes",
        "level",
        "pending",
        "sealed_to",
        "sealed_whole",
        "standing",
        "waited",
    )

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level
        self.first = 0
        """Sequence number of the first message; 0 until it is sealed."""
        self.sealed_to = 0
        """Sequence number of the last message that is sealed."""
        self.sealed_whole = False
        """True if that is all of the batch."""
        self.pending = 0
        self.waited = 0
        """Messages whose callers have not given up."""
        self.done = False
        self.error: MeshError | None = None
        self.broker = ""
        self.absent: tuple[str, ...] = ()
        """Brokers that any of its acknowledgements named as absent."""
        self.homes: tuple[str, ...] = ()
        """Homes that keep a part of it, by its acknowledgements."""
        self.standing = ""
        """The state of a block that waits for long: part of a sentence."""
        self.cancelled: list[int] = []
        """Places in the batch of messages that were taken back; ascending once it is sealed."""
        self._accepted: tuple[tuple[int, int], ...] = ()
        self._refused: tuple[tuple[int, int], ...] = ()

    @property
    def sealed(self) -> bool:
        return self.first > 0

    def accept(self, first: int, last: int, broker: str, absent: Sequence[str], homes: Sequence[str]) -> None:
        """Note that a block of it has reached its level."""
        self._accepted += ((first, last),)
        self.pending -= 1
        self.broker = broker
        if absent:
            self.absent = tuple(dict.fromkeys((*self.absent, *absent)))
        if homes:
            self.homes = tuple(dict.fromkeys((*self.homes, *homes)))

    def refuse(self, first: int, last: int, error: NotAccepted) -> None:
        """Note that a block of it was certainly not accepted. Its unsealed rest will not be sent."""
        self._refused += ((first, last),)
        self.pending -= 1
        self.fail(error)

    def doubt(self, error: Unknown) -> None:
        """Note that a block of it was refused, of which an earlier copy may have been accepted."""
        self.pending -= 1
        self.fail(error)

    def wait_for(self, kept: Sequence[str], waiting: Sequence[str]) -> None:
        """Note that some homes keep a block of it, and others have not confirmed yet."""
        if kept:
            self.standing = f"kept by {listed(kept)}, not yet by {listed(waiting)}"
        else:
            self.standing = f"no home is known to keep it; asked: {listed(waiting)}"

    def why(self, why: str) -> str:
        """Why it is not done, beside what the connection says."""
        return f"{self.standing}; {why}" if self.standing else why

    def fail(self, error: MeshError) -> None:
        if not self.done:
            self.done = True
            self.error = error

    def number(self, index: int) -> int:
        """Sequence number of the ``index``-th message, once the first is sealed."""
        return self.first + index - bisect_left(self.cancelled, index)

    def receipt(self, index: int, count: int = 1) -> Receipt:
        """The receipt of ``count`` messages from the ``index``-th on. Raises what else became of them."""
        if self.error is None and not self.cancelled:  # nearly always, and for each awaited message
            level = blocks.LEVELS[self.level]
            return Receipt(level, self.broker, self.first + index, count, self.absent, self.homes)
        outcome = self.outcome(index, count)
        if isinstance(outcome, MeshError):
            raise copy(outcome)  # a raised error holds its callers' frames, and this one may be kept for long
        return outcome

    def outcome(self, index: int, count: int = 1, error: MeshError | None = None) -> Receipt | MeshError:
        """The outcome of ``count`` messages. ``error`` is the one with which their caller gave up, if it
        did."""
        first = self.number(index)
        last = first + count - 1
        error = error or self.error
        if error is not None and _shared(self._accepted, first, last) < count:
            sealed = ((self.first, self.sealed_to),) if self.sealed else ()
            sent = _shared(sealed, first, last) - _shared(self._refused, first, last)
            if isinstance(error, NotAccepted) and sent:
                return Unknown(f"some of the messages may have been accepted: {error}")
            if isinstance(error, Unknown) and not sent:
                return NotAccepted(f"none of the messages was accepted, others may have been: {error}")
            return error
        return Receipt(blocks.LEVELS[self.level], self.broker, first, count, self.absent, self.homes)


def _shared(ranges: Sequence[tuple[int, int]], first: int, last: int) -> int:
    """How many numbers from ``first`` to ``last`` are in these ranges, which do not overlap."""
    return sum(max(0, min(last, end) - max(first, begin) + 1) for begin, end in ranges)
