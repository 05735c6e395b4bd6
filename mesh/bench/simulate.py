"""The simulator's speed: full brokers that only send heartbeats, a scenario with faults and traffic, the
cores alone.

Each case is a process of its own on one core. A *message* of full brokers is one arrival of bytes at a host;
between idle brokers that is one survey or one answer. It passes two production brokers, framing, msgpack, two
transports and the network. It is hashed into the history, and makes a row in the receiver's event log. A
message of the cores alone is a tuple handed to a core.

The work with several sizes shows how the cost of a message grows with the mesh; `plot` draws it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from mesh.bench.harness import BenchError, Case, Figures, Outcome, Target, workers
from mesh.bench.measuring import Report, resident_bytes
from simulations import cores, programs
from simulations.cores.running import start_all
from simulations.runs.playing import play
from simulations.runs.wholeness import is_whole
from simulations.scenarios.generating import generate
from simulations.world import World

IDLE: Final = "idle brokers in full"
SWARM: Final = "60 s of a scenario with faults, five brokers, traffic"
ALONE: Final = "cores alone"

SIZES: Final = (10, 25, 50, 100)
IDLE_MESSAGES: Final = 100_000
"""About so many are timed at each size."""
SILENT_S: Final = 900.0
"""Longest silence of a worker: a hundred brokers once needed 100 s to join on a slow machine."""
SETTLE_S: Final = 3.0
JOIN_S: Final = 60.0
SWARM_BROKERS: Final = 5
SWARM_SCENARIOS: Final = 4
SWARM_S: Final = 60.0
ALONE_SECONDS: Final = {50: 100.0, 200: 6.0}

RATE: Final = "messages/s"
PACE: Final = "simulated s/s"
COST: Final = "us a message"
PEAK: Final = "peak MB"

TARGETS: Final = (
    Target(IDLE, RATE, "10 brokers", None, 50_000, True),
    Target(IDLE, RATE, "100 brokers", None, 35_000, True),
    Target(IDLE, PACE, "100 brokers", None, 2.0, True),
    Target(IDLE, PEAK, "100 brokers", None, 1024, False),
    Target(IDLE, COST, "100 brokers", "10 brokers", 1.5, False),
    Target(SWARM, "wall s", "five brokers", None, 0.5, False),
)


# --- in the worker's process


def _figures(messages: int, virtual_s: float, wall_s: float) -> Figures:
    return {
        RATE: messages / wall_s,
        COST: wall_s / messages * 1e6,
        PACE: virtual_s / wall_s,
        PEAK: resident_bytes("VmHWM") / 1e6,
    }


@contextmanager
def beating(brokers: int) -> Iterator[World]:
    """A full mesh that has settled and only sends heartbeats."""
    with World(1) as world:
        for number in range(1, brokers + 1):
            known = [world.network.hosts["broker-1"].address] if number > 1 else []
            world.add_node(f"broker-{number}", programs.broker("mangrove", known)).start()
        world.run_until(
            lambda: is_whole(world, world.nodes), timeout_s=JOIN_S, what="a whole mesh", poll_s=1.0
        )
        world.run_for(SETTLE_S)
        yield world


def run_idle(brokers: int, messages: int, report: Report, gate: Any) -> None:
    """Time nothing but heartbeats."""
    with beating(brokers) as world:
        arrived = world.history.counts["data"]
        seconds = max(1.0, float(round(messages / (2 * brokers * (brokers - 1)))))
        began = time.perf_counter()
        world.run_for(seconds)
        wall_s = time.perf_counter() - began
        figures = _figures(world.history.counts["data"] - arrived, seconds, wall_s)
        if world.failures:
            raise BenchError(f"an idle mesh failed: {world.failures[0]}")
    report(figures)


def run_swarm(scenarios: int, report: Report, gate: Any) -> None:
    """Time the generator's first scenarios that have five brokers, each scaled to a minute."""
    walls_s: list[float] = []
    seed = 0
    while len(walls_s) < scenarios:
        seed += 1
        scenario = generate(seed)
        if scenario.brokers == SWARM_BROKERS:
            began = time.perf_counter()
            result = play(scenario, seed=seed)
            walls_s.append((time.perf_counter() - began) * SWARM_S / result.virtual_s)
    report({"wall s": sum(walls_s) / len(walls_s), "at worst": max(walls_s)})


