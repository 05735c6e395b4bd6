"""The gate holds published messages in order while this broker does not know the interest of others.

A broker that has just started does not know anybody's interest. It could only guess that nobody wants a
message. So its gate is closed, and whatever needs a route waits behind it: blocks and questions of clients,
and messages from stock sockets. `mesh.cluster.joining` decides when the gate opens. That takes milliseconds
if the other brokers answer, and a few seconds at most. A broker that stood still long enough to seem dead
closes its gate again until it has heard the others (`mesh.cluster.standstill`).

The gate opens step by step, since passing everything is long work. Each step lets a part pass; gossip rounds
and other clients run in between. The gate stays closed until the last part has passed, so new entries wait
behind old ones. A step passes a fixed part and twice what arrived since the last step. So less waits after
each turn of the loop, however much arrives. A turn costs at most about twice as much as with an open gate.

Bounds: `BYTES_MAX` and `COUNT_MAX`. A client's blocks may take `SHARE_MAX` frames and the bytes of its window
(`mesh.dataplane.held_blocks`). Other senders have a `Part` for each kind: stock publishers, stock REQ sockets
and the questions of clients have a quarter each at most, and one sender a sixteenth. So a quarter remains for
blocks of clients, whichever sender floods. A message that does not fit is not taken. Its sender gets
`NotAccepted`, or, if nobody waits for an answer, it is counted as dropped. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

BYTES_MAX: Final = 32 << 20
"""Bytes held for all clients together."""
COUNT_MAX: Final = 65_536
"""Frames held."""
STEP_BYTES: Final = 1 << 20
"""Bytes that pass in one step, approximately."""
STEP_COUNT: Final = 256
"""Entries that pass in one step, some 2 ms."""
FRAME_COST: Final = 64
"""Bytes of memory that a frame takes beside its content, approximately: an object and its place in a list."""
SHARE_MAX: Final = COUNT_MAX // 4
"""Frames held for one client."""
PART_OF_KIND: Final = 4
"""All senders of a kind together may hold this fraction (one in so many) of the gate's bytes and frames."""
PART_OF_SENDER: Final = 16
"""The same for one sender."""
REASON: Final = "does not know yet who wants it, and holds as much as it can; publish again in a few seconds"

Act = Callable[[float], None]
"""Treats a held entry as an open gate would. Takes the time."""


class Gate:
    """See the module. Open at first."""

    def __init__(self) -> None:
        self.closed = False
        self.opening = False
        """True while held entries pass and some remain."""
        self.held = 0
        """Frames held since the start."""
        self._waiting: deque[tuple[int, Act]] = deque()
        self._bytes = 0
        self._came = 0
        self._bytes_came = 0
        """Bytes that arrived since the last step, while the gate opens. ``_came`` counts the entries."""

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
        """Let a part pass, oldest first. False if that was the last part and the gate is open."""
        waiting, passed = self._waiting, 0
        count, size_max = STEP_COUNT + 2 * self._came, STEP_BYTES + 2 * self._bytes_came
        self._came = self._bytes_came = 0
        self.closed = False  # for entries that ask whether it is closed
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
    """Entries that senders of one kind have behind a gate. Both the kind and each sender are bounded by a
    fraction of the gate.

    A sender below its bound may hold one more thing of any size, so that large bodies pass too.
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
        """True if one sender holds as much as it may."""
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
    """Held things and their bytes."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = self.size = 0

    def change(self, count: int, size: int) -> None:
        self.count += count
        self.size += size

    def beyond(self, part: int, size: int) -> bool:
        """True if one more thing of ``size`` bytes would exceed the fraction ``part``."""
        return self.count >= COUNT_MAX // part or self.size + size > BYTES_MAX // part
