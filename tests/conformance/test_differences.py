"""The page of differences names items that exist, and none that is not proven."""

from __future__ import annotations

import re

from .checklist import ITEMS
from .declaring import REGISTER
from .table import NOT_APPLICABLE, ROOT, load

PAGE = ROOT / "docs" / "reference" / "differences.md"


def test_each_row_names_items_that_are_proven() -> None:
    load()
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "|---" not in line]
    assert len(rows) > 40
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, row
        if cells[0] == "topic":
            continue
        assert re.fullmatch(r"(\d+(, \d+)*)?", cells[5]), row
        for number in map(int, re.findall(r"\d+", cells[5])):
            assert number in ITEMS
            assert number in NOT_APPLICABLE or any(REGISTER.of(number)), row