def run_alone(brokers: int, seconds: float, report: Report, gate: Any) -> None:
    """Time production cores at rest: only surveys and answers."""
    field = cores.build(nodes=brokers, seed=1)
    start_all(field)
    field.run_for(SETTLE_S)
    messages = field.messages
    began = time.perf_counter()
    field.run_for(seconds)
    report(_figures(field.messages - messages, seconds, time.perf_counter() - began))


# --- cases


def _alone_in_a_process(function: Callable[..., None], *arguments: Any) -> Figures:
    with workers() as group:
        figures: Figures = group.start(_in_silence, function, *arguments, core=1).hear(SILENT_S)
    return figures


def _in_silence(function: Callable[..., None], *arguments: Any) -> None:
    """Run without the log of brokers that are broken on purpose."""
    logging.disable(logging.CRITICAL)
    function(*arguments)


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All cases; ``scale`` shortens the timed part, not what comes before it."""
    messages = int(IDLE_MESSAGES * scale)
    idle = [
        Case(IDLE, f"{size} brokers", partial(_alone_in_a_process, run_idle, size, messages))
        for size in SIZES
    ]
    swarm = Case(
        SWARM,
        "five brokers",
        partial(_alone_in_a_process, run_swarm, max(1, round(SWARM_SCENARIOS * scale))),
    )
    alone = [
        Case(
            ALONE,
            f"{brokers} brokers",
            partial(_alone_in_a_process, run_alone, brokers, max(1.0, scale * seconds)),
        )
        for brokers, seconds in ALONE_SECONDS.items()
    ]
    return [*idle, swarm, *alone]


# --- the plot

WIDTH, HEIGHT, MARGIN = 480, 300, 50


def plot(outcome: Outcome, path: str) -> None:
    """Draw the cost of a message by the number of brokers as SVG, with the bound of 1.5 times the smallest
    mesh's cost.

    Raises:
        BenchError: there are fewer than two sizes to draw, or the file cannot be written.
    """
    costs = _costs(outcome.medians)
    if len(costs) < 2:
        raise BenchError(f"the plot needs at least two sizes of {IDLE!r}; leave --only out")
    try:
        Path(path).write_text(_svg(costs), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot write the plot to {path}: {error.strerror}") from error


def _costs(medians: Mapping[tuple[str, str], Figures]) -> dict[int, float]:
    return {
        int(system.split()[0]): figures[COST] for (work, system), figures in medians.items() if work == IDLE
    }


def _svg(costs: Mapping[int, float]) -> str:
    bound = 1.5 * costs[min(costs)]
    top = 1.2 * max(bound, *costs.values())

    def x(brokers: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * brokers / max(costs)

    def y(cost: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * cost / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24">wall time of a simulated message, microseconds</text>',
        f'<path d="M{x(0):.0f} {y(top):.0f} V{y(0):.0f} H{x(max(costs)):.0f}" fill="none" stroke="black"/>',
        f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">brokers</text>',
        f'<path d="M{x(0):.0f} {y(bound):.1f} H{x(max(costs)):.0f}" stroke="firebrick"'
        ' stroke-dasharray="5 4"/>',
        f'<text x="{x(max(costs)):.0f}" y="{y(bound) - 6:.1f}" text-anchor="end" fill="firebrick">1.5 times'
        f" the cost at {min(costs)} brokers</text>",
    ]
    points = [(x(brokers), y(cost)) for brokers, cost in sorted(costs.items())]
    line = " L".join(f"{px:.1f} {py:.1f}" for px, py in points)
    parts.append(f'<path d="M{line}" fill="none" stroke="seagreen" stroke-width="2"/>')
    for (px, py), (brokers, cost) in zip(points, sorted(costs.items()), strict=True):
        parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="seagreen"/>')
        parts.append(f'<text x="{px:.1f}" y="{py + 20:.1f}" text-anchor="middle">{cost:.0f}</text>')
        parts.append(f'<text x="{px:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{brokers}</text>')
    return "\n".join([*parts, "</svg>", ""])
