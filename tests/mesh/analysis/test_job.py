"""The job on logs of which it is known what happened: verdicts, tables, and what it makes of bad lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.analysis import job
from mesh.analysis.findings import EndCause, Findings
from mesh.analysis.job import NoLogs, NoRows, analyse, find_logs
from mesh.errors import ConfigError
from tests.mesh.analysis.synthetic import (
    START,
    Broker,
    Mesh,
    demo_mesh,
    shuffle_logs,
    split_mesh,
    write_logs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WINDOW_S = 5.0


def calm(end: float = 40.0) -> list[Broker]:
    return [
        Broker(name, [(0.3 * n, end + 0.4 * n, "leave")]) for n, name in enumerate(("alpha", "beta", "gamma"))
    ]


def isolated_mesh() -> Mesh:
    """One broker hears nobody for 25 s; it goes on writing its statistics, judges nobody, and comes back."""
    return Mesh(calm(60.0), cuts=[(15.2, 40.1, ("gamma",))], run="isolated")


def three_way_mesh() -> Mesh:
    """First one broker is cut off, then another as well, so that the sides change."""
    return Mesh(calm(80.0), cuts=[(15.2, 60.3, ("gamma",)), (35.4, 60.3, ("beta",))], run="three-way")


def pause_mesh(pause_s: float) -> Mesh:
    """A pause as long as a window is the hardest: the broker writes shortly before and shortly after."""
    brokers = calm(50.0)
    brokers[1].pauses.append((20.05, 20.05 + pause_s))
    return Mesh(brokers, run=f"pause-{pause_s:g}")


def flapping_mesh() -> Mesh:
    """One broker is killed twice, comes back twice, and another leaves and returns."""
    brokers = calm(80.0)
    brokers[0].boots = [(0.0, 12.2, "kill"), (18.0, 40.3, "kill"), (50.0, 80.0, "leave")]
    brokers[2].boots = [(0.6, 30.1, "leave"), (45.0, 80.8, "leave")]
    return Mesh(brokers, run="flapping")


def skewed_mesh() -> Mesh:
    """The demonstration on hosts whose clocks differ by up to 0.8 s."""
    mesh = demo_mesh()
    for broker, offset in zip(mesh.brokers, (0.4, -0.3, 0.0, 0.8, -0.1), strict=True):
        broker.clock_offset_s = offset
    return Mesh(mesh.brokers, run="skewed")


def all_meshes() -> list[Mesh]:
    pauses = [pause_mesh(seconds) for seconds in (3.9, 4.7, 5.3, 6.0, 9.0)]
    return [
        demo_mesh(),
        split_mesh(),
        isolated_mesh(),
        three_way_mesh(),
        flapping_mesh(),
        skewed_mesh(),
        *pauses,
    ]


@dataclass(frozen=True)
class Analysed:
    logs: Path
    out: Path
    findings: Findings

    def of(self, run: str) -> list[tuple[str, str, float, str]]:
        """Events of one run without its joins, in seconds from the start."""
        return [
            (str(event.kind), event.name, event.at - START, event.detail)
            for event in self.findings.events
            if event.run == run and event.kind != "join"
        ]


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Every mesh in one folder: runs are told apart by their rows, and Spark is asked once."""
    folder = tmp_path_factory.mktemp("analysed")
    for mesh in all_meshes():
        write_logs(mesh, folder / "logs" / mesh.run)
    return Analysed(folder / "logs", folder / "out", analyse(folder / "logs", folder / "out"))


def assert_told(
    found: list[tuple[str, str, float, str]], expected: list[tuple[str, str, float, str]]
) -> None:
    """The same events of the same brokers in the same order, each within one window of its time."""
    assert [(kind, name, detail) for kind, name, _, detail in found] == [
        (kind, name, detail) for kind, name, _, detail in expected
    ]
    for (_, _, at, _), (_, _, wanted, _) in zip(found, expected, strict=True):
        assert abs(at - wanted) <= WINDOW_S, f"found at {at:.1f}, done at {wanted:.1f}"


