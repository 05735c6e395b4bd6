"""Messages taken by an outbox survive dead homes and power losses, in the shipped scenarios that test it.

They are played with seed 1; ``--simulation-seed 2`` plays another. Ten minutes of a dead home are ``mesh
simulate outbox-home-dead --full``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mesh.outbox.draining import Draining
from mesh.outbox.outbox import Outbox
from simulations.runs import playing
from simulations.scenarios import scenario_file

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["outbox-home-dead", "outbox-power-loss"])
def test_no_message_accepted_by_an_outbox_is_lost(name: str, simulation_seed: int) -> None:
    result = playing.play(scenario_file.load(name), seed=simulation_seed)
    assert result.ok, [each.violations[:3] for each in result.verdicts if not each.ok]
    checks = {each.check for each in result.verdicts}
    assert {"outbox_is_kept", "outbox_drained"} <= checks
    assert result.counts["in_outboxes"] > 500


def _frees_what_is_refused(patch: pytest.MonkeyPatch) -> None:
    def refused(self: Draining, ranges: list[tuple[int, int]], reason: str, now: float) -> None:
        rows = self.acknowledged(ranges)
        self.freed(rows)

    patch.setattr(Draining, "refused", refused)


def _syncs_nothing(patch: pytest.MonkeyPatch) -> None:
    opened = Outbox.open.__func__  # type: ignore[attr-defined]

    def unsynced(cls: type[Outbox], *given: object, **more: object) -> Outbox:
        outbox: Outbox = opened(cls, *given, **more)
        outbox._db.execute("pragma synchronous = off")
        return outbox

    patch.setattr(Outbox, "open", classmethod(unsynced))


def _passes_over_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draining, "_is_passed_over", lambda self, topic: False)
    patch.setattr(Draining, "_may_go", lambda self, row: True)


BUGS = (
    (_frees_what_is_refused, "outbox-home-dead", "outbox_drained"),
    (_passes_over_what_is_held, "outbox-home-dead", "outbox_in_order"),
    (_syncs_nothing, "outbox-power-loss", "outbox_is_kept"),
)
PROVEN = {check for _, _, check in BUGS}
"""Checks that find a bug planted here."""


@pytest.mark.parametrize(("bug", "name", "check"), BUGS)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], name: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    result = playing.play(scenario_file.load(name), seed=1)
    assert check in result.failed
