"""The page of faults in the docs equals the catalogue."""

from __future__ import annotations

from pathlib import Path

from simulations.faults import KINDS
from simulations.pages.faults import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "faults.md"


def test_the_page_in_the_docs_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text() == page(), "run: python -m simulations.pages.faults > docs/reference/faults.md"


def test_every_kind_has_a_row_with_all_its_numbers() -> None:
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    assert set(rows) == set(KINDS)
    for kind in KINDS.values():
        assert kind.sentence in rows[kind.name]
        assert all(f"`{parameter.name}`" in rows[kind.name] for parameter in kind.parameters)
