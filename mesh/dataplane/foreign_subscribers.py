"""Consumers that do not speak the session protocol, such as stock SUB sockets.

Such a consumer has no session and no credit. Only its pipe limits it: messages that do not fit are dropped
and counted, the newest first. An encoder turns blocks into its frames (`mesh.dataplane.outlets`);
`mesh.broker.stock` has that of stock SUB sockets. Its patterns are interest of this broker. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.dataplane.counters import Tally
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.members import Member
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.outlets import Encoder
from mesh.dataplane.ports import Pipe, Port, Turn
from mesh.dataplane.sessions import LocalTaker, Subscriber
from mesh.topics import check_pattern
from mesh.topics.routing import Router
from mesh.wire.session_frames import Role


class ForeignSubscribers:
    """All such consumers. The broker must call `Exchange.pipe_writable` for their pipes."""

    def __init__(
        self,
        options: ExchangeOptions,
        turn: Turn,
        router: Router[LocalTaker, Member],
        interest: LocalInterest,
        tally: Tally,
    ) -> None:
        self.by_pipe: dict[Pipe, Subscriber] = {}
        self._unwritten_bytes_max = options.stock_unwritten_bytes_max
        self._turn = turn
        self._router = router
        self._interest = interest
        self._tally = tally

    def add(self, pipe: Pipe, patterns: Sequence[str], encode: Encoder) -> None:
        """Send matching blocks to a pipe, encoded by ``encode``, until `remove`. Raises `TopicError`."""
        checked = _checked(patterns)
        port = Port(self._turn, pipe, self._unwritten_bytes_max, lambda frame: 1)
        subscriber = self.by_pipe[pipe] = Subscriber(port, checked, encode)
        self._router.subscribe(checked, Role.LISTEN, subscriber)
        self._interest.add(checked, Role.LISTEN)
        self._interest.flush()

    def change(self, pipe: Pipe, patterns: Sequence[str]) -> None:
        """Send a pipe the blocks that match these patterns from now on. Raises `TopicError`."""
        checked = _checked(patterns)
        subscriber = self.by_pipe[pipe]
        self._interest.add(checked, Role.LISTEN)
        self._interest.remove(subscriber.patterns, Role.LISTEN)
        self._router.unsubscribe(subscriber.patterns, subscriber)
        self._router.subscribe(checked, Role.LISTEN, subscriber)
        subscriber.patterns = checked
        self._interest.flush()

    def remove(self, pipe: Pipe) -> None:
        """The pipe has closed."""
        subscriber = self.by_pipe.pop(pipe, None)
        if subscriber is None:
            return
        port, tally = subscriber.port, self._tally
        self._router.unsubscribe(subscriber.patterns, subscriber)
        self._interest.remove(subscriber.patterns, Role.LISTEN)
        kept, _ = port.close()
        tally.drop("subscriber_gone", kept)
        tally.drop("slow_stock_subscriber", subscriber.dropped)
        tally.delivered += port.messages_out
        tally.messages_out += port.messages_out
        tally.bytes_out += port.bytes_out
        self._interest.flush()


def _checked(patterns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
