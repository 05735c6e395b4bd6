"""The page of checks in the docs equals the catalogue."""

from __future__ import annotations

from pathlib import Path

from simulations.pages.invariants import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "invariants.md"


def test_the_page_in_the_docs_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m simulations.pages.invariants > docs/reference/invariants.md"
    )
