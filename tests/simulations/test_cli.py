"""What `mesh simulate` prints and returns, by a scenario that is stood in for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulations import cli, playing, scenario_file
from simulations.invariants import Verdict
from simulations.measuring import measure
from simulations.playing import Result
from simulations.scenario import Scenario


def result(*verdicts: Verdict) -> Result:
    counts = dict.fromkeys(
        "events turns arrivals connections published accepted refused unknown delivered log_rows".split(), 3
    )
    faults = ("1.000 crash broker-1",)
    return Result(
        scenario=Scenario("calm"),
        seed=7,
        size="ci",
        history_hash="ab" * 16,
        virtual_s=42.0,
        phases=(("clients_s", 1.0),),
        whole_in_s=1.5,
        verdicts=verdicts,
        counts=counts,
        faults=faults,
        coverage={},
        measures=measure((), (), ()),
    )


def play(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict, **options: Any) -> int:
    def stand_in(scenario: Scenario, **given: Any) -> Result:
        given["say"](1.0, "crash broker-1")
        return result(*verdicts)

    monkeypatch.setattr(playing, "play", stand_in)
    return cli.simulate("calm", seed=7, **options)


def test_a_passed_run_ends_with_zero_and_names_its_seed_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, Verdict("converged", "5 live brokers", ())) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "calm --seed 7: passed"
    assert "abababab" in shown.out and "at 1.000 crash broker-1" in shown.out
    assert "1.00 s  crash broker-1" in shown.err


def test_a_violation_ends_with_one_and_is_shown_with_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Verdict("at_most_once", "9 deliveries", tuple(f"violation {number}" for number in range(30)))
    assert play(monkeypatch, verdict) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "calm --seed 7: VIOLATED"
    assert sum("violation " in line for line in lines) == cli.SHOWN_MAX
    assert lines[-1].strip() == "and 20 more; --json has them all"


def test_json_holds_everything_and_nothing_else_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, Verdict("sound", "all", ("it broke",)), json=True) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["history_hash"] == "ab" * 16
    assert shown["seed"] == 7 and shown["ok"] is False
    assert shown["checks"][0]["violations"] == ["it broke"]


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.simulate(list_=True) == 0
    assert capsys.readouterr().out.split()[0] == "calm"
    assert cli.simulate(list_=True, json=True) == 0
    assert {row["scenario"] for row in json.loads(capsys.readouterr().out)} == set(scenario_file.shipped())


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({}, 64, "name a scenario: calm"),
        ({"scenario": "storm"}, 64, "there is no scenario 'storm'"),
        ({"scenario": "calm", "nodes": 0}, 64, "brokers is 0; it must be at least 1"),
        ({"scenario": "calm", "out": "/proc/nowhere"}, 73, "cannot write logs to /proc/nowhere"),
    ],
)
def test_bad_input_is_one_sentence(
    options: dict[str, Any], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.simulate(**options) == code
    shown = capsys.readouterr()
    assert shown.out == "" and sentence in shown.err and len(shown.err.splitlines()) == 1
