"""The values that a program can read of its subscription, for both clients."""

from __future__ import annotations

from mesh.clients.feeds import Feed
from mesh.clients.redeliveries import Redeliveries


class Subscribed:
    """The common part of `Subscription` and `BlockingSubscription`, which differ in how they wait."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._again = Redeliveries()
        self.dropped = 0
        """Messages that this program refused by `Delivery.drop`."""
        self.malformed = 0
        """Messages and questions dropped here because their headers cannot be decoded."""
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
        """Blocks that the broker dropped because this program took them too slowly. Also large bodies given
        up here because more than 128 MiB of them were unfinished at once."""
        return self._feed.lost

    @property
    def interrupted(self) -> int:
        """How often messages may be missing: the session with the broker was made anew, or that broker was
        apart from others for a while."""
        return self._feed.interrupted
