"""Makes text from others safe to print on a terminal or into a log. Pure.

Names of brokers and clients, hosts, reasons and topics come from the network. Printed unchanged, they could
move the cursor, change the terminal's title, forge a log line, or show a name backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

DEPTH_MAX: Final = 32
"""Depth of a document. Deeper content is shown as an ellipsis."""
TEXT_MAX: Final = 250
"""Characters of a foreign text that a sentence repeats."""
LISTED_MAX: Final = 5
"""Items of a foreign list that a sentence repeats."""


def printable(text: str) -> str:
    """The text with every unprintable character written as its escape: ``\\x1b``, ``\\u202e``.

    Printable is defined by `str.isprintable`: no control or format characters, no line or paragraph breaks,
    no surrogates. Tabs and line feeds are escaped too.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_document(value: Any, depth: int = DEPTH_MAX) -> Any:
    """A JSON document with all its text made printable, including keys."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict | list | tuple) and not depth:
        return "..."
    if isinstance(value, dict):
        return {printable(str(key)): printable_document(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [printable_document(each, depth - 1) for each in value]
    return value


def shortened(text: str, size: int = TEXT_MAX) -> str:
    """The text, cut to that many characters with an ellipsis if it is longer."""
    return text if len(text) <= size else f"{text[:size]}..."


def counted(count: Any, noun: str) -> str:
    """``1 session``, ``2 sessions``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str]) -> str:
    """The items as a sentence names them: ``a, b, c``. A long list gives its first items and the number of
    the others."""
    named = ", ".join(shortened(item) for item in items[:LISTED_MAX])
    more = len(items) - LISTED_MAX
    return named if more <= 0 else f"{named} and {more} more"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
