"""Messages that were published without waiting, and their outcomes. Pure.

`publish_soon` gathers a message and returns an `AnyPending`, which is two words: a `Group` and a place in it.
A group holds what one turn gathered into one batch. Its messages share one `Ticket`, and nearly always one
block and one acknowledgement. So hundreds of pending messages have one group and one deadline, and no task,
future or timer of their own.

A group is *open* until its ticket is done or its time is over. Then it is *over*, and the outcome of each
message is final: a receipt, or the error in ``errors``. If both an acknowledgement and the timeout come, the
first one counts.

Errors are never silent. When the last `AnyPending` of a group is garbage, the errors that nobody looked at
are counted in ``unheard``, and the shell warns of them. To await counts as a look, and so do calls of
`result` and `exception`. A callback does not count.

At most ``most`` messages are open. At that limit, as without credit, `publish_soon` raises `NotReady`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final, Protocol, Self

import msgspec

from mesh.clients.calls import unacknowledged
from mesh.clients.tickets import Ticket, Waitable
from mesh.errors import MeshError, NotAccepted
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt

PENDING_MAX: Final = 4096
"""Messages that may be pending at once, unless a client is told otherwise."""
STALE_MIN: Final = 64
"""Deadlines of groups that are over, before the heap is built anew without them."""


class AnyTicket(Protocol):
    """Acknowledged as a whole: a `Ticket`, or a parcel on its way into an outbox. Woken when it is
    done."""

    waiters: dict[Callable[[], None], None]

    @property
    def error(self) -> MeshError | None: ...

    @property
    def broker(self) -> str: ...

    @property
    def absent(self) -> tuple[str, ...]: ...

    @property
    def homes(self) -> tuple[str, ...]: ...

    def number(self, index: int) -> int: ...

    def receipt(self, index: int, count: int = 1) -> Receipt: ...

    def outcome(self, index: int, count: int = 1, error: MeshError | None = None) -> Receipt | MeshError: ...


class Group(Waitable):
    """Neighbouring messages of one batch, from its ``first``-th on. Woken when it is over."""

    __slots__ = (
        "_owner",
        "_unseen",
        "callbacks",
        "count",
        "deadline",
        "errors",
        "first",
        "limit_s",
        "number",
        "over",
        "ticket",
    )

    def __init__(
        self, owner: Pendings, number: int, ticket: AnyTicket, first: int, limit_s: float, deadline: float
    ) -> None:
        self._owner = owner
        self._unseen: set[int] = set()
        """Places of failed messages that nobody has looked at."""
        super().__init__()
        self.number = number
        self.ticket = ticket
        self.first = first
        self.count = 0
        self.limit_s = limit_s
        self.deadline = deadline
        self.over = False
        self.errors: dict[int, MeshError] = {}
        """The errors of failed messages, by their place in the batch."""
        self.callbacks: list[tuple[Callable[[Any], object], AnyPending]] = []

    def __del__(self) -> None:
        if self._unseen:
            self._owner.forgotten(len(self._unseen), self.errors[min(self._unseen)])

    @property
    def owner(self) -> Pendings:
        return self._owner

    def end(self) -> None:
        """End the group, whose ticket is done."""
        if not self.over:
            if self.ticket.error is not None:
                self._judge(None)
            self._end()

    def end_in_vain(self, error: MeshError) -> None:
        """End the group, which has timed out. With `NotAccepted` none of its messages was ever sent."""
        if not self.over:
            self._judge(error)
            self._end()

    def fail(self, error: MeshError) -> None:
        """Fail the group's only message, which was never gathered."""
        self.over = True
        self.errors[self.first] = copy(error)
        self._unseen.add(self.first)

    def _judge(self, error: MeshError | None) -> None:
        # copies: an error that a caller raises holds its frames, and they may hold an outcome in a cycle with
        # this
        found = mine = None
        taken_back = isinstance(error, NotAccepted)
        for index in range(self.first, self.first + self.count):
            outcome = error if error and taken_back else self.ticket.outcome(index, 1, error)
            if isinstance(outcome, MeshError):
                if found is None or (type(outcome), str(outcome)) != (type(found), str(found)):
                    found, mine = outcome, copy(outcome)
                assert mine is not None
                self.errors[index] = mine

    def _end(self) -> None:
        self.over = True
        self._unseen = set(self.errors)
        self._owner.ended(self)
        callbacks, self.callbacks = self.callbacks, []
        self.wake()
        for callback, outcome in callbacks:
            self._owner.call(callback, outcome)

    def look(self, index: int) -> MeshError | None:
        """The error of a message, which counts as looked at from now on."""
        if index not in self.errors:
            return None
        self._unseen.discard(index)
        return self.errors[index]


GiveUp = Callable[[Group, str], MeshError]
"""Gives up a group, and returns the error with which it ends. The sentence says why it was not
acknowledged."""


class AnyPending(msgspec.Struct, eq=False):
    """The outcome of one published message.

    It is a `msgspec.Struct`, since one is made for every message. Unlike a `Delivery`, the garbage collector
    tracks it: programs hold it in frames that errors refer to, and the end of its life counts the errors that
    nobody looked at.
    """

    _group: Group
    _index: int

    def __repr__(self) -> str:
        group = self._group
        error = group.errors.get(self._index)
        state = "waits" if not group.over else "succeeded" if error is None else f"failed: {error}"
        return f"<{type(self).__name__} {state}>"

    @property
    def place(self) -> tuple[Group, int]:
        """Its group, and its place in the group's batch."""
        return self._group, self._index

    def done(self) -> bool:
        """True if the outcome of the message is known."""
        return self._group.over

    def exception(self) -> MeshError | None:
        """The error with which it failed, None if it succeeded. Raises `MeshError` while that is not
        known."""
        self._must_be_done()
        error = self._group.look(self._index)
        return None if error is None else copy(error)

    def _result(self) -> Receipt:
        group, index = self._group, self._index
        if index in group.errors:
            group.look(index)
            # hundreds share one error, and each raise would add to its traceback
            raise copy(group.errors[index])
        return group.ticket.receipt(index)

    def _must_be_done(self) -> None:
        if not self._group.over:
            raise MeshError("the outcome of the message is not known yet")

    def on_done(self, callback: Callable[[Self], object]) -> None:
        """Have ``callback(pending)`` called once the outcome is known; at once if it is known now."""
        if self._group.over:
            self._group.owner.call(callback, self)
        else:
            self._group.callbacks.append((callback, self))


