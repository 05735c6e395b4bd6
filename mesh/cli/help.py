"""How help is shown: in paragraphs that fit the terminal, without defaults that say nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from cyclopts.help import DefaultFormatter, InlineText

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

WITHIN_PARAGRAPH: Final = re.compile(r"(?<=\S)\n(?=\S)")
"""The end of a line in the source. Indented lines stay apart, as in an example."""


NOTHING: Final = ("False", "()", "[]", '""')
"""Defaults that are not shown: a flag or an argument that is not given is not there."""


class Paragraphs(DefaultFormatter):
    """The default formatter, with each paragraph in one piece instead of with the line ends of its source."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        for entry in panel.entries:
            _join_lines(entry.description)
        entries = [entry.copy(default=None) if entry.default in NOTHING else entry for entry in panel.entries]
        super().__call__(console, options, panel.copy(entries=entries))

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        _join_lines(description)
        super().render_description(console, options, description)


def _join_lines(description: Any) -> None:
    from rich.text import Text  # only help needs it

    if isinstance(description, InlineText) and isinstance(text := description.primary_renderable, Text):
        description.primary_renderable = Text(WITHIN_PARAGRAPH.sub(" ", text.plain))
