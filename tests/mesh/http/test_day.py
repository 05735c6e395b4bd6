"""A page that is left open for a day, in virtual time: its cost in the broker does not grow."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest

from mesh.http import live as live_module
from mesh.http.guard import Guard
from mesh.http.live import Live
from mesh.http.server import HttpServer
from mesh.http.site import Site
from mesh.http.source import Answered, Figures
from mesh.listen import HttpListen
from simulations import World
from simulations.world import Process
from tests.mesh.console.statuses import changed, member, status
from tests.mesh.http.client import Caller

pytestmark = pytest.mark.long
HOUR_S = 3600.0
LOOK_S = 20.0
"""Looks are rarer than in reality, since each takes milliseconds of real time."""


class Broker:
    """A broker whose figures and events are new at each look."""

    name, state, waits_for = "alpha", "ready", ()

    def __init__(self) -> None:
        self.looks = 0

    def status(self) -> bytes:
        number = self.looks = self.looks + 1
        minute = f"{number // 1800 % 24:02}:{number // 30 % 60:02}:{number * 2 % 60:02}.{number % 1000000:06}"
        events = [changed("alpha", number, minute, "beta", "alive", f"s{number % 3}", "x")]
        return json.dumps(status("alpha", [member("alpha", is_self=True)], events=events)).encode()

    def figures(self) -> Figures:
        raise NotImplementedError

    def ask_all(self, deadline_s: float, bytes_max: int, then: Answered) -> None:
        then([], [])


def test_a_page_open_for_a_day_costs_no_more_than_one_open_for_two_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    seen: dict[str, Any] = {"frames": 0}

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        live = Live(broker, clock=loop.time, wall_time=process.wall_time)
        listen = HttpListen("0")
        site = Site(broker, Guard(listen, "alpha"), answers=dict, clock=loop.time)
        server = HttpServer(listen, site.answer, live)
        await server.open()
        seen["server"] = server
        looking = asyncio.create_task(live.run())
        page = await Caller.dial(server.url)
        seen["page"] = page  # it lives as long as the test
        page.ask("/live", accept="text/event-stream")
        await page.head()
        try:
            while True:
                seen["frames"] += b"event: mesh" in await page.chunk()
                seen["tasks"] = len(asyncio.all_tasks())
        finally:
            looking.cancel()

    monkeypatch.setattr(live_module, "INTERVAL_S", LOOK_S)
    with World(1, keep_failures=True) as world:
        world.add_node("alpha", main).start()
        world.run_for(2 * HOUR_S)
        gc.collect()
        objects, tasks = len(gc.get_objects()), seen["tasks"]
        world.run_for(22 * HOUR_S)
        gc.collect()
        grown = len(gc.get_objects()) - objects
        assert seen["frames"] == pytest.approx(24 * HOUR_S / LOOK_S, rel=0.01)
        assert broker.looks == pytest.approx(seen["frames"], abs=2)
        assert seen["tasks"] == tasks and seen["server"].connections == 1
        assert grown < 500, "objects that four thousand frames left behind"
        assert not world.failures
