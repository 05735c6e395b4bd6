"""The reaction of a kernel's TCP to a cut, and of the simulated one: bytes arrive at the same time.

One program listens; others say a line to it, each from a separate host that is cut off for a different time.
The simulation then gets the times of the real run. The ladder of retransmissions decides when a line arrives.
The first is due after 0.2 s, and so is the second (the first was a probe for a lost tail, which says nothing
about the line); each further wait is twice the one before. A SYN is sent again after 1, 3, 7 ... seconds.
Kernels since 6.5 send four more first, a second apart, which is turned off here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from simulations import Process, World
from tests.differential import programs
from tests.differential.conftest import Played
from tests.differential.namespaces import hosts
from tests.differential.processes import RealMesh

pytestmark = [
    pytest.mark.interop,
    pytest.mark.process,
    pytest.mark.xdist_group("alone"),
]

WARM_S: Final = 1.0
LEAD_S: Final = 0.5
"""Seconds from the call to the start time."""
AFTER_S: Final = 7.0
EARLY_S: Final = 0.1
LATE_S: Final = 0.3
"""The lateness of a kernel's timers and a busy machine on the last rung; the next rung is five times that
away.
"""


@dataclass(frozen=True)
class Speaker:
    """A speaker that is cut off at the beginning, and says a line ``says_s`` later."""

    name: str
    cut_s: float
    says_s: float = 0.3
    begun: bool = True
    """Its connection was there before the cut."""


SPEAKERS: Final = (
    Speaker("first-rung", 0.35),
    Speaker("third-rung", 0.85),
    Speaker("fourth-rung", 1.4),
    Speaker("fifth-rung", 2.5),
    Speaker("idle", 1.0, says_s=1.2),
    Speaker("connecting", 2.0, begun=False),
)


@dataclass(frozen=True)
class Line:
    """The fate of a line, in seconds after the cut."""

    said_s: float
    healed_s: tuple[float, float]
    """The cut ended between these two."""
    came_s: float


def simulate(like: Mapping[str, Line], end: int) -> dict[str, float]:
    """When the lines arrive in a simulation with the times of a real run.

    Cuts end as early (0) or as late (1) as they may have.
    """
    notes: list[Any] = []
    with World(1) as world:

        async def begin() -> float:
            return WARM_S

        def now() -> float:
            return world.now_s

        def listening(process: Process) -> Any:
            return programs.listen(process.address, notes.append, now)

        def saying(speaker: Speaker, process: Process) -> Any:
            there = process.network.hosts["listener"].address
            said_s = like[speaker.name].said_s
            return programs.say(there, speaker.name, speaker.begun, said_s, begin, lambda note: None, now)

        world.add_node("listener", listening).start()
        for speaker in SPEAKERS:
            world.add_node(speaker.name, partial(saying, speaker)).start()
        world.run_for(WARM_S)
        for speaker in SPEAKERS:
            world.inject("isolate", [speaker.name], for_s=like[speaker.name].healed_s[end])
        world.run_for(AFTER_S + programs.STAYS_S)
        assert not world.failures
    return came(notes, WARM_S)


def came(notes: Sequence[Any], cut_at_s: float) -> dict[str, float]:
    """When the last line of each speaker arrived, in seconds after the cut."""
    return {note[0]: note[1] - cut_at_s for note in notes if note != "listening"}


@dataclass(frozen=True)
class Case:
    name: str = "tcp"

    def play(self, folder: Path) -> dict[str, Line]:
        names = [speaker.name for speaker in SPEAKERS]
        with hosts(["listener", *names]) as found, RealMesh(found, folder, ()) as mesh:
            there = found.address("listener")
            mesh.program("listener", "listener", "listen", there)
            mesh.wait(lambda: mesh.notes("listener") == ["listening"], "a listener")
            found.send_syns_as_before("connecting")
            for speaker in SPEAKERS:
                mesh.program(
                    speaker.name, speaker.name, "say", there, speaker.name, speaker.begun, speaker.says_s
                )
            mesh.wait(lambda: all(mesh.notes(name) == ["ready"] for name in names), "the speakers")
            cut_at_s = time.monotonic() + LEAD_S
            for name in names:
                mesh.tell(name, cut_at_s)
            _sleep_until(cut_at_s)
            found.cut(*names)
            healed_s: dict[str, tuple[float, float]] = {}
            for speaker in sorted(SPEAKERS, key=lambda each: each.cut_s):
                _sleep_until(cut_at_s + speaker.cut_s)
                before_s = time.monotonic() - cut_at_s
                found.join(speaker.name)
                healed_s[speaker.name] = before_s, time.monotonic() - cut_at_s
            _sleep_until(cut_at_s + AFTER_S)
            came_s = came(mesh.notes("listener"), cut_at_s)
            return {
                name: Line(mesh.notes(name)[1] - cut_at_s, healed_s[name], came_s[name]) for name in names
            }


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


@pytest.mark.parametrize("case", [Case()], ids=["tcp"])
def test_bytes_held_back_by_a_cut_arrive_when_they_do_in_the_simulation(case: Case, played: Played) -> None:
    real: dict[str, Line] = played.of(case)
    simulated = [simulate(real, end) for end in (0, 1)]
    assert all(lines.keys() == real.keys() for lines in simulated)
    assert all(simulated[1][name] > line.healed_s[1] for name, line in real.items() if name != "idle")
    apart = {
        name: ([lines[name] for lines in simulated], line)
        for name, line in real.items()
        if not any(-EARLY_S <= line.came_s - lines[name] <= LATE_S for lines in simulated)
    }
    assert not apart, f"simulated and real, in seconds after the cut: {apart}"
