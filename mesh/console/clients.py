"""Clients and topics as tables, made of answers to `mesh.console.probe.ask_all`. Pure, and tolerant of what
it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mesh.console.figures import number
from mesh.console.signs import Signs
from mesh.console.tables import Column
from mesh.picture import listed, number_in

WARN: Final = "bold yellow"


class ClientRow(NamedTuple):
    """One client, and the broker it is connected to."""

    id: str
    broker: str
    record: Mapping[str, Any]


class TopicRow(NamedTuple):
    """One pattern, and its subscribers in the whole mesh."""

    pattern: str
    listen: int
    answer: int
    brokers: tuple[str, ...]
    messages_s: float | None = None
    """Messages a second to all of these subscribers together; None: not known."""
    bytes_s: float | None = None


def client_rows(documents: Iterable[Mapping[str, Any]]) -> list[ClientRow]:
    """All clients, by broker and name."""
    rows = []
    for document in documents:
        broker = str(document.get("broker", "?"))
        for place, record in enumerate(listed(document, "clients")):
            if isinstance(record, dict):
                key = f"{record.get('client') or place} {record.get('address')}"
                rows.append(ClientRow(f"{document.get('id')} {key}", broker, record))
    return sorted(rows, key=lambda row: (row.broker, client_name(row), row.id))


def client_name(row: ClientRow) -> str:
    """The name that a client gave, else its kind."""
    name = str(row.record.get("name") or "")
    return name or ("stock socket" if row.record.get("kind") == "stock" else "unnamed")


def topic_rows(
    documents: Iterable[Mapping[str, Any]],
    before: Iterable[Mapping[str, Any]] = (),
    elapsed_s: float = 0.0,
) -> list[TopicRow]:
    """All patterns but the brokers' own, by pattern. Rates need the answers ``before``, of ``elapsed_s``
    earlier."""
    earlier = {
        (document.get("id"), record.get("pattern")): record
        for document in before
        for record in listed(document, "topics")
        if isinstance(record, dict)
    }
    found: dict[str, TopicRow] = {}
    for document in documents:
        broker = str(document.get("broker", "?"))
        for record in listed(document, "topics"):
            if not isinstance(record, dict):
                continue
            pattern = str(record.get("pattern", "?"))
            if pattern.startswith("$sys."):
                continue
            row = found.get(pattern, TopicRow(pattern, 0, 0, (), 0.0, 0.0))
            then = earlier.get((document.get("id"), record.get("pattern")))
            found[pattern] = TopicRow(
                pattern,
                row.listen + int(number_in(record, "listen") or 0),
                row.answer + int(number_in(record, "answer") or 0),
                (*row.brokers, broker),
                _sum(row.messages_s, _rate(record, then, "messages", elapsed_s)),
                _sum(row.bytes_s, _rate(record, then, "bytes", elapsed_s)),
            )
    return [found[pattern] for pattern in sorted(found)]


def _rate(
    record: Mapping[str, Any], then: Mapping[str, Any] | None, key: str, elapsed_s: float
) -> float | None:
    now, past = number_in(record, key), number_in(then, key)
    # The sum falls when one of the subscribers leaves, or the broker starts again.
    return None if now is None or past is None or elapsed_s <= 0 or now < past else (now - past) / elapsed_s


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def cut(documents: Iterable[Mapping[str, Any]], key: str) -> int:
    """Number of entries that the answers have no room for."""
    return sum(
        max(0, int(number_in(document, "count") or 0) - len(listed(document, key))) for document in documents
    )


def _of(key: str) -> Callable[[ClientRow], Any]:
    return lambda row: number_in(row.record, key)


def _figure(key: str, warns: bool = False) -> Callable[[ClientRow, Signs], tuple[str, str]]:
    def cell(row: ClientRow, signs: Signs) -> tuple[str, str]:
        value = number_in(row.record, key)
        return number(value), WARN if warns and value else ""

    return cell


def _text(key: str) -> Callable[[ClientRow, Signs], tuple[str, str]]:
    return lambda row, signs: (str(row.record.get(key) or "-"), "")


def _wanted(row: ClientRow) -> str:
    patterns = [str(pattern) for pattern in listed(row.record, "patterns")]
    more = int(number_in(row.record, "patterns_count") or 0) - len(patterns)
    durable = [f"[{name}]" for name in listed(row.record, "durable")]
    return " ".join([*patterns, *([f"+{more}"] if more > 0 else []), *durable]) or "-"


CLIENT_COLUMNS: Final[tuple[Column[ClientRow], ...]] = (
    Column(
        "client", lambda row, s: (client_name(row), ""), 24, 0, right=False, stretches=True, key=client_name
    ),
    Column("broker", lambda row, s: (row.broker, ""), 16, 1, False, True, lambda row: row.broker),
    Column("sent", _figure("published"), 5, 3, key=_of("published")),
    Column("waiting", _figure("waiting", True), 7, 4, key=_of("waiting")),
    Column("under way", _figure("under_way"), 9, 8, key=_of("under_way")),
    Column("drop", _figure("dropped", True), 5, 2, key=_of("dropped")),
    Column("subs", _figure("subscriptions"), 5, 6, key=_of("subscriptions")),
    Column("principal", _text("principal"), 16, 7, right=False, stretches=True),
    Column("address", _text("address"), 30, 9, right=False, stretches=True),
    Column("wants", lambda row, s: (_wanted(row), ""), 40, 5, right=False, stretches=True),
)

TOPIC_COLUMNS: Final[tuple[Column[TopicRow], ...]] = (
    Column("pattern", lambda row, s: (row.pattern, ""), 50, 0, False, True, lambda row: row.pattern),
    Column("msgs/s", lambda row, s: (number(row.messages_s), ""), 6, 1, key=lambda row: row.messages_s),
    Column("bytes/s", lambda row, s: (number(row.bytes_s), ""), 7, 4, key=lambda row: row.bytes_s),
    Column("listen", lambda row, s: (number(row.listen), ""), 6, 2, key=lambda row: row.listen),
    Column("answer", lambda row, s: (number(row.answer), ""), 6, 3, key=lambda row: row.answer),
    Column(
        "at brokers",
        lambda row, s: (" ".join(row.brokers), ""),
        60,
        5,
        right=False,
        stretches=True,
        key=lambda row: len(row.brokers),
    ),
)
