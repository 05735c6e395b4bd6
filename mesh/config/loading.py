"""Loads values from flags, environment, file and defaults; each value remembers its origin.

An unknown key is an error that names its line: a misspelt option that is silently ignored costs a night.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from mesh.config import contexts
from mesh.config.principals import read_principals
from mesh.config.sections import SECTIONS, Config, Option, options
from mesh.errors import ConfigError
from mesh.spelling import nearest

TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
PRINCIPALS: Final = "principals"
OTHER_VARIABLES: Final = (
    "MANGROVE_CONFIG",
    contexts.VARIABLE,
    "MANGROVE_DEBUG",
    "MANGROVE_MESH_KEY",
    "MANGROVE_REQUIRE_INTEROP",
)


class FlagError(ConfigError):
    """A flag of the command line has a value that cannot be used."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and, by ``section.key``, the origin of each value."""

    config: Config
    origins: dict[str, str]
    path: str | None
    unknown_variables: tuple[str, ...]


def candidates(environ: Mapping[str, str]) -> list[str]:
    """The places where a configuration file may be, nearest first."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "~"), ".config")
    return ["mangrove.toml", os.path.join(home, "mangrove", "config.toml"), "/etc/mangrove/config.toml"]


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    context: str | None = None,
) -> Loaded:
    """Merge flags, environment, file and defaults.

    Args:
        overrides: flags by ``section.key``; ``None`` and empty lists mean "not given".
        path: the file to read, instead of looking for one.
        context: the name of one that ``[client]`` is taken from; empty: the one in use; None: none.

    Raises:
        ConfigError: names the file and line, the variable or the flag, and what is wrong with it. It reports
            the first of several mistakes.
    """
    loaded, mistakes = examine(overrides, path=path, environ=environ, context=context)
    if len(mistakes) > 1 and loaded.path is not None:
        more = f"{len(mistakes) - 1} more: mesh config check {loaded.path}"
        raise type(mistakes[0])(f"{mistakes[0]} ({more})")
    if mistakes:
        raise mistakes[0]
    return loaded


def examine(
    overrides: Mapping[str, Any] | None = None,
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    context: str | None = None,
) -> tuple[Loaded, list[ConfigError]]:
    """As `load`, but returns all mistakes and leaves out values that cannot be used. Raises `ConfigError` if
    the file cannot be read or is no TOML."""
    environ = os.environ if environ is None else environ
    path = path or environ.get("MANGROVE_CONFIG") or None
    if path is None:
        # `Path.is_file` raises for a folder that this user may not enter, such as another user's home
        path = next((place for place in candidates(environ) if os.path.isfile(place)), None)
    from_file, mistakes = _read_values(_read(path), path) if path is not None else ({}, [])
    name, from_context = "", dict[str, Any]()
    if context is not None:
        with _noting(mistakes):
            name, from_context = _context(context, overrides or {}, environ)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for option in options():
        values[option.name], origins[option.name] = option.default, "default"
        with _noting(mistakes):
            if name and option.section == "client" and option.key in contexts.KEYS:
                # A context counts as a whole; one that was asked for by a flag comes before the environment.
                variables = {} if context else environ
                value, origin = _resolve(option, overrides or {}, variables, {}, path)
                if origin == "default" and option.key in from_context:
                    origin = f"context {name}"
                    value = _checked(option, from_context[option.key], origin)
                values[option.name], origins[option.name] = value, origin
            else:
                values[option.name], origins[option.name] = _resolve(
                    option, overrides or {}, environ, from_file, path
                )
    with _noting(mistakes):
        _check_heartbeat(values, origins)
    sections = (
        type_(**{item.name: values[f"{section}.{item.name}"] for item in fields(type_)})
        for section, type_ in SECTIONS.items()
    )
    config = replace(Config(*sections), principals=from_file.get(PRINCIPALS, ((), 0))[0])
    known = {option.env for option in options()} | set(OTHER_VARIABLES)
    unknown = tuple(name for name in sorted(environ) if name.startswith("MANGROVE_") and name not in known)
    return Loaded(config, origins, path, unknown), mistakes


def _context(
    given: str, overrides: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """The context that counts, by name, and its values by key."""
    elsewhere = overrides.get("client.url") or environ.get("MANGROVE_URL")
    if elsewhere and not given:
        return "", {}
    name, values = contexts.chosen(given, environ)
    return name, dict(values)


@contextmanager
def _noting(mistakes: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as mistake:
        mistakes.append(mistake)


def _check_heartbeat(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Check that answers of one round end before the next round begins."""
    period, deadline = "broker.period_s", "broker.deadline_s"
    if values[deadline] <= values[period]:
        return
    blamed = period if origins[deadline] == "default" else deadline
    source = origins[blamed].removeprefix("flag ").removeprefix("environment ")
    by_flag = any(origins[name].startswith("flag ") for name in (period, deadline))
    raise (FlagError if by_flag else ConfigError)(
        f"{source}: {deadline} is {values[deadline]:g} ({origins[deadline]}) and must be at most {period}, "
        f"which is {values[period]:g} ({origins[period]})"
    )


