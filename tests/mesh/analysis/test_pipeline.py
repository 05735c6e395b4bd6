"""The whole pipeline on a simulated mesh: the effects of its faults are found, and played again."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.analysis import deciding
from mesh.analysis.deciding import decide
from mesh.analysis.pipeline import ScenarioWish, analyse, read_tables
from mesh.analysis.reading.finding import NoLogs, NoRows
from mesh.analysis.reporting.findings import Event
from mesh.analysis.results.folder import OutputError, Results
from mesh.cli.app import main
from mesh.errors import ConfigError
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.synthetic import demo_mesh, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEED = 7
SCENARIO = """
name = "story"
summary = "a crash, a pause, a split"
brokers = 4

[[fault]]
at_s = 3
kind = "crash"
a = "broker-2"
for_s = 6

[[fault]]
at_s = 16
kind = "pause"
a = "broker-3"
for_s = 6

[[fault]]
at_s = 30
kind = "partition"
a = "broker-4"
b = ["broker-1", "broker-2", "broker-3"]
for_s = 8
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story")
    (folder / "story.toml").write_text(SCENARIO)
    assert Play(load(str(folder / "story.toml")), seed=SEED, out=str(folder / "logs")).run().ok
    return folder / "logs"


def shape(event: Event) -> tuple[str, list[str]]:
    return event.what, event.brokers


def test_injected_faults_are_found_and_played_again(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier defects: a scenario that could not be written cost the finished result, lives were told twice,
    and files began in 1970."""
    stages: list[str] = []
    out = tmp_path / "out"
    plans: dict[str, str] = {}

    def watched(*arguments: Any, **options: Any) -> Any:
        found = decide(*arguments, **options)
        plans.update((name, found[name]._jdf.queryExecution().toString()) for name in ("lives", "outages"))
        return found

    monkeypatch.setattr(deciding, "decide", watched)
    with pytest.raises(ConfigError, match="--around 2020-01-01 is outside .*; the result is stored in "):
        analyse(logs, out, scenario=ScenarioWish(around="2020-01-01"), say=stages.append)
    assert plans and not any("Python" in plan for plan in plans.values())
    done = analyse(logs, out, scenario=ScenarioWish())
    assert done.known

    (run,) = done.findings.runs
    assert [shape(event) for event in run.events if event.what not in ("start", "leave")] == [
        ("crash", ["broker-2"]),
        ("pause", ["broker-3"]),
        ("part", ["broker-4"]),
    ]
    assert run.failures == {"crash": 1}
    assert set(run.matches) == {"tp"}, run.matches
    assert any("left" in stage for stage in stages)

    assert json.loads((out / "current.json").read_text())["current"] == done.id
    result = Path(done.where)
    assert result.parent == out
    summary = json.loads((result / "summary.json").read_text())
    assert summary["runs"][0]["verdict"] == run.verdict
    assert run.verdict in (result / "report.html").read_text()

    day_s = 86_400
    started = run.started // 1_000_000 // day_s
    files = read_tables(spark, done.where)["files"].where("first is not null").collect()
    assert {row["first"] // 1_000_000 // day_s for row in files} == {started}

    assert done.scenario is not None
    replay = tmp_path / "again.toml"
    replay.write_text(done.scenario)
    assert [fault["kind"] for fault in tomllib.loads(done.scenario)["fault"]] == [
        "crash",
        "pause",
        "partition",
    ]
    assert Play(load(str(replay)), seed=1, out=str(tmp_path / "again")).run().ok
    replayed = analyse(tmp_path / "again", out)
    (copy,) = replayed.findings.runs
    found = [event for event in copy.events if event.what not in ("start", "leave")]
    assert [event.what for event in found] == ["crash", "pause", "part"]
    originals = [event for event in run.events if event.what not in ("start", "leave")]
    zero, copied_zero = originals[0].at, found[0].at
    for one, other in zip(originals, found, strict=True):
        assert abs((one.at - zero) - (other.at - copied_zero)) <= 2_000_000
        assert one.lasted_s is not None and other.lasted_s is not None
        assert abs(one.lasted_s - other.lasted_s) <= 2


def test_garbage_ends_with_bad_data_and_writes_no_result(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text("garbage\n")
    out = tmp_path / "out"
    with pytest.raises(NoRows, match="not one of 1 lines"):
        analyse(tmp_path / "logs", out)
    assert not (out / "current.json").exists()
    assert main(["analyze", str(tmp_path / "logs"), "--out", str(out)]) == 65
    assert "quarantine with the reasons" in capsys.readouterr().err


def test_a_run_that_breaks_removes_what_it_wrote(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a result stayed on the full disk."""
    written: list[str] = []

    def full(results: Results, id: str, name: str, text: str) -> None:
        written.extend(path.name for path in (tmp_path / id / "tables").iterdir())
        raise OutputError("full", 74)

    with monkeypatch.context() as patched:
        patched.setattr(Results, "write_text", full)
        with pytest.raises(OutputError):
            analyse(logs, tmp_path)
    assert "lives" in written
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "reduced"}


