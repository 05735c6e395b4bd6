"""Old files of the event log are removed only if configured, and nothing else ever is."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from mesh.broker.log_retention import ABANDONED_S, Retention, outdated, remove_old
from mesh.storage import StoredFile
from simulations import Mesh, World
from tests.mesh.faulty_storage import FaultyStorage

BOOT, FORMER = "00000000000000b2", "00000000000000b1"
STEM = f"alpha-{BOOT}"
DAY_S = 86_400.0


def file(number: int, age_s: float, size: int = 100, *, boot: str = FORMER, end: str = "") -> StoredFile:
    return StoredFile(f"alpha-{boot}-{number}.jsonl{end}", size, age_s)


def test_no_file_is_removed_without_a_configured_retention() -> None:
    assert outdated([file(0, 1e9), file(1, 1e8, 1 << 40)], STEM, Retention()) == []


def test_files_beyond_an_age_are_removed() -> None:
    files = [file(0, 3 * DAY_S), file(1, 2 * DAY_S), file(2, DAY_S), file(0, 0.0, boot=BOOT)]
    assert outdated(files, STEM, Retention(age_s=1.5 * DAY_S)) == [files[0].name, files[1].name]


def test_the_newest_files_are_kept_up_to_a_size() -> None:
    files = [file(0, 30.0), file(1, 20.0), file(2, 10.0), file(0, 0.0, 50, boot=BOOT, end=".part")]
    assert outdated(files, STEM, Retention(bytes_max=260)) == [files[0].name]
    assert outdated(files, STEM, Retention(bytes_max=10)) == [file.name for file in files[:3]]


def test_the_file_that_grows_stays_and_one_of_a_killed_run_goes() -> None:
    own = file(3, 9 * DAY_S, boot=BOOT, end=".part")
    fresh = file(0, ABANDONED_S / 2, end=".part")
    left = file(1, 9 * DAY_S, end=".part")
    assert outdated([own, fresh, left], STEM, Retention(age_s=1.0)) == [left.name]


def test_files_of_other_brokers_and_other_programs_stay() -> None:
    names = [
        f"beta-{FORMER}-0.jsonl",
        f"alpha-two-{FORMER}-0.jsonl",
        f"xalpha-{FORMER}-0.jsonl",
        f"alpha-{FORMER}-0.jsonl.gz",
        "alpha-notes.jsonl",
        f"alpha-{FORMER}-.jsonl",
        "truth-1.jsonl",
    ]
    others = [StoredFile(name, 1, 1e9) for name in names]
    assert outdated(others, STEM, Retention(age_s=1.0, bytes_max=1)) == []


async def test_a_failure_to_remove_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(FaultyStorage):
        async def remove(self, path: str) -> None:
            raise PermissionError(13, "Permission denied")

    storage = Refusing()
    path = f"/log/{file(0, 0).name}"
    storage.contents[path], storage.ages[path] = b"x", DAY_S
    with caplog.at_level(logging.WARNING):
        await remove_old(storage, "/log", STEM, Retention(age_s=1.0))
    assert "cannot remove old files in /log (Permission denied)" in caplog.text and path in storage.contents


def test_a_broker_removes_its_old_logs_at_its_start_and_while_it_runs() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        old = f"/log/broker-1-{FORMER}-0.jsonl"
        other = f"/log/broker-2-{FORMER}-0.jsonl"
        disk = world.disk("broker-1")
        for path in (old, other):
            disk.append(path, b"{}\n", True)
        world.run_for(700)
        assert disk.under("/log").keys() >= {old, other}, "nobody asked"
        broker = mesh.broker("broker-1")
        assert broker.reload(replace(broker.options, log_keep_days=0.005)).replaced == ("log_keep_days",)
        world.run_for(700)
        files = disk.under("/log")
        assert old not in files and other in files
        assert any(path.endswith(".part") for path in files)
