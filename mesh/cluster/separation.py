"""Detects that this broker was apart from others that lived on, so that its clients may lack messages.

A broker that believes another dead forgets that one's interest. Messages published then are owed to nobody:
no queue drops them and, after a while, no receipt names the broker. The broker learns of the separation when
it returns. Either a table says that it is dead, or a member that it believed dead is alive in the same run,
or it stood still itself for long enough to seem dead. The separation is **over** once every live member holds
its interest on a present link, or has had `REGAIN_S` to do so. Then clients are told; from then on their
subscriptions lack nothing more. Pure.
"""

from __future__ import annotations

from typing import Final

REGAIN_S: Final = 5.0
LEAST_S: Final = 0.5
"""A broker that stood still learns within this time which of its links have ended."""


class Separation:
    """See the module."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """This broker and others hear each other again; one side believed the other dead."""
        if self._since is None:
            self._since = now

    def end(self, now: float, *, held: bool) -> bool:
        """True, once, if the separation is over. Called once a round. ``held``: every live member holds this
        broker's interest."""
        if self._since is None or now - self._since < (LEAST_S if held else REGAIN_S):
            return False
        self._since = None
        return True
