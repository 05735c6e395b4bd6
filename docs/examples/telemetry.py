"""Telemetry: a hundred sensors tell their temperature each second, and a live view shows them.

    python telemetry.py sensors            # a hundred of them in one program
    python telemetry.py watch              # at any broker of the mesh; as many as you like

Readings are published at level `sent`: nobody waits for a receipt. If one is lost, the next comes a second
later, so a sensor never stands still because the network does. The view says which sensors have gone silent.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import struct
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from mesh import Client, MeshError

EVERY_S = 1.0
SILENT_S = 3.5
"""A sensor that was not heard for so long is called silent."""
ROWS = 12
"""The hottest ones are shown."""
READING = struct.Struct("!dd")
"""Seconds since the start of the sensor, degrees Celsius: 16 bytes, no text to parse."""


async def sensor(client: Client, name: str, rng: random.Random) -> None:
    """One sensor, until cancelled: a slow wave, with noise on it."""
    clock = asyncio.get_running_loop().time
    began, phase = clock(), rng.uniform(0, math.tau)
    await asyncio.sleep(rng.uniform(0, EVERY_S))  # not all in the same moment
    while True:
        age = clock() - began
        celsius = 20 + 8 * math.sin(age / 30 + phase) + rng.gauss(0, 0.2)
        client.publish_nowait(f"telemetry.{name}.celsius", READING.pack(age, celsius))
        await asyncio.sleep(EVERY_S)


async def sensors(client: Client, count: int) -> None:
    """Many sensors that share a connection, until cancelled."""
    rng = random.Random(1)  # the same halls each time
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(sensor(client, f"hall-{number // 10}.sensor-{number:03}", rng))
        print(f"ready: {count} sensors", flush=True)


@dataclass
class Seen:
    """What the view knows of one sensor."""

    celsius: float
    highest: float
    heard_s: float
    readings: int = 1


class View:
    """What was heard, and a table of it."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.not_understood = 0

    def hear(self, topic: str, body: bytes, now: float) -> None:
        try:
            _, celsius = READING.unpack(body)
        except struct.error:  # whoever publishes there may be anybody
            self.not_understood += 1
            return
        name = topic.removeprefix("telemetry.").removesuffix(".celsius")
        known = self.seen.setdefault(name, Seen(celsius, celsius, now, 0))
        known.celsius, known.heard_s = celsius, now
        known.highest = max(known.highest, celsius)
        known.readings += 1

    def silent(self, now: float) -> list[str]:
        return sorted(name for name, known in self.seen.items() if now - known.heard_s > SILENT_S)

    def table(self, now: float, gaps: int) -> Table:
        silent = self.silent(now)
        table = Table(title=f"{len(self.seen)} sensors, {len(silent)} silent, {gaps} gaps in what we heard")
        table.add_column("sensor")
        for heading in ("now", "highest", "readings"):
            table.add_column(heading, justify="right")
        hottest = sorted(self.seen.items(), key=lambda item: item[1].celsius, reverse=True)
        for name, known in hottest[:ROWS]:
            style = "dim" if name in silent else None
            figures = f"{known.celsius:.1f} °C", f"{known.highest:.1f} °C", str(known.readings)
            table.add_row(name, *figures, style=style)
        return table


async def watch(client: Client, view: View, live: Live) -> None:
    """Show what is heard, twice a second, until cancelled."""
    clock = asyncio.get_running_loop().time
    async with client.subscribe("telemetry.*.*.celsius") as readings:

        async def draw() -> None:
            while True:
                await asyncio.sleep(0.5)
                # After a lost connection the client subscribes again; what was told meanwhile is gone.
                live.update(view.table(clock(), readings.interrupted), refresh=True)

        drawing = asyncio.create_task(draw())
        try:
            async for batch in readings.batches():  # whatever came together: cheaper than one by one
                now = clock()
                for topic, body in batch:
                    view.hear(topic, body, now)
        finally:
            drawing.cancel()


async def main(arguments: argparse.Namespace) -> None:
    async with Client(arguments.url) as client:
        if arguments.do == "sensors":
            await sensors(client, arguments.count)
        else:
            with Live(console=Console(), auto_refresh=False) as live:
                await watch(client, View(), live)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Telemetry of many sensors.")
    parser.add_argument("do", choices=["sensors", "watch"])
    parser.add_argument("--count", type=int, default=100, help="how many sensors")
    parser.add_argument("--url", help="the broker; by default the local one")
    try:
        asyncio.run(main(parser.parse_args()))
    except MeshError as error:
        sys.exit(f"telemetry: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
