"""Relations of two patterns: one covers the other, they overlap, and the pattern of what both match. Pure.

Two patterns of this grammar have at most one pattern that matches exactly what both match, so `meet` is
exact.
"""

from __future__ import annotations

from mesh.topics.grammar import SIZE_MAX, is_system


def covers(wide: str, narrow: str) -> bool:
    """True if ``wide`` matches every topic that ``narrow`` matches; both are valid patterns."""
    if is_system(wide) != is_system(narrow):
        return False
    (wanted, wide_open), (tokens, narrow_open) = _split(wide), _split(narrow)
    if len(tokens) < len(wanted) or (not wide_open and (narrow_open or len(tokens) > len(wanted))):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, tokens, strict=False))


def overlaps(one: str, other: str) -> bool:
    """True if some topic matches both."""
    return meet(one, other) is not None


def meet(one: str, other: str) -> str | None:
    """The pattern that matches what both match; None if no topic does."""
    if is_system(one) != is_system(other):
        return None
    (short, short_open), (long, long_open) = sorted(
        (_split(one), _split(other)), key=lambda each: len(each[0])
    )
    if len(short) < len(long) and not short_open:
        return None
    tokens: list[str] = []
    for left, right in zip(short, long, strict=False):
        if left != right and "*" not in (left, right):
            return None
        tokens.append(right if left == "*" else left)
    tokens += long[len(short) :]
    if short_open and long_open:
        tokens = ["#"] if tokens == ["*"] else [*tokens, "#"]
    found = ".".join(tokens)
    return found if len(found) <= SIZE_MAX else None


def _split(pattern: str) -> tuple[list[str], bool]:
    """The tokens before a last ``#``, and whether there is one. A topic has at least one token, so ``#``
    alone is ``*.#``."""
    tokens = pattern.split(".")
    if tokens[-1] != "#":
        return tokens, False
    return tokens[:-1] or ["*"], True
