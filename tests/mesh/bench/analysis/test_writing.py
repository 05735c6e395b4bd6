"""What a heartbeat takes in the event log is measured on real files."""

from __future__ import annotations

import pytest

from mesh.bench.analysis.writing import BYTES, COST, FORMS, run_writing
from mesh.bench.harness import Figures


@pytest.mark.parametrize("form", FORMS)
def test_the_writer_is_measured_in_both_forms(form: str) -> None:
    told: list[Figures] = []
    run_writing(form, 2000, told.append, None)
    (figures,) = told
    assert sorted(figures) == [BYTES, COST]
    # A row of its own takes 200 to 300 bytes. Ten heartbeats of a peer share a row of a summary.
    assert 200 < figures[BYTES] < 300 if form == "each" else 10 < figures[BYTES] < 100
    assert figures[COST] > 0
