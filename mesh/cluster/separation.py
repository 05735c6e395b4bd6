"""Whether this broker was apart from others that lived on, so that messages for its clients may be missing.

A broker that holds another for dead forgets what is wanted there. What is published then is owed to nobody:
no queue drops it and, after a while, no receipt names the broker. It learns of it when it is back: a table
says that it is dead; a member that it held for dead is alive in the same run; or it stood still itself for as
long as makes a broker dead. The separation is **over** once every live member holds its interest by a link of
now, or has had `REGAIN_S` for that. Then clients are told, whose subscriptions lack nothing more from then
on. Pure.
"""

from __future__ import annotations

from typing import Final

REGAIN_S: Final = 5.0
LEAST_S: Final = 0.5
"""A broker that stood still learns within this time which of its links are over."""


class Separation:
    """See the module."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """Others and this broker hear each other again, some of whom held the other for dead."""
        if self._since is None:
            self._since = now

    def end(self, now: float, *, held: bool) -> bool:
        """Whether it is over now, for which it is looked at once a round; True once. ``held``: every live
        member holds this broker's interest."""
        if self._since is None or now - self._since < (LEAST_S if held else REGAIN_S):
            return False
        self._since = None
        return True