DEMO = [
    ("failure", "beta", 10.3, ""),
    ("rejoin", "beta", 14.1, "new boot"),
    ("failure", "delta", 21.4, ""),
    ("rejoin", "delta", 28.4, "refutation"),
    ("leave", "alpha", 40.0, ""),
    ("leave", "beta", 40.6, ""),
    ("leave", "gamma", 41.1, ""),
    ("leave", "delta", 41.7, ""),
    ("leave", "epsilon", 42.2, ""),
]


def test_the_demonstration_is_found_out_exactly(analysed: Analysed) -> None:
    assert_told(analysed.of("mangrove"), DEMO)
    assert not [episode for episode in analysed.findings.partitions if episode.run == "mangrove"]
    failures = [event for event in analysed.findings.failures if event.run == "mangrove"]
    assert [event.observers for event in failures] == [4, 4]
    assert all(abs(event.at - START - done) < 1.5 for event, done in zip(failures, (10.3, 21.4), strict=True))


def test_clocks_that_differ_change_no_verdict(analysed: Analysed) -> None:
    found = sorted(analysed.of("skewed"), key=lambda event: (event[0], event[1]))
    assert_told(found, sorted(DEMO, key=lambda event: (event[0], event[1])))
    assert not [episode for episode in analysed.findings.partitions if episode.run == "skewed"]


def test_a_partition_is_one_episode_with_its_sides_from_the_last_heartbeat_across_to_the_next(
    analysed: Analysed,
) -> None:
    (episode,) = [episode for episode in analysed.findings.partitions if episode.run == "split"]
    sides = [sorted(analysed.findings.names[node] for node in side) for side in episode.sides]
    assert sides == [["delta", "epsilon", "gamma"], ["alpha", "beta"]]
    assert episode.end is not None
    assert 14.2 <= episode.start - START <= 15.4
    assert 34.6 <= episode.end - START <= 35.8
    failures = [event for event in analysed.findings.failures if event.run == "split"]
    assert len(failures) == 5
    assert {event.detail for event in failures} == {f"during partition {episode.number}"}


def test_a_broker_alone_is_a_partition_though_it_hears_nobody(analysed: Analysed) -> None:
    (episode,) = [episode for episode in analysed.findings.partitions if episode.run == "isolated"]
    assert [len(side) for side in episode.sides] == [2, 1]
    assert episode.end is not None
    assert abs(episode.start - START - 15.2) < 1.2 and abs(episode.end - START - 40.1) < 1.2


def test_when_sides_change_another_episode_begins(analysed: Analysed) -> None:
    episodes = [episode for episode in analysed.findings.partitions if episode.run == "three-way"]
    assert [len(episode.sides) for episode in episodes] == [2, 3]


@pytest.mark.parametrize("pause_s", [3.9, 4.7, 5.3, 6.0, 9.0])
def test_a_pause_is_a_failure_and_a_refutation_but_no_partition(analysed: Analysed, pause_s: float) -> None:
    run = f"pause-{pause_s:g}"
    found = [event for event in analysed.of(run) if event[0] != "leave"]
    expected = [("failure", "beta", 20.0, ""), ("rejoin", "beta", 20.0 + pause_s, "refutation")]
    assert_told(found, expected)
    assert not [episode for episode in analysed.findings.partitions if episode.run == run]


def test_kills_and_leaves_of_the_same_broker_are_told_in_order(analysed: Analysed) -> None:
    assert_told(
        analysed.of("flapping"),
        [
            ("failure", "alpha", 12.2, ""),
            ("rejoin", "alpha", 18.0, "new boot"),
            ("leave", "gamma", 30.1, ""),
            ("failure", "alpha", 40.3, ""),
            ("rejoin", "gamma", 45.0, "new boot"),
            ("rejoin", "alpha", 50.0, "new boot"),
            ("leave", "alpha", 80.0, ""),
            ("leave", "beta", 80.4, ""),
            ("leave", "gamma", 80.8, ""),
        ],
    )
    sessions = [session for session in analysed.findings.sessions if session.run == "flapping"]
    causes = [session.end_cause for session in sessions if session.name == "alpha"]
    assert causes == [EndCause.FAILURE, EndCause.FAILURE, EndCause.LEAVE]


