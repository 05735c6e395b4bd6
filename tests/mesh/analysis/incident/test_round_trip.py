"""The events of a simulated mesh happen again when the scenario made from its logs is played.

`tests.mesh.analysis.incident.round_trip` plays more scenarios and seeds, as a command.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mesh.analysis.incident.round_trip import Event, compared, replayed
from tests.mesh.analysis.truth.proof import LIVES, played

S = 1_000_000


def event(kind: str, at_s: float, until_s: float, *sides: str) -> Event:
    return Event(kind, frozenset(map(frozenset, sides)), round(at_s * S), round(until_s * S))


def test_events_are_the_same_wherever_in_time_the_copy_lies() -> None:
    wanted = [event("crash", 10, 15, "a"), event("complete", 20, 30, "a", "bc")]
    later = [event("crash", 111, 116, "a"), event("complete", 120, 131, "a", "bc")]
    assert compared(wanted, later, 2 * S).again == wanted
    for other in (
        event("complete", 120, 133.5, "a", "bc"),
        event("complete", 124, 134, "a", "bc"),
        event("complete", 120, 130, "b", "ac"),
        event("partial", 120, 130, "a", "bc"),
    ):
        done = compared(wanted, [later[0], other], 2 * S)
        assert (done.lacking, done.extra) == ([wanted[1]], [other])


@pytest.mark.long
@pytest.mark.parametrize("name", ["leave-in-a-partition", LIVES])
def test_the_events_happen_again(name: str, tmp_path: Path) -> None:
    done = replayed(played(name, 1, tmp_path), tmp_path / "again", seed=1001)
    assert done is not None
    assert done.again
    assert (done.lacking, done.extra) == ([], [])
