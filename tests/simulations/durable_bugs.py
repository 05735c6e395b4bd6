"""Bugs that are put into the homes of durable subscriptions on purpose; see `tests.simulations.bugs`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import pytest

from mesh.broker.peer_events import PeerEvents
from mesh.cluster.membership import MemberRecord, State
from mesh.database import settings
from mesh.dataplane import keeping, workers
from mesh.dataplane.durables import Durable
from mesh.dataplane.keeping import Keeping
from mesh.dataplane.settling import Settling
from mesh.dataplane.workers import Attachment, Workers
from mesh.journal.duplicates import Duplicates
from mesh.journal.records import Done, Entry, Settle, Store
from mesh.wire.durable_frames import Kept
from mesh.work.orders import Deliver
from mesh.work.queue import WorkQueue
from tests.simulations.bugs import Bug


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    submit = Keeping._submit

    def broken(self: Keeping, part: list[keeping.Block]) -> None:
        for block in part:
            block.tell(Kept.KEPT)
            block.told.clear()
        submit(self, part)

    patch.setattr(Keeping, "_submit", broken)


def sync_nothing(patch: pytest.MonkeyPatch) -> None:
    """The same as ``synchronous = OFF``."""
    pragmas = tuple((name, 0 if name == "synchronous" else value) for name, value in settings.PRAGMAS)
    patch.setattr(settings, "PRAGMAS", pragmas)


def settle_at_delivery(patch: pytest.MonkeyPatch) -> None:
    deliver, carry_out = Workers._deliver, Workers._carry_out
    delivered: list[tuple[int, int, int, int]] = []

    def noted(self: Workers, attachment: Attachment, order: Deliver) -> None:
        delivered.append((order.consumer, order.row, order.first, (1 << order.count) - 1))
        deliver(self, attachment, order)

    def broken(self: Workers, durable: Durable, now: float, commit: bool) -> None:
        carry_out(self, durable, now, commit)
        for consumer, row, first, mask in delivered:
            durable.work().done(consumer, row, first, mask, now)
        delivered.clear()

    patch.setattr(Workers, "_deliver", noted)
    patch.setattr(Workers, "_carry_out", broken)


def never_settle(patch: pytest.MonkeyPatch) -> None:
    """A settlement is not written."""
    add = Settling.add

    def broken(self: Settling, entries: Sequence[Entry]) -> None:
        add(self, [each for each in entries if not isinstance(each, Done | Settle)])

    patch.setattr(Settling, "add", broken)


def refuse_what_is_kept(patch: pytest.MonkeyPatch) -> None:
    """One block in ten is kept, but its publisher is told that it is not."""
    tell = keeping.Block.tell
    numbers = count(1)

    def broken(self: keeping.Block, kept: Kept, sentence: str = "") -> None:
        if kept is Kept.KEPT and not next(numbers) % 10:
            tell(self, Kept.REFUSED, "a bug")
        else:
            tell(self, kept, sentence)

    patch.setattr(keeping.Block, "tell", broken)


def alter_work(patch: pytest.MonkeyPatch) -> None:
    """A bit of one delivery in ten is flipped."""
    send = Workers._send
    numbers = count(1)

    def broken(self: Workers, *given: Any) -> None:
        *before, block = given
        if not next(numbers) % 10:
            block = bytes(block[:-1]) + bytes([block[-1] ^ 1])
        send(self, *before, block)

    patch.setattr(workers.Workers, "_send", broken)


def overlook_some(patch: pytest.MonkeyPatch) -> None:
    """One block in ten that is committed is not delivered before its home starts again."""
    committed = WorkQueue.committed
    numbers = count(1)

    def broken(self: WorkQueue, stored: Sequence[Any]) -> None:
        if next(numbers) % 10:
            committed(self, stored)

    patch.setattr(WorkQueue, "committed", broken)


def keep_for_the_first(patch: pytest.MonkeyPatch) -> None:
    """A block that several durable subscriptions want is kept for one of them."""
    make = Store.__init__

    def broken(self: Store, *given: Any) -> None:
        *before, wants = given
        make(self, *before, wants[:1])

    patch.setattr(Store, "__init__", broken)


def deliver_to_all(patch: pytest.MonkeyPatch) -> None:
    """Every consumer gets the messages meant for one of them."""
    deliver = Workers._deliver

    def broken(self: Workers, attachment: Attachment, order: Deliver) -> None:
        assert attachment.durable is not None
        for each in attachment.durable.attachments.values():
            deliver(self, each, order)

    patch.setattr(Workers, "_deliver", broken)


def forget_dead_homes(patch: pytest.MonkeyPatch) -> None:
    """A dead home is no home any more."""
    told = PeerEvents.member_changed

    def broken(self: PeerEvents, record: MemberRecord, *news: Any) -> None:
        told(self, record, *news)
        home = self._exchange.durable_routes.homes.get(record.id)
        if record.state is State.DEAD and home is not None:
            self._exchange.home_changed(home.id, home.name, home.url, {}, list(home.subscriptions))

    patch.setattr(PeerEvents, "member_changed", broken)


def bury_nowhere(patch: pytest.MonkeyPatch) -> None:
    """A buried message is settled, and no dead letter is made."""
    carry_out = Settling.add

    def broken(self: Settling, subscription: int, entries: Sequence[Entry]) -> None:
        carry_out(self, subscription, [_settled(each) for each in entries])

    patch.setattr(Settling, "add", broken)


def _settled(entry: Any) -> Any:
    return Done(entry.subscription, entry.row) if type(entry).__name__ == "Bury" else entry


def forget_what_came(patch: pytest.MonkeyPatch) -> None:
    """A repeated block is kept again."""
    patch.setattr(Duplicates, "note", lambda *_: None)


OF_HOMES: Final[dict[str, Bug]] = {
    "acks-before-commit": Bug(
        "a home says that it keeps a block before it is on disk", acknowledge_before_commit
    ),
    "syncs-nothing": Bug("the journal has synchronous = OFF", sync_nothing),
    "settles-at-delivery": Bug("a message is settled when it is delivered", settle_at_delivery),
    "never-settles": Bug("a settlement is not written", never_settle),
    "forgets-what-came": Bug("a repeated block is kept again", forget_what_came),
    "refuses-what-it-keeps": Bug("one block in ten is kept and refused", refuse_what_is_kept),
    "alters-work": Bug("a bit of one delivery in ten is flipped", alter_work),
    "overlooks-some": Bug("one block in ten waits until its home starts again", overlook_some),
    "keeps-for-one": Bug(
        "a block for several durable subscriptions is kept for the first", keep_for_the_first
    ),
    "forgets-dead-homes": Bug("a dead broker is no home any more", forget_dead_homes),
    "delivers-to-all": Bug("every consumer gets the messages meant for one of them", deliver_to_all),
    "buries-nowhere": Bug("dead letters are thrown away", bury_nowhere),
}
"""They show only where there are durable subscriptions."""
