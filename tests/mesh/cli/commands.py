"""All commands of the application, found by walking it, so that no new one is forgotten by a test."""

from __future__ import annotations

from collections.abc import Iterator

from cyclopts import App

from mesh.cli import app as application


def commands(flag: str = "") -> list[str]:
    """The names of all commands, such as ``queue ls``; with a flag, of those that have it."""
    return [name for name, flags in _walk(application.build(), ()) if not flag or flag in flags]


def _walk(app: App, path: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
    if path and app.default_command is not None:
        arguments = app.assemble_argument_collection(parse_docstring=False)
        yield " ".join(path), {name for argument in arguments for name in argument.names or ()}
    for name in app:
        if not name.startswith("-"):
            yield from _walk(app[name], (*path, name))
