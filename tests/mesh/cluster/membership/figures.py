"""The figures of docs/design/membership.md: ``python -m tests.mesh.cluster.membership.figures``.

Times from the fault, or its end, to the outcome at the last of five brokers, in virtual time, over 60 seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Final

from tests.mesh.cluster.membership.world import World

SEEDS: Final = range(60)
BROKERS: Final = 5
STEP_S: Final = 0.02


def _mesh(seed: int, then_s: float) -> World:
    world = World(seed)
    world.mesh(BROKERS)
    world.run(then_s)
    return world


def killed(seed: int, *, silent: bool) -> float:
    world = _mesh(seed, 3 + seed / 12)
    world.crash(3, silent=silent)
    return world.run_until(lambda: all(each.states()[3] == "dead" for each in world.live()), 6, STEP_S)


def paused(seed: int) -> float:
    world = _mesh(seed, 2 + seed / 10)
    world.pause(4)
    world.run(6)
    world.resume(4)
    return world.run_until(world.converged, 10, STEP_S)


def split(seed: int, side: list[int], for_s: float) -> float:
    world = _mesh(seed, 2)
    world.split(side, [id for id in range(1, BROKERS + 1) if id not in side])
    world.run(for_s)
    world.heal()
    return world.run_until(world.converged, 30, STEP_S)


FAULTS: Final[dict[str, Callable[[int], Iterable[float]]]] = {
    "kill, or loss of the host": lambda seed: [killed(seed, silent=silent) for silent in (False, True)],
    "pause of 6 s": lambda seed: [paused(seed)],
    "split 2 to 3 for 15 s": lambda seed: [split(seed, [1, 2], 15)],
    "one cut off for 30 s": lambda seed: [split(seed, [2], 30)],
}


def main() -> None:
    for fault, took in FAULTS.items():
        times = [each for seed in SEEDS for each in took(seed)]
        print(f"{fault}: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")


if __name__ == "__main__":
    main()
