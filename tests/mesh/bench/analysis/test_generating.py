"""Generated logs are rows of the event log, numbered without a gap, and include the truth."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mesh.bench.analysis.generating import Truth, invent, name_of, write_logs, write_now
from mesh.eventlog.rows import KINDS

SEED = 3


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Truth, dict[str, list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("ring")
    truth = write_logs(folder, invent(12, 4, 120, SEED), SEED)
    return truth, {path.name: read(path) for path in sorted(folder.iterdir())}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_is_a_row_of_the_event_log(
    logs: tuple[Truth, dict[str, list[dict[str, Any]]]],
) -> None:
    for rows in logs[1].values():
        for row in rows:
            msgspec.convert(row, KINDS[row["kind"]])


def test_rows_are_numbered_without_a_gap_in_the_order_of_time(
    logs: tuple[Truth, dict[str, list[dict[str, Any]]]],
) -> None:
    for rows in logs[1].values():
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert [row["mono_ns"] for row in rows] == sorted(row["mono_ns"] for row in rows)


def test_a_crash_ends_a_file_and_begins_another(
    logs: tuple[Truth, dict[str, list[dict[str, Any]]]],
) -> None:
    truth, files = logs
    boots = Counter(name.rsplit("-", 2)[0] for name in files)
    crashed = {name_of(crash.broker) for crash in truth.crashes}
    assert {name for name, count in boots.items() if count == 2} == crashed
    stops = sum(row.get("op") == "stop" for rows in files.values() for row in rows)
    assert stops == truth.brokers, "a crash leaves no stop row"


def test_no_heartbeat_comes_from_the_dead_or_across_the_cut(
    logs: tuple[Truth, dict[str, list[dict[str, Any]]]],
) -> None:
    truth, files = logs
    ids = {
        rows[0]["node"]: number
        for number in range(truth.brokers)
        for name, rows in files.items()
        if name.startswith(f"{name_of(number)}-")
    }
    beats = [row for rows in files.values() for row in rows if row["kind"] == "hb"]
    assert len(beats) == truth.heartbeats
    for row in beats:
        second, ends = row["hb_seq"], (ids[row["src"]], ids[row["dst"]])
        assert not any(crash.at <= second < crash.back and crash.broker in ends for crash in truth.crashes)
        if truth.cut_at <= second < truth.healed:
            assert (ends[0] in truth.cut_off) == (ends[1] in truth.cut_off)


def test_rows_written_in_real_time_equal_those_written_at_once_except_for_the_clock(tmp_path: Path) -> None:
    truth = invent(6, 2, 120, SEED)
    whole = write_logs(tmp_path / "whole", truth, SEED)
    waited: list[float] = []
    beats = write_now(tmp_path / "now", truth, SEED, 1000, lambda at: waited.append(at) is None)
    assert beats == whole.heartbeats and waited == [float(1001 + second) for second in range(120)]
    for path in (tmp_path / "whole").iterdir():
        written = read(tmp_path / "now" / f"{path.name}.part")
        assert [{**row, "ts": ""} for row in written] == [{**row, "ts": ""} for row in read(path)]


@pytest.mark.parametrize("wrong", [(10, 3, 120), (4, 4, 120), (10, 4, 20)])
def test_a_mesh_in_which_nothing_can_happen_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        invent(*wrong, SEED)
