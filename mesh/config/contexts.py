"""Contexts: named brokers of one user, each with the credentials for it.

They are in ``contexts.toml`` beside the user's configuration file. One of them may be *in use*. A context
holds the keys of ``[client]`` but the timeout, and counts as a whole. A command whose URL comes from a flag
or from ``MANGROVE_URL`` takes nothing of the context in use, so that no credential goes to another broker.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mesh.config.sections import options
from mesh.config.template import as_toml
from mesh.errors import ConfigError
from mesh.spelling import nearest

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CONTEXTS_MAX: Final = 256
FILE_MAX: Final = 1 << 20
KEYS: Final = tuple(
    option.key for option in options() if option.section == "client" and option.key != "timeout_s"
)
PATHS: Final = ("tls_ca", "tls_cert", "tls_key", "key_file", "token_file")
VARIABLE: Final = "MANGROVE_CONTEXT"


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user: values by key, and the name of the one in use (empty: none is)."""

    path: str
    by_name: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    in_use: str = ""

    def with_context(self, name: str, values: Mapping[str, Any]) -> Contexts:
        """With one more, or another under that name. Raises `ConfigError` for a bad name, or too many."""
        check_name(name)
        by_name = {**self.by_name, name: dict(values)}
        if len(by_name) > CONTEXTS_MAX:
            raise ConfigError(f"{self.path} has {CONTEXTS_MAX} contexts, which is the limit")
        return replace(self, by_name=by_name)

    def without(self, name: str) -> Contexts:
        """Without one; if it was in use, none is. Raises `ConfigError` if there is none of that name."""
        self.values(name)
        by_name = {other: values for other, values in self.by_name.items() if other != name}
        return replace(self, by_name=by_name, in_use="" if self.in_use == name else self.in_use)

    def using(self, name: str) -> Contexts:
        """With another one in use; empty: none. Raises `ConfigError` if there is none of that name."""
        if name:
            self.values(name)
        return replace(self, in_use=name)

    def values(self, name: str) -> Mapping[str, Any]:
        """Of one context. Raises `ConfigError` if there is none of that name."""
        if name not in self.by_name:
            known = nearest(name, list(self.by_name)) or f"; {self.path} has {len(self.by_name)}"
            raise ConfigError(f"there is no context {name!r}{known}")
        return self.by_name[name]

    def as_toml(self) -> str:
        """What the file says."""
        lines = ["# Written by `mesh context`."]
        if self.in_use:
            lines.append(f"in_use = {as_toml(self.in_use)}")
        for name in sorted(self.by_name):
            lines += ["", f"[contexts.{as_toml(name)}]"]
            lines += [f"{key} = {as_toml(value)}" for key, value in self.by_name[name].items()]
        return "\n".join(lines) + "\n"


def check_name(name: str) -> None:
    """Raises `ConfigError` for what is no name of a context."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a context; use at most 64 letters, digits, dots, hyphens and"
            " underscores, and begin with a letter or digit"
        )


def contexts_path(environ: Mapping[str, str]) -> str:
    """Where the user's contexts are."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "~"), ".config")
    return os.path.join(home, "mangrove", "contexts.toml")


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """The user's contexts; none if there is no file.

    Raises:
        ConfigError: the file cannot be read, or has something in it that does not belong there.
    """
    path = contexts_path(environ)
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > FILE_MAX:
        raise ConfigError(f"{path}: is larger than {FILE_MAX} bytes")
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return _checked(path, document)


def _checked(path: str, document: Mapping[str, Any]) -> Contexts:
    in_use, sections = document.get("in_use", ""), document.get("contexts", {})
    if not isinstance(in_use, str) or not isinstance(sections, dict):
        raise ConfigError(f"{path}: in_use must be a string, and contexts a table")
    by_name: dict[str, Mapping[str, Any]] = {}
    for name, values in sections.items():
        if not isinstance(values, dict) or not NAME.fullmatch(name):
            raise ConfigError(f"{path}: {name!r} is no context")
        for key, value in values.items():
            if key not in KEYS:
                raise ConfigError(
                    f"{path}: unknown key {key!r} in context {name!r}{nearest(key, list(KEYS))}"
                )
            wanted = bool if key == "tls_insecure" else str
            if not isinstance(value, wanted):
                kind = "true or false" if wanted is bool else "a string"
                raise ConfigError(f"{path}: {key} of context {name!r} must be {kind}")
        by_name[name] = values
    if in_use and in_use not in by_name:
        raise ConfigError(
            f"{path}: the context in use, {in_use!r}, is not there; run `mesh context use NAME`"
        )
    return Contexts(path, by_name, in_use)


def chosen(given: str, environ: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    """Name and values of the context that counts: the given one, that of the variable, else the one in use.
    Empty if there is none. Raises `ConfigError` if it cannot be had."""
    name = given or environ.get(VARIABLE, "")
    contexts = read_contexts(environ)
    name = name or contexts.in_use
    return (name, contexts.values(name)) if name else ("", {})
