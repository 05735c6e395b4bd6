"""An operator's work for homes of durable subscriptions after faults, as the warnings of brokers advise.

* The state folder of a broker that runs without one is made again. The broker saves its id there, and is
  restarted, since a journal that was open there is gone.
* A home whose disk failed is restarted. Its journal may then be found damaged and is set aside, so that takes
  more than one start.
* A home whose journal belongs to another broker, because its own id was lost with its file, begins anew
  without its state folder.
* A publisher whose outbox failed is restarted, once its disk works.
* A home that will not come back is forgotten. No broker has its id any more. Its workers make the durable
  subscription again, once they know; until then nobody keeps published messages.

Then messages of level stored pass again, or the run's checks find which are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Final

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from simulations import programs
from simulations.evidence.ledger import Ledger
from simulations.kernel.storage import STATE_FOLDER
from simulations.runs.wholeness import POLL_S
from simulations.world import ConditionNotMet, World

RESTART_S: Final = 1.0
"""Seconds that a restarted home is down, and then has to come up."""
SAVED_S: Final = 2.0
"""Seconds in which a broker has saved its id in a new folder."""
RESTARTS: Final = 3
"""After so many restarts, a home that still cannot store begins anew."""
DEAD_S: Final = 20.0
"""Seconds in which every broker knows that a lost home is dead. A broker that starts gives those of which it
was only told some time to answer, and brokers may be restarted several times before."""
FORGOTTEN_S: Final = 10.0
"""Seconds in which the whole mesh learns which home an operator forgot."""
REMADE_S: Final = 30.0
"""Seconds in which workers make forgotten subscriptions again. They give up an address at which nobody
answers after 5 s, and the broker that makes it waits as long for one that does not confirm it.
"""
KNOWN_S: Final = 60.0
"""Seconds in which all homes are known again. A broker that lost its file waits for every member that it was
told of and has not heard, for as long as that member is remembered.
"""


class Operator:
    """See the module. ``say`` gets a sentence for each action."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        brokers: Sequence[str],
        queues: Sequence[str],
        transport: str,
        say: Callable[[str], None],
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._brokers = brokers
        self._queues = frozenset(queues)
        self._transport = transport
        self._say = say

    def replace_lost_folders(self) -> None:
        lost = []
        for name in self._running():
            disk, folder = self._world.disk(self._world.node(name).host.name), f"{STATE_FOLDER}/{name}"
            if folder not in disk.folders:
                disk.make_folder(folder)
                lost.append(name)
        if lost:
            self._say(f"make the state folder of {' '.join(lost)} again, and restart")
            self._world.run_for(SAVED_S)
            self._world.inject("stop", lost, for_s=RESTART_S)
            self._world.run_for(RESTART_S)

    def restart_failed_homes(self) -> None:
        for attempt in range(RESTARTS + 1):
            self._world.run_for(RESTART_S)
            failed = [name for name, broker in self._running().items() if broker.inspect().journal_failure]
            if not failed:
                return
            anew = attempt == RESTARTS
            self._say(
                f"restart {' '.join(failed)}, which cannot store" + (", without what it kept" if anew else "")
            )
            self._world.inject("stop", failed, for_s=RESTART_S)
            if anew:
                self._world.run_for(RESTART_S / 2)
                self._world.inject("lost_files", failed)
            self._world.run_for(RESTART_S)

    def restart_failed_outboxes(self, publishers: Sequence[str]) -> None:
        failed = [name for name in publishers if self._has_failed_outbox(name)]
        if failed:
            self._say(f"restart {' '.join(failed)}, whose outbox failed")
            self._world.inject("stop", failed, for_s=RESTART_S)

    def _has_failed_outbox(self, name: str) -> bool:
        node = self._world.node(name)
        client = node.exposed if node.running else None
        return isinstance(client, Client) and client.outbox is not None and client.outbox.failed

    def forget_lost_homes(self) -> None:
        """Raises nothing: checks find what remains."""
        lost = self._lost()
        if lost:
            self._wait(lambda: not self._may_live(lost), DEAD_S, "lost homes that are dead")
            self._say("forget " + ", ".join(f"{name} ({home:016x})" for home, name in lost.items()))
            for home in lost:
                self._ledger.forgotten.setdefault(home, self._world.now_s)
            host = next(iter(self._running()))
            main = programs.forgetter(list(lost), self._transport)
            node = self._world.add_node("operator", main, host=host)
            node.start()
            self._wait(lambda: not self._lost(), FORGOTTEN_S, "homes that are forgotten")
            node.stop()
        self._wait(self._all_known, KNOWN_S, "homes that are known")
        self._wait(self._all_kept, REMADE_S, "durable subscriptions at homes that run")

    def _running(self) -> dict[str, Broker]:
        nodes = {name: self._world.node(name) for name in self._brokers}
        return {
            name: node.exposed
            for name, node in nodes.items()
            if node.running and isinstance(node.exposed, Broker)
        }

    def _lost(self) -> dict[int, str]:
        """Homes that keep messages for the running brokers, and do not run any more; their names by id."""
        views = [broker.inspect() for broker in self._running().values()]
        running = {view.id for view in views}
        return {
            home: table.name
            for view in views
            for home, table in view.homes.items()
            if table.subscriptions and home not in running
        }

    def _may_live(self, homes: Collection[int]) -> bool:
        """True if a running broker has not learned yet that one of these is dead."""
        views = [broker.inspect() for broker in self._running().values()]
        return any(record.in_view and record.id in homes for view in views for record in view.records)

    def _all_known(self) -> bool:
        return not any(broker.inspect().unknown_homes for broker in self._running().values())

    def _all_kept(self) -> bool:
        """True if every broker knows a running home for each durable subscription."""
        views = [broker.inspect() for broker in self._running().values()]
        running = {view.id for view in views}
        return all(
            self._queues.issubset(
                name for home, table in view.homes.items() if home in running for name in table.subscriptions
            )
            for view in views
        )

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        with contextlib.suppress(ConditionNotMet):
            self._world.run_until(condition, timeout_s=timeout_s, what=what, poll_s=POLL_S)
