"""What a program can read of a subscription of its own, for both clients."""

from __future__ import annotations

from mesh.clients.feeds import Feed
from mesh.clients.redeliveries import Redeliveries


class Subscribed:
    """The common part of `Subscription` and `BlockingSubscription`; each waits in its own way."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._again = Redeliveries()
        self.dropped = 0
        """Messages this program refused by `Delivery.drop`."""
        self.malformed = 0
        """Messages and questions dropped here because nobody can read their headers."""
        self.late = 0
        """Answers not given because the connection by which they were asked was gone."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self._feed.patterns)

    @property
    def unreached(self) -> tuple[str, ...]:
        return self._feed.unreached

    @property
    def lost(self) -> int:
        """Blocks the broker dropped because this program was slow to take them, and large bodies given up
        here because more than 128 MiB of them were unfinished at once."""
        return self._feed.lost

    @property
    def interrupted(self) -> int:
        """How often the session with the broker was made anew, or that broker was apart from others for a
        while: each time messages may be missing."""
        return self._feed.interrupted
