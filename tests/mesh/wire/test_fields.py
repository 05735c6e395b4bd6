"""Field checks: the values that pass, and the sentences for those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.wire.fields import (
    Check,
    FieldError,
    binary,
    binary_up_to,
    list_of,
    number,
    read_fields,
    shown,
    text,
)


@pytest.mark.parametrize(
    ("check", "good", "bad", "complaint"),
    [
        (number(9), [0, 9], [-1, 10, 1.0, True, "1", None], "an integer from 0 to 9"),
        (text(3), ["", "abc"], ["abcd", b"abc", None], "text of at most 3 characters"),
        (binary(0, 2), [b"", b"ab"], [b"a", b"abc", "ab"], "0 or 2 bytes of binary"),
        (binary_up_to(2), [b"", b"ab"], [b"abc", "ab"], "at most 2 bytes of binary"),
        (list_of(number(1), 2), [[], [0, 1]], [[0, 0, 0], (0,), None], "a list of at most 2"),
    ],
)
def test_a_check_passes_good_values_and_names_what_is_wrong_with_bad_ones(
    check: Check, good: list[Any], bad: list[Any], complaint: str
) -> None:
    for value in good:
        assert check("f", value) == value
    for value in bad:
        with pytest.raises(FieldError, match=f"^field f is .*{complaint}"):
            check("f", value)


def test_a_list_names_the_item_that_is_wrong() -> None:
    with pytest.raises(FieldError, match="field f is 'x', expected an integer"):
        list_of(number(1), 2)("f", [0, "x"])


LAYOUT = (("first", number(9)), ("second", text(3)))


def test_fields_behind_those_of_the_layout_are_ignored() -> None:
    assert read_fields("F", LAYOUT, [1, "a", "of a later version", None]) == [1, "a"]


def test_a_missing_field_is_named_by_how_many_there_are() -> None:
    with pytest.raises(FieldError, match="^F has 1 fields, expected 2"):
        read_fields("F", LAYOUT, [1])


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 100_000) == f"'{'x' * 39}... (str)"
