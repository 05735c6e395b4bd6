"""The output, files and exit codes of `mesh simulate`; most runs are replaced by stand-ins."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesh.cli.app import main
from simulations.cli import app as cli
from simulations.cli import showing
from simulations.evidence.measuring import measure
from simulations.faults import KINDS
from simulations.invariants import Verdict
from simulations.runs import diffing, playing, replaying, shrinking, swarming
from simulations.runs.playing import Result
from simulations.runs.swarming import Outcome
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file

Output = pytest.CaptureFixture[str]


def result(scenario: Scenario, *verdicts: Verdict) -> Result:
    counts = dict.fromkeys(
        "events turns arrivals connections published accepted refused unknown delivered log_rows".split(), 3
    )
    return Result(
        scenario=scenario,
        seed=7,
        size="ci",
        history_hash="ab" * 16,
        virtual_s=42.0,
        phases=(("clients_s", 1.0),),
        whole_in_s=1.5,
        verdicts=verdicts,
        counts=counts,
        faults=("1.000 crash broker-1",),
        coverage={},
        measures=measure((), (), ()),
    )


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`mesh simulate calm --seed 7` with these verdicts and further arguments."""

    def played(*verdicts: Verdict, arguments: tuple[str, ...] = ()) -> int:
        class StandIn:
            def __init__(self, scenario: Scenario, **given: Any) -> None:
                self.scenario = scenario
                self.say = given["say"]

            def run(self) -> Result:
                self.say(1.0, "crash broker-1")
                return result(self.scenario, *verdicts)

        monkeypatch.setattr(playing, "Play", StandIn)
        return main(["simulate", "calm", "--seed", "7", *arguments])

    return played


KEYWORDS: dict[str, Any] = shrinking.shrink.__kwdefaults__ or {}
WRONG = Verdict("sound", "all", ("it broke",))


def test_a_passed_run_ends_with_zero_and_names_its_seed_first(
    play: Callable[..., int], capsys: Output
) -> None:
    assert play(Verdict("converged", "5 live brokers", ())) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "calm --seed 7: passed"
    assert "abababab" in shown.out and "at 1.000 crash broker-1" in shown.out
    assert "again:" not in shown.out
    assert "1.00 s  crash broker-1" in shown.err


def test_a_violation_ends_with_one_and_is_shown_with_a_bound_and_how_to_see_it_again(
    play: Callable[..., int], capsys: Output
) -> None:
    verdict = Verdict("at_most_once", "9 deliveries", tuple(f"violation {number}" for number in range(30)))
    assert play(verdict, arguments=("--nodes", "3")) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "calm --seed 7: VIOLATED"
    assert sum("violation " in line for line in lines) == showing.SHOWN_MAX
    assert lines[-2].strip() == "and 20 more; --json has them all"
    assert lines[-1].strip() == "again: mesh simulate calm --seed 7 --nodes 3"


def test_json_holds_everything_and_nothing_else_is_printed(play: Callable[..., int], capsys: Output) -> None:
    assert play(WRONG, arguments=("--json",)) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["history_hash"] == "ab" * 16
    assert shown["seed"] == 7 and shown["ok"] is False
    assert shown["checks"][0]["violations"] == ["it broke"]


def test_a_failure_is_kept_for_replay_and_a_success_is_not(
    play: Callable[..., int], capsys: Output, tmp_path: Path
) -> None:
    path = tmp_path / "failure.toml"
    assert play(Verdict("sound", "all", ()), arguments=("--keep", str(path))) == 0
    assert not path.exists()
    assert play(WRONG, arguments=("--keep", str(path))) == 1
    assert replaying.read(path).check == "sound"
    assert f"again: mesh simulate replay {path}" in capsys.readouterr().out


def test_a_trace_of_one_run_is_the_history_of_another(capsys: Output, tmp_path: Path) -> None:
    path = tmp_path / "calm.history"
    scenario = tmp_path / "small.toml"
    scenario.write_text('name = "small"\nbrokers = 2\nwarm_s = 0\nquiet_s = 1\n')
    assert main(["simulate", str(scenario), "--seed", "7", "--trace", str(path), "--json"]) == 0
    capsys.readouterr()
    assert main(["simulate", "diff", str(path), f"{scenario}@7"]) == 0
    assert capsys.readouterr().out.startswith(f"the same: {path} and small@7")
    assert main(["simulate", "diff", str(path), f"{scenario}@8"]) == 1
    assert capsys.readouterr().out.startswith("they part at line ")


