"""Suggests known words for a word that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a sentence about an unknown word: the known one with similar spelling, or else all.
    ``otherwise`` is used if all would be too many."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; {otherwise}" if otherwise else f"; there are {', '.join(names)}"
