"""Faults of disks: jobs fail or take long, syncs have no effect, files are torn, flipped and lost."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from simulations.world import Process, World
from tests.simulations.faults.meshes import all_alive, identity, inspect, mesh, states

STATE = "/state/broker-2/identity.json"


async def writing(process: Process) -> None:
    """Syncs a line every 10 ms and exposes the outcomes: the errno, or 0, and the duration."""
    process.exposed = []
    loop = asyncio.get_running_loop()
    await process.storage.make_folder("/log")
    while not process.stopping.is_set():
        began = loop.time()
        try:
            await process.storage.append("/log/a", b"line\n", sync=True)
            process.exposed.append((0, loop.time() - began))
        except OSError as error:
            process.exposed.append((error.errno, loop.time() - began))
        await asyncio.sleep(0.01)


def one_writer(seed: int = 1) -> World:
    world = World(seed)
    world.add_node("alpha", writing).start()
    world.run_for(0.1)
    return world


def since(world: World, number: int) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = world.node("alpha").exposed[number:]
    return found


def test_a_share_of_the_jobs_fails_until_the_fault_is_over() -> None:
    with one_writer() as world:
        world.inject("disk_fault", ["alpha"], value=errno.ENOSPC, share=0.5, for_s=5)
        world.run_for(4.9)
        done = len(since(world, 0))
        failed = sum(code == errno.ENOSPC for code, _ in since(world, 0))
        assert 0.3 < failed / done < 0.7
        world.run_for(1)
        assert all(code == 0 for code, _ in since(world, done + 10))


def test_the_end_of_a_fault_of_one_disk_changes_nothing_of_another() -> None:
    with World(1) as world:
        for name in ("alpha", "beta"):
            world.add_node(name, writing)
        world.inject("disk_fault", ["alpha", "beta"], value=errno.ENOSPC)
        world.inject("disk_fault", ["beta"], value=errno.EIO)
        world.inject("disk_fault", ["alpha"], value=errno.EIO, for_s=1)
        world.run_for(2)
        assert [world.disk(name).fault for name in ("alpha", "beta")] == [errno.ENOSPC, errno.EIO]


def test_the_end_of_one_fault_of_a_disk_leaves_another_in_effect() -> None:
    with one_writer() as world:
        world.inject("disk_fault", ["alpha"], value=errno.ENOSPC)
        world.inject("disk_fault", ["alpha"], for_s=1)
        world.run_for(0.5)
        assert since(world, -1)[0][0] == errno.EIO
        world.run_for(1)
        assert since(world, -1)[0][0] == errno.ENOSPC
        world.heal()
        world.run_for(0.1)
        assert since(world, -1)[0][0] == 0


def test_a_slow_disk_takes_longer_for_synced_operations_only() -> None:
    with one_writer() as world:
        done = len(since(world, 0))
        world.inject("slow_disk", ["alpha"], value=0.5, for_s=10)
        world.run_for(8)
        slow = since(world, done + 1)
        assert 14 <= len(slow) <= 16 and all(0.5 <= took_s < 0.52 for _, took_s in slow)
        world.run_for(4)
        assert since(world, -1)[0][1] < 0.01


def test_a_power_loss_takes_synced_data_of_a_lying_disk_and_restores_old_files() -> None:
    async def replacing(process: Process) -> None:
        await process.storage.make_folder("/state")
        for number in range(100):
            await process.storage.write_atomic("/state/file", b"%03d" % number)
            await process.storage.append("/state/log", b"%03d" % number, sync=True)
            process.exposed = number
            await asyncio.sleep(0.01)

    def left(*, lying: bool, honest_again: bool = False, seed: int) -> tuple[int, int, int]:
        with World(seed) as world:
            node = world.add_node("alpha", replacing)
            node.start()
            world.run_for(0.3)
            if lying:
                world.inject("lying_disk", ["alpha"], for_s=0.2 if honest_again else None)
            world.run_for(0.25)
            done = node.exposed
            world.inject("power_off", ["alpha"])
            disk = world.disk("alpha")
            return (
                done,
                int(bytes(disk.files["/state/file"].content)),
                len(disk.files["/state/log"].content) // 3,
            )

    seeds = range(8)
    for seed in seeds:
        done, file, log = left(lying=False, seed=seed)
        assert file >= done and log > done
    lied = [left(lying=True, seed=seed) for seed in seeds]
    assert any(file < done - 5 for done, file, _ in lied) and any(log < done - 5 for done, _, log in lied)
    for seed in seeds:
        done, file, log = left(lying=True, honest_again=True, seed=seed)
        assert file >= done - 7 and log >= done - 7  # data cached when it became honest is safe


def test_a_disk_lies_until_the_last_such_fault_is_over() -> None:
    with one_writer() as world:
        world.inject("lying_disk", ["alpha"], for_s=1)
        world.inject("lying_disk", ["alpha"], for_s=3)
        world.run_for(2)
        file = world.disk("alpha").files["/log/a"]
        assert file.durable < len(file.content) - 100
        world.run_for(2)
        assert file.durable >= len(file.content) - len(b"line\n")


def test_a_share_of_the_syncs_fails_until_the_last_such_fault_is_over() -> None:
    with one_writer() as world:
        done = len(since(world, 0))
        world.inject("failing_syncs", ["alpha"], value=0.5, for_s=4)
        world.run_for(2)
        failed = [code == errno.EIO for code, _ in since(world, done)]
        assert 0.3 < sum(failed) / len(failed) < 0.7
        world.inject("failing_syncs", ["alpha"], for_s=1)
        done = len(since(world, 0))
        world.run_for(0.9)
        assert {code for code, _ in since(world, done + 1)} == {errno.EIO}
        world.run_for(1)
        assert world.disk("alpha").failing_syncs == 0.5
        world.run_for(1)
        assert since(world, -1)[0][0] == 0


def test_data_of_a_failed_sync_can_be_read_until_a_power_loss() -> None:
    taken = 0
    for seed in range(8):
        with one_writer(seed) as world:
            world.inject("failing_syncs", ["alpha"])
            world.run_for(0.2)
            file = world.disk("alpha").files["/log/a"]
            written, durable = len(file.content), file.durable
            assert written - durable > 50
            world.inject("power_off", ["alpha"])
            assert durable <= len(file.content) <= written
            taken += len(file.content) < written
    assert taken > 5


def test_a_disk_is_full_at_its_size_until_the_fault_ends() -> None:
    with one_writer() as world:
        disk, file = world.disk("alpha"), world.disk("alpha").files["/log/a"]
        world.inject("full_disk", ["alpha"], value=len(file.content) + 50, for_s=4)
        done = len(since(world, 0))
        world.run_for(1)
        codes = [code for code, _ in since(world, done)]
        assert codes[:9] == [0] * 9 and set(codes[12:]) == {errno.ENOSPC}
        world.inject("full_disk", ["alpha"], for_s=1)
        assert disk.size_max == 0
        world.run_for(2)
        assert disk.size_max is not None and disk.size_max > 50
        assert since(world, -1)[0][0] == errno.ENOSPC
        world.run_for(1.1)
        assert disk.size_max is None and since(world, -1)[0][0] == 0


@pytest.mark.parametrize("kind", ["torn_file", "flipped_bits", "lost_files"])
def test_damage_affects_the_named_files_on_the_named_host(kind: str) -> None:
    with mesh() as world:
        disks = {name: world.disk(name) for name in world.nodes}
        before = {name: disk.under("/") for name, disk in disks.items()}
        world.inject(kind, ["broker-2"])
        after = {name: disk.under("/") for name, disk in disks.items()}
        changed = [
            path for path in before["broker-2"] if before["broker-2"][path] != after["broker-2"].get(path)
        ]
        lock = "/state/broker-2/lock"
        assert [path for path in changed if path != lock] == [STATE]
        assert after["broker-1"] == before["broker-1"]
        world.inject(kind, ["broker-1"], files="log")
        after = {name: disk.under("/") for name, disk in disks.items()}
        changed = [
            path for path in before["broker-1"] if before["broker-1"][path] != after["broker-1"].get(path)
        ]
        assert changed and all(path.startswith("/log/") for path in changed)


def test_bytes_are_cut_off_the_end_and_single_bits_are_flipped() -> None:
    with mesh() as world:
        file = world.disk("broker-2").files[STATE]
        before = bytes(file.content)
        world.inject("flipped_bits", ["broker-2"], value=3)
        differing = sum(
            (one ^ other).bit_count() for one, other in zip(before, bytes(file.content), strict=True)
        )
        assert differing in (1, 3)  # one of them may be flipped back
        content = bytes(file.content)
        world.inject("torn_file", ["broker-2"], value=7)
        assert bytes(file.content) == content[:-7] and file.durable == len(content) - 7


def test_a_broker_without_its_state_folder_continues_and_reports_the_unsaved_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with mesh() as world:
        world.inject("lost_files", ["broker-2"])
        world.inject("forged_dead", ["broker-2"])
        world.run_for(5)
        assert all_alive(world)
        assert "cannot save /state/broker-2/identity.json" in caplog.text
        assert STATE not in world.disk("broker-2").files


def test_a_broker_continues_while_its_disk_is_broken_and_saves_when_it_works_again() -> None:
    with mesh() as world:
        world.inject("disk_fault", ["broker-2"], for_s=5)
        world.inject("forged_dead", ["broker-2"])  # it has a new incarnation to save
        world.run_for(4)
        assert all_alive(world)
        assert json.loads(bytes(world.disk("broker-2").files[STATE].content))["incarnation"] == 1
        world.run_for(4)
        assert json.loads(bytes(world.disk("broker-2").files[STATE].content))["incarnation"] == 2


def test_a_broker_on_a_slow_disk_keeps_its_rounds() -> None:
    with mesh() as world:
        world.inject("slow_disk", ["broker-2"], value=3)
        world.run_for(10)
        assert all_alive(world)
        assert not any(inspect(world, "broker-2").peering.void_rounds.values())


def test_a_broker_that_finds_its_state_torn_takes_a_new_id() -> None:
    with mesh() as world:
        old = identity(world, "broker-2")
        world.inject("crash", ["broker-2"])
        world.inject("torn_file", ["broker-2"])
        world.inject("start", ["broker-2"])
        world.run_for(5)
        assert identity(world, "broker-2") != old
        assert states(world, "broker-1")["broker-2"] == "alive"


def logged(world: World, name: str) -> list[list[int]]:
    """The numbers of the rows that each life of a broker has on its disk, in the order of its files."""
    lives: dict[str, list[int]] = {}
    for content in world.disk(name).under("/log").values():
        for line in content.split(b"\n")[:-1]:
            row = json.loads(line)
            lives.setdefault(row["boot"], []).append(row["seq"])
    return list(lives.values())


def whole(rows: list[int]) -> bool:
    return bool(rows) and rows == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_rows_that_a_disk_refused_are_in_the_log_once_and_in_order_when_it_works_again(
    code: int, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    with mesh() as world:
        world.inject("disk_fault", ["broker-2"], value=code, share=share, for_s=5)
        world.run_for(4.9)
        during = max(logged(world, "broker-2")[0])
        world.run_for(3)
        assert all_alive(world)
        [rows] = logged(world, "broker-2")
        assert whole(rows) and len(rows) > during + 5
    assert "rows wait, trying again" in caplog.text


def test_a_slow_disk_does_not_delay_the_unsynced_log() -> None:
    with mesh() as world:
        world.inject("slow_disk", ["broker-2"], value=3)
        world.run_for(5)
        [before] = logged(world, "broker-2")
        world.run_for(1.5)
        assert whole(before) and len(logged(world, "broker-2")[0]) > len(before)


@pytest.mark.parametrize("kind", ["crash", "power_off"])
def test_a_dead_broker_leaves_the_beginning_of_its_log_and_its_next_life_writes_another_file(
    kind: str,
) -> None:
    left = []
    for seed in range(6):
        with mesh(seed=seed) as world:
            world.run_for(2)
            written = len(logged(world, "broker-2")[0])
            world.inject(kind, ["broker-2"])
            lives = logged(world, "broker-2")
            assert all(whole(rows) for rows in lives)
            left.append((len(lives[0]) if lives else 0) / written)
            world.inject("start", ["broker-2"])
            world.run_for(5)
            assert all_alive(world)
            after = logged(world, "broker-2")
            assert len(after) == len(lives) + 1 and all(whole(rows) for rows in after)
    assert min(left) < 0.9 if kind == "power_off" else min(left) >= 1


def test_a_torn_log_loses_the_row_at_its_end_and_the_one_that_is_written_behind_it() -> None:
    with mesh() as world:
        world.inject("torn_file", ["broker-2"], files="log", value=10)
        [before] = logged(world, "broker-2")
        world.run_for(3)
        lines = next(iter(world.disk("broker-2").under("/log").values())).split(b"\n")[:-1]
        sound = []
        for line in lines:
            try:
                sound.append(json.loads(line)["seq"])
            except ValueError:
                continue
        assert len(lines) == len(sound) + 1
        assert [number for number in range(1, max(sound) + 1) if number not in sound] == [
            len(before) + 1,
            len(before) + 2,
        ]


def test_a_broker_that_lost_power_while_its_disk_lied_returns_with_its_id() -> None:
    """With an older incarnation, which it raises to the others' record of it."""
    for seed in range(4):
        with mesh(seed=seed) as world:
            old = identity(world, "broker-2")
            world.inject("lying_disk", ["broker-2"])
            for _ in range(3):
                world.inject("forged_dead", ["broker-2"])
                world.run_for(2)
            known = inspect(world, "broker-2").incarnation
            world.inject("power_off", ["broker-2"])
            world.inject("start", ["broker-2"])
            world.run_for(8)
            assert identity(world, "broker-2") == old
            assert all_alive(world)
            assert inspect(world, "broker-2").incarnation >= known
