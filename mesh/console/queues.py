"""Durable subscriptions as rich renderables. Pure, and tolerant of what it reads.

A queue is one entry of `mesh.dataplane.queue_status`, with the name of its ``home``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mesh.console.facts import facts
from mesh.console.figures import duration, milliseconds, number
from mesh.printable import counted, printable, printable_document

NAME_MIN: Final = 9
NAME_SHORT: Final = 16
NAME_MAX: Final = 32
"""Cells of a name: the most, and the most if other columns would be left out otherwise."""
OLD_S: Final = 300.0
"""Seconds; a message that has waited longer is worth a colour."""

Queue = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. The columns with the highest ``need`` are left out if room is short."""

    title: str
    cell: Callable[[Queue], Text]
    width: int
    need: int
    right: bool = True


def _figure(queue: Queue, key: str) -> float | None:
    value = queue.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(key: str, worry: bool = False) -> Callable[[Queue], Text]:
    def cell(queue: Queue) -> Text:
        value = _figure(queue, key)
        return Text(number(value), "bold yellow" if worry and value else "", no_wrap=True)

    return cell


def _oldest(queue: Queue) -> Text:
    age = _figure(queue, "oldest_s")
    return Text(duration(age), "bold yellow" if age is not None and age > OLD_S else "", no_wrap=True)


def _consumers(queue: Queue) -> Text:
    idle = _figure(queue, "consumers") == 0 and (_figure(queue, "waiting") or 0) > 0
    return Text(number(_figure(queue, "consumers")), "bold yellow" if idle else "", no_wrap=True)


def _dead(queue: Queue) -> Text:
    """Waiting dead letters; for a broker that does not report them, the number since it started."""
    return _number("dead" if "dead" in queue else "buried", worry=True)(queue)


def _name(key: str) -> Callable[[Queue], Text]:
    return lambda queue: Text(printable(str(queue.get(key, "?"))), no_wrap=True, overflow="ellipsis")


COLUMNS: Final = (
    Column("queue", _name("name"), 12, 0, right=False),
    Column("home", _name("home"), 8, 2, right=False),
    Column("waiting", _number("waiting"), 7, 1),
    Column("oldest", _oldest, 6, 3),
    Column("in flight", _number("in_flight"), 9, 5),
    Column("consumers", _consumers, 9, 4),
    Column("bytes", _number("bytes"), 5, 8),
    Column("redeliv", _number("redelivered"), 7, 7),
    Column("dead", _dead, 5, 6),
    Column("delivered", _number("delivered"), 9, 9),
    Column("settled", _number("settled"), 7, 10),
    Column("retried", _number("retried"), 7, 11),
)


def queues_table(queues: Sequence[Queue], width: int, rows: int | None = None) -> Table:
    """The queues with their figures, as many columns and queues as fit. They are in the order of names, which
    never jumps. If not all fit, those with most messages are shown."""
    names = max((cell_len(printable(str(queue.get("name")))) for queue in queues), default=5)
    chosen, names = _fitting(width, names)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=False, header_style="bright_black")
    for column in chosen:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=_width(column, names),
            no_wrap=True,
            overflow="ellipsis",
        )
    shown = sorted(queues, key=_by_name)
    hidden = 0
    if rows is not None and len(shown) > rows - 1:
        shown = sorted(shown, key=lambda queue: -(_figure(queue, "waiting") or 0))[: max(0, rows - 2)]
        hidden = len(queues) - len(shown)
    for queue in shown:
        table.add_row(*(column.cell(queue) for column in chosen))
    if hidden:
        table.add_row(Text(f"+{hidden} more", "bright_black", no_wrap=True))
    return table


def _by_name(queue: Queue) -> tuple[str, str]:
    return str(queue.get("name")), str(queue.get("home"))


def journals_line(journals: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """One line about all journals: duplicates, and the slowest commits."""
    if not journals:
        return ""
    duplicates = sum(int(_figure(journal, "duplicates") or 0) for _, journal in journals)
    (p50, _), (p99, slowest) = (
        max(
            ((value, name) for name, journal in journals if (value := _figure(journal, key)) is not None),
            default=(None, "?"),
        )
        for key in ("commit_ms_p50", "commit_ms_p99")
    )
    whose = f" at {printable(slowest)}" if len(journals) > 1 else ""
    return (
        f"{counted(duplicates, 'duplicate')}, commits p50 {milliseconds(p50)} ms,"
        f" p99 {milliseconds(p99)} ms{whose}"
    )


def _width(column: Column, names: int) -> int:
    return max(names, NAME_MIN) if column.need == 0 else column.width


def _fitting(width: int, names: int) -> tuple[list[Column], int]:
    """The most needed columns that fit side by side, in their order, and how wide a name may be."""
    names = min(names, NAME_MAX)
    chosen = _beside(width, names)
    if len(chosen) < len(COLUMNS) and names > NAME_SHORT:
        names = NAME_SHORT
        chosen = _beside(width, names)
    return chosen, names


def _beside(width: int, names: int) -> list[Column]:
    chosen: list[Column] = []
    left = width
    for column in sorted(COLUMNS, key=lambda column: column.need):
        left -= _width(column, names) + 1
        if left < -1 and chosen:
            break
        chosen.append(column)
    return [column for column in COLUMNS if column in chosen]


def queue_report(queue: Queue, width: int) -> RenderableType:
    """All that is known of one queue."""
    queue = printable_document(dict(queue))

    def said(key: str) -> str:
        value = queue.get(key)
        return (
            "?" if value is None else f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)
        )

    name = str(queue.get("name"))
    patterns = queue.get("patterns")
    report = [
        ("queue", f"{name}, its home is {queue.get('home')}"),
        ("patterns", " ".join(map(str, patterns)) if patterns else "none"),
        ("waiting", _waiting(queue, said)),
        ("in flight", f"{said('in_flight')} at {counted(queue.get('consumers', '?'), 'consumer')}"),
        ("to redeliver", said("to_redeliver")),
        ("dead letters", f"{said('dead')} in $dlq.{name}" if queue.get("dead") else said("dead")),
        (
            "since start",
            f"{said('delivered')} delivered, {said('redelivered')} of them again, {said('settled')} settled,"
            f" {said('retried')} retried, {said('buried')} buried",
        ),
    ]
    if queue.get("damaged") or queue.get("unreadable"):
        report.append(
            ("damaged", f"{said('damaged')} blocks; {said('unreadable')} messages could not be read again")
        )
    if queue.get("in_vain"):
        report.append(
            ("in vain", f"{said('in_vain')} messages were settled by consumers that did not have them")
        )
    return facts(report, width)


def _waiting(queue: Queue, said: Callable[[str], str]) -> str:
    parts = [f"{said('waiting')} message{'' if queue.get('waiting') == 1 else 's'}"]
    if _figure(queue, "bytes") is not None:
        parts.append(f"{number(_figure(queue, 'bytes'))}B")
    if _figure(queue, "oldest_s") is not None:
        parts.append(f"the oldest for {duration(_figure(queue, 'oldest_s'))}")
    return ", ".join(parts)
