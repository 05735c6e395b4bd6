"""The outcome of a batch of messages as a whole. Pure.

A batch may have millions of messages. So it keeps open messages by group, hundreds at a time. It keeps the
number of the others, those that failed, and what a receipt for all of them says.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final

from mesh.clients.pending import Group
from mesh.errors import BatchFailed, MeshError, NotAccepted
from mesh.wire.session_frames import Receipt

SWEEP_MIN: Final = 64
ERRORS_NAMED: Final = 3
"""Different errors that the sentence of a failure repeats."""


class _Stretch:
    """Neighbours in a batch that are neighbours in a group."""

    __slots__ = ("count", "group", "index", "place")

    def __init__(self, group: Group, index: int, place: int) -> None:
        self.group = group
        self.index = index
        self.place = place
        self.count = 1


class BatchOutcome:
    """The outcome of one batch."""

    def __init__(self, level: str) -> None:
        self.count = 0
        """Number of messages so far."""
        self._level = level
        self._stretches: list[_Stretch] = []
        self._sweep_at = SWEEP_MIN
        self._errors: dict[int, MeshError] = {}
        self._broker = ""
        self._first = 0
        self._absent: dict[str, None] = {}
        self._homes: dict[str, None] = {}
        self._receipt: Receipt | None = None

    def add(self, group: Group, index: int) -> None:
        """Add the next message: the ``index``-th of a group's batch."""
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.group is group and last.index + last.count == index:
            last.count += 1
        else:
            if len(self._stretches) >= self._sweep_at:
                self._sweep()
                self._sweep_at = max(SWEEP_MIN, 2 * len(self._stretches))
            self._stretches.append(_Stretch(group, index, self.count))
        self.count += 1

    def open(self) -> Iterator[Group]:
        """Yield the groups to wait for, one after the other."""
        for stretch in self._stretches:
            if not stretch.group.over:
                yield stretch.group

    def _sweep(self) -> None:
        """Note the outcome of groups that are over, and forget them."""
        still_open = []
        for stretch in self._stretches:
            if stretch.group.over:
                self._note(stretch)
            else:
                still_open.append(stretch)
        self._stretches = still_open

    def _note(self, stretch: _Stretch) -> None:
        group, ticket = stretch.group, stretch.group.ticket
        self._broker = ticket.broker or self._broker
        self._absent.update(dict.fromkeys(ticket.absent))
        self._homes.update(dict.fromkeys(ticket.homes))
        if stretch.place == 0 and not group.errors:
            self._first = ticket.number(stretch.index)
        copies: dict[int, MeshError] = {}
        for index in range(stretch.index, stretch.index + stretch.count) if group.errors else ():
            error = group.look(index)
            if error is not None:
                place = stretch.place + index - stretch.index
                # the original belongs to the group
                self._errors[place] = copies.setdefault(id(error), copy(error))

    def end(self) -> None:
        """End the batch; all groups are over, and nothing is added any more. Raises `BatchFailed`."""
        self._sweep()
        assert not self._stretches, "all groups are over"
        if self._errors:
            raise BatchFailed(self._sentence(), dict(sorted(self._errors.items())))
        absent, homes = tuple(self._absent), tuple(self._homes)
        self._receipt = Receipt(self._level, self._broker, self._first, self.count, absent, homes)

    def receipt(self) -> Receipt:
        """One receipt for all messages. Raises `MeshError` unless `end` has found that all succeeded."""
        if self._receipt is None:
            raise MeshError("a batch has a receipt once it has ended and all its messages have succeeded")
        return self._receipt

    def _sentence(self) -> str:
        errors = self._errors.values()
        refused = sum(isinstance(error, NotAccepted) for error in errors)
        found = [f"{refused} were not accepted"] if refused else []
        if refused < len(errors):
            found.append(f"{len(errors) - refused} may have been accepted")
        reasons = list(dict.fromkeys(map(str, errors)))
        more = len(reasons) - ERRORS_NAMED
        named = "; ".join(reasons[:ERRORS_NAMED]) + (f"; and {more} more reasons" if more > 0 else "")
        return f"of {self.count} messages {' and '.join(found)}: {named}"
