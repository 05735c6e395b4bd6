"""This broker's own interest, and the subscriptions that wait until every broker knows it. Pure.

Patterns are counted by role, since many subscriptions want the same. Changes are announced once a turn
(`flush`): a thousand subscriptions in one read are one change of interest. A subscription is confirmed when
the version announced with it, or a later one, is reached. It never relies on an earlier barrier, since
members come and go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, KeysView, Sequence

from mesh.dataplane.sessions import ClientSubscription
from mesh.wire.session_frames import Kind, Role, encode

Tell = Callable[[list[tuple[str, int]], list[str]], int]


class LocalInterest:
    """This broker's own interest.

    ``tell`` takes patterns that are new or have a new role, and patterns that are no longer wanted. It
    returns the version that includes the change.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._counts: dict[str, list[int]] = {}
        self._told: dict[str, int | None] = {}
        """Patterns touched since the last `flush`, with the role announced by then."""
        self._new: dict[ClientSubscription, None] = {}
        """Subscriptions to confirm whose patterns have not been announced yet."""
        self._waiting: OrderedDict[ClientSubscription, int] = OrderedDict()
        """Subscriptions to confirm when this version is reached. Versions ascend, since they only grow."""
        self.changed = False
        """`flush` has something to announce."""

    @property
    def patterns(self) -> KeysView[str]:
        """All wanted patterns: a live view, since there may be tens of thousands and few are looked at."""
        return self._counts.keys()

    def counted(self) -> list[tuple[str, int, int]]:
        """All wanted patterns, with the numbers of those that listen and of those that also answer."""
        return [
            (pattern, counts[Role.LISTEN], counts[Role.ANSWERS]) for pattern, counts in self._counts.items()
        ]

    def size_with(self, patterns: Iterable[str]) -> int:
        """Number of different patterns, if these were added."""
        return len(self._counts) + sum(pattern not in self._counts for pattern in patterns)

    def add(self, patterns: Iterable[str], role: int) -> None:
        self._count(patterns, role, 1)

    def remove(self, patterns: Iterable[str], role: int) -> None:
        self._count(patterns, role, -1)

    def _count(self, patterns: Iterable[str], role: int, change: int) -> None:
        self.changed = True
        counted, told = self._counts, self._told
        for pattern in patterns:
            counts = counted.get(pattern)
            if pattern not in told:
                told[pattern] = _role(counts)
            if counts is None:
                counts = counted[pattern] = [0, 0]
            counts[role] += change
            if not counts[0] and not counts[1]:
                del counted[pattern]

    def confirm(self, subscription: ClientSubscription) -> None:
        """Send SUBSCRIBED to its session once every broker knows the present interest, unless it is forgotten
        first."""
        self.changed = True
        self._new[subscription] = None

    def forget(self, subscription: ClientSubscription) -> None:
        """It has ended and will not be confirmed. Another subscription may use its number by then."""
        self._new.pop(subscription, None)
        self._waiting.pop(subscription, None)

    def flush(self) -> None:
        """Announce the changes of this turn."""
        if not self.changed:
            return
        self.changed = False
        new, self._new = self._new, {}
        told, self._told = self._told, {}
        added: list[tuple[str, int]] = []
        removed: list[str] = []
        for pattern, before in told.items():
            now = _role(self._counts.get(pattern))
            if now is None and before is not None:
                removed.append(pattern)
            elif now is not None and now != before:
                added.append((pattern, now))
        version = self._tell(added, removed)
        self._waiting.update(dict.fromkeys(new, version))

    def reached(self, version: int, unreached: Sequence[str]) -> None:
        """Every broker, except those named, knows the interest up to ``version``."""
        waiting = self._waiting
        while waiting:
            subscription = next(iter(waiting))
            if waiting[subscription] > version:
                return
            del waiting[subscription]
            subscription.session.send(encode(Kind.SUBSCRIBED, subscription.number, list(unreached)))


def _role(counts: list[int] | None) -> int | None:
    """The role in which a pattern is wanted. None if it is not."""
    if counts is None:
        return None
    return int(Role.ANSWERS if counts[Role.ANSWERS] else Role.LISTEN)
