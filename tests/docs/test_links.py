"""Links between pages lead somewhere, and every page can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if link and not (page.parent / link).exists()]
    assert not broken, f"{page.relative_to(ROOT)} links to {broken}"


MODULE = re.compile(
    r"`((?:[\w-]+/)*[\w-]+\.(?:py|js|html))`|`((?:mesh|protocols|simulations)(?:[./]\w+)*)/?`"
)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "design").glob("*.md")), ids=lambda page: page.stem)
def test_pages_of_the_design_name_modules_that_exist(page: Path) -> None:
    paths = [
        f"/{path.relative_to(ROOT)}"
        for package in ("protocols", "mesh", "simulations", "tests", "docs")
        for path in (ROOT / package).rglob("*")
    ]
    for file, module in MODULE.findall(page.read_text()):
        if file:
            assert any(path.endswith(f"/{file}") for path in paths), f"{page.name} names {file}"
            continue
        names = module.replace("/", ".").split(".")
        place = ROOT.joinpath(*names)  # the last name may be one in a module
        known = (
            place,
            place.with_suffix(".py"),
            place.parent.with_suffix(".py"),
            place.parent / "__init__.py",
        )
        assert any(each.exists() for each in known), f"{page.name} names {module}"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    seen, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.read_text()):
            target = (page.parent / link).resolve()
            if link and target.suffix == ".md" and target.exists() and target not in seen:
                seen.add(target)
                waiting.append(target)
    lost = [str(page.relative_to(ROOT)) for page in PAGES if page not in seen and page.name != "README.md"]
    assert not lost, f"no page links to {lost}"