def test_a_broker_that_runs_on_when_the_logs_end_is_censored_and_did_not_leave(analysed: Analysed) -> None:
    (last,) = [s for s in analysed.findings.sessions if (s.run, s.name) == ("split", "alpha")][-1:]
    assert last.end_cause == EndCause.CENSORED
    assert "alpha" not in [name for kind, name, _, _ in analysed.of("split") if kind == "leave"]


def test_the_last_line_of_a_killed_broker_is_quarantined_with_its_file(analysed: Analysed) -> None:
    quality = analysed.findings.quality
    lines = [
        json.loads(line)
        for path in (analysed.out / "quarantine").glob("part-*")
        for line in path.read_text().splitlines()
    ]
    parts = sorted(str(path.relative_to(analysed.logs)) for path in analysed.logs.rglob("*.part"))
    assert sorted(line["file"] for line in lines) == parts
    assert {line["problem"] for line in lines} == {"cut off, or not a JSON object"}
    assert quality.quarantined == len(parts)
    assert quality.rows + quality.quarantined == quality.lines
    assert quality.missing == 0


def test_every_table_is_written_and_agrees_with_the_summary(analysed: Analysed, spark: SparkSession) -> None:
    found = analysed.findings
    summary = json.loads((analysed.out / "summary.json").read_text())
    assert summary == json.loads(json.dumps(found.as_json()))

    def rows(name: str) -> int:
        return spark.read.parquet(str(analysed.out / "tables" / name)).count()

    assert rows("events") == found.quality.lines
    assert rows("churn_events") == len(found.events)
    assert rows("sessions") == len(found.sessions)
    assert rows("availability") == len(found.availability)
    assert rows("partition_episodes") == len(found.partitions)
    assert rows("partition_windows") == found.windows
    assert rows("files") == found.quality.files
    for name in ("reachability", "churn_windows", "brokers", "drops", "links", "traffic", "round_trips"):
        assert rows(name) > 0, name
    assert not (analysed.out / "_tmp").exists()


def test_counters_add_up_over_boots(analysed: Analysed, spark: SparkSession) -> None:
    """Of beta's two boots the first was killed, so its last row of statistics is what is known of it."""
    brokers = spark.read.parquet(str(analysed.out / "tables" / "brokers"))
    (beta,) = brokers.where(f"run = 'mangrove' and node = '{demo_mesh().brokers[1].id}'").collect()
    assert beta["published"] == 5 * 20 + int((40.6 - 14.1) * 20)
    traffic = spark.read.parquet(str(analysed.out / "tables" / "traffic"))
    totals = {row[0]: row[1] for row in brokers.groupBy("run").sum("delivered").collect()}
    added = {row[0]: row[1] for row in traffic.groupBy("run").sum("delivered").collect()}
    assert totals == added
    assert analysed.findings.traffic["delivered"] == sum(totals.values())
    assert analysed.findings.drops == {"no credit": analysed.findings.traffic["dropped"]}


