"""The pictures of the docs can be drawn again, need nothing of others, and are shown somewhere."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.photographs import BYTES_MAX, PAGE_SIZE, PHOTOGRAPHS
from tests.docs.pictures import EVERY, FIRST, FOLDER, LAST, pictures
from tests.support.chromium import needed

ROOT = Path(__file__).parents[2]


def test_every_picture_is_drawn_and_loads_nothing() -> None:
    drawn = pictures()
    assert set(drawn) == {path.name for path in FOLDER.glob("*.svg")}
    for name, text in drawn.items():
        ElementTree.fromstring(text)
        for svg in (text, (FOLDER / name).read_text()):
            assert "@font-face" not in svg and "@import" not in svg and "<script" not in svg
            assert not re.search(r"(?:href|src)=|url\((?!#)", svg), name
    frames = len(range(FIRST, LAST + 1, EVERY))
    assert drawn["console-death.svg"].count('class="frame frame-') == frames


def test_every_picture_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        Path(link).name for page in pages for link in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page.read_text())
    }
    assert {path.name for path in FOLDER.iterdir()} <= shown


def test_photographs_are_pictures_of_modest_size() -> None:
    assert {path.name for path in FOLDER.glob("*.png")} == set(PHOTOGRAPHS)
    for path in FOLDER.glob("*.png"):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n") and len(content) < BYTES_MAX


@pytest.mark.long
@needed
def test_a_page_is_photographed_from_its_top() -> None:
    content = asyncio.run(PHOTOGRAPHS["page.png"]())
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == PAGE_SIZE
