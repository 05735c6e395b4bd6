"""The reference page of the event log matches the row classes."""

from __future__ import annotations

from pathlib import Path

from mesh.eventlog.page import page
from mesh.eventlog.rows import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "event-log.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m mesh.eventlog.page > docs/reference/event-log.md"


def test_each_kind_has_a_section_with_its_columns() -> None:
    titles = [line for line in page().splitlines() if line.startswith("## `")]
    assert [title.split("`")[1] for title in titles] == list(KINDS)
    assert "| `hb_seq` | int | the round, numbered by the broker that asked |" in page()
    assert "| `rtt_us` | int? | answers: round trip in microseconds; surveys: null |" in page()