def test_a_disk_that_is_full_while_logs_are_read_is_one_of_the_output(
    spark: SparkSession, logs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ended with 1 and a failed task."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from mesh.analysis.reading import logs as logs_module

    def full(*arguments: object) -> None:
        raise Py4JError(
            "Task failed while writing rows\nCaused by: java.io.IOException: No space left on device"
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs_module, "read_logs", full)
        assert main(["analyze", str(logs), "--out", str(tmp_path)]) == 74
    assert f"--out {tmp_path} cannot be written: No space left on device" in capfd.readouterr().err


def test_a_scenario_of_several_runs_is_of_the_named_one(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error said neither that the results are stored nor how to choose a run."""
    both = tmp_path / "logs"
    run = json.loads(next(logs.glob("broker-*")).read_text().splitlines()[0])["run"]
    for name in ("north", "south"):
        for path in logs.glob("*.jsonl*"):
            (both / name).mkdir(parents=True, exist_ok=True)
            (both / name / path.name).write_text(
                path.read_text().replace(f'"run":"{run}"', f'"run":"{name}"')
            )
    arguments = ["analyze", str(both), "--out", str(tmp_path / "out"), "--scenario", str(tmp_path / "s.toml")]
    assert main(arguments) == 65
    said = capsys.readouterr().err
    assert "the logs hold 2; name one with --run: north, south; the result is stored in " in said
    assert Path(said.rpartition("stored in ")[2].strip(), "report.html").exists()
    assert main([*arguments, "--run", "south"]) == 0
    assert "What happened in the mesh south," in (tmp_path / "s.toml").read_text()


def test_damaged_files_are_named_and_the_rest_is_analysed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ended the analysis with exit code 1 and Spark's own text."""
    folder = tmp_path / "logs"
    write_logs(demo_mesh(), folder)
    path = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    data = gzip.compress(path.read_bytes())
    path.unlink()
    (folder / f"{path.name}.gz").write_bytes(data[: len(data) // 2])
    (folder / "50 %.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        assert main(["analyze", str(folder), "--out", str(tmp_path / "out")]) == 0
        said, errors = capsys.readouterr()
        said = " ".join(said.split())
        assert f" {path.name}.gz is damaged: its compressed data end early; " in said
        assert "50 %.parquet is damaged: it is cut off, or not Parquet; no row of it could be read" in said
        assert errors == ""
    assert "these logs were analysed before" in said

    for each in list(folder.iterdir()):
        if each.suffix != ".parquet":
            each.unlink()
    assert main(["analyze", str(folder), "--out", str(tmp_path / "out")]) == 65
    assert capsys.readouterr().err == (
        f"mesh analyze: 50 %.parquet in {folder} is damaged: it is cut off, or not Parquet\n"
    )


def test_a_window_must_make_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a window of 0 s"):
        analyse(tmp_path, tmp_path / "out", window_s=0)


def test_missing_logs_are_reported_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(NoLogs, match="there is no folder"):
        analyse(tmp_path / "nowhere", tmp_path / "out")


@pytest.mark.parametrize("within_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_around_must_make_sense(tmp_path: Path, within_s: float) -> None:
    with pytest.raises(ConfigError, match="is not a number of seconds above zero"):
        analyse(tmp_path, tmp_path / "out", scenario=ScenarioWish(around="12:00", within_s=within_s))
