"""Truth beside the logs of another run."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")

from mesh.analysis.truth.tables import OtherTruth, check_names, check_runs


def test_truth_of_another_run_is_reported() -> None:
    with pytest.raises(
        OtherTruth, match="the truth is of run 'b', and the logs are of a; put a simulation's"
    ):
        check_runs({"b"}, {"a"})
    with pytest.raises(OtherTruth, match="tells of x, and its logs of a, b, c and others"):
        check_names("run", ["x"], list("abcd"))
    check_runs({"a"}, {"a", "b"})
    check_names("run", ["x", "a"], ["a"])
