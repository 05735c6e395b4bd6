"""The page of example programs has all of them, and each has tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.examples.programs import FOLDER

PAGE = FOLDER / "README.md"


ABOUT_ALL = {"page", "interrupt"}


def test_each_program_is_on_the_page_and_has_tests() -> None:
    programs = {path.stem for path in FOLDER.iterdir() if path.suffix in (".py", ".c")}
    assert programs == set(re.findall(r"\((\w+)\.(?:py|c)\)", PAGE.read_text()))
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert programs == tests - ABOUT_ALL