def test_scenarios_are_listed(capsys: Output) -> None:
    assert main(["simulate", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in scenario_file.shipped())
    assert main(["simulate", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["scenarios"]
    assert {row["scenario"] for row in rows} == set(scenario_file.shipped())
    assert {row["status"] for row in rows} <= {"passes", "known failure", "waits"}
    known = sum(row["status"] == "known failure" for row in rows)
    assert shown.splitlines()[-1].startswith(f"{len(rows)} scenarios: ")
    assert f" {known} are known failures, " in shown.splitlines()[-1]


def test_the_difference_of_two_runs_is_one_json_object(capsys: Output, tmp_path: Path) -> None:
    for name, line in (("one", "5|broker-1|turn|1"), ("other", "5|broker-1|turn|2")):
        (tmp_path / name).write_text(f'{diffing.HEAD}{{"format": 2}}\n{line}\n')
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    assert main(["simulate", "diff", one, other, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["line"], shown["one"], shown["names"]) == (1, ["5|broker-1|turn|1"], [one, other])
    assert main(["simulate", "diff", one, one, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"]


def test_faults_are_listed(capsys: Output) -> None:
    assert main(["simulate", "faults"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in KINDS)
    assert main(["simulate", "faults", "--json"]) == 0
    assert {row["kind"] for row in json.loads(capsys.readouterr().out)["faults"]} == set(KINDS)


def some_fail(first: int, seeds: int, **given: Any) -> Iterator[Outcome]:
    failed = result(Scenario("swarm-2"), WRONG)
    yield Outcome(1, 0.1)
    yield Outcome(2, 0.1, failed=("sound",), violation="it broke", result=failed)


def test_a_swarm_keeps_its_failures_and_names_the_command_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    monkeypatch.setattr(swarming, "swarm", some_fail)
    assert main(["simulate", "swarm", "--seeds", "2", "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    path = tmp_path / "swarm-2.toml"
    assert replaying.read(path).violation == "it broke"
    assert f"again: mesh simulate replay {path}" in shown.out
    assert "seed 2: sound" in shown.err
    assert main(["simulate", "swarm", "--seeds", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["seeds"] == 2 and [each["seed"] for each in report["failures"]] == [2]
    assert report["failure_rate"]["failures"] == 1 and report["failure_rate"]["seeds"] == 2
    assert report["fresh"]


def test_a_swarm_draws_its_seeds_unless_the_first_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    began: list[int] = []

    def begun(first: int, seeds: int, **given: Any) -> Iterator[Outcome]:
        began.append(first)
        yield from ()

    monkeypatch.setattr(swarming, "swarm", begun)
    for _ in range(3):
        main(["simulate", "swarm", "--seeds", "1"])
    main(["simulate", "swarm", "--seeds", "1", "--first", "7"])
    assert len(set(began[:3])) == 3 and began[3] == 7
    assert f"seeds from {began[0]} on, drawn for this swarm" in capsys.readouterr().out


def test_warnings_of_simulated_brokers_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarming, "swarm", some_fail)
    monkeypatch.setattr(logging.getLogger("mesh"), "handlers", [])
    for _ in range(2):
        main(["simulate", "swarm", "--seeds", "2"])
    assert len(logging.getLogger("mesh").handlers) == 1


def test_an_interrupted_swarm_reports_its_findings(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    def interrupted(first: int, seeds: int, **given: Any) -> Iterator[Outcome]:
        yield from some_fail(first, seeds)
        raise KeyboardInterrupt

    monkeypatch.setattr(swarming, "swarm", interrupted)
    assert main(["simulate", "swarm", "--seeds", "9"]) == 130
    shown = capsys.readouterr().out
    assert "seed 2: sound: it broke" in shown and "2 of 9 seeds, 1 failed" in shown


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_terminated_swarm_ends_its_processes(number: signal.Signals, code: int) -> None:
    """They hold its standard output, so its reader would wait forever."""
    command = [sys.executable, "-m", "mesh", "simulate", "swarm", "--seeds", "9999", "--jobs", "2"]
    swarm = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    others: list[psutil.Process] = []
    while len(others) < 3:  # two that play, and the resource tracker
        assert swarm.poll() is None
        time.sleep(0.02)
        others = psutil.Process(swarm.pid).children()
    swarm.send_signal(number)
    shown, _ = swarm.communicate(timeout=120)
    assert swarm.returncode == code
    assert psutil.wait_procs(others, timeout=120)[1] == []
    assert ("of 9999 seeds" in shown) is (number is signal.SIGTERM)


@pytest.mark.parametrize("option", ["--keep", "--trace"])
def test_a_full_disk_costs_no_verdict(option: str, capsys: Output, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\nbrokers = 2\n\n[[expect]]\ncheck = "nobody_dead"\n'
        '[[fault]]\nat_s = 8.0\nkind = "crash"\na = ["broker-2"]\n'
    )
    assert main(["simulate", str(mine), option, "/dev/full"]) == 73
    told = capsys.readouterr()
    assert "VIOLATED" in told.out and f"again: mesh simulate {mine} --seed 1" in told.out
    assert "cannot write /dev/full: No space left on device" in told.err


def test_a_full_disk_ends_no_swarm_and_is_reported_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    monkeypatch.setattr(swarming, "swarm", some_fail)
    (tmp_path / "swarm-2.toml").symlink_to("/dev/full")
    assert main(["simulate", "swarm", "--seeds", "2", "--out", str(tmp_path)]) == 73
    shown = capsys.readouterr()
    assert "2 seeds, 1 failed" in shown.out and "again: mesh simulate swarm-2 --seed 2" in shown.out
    assert f"cannot write {tmp_path}/swarm-2.toml: No space left on device" in shown.err


def test_a_failure_is_shrunk_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    def always(scenario: Scenario, **given: Any) -> Result:
        return result(scenario, WRONG)

    monkeypatch.setattr(shrinking.shrink, "__kwdefaults__", {**KEYWORDS, "play": always})
    path, small = tmp_path / "failure.toml", tmp_path / "failure.small.toml"
    path.write_text(replaying.write(replaying.failure_of(result(Scenario("large", brokers=5), WRONG))))
    assert main(["simulate", "shrink", str(path)]) == 0
    assert "from 0 faults, 5 brokers" in capsys.readouterr().out
    assert replaying.read(small).scenario.brokers == 1
    assert main(["simulate", "shrink", str(path), "--json", "--minutes", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["file"], shown["check"], shown["ending"]) == (str(small), "sound", "smallest")
    assert main(["simulate", "shrink", str(path), "--out", "/dev/full"]) == 73
    told = capsys.readouterr()
    assert "from 0 faults, 5 brokers" in told.out
    assert "cannot write /dev/full: No space left on device" in told.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_shrink_keeps_the_smallest_failure_so_far(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    played = 0

    def asked(scenario: Scenario, **given: Any) -> Result:
        nonlocal played
        played += 1
        if played == 3:
            signal.raise_signal(number)
        return result(scenario, WRONG)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(shrinking.shrink, "__kwdefaults__", {**KEYWORDS, "play": asked})
    path, small = tmp_path / "failure.toml", tmp_path / "failure.small.toml"
    large = Scenario("large", brokers=5)
    path.write_text(replaying.write(replaying.failure_of(result(large, WRONG))))
    assert main(["simulate", "shrink", str(path)]) == code
    assert replaying.read(small).scenario.workload.publishers < large.workload.publishers
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_shrink_that_is_terminated_at_once_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    def asked(scenario: Scenario, **given: Any) -> Result:
        signal.raise_signal(signal.SIGTERM)
        return result(scenario, WRONG)

    monkeypatch.setattr(shrinking.shrink, "__kwdefaults__", {**KEYWORDS, "play": asked})
    path = tmp_path / "failure.toml"
    path.write_text(replaying.write(replaying.failure_of(result(Scenario("large"), WRONG))))
    assert main(["simulate", "shrink", str(path)]) == 143
    assert "terminated before there was anything to show" in capsys.readouterr().err
    assert not (tmp_path / "failure.small.toml").exists()


def test_a_failure_is_replayed_and_shrunk_by_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, tmp_path: Path
) -> None:
    path = tmp_path / "failure.toml"
    failure = replaying.failure_of(result(Scenario("small", brokers=2, quiet_s=1.0), WRONG))
    path.write_text(replaying.write(failure))
    assert main(["simulate", "replay", str(path)]) == 70  # its history was made up
    assert "NOT THE SAME RUN" in capsys.readouterr().out
    path.write_text(replaying.write(failure).replace(f'code = "{failure.code}"', 'code = "0"'))
    assert main(["simulate", "replay", str(path)]) == 0
    shown = capsys.readouterr()
    assert "sound does not fail any more" in shown.out and "was written by other code" in shown.err
    assert main(["simulate", "shrink", str(path)]) == 64
    assert "sound does not fail in it" in capsys.readouterr().err


def test_cores_are_played_without_brokers(capsys: Output) -> None:
    arguments = ["simulate", "calm", "--seed", "2", "--nodes", "6", "--fidelity", "cores"]
    assert main(arguments) == 0
    assert "6 brokers) --seed 2: whole at the end" in capsys.readouterr().out
    shown = []
    for _ in range(2):
        assert main([*arguments, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("calm", "--fidelity", "cores", "--out", "x"), 64, "--out is of runs at full fidelity"),
        ((), 64, "name a scenario: "),
        (("storm",), 64, "there is no scenario 'storm'"),
        (("nowhere.toml",), 66, "nowhere.toml: there is no such scenario file"),
        (("nowhere/",), 66, "nowhere: there is no such scenario file"),
        ((__file__,), 65, "test_app.py:1: expected '=' after a key"),
        (("calm", "--nodes", "0"), 64, "brokers is 0; it must be at least 1"),
        (("calm", "--out", "/proc/nowhere"), 73, "cannot write to /proc/nowhere"),
        (("swarm", "--seeds", "0"), 64, "--seeds is 0; it must be at least 1"),
        (("replay", "nowhere.toml"), 66, "nowhere.toml: there is no such scenario file"),
        (("diff", "calm"), 64, "name two runs, or one and --twice"),
        (("calm", "--seed", "1.5"), 64, '"1.5" is no whole number'),
        (("calm", "--keep", "/proc/nowhere/x"), 73, "cannot write /proc/nowhere/x: No such file"),
        (("calm", "--trace", "/"), 73, "cannot write /: Is a directory"),
        (("swarm", "--minutes", "nan"), 64, "--minutes is nan; it must be a number above 0"),
        (("swarm", "--out", __file__), 73, "cannot write to"),
        (("replay", "/"), 66, "/: cannot be read: Is a directory"),
        (("shrink", __file__), 65, "expected '=' after a key"),
        (("shrink", "nowhere.toml", "--minutes", "-1"), 64, "--minutes is -1"),
        (("diff", "nowhere.history", "calm"), 66, "nowhere.history: there is no such file"),
        (("diff", "trk", "calm"), 64, "trk is no file of a history, and there is no scenario 'trk'"),
        (("diff", ".", "calm"), 66, ". is a folder; name a file"),
        (("diff", "/dev/null", "calm"), 65, "/dev/null:1: is no history"),
        (("diff", "folder/trk", "calm"), 66, "folder/trk: there is no such file"),
        (("diff", "nowhere.toml", "calm"), 66, "nowhere.toml: there is no such file"),
        (("diff", __file__, "--twice"), 64, "--twice plays a scenario"),
        (("diff", "calm@", "calm"), 64, "calm@: the seed after the @ must be a whole number"),
        (("diff", "calm@x", "calm"), 64, "calm@x: the seed after the @ must be a whole number"),
        (("diff", __file__, __file__), 65, "test_app.py:1: is no history"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], code: int, sentence: str, capsys: Output
) -> None:
    assert main(["simulate", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == "" and sentence in shown.err and len(shown.err.splitlines()) == 1


@pytest.mark.parametrize("fidelity", ["full", "cores"])
def test_too_many_brokers_are_an_error_of_the_file_or_of_the_flag_that_names_them(
    fidelity: str, capsys: Output, tmp_path: Path
) -> None:
    """A file of too many brokers ended with 64, unlike any other error in a file."""
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nbrokers = 100000\n')
    assert main(["simulate", str(path), "--fidelity", fidelity]) == 65
    assert main(["simulate", str(path), "--fidelity", fidelity, "--nodes", "90000"]) == 64
    assert main(["simulate", "calm", "--fidelity", fidelity, "--nodes", "90000"]) == 64
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_papers_figure_is_shown_beside_ours() -> None:
    found = result(Scenario("calm", paper="12 s (a study)"))
    assert "  theirs: 12 s (a study)" in showing.summary(found, 1.0, None, None).splitlines()


def test_the_command_to_repeat_a_run_has_all_its_parameters() -> None:
    found = result(Scenario("calm"), WRONG)
    assert cli._replay_command("my.toml", found, None, None) == "mesh simulate my.toml --seed 7"
    assert cli._replay_command("a b.toml", found, 3, None) == "mesh simulate 'a b.toml' --seed 7 --nodes 3"
    assert cli._replay_command("my.toml", found, None, "0;x") == "mesh simulate replay '0;x'"
