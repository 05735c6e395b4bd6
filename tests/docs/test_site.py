"""The site that `make docs` builds: whole, self-contained, and without links that lead nowhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "use": "href"}
LOADED_RELS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
CSS_REFERENCE = re.compile(
    r"url\(\s*['\"]?\s*((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)"
)
SVG_NAMESPACES = ("http://www.w3.org/",)


@dataclass
class Page:
    """The names, links and loaded files of one HTML page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.page = Page()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.page.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        elif tag == "link" and LOADED_RELS & set(given.get("rel", "").split()):
            self.page.loaded.append(given["href"])
        elif tag in LOADED and LOADED[tag] in given:
            self.page.loaded.append(given[LOADED[tag]])


def site_script() -> object:
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "site" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("zensical", "mkdocstrings_handlers.python"):
        if importlib.util.find_spec(needed.partition(".")[0]) is None:
            pytest.skip(f"{needed} is not installed: pip install -c constraints.txt -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site") / "site"
    built = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Reader(path.read_text()).page for path in sorted(site.rglob("*.html"))}


def local(pages: dict[Path, Page], site: Path) -> Iterator[tuple[Path, str, Path, str]]:
    """Every reference within the site: the page, the reference, the file it leads to and its anchor."""
    for path, page in pages.items():
        for reference in page.links + page.loaded:
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                continue
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            yield path, reference, target, unquote(parts.fragment)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_reference_leads_to_a_file_and_to_an_anchor_in_it(pages: dict[Path, Page], site: Path) -> None:
    broken = [
        f"{path.relative_to(site)}: {reference}"
        for path, reference, target, anchor in local(pages, site)
        if path.name != "404.html"  # its references count from the root of a server
        and (not target.exists() or (anchor and target in pages and anchor not in pages[target].ids))
    ]
    assert len(pages) > 60
    assert not broken, "\n".join(broken)


@pytest.mark.long
def test_the_site_loads_nothing_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    foreign = [
        f"{path.relative_to(site)}: {reference}"
        for path, page in pages.items()
        for reference in page.loaded
        if urlsplit(reference).netloc
    ]
    styles = [*site.rglob("*.css"), *site.rglob("*.html")]
    for path in styles:
        foreign += [f"{path.relative_to(site)}: {found}" for found in CSS_REFERENCE.findall(path.read_text())]
    assert not foreign, "\n".join(foreign)


@pytest.mark.long
def test_the_reference_has_every_public_name_with_its_words(pages: dict[Path, Page], site: Path) -> None:
    for package in ("mesh", "protocols"):
        ids = pages[site / "reference" / "api" / package / "index.html"].ids
        missing = [name for name in import_module(package).__all__ if f"{package}.{name}" not in ids]
        assert not missing, f"{package} lacks {missing}"


def test_the_reference_lists_the_public_names() -> None:
    for package, parts in site_script().API.items():  # type: ignore[attr-defined]
        listed = [name for _, names in parts for name in names.split()]
        assert sorted(listed) == sorted(import_module(package).__all__)


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"[\w./-]+\.md\b", (ROOT / "mkdocs.yml").read_text())
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert not set(pages) - set(named), "mkdocs.yml does not name these pages"
    assert len(named) == len(set(named))


def test_a_link_out_of_the_docs_becomes_text_and_one_to_a_program_a_page(tmp_path: Path) -> None:
    site_script().stage(tmp_path / "pages")  # type: ignore[attr-defined]
    examples = (tmp_path / "pages" / "examples" / "README.md").read_text()
    assert "](task_queue.py.md)" in examples
    assert "```python" in (tmp_path / "pages" / "examples" / "task_queue.py.md").read_text()
    guarantees = (tmp_path / "pages" / "reference" / "guarantees.md").read_text()
    assert (
        "](../../tests" not in guarantees
        and "`test_sent_without_a_subscriber_reaches_no_client`" in guarantees
    )
