"""The names that programs import from ``mesh``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mesh


@pytest.mark.parametrize("name", mesh.__all__)
def test_every_public_name_is_there_when_it_is_used(name: str) -> None:
    assert getattr(mesh, name).__name__ == name


def test_names_for_programs_and_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(mesh.__file__).read_text())
    typed = [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(set(typed) - {"import_module", "TYPE_CHECKING"}) == sorted(mesh.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brocker'"):
        getattr(mesh, "Brocker")  # noqa: B009
