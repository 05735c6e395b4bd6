"""One broker, link or client in full, with its last minutes as sparklines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from mesh.console.brokers import state_word
from mesh.console.clients import ClientRow, client_name
from mesh.console.figures import duration, latency, number
from mesh.console.history import History
from mesh.console.links import LINK_COLUMNS, LinkRow, link_rows
from mesh.console.signs import Signs, colour
from mesh.console.sparklines import sparkline
from mesh.console.tables import table
from mesh.picture import Picture, Vertex, listed

LABEL: Final = 17
SAID: Final = 26
"""Cells behind a sparkline for the value now and the largest one."""
CLIENT_KEYS: Final = (
    *("kind", "client", "address", "principal", "proof", "published", "bytes_in", "subscriptions"),
    *("waiting", "under_way", "dropped"),
)


class Line(NamedTuple):
    """One sparkline: its name, its values, and how they are said."""

    label: str
    values: Sequence[float | None]
    say: Callable[[float | None], str]


def broker_details(
    node: Vertex, picture: Picture, past: History | None, width: int, height: int, signs: Signs
) -> RenderableType:
    """State, figures, the last minutes, and the links of one broker."""
    state = Text(f"{state_word(node, signs)}", colour(node.state))
    state.append(
        f" for {duration(node.since_s)}, as {node.agree} of {node.observers} others see it", "default"
    )
    about = [
        ("broker", Text(f"{node.name} ({node.id}), incarnation {node.incarnation}")),
        ("state", state),
        ("address", Text(f"{node.url}, host {node.host}, {_up(node)}")),
        *(_counts(node) if node.answered else ()),
        *(("trouble", Text(trouble, "bold yellow")) for trouble in (*node.disk, node.filling) if trouble),
    ]
    samples = [] if past is None else list(past.brokers.get(node.id, ()))
    lines = [
        Line("published/s", [sample.published_s for sample in samples], number),
        Line("delivered/s", [sample.delivered_s for sample in samples], number),
        Line("in/s", [sample.in_s for sample in samples], number),
        Line("out/s", [sample.out_s for sample in samples], number),
        Line("dropped/s", [sample.drops_s for sample in samples], number),
        Line("round trip", [sample.rtt_ms for sample in samples], latency),
        Line("loop late", [sample.late_ms for sample in samples], latency),
    ]
    rows = [row for row in link_rows(picture) if node.id in row.id]
    above = [*_about(about), Text(), *_lines(lines, width, signs), Text()]
    room = height - len(above)
    links = [table(LINK_COLUMNS, rows, width, room, signs)] if rows and room > 2 else []
    return Group(*above, *links)


def _up(node: Vertex) -> str:
    if node.answered:
        return f"up {duration(node.uptime_s)}"
    return "does not answer: dead or cut off" if node.state == "dead" else "did not answer"


def _counts(node: Vertex) -> list[tuple[str, Text]]:
    return [
        ("clients", Text(f"{number(node.sessions)} sessions, {number(node.subscriptions)} subscriptions")),
        (
            "since its start",
            Text(
                f"{number(node.published)} published, {number(node.delivered)} delivered, "
                f"{number(node.dropped)} dropped, {number(node.lost)} lost on links"
            ),
        ),
    ]


def link_details(row: LinkRow, past: History | None, width: int, signs: Signs) -> RenderableType:
    """Figures and the last minutes of one link."""
    edge = row.edge
    samples = [] if past is None else list(past.links.get(row.id, ()))
    about = [("link", Text(f"{row.a} - {row.b}")), ("state", Text(_link_state(row)))]
    if edge is not None:
        about.append(("since their start", Text(f"{number(edge.lost)} lost, {number(edge.dropped)} dropped")))
    lines = [
        Line("round trip", [sample.rtt_ms for sample in samples], latency),
        Line("messages/s", [sample.msgs_s for sample in samples], number),
        Line("lost/s", [sample.lost_s for sample in samples], number),
    ]
    return Group(*_about(about), Text(), *_lines(lines, width, signs))


def _link_state(row: LinkRow) -> str:
    said = {
        "missing": "missing: both brokers live, and no link joins them",
        "half": "half: only one of its two brokers reports it",
        "losing": "up; it has lost or dropped messages",
    }
    return said.get(row.kind, "up")


def client_details(row: ClientRow) -> RenderableType:
    """All that its broker says of a client."""
    record = row.record
    about = [("client", Text(f"{client_name(row)} at {row.broker}"))]
    about += [(key.replace("_", " "), Text(_said(record.get(key)))) for key in CLIENT_KEYS]
    about.append(("patterns", Text(" ".join(map(str, listed(record, "patterns"))) or "none")))
    about.append(("works on", Text(" ".join(map(str, listed(record, "durable"))) or "nothing")))
    return Group(*_about(about))


def _said(value: Any) -> str:
    return "-" if value is None else f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)


def _about(rows: Iterable[tuple[str, Text]]) -> list[Text]:
    lines = []
    for label, text in rows:
        line = Text(f"{label:<{LABEL}} ", "bright_black", no_wrap=True, overflow="ellipsis")
        lines.append(line + text)
    return lines


def _lines(lines: Iterable[Line], width: int, signs: Signs) -> list[Text]:
    shown = []
    for label, values, say in lines:
        cells = max(4, width - LABEL - SAID - 2)
        known = [value for value in values if value is not None]
        now = values[-1] if values else None
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{label:<{LABEL}} ", "bright_black")
        line.append(f"{sparkline(values, cells, signs):>{cells}} ", "cyan")
        line.append(f"{say(now):<7}", "bold").append(
            f"  most {say(max(known, default=None))}", "bright_black"
        )
        shown.append(line)
    return shown
