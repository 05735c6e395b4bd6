"""The sections ``[principals.NAME]``: identities of clients, with their rights and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mesh.access.principals import KEYS, Policy, Principal, problem_of
from mesh.errors import ConfigError
from mesh.spelling import nearest

Place = Callable[[tuple[str, ...]], str]
"""The file and line of a key, by its path in the file."""


def read_principals(tables: Any, place: Place) -> tuple[tuple[Principal, ...], list[ConfigError]]:
    """All principals of a file, and all mistakes in them."""
    here = "principals"
    if not isinstance(tables, Mapping):
        return (), [ConfigError(f"{place((here,))}: {here} must be sections such as [principals.sensors]")]
    found: list[Principal] = []
    mistakes: list[ConfigError] = []
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            sentence = f"{here}.{name} must be a section, [principals.{name}]"
            mistakes.append(ConfigError(f"{place((here, name))}: {sentence}"))
            continue
        values, wrong = _values(name, table, place)
        mistakes += wrong
        if not wrong:
            try:
                found.append(Principal(name, **values))
            except ConfigError as mistake:
                mistakes.append(ConfigError(f"{place((here, name))}: {mistake}"))
    if not mistakes:
        try:
            Policy(tuple(found))
        except ConfigError as mistake:
            mistakes.append(ConfigError(f"{place((here,))}: {mistake}"))
    return tuple(found), mistakes


def _values(name: str, table: Mapping[str, Any], place: Place) -> tuple[dict[str, Any], list[ConfigError]]:
    values: dict[str, Any] = {}
    mistakes: list[ConfigError] = []
    for key, given in table.items():
        value = tuple(given) if isinstance(given, list) else given
        if key not in KEYS:
            problem = f"unknown key {key!r} in [principals.{name}]{nearest(key, list(KEYS))}"
        else:
            wrong = problem_of(key, value)
            problem = f"principals.{name}.{key} {wrong}" if wrong else ""
        if problem:
            mistakes.append(ConfigError(f"{place(('principals', name, key))}: {problem}"))
        values[key] = value
    return values, mistakes
