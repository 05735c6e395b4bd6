"""Each party to a stored message is killed by SIGKILL at each critical moment: nothing is lost.

Real processes, sockets and disks. `tests/simulations/scenarios/test_kill_matrix.py` is the same in the
simulator, where unsynced data is lost as well. ``MANGROVE_KILLS=50`` sets the number of kills in each cell.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import Kind
from tests.acceptance.storing import ASYNCIO, THREADS, Clients, Stage, stage
from tests.support.gates import Trap

pytestmark = pytest.mark.process

KILLS: Final = int(os.environ.get("MANGROVE_KILLS", "5"))
VICTIMS: Final = ("publisher", "entry broker", "home", "consumer")
MOMENTS: Final = ("before the send", "after the write", "after the acknowledgement")
MESSAGES: Final = 3
"""Messages at the moment of a kill."""
SIZES: Final = (10, 100_000)
"""Bytes of a body, which travels in one block or in pieces."""
PASSING: Final = (0.0, 0.5, 1.0)
"""The share of a gate's frames that passes after the kill."""


def moment_trap(moment: str) -> Trap:
    """The frame that is held at the moment: the message on its way to the entry broker, the home's answer
    once it is on disk, or the acknowledgement on its way to the publisher."""
    if moment == "before the send":
        return Trap(Kind.DATA, to_listener=True)
    return Trap(Durable.KEPT if moment == "after the write" else Kind.ACK)


async def strike(stage: Stage, victim: str, moment: str, number: int) -> None:
    """One kill, and everything that follows from it."""
    unsettled = Trap(Durable.DONE, to_listener=True)
    at_moment = moment_trap(moment)
    home, entry = stage.gates["home"], stage.gates["entry broker"]
    before = dict(stage.got)
    if victim == "consumer":
        await stage.drained()  # otherwise the home would wait for settled messages behind the trap
        home.traps = [unsettled]
    await stage.works()
    for gate in (home, entry):
        gate.traps = [*gate.traps, at_moment]
    numbers = stage.publish(MESSAGES, SIZES[number % 2])
    if moment == "after the acknowledgement":
        at_moment.release()
        await stage.ended(numbers)
    else:
        await at_moment.sprung.wait()
    if victim == "consumer":
        await stage.eventually(unsettled.sprung.is_set, "a message was done")
    stage.kill(victim)
    for trap in (at_moment, unsettled):
        trap.release(0.0 if trap is unsettled else PASSING[number % 3])
    home.traps, entry.traps = [], []
    if victim == "consumer":
        stage.take_back(stage.got.keys() - before.keys())
    await stage.start(victim)
    if victim != "publisher":
        await stage.ended(numbers)
    await stage.delivered()


async def play(folder: Path, victim: str, moment: str, clients: Clients) -> None:
    async with stage(folder, clients) as made:
        duplicates = []
        for number in range(KILLS):
            await strike(made, victim, moment, number)
            home, _ = await made.statuses()
            duplicates.append(home["journal"]["duplicates"])  # since the home's start
        assert made.programs[victim].lives == KILLS + 1
        if victim == "consumer":
            assert (await made.queue())["redelivered"] >= KILLS, "what the dead had not settled"
        if victim == "entry broker" and moment == "after the write":
            assert duplicates[-1] >= KILLS, "what the publisher sent again"
        if victim == "home" and moment == "after the write":
            assert sum(duplicates) > 0, "what the entry broker offered again"
        await made.works()
        assert not made.unknown
        assert set(made.stored.values()) == {("home",)} and len(made.stored) > KILLS
        await made.drained()


@pytest.mark.parametrize("clients", [ASYNCIO, THREADS], ids=["Client", "BlockingClient"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_no_acknowledged_message_is_lost(victim: str, moment: str, clients: Clients, tmp_path: Path) -> None:
    asyncio.run(play(tmp_path, victim, moment, clients))
