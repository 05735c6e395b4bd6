"""Inputs kept in the repository, one file for each target: a line is an input in hex, ``#`` begins a comment.

``corpus/`` is where the fuzzer begins: what reaches different code. ``crashes/`` is what once broke a rule.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
CRASHES: Final = HERE / "crashes"
LINE_MAX: Final = 2048
"""Bytes of an input kept; the fuzzer finds long ones again by itself."""


def load(file: Path) -> list[bytes]:
    """The inputs of one file, none if there is no such file; a line that is no hex raises `ValueError`."""
    if not file.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [bytes.fromhex(line) for line in lines if line]


def store(file: Path, inputs: Iterable[bytes], title: str) -> int:
    """Replace the file by these inputs, short ones first; returns how many."""
    kept = sorted({data for data in inputs if 0 < len(data) <= LINE_MAX}, key=lambda data: (len(data), data))
    head = textwrap.indent(textwrap.fill(title, 100), "# ")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([head, *(data.hex() for data in kept)]) + "\n")
    return len(kept)


def unpack(inputs: Iterable[bytes], folder: Path) -> None:
    """As files of their own, named as libFuzzer names them, so that it may replace them."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
