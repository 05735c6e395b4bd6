"""Logs and truth in files: written during a run, and at the end equal to the disks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from simulations import Mesh, World
from simulations.evidence.truth import LogWriter, log_files
from simulations.kernel.file_content import FileContent
from simulations.kernel.files import File
from simulations.kernel.storage import LOG_FOLDER
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load

LOG = f"{LOG_FOLDER}/broker-1-00-0.jsonl"


def writer(world: World, folder: Path) -> LogWriter:
    return LogWriter(world, str(folder), run="run-1", scenario="mine")


def logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("truth-")}


def truth(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "truth-mine-1.jsonl").read_text().splitlines()]


async def nothing(process: Any) -> None:
    await process.stopping.wait()


def test_logs_of_brokers_are_in_files_while_they_run(tmp_path: Path) -> None:
    with World(1) as world:
        writing = writer(world, tmp_path)
        Mesh(world, brokers=2)
        world.run_for(2)
        writing.write()
        early = logs(tmp_path)
        assert early == log_files(world)
        assert len(early) == 2
        world.run_for(5)
        writing.write()
        later = logs(tmp_path)
        assert later == log_files(world)
        for name, content in early.items():
            assert later[name].startswith(content)
            assert len(later[name]) > len(content)


def test_a_log_that_is_complete_loses_its_ending(tmp_path: Path) -> None:
    with World(1) as world:
        world.add_node("broker-1", nothing)
        files = world.disk("broker-1").files
        files[LOG + ".part"] = File(FileContent(b"one\n"), 4)
        writing = writer(world, tmp_path)
        writing.write()
        assert logs(tmp_path) == {"broker-1-00-0.jsonl.part": b"one\n"}
        files[LOG] = files.pop(LOG + ".part")
        files[LOG].content.append(b"two\n")
        writing.write()
        assert logs(tmp_path) == {"broker-1-00-0.jsonl": b"one\ntwo\n"}


@pytest.mark.parametrize("damage", ["torn", "flipped", "lost"])
def test_the_final_copies_equal_the_files_on_the_disks(tmp_path: Path, damage: str) -> None:
    with World(1) as world:
        world.add_node("broker-1", nothing)
        disk = world.disk("broker-1")
        disk.files[LOG] = File(FileContent(b"one\ntwo\n"), 8)
        disk.files[LOG_FOLDER + "/other"] = File(FileContent(b"other\n"), 6)
        writing = writer(world, tmp_path)
        writing.write()
        if damage == "torn":
            disk.tear(LOG, 3)
            disk.files[LOG].content.append(b"three\n")
        elif damage == "flipped":
            disk.flip(LOG, random.Random(1))
        else:
            del disk.files[LOG]
        assert writing.finish() == len(log_files(world)) + 1
        assert logs(tmp_path) == log_files(world)
        assert logs(tmp_path).get("broker-1-00-0.jsonl") != b"one\ntwo\n"


def test_truth_has_each_fault_with_its_numbers_and_its_end(tmp_path: Path) -> None:
    with World(1) as world:
        writing = writer(world, tmp_path)
        for name in ("a", "b", "c"):
            world.add_node(name, nothing)
        world.inject("start", ["a", "b", "c"])
        world.inject("slow_link", ["a"], ["b"], 0.2, for_s=3, jitter_s=0.1)
        world.inject("partition", ["a"])
        writing.write()
        world.run_for(2)
        world.inject("crash", ["c"])
        world.run_for(2)
        world.heal()
        writing.write()
    rows = truth(tmp_path)
    assert [(row["op"], row["of"], row["a"]) for row in rows] == [
        ("start", "start", "a,b,c"),
        ("slow_link", "slow_link", "a"),
        ("cut", "partition", "a"),
        ("crash", "crash", "c"),
        ("ended", "crash", "c"),
        ("end", "slow_link", "a"),
        ("end", "partition", "a"),
        ("end", "crash", "c"),
        ("restart", "start", "c"),
        ("heal", "heal", ""),
    ]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["mono_ns"] for row in rows] == sorted(row["mono_ns"] for row in rows)
    slow, cut = rows[1], rows[2]
    assert (slow["value"], slow["for_s"], slow["more"]["jitter_s"]) == (0.2, 3, 0.1)
    assert (cut["b"], cut["for_s"], cut["run"], cut["seed"]) == ("b,c", None, "run-1", 1)


def test_truth_has_the_end_of_each_process_before_its_next_life(tmp_path: Path) -> None:
    """A change of settings ends and starts processes in one moment, and no row said that they had ended."""
    with World(1) as world:
        writing = writer(world, tmp_path)
        for name in ("a", "b"):
            world.add_node(name, nothing)
        world.inject("start", ["a", "b"])
        world.run_for(1)
        world.inject("stop", ["a"])
        world.inject("restart", ["b"], value=0.001)
        world.run_for(1)
        writing.write()
    assert [(row["op"], row["of"], row["a"]) for row in truth(tmp_path)] == [
        ("start", "start", "a,b"),
        ("stop", "stop", "a"),
        ("restart", "restart", "b"),
        ("ended", "crash", "b"),
        ("ended", "stop", "a"),
        ("restart", "start", "b"),
    ]


def test_truth_names_both_sides_of_faults_of_links(tmp_path: Path) -> None:
    with World(1) as world:
        writing = writer(world, tmp_path)
        for name in ("a", "b", "c"):
            world.add_node(name, nothing)
        world.inject("cut_one_way", ["a"])
        world.inject("clog", [], ["c"])
        world.inject("isolate", ["b"])
        writing.write()
    assert [(row["a"], row["b"]) for row in truth(tmp_path)] == [("a", "b,c"), ("a,b", "c"), ("b", "")]


def test_an_interrupted_run_leaves_its_logs_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(play: Play) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Play, "_safety_phase", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Play(load("calm"), seed=1, out=str(tmp_path)).run()
    kinds = {json.loads(line)["kind"] for log in logs(tmp_path).values() for line in log.splitlines()}
    assert {"meta", "mem", "hb"} <= kinds
    first = (tmp_path / "truth-calm-1.jsonl").read_text().splitlines()[0]
    assert (json.loads(first)["op"], json.loads(first)["a"]) == ("start", "broker-1")
