"""Patterns with many `*`: what they cost, and a pattern with few that wants at least the same. Pure.

A look-up follows both the topic's token and `*` at each place. Patterns that mix the two in every way make it
follow 2^16 nodes of the trie, whether or not one of them matches. With at most `STARS_MAX` stars in a pattern
there are at most 3 213, whatever is wanted. So a client may have few patterns with more (`mesh.limits`), and
another broker's are widened: it may get what it does not want, which it drops.
"""

from __future__ import annotations

from typing import Final

STARS_MAX: Final = 3


def is_starred(pattern: str) -> bool:
    """True if it has more than `STARS_MAX` stars."""
    return pattern.count("*") > STARS_MAX


def widened(pattern: str) -> str:
    """The pattern itself if it has few stars, else one that wants whatever follows the last star it may have:
    ``*.a.*.b.*.c.*`` becomes ``*.a.*.b.*.#``."""
    if not is_starred(pattern):
        return pattern
    return "*".join(pattern.split("*", STARS_MAX)[:STARS_MAX]) + "*.#"