def test_shuffled_split_and_repeated_logs_lead_to_the_same_findings_as_large_ones(
    analysed: Analysed, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One analysis for both: the settings for large logs, by which several tasks share the rows, are those
    under which the order of lines could matter most.
    """
    monkeypatch.setattr(job, "SMALL_BYTES", 0)
    shuffled = tmp_path / "shuffled"
    for number, folder in enumerate(sorted(path for path in analysed.logs.iterdir())):
        shuffle_logs(folder, shuffled / folder.name, seed=number)
    again = analyse(shuffled, tmp_path / "out")
    assert again.quality.duplicates > 0
    assert again.quality.rows == analysed.findings.quality.rows
    assert replace(again, quality=analysed.findings.quality) == analysed.findings


def test_a_session_for_small_logs_has_room_for_the_code_of_many_jobs(spark: SparkSession) -> None:
    """This file and its neighbours filled the 48 MB that Java keeps for its simpler compiler alone."""
    management = spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    pools = [pool for pool in management.getMemoryPoolMXBeans() if pool.getName().startswith("Code")]
    assert sum(pool.getUsage().getMax() for pool in pools) >= 200 << 20


@pytest.fixture(scope="module")
def renamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Two lines, of which one is in a file that is renamed while it is read, into a folder that was used."""
    folder = tmp_path_factory.mktemp("renamed")
    logs, out = folder / "logs", folder / "out"
    logs.mkdir()
    for number in (1, 2):
        line = row(number, "meta", ',"op":"start","name":"only"')
        (logs / f"{number}.jsonl.part").write_text(f"{line}\n")
    listed = find_logs(logs)
    (logs / "2.jsonl.part").rename(logs / "2.jsonl")
    (out / "tables" / "stale").mkdir(parents=True)
    (out / "_tmp" / "left").mkdir(parents=True)
    (out / "quarantine").mkdir()
    (out / "mine.txt").touch()
    stale = iter([listed])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "find_logs", lambda folder: next(stale, None) or find_logs(folder))
        return Analysed(logs, out, analyse(logs, out))


def test_a_file_that_is_renamed_while_the_logs_are_read_is_read_all_the_same(renamed: Analysed) -> None:
    quality = renamed.findings.quality
    assert (quality.files, quality.rows, quality.duplicates) == (2, 2, 0)


def test_a_new_report_replaces_the_old_one_whole(renamed: Analysed) -> None:
    assert not (renamed.out / "tables" / "stale").exists()
    assert not (renamed.out / "quarantine").exists()
    assert sorted(path.name for path in renamed.out.iterdir()) == [
        "mine.txt",
        "report.html",
        "summary.json",
        "tables",
    ]


def test_the_reference_names_every_table_and_column(analysed: Analysed, spark: SparkSession) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "tables.md").read_text()
    for folder in sorted((analysed.out / "tables").iterdir()):
        paragraph = text.partition(f"**`{folder.name}`**")[2].partition("\n**")[0]
        assert paragraph, f"{folder.name} is not in docs/reference/tables.md"
        if folder.name != "events":  # whose columns are the event log's
            columns = spark.read.parquet(str(folder)).columns
            assert [name for name in columns if f"`{name}`" not in paragraph] == []


def test_the_logs_of_two_runs_in_one_folder_are_noticed(
    analysed: Analysed, spark: SparkSession, tmp_path: Path
) -> None:
    """Simulations of one seed draw the same ids and boots, so their rows have the same numbers."""
    write_logs(demo_mesh(), tmp_path / "logs" / "one")
    write_logs(replace(split_mesh(), run="mangrove"), tmp_path / "logs" / "two")
    found = analyse(tmp_path / "logs", tmp_path / "out")
    assert found.quality.conflicts > 0
    assert "these are the logs of several runs" in (tmp_path / "out" / "report.html").read_text()
    assert analysed.findings.quality.conflicts == 0


ROW = (
    '{"v":1,"run":"r","ts":"2026-11-21T12:00:%02d.000000Z","mono_ns":1,'
    '"node":"%s","boot":"%s","inc":0,"seq":%d,"kind":"%s"%s}'
)
NODE, BOOT = "0" * 15 + "a", "0" * 15 + "b"


def row(seq: int, kind: str, more: str = "", node: str = NODE) -> str:
    return ROW % (seq, node, BOOT, seq, kind, more)


