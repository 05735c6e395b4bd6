"""A sentence about an unknown word ends with help."""

from __future__ import annotations

from mesh.spelling import nearest


def test_a_similar_word_is_suggested() -> None:
    assert nearest("crsh", ["pause", "crash"], "ask") == "; did you mean 'crash'?"


def test_all_words_or_an_advice_are_given_without_a_similar_word() -> None:
    assert nearest("x", ["pause", "crash"]) == "; there are pause, crash"
    assert nearest("x", ["pause", "crash"], "see the list") == "; see the list"
