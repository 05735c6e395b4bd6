"""The reference page of the tables is the one that the records make."""

from __future__ import annotations

from pathlib import Path

from mesh.analysis.results.page import page
from mesh.analysis.results.tables import TABLES

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "tables.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m mesh.analysis.results.page > docs/reference/tables.md"


def test_each_table_has_a_section() -> None:
    titles = [line for line in page().splitlines() if line.startswith("## ")]
    assert titles == [f"## `{name}`" for name in TABLES]


def test_a_column_is_described_by_its_docstring_and_its_words() -> None:
    """`state` has no docstring of its own: that of its type is used, after its possible words."""
    lines = page().splitlines()
    assert (
        "| `state` | string | `up`, `paused`, `down`, `away`, `unknown`. The state of a process. `away`: it "
        in "\n".join(lines)
    )
    assert "| `availability` | float? | up_s / (up_s + down_s) |" in lines
