"""Rows are read as they were written, by the true time, and take little memory."""

from __future__ import annotations

import tracemalloc

import pytest

from simulations.evidence import Evidence
from simulations.evidence.logs import HeartbeatRow, Logs, log_rows
from simulations.invariants import judge
from simulations.kernel.file_content import FileContent
from simulations.scenario import Expectation, Scenario

HEAD = b'{"v":1,"run":"test","ts":"2026-01-01T00:00:05.250000Z","mono_ns":7,"node":"0a","boot":"0b","inc":1,'
HEARTBEAT = HEAD + b'"seq":3,"kind":"hb","msg":"answer","src":"0c","dst":"0a","hb_seq":9,"rtt_us":812}'
LINK = HEAD + b'"seq":2,"kind":"link","peer":"0c","state":"up"}'


def test_a_heartbeat_is_read_by_the_names_of_its_fields() -> None:
    (row,) = log_rows({"one": HEARTBEAT + b"\n"})
    assert isinstance(row, HeartbeatRow)
    assert (row["kind"], row["msg"], row["src"], row["hb_seq"], row["rtt_us"]) == (
        "hb",
        "answer",
        "0c",
        9,
        812,
    )
    assert row["at_s"] == pytest.approx(5.25)
    row["at_s"] = 6.0
    assert row["at_s"] == 6.0 and row.get("op") is None
    with pytest.raises(KeyError):
        row["op"]


def test_rows_of_all_kinds_come_by_time_and_share_their_ids() -> None:
    later = HEARTBEAT.replace(b"05.25", b"07.25")
    rows = log_rows({"one": later + b"\n" + HEARTBEAT, "two": LINK})
    assert [row["kind"] for row in rows] == ["hb", "link", "hb"]
    assert rows[0]["src"] is rows[2]["src"]


def test_lines_that_are_torn_or_make_no_sense_are_left_out() -> None:
    senseless = HEARTBEAT.replace(b'"hb_seq":9', b'"hb_seq":"x"')
    assert log_rows({"one": b"\n".join([HEARTBEAT[:-5], senseless, b"", b"[]", b"\xff"])}) == []


def heartbeat(seq: int, mono_ns: int, *, node: str = "0a", boot: str = "0b", msg: str = "answer") -> bytes:
    return (
        f'{{"v":1,"run":"test","ts":"2026-01-01T00:00:05.250000Z","mono_ns":{mono_ns},"node":"{node}",'
        f'"boot":"{boot}","inc":1,"seq":{seq},"kind":"hb","msg":"{msg}","src":"0c","dst":"0a","hb_seq":{seq},'
        f'"rtt_us":812}}\n'
    ).encode()


def content(*lines: bytes) -> FileContent:
    return FileContent(b"".join(lines))


CLOCK = ([10.0, 11.0], [1.0, 2.0])
"""Nine seconds ahead."""


def test_the_rows_of_all_logs_are_merged_by_the_true_time() -> None:
    files = {
        "one": content(
            heartbeat(1, 10_250_000_000), heartbeat(2, 10_750_000_000), heartbeat(3, 12_000_000_000)
        ),
        "two": content(heartbeat(1, 500_000_000, node="0d"), heartbeat(2, 2_500_000_000, node="0d")),
    }
    logs = Logs(files, {("0a", "0b"): CLOCK, ("0d", "0b"): ([0.0], [0.0])})
    told = [(row["node"], row["at_s"]) for row in logs]
    assert told == [("0d", 0.5), ("0a", 1.25), ("0a", 1.75), ("0d", 2.5), ("0a", 3.0)]
    assert list(logs) and len(logs) == 5  # again


def test_rows_of_a_writer_with_an_unknown_clock_are_timed_by_its_wall_clock() -> None:
    (row,) = Logs({"one": content(heartbeat(1, 7))}, {})
    assert row["at_s"] == pytest.approx(5.25)


def test_damaged_logs_are_left_out() -> None:
    files = {"one": content(heartbeat(1, 7)), "two": content(heartbeat(1, 8, node="0d"))}
    assert [row["node"] for row in Logs(files, {}, {("0d", "0b")})] == ["0d"]


def test_changes_are_all_rows_but_those_that_are_written_all_the_time() -> None:
    files = {"one": content(heartbeat(1, 7), LINK + b"\n", heartbeat(3, 9))}
    assert [row["kind"] for row in Logs(files, {}).changes()] == ["link"]


def test_heartbeats_are_judged_in_little_memory() -> None:
    """All rows were kept until every check had seen them: a kilobyte for two heartbeats."""
    rounds = 10_000
    files = {"one": FileContent(), "two": FileContent()}
    for number in range(1, rounds + 1):
        at_ns = number * 1_000_000_000
        files["one"].append(heartbeat(number, at_ns + 812_000, node="0a"))
        files["two"].append(
            heartbeat(number, at_ns, node="0c", msg="survey").replace(b'"src":"0c"', b'"src":"0a"')
        )
    clock = ([0.0, 1.0], [0.0, 1.0])
    evidence = Evidence(Scenario("long"), rows=Logs(files, {("0a", "0b"): clock, ("0c", "0b"): clock}))
    tracemalloc.start()
    verdicts = {each.check: each for each in judge(evidence, [Expectation("X7"), Expectation("D9")])}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for check in ("answers_are_traced", "answers_count_once"):
        assert verdicts[check].ok and verdicts[check].count == rounds, verdicts[check]
    assert peak < 2_000_000