class Pendings:
    """The open groups of one client. ``cancel`` gives up messages of a ticket, as `Publishing.cancel`."""

    def __init__(self, cancel: Callable[[Ticket, int, int], bool]) -> None:
        self.count = 0
        """Messages of open groups."""
        self.most = PENDING_MAX
        self.unheard = 0
        """Failed messages at whose error nobody looked."""
        self.tell: Callable[[int, MeshError], None] = _nobody
        """Set by a shell. Called with the number of further unheard failures and the error of the first."""
        self.calls: deque[tuple[Callable[[Any], object], AnyPending]] = deque()
        """Callbacks that are due, for a shell that does not set ``call``."""
        self.call: Callable[[Callable[[Any], object], AnyPending], None] = lambda *due: self.calls.append(due)
        self.gate = Waitable()
        """Woken when there is room again after there was none."""
        self._cancel = cancel
        # groups that may still grow; read directly by a shell's `publish_soon`
        self.open: dict[AnyTicket | None, Group] = {}
        self._groups: dict[int, Group] = {}
        self._give_up: dict[int, GiveUp] = {}
        self._number = 0
        self._by_deadline: list[tuple[float, int]] = []
        """Deadlines. Those of groups that are over are removed early, not kept until their time."""
        self.sent = Group(self, 0, Ticket(blocks.SENT), 0, 0.0, 0.0)
        """The group of all messages of level sent, which have no outcome."""
        self.sent.over = True

    @property
    def full(self) -> bool:
        return self.count >= self.most

    @property
    def due(self) -> float:
        """When `expire` is to be called, which may find nothing to do; infinite if there are no deadlines."""
        return self._by_deadline[0][0] if self._by_deadline else inf

    def new_turn(self) -> None:
        """Begin a turn: messages added from now on get a later deadline than those before."""
        self.open.clear()

    def add(
        self, ticket: AnyTicket, index: int, limit_s: float, now: float, give_up: GiveUp | None = None
    ) -> Group:
        """The group of the ``index``-th message of a batch. ``now`` is used once for a turn and batch.
        ``give_up``: how to give up the group, if ``ticket`` is no `Ticket`."""
        group = self.open.get(ticket)
        if group is None or group.first + group.count != index or group.limit_s != limit_s:
            group = self.open[ticket] = self._group(ticket, index, limit_s, now)
            if give_up is not None:
                self._give_up[group.number] = give_up
        group.count += 1
        self.count += 1
        return group

    def _group(self, ticket: AnyTicket, index: int, limit_s: float, now: float) -> Group:
        self._number += 1
        group = self._groups[self._number] = Group(self, self._number, ticket, index, limit_s, now + limit_s)
        ticket.waiters[group.end] = None
        if len(self._by_deadline) > 2 * len(self._groups) + STALE_MIN:
            self._by_deadline = [(each.deadline, number) for number, each in self._groups.items()]
            heapify(self._by_deadline)
        else:
            heappush(self._by_deadline, (group.deadline, group.number))
        return group

    def ended(self, group: Group) -> None:
        """Note that a group is over."""
        was_full = self.full
        self.count -= group.count
        del self._groups[group.number]
        self._give_up.pop(group.number, None)
        if self.open.get(group.ticket) is group:
            del self.open[group.ticket]
        if was_full and not self.full:
            self.gate.wake()

    def expire(self, now: float, why: str) -> None:
        """End groups that have timed out. ``why`` there was no acknowledgement."""
        while self._by_deadline and self._by_deadline[0][0] <= now:
            _, number = heappop(self._by_deadline)
            group = self._groups.get(number)
            if group is None:
                continue
            group.ticket.waiters.pop(group.end, None)
            give_up = self._give_up.get(number, self._cancelled)
            group.end_in_vain(give_up(group, why))

    def _cancelled(self, group: Group, why: str) -> MeshError:
        ticket = group.ticket
        assert isinstance(ticket, Ticket), "any other comes with a way to give it up"
        why = ticket.why(why)
        return unacknowledged(self._cancel(ticket, group.first, group.count), group.limit_s, why)

    def failed(self, error: MeshError) -> Group:
        """The group of a message that could not be gathered."""
        group = Group(self, 0, Ticket(blocks.SENT), 0, 0.0, 0.0)
        group.fail(error)
        return group

    def forgotten(self, count: int, error: MeshError) -> None:
        """Count errors at which the program can no longer look."""
        self.unheard += count
        self.tell(count, error)

    def why_full(self, limit_s: float, why_away: str) -> str:
        """Why no message can be taken, now or after that many seconds."""
        when = f"in {limit_s:g} s" if limit_s else "now"
        if self.full:
            return f"no room for a message {when}: {self.count} are pending, the most there may be"
        return f"no credit to publish {when}: {why_away}"


def _nobody(count: int, error: MeshError) -> None:
    """Default of ``tell``: there is no shell to tell."""
