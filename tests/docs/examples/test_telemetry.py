"""A hundred sensors are seen by a view at another broker, and those that fall silent are told apart."""

from __future__ import annotations

import asyncio
from functools import partial
from io import StringIO
from typing import Any

from rich.console import Console
from rich.live import Live

from mesh import Client
from simulations import Mesh, World
from tests.docs.examples.programs import program

telemetry = program("telemetry")


def shown(view: Any, now: float) -> str:
    console = Console(file=StringIO(), width=80, _environ={})
    console.print(view.table(now, 0))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_all_sensors_are_seen_at_another_broker() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        view = telemetry.View()
        live = Live(console=Console(file=StringIO()), auto_refresh=False)

        async def watch(client: Client) -> None:
            await telemetry.watch(client, view, live)

        mesh.client("view", watch, at="broker-2")
        mesh.client("sensors", partial(telemetry.sensors, count=100), at="broker-1")
        world.run_for(10)
        assert len(view.seen) == 100
        assert all(6 <= known.readings <= 11 for known in view.seen.values())
        now = max(known.heard_s for known in view.seen.values())
        assert view.silent(now) == [] and "100 sensors, 0 silent" in shown(view, now)
        world.inject("crash", ["sensors"])
        world.run_for(1)
        assert len(view.silent(now + telemetry.SILENT_S + 1)) == 100


def test_the_hottest_are_shown_and_nonsense_is_counted() -> None:
    view = telemetry.View()
    for number in range(20):
        body = telemetry.READING.pack(1.0, float(number))
        view.hear(f"telemetry.hall-1.sensor-{number:03}.celsius", body, now=5.0)
    view.hear("telemetry.hall-1.sensor-000.celsius", b"warm", now=5.0)
    text = shown(view, now=5.0)
    assert view.not_understood == 1 and "hall-1.sensor-019" in text and "sensor-000" not in text
    assert text.count("°C") == 2 * telemetry.ROWS
    assert asyncio.iscoroutinefunction(telemetry.watch)
