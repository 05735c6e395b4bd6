"""The figures and the drawing of `mesh bench simulate`; the values are not judged here."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from mesh.bench import simulate
from mesh.bench.harness import BenchError, Figures, Outcome
from mesh.bench.simulate import COST, IDLE, RATE, plot


def figures_of(run: Any, *arguments: Any) -> Figures:
    reports: list[Figures] = []
    run(*arguments, reports.append, None)
    (figures,) = reports
    return figures


def test_idle_brokers_are_timed_over_about_the_requested_number_of_messages() -> None:
    figures = figures_of(simulate.run_idle, 3, 120)
    assert figures[RATE] > 0 and figures["peak MB"] > 10
    # 12 messages a second: a survey and an answer a second for each of six directed pairs.
    assert figures["simulated s/s"] == pytest.approx(figures[RATE] / 12, rel=0.1)
    assert figures[COST] == pytest.approx(1e6 / figures[RATE])


def test_the_cores_alone_are_timed() -> None:
    figures = figures_of(simulate.run_alone, 10, 10.0)
    # 180 messages a second: a survey and an answer for each of ninety directed pairs.
    assert figures["simulated s/s"] == pytest.approx(figures[RATE] / 180, rel=0.1)


def outcome(costs: dict[int, float]) -> Outcome:
    return Outcome(1, {(IDLE, f"{brokers} brokers"): {COST: cost} for brokers, cost in costs.items()})


def test_the_plot_shows_every_size_and_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "cost.svg"
    plot(outcome({10: 20.0, 100: 24.0}), str(path))
    tree = ET.parse(path)
    texts = [element.text for element in tree.iter() if element.tag.endswith("text")]
    assert {"10", "100", "20", "24"} <= set(texts)
    assert "1.5 times the cost at 10 brokers" in texts
    heights = [float(e.attrib["cy"]) for e in tree.iter() if e.tag.endswith("circle")]
    assert heights[0] > heights[1]  # a higher cost is higher up, and y grows downwards


def test_a_plot_of_one_size_or_to_nowhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="at least two sizes"):
        plot(outcome({10: 20.0}), str(tmp_path / "cost.svg"))
    with pytest.raises(BenchError, match="cannot write the plot to .*: No such file or directory"):
        plot(outcome({10: 20.0, 100: 24.0}), str(tmp_path / "none" / "cost.svg"))
