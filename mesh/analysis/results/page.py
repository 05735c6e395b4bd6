"""The reference page of the tables: ``python -m mesh.analysis.results.page > FILE``."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from mesh.analysis.results import tables
from mesh.analysis.results.spark_types import table_schema
from mesh.analysis.results.tables import TABLES

HEAD: Final = """# Tables of the analysis

Made from `mesh/analysis/results/tables.py`; a test compares them. To make this page anew:
`python -m mesh.analysis.results.page > docs/reference/tables.md`.

`mesh analyze` writes these as Parquet (zstd), a folder each, to `<out>/<id>/tables/`. `<out>/current.json`
names the `<id>` that is current. Times are timestamps with microseconds in UTC, in mesh time. Durations are
seconds. Null (None) means not observable, never zero. Brokers are named by id, 16 hex digits. `run` is
the name of the mesh and part of every key. A column whose type has a ? may be null.

Read them with anything: `spark.read.parquet`, `pandas.read_parquet`, `duckdb`, `polars`.
"""

TYPES: Final = {"bigint": "int", "double": "float", "boolean": "bool"}


def page() -> str:
    """All of it, as Markdown."""
    return "\n".join([HEAD, *(_section(name, record) for name, record in TABLES.items())])


def _section(name: str, record: type[msgspec.Struct]) -> str:
    said = _descriptions()
    rows = []
    for column in table_schema(record).fields:
        kind = column.dataType.simpleString()
        mark = "?" if column.nullable else ""
        meaning = _meaning(record, column.name, said)
        rows.append(f"| `{column.name}` | {TYPES.get(kind, kind)}{mark} | {meaning} |")
    about = _flat(inspect.getdoc(record) or "")
    return f"## `{name}`\n\n{about}\n\n| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _meaning(record: type[msgspec.Struct], column: str, said: dict[tuple[str, str], str]) -> str:
    """The docstring below the attribute, else that of its type; then the words that it may hold."""
    owner = next(of.__name__ for of in record.__mro__ if column in inspect.get_annotations(of))
    annotation = said.get((owner, f"{column}:"), "")
    of_type = "" if annotation == "Instant" else said.get(("", annotation), "")
    text = said.get((owner, column)) or of_type
    listed = ", ".join(f"`{word}`" for word in _words(get_type_hints(record)[column]))
    return " ".join(part for part in (f"{listed}." if listed else "", text) if part)


def _words(hint: object) -> tuple[str, ...]:
    """Of ``Literal[...]`` and ``Literal[...] | None``."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for option in get_args(hint) if not isinstance(option, str) for word in _words(option))


@cache
def _descriptions() -> dict[tuple[str, str], str]:
    """By class ("" for the module) and name: the string that stands below. ``name:`` has the annotation."""
    found: dict[tuple[str, str], str] = {}
    tree = ast.parse(inspect.getsource(tables))
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


if __name__ == "__main__":
    sys.stdout.write(page())
