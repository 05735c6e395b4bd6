"""The page as text: one file that needs no network and no script, light and dark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, Template
from markupsafe import Markup

from mesh.analysis.reporting.digest import Digest
from mesh.analysis.reporting.findings import Findings
from mesh.analysis.reporting.page.sections import page_of


def render(found: Findings, digest: Digest) -> str:
    """The whole page. Every text from a log is escaped."""
    return _template().render(page=page_of(found, digest), style=Markup(_text("style.css")))


@cache
def _template() -> Template:
    return Environment(autoescape=True, trim_blocks=True).from_string(_text("page.html.j2"))


def _text(name: str) -> str:
    return (files("mesh.analysis.reporting.page") / name).read_text(encoding="utf-8")
