"""Rounds, medians, ratios and worker processes of the benchmarks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from mesh.bench.harness import BenchError, Case, Target, as_json, run_cases, show, workers

RATE = Target("work", "rate", "ours", "peer", 2.0, True)


def quiet() -> Console:
    return Console(file=StringIO(), width=100, _environ={})


def cases(ours: list[float], peer: list[float]) -> list[Case]:
    def one_after_another(values: Iterator[float]) -> Any:
        return lambda: {"rate": next(values)}

    return [
        Case("work", "ours", one_after_another(iter(ours))),
        Case("work", "peer", one_after_another(iter(peer))),
    ]


def test_a_ratio_is_one_of_medians_over_the_rounds() -> None:
    outcome = run_cases(cases([9.0, 6.0, 100.0], [3.0, 1.0, 3.0]), 3, {}, quiet())
    assert RATE.value(outcome.medians) == 3.0
    assert RATE.met(3.0) and not RATE.met(1.9)


def test_a_target_whose_peer_did_not_run_has_no_value() -> None:
    outcome = run_cases(cases([1.0], [1.0])[:1], 1, {"peer": "not installed"}, quiet())
    assert RATE.value(outcome.medians) is None
    assert Target("work", "rate", "ours", None, 2.0, False).value(outcome.medians) == 1.0


def test_rounds_go_through_all_systems_in_turn() -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        return lambda: (order.append(name), {"rate": 1.0})[1]

    run_cases([Case("work", name, noting(name)) for name in ("ours", "peer")], 2, {}, quiet())
    assert order == ["ours", "peer", "ours", "peer"]


def test_json_has_the_ratios_their_bounds_and_the_skipped_systems() -> None:
    outcome = run_cases(cases([1.0], [1.0]), 1, {"other": "not installed"}, quiet())
    document = json.loads(as_json("sockets", outcome, [RATE]))
    assert document["ratios"] == [
        {
            "work": "work",
            "figure": "rate",
            "ours": "ours",
            "peer": "peer",
            "value": 1.0,
            "bound": 2.0,
            "at_least": True,
            "met": False,
        }
    ]
    assert document["skipped"] == {"other": "not installed"}


def test_tables_show_a_target_that_is_missed() -> None:
    console = quiet()
    show("sockets", run_cases(cases([1.0], [1.0]), 1, {}, quiet()), [RATE], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert ">= 2" in text and "short" in text


def echo_twice(word: str, report: Any, gate: Any) -> None:
    report(word)
    gate.wait()
    report(word * 2)


def fail(report: Any, gate: Any) -> None:
    raise ValueError("the worker's last words")


@pytest.mark.process
def test_a_worker_reports_waits_at_its_gate_and_reports_again() -> None:
    with workers() as group:
        worker = group.start(echo_twice, "ab", core=0)
        assert worker.hear() == "ab"
        worker.release()
        assert worker.hear() == "abab"


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_is_an_error_with_its_last_words() -> None:
    with workers() as group, pytest.raises(BenchError, match="the worker's last words"):
        group.start(fail).hear()


@pytest.mark.process
def test_no_worker_outlives_the_block() -> None:
    with workers() as group:
        worker = group.start(echo_twice, "ab")
        worker.hear()
    deadline = time.monotonic() + 10
    while worker.process.is_alive():
        assert time.monotonic() < deadline, "the worker is still there"
