"""Rules for every kind of fault of links and connections, including future kinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulations.faults import KINDS
from simulations.kernel.network import LAN, Link
from simulations.world import World
from tests.simulations.echoing import Echo, Recorder, dial, serve, wait_exposed

HOSTS = ("one", "two", "three", "four")
OF_LINKS = [kind.name for kind in KINDS.values() if kind.of == "links" and kind.name != "heal"]
MORE: dict[str, dict[str, Any]] = {
    "slow_link": {"jitter_s": 0.05, "shape": "lognormal", "tail": 0.1, "tail_s": 1},
    "flip_flop": {"on_s": 1, "off_s": 0.5},
    "rolling_partition": {"value": 1},
    "swizzle": {"value": 3},
    "reset_storm": {"value": 3},
}


def talking(seed: int = 1) -> World:
    """Four hosts with a server each, and a client of the next one's."""
    world = World(seed)
    for name in HOSTS:
        world.add_node(name, serve(Echo)).start()
    world.run_for(0.1)
    for number, name in enumerate(HOSTS):
        world.add_node(f"client-{name}", dial(HOSTS[number - 1]), host=name).start()
    wait_exposed(world, *(f"client-{name}" for name in HOSTS))
    return world


def talk(world: World, seconds: int) -> None:
    for _ in range(seconds * 10):
        for name in HOSTS:
            client: Recorder = world.node(f"client-{name}").exposed
            client.transport.write(name.encode())
        world.run_for(0.1)


def inject(world: World, kind: str, for_s: float | None = None) -> None:
    options = {**MORE.get(kind, {})}
    if KINDS[kind].lasting:
        options["for_s"] = for_s
    world.inject(kind, ["one", "two"], **options)


def marks(link: Link) -> tuple[object, ...]:
    """Everything that can be done to a link."""
    pristine = LAN.latency_s * 1e9 <= link.delay_ns() <= (LAN.latency_s + LAN.jitter_s) * 1e9
    arrives_ns = link.arrival_ns(1_000_000)
    quick = arrives_ns is not None and arrives_ns - link.scheduler.now_ns < 1e6
    lists = (link.clogs, link.held, link.dialling, link.unheard, link.portions, link._lumps_ns)
    return (link.up, link.is_cut, link.lossy, pristine, quick, *map(len, lists))


@pytest.mark.parametrize("kind", OF_LINKS)
@pytest.mark.parametrize("healed", [False, True])
def test_the_end_of_each_fault_leaves_all_links_untouched_and_new_dials_succeed(
    kind: str, healed: bool
) -> None:
    untouched = (True, False, False, True, True, 0, 0, 0, 0, 0, 0)
    with talking() as world:
        inject(world, kind, None if healed else 5)
        talk(world, 4)
        if healed:
            world.heal()
        world.run_for(6)
        assert world.ongoing.faults() == []
        hosts = list(world.network.hosts.values())
        links = [world.network.link(one, other) for one in hosts for other in hosts if one is not other]
        assert [marks(link) for link in links] == [untouched] * len(links)
        for number, name in enumerate(HOSTS):
            world.add_node(f"late-{name}", dial(HOSTS[number - 1]), host=name).start()
        world.run_for(0.1)
        late = [world.node(f"late-{name}").exposed for name in HOSTS]
        for recorder in late:
            recorder.transport.write(b"hello")
        world.run_for(0.1)
        assert [recorder.data for recorder in late] == [b"hello"] * 4
        assert not world.failures


@pytest.mark.parametrize("kind", OF_LINKS)
def test_received_data_is_always_a_prefix_of_the_sent_data(kind: str) -> None:
    with talking() as world:
        inject(world, kind, 5)
        talk(world, 8)
        world.run_for(400)
        for name in HOSTS:
            client: Recorder = world.node(f"client-{name}").exposed
            whole = name.encode() * 80
            assert whole.startswith(client.data)
            if client.events == ["made"]:
                assert client.data == whole


def hash_of_all() -> str:
    """The history of a world in which every kind strikes, one after the other."""
    with talking(7) as world:
        for kind in OF_LINKS:
            inject(world, kind, 1.5)
            talk(world, 1)
        world.heal()
        talk(world, 1)
        return world.history.digest


def test_all_kinds_together_give_the_same_history_in_another_process_with_another_hash_seed() -> None:
    code = "from tests.simulations.faults.test_every_link_kind import hash_of_all; print(hash_of_all())"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    assert found == [hash_of_all()] * 2
