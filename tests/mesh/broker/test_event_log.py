"""Rows reach the disk within a second, complete and in order, and never delay the broker."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mesh.broker import event_log, log_rows
from mesh.broker.event_log import FLUSH_PAUSE_S, EventLog, LogStatus, stem_of
from mesh.broker.log_rows import Heard, RowBuilder, link_fields, member_fields
from mesh.errors import StorageError
from mesh.eventlog.rows import ROUND_MAX, SEQ_MAX, HbRow, LinkRow, MemRow, MetaRow, StatsRow, decode
from mesh.storage import Storage, ThreadStorage
from simulations import Mesh, World
from tests.mesh.faulty_storage import FaultyStorage
from tests.support.waiting import until

NODE, BOOT = 0xA1, 0xB2
IDS = st.integers(0, 2**64 - 1)
UP = link_fields(peer=5, dialed=True, up=True, reason="admitted")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(
    storage: Storage,
    folder: str | None = "/log",
    clock: Clock | None = None,
    summary_of_s: float | None = None,
) -> EventLog:
    rows = RowBuilder(run="mangrove", node=NODE, boot=BOOT)
    return EventLog(
        rows,
        folder=folder,
        file_stem=f"alpha-{BOOT:016x}",
        storage=storage,
        clock=clock or Clock(),
        wall_time=lambda: 1_700_000_000.25,
        summary_of_s=summary_of_s,
    )


def rows_of(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def test_every_row_has_the_common_columns_and_its_own() -> None:
    rows = RowBuilder(run="mangrove", node=NODE, boot=BOOT)
    rows.incarnation = 3
    fields = member_fields(
        subject=5,
        name="bravo",
        boot=6,
        incarnation=2,
        from_state="alive",
        to_state="suspect",
        reason="missed round 4",
        via=NODE,
    )
    row = rows.row(MemRow, fields, now=1.5, wall=1_700_000_000.25)
    assert msgspec.to_builtins(row) == {
        "v": 1,
        "run": "mangrove",
        "ts": "2023-11-14T22:13:20.250000Z",
        "mono_ns": 1_500_000_000,
        "node": "00000000000000a1",
        "boot": "00000000000000b2",
        "inc": 3,
        "seq": 1,
        "kind": "mem",
        "subject": "0000000000000005",
        "subject_name": "bravo",
        "subject_boot": "0000000000000006",
        "subject_inc": 2,
        "from_state": "alive",
        "to_state": "suspect",
        "reason": "missed round 4",
        "via": "00000000000000a1",
    }
    assert rows.row(MetaRow, {"op": "stop"}, now=2, wall=2).seq == 2


def test_surveys_have_no_round_trip_time_and_answers_have() -> None:
    rows = RowBuilder(run="mangrove", node=NODE, boot=BOOT)
    heard: list[str | Heard] = [(True, 5, 9, None, 1, 0, 1, 2), (False, 5, 9, 0.0012345, 2, 0, 1, 2)]
    survey, answer = map(json.loads, rows.lines(heard))
    assert (survey["msg"], survey["rtt_us"]) == ("survey", None)
    assert (answer["msg"], answer["rtt_us"], answer["hb_seq"]) == ("answer", 1235, 9)
    assert link_fields(peer=5, dialed=True, up=False, reason="closed")["dir"] == "out"


@given(
    run=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    survey=st.booleans(),
    source=IDS,
    number=st.integers(0, ROUND_MAX),
    rtt_s=st.none() | st.floats(0, 1e6),
    seq=st.integers(1, SEQ_MAX),
    incarnation=st.integers(0, 2**63 - 1),
    now=st.floats(0, 1e9),
    wall=st.floats(0, 4e9),
)
@example("mangrove", False, 5, 9, 0.0012345, 1, 7, 1.5, 1_700_000_000.9999999)
@example("mangrove", True, 5, 9, None, 1, 7, 1.5, 3.000007)
@example('a "quoted" mesh, mangué', True, 5, 9, None, 1, 7, 1.5, 4.099999)
def test_a_heartbeat_written_by_hand_is_the_row_that_is_defined(
    run: str,
    survey: bool,
    source: int,
    number: int,
    rtt_s: float | None,
    seq: int,
    incarnation: int,
    now: float,
    wall: float,
) -> None:
    rows = RowBuilder(run=run, node=NODE, boot=BOOT)
    rows.incarnation, rows.seq = incarnation, seq - 1
    fields = {
        "msg": "survey" if survey else "answer",
        "src": f"{source:016x}",
        "dst": f"{NODE:016x}",
        "hb_seq": number,
        "rtt_us": None if rtt_s is None else int(rtt_s * 1e6 + 0.5),
    }
    (line,) = rows.lines([(survey, source, number, rtt_s, seq, incarnation, now, wall)])
    assert decode(line) == rows.row(HbRow, fields, now=now, wall=wall)


@pytest.mark.parametrize("wall", [0.0, 2.0, 3.000007, 4.099999, 5.1, 1_700_000_000.25, 1_700_000_000.1234565])
def test_the_time_of_a_row_is_that_of_the_wall_clock_in_utc(wall: float) -> None:
    (line,) = RowBuilder(run="mangrove", node=NODE, boot=BOOT).lines([(True, 5, 9, None, 1, 7, 1.5, wall)])
    assert decode(line).ts == datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_members_beyond_those_that_are_remembered_are_written_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_rows, "SOURCES_KEPT", 2)
    rows = RowBuilder(run="mangrove", node=NODE, boot=BOOT)
    heard: list[str | Heard] = [(True, source, 9, None, 1, 0, 1, 2) for source in (1, 2, 3, 1, 2)]
    sources = [int(json.loads(line)["src"], 16) for line in rows.lines(heard)]
    assert sources == [1, 2, 3, 1, 2]


def test_heartbeats_take_their_numbers_also_without_a_folder() -> None:
    log = make(FaultyStorage(), None)
    log.heard(True, 5, 1, None, 1.5)
    log.write(MetaRow, {"op": "start"})
    assert [row["seq"] for row in log.events] == [2]


async def test_a_heartbeat_is_written_as_it_was_when_it_was_heard() -> None:
    storage = FaultyStorage()
    log = make(storage)
    log.rows.incarnation = 4
    log.heard(True, 5, 1, None, 1.5)
    log.write(MetaRow, {"op": "start"})
    log.heard(False, 6, 2, 0.001, 2.5)
    log.rows.incarnation = 5
    storage.fail = True
    await log.flush()
    storage.fail = False
    await log.aclose()
    rows = rows_of(storage.contents[f"/log/alpha-{BOOT:016x}-0.jsonl"])
    assert [(row["seq"], row["inc"], row["kind"], row["mono_ns"]) for row in rows] == [
        (1, 4, "hb", 1_500_000_000),
        (2, 4, "meta", 100_000_000_000),
        (3, 4, "hb", 2_500_000_000),
    ]
    assert [row.get("src") for row in rows] == [f"{5:016x}", None, f"{6:016x}"]


async def test_bytes_that_are_not_utf8_are_written_with_replacement_characters() -> None:
    """Names of files and hosts may contain any bytes, which Python represents as lone surrogates."""
    storage = FaultyStorage()
    log = make(storage)
    log.write(MetaRow, {"op": "start", "url": os.fsdecode(b"ipc:///tmp/\xc3\xa9\xff")})
    await log.aclose()
    (row,) = rows_of(storage.contents[f"/log/alpha-{BOOT:016x}-0.jsonl"])
    assert row["url"] == "ipc:///tmp/\u00e9?"


async def test_rows_are_in_a_part_file_within_a_second_and_get_their_name_at_the_end(tmp_path: Path) -> None:
    storage = ThreadStorage()
    log = make(storage, str(tmp_path / "logs"))
    log.write(MetaRow, {"op": "start"})
    await log.start()
    part = tmp_path / "logs" / "alpha-00000000000000b2-0.jsonl.part"
    assert rows_of(part.read_bytes())[0]["op"] == "start"
    task = asyncio.create_task(log.run())
    log.write(LinkRow, UP)
    assert FLUSH_PAUSE_S < 1.0
    await until(lambda: len(rows_of(part.read_bytes())) == 2)
    task.cancel()
    await asyncio.wait([task])
    log.write(MetaRow, {"op": "stop"})
    await log.aclose()
    await storage.aclose()
    assert not part.exists()
    rows = rows_of((tmp_path / "logs" / "alpha-00000000000000b2-0.jsonl").read_bytes())
    assert [row["seq"] for row in rows] == [1, 2, 3]


async def test_files_are_rotated_by_size_and_by_age_without_losing_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "FILE_SIZE_MAX", 1000)
    storage, clock = FaultyStorage(), Clock()
    log = make(storage, clock=clock)
    for _ in range(10):
        log.write(LinkRow, {**UP, "reason": "y" * 100})
        await log.flush()
    clock.now += event_log.FILE_AGE_MAX_S
    log.write(LinkRow, UP)
    await log.flush()
    log.write(LinkRow, UP)
    await log.aclose()
    names = await storage.list("/log")
    assert len(names) > 3
    assert all(name.endswith(".jsonl") for name in names)
    in_order = sorted(names, key=lambda name: int(name.split("-")[2].split(".")[0]))
    seqs = [row["seq"] for name in in_order for row in rows_of(storage.contents[f"/log/{name}"])]
    assert seqs == list(range(1, 13))


async def test_each_file_tells_who_wrote_it_and_in_what_rhythm() -> None:
    """Only the first one did. Where old files are removed, a running broker had no name and no period."""
    storage, clock = FaultyStorage(), Clock()
    log = make(storage, clock=clock)
    log.write(MetaRow, {"op": "start", "name": "alpha", "period_s": 3.0})
    await log.flush()
    clock.now += event_log.FILE_AGE_MAX_S
    log.write(LinkRow, UP)
    await log.flush()
    log.write(MetaRow, {"op": "stop", "name": "alpha", "reason": "leave"})
    clock.now += event_log.FILE_AGE_MAX_S
    await log.aclose()
    assert [row.get("op") for row in log.events] == ["start", None, "stop"], "for people it is no event"
    first, second = (rows_of(storage.contents[name]) for name in sorted(storage.contents))
    assert [row.get("op") for row in first] == ["start", None]
    assert [row["op"] for row in second] == ["continue", "stop"]
    assert (second[0]["name"], second[0]["period_s"], second[0]["seq"]) == ("alpha", 3.0, 3)


async def test_a_failing_disk_is_counted_and_reported_once_and_loses_no_row_that_fits_in_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = FaultyStorage()
    log = make(storage)
    storage.fail = True
    for _ in range(5):
        log.write(LinkRow, UP)
        await log.flush()
    assert log.write_errors == 5
    assert caplog.text.count("cannot write") == 1
    storage.fail = False
    await log.flush()
    await log.aclose()
    (name,) = await storage.list("/log")
    assert [row["seq"] for row in rows_of(storage.contents[f"/log/{name}"])] == [1, 2, 3, 4, 5]


async def test_the_status_of_a_log_has_waiting_and_lost_rows_and_the_end_of_a_failure_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "ROWS_MAX", 3)
    storage = FaultyStorage()
    log = make(storage)
    assert log.status() == LogStatus("/log", rows=0, waiting=0, lost=0, errors=0, failing=None)
    storage.fail = True
    for _ in range(5):
        log.write(LinkRow, UP)
        await log.flush()
    full = "No space left on device"
    assert log.status() == LogStatus("/log", rows=5, waiting=3, lost=2, errors=5, failing=full)
    assert caplog.text.count("3 rows wait for the disk, further ones are lost") == 1
    storage.fail = False
    await log.flush()
    assert log.status() == LogStatus("/log", rows=5, waiting=0, lost=2, errors=5, failing=None)
    assert "can be written again; 2 rows were lost since the start" in caplog.text
    await log.flush()
    assert caplog.text.count("can be written again") == 1


async def test_rows_written_while_an_append_fails_follow_those_of_the_append() -> None:
    storage = FaultyStorage()
    log = make(storage)
    log.write(MetaRow, {"op": "start", "pid": 1})
    storage.moving.clear()
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.write(MetaRow, {"op": "start", "pid": 2})
    log.heard(True, 5, 9, None, 1.0)
    assert log.status().waiting == 3
    storage.fail = True
    storage.moving.set()
    await flushing
    assert log.status().waiting == 3 and log.status().lost == 0
    log.write(MetaRow, {"op": "start", "pid": 4})
    storage.fail = False
    await log.flush()
    (name,) = await storage.list("/log")
    assert [row["seq"] for row in rows_of(storage.contents[f"/log/{name}"])] == [1, 2, 3, 4]


async def test_a_folder_removed_under_a_running_broker_is_made_again_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = ThreadStorage()
    log = make(storage, str(tmp_path / "deep/log"))
    log.write(LinkRow, UP)
    await log.start()
    shutil.rmtree(tmp_path / "deep")
    for _ in range(3):
        log.write(LinkRow, UP)
        await log.flush()
    await log.aclose()
    await storage.aclose()
    (path,) = (tmp_path / "deep/log").iterdir()
    assert path.suffix == ".jsonl"
    assert [row["seq"] for row in rows_of(path.read_bytes())] == [2, 3, 4]
    assert log.write_errors == 0 and caplog.text.count("it is made again") == 1


async def test_rows_beyond_the_bound_are_dropped_counted_and_leave_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "ROWS_MAX", 10)
    storage = FaultyStorage()
    storage.moving.clear()  # the disk does not answer
    log = make(storage)
    for _ in range(6):
        log.write(LinkRow, UP)
    flush = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    for _ in range(9):
        log.write(LinkRow, UP)
    assert log.dropped == 5
    storage.moving.set()
    await flush
    log.write(LinkRow, UP)
    await log.aclose()
    (name,) = await storage.list("/log")
    seqs = [row["seq"] for row in rows_of(storage.contents[f"/log/{name}"])]
    assert seqs == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16]


async def test_closing_gives_up_on_a_disk_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_log, "CLOSE_TIMEOUT_S", 0.05)
    storage = FaultyStorage()
    log = make(storage)
    log.write(LinkRow, UP)
    storage.moving.clear()
    await log.aclose()
    assert "ends without its last" in caplog.text


async def test_a_cancelled_flush_writes_no_row_twice(tmp_path: Path) -> None:
    storage = ThreadStorage()
    log = make(storage, str(tmp_path))
    await log.start()
    for round in range(20):
        log.write(LinkRow, {**UP, "reason": str(round)})
        task = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    log.write(LinkRow, UP)
    await log.aclose()
    await storage.aclose()
    (path,) = tmp_path.glob("*.jsonl")
    assert [row["seq"] for row in rows_of(path.read_bytes())] == list(range(1, 22))


async def test_an_unwritable_folder_is_one_clear_sentence_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    storage = ThreadStorage()
    log = make(storage, str(tmp_path / "file" / "logs"))
    log.write(MetaRow, {"op": "start"})
    said = r"cannot write the event log in .*/file/logs: there is a file where a folder"
    with pytest.raises(StorageError, match=said):
        await log.start()
    await log.aclose()
    await storage.aclose()
    assert caplog.text == "", "the error says it; the log need not"


async def test_only_the_latest_events_are_kept_without_a_folder() -> None:
    storage = FaultyStorage()
    log = make(storage, None)
    await log.start()
    for _ in range(150):
        log.write(LinkRow, UP)
        log.write(StatsRow, {"published": 0, "delivered": 0, "dropped": 0})
    assert len(log.events) == event_log.EVENTS_KEPT
    assert {row["kind"] for row in log.events} == {"link"}
    await log.aclose()
    assert storage.contents == {}


def test_a_full_disk_is_in_a_brokers_status_and_its_end_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        broker = mesh.broker("broker-1")
        world.run_for(3)
        assert broker.statistics()["log"]["failing"] is None
        disk = world.disk("broker-1")
        disk.fault = errno.ENOSPC
        world.run_for(5)
        status = broker.statistics()
        assert status["log"]["failing"] == os.strerror(errno.ENOSPC) and status["log"]["waiting"] > 0
        disk.fault = None
        world.run_for(5)
        status = broker.statistics()
        assert status["log"]["failing"] is None and status["log"]["errors"] > 0 == status["log"]["lost"]
        assert "can be written again; 0 rows were lost" in caplog.text
        mesh.finish()


async def test_a_summary_has_a_row_for_each_peer_and_window_before_the_stop() -> None:
    storage, clock = FaultyStorage(), Clock()
    log = make(storage, clock=clock, summary_of_s=1.0)
    log.write(MetaRow, {"op": "start"})
    for second in range(40):
        clock.now = 96.0 + second
        for peer in (5, 6):
            log.heard(True, peer, second, None, clock.now)
            log.heard(False, peer, second, 0.001, clock.now + 0.25)
    assert log.status().rows == 5, "two windows of two peers are over"
    log.write(MetaRow, {"op": "stop"})
    await log.aclose()
    rows = rows_of(storage.contents[f"/log/alpha-{BOOT:016x}-0.jsonl"])
    assert [row["kind"] for row in rows] == ["meta", *["heard"] * 6, "meta"]
    assert [row["seq"] for row in rows] == list(range(1, 9))
    assert [row["surveys"] for row in rows[1:-1]] == [16, 16, 16, 16, 8, 8]
    assert [decode(json.dumps(row)).window for row in rows[1:-1]] == [6, 6, 7, 7, 8, 8]


async def test_windows_of_silent_peers_end_by_themselves_and_all_end_with_their_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the last window of a peer that falls silent would be in no file for that long."""
    storage, clock = FaultyStorage(), Clock()
    log = make(storage, clock=clock, summary_of_s=1.0)
    log.heard(True, 5, 1, None, clock.now)
    monkeypatch.setattr(event_log, "FLUSH_PAUSE_S", 0.0)
    task = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    assert log.status().rows == 0
    clock.now += 16.0
    await until(lambda: storage.contents.get(log.path, b"").count(b"heard") == 1)
    task.cancel()
    await asyncio.wait([task])
    log.heard(True, 5, 17, None, clock.now)
    clock.now += event_log.FILE_AGE_MAX_S
    log.write(LinkRow, UP)
    await log.flush()
    rows = rows_of(storage.contents[f"/log/alpha-{BOOT:016x}-0.jsonl"])
    assert [row["kind"] for row in rows] == ["heard", "link", "heard"]
    await log.aclose()


