"""Patterns with many `*`: their cost, and a pattern with few that wants at least the same. Pure.

A look-up follows both the topic's token and `*` at each place. Patterns that mix the two in every way make it
visit 2^16 nodes of the trie, whether or not one of them matches. With at most `STARS_MAX` stars in each
pattern it visits at most 3 213. So a client may have few patterns with more stars (`mesh.limits`), and
another broker's patterns are widened: it may get messages that it does not want, and drops them.
"""

from __future__ import annotations

from typing import Final

STARS_MAX: Final = 3


def is_starred(pattern: str) -> bool:
    """True if it has more than `STARS_MAX` stars."""
    return pattern.count("*") > STARS_MAX


def widened(pattern: str) -> str:
    """The pattern itself if it has few stars, otherwise one that wants everything behind the last star it may
    have: ``*.a.*.b.*.c.*`` becomes ``*.a.*.b.*.#``."""
    if not is_starred(pattern):
        return pattern
    return "*".join(pattern.split("*", STARS_MAX)[:STARS_MAX]) + "*.#"
