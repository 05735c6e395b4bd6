"""Text that others chose, made safe to print on a terminal or into a log. Pure.

Names of brokers and clients, hosts, reasons and topics come from the network. Printed as they are they could
move the cursor, change the terminal's title, forge a line of a log, or show a name backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

DEPTH_MAX: Final = 32
"""Of a document; what lies deeper is shown as an ellipsis."""
TEXT_MAX: Final = 250
"""Characters of somebody's text that a sentence repeats."""
LISTED_MAX: Final = 5
"""Items of somebody's list that a sentence repeats."""


def printable(text: str) -> str:
    """The text with every character that is not printable written as its escape: ``\\x1b``, ``\\u202e``.

    Printable is what `str.isprintable` says: no control or format characters, no line or paragraph breaks, no
    surrogates. A tab and a line feed are escaped, too.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_document(value: Any, depth: int = DEPTH_MAX) -> Any:
    """A JSON document with all its text made printable, keys included."""
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


def listed(items: Sequence[str]) -> str:
    """The items as a sentence names them: ``a, b, c``, of a long list the first ones and how many follow."""
    named = ", ".join(shortened(item) for item in items[:LISTED_MAX])
    more = len(items) - LISTED_MAX
    return named if more <= 0 else f"{named} and {more} more"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
