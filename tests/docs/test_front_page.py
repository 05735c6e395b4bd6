"""README names what is there: every command, and every package that the base installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mesh.cli.app import COMMANDS

FIGURE = re.compile(r"(?<![\w.])(\d[\d ]*(?:\.\d+)?) (M|k|us|ms)(?:/s)?\b")
SCALE = {"M": 1e6, "k": 1e3, "us": 1e-6, "ms": 1e-3}
COMMIT = re.compile(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7}\b")
ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CLI_PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()


NAMES = [name for name, _, _ in COMMANDS]


def test_readme_and_the_page_of_the_command_line_have_every_command() -> None:
    """`mesh drain`, `mesh key` and `mesh check` were missing in the table of README."""
    rows = "\n".join(line for line in README.splitlines() if line.startswith("| `mesh"))
    assert not [name for name in NAMES if f"`mesh {name}`" not in rows]
    assert not [name for name in NAMES if not re.search(rf"^(##|\|) .*mesh {name}\b", CLI_PAGE, re.MULTILINE)]


def test_readme_names_the_packages_that_the_base_installs() -> None:
    """README named networkx, which is in an extra, and neither h11 nor prometheus-client."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = sorted(re.split(r"[><=\[ ]", requirement)[0] for requirement in project["dependencies"])
    sentence = re.search(r"The base needs ([\w, -]+?), which come as wheels", " ".join(README.split()))
    assert sentence is not None
    assert sorted(re.split(r", | and ", sentence[1])) == packages


def test_every_extra_is_on_the_page_of_the_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert not [extra for extra in project["optional-dependencies"] if f"`{extra}`" not in table]


def test_pages_for_users_name_no_commits() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for part in ("start", "guides", "reference", "deploy"):
        pages += (ROOT / "docs" / part).rglob("*.md")
    found = [
        f"{page.name}: {commit}"
        for page in pages
        for commit in COMMIT.findall(page.read_text().replace("ed25519", ""))
    ]
    assert not found


def figures(text: str) -> list[float]:
    """Rates and times, such as `2.77 M/s`, `1 118 k/s` and `79 us`, of the tables in a text."""
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return [float(number.replace(" ", "")) * SCALE[unit] for number, unit in FIGURE.findall(rows)]


def test_figures_of_the_front_pages_are_those_of_the_benchmarks() -> None:
    """They may be rounded: 2.30 M/s for 2 301 k/s."""
    known = figures((ROOT / "docs" / "results" / "benchmarks.md").read_text())
    for page in ("README.md", "docs/start/why.md"):
        shown = figures((ROOT / page).read_text())
        assert len(shown) > 10
        unknown = [each for each in shown if not any(abs(each - one) < 0.006 * one for one in known)]
        assert not unknown, f"{page} shows {unknown}, which are not in docs/results/benchmarks.md"
