"""Each participant in a stored message is killed at each important moment: nothing acknowledged is lost.

Brokers lose power, and with it their unsynced data; publishers and consumers are killed. The entry broker is
that of the publisher, the home another. ``MANGROVE_KILLS=50`` kills so often in each cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest

from mesh.dataplane.keeping import Keeping
from simulations.evidence.ledger import Ledger, Outcome
from simulations.programs import clients
from simulations.runs.playing import Play
from simulations.scenario import Scenario, Workload

KILLS: Final = int(os.environ.get("MANGROVE_KILLS", "3"))
BETWEEN_S: Final = 1.5
"""Seconds from one kill to the next: the killed process is back and at work."""
DOWN_S: Final = 0.4
LOAD: Final = Workload(
    publishers=1,
    subscribers=1,
    pause_s=0.05,
    stored_share=1.0,
    durable_subscriptions=1,
    workers=2,
    work_window=4,
)
VICTIMS: Final = ("publisher", "entry broker", "home", "consumer")
MOMENTS: Final = ("before the send", "after the write", "after the acknowledgement")

Strike = Callable[[], None]


def before_the_send(patch: pytest.MonkeyPatch, strike: Strike) -> None:
    publish = Ledger.publish

    def noted(self: Ledger, *given: Any) -> Any:
        strike()
        return publish(self, *given)

    patch.setattr(Ledger, "publish", noted)


def after_the_write(patch: pytest.MonkeyPatch, strike: Strike) -> None:
    """The block is on disk, and its acknowledgement is about to leave the home."""
    committed = Keeping._committed

    def noted(self: Keeping, *given: Any) -> None:
        committed(self, *given)
        strike()

    patch.setattr(Keeping, "_committed", noted)


def after_the_acknowledgement(patch: pytest.MonkeyPatch, strike: Strike) -> None:
    publish = clients._publish

    async def noted(process: Any, mesh: Any, entries: Any, level: str) -> None:
        await publish(process, mesh, entries, level)
        if entries[0].outcome is Outcome.STORED:
            strike()

    patch.setattr(clients, "_publish", noted)


AT: Final = dict(zip(MOMENTS, (before_the_send, after_the_write, after_the_acknowledgement), strict=True))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_no_acknowledged_message_is_lost(
    victim: str, moment: str, monkeypatch: pytest.MonkeyPatch, simulation_seed: int
) -> None:
    scenario = Scenario(
        "kill-matrix", brokers=2, warm_s=0.5, safety_s=KILLS * BETWEEN_S, quiet_s=1.0, workload=LOAD
    )
    play = Play(scenario, seed=simulation_seed)
    home = play._homes["worker-1"]
    entry = play._homes["pub-1"] = next(name for name in scenario.broker_names if name != home)
    name = {"publisher": "pub-1", "entry broker": entry, "home": home, "consumer": "worker-1"}[victim]
    kind = "power_off" if victim in ("entry broker", "home") else "crash"
    struck: list[float] = []

    def kill() -> None:
        play.world.inject(kind, [name], for_s=DOWN_S)

    def strike() -> None:
        now_s = play.world.now_s
        since_s = struck[-1] if struck else play.phases.get("safety_s", now_s)
        if len(struck) < KILLS and "safety_s" in play.phases and now_s - since_s >= BETWEEN_S * bool(struck):
            struck.append(now_s)
            play.world.scheduler.after(0, kill)

    AT[moment](monkeypatch, strike)
    result = play.run()
    assert result.ok, [each.violations[:3] for each in result.verdicts if not each.ok]
    assert len(struck) == KILLS or victim == "publisher", struck
    assert struck and result.counts["stored"] > 20
    assert {job.home for job in play.ledger.jobs} == {home}
