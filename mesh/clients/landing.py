"""A session at the next broker, made beside the current one before that ends. Pure.

A broker that is about to leave says GOAWAY (`mesh.dataplane.draining`). A landing says HELLO at another
broker and makes all subscriptions there. It is *ready* when each has passed its barrier: from then on the new
broker gets everything that is published. Frames that arrive there are held back. The conversation goes on
with the old broker until that one says BYE after everything else it had to say. Then it takes over the
landing's session (`MovingConversation.land`). So every message comes from one of the two brokers in its
order, or from both, and then the feeds recognise it. To do so they also remember level sent (`Feed.overlap`).

The held frames are bounded by the windows of the subscriptions, which are fresh at the new broker.
"""

from __future__ import annotations

from collections.abc import Callable

from mesh.clients.feeds import Feed, Feeds
from mesh.clients.tickets import Waitable
from mesh.errors import SessionError
from mesh.wire.capabilities import Offer
from mesh.wire.session_frames import Kind, decode, encode, kind_of, name_of
from mesh.wire.session_opening import Welcome, read_welcome

OWN: frozenset[int] = frozenset(
    {Kind.CHALLENGE, Kind.WELCOME, Kind.SUBSCRIBED, Kind.PING, Kind.ERROR, Kind.BYE}
)
"""Kinds of frames that a landing reads itself."""


class Landing(Waitable):
    """One session that is being made. Woken when it may be ready, and when it is over.

    ``hello`` is its first frame and ``offered`` what that offers. ``prefix`` goes before every frame.
    ``prove`` makes a PROVE from CHALLENGE and HELLO.
    """

    def __init__(
        self,
        hello: bytes,
        offered: Offer,
        prefix: bytes,
        feeds: Feeds,
        prove: Callable[[bytes, bytes], bytes],
    ) -> None:
        super().__init__()
        self.offered = offered
        self.welcome: Welcome | None = None
        self.held: list[bytes] = []
        """Frames that came for the session, in order, with their backtrace."""
        self.over = ""
        """Why the landing failed; empty while it may succeed."""
        self._prefix = prefix
        self._feeds = feeds
        self._confirmed: dict[int, tuple[str, ...]] = {}
        self._hello = hello
        self._prove = prove
        self._out = [prefix + hello]
        for feed in feeds:
            feed.begin_overlap()

    @property
    def ready(self) -> bool:
        """True if the mesh knows every subscription of the client."""
        return self.welcome is not None and all(feed.number in self._confirmed for feed in self._feeds)

    def confirmed(self, feed: Feed) -> tuple[str, ...] | None:
        """Brokers that had not confirmed a subscription at its barrier; None while the barrier is not
        passed."""
        return self._confirmed.get(feed.number)

    def announce(self, feed: Feed) -> None:
        """Announce a subscription: one made meanwhile, or each of those that the client had."""
        if self.welcome is not None:
            frames = feed.request(self.welcome.agreed, self.welcome.broker)
            self._out += [self._prefix + frame for frame in frames]

    def withdraw(self, feed: Feed) -> None:
        """Withdraw a subscription that has ended meanwhile."""
        if self.welcome is not None:
            self._out.append(self._prefix + encode(Kind.UNSUBSCRIBE, feed.number))
        self.wake()

    def ping(self) -> None:
        """Probe the broker, once a keepalive interval."""
        if self.welcome is not None:
            self._out.append(self._prefix + encode(Kind.PING, 0))

    def take_frames(self) -> list[bytes]:
        frames, self._out = self._out, []
        return frames

    def received(self, frames: list[bytes]) -> None:
        """Read frames of its connection. Raises `PeerError`: the connection must be dropped."""
        for frame in frames:
            if not frame.startswith(self._prefix):
                continue
            if kind_of(frame, 4) in OWN:
                self._read(frame)
            else:
                self.held.append(frame)
                if kind_of(frame, 4) == Kind.UNSUBSCRIBED:
                    self._confirmed[decode(frame, 4)[1]] = ()
        self.wake()

    def _read(self, frame: bytes) -> None:
        match decode(frame, 4):
            case [Kind.WELCOME, *fields] if self.welcome is None:
                self.welcome = read_welcome(fields, self.offered)
                for feed in self._feeds:
                    self.announce(feed)
            case [Kind.CHALLENGE, *_] if self.welcome is None:
                self._out.append(self._prefix + self._prove(frame[4:], self._hello))
            case [Kind.SUBSCRIBED, number, unreached]:
                self._confirmed[number] = tuple(unreached)
            case [Kind.PING, stamp]:
                self._out.append(self._prefix + encode(Kind.PONG, stamp))
            case [Kind.ERROR, code, sentence]:
                raise SessionError(f"the broker ended the session ({code}): {sentence}")
            case [Kind.BYE, reason]:
                raise SessionError(f"the broker left: {reason}")
            case [kind, *_]:
                raise SessionError(f"a {name_of(kind)} frame after WELCOME")
