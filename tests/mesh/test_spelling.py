"""A sentence about an unknown word ends with help."""

from __future__ import annotations

from mesh.spelling import nearest


def test_what_is_spelt_alike_is_offered() -> None:
    assert nearest("crsh", ["pause", "crash"], "ask") == "; did you mean 'crash'?"


def test_where_nothing_is_all_are_told_or_what_to_do() -> None:
    assert nearest("x", ["pause", "crash"]) == "; there are pause, crash"
    assert nearest("x", ["pause", "crash"], "see the list") == "; see the list"
