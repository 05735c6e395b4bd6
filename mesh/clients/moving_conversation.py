"""The session of a client that goes to another broker while the current one still serves it. Pure.

A `Landing` makes the session at the next broker. This module decides what that means for the current session:
subscriptions that are made or ended meanwhile concern both brokers, nothing is published at the old broker
after MOVED, and once that broker has said BYE, or is gone, the landing's session takes over.

An outbox has a plain `Conversation`: it connects to the next broker when its own is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from mesh.clients.conversation import Conversation
from mesh.clients.feeds import Feed
from mesh.clients.landing import Landing
from mesh.clients.tickets import Waitable
from mesh.wire.session_frames import Keepalive, Kind, Leaving, SendCredit, encode


class MovingConversation(Conversation):
    """A `Conversation` that can go on in the session of a landing."""

    landing: Landing | None = None
    """The session that is being made at another broker."""
    _has_moved = False
    """True if the current broker was told that the client is at another one."""

    def new_landing(self) -> Landing:
        """Begin a session at another broker, while the current one goes on."""
        said = self.introduction
        hello = said.hello(said.full, self.boot)
        self.landing = Landing(hello, said.full, self.prefix, self.feeds, said.proof)
        return self.landing

    def moved(self) -> None:
        """The landing is ready: say so to the current broker, and publish nothing more there."""
        for work in self.works:
            self.tell(work)
        self._frames.append(self.prefix + encode(Kind.LEAVING, Leaving.MOVED, 0, ""))
        self._has_moved = True
        self.credit = SendCredit()
        self.shut()

    def land(self, landing: Landing, now: float) -> list[Waitable]:
        """Go on in a landing's session; the previous session ends. Returns what to wake. Raises
        `PeerError`."""
        assert landing.welcome is not None and landing.ready, "it is ready"
        gap = not self.said_bye
        woken = self.disconnected("the client went to another broker")
        self.attached = True
        self._told, self.introduction.offered = False, landing.offered
        self.leaves_at = inf
        self._has_moved = self.said_bye = False
        self.keepalive = Keepalive(self.keepalive_s, now)
        for feed in self.feeds:
            feed.move(landing.confirmed(feed), gap=gap)
        woken += [*self._welcomed(landing.welcome, now, announce=False), *self.feeds]
        return woken + self.received(landing.held, now)

    def connected(self, now: float) -> None:
        self._has_moved = False
        super().connected(now)

    def subscribe(self, patterns: Sequence[str], role: int, messages: int, size: int) -> Feed:
        feed = super().subscribe(patterns, role, messages, size)
        if self.settled and self.landing is not None:
            feed.begin_overlap()
            self.landing.announce(feed)
        return feed

    def unsubscribe(self, feed: Feed) -> bool:
        told = super().unsubscribe(feed)
        if told and self.landing is not None:
            self.landing.withdraw(feed)
        return told

    def _credited(self, messages: int, size: int) -> list[Waitable]:
        # the old broker's credit must not let messages gather: nothing more is published there
        return [] if self._has_moved else super()._credited(messages, size)
