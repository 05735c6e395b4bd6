"""Checks of the fields of frames that a peer sends: each returns the value, or says what is wrong.

A check takes the name of a field and its value, and returns the value, perhaps as a better type. It raises
`FieldError` with a sentence that names the field and shows at most 40 characters of the value. `read_fields`
applies a layout, which is a list of such checks, to the fields of a frame.

Fields behind those of a layout are ignored: a later version may have added them. A later version changes
frames in no other way, so that an earlier one can still read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

SHOWN_MAX: Final = 40
"""Most characters of a peer's value that a sentence shows."""

Check = Callable[[str, Any], Any]
Layout = tuple[tuple[str, Check], ...]


class FieldError(ValueError):
    """A field is missing, or its value is not allowed."""


def read_fields(frame: str, layout: Layout, values: Sequence[Any]) -> list[Any]:
    """Check the fields of a frame called ``frame`` and return them. Raises `FieldError`."""
    if len(values) < len(layout):
        raise FieldError(f"{frame} has {len(values)} fields, expected {len(layout)}")
    return [check(name, value) for (name, check), value in zip(layout, values, strict=False)]


def number(limit: int) -> Check:
    """An integer from 0 to ``limit``."""

    def check(name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= limit:
            raise FieldError(f"field {name} is {shown(value)}, expected an integer from 0 to {limit}")
        return value

    return check


def text(size_max: int) -> Check:
    """Text of at most ``size_max`` characters."""

    def check(name: str, value: Any) -> str:
        if type(value) is not str or len(value) > size_max:
            raise FieldError(
                f"field {name} is {shown(value)}, expected text of at most {size_max} characters"
            )
        return value

    return check


def binary(*sizes: int) -> Check:
    """Binary of exactly one of these sizes in bytes."""

    def check(name: str, value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in sizes:
            expected = " or ".join(str(size) for size in sizes)
            raise FieldError(f"field {name} is {shown(value)}, expected {expected} bytes of binary")
        return value

    return check


def binary_up_to(size_max: int) -> Check:
    """Binary of at most ``size_max`` bytes."""

    def check(name: str, value: Any) -> bytes:
        if type(value) is not bytes or len(value) > size_max:
            raise FieldError(f"field {name} is {shown(value)}, expected at most {size_max} bytes of binary")
        return value

    return check


def list_of(item: Check, size_max: int) -> Check:
    """A list of at most ``size_max`` values that each pass ``item``."""

    def check(name: str, value: Any) -> list[Any]:
        if type(value) is not list or len(value) > size_max:
            raise FieldError(f"field {name} is {shown(value)}, expected a list of at most {size_max}")
        return [item(name, each) for each in value]

    return check


def shown(value: Any) -> str:
    """The value as a sentence shows it."""
    full = repr(value)
    return full if len(full) <= SHOWN_MAX else f"{full[:SHOWN_MAX]}... ({type(value).__name__})"
