"""The home is killed, or hangs, while ``mesh work --exec`` runs and others publish: all continue."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.storing import SHELL, stage

pytestmark = pytest.mark.process

LOST = "no session with the broker"
"""The output of ``mesh work`` in that case."""


@pytest.mark.parametrize("how", ["is killed", "stands still"])
async def test_workers_and_publishers_continue_when_their_home_is_back(how: str, tmp_path: Path) -> None:
    async with stage(tmp_path, SHELL) as made:
        numbers = made.publish(50)
        await made.eventually(lambda: made.got.keys() & set(numbers), "the first of them is worked on")
        home, worker = made.programs["home"], made.programs["consumer"]
        if how == "is killed":
            made.kill("home")
        else:
            home.signal(signal.SIGSTOP)
        numbers += made.publish(50)
        await made.eventually(lambda: LOST in worker.said, "the session is lost")
        if how == "is killed":
            await made.start("home")
        else:
            home.signal(signal.SIGCONT)
        await made.ended(numbers)
        await made.works()
        assert not made.unknown and worker.lives == 1
        await made.drained()