BAD: dict[str, list[str]] = {
    "cut off, or not a JSON object": [
        "not json at all",
        '{"v":1,"run":"r",',
        "[1, 2]",
        "null",
        '"text"',
        '{"v":1,"run":"r"}trailing',
        "\x00\x00\x00",
        '{"v": 1, "run": }',
    ],
    "two rows on one line": [row(1, "meta", ',"op":"start"') + row(2, "meta", ',"op":"start"')],
    "unknown version": ['{"v":2,"anything":[1]}'],
    "no version": ['{"run":"r"}'],
    "a value has the wrong type": [
        row(3, "meta", ',"op":"start"').replace('"seq":3', '"seq":"3"'),
        row(3, "hb", f',"msg":"answer","src":"{NODE}","rtt_us":1.5'),
        row(3, "stats", ',"published":1,"delivered":1,"dropped":1,"links":[{"peer":7,"msgs_in":"x"}]'),
        row(3, "stats", ',"published":true,"delivered":1,"dropped":1,"links":[]'),
    ],
    "missing or malformed node": [row(3, "hb", f',"msg":"survey","src":"{NODE}"', node="A" * 16)],
    "missing or malformed ts": [
        row(3, "meta", ',"op":"start"').replace("2026-11-21T", "21.11.2026 "),
        row(3, "meta", ',"op":"start"').replace("2026-11-21T", "2026-02-31T"),
    ],
    "missing or malformed seq": [row(0, "meta", ',"op":"start"')],
    "unknown kind": [row(3, "rumour")],
    "missing or malformed op": [row(3, "meta")],
    "missing or malformed src": [row(3, "hb", ',"msg":"survey","src":5')],
    "missing or malformed to_state": [
        row(
            3,
            "mem",
            f',"subject":"{NODE}","subject_boot":"{BOOT}","subject_inc":0,"from_state":"alive","to_state":"zombie"',
        )
    ],
    "missing or malformed peer": [row(3, "link", ',"state":"up"')],
    "missing or malformed dropped": [row(3, "stats", ',"published":1,"delivered":1')],
}


def test_each_bad_line_is_quarantined_with_its_reason_and_the_good_ones_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = [
        row(1, "meta", ',"op":"start","name":"only"'),
        row(2, "hb", f',"msg":"survey","src":"{BOOT}","new":1'),
    ]
    logs = tmp_path / "odd {names}, [1] 100%+ü"
    logs.mkdir()
    bad = [line for lines in BAD.values() for line in lines]
    text = "\n".join([good[0], *bad, "", "   ", good[1]])
    (logs / "a b*.jsonl").write_text(text + "\n")
    (logs / "bytes.jsonl.part").write_bytes(b"\xff\xfe\xfd\n")
    (logs / "truth-1.jsonl").write_text("never read\n")
    (logs / "notes.txt").write_text("never read\n")
    found = analyse(logs, tmp_path / "out")
    assert found.quality.files == 2
    assert found.quality.rows == 2
    expected = {reason: len(lines) for reason, lines in BAD.items()}
    expected["cut off, or not a JSON object"] += 1
    assert dict(found.quality.problems) == expected
    assert found.quality.lines == 2 + len(bad) + 1
    quarantined = [
        json.loads(line)
        for path in (tmp_path / "out" / "quarantine").glob("part-*")
        for line in path.read_text().splitlines()
    ]
    assert sorted(line["line"] for line in quarantined if line["file"] == "a b*.jsonl") == sorted(bad)
    assert found.names == {NODE: "only"}


def test_logs_without_a_single_row_say_so_and_leave_the_lines_in_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "garbage.jsonl").write_text("one\ntwo\n")
    with pytest.raises(NoRows, match="not one of 2 lines in .* they are in quarantine"):
        analyse(logs, tmp_path / "out")
    assert list((tmp_path / "out" / "quarantine").glob("part-*"))
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.touch(), "is not a folder"),
        (lambda folder: folder.mkdir(), "holds no event log"),
        (lambda folder: (folder.mkdir(), (folder / "a.jsonl.part").touch()), "are all empty"),
    ],
)
def test_a_folder_without_logs_is_refused_in_one_sentence(
    make: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    make(tmp_path / "logs")
    with pytest.raises(NoLogs, match=sentence):
        find_logs(tmp_path / "logs")


def test_a_senseless_window_or_target_is_refused(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="a window of 0 s"):
        analyse(logs, tmp_path / "out", window_s=0.0)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        analyse(logs, tmp_path / "file")
