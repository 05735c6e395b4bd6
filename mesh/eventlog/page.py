"""The reference page of the event log: ``python -m mesh.eventlog.page > FILE``."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from msgspec import inspect

from mesh.eventlog.describing import about, meaning
from mesh.eventlog.rows import KINDS, JournalCounters, LinkCounters, QueueCounters, Row

HEAD: Final = """# The event log

The tables are made from `mesh/eventlog/rows.py`; a test compares them. To make this page anew: `python -m
mesh.eventlog.page > docs/reference/event-log.md`.

Every broker started with `--log-dir DIR` writes what it sees as JSON Lines: UTF-8, one object a line.
Simulated brokers write the same rows. `mesh analyze DIR` reads them.

Files are `<name>-<boot>-<n>.jsonl.part` while they grow. They lose the `.part` when they are rotated (64
MiB or 10 minutes) or closed. A broker that was killed leaves its last file as it is; readers read such files
too. Rows reach the file within a second. A disk that fails never stops the broker. Up to 65 536 rows wait;
further ones are lost, which shows as a gap in `seq`. `mesh status` shows why writing fails and how many
rows wait and are lost. The broker's own log tells when a failure begins, when rows are lost, and when it
ends. A folder that is removed under a running broker is made again within a second, without the rows that
were in it. If a broker's name begins with `_`, its files begin with `@_`: Spark skips files that begin with
`_`.

With `log_heartbeats = "each"`, the default, every heartbeat has a row `hb`: 98.9 % of a log, 4.5 GB a day
at 100 peers. With `"summary"` there is a row `heard` for each peer and 16 periods instead, and the rest as
before: a twelfth of that. Times of single heartbeats are then known to a quarter of a period. Open
windows are written when their file ends and when the broker stops. A crash loses them, 16 periods at most.

Files are kept forever unless `log_keep_days` or `log_keep_mb` is set. Then a broker removes its own old
files, which it knows by the name in them. It does so at its start and whenever it finishes a file, which is
every ten minutes. The file that grows stays.

Readers take files compressed by gzip (`.jsonl.gz`), and Parquet with these columns and `ts` as a timestamp.
A line that lacks a column whose type has no ? is no row. A column with a ? may be null or missing.
"""
TITLES: Final = {
    "meta": "the broker starts, goes on or stops",
    "hb": "a heartbeat was heard",
    "heard": "what was heard from a peer in one window",
    "mem": "a member changed its state in the writer's view",
    "link": "a link to another broker came up or went down",
    "stats": "every few seconds, and at the stop",
    "truth": "what a simulation did",
}
PARTS: Final[dict[type[msgspec.Struct], str]] = {
    LinkCounters: "An object in `links`",
    QueueCounters: "An object in `queues`, as in the [status](status.md#durable-subscriptions)",
    JournalCounters: "The object `journal`, as in the [status](status.md#durable-subscriptions)",
}
TYPES: Final[dict[type[inspect.Type], str]] = {
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "string",
    inspect.ListType: "list",
    inspect.DictType: "object",
    inspect.StructType: "object",
}


def page() -> str:
    """The whole page as Markdown."""
    names = ", ".join(f"`{kind}`" for kind in KINDS)
    common = f"{_table(Row, frozenset())}| `kind` | string | {names} |\n"
    parts = [HEAD, f"## Columns of every row\n\n{common}"]
    shared = frozenset(field.name for field in msgspec.structs.fields(Row))
    for kind, row in KINDS.items():
        parts.append(f"## `{kind}`: {TITLES[kind]}\n\n{about(row)}\n\n{_table(row, shared)}")
        if kind == "stats":
            parts += [f"{title}:\n\n{_table(part, frozenset())}" for part, title in PARTS.items()]
    return "\n".join(parts)


def _table(record: type[msgspec.Struct], without: frozenset[str]) -> str:
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for field in msgspec.structs.fields(record):
        if field.name not in without:
            mark = "" if field.required else "?"
            said = meaning(record, field.name)
            lines.append(f"| `{field.name}` | {_type(field.type)}{mark} | {said} |")
    return "\n".join(lines) + "\n"


def _type(kind: object) -> str:
    info = inspect.type_info(kind)
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        info = next(each for each in info.types if not isinstance(each, inspect.NoneType))
    if isinstance(info, inspect.LiteralType):
        return "int" if isinstance(info.values[0], int) else "string"
    return TYPES[type(info)]


if __name__ == "__main__":
    sys.stdout.write(page())
