"""The shell around this broker's home (`mesh.dataplane.home`): its access to disk, mesh and log.

It opens and closes the journal, and calls the home on time. It carries changes of durable subscriptions to
the other brokers, and operators' questions to the home. It reports trouble with durable subscriptions to
programs, in messages of this broker, and to the operator, in the log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from mesh.broker.identity import format_id
from mesh.broker.journal_opening import JournalOpening
from mesh.broker.notices import Notices
from mesh.broker.options import BrokerOptions
from mesh.cluster.peering import Peering
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.home import Home
from mesh.dataplane.queue_watch import topic_of
from mesh.environment import DEFAULT_NAME, Environment
from mesh.errors import MeshError
from mesh.logs import log
from mesh.wire.durable_frames import QUEUES

WATCH_PERIOD_S: Final = 1.0
"""Interval between checks for trouble with durable subscriptions."""


class HomeShell:
    """The shell of one home. ``leaving`` is set once the broker leaves."""

    def __init__(
        self,
        options: BrokerOptions,
        environment: Environment,
        exchange: Exchange,
        peering: Peering,
        notices: Notices,
        *,
        work_pending: Callable[[], None],
    ) -> None:
        self.leaving = False
        self.work_pending = work_pending
        self._name = exchange.name
        self._environment = environment
        self._exchange = exchange
        self._peering = peering
        self._notices = notices
        self._loop = asyncio.get_running_loop()
        self.home = exchange.home = Home(self._name, self, exchange.options)
        self.journal = JournalOpening(
            self.home,
            environment,
            folder=options.state_dir and f"{options.state_dir}/{options.name or DEFAULT_NAME}",
            name=self._name,
            broker=format_id(exchange.id),
            mesh=options.mesh,
            clock=self._loop.time,
        )
        self._wake: asyncio.TimerHandle | None = None
        self._watch_due = self._loop.time()

    # --- start and end

    async def begin(self) -> None:
        """Open the journal, if there is one, and route by all known durable subscriptions.

        Without its journal this home continues with what its file or the other brokers say, since level
        stored must not skip it. A home that announces nothing about itself would block level stored in the
        whole mesh. So a broker that has lost its id announces that its new id keeps nothing; the home with
        the old id is away.
        """
        await self.journal.begin()
        durable = self._peering.durable
        if not self.home.failure or (self.journal.is_anothers and not durable.version):
            durable.set_own(self.home.table)
        durable.tell()

    def serve_operators(self) -> None:
        """Answer operators' questions; see `mesh.dataplane.operating`."""
        self.home.set_forget(self._forget)
        for topic in (QUEUES, f"{QUEUES}.{format_id(self._exchange.id)}"):
            self._exchange.respond_later(topic, self._operate)

    async def aclose(self) -> None:
        """Write settled messages, and close the journal."""
        await self.journal.aclose()
        if self._wake is not None:
            self._wake.cancel()

    # --- the home's hooks

    def open_journal(self) -> None:
        self.journal.make()

    def durable_changed(self, added: dict[str, tuple[str, ...]], removed: list[str]) -> int:
        return self._peering.durable.change_own(added, removed)

    def wake_at(self, at: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(at, self.work_pending)

    def storing_failed(self, why: str) -> None:
        log.warning("broker %s stores no messages from now on: %s", self._name, why)

    # --- operators

    def _operate(self, topic: str, body: bytes, answer: Callable[[bytes], None]) -> None:
        self.home.operate(body, int(self._environment.wall_time() * 1e6), answer)

    def _forget(self, home: str) -> list[str]:
        """An operator says that another home will not come back. Raises `MeshError`."""
        homes = self._exchange.durable_routes.homes.values()
        found = [each for each in homes if home in (each.name, format_id(each.id))]
        if not found:
            raise MeshError(f"no broker {home!r} is known here to have durable subscriptions")
        # A broker of that name may be alive again, under another id.
        states = [self._state(each.id) for each in found]
        away = [each for each, state in zip(found, states, strict=True) if state not in ("alive", "suspect")]
        if not away and "alive" not in states:
            raise MeshError(f"broker {found[0].name} is suspect but may be alive; try again when it is dead")
        if not away:
            raise MeshError(
                f"broker {found[0].name} is alive and would announce it again; remove its durable"
                " subscriptions with mesh queue rm"
            )
        if len(away) > 1:
            ids = ", ".join(format_id(each.id) for each in away)
            raise MeshError(
                f"{len(away)} brokers that are gone are called {home!r}; name one by its id: {ids}"
            )
        (gone,) = away
        names = list(gone.subscriptions)
        self._peering.durable.forget(gone.id)
        return names

    def _state(self, home: int) -> str:
        """What membership holds a broker for; empty for one that it has forgotten."""
        if home == self._exchange.id:
            return "alive"
        record = self._peering.membership.record(home)
        return "" if record is None else record.state

    # --- trouble

    def watch(self, now: float) -> float:
        """Report trouble. Returns when to call this again."""
        if now >= self._watch_due:
            self._watch_due = now + WATCH_PERIOD_S
            for notice in self.home.notices(now) if not self.leaving else ():
                about = {"broker": self._name, **notice.about}
                if notice.name:
                    about["queue"] = notice.name
                self._notices.queue(notice.name, notice.kind, notice.about)
                self._exchange.publish(topic_of(notice), [json.dumps(about).encode()], "sent", now)
        return self._watch_due
