"""The page of example programs has all of them, and each has tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.examples.programs import FOLDER

PAGE = FOLDER.parent / "guides" / "examples.md"


def test_each_program_is_on_the_page_and_has_tests() -> None:
    programs = {path.stem for path in FOLDER.glob("*.py")}
    assert programs == set(re.findall(r"\(\.\./examples/(\w+)\.py\)", PAGE.read_text()))
    assert programs == {
        path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")
    } - {"page"}
