"""The page of scenarios in the docs equals the shipped files and the figures kept for them."""

from __future__ import annotations

from simulations.pages.scenarios import PAGE, page


def test_the_page_in_the_docs_is_that_of_the_files_and_figures() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m simulations.pages.scenarios > docs/reference/scenarios.md"
    )
