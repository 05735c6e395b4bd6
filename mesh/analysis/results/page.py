"""The reference page of the tables: ``python -m mesh.analysis.results.page > FILE``."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from mesh.analysis.results.spark_types import table_schema
from mesh.analysis.results.tables import TABLES
from mesh.eventlog.describing import about, meaning

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
    """The whole page, as Markdown."""
    return "\n".join([HEAD, *(_section(name, record) for name, record in TABLES.items())])


def _section(name: str, record: type[msgspec.Struct]) -> str:
    rows = []
    for column in table_schema(record).fields:
        kind = column.dataType.simpleString()
        mark = "?" if column.nullable else ""
        said = meaning(record, column.name)
        rows.append(f"| `{column.name}` | {TYPES.get(kind, kind)}{mark} | {said} |")
    return (
        f"## `{name}`\n\n{about(record)}\n\n| column | type | meaning |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
