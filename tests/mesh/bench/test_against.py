"""`mesh bench ... --against`: two versions in turn, ratios by pairs, and the interval."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mesh.bench.against import Comparison, compare, comparisons, median_interval, version_at
from mesh.bench.harness import BenchError, Case

ROOT = Path(__file__).resolve().parents[3]


def case(work: str = "work") -> Case:
    return Case(work, "mangrove", lambda: {"messages/s": 1.0})


def test_fifteen_pairs_hold_the_median_between_the_fourth_and_the_twelfth() -> None:
    """A table of sign-test intervals has these ranks for 15 values at 95 %."""
    values = [float(number) for number in range(1, 16)]
    random.Random(1).shuffle(values)
    assert median_interval(values) == (4.0, 12.0)


def test_six_values_are_the_fewest_that_give_an_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        interval = median_interval([rng.expovariate(1.0) for _ in range(15)])
        assert interval is not None
        held += interval[0] <= 0.6931 <= interval[1]
    assert 945 <= held <= 985, "96.5 % is expected"


def test_pairs_alternate_which_version_goes_first() -> None:
    order: list[str] = []

    def running(name: str, value: float) -> object:
        def run(case: Case) -> dict[str, float]:
            order.append(name)
            return {"messages/s": value}

        return run

    runs = list(compare([case()], 4, running("this", 2.0), running("other", 1.0)))  # type: ignore[arg-type]
    assert order == ["this", "other", "other", "this", "this", "other", "other", "this"]
    (row,) = comparisons(*runs[-1])
    assert row.ratios == (2.0,) * 4 and row.ratio == 2.0 and (row.this, row.other) == (2.0, 1.0)


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_medians() -> None:
    samples = [({"rate": a}, {"rate": b}) for a, b in ((1.0, 1.0), (4.0, 2.0), (9.0, 3.0))]
    (row,) = comparisons(case(), samples)
    assert row.ratio == 2.0 == statistics.median(row.ratios)


def test_a_figure_that_one_version_lacks_is_left_out() -> None:
    assert comparisons(case(), [({"new": 1.0, "rate": 1.0}, {"rate": 2.0})]) == [
        Comparison("work", "mangrove", "rate", 1.0, 2.0, (0.5,))
    ]


@pytest.mark.parametrize("what", ["nothing.whl", ".", "broken.whl"])
def test_a_path_without_a_version_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    (tmp_path / "broken.whl").write_bytes(b"not a zip")
    with (
        pytest.raises(BenchError, match="neither a wheel nor a checkout|cannot unpack"),
        version_at(str(tmp_path / what)),
    ):
        pass


def test_a_wheel_is_unpacked_for_the_time_being(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("mesh/bench/__init__.py", "")
    with version_at(str(wheel)) as folder:
        assert (folder / "mesh/bench/__init__.py").is_file()
    assert not folder.exists()


@pytest.mark.process
def test_a_version_beside_itself_is_measured_pair_by_pair() -> None:
    command = [sys.executable, "-m", "mesh", "bench", "sockets", "--against", str(ROOT), "--pairs", "2"]
    done = subprocess.run(
        [*command, "--scale", "0.01", "--only", "push/pull 128", "--json"],
        capture_output=True,
        text=True,
        timeout=290,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["pairs"] == 2
    rates = [row for row in document["ratios"] if row["figure"] == "messages/s"]
    assert {row["system"] for row in rates} == {"mangrove", "mangrove, batches"}
    assert all(row["ratio"] > 0 and row["interval"] is None for row in rates)


@pytest.mark.process
def test_no_pairs_is_one_sentence() -> None:
    command = [sys.executable, "-m", "mesh", "bench", "sockets", "--against", str(ROOT), "--pairs", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0
    (sentence,) = done.stderr.strip().splitlines()
    assert sentence == "mesh bench: --pairs is 0; at least one pair is needed"