def test_the_way_heartbeats_are_logged_changes_while_the_log_is_open() -> None:
    log = make(FaultyStorage(), summary_of_s=1.0)
    log.heard(True, 5, 1, None, 1.0)
    log.sum_up(None)
    assert log.status().rows == 1
    log.heard(True, 5, 2, None, 2.0)
    assert log.status().rows == 2
    log.sum_up(1.0)
    log.heard(True, 5, 3, None, 3.0)
    assert log.status().rows == 2


async def test_the_log_tells_from_its_start_whether_it_sums_up_heartbeats() -> None:
    """A killed broker loses its first window, and its log looked as if it had heard nobody."""
    storage = FaultyStorage()
    log = make(storage, summary_of_s=0.5)
    log.write(MetaRow, {"op": "start", "name": "alpha"})
    log.sum_up(None)
    log.sum_up(1.0)
    await log.flush()
    rows = rows_of(storage.contents[log.path])
    assert [(row["op"], row["name"], row.get("window_ns")) for row in rows] == [
        ("start", "alpha", 8 * 10**9),
        ("continue", "alpha", None),
        ("continue", "alpha", 16 * 10**9),
    ]
    assert [row["op"] for row in log.events] == ["start"]


def test_heartbeats_are_not_summed_up_without_a_folder() -> None:
    log = make(FaultyStorage(), None, summary_of_s=1.0)
    log.heard(True, 5, 1, None, 1.0)
    log.write(MetaRow, {"op": "stop"})
    assert [row["kind"] for row in log.events] == ["meta"]


def test_no_file_begins_with_what_spark_skips() -> None:
    """The analysis lost a broker whose name begins with an underscore without a word."""
    assert stem_of("_alpha", "0" * 16) == f"@_alpha-{'0' * 16}"
    assert stem_of("al_pha", "0" * 16) == f"al_pha-{'0' * 16}"
