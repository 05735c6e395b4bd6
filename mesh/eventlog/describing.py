"""The meanings of a record's columns, from the docstrings below its attributes: for reference pages. Pure."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec


def about(record: type[msgspec.Struct]) -> str:
    """The docstring of a record, in one line of Markdown."""
    return _flat(inspect.getdoc(record) or "")


def meaning(record: type[msgspec.Struct], column: str) -> str:
    """The docstring below the attribute, otherwise that of its type; then the words that it may hold."""
    owner = next(of for of in record.__mro__ if column in inspect.get_annotations(of))
    said = _descriptions(owner.__module__)
    annotation = said.get((owner.__name__, f"{column}:"), "")
    of_type = "" if annotation == "Instant" else said.get(("", annotation), "")
    text = said.get((owner.__name__, column)) or of_type
    listed = ", ".join(f"`{word}`" for word in _words(get_type_hints(record)[column]))
    if not listed or not text:
        return listed or text
    return f"{listed}{': ' if text[0].islower() else '. '}{text}"


def _words(hint: object) -> tuple[str, ...]:
    """The words of ``Literal[...]`` and ``Literal[...] | None``."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if isinstance(word, str))
    return tuple(word for option in get_args(hint) if not isinstance(option, str) for word in _words(option))


@cache
def _descriptions(module: str) -> dict[tuple[str, str], str]:
    """The strings below attributes, by class ("" for the module) and name. ``name:`` has the annotation."""
    found: dict[tuple[str, str], str] = {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    bodies = [
        ("", tree.body),
        *((node.name, node.body) for node in tree.body if isinstance(node, ast.ClassDef)),
    ]
    for owner, body in bodies:
        for node, after in zip(body, [*body[1:], None], strict=True):
            target = (
                node.target
                if isinstance(node, ast.AnnAssign)
                else node.targets[0]
                if isinstance(node, ast.Assign)
                else None
            )
            if not isinstance(target, ast.Name):
                continue
            if isinstance(node, ast.AnnAssign):
                found[owner, f"{target.id}:"] = ast.unparse(node.annotation).removesuffix(" | None")
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[owner, target.id] = _flat(str(after.value.value))
    return found


def _flat(text: str) -> str:
    """One line of Markdown from a docstring."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
