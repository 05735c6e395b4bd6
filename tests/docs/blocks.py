"""The code blocks of README and docs: which there are, and what each language means.

* ``sh``: commands, as a reader pastes them. ``output``: what they print.
* ``python``: a program.
* ``toml`` and ``json``: data. Below a line that ends with a file's name and a colon, a block is that file.
* ``text``: drawings, formats and messages, without commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"sh", "output", "python", "toml", "json", "text"}
FENCED = re.compile(
    r"^(?P<before>[^\n]*)\n+^ *```(?P<language>\S*)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"`([\w-]+\.\w+)`[^`]*:$")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    file: str | None
    """Name of the file that the block is, if the page says so."""

    def __str__(self) -> str:
        return f"{self.name}:{self.line}"

    @property
    def name(self) -> str:
        return str(self.page.relative_to(ROOT))

    def commands(self) -> Iterator[str]:
        """The lines, without comments; continued ones are joined."""
        whole = ""
        for line in self.code.splitlines():
            whole += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            if whole.strip() and not whole.lstrip().startswith("#"):
                yield whole
            whole = ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCED.finditer(text):
        file = FILE.search(match["before"])
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(page, line, match["language"], match["code"], file[1] if file else None))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def says(expected: str, said: str) -> bool:
    """True if a line of what was said has this in it. Spaces count once, and ``...`` is anything."""
    pieces = [".*?".join(map(re.escape, word.split("..."))) for word in expected.split()]
    return re.search(r"[^\S\n]+".join(pieces), said) is not None