def _resolve(
    option: Option,
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    from_file: Mapping[str, tuple[Any, int]],
    path: str | None,
) -> tuple[Any, str]:
    given = overrides.get(option.name)
    if given is not None and given != () and given != []:
        flag = "--" + option.key.removesuffix("_s").replace("_", "-")
        if option.section == "limits":
            flag = f"--limit {option.key}"
        return _checked(option, _from_python(given), flag), f"flag {flag}"
    text = environ.get(option.env)
    if text:
        return _checked(option, _from_text(option, text), option.env), f"environment {option.env}"
    if option.name in from_file:
        value, line = from_file[option.name]
        return value, f"{path}:{line}"
    return option.default, "default"


def _from_python(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _from_text(option: Option, text: str) -> Any:
    if option.kind == "list of strings":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if option.kind == "number":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{option.env} is {text!r}, which is not a number") from None
    if option.kind == "integer":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{option.env} is {text!r}, which is not an integer") from None
    if option.kind == "boolean":
        if text.lower() not in TRUTH:
            raise ConfigError(f"{option.env} is {text!r}; it must be true or false")
        return TRUTH[text.lower()]
    return text


def _checked(option: Option, value: Any, source: str) -> Any:
    problems = _problems(option, value)
    if problems:
        raise (FlagError if source.startswith("--") else ConfigError)(
            f"{source}: {option.name} {problems[0]}"
        )
    return value


def _problems(option: Option, value: Any) -> list[str]:
    """The problems of a value, or of each item of a list."""
    if option.check is None:
        return []
    parts = [(item,) for item in value] if isinstance(value, tuple) else []
    found = [problem for part in parts if (problem := option.check(part))]
    return found or [problem for problem in [option.check(value)] if problem]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def parse(text: str, path: str = "<text>") -> dict[str, tuple[Any, int]]:
    """The values of a TOML file by ``section.key``, each with its line.

    Raises:
        ConfigError: broken TOML, an unknown section or key (with its line), a wrong type or value.
    """
    found, mistakes = _read_values(text, path)
    if mistakes:
        raise mistakes[0]
    return found


def _read_values(text: str, path: str) -> tuple[dict[str, tuple[Any, int]], list[ConfigError]]:
    """As `parse`, but returns all mistakes of the values."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_lower_first(str(error))}") from None
    known = {option.name: option for option in options()}
    found: dict[str, tuple[Any, int]] = {}
    mistakes: list[ConfigError] = []
    for section, table in document.items():
        if section == PRINCIPALS:
            principals, wrong = read_principals(table, lambda key: f"{path}:{line_of(text, key)}")
            mistakes += wrong
            found[PRINCIPALS] = principals, line_of(text, (PRINCIPALS,))
            continue
        if section not in SECTIONS or not isinstance(table, dict):
            line = line_of(text, (section,))
            sections = ", ".join(f"[{name}]" for name in (*SECTIONS, f"{PRINCIPALS}.NAME"))
            sentence = f"{path}:{line}: unknown section or key {section!r}; there are {sections}"
            mistakes.append(ConfigError(sentence))
            continue
        for key, value in table.items():
            line = line_of(text, (section, key))
            option = known.get(f"{section}.{key}")
            if option is None:
                hint = nearest(key, [item.key for item in known.values() if item.section == section])
                mistakes.append(ConfigError(f"{path}:{line}: unknown key {key!r} in [{section}]{hint}"))
                continue
            with _noting(mistakes):
                typed = _typed(option, value, f"{path}:{line}")
                problems = _problems(option, typed)
                mistakes += [ConfigError(f"{path}:{line}: {option.name} {problem}") for problem in problems]
                if not problems:
                    found[option.name] = typed, line
    return found, mistakes


def _typed(option: Option, value: Any, source: str) -> Any:
    if option.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if option.kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if option.kind == "boolean" and isinstance(value, bool):
        return value
    if option.kind == "string" and isinstance(value, str):
        return value
    if option.kind == "list of strings" and isinstance(value, list):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return tuple(items)
    article = "an" if option.kind == "integer" else "a"
    raise ConfigError(f"{source}: {option.name} must be {article} {option.kind}")


def line_of(text: str, key: tuple[str, ...]) -> int:
    """The line on which a key's assignment begins; 1 if it cannot be told.

    ``tomllib`` keeps no positions. The first prefix of the file that parses and holds the key ends with the
    key's assignment. The assignment begins after the longest shorter prefix that parses: values may span
    lines.
    """
    lines = text.splitlines()
    parsed_until = 0
    for count in range(1, len(lines) + 1):
        try:
            node: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        for part in key:
            node = node.get(part) if isinstance(node, dict) else None
        if node is not None:
            return parsed_until + 1
        parsed_until = count
    return 1


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
