"""The gate: it holds what is published, in order, while this broker does not know yet who wants it.

A broker that has just started knows nobody's interest. It could accept a message only by guessing that nobody
wants it. So the gate is closed then, and everything that needs a route waits behind it: blocks and questions
of clients, and what stock sockets publish. `mesh.cluster.joining` says when the gate opens; that takes
milliseconds where the other brokers answer, and a few seconds at most. A broker that stood still for as long
as may make it dead to others closes its gate again, until it has heard them (`mesh.cluster.standstill`).

It opens step by step, since what was held is long work: each step lets a part pass, and rounds and other
clients come between. The gate stays closed until the last part has passed, so that what comes meanwhile waits
behind what came before. A step lets a fixed part pass, and twice what came since the last step. So less waits
after each turn of the loop, however much comes. A turn costs about twice what it would at an open gate, at
most.

Bounds: `BYTES_MAX` and `COUNT_MAX`. Of these a client's blocks have `SHARE_MAX` frames and the bytes of its
window (`mesh.dataplane.held_blocks`). Other senders have a `Part` for each kind: stock publishers, stock REQ
sockets and the questions of clients have a quarter each at most, and one sender a sixteenth. So a quarter is
left for blocks of clients, whichever sender floods. A message that does not fit is not taken. Its sender is
told so (`NotAccepted`), or it is counted as dropped where nobody waits for an answer. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

BYTES_MAX: Final = 32 << 20
"""Bytes held, of all clients together."""
COUNT_MAX: Final = 65_536
"""Frames held."""
STEP_BYTES: Final = 1 << 20
"""Bytes that pass in one step, about."""
STEP_COUNT: Final = 256
"""Entries that pass in one step, some 2 ms."""
FRAME_COST: Final = 64
"""Bytes of memory that a frame takes beside its own, about: an object and its place in a list."""
SHARE_MAX: Final = COUNT_MAX // 4
"""Frames held of one client."""
PART_OF_KIND: Final = 4
"""All senders of a kind together may have one in so many of the gate's bytes and frames."""
PART_OF_SENDER: Final = 16
"""The same for one sender."""
REASON: Final = "does not know yet who wants it, and holds as much as it can; publish again in a few seconds"

Act = Callable[[float], None]
"""Treats a held entry as an open gate would; takes the time."""


class Gate:
    """See the module. Open at first."""

    def __init__(self) -> None:
        self.closed = False
        self.opening = False
        """True while held entries pass and some are left."""
        self.held = 0
        """Frames held since the start."""
        self._waiting: deque[tuple[int, Act]] = deque()
        self._bytes = 0
        self._came = 0
        self._bytes_came = 0
        """Bytes that came since the last step, while the gate opens; ``_came`` counts the entries."""

    def close(self) -> None:
        self.closed, self.opening = True, False

    def hold(self, size: int, act: Act) -> bool:
        """Keep something of ``size`` bytes; False if it does not fit."""
        if self._bytes + size > BYTES_MAX or len(self._waiting) >= COUNT_MAX:
            return False
        self._bytes += size
        self._waiting.append((size, act))
        self.held += 1
        if self.opening:
            self._came += 1
            self._bytes_came += size
        return True

    def step(self, now: float) -> bool:
        """Let a part pass, in the order in which it came; False: that was the last, and the gate is open."""
        waiting, passed = self._waiting, 0
        count, size_max = STEP_COUNT + 2 * self._came, STEP_BYTES + 2 * self._bytes_came
        self._came = self._bytes_came = 0
        self.closed = False  # for what passes: it asks
        try:
            for _ in range(min(count, len(waiting))):
                size, act = waiting.popleft()
                self._bytes -= size
                passed += size
                act(now)
                if passed >= size_max:
                    break
        finally:
            self.closed = self.opening = bool(waiting)
        return self.closed


class Part:
    """Entries that senders of one kind have behind a gate: a part of it at most, together and each of them.

    A sender that has less than its bound may hold one thing more, of any size: large bodies pass, too.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._all = _Held()
        self._each: dict[Hashable, _Held] = {}

    def hold(self, sender: Hashable, size: int, act: Act) -> bool:
        """Keep something of ``size`` bytes; False if it does not fit."""
        if self._all.beyond(PART_OF_KIND, size) or self.is_full(sender):
            return False
        if not self._gate.hold(size, partial(self._pass, sender, size, act)):
            return False
        self._all.change(1, size)
        self._each.setdefault(sender, _Held()).change(1, size)
        return True

    def is_full(self, sender: Hashable) -> bool:
        """True if one sender has as much as it may."""
        held = self._each.get(sender)
        return held is not None and held.beyond(PART_OF_SENDER, 0)

    def _pass(self, sender: Hashable, size: int, act: Act, now: float) -> None:
        self._all.change(-1, -size)
        held = self._each[sender]
        held.change(-1, -size)
        if not held.count:
            del self._each[sender]
        act(now)


class _Held:
    """Things and their bytes."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = self.size = 0

    def change(self, count: int, size: int) -> None:
        self.count += count
        self.size += size

    def beyond(self, part: int, size: int) -> bool:
        """True if one thing more, of ``size`` bytes, is more than a part of the gate."""
        return self.count >= COUNT_MAX // part or self.size + size > BYTES_MAX // part
