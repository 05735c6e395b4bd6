"""Signs and colours of states. Colour is never the only sign; a terminal without Unicode gets letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

COLOURS: Final = {
    "alive": "green",
    "suspect": "yellow",
    "dead": "red",
    "left": "bright_black",
    "unknown": "magenta",
    "link-up": "green",
    "link-down": "yellow",
    "meta-start": "cyan",
    "meta-stop": "cyan",
}


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters that stand for states and the like."""

    alive: str
    suspect: str
    dead: str
    left: str
    unknown: str
    arrow: str
    none: str
    unicode: bool
    ellipsis: str

    def of(self, state: str) -> str:
        signs = {"alive": self.alive, "suspect": self.suspect, "dead": self.dead, "left": self.left}
        return signs.get(state, self.unknown)


UNICODE: Final = Signs("●", "◐", "✕", "○", "◌", "→", "·", True, "…")
ASCII: Final = Signs("A", "S", "D", "L", "?", "->", ".", False, "~")


class Shown:
    """A renderable as a terminal with these signs can show it: without Unicode, other characters than ASCII
    are question marks, and what was cut ends in a tilde."""

    def __init__(self, content: RenderableType, signs: Signs) -> None:
        self._content = content
        self._signs = signs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._content, options):
            if self._signs.unicode or segment.text.isascii():
                yield segment
            else:
                text = segment.text.replace(UNICODE.ellipsis, self._signs.ellipsis)
                yield Segment(text.encode("ascii", "replace").decode(), segment.style, segment.control)


def signs_for(encoding: str) -> Signs:
    """The signs a terminal of that encoding can show."""
    return UNICODE if encoding.lower().replace("-", "").startswith("utf") else ASCII


def colour(state: str) -> str:
    return COLOURS.get(state, "white")
