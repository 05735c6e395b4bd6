"""The session in which an outbox drains: a `Conversation` that publishes what `Draining` gives it. Pure.

It speaks for the outbox's publisher, and for one boot at a time. When the next block is of another boot, a
new session begins on the same connection. Acknowledgements and refusals go to `Draining`, which decides what
is resent, and when. So nothing is gathered here, and nothing waits here for an acknowledgement.

A shell calls `drain` whenever ``news`` is woken, and at ``draining.next_due``. Then it gives the disk what
`take_freed` returns and what ``draining`` wants to read.
"""

from __future__ import annotations

import random
from typing import Final

from mesh.access.credentials import Credential
from mesh.clients.conversation import Conversation, new_prefix
from mesh.clients.outbox_notices import DRAINS, SLOW_S, Why
from mesh.clients.tickets import Waitable
from mesh.outbox.draining import Draining, Range
from mesh.outbox.records import Opening
from mesh.printable import listed
from mesh.wire import blocks
from mesh.wire.durable_frames import BEHIND_MAX, FOLLOWS
from mesh.wire.session_frames import AGAIN, data_head

TAKEN_AT_ONCE: Final = 1 << 18
"""Bytes that `Draining` is asked for at once."""


class OutboxConversation(Conversation):
    """The conversation of one outbox."""

    def __init__(
        self,
        *,
        secret: bytes,
        boot: int,
        name: str,
        prefix: bytes,
        keepalive_s: float,
        now: float,
        draining: Draining,
        credential: Credential | None = None,
    ) -> None:
        super().__init__(
            secret=secret,
            boot=boot,
            name=name,
            prefix=prefix,
            keepalive_s=keepalive_s,
            now=now,
            credential=credential,
        )
        self.draining = draining
        self.news = Waitable()
        """Woken when there may be something to send, to free or to report."""
        self._own_boot = boot
        self._freed: list[Range] = []
        self._progress = 0
        """Number of acknowledgements."""
        self._slow: list[tuple[int, int, str]] = []
        """Ranges of numbers in flight that take long, and why."""

    @classmethod
    def of_outbox(
        cls,
        opening: Opening,
        rng: random.Random,
        *,
        name: str,
        keepalive_s: float,
        now: float,
        credential: Credential | None = None,
    ) -> OutboxConversation:
        """Make the conversation of an outbox that was opened."""
        return cls(
            secret=opening.secret,
            boot=opening.boot,
            name=name,
            prefix=new_prefix(rng),
            keepalive_s=keepalive_s,
            now=now,
            draining=Draining(opening.opened_at),
            credential=credential,
        )

    def drain(self, now: float) -> None:
        """Send what can be sent now, in a session of its boot."""
        draining = self.draining
        boot = draining.boot or self._own_boot
        if boot != self.boot and (self.settled or not self.attached):
            self.boot = boot
            if self.attached:
                draining.session_over()
                self.connected(now)
        if not self.settled or not self.stores:
            return
        credit = self.credit
        while credit.open:
            sends = draining.take(now, min(credit.bytes, TAKEN_AT_ONCE), credit.messages)
            if not sends:
                return
            for send in sends:
                count = blocks.HEAD.unpack_from(send.block)[4]
                flags = AGAIN if send.again else 0
                follows = FOLLOWS if send.follows else 0
                head = data_head(0, flags, min(send.below, BEHIND_MAX), follows, len(send.block))
                self._frames.append(self.prefix + head + blocks.published_by(send.block, self.publisher))
                credit.spend(count, len(send.block))
                self._published += count
            self._blocks_out += len(sends)

    def take_freed(self) -> list[Range]:
        """Take the rows that are to be freed."""
        freed, self._freed = self._freed, []
        return freed

    def why(self, url: str) -> Why:
        """Why what waits is not stored; `DRAINS` if it is on its way."""
        if not self.settled:
            return Why.of(self.standing(url))
        if not self.stores:
            return Why.of(self._stores_nothing())
        draining = self.draining
        refused = {topic.decode(): reason for topic, reason in draining.held().items()}
        if draining.paused:
            sentence = f"broker {self.broker} refuses all messages of the outbox: {draining.paused}"
            return Why(sentence, frozenset([self.broker]))
        for topic, reason in refused.items():
            more = f", and so are {len(refused) - 1} topics more" if len(refused) > 1 else ""
            sentence = f"topic {topic} is refused by broker {self.broker}: {reason}{more}"
            causes = frozenset(reason.replace(topic, "") for topic, reason in refused.items())
            return Why(sentence, causes)
        if self._slow:  # each progress makes a new cause, so this is told only while nothing is acknowledged
            sentence = self._slow[0][2]
            return Why(sentence, frozenset([f"{sentence} {self._progress}"]), SLOW_S)
        return DRAINS

    # --- what a `Conversation` does with published messages

    @property
    def gathered(self) -> bool:
        """False: what cannot be sent now stays in the outbox."""
        return False

    def flush(self) -> None:
        pass

    def _identify(self, publisher: int) -> list[Waitable]:
        """Take another publisher id. Blocks were sealed on disk before a broker named it, so it is put into
        each block as it is sent."""
        self.publisher = publisher
        return []

    def _resume(self) -> None:
        self._slow.clear()
        if self.stores:
            self.draining.session_began(self.boot)

    def _credit_came(self) -> list[Waitable]:
        return [self.news]

    def disconnected(self, why: str = "") -> list[Waitable]:
        self.draining.session_over()
        self._slow.clear()
        return [*super().disconnected(why), self.news]

    def _acknowledged(self, ranges: list[list[int]], absent: list[str], homes: list[str]) -> list[Waitable]:
        self._progress += 1
        self._answered(ranges)
        self._freed += self.draining.acknowledged([(first, last) for first, last in ranges])
        return [self.news]

    def _is_past(self, first: int, last: int, homes: list[str], now: float) -> list[Waitable]:
        self._answered([[first, last]])
        self._freed += self.draining.past([(first, last)], now)
        return [self.news]

    def _refused(self, ranges: list[list[int]], reason: str, now: float) -> list[Waitable]:
        self._answered(ranges)
        self.draining.refused([(first, last) for first, last in ranges], reason, now)
        return [self.news]

    def _waits_for(
        self, first: int, last: int, kept: list[str], waiting: list[str], now: float
    ) -> list[Waitable]:
        self._answered([[first, last]])
        self.draining.takes_long([(first, last)], now)
        self._slow.append((first, last, f"{listed(waiting)} has not confirmed its messages yet"))
        return [self.news]

    def _answered(self, ranges: list[list[int]]) -> None:
        """Note that these numbers are no longer slow."""
        for first, last in ranges if self._slow else ():
            left: list[tuple[int, int, str]] = []
            for begin, end, why in self._slow:
                if begin < first <= end:
                    left.append((begin, first - 1, why))
                if begin <= last < end:
                    left.append((last + 1, end, why))
                if end < first or begin > last:
                    left.append((begin, end, why))
            self._slow = left
