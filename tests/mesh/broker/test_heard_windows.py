"""A broker's summary of heartbeats equals the summary that a plain reader makes of single rows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from mesh.broker.heard_windows import HeardWindows
from mesh.broker.log_rows import RowBuilder, as_text
from mesh.eventlog.rows import HeardRow, decode
from tests.mesh.analysis.oracle.reading import window

Beat = tuple[float, bool, int, int, float | None]
BEATS = st.lists(
    st.tuples(
        st.floats(0, 5),
        st.booleans(),
        st.integers(1, 3),
        st.integers(0, 70),
        st.floats(0, 3) | st.sampled_from([0.00005, 0.0008, 0.0256, 1.0]),
    ),
    max_size=60,
)


@given(BEATS, st.sampled_from([0.01, 0.1, 1.0, 3.3]))
@example([(0.0, False, 1, 0, 0.0), (0.0, False, 1, 0, 1.0)], 0.01)
@example([(0.0, True, 1, 1, 0.0), (0.0, True, 1, 2, 0.0)], 0.01)
def test_windows_are_those_of_single_rows(
    steps: list[tuple[float, bool, int, int, float]], period_s: float
) -> None:
    windows = HeardWindows(period_s)
    length = round(period_s * 16e9)
    told: list[dict[str, Any]] = []
    rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    now = 100.0
    for pause_s, survey, peer, number, rtt_s in steps:
        now += pause_s
        told += windows.heard(survey, peer, number, None if survey else rtt_s, now) or []
        row = {
            "msg": "survey" if survey else "answer",
            "hb_seq": number,
            "mono_ns": int(now * 1e9),
            "rtt_us": None if survey else int(rtt_s * 1e6 + 0.5) if rtt_s > 0 else 0,
        }
        rows[peer, int(now * 1e9) // length].append(row)
    told += windows.end()
    expected = {}
    for (peer, place), beats in rows.items():
        whole = window(("r", "d", "b", f"{peer:016x}", place, length), beats)
        expected[peer, place] = {name: whole[name] for name in whole if name not in ("run", "dst", "boot")}
    assert {(int(fields["src"], 16), fields["window"]): fields for fields in told} == expected
    assert len(told) == len(expected)


def test_rows_fit_the_definition_and_a_finished_window_is_returned_once() -> None:
    windows = HeardWindows(1.0)
    for second in range(16):
        assert windows.heard(True, 2**64 - 1, second, None, 32.0 + second) is None or second == 0
    assert windows.end(47.99) == []
    (fields,) = windows.end(48.0)
    assert windows.end(48.1) == windows.end() == []
    row = RowBuilder(run="mangrove", node=1, boot=2).row(HeardRow, fields, now=48.0, wall=1.7e9)
    assert decode(as_text(row)) == row
    assert row.first_round == 0 and row.last_round == 15 and row.survey_round == 8


def test_a_clock_read_before_the_boundary_opens_the_earlier_window_again() -> None:
    """A reader adds up two rows of one window; nothing is counted in the wrong one."""
    windows = HeardWindows(1.0)
    windows.heard(True, 5, 1, None, 16.0)
    (late,) = windows.heard(True, 5, 0, None, 15.9) or []
    (early,) = windows.heard(True, 5, 2, None, 17.0) or []
    assert (late["window"], early["window"], windows.end()[0]["window"]) == (1, 0, 1)
