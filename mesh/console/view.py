"""A picture as rich renderables and as plain lines. Pure: nothing here asks for anything.

The screen is one fixed frame: a head of two lines, the topology beside the brokers, the feed below, one line
of hints. Regions keep their size while figures change, so nothing jumps. Where room is short, the least
important columns are left out: a screen of 80 x 24 has those that an alarm needs, a wider one has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mesh.console.figures import counted, duration, milliseconds, number
from mesh.console.queues import journals_line, queues_table
from mesh.console.signs import UNICODE, Signs, colour
from mesh.console.topology import topology
from mesh.picture import Edge, News, Picture, Vertex, listed, omitted
from mesh.printable import printable_document

LATE_WARN_MS: Final = 50.0
"""A loop later than this is worth a colour: a tenth of the heartbeat's deadline."""
WIDE: Final = 110
INTEREST_SHOWN: Final = 20
"""Patterns in the report of a status."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the brokers' table: ``need`` orders what goes first where room is short."""

    title: str
    cell: Callable[[Vertex, Signs], Text]
    width: int
    need: int
    right: bool = True


def _text(value: str, style: str = "") -> Text:
    return Text(value, style, no_wrap=True, overflow="ellipsis")


def _worry(value: float | None, limit: float, shown: str) -> Text:
    return _text(shown, "bold yellow" if value is not None and value > limit else "")


COLUMNS: Final = (
    Column("broker", lambda n, s: _text(n.name, "bold" if n.connected else ""), 12, 0, right=False),
    Column("state", lambda n, s: _text(_state_word(n, s), colour(n.state)), 10, 1, right=False),
    Column("rtt ms", lambda n, s: _text("self" if n.connected else milliseconds(n.rtt_ms)), 6, 2),
    Column("in/s", lambda n, s: _text(number(n.msgs_in_s)), 5, 3),
    Column("out/s", lambda n, s: _text(number(n.msgs_out_s)), 5, 4),
    Column("drop", lambda n, s: _worry(n.dropped, 0, number(n.dropped)), 4, 5),
    Column("late", lambda n, s: _worry(n.late_ms, LATE_WARN_MS, milliseconds(n.late_ms)), 4, 6),
    Column("lost", lambda n, s: _worry(n.lost, 0, number(n.lost)), 5, 8),
    Column("queue", lambda n, s: _text(number(n.queued)), 5, 10),
    Column("bytes/s", lambda n, s: _text(number(_sum(n.bytes_in_s, n.bytes_out_s))), 7, 9),
    Column("sess", lambda n, s: _text(number(n.sessions)), 4, 11),
    Column("subs", lambda n, s: _text(number(n.subscriptions)), 4, 12),
    Column("MB", lambda n, s: _text("-" if n.rss_bytes is None else f"{n.rss_bytes / 1e6:.0f}"), 4, 13),
    Column("inc", lambda n, s: _text(str(n.incarnation)), 3, 14),
    Column("since", lambda n, s: _text(duration(n.since_s)), 5, 7),
    Column("address", lambda n, s: _text(n.url), 24, 15, right=False),
)


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _state_word(node: Vertex, signs: Signs) -> str:
    """The state, and how many say so where not all do: ``alive 3/4``."""
    word = node.mode if node.connected and node.mode in ("joining", "isolated", "leaving") else node.state
    if 0 < node.agree < node.observers:
        return f"{signs.of(node.state)} {word[:4]} {node.agree}/{node.observers}"
    return f"{signs.of(node.state)} {word}"


def brokers_table(picture: Picture, width: int, rows: int, signs: Signs = UNICODE) -> Table:
    """The brokers with their figures, as many columns and brokers as fit into ``width`` and ``rows``."""
    names = max((cell_len(node.name) for node in picture.nodes), default=6)
    chosen = _fitting(width, names)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=False, header_style="bright_black")
    for column in chosen:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=_width(column, names),
            no_wrap=True,
            overflow="ellipsis",
        )
    # Trouble first, if not everyone fits; otherwise the order of names, which never jumps.
    shown = list(picture.nodes)
    if len(shown) > rows - 1:
        shown.sort(key=lambda node: (node.state == "alive", not node.connected))
        hidden = len(shown) - max(0, rows - 2)
        shown = shown[: max(0, rows - 2)]
    else:
        hidden = 0
    for node in shown:
        table.add_row(*(column.cell(node, signs) for column in chosen))
    if hidden:
        table.add_row(Text(f"+{hidden} more", "bright_black", no_wrap=True))
    return table


def _width(column: Column, names: int) -> int:
    return min(max(names, 6), 20) if column.title == "broker" else column.width


def _fitting(width: int, names: int) -> list[Column]:
    left, chosen = width + 1, set()  # the last column needs no gap behind it
    for column in sorted(COLUMNS, key=lambda column: column.need):
        need = _width(column, names) + 1
        if need > left:
            break
        left -= need
        chosen.add(column.title)
    return [column for column in COLUMNS if column.title in chosen]


def head(picture: Picture, width: int, signs: Signs = UNICODE) -> list[Text]:
    """Two lines: what the mesh is, and what it does."""
    who = Text(no_wrap=True, overflow="ellipsis")
    who.append("mangrove ", "bold cyan").append(picture.mesh, "bold")
    who.append(f"  {counted(len(picture.nodes), 'broker')}")
    if picture.unlisted:
        who.append(f" and {whole(picture.unlisted)} more", "bold yellow")
    for state in ("alive", "suspect", "dead", "left", "unknown"):
        count = picture.count(state)
        if count:
            who.append(f"  {signs.of(state)} {count} {state}", colour(state))
    parts = len(picture.parts)
    if parts > 1:
        who.append(f"  split into {parts} parts", "bold white on red")
    connected = next((node for node in picture.nodes if node.connected), None)
    if connected is not None:
        mode = f" {connected.mode.upper()}" if connected.mode not in (None, "ready") else ""
        who.append(f"  via {connected.name}", "bright_black").append(mode, "bold yellow")
    does = Text(no_wrap=True, overflow="ellipsis")
    late = picture.late_ms
    does.append(f"in {number(picture.total('msgs_in_s'))}/s  out {number(picture.total('msgs_out_s'))}/s  ")
    if width >= 90:
        does.append(f"{number(picture.total('bytes_in_s') + picture.total('bytes_out_s'))}B/s  ")
    does.append(
        f"published {number(picture.total('published'))}  delivered {number(picture.total('delivered'))}  "
    )
    dropped = picture.total("dropped")
    does.append(f"dropped {number(dropped)}", "bold yellow" if dropped else "")
    does.append("  late ")
    does.append(f"{milliseconds(late)} ms", "bold yellow" if late is not None and late > LATE_WARN_MS else "")
    return [who, does]


def news_lines(news: Sequence[News], rows: int, width: int = 200, signs: Signs = UNICODE) -> list[Text]:
    """The newest events, newest last, one line each."""
    lines = []
    for item in news[len(news) - rows if rows < len(news) else 0 :]:
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        line.append(item.ts[11:19] + " ", "bright_black")
        line.append(item.text.replace(UNICODE.arrow, signs.arrow), colour(item.state))
        line.append(f" {_said_by(item.observers, width)}", "bright_black")
        lines.append(line)
    return lines


def _said_by(observers: Sequence[str], width: int) -> str:
    if width < WIDE:
        return f"x{len(observers)}" if len(observers) > 1 else ""
    more = f" +{len(observers) - 4}" if len(observers) > 4 else ""
    return "seen by " + ", ".join(observers[:4]) + more


def trouble_lines(picture: Picture, rows: int) -> list[Text]:
    """All trouble: a split, silent brokers, full disks, bad links, drops and refusals by reason."""
    names = {node.id: node.name for node in picture.nodes}
    said: list[str] = []
    if len(picture.parts) > 1:
        said.append("split: " + " | ".join(" ".join(names[id] for id in part) for part in picture.parts))
    said += [f"silent: {name}" for name in picture.silent]
    said += [f"{node.name}: {trouble}" for node in picture.nodes for trouble in node.disk]
    said += [f"{name} lives at {' and '.join(homes)}: remove one" for name, homes in picture.twice]
    said += [f"{node.name}: {_left_out(node.omitted)} cut off" for node in picture.nodes if node.omitted]
    said += [_link_trouble(edge, names) for edge in picture.edges if not edge.whole or edge.lost]
    said += [f"{number(count)} dropped: {_words(reason)}" for reason, count in picture.drops.items()]
    said += [f"{number(count)} refused: {_words(reason)}" for reason, count in picture.refused.items()]
    if len(said) > rows == 1:
        said = [f"1 of {len(said)}: {said[0]}"]
    elif len(said) > rows:
        said = [*said[: max(0, rows - 1)], f"+{len(said) - rows + 1} more"]
    if not said:
        return [Text("none", "green")]
    return [Text(line, "yellow", no_wrap=True, overflow="ellipsis") for line in said]


def whole(count: int) -> str:
    """A count in full, thousands apart: 4 312."""
    return f"{count:,}".replace(",", " ")


def _left_out(omitted: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{whole(count)} of {key}" for key, count in omitted)


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def _link_trouble(edge: Edge, names: dict[str, str]) -> str:
    link = f"{names.get(edge.a, edge.a)} - {names.get(edge.b, edge.b)}"
    return f"{link}: one end only" if not edge.whole else f"{link}: {number(edge.lost)} lost"


class Screen:
    """The whole frame, drawn for whatever size the terminal has at that moment."""

    def __init__(self, picture: Picture, clock: str = "", note: str = "", signs: Signs = UNICODE) -> None:
        self.picture = picture
        self.clock = clock
        self.note = note
        self.signs = signs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        yield _frame(self, width, height)


def _frame(screen: Screen, width: int, height: int) -> RenderableType:
    picture, signs = screen.picture, screen.signs
    wide = width >= WIDE
    feed = max(3, (height - 3) // 3)
    queues = min(len(picture.queues) + 3, max(5, (height - 3) * 2 // 7)) if picture.queues else 0
    feed = max(3, feed - queues // 3)
    body = max(4, height - 3 - feed - queues)
    drawing = max(20, min(width * 35 // 100, body * 5)) if not wide else min(width // 2 - 8, body * 4)
    frame = Layout()
    rows = [
        Layout(Group(*head(picture, width, signs)), name="head", size=2),
        Layout(name="body", size=body),
        Layout(name="feed", size=feed),
        Layout(_hints(screen), name="hints", size=1),
    ]
    if queues:
        table = queues_table(picture.queues, width - 4, queues - 2)
        below = journals_line(picture.journals)
        panel = _panel(table, "durable subscriptions", signs, pad=1, below=below)
        rows.insert(2, Layout(panel, name="queues", size=queues))
    frame.split_column(*rows)
    frame["body"].split_row(
        Layout(
            _panel(_lines(topology(picture, drawing - 2, body - 2, signs)), "topology", signs),
            name="topology",
            size=drawing,
        ),
        Layout(
            _panel(brokers_table(picture, width - drawing - 4, body - 2, signs), "brokers", signs, pad=1),
            name="brokers",
        ),
    )
    news = _lines(news_lines(picture.news, feed - 2, width, signs))
    events = Layout(_panel(news, "events", signs, pad=1), name="events")
    trouble = Layout(
        _panel(_lines(trouble_lines(picture, feed - 2)), "trouble", signs, pad=1), name="trouble"
    )
    trouble.size = 26 if not wide else min(48, width // 3)
    frame["feed"].split_row(events, trouble)
    return frame


def _hints(screen: Screen) -> Text:
    if screen.note:
        return Text(screen.note, "bold yellow", no_wrap=True, overflow="ellipsis")
    return Text(f"{screen.clock}  q quits", "bright_black", no_wrap=True)


def _panel(content: RenderableType, title: str, signs: Signs, pad: int = 0, below: str = "") -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=Text(below) if below else None,
        subtitle_align="right",
        border_style="bright_black",
        padding=(0, pad),
        box=box.ROUNDED if signs.unicode else box.ASCII,
    )


def _lines(lines: Sequence[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def plain_line(picture: Picture, clock: str) -> str:
    """The state of the mesh in one line of key=value, for logs and pipes."""
    states = " ".join(f"{state}={picture.count(state)}" for state in ("alive", "suspect", "dead", "left"))
    late = picture.late_ms
    return (
        f"{clock} mesh={picture.mesh} brokers={len(picture.nodes) + picture.unlisted} {states} "
        f"parts={len(picture.parts)} "
        f"in={number(picture.total('msgs_in_s'))}/s out={number(picture.total('msgs_out_s'))}/s "
        f"published={picture.total('published'):.0f} delivered={picture.total('delivered'):.0f} "
        f"dropped={picture.total('dropped'):.0f} late_ms={milliseconds(late)}"
    )


def plain_news(item: News, signs: Signs = UNICODE) -> str:
    """An event in one line."""
    text = item.text.replace(UNICODE.arrow, signs.arrow)
    return f"{item.ts} {text} (seen by {', '.join(item.observers)})"


def status_report(picture: Picture, status: dict[str, Any], width: int, signs: Signs = UNICODE) -> Group:
    """The report of ``mesh status``: the broker asked, the members in its view, and all trouble."""
    status = printable_document(status)
    about = Table.grid(padding=(0, 2))
    about.add_column(style="bright_black", no_wrap=True)
    about.add_column(overflow="fold")
    for key, value in _about(status):
        about.add_row(key, value)
    parts: list[RenderableType] = [*head(picture, width, signs), Text(), about, Text()]
    parts.append(brokers_table(picture, width, len(picture.nodes) + 1, signs))
    if picture.queues:
        parts += [Text(), queues_table(picture.queues, width)]
    wrong = trouble_lines(picture, 20)
    if wrong[0].plain != "none":
        parts += [Text(), *wrong]
    return Group(*parts)


def _about(status: dict[str, Any]) -> list[tuple[str, str]]:
    def get(key: str) -> str:
        return str(status.get(key, "?"))

    def _of(noun: str) -> str:
        return counted(status.get(f"{noun}s", "?"), noun)

    lacks = omitted(status)
    taps = len(listed(status, "taps")) + lacks.get("taps", 0)
    interest = [str(pattern) for pattern in listed(status, "interest")]
    more = len(interest[INTEREST_SHOWN:]) + lacks.get("interest", 0)
    return [
        ("broker", f"{get('name')} ({get('id')}), {get('state')}, incarnation {get('incarnation')}"),
        ("process", f"{get('host')} pid {get('pid')}, version {get('version')}, up {_uptime(status)}"),
        ("listens at", " ".join(str(url) for url in listed(status, "listeners"))),
        ("known as", f"{get('url')} to brokers, {get('client_url')} to clients"),
        ("clients", ", ".join([_of("session"), _of("subscription"), counted(taps, "tap")])),
        (
            "interest",
            " ".join(interest[:INTEREST_SHOWN]) + (f" ... and {whole(more)} more" if more else "") or "none",
        ),
        *_about_journal(status.get("journal")),
        *([("status", f"cut to fit, without {_left_out(lacks.items())}")] if lacks else []),
    ]


def _about_journal(journal: Any) -> list[tuple[str, str]]:
    if not isinstance(journal, dict):
        return []
    said = ", ".join(
        f"{number(journal.get(key))} {key}" for key in ("stored", "duplicates", "refused", "commits")
    )
    p50, p99 = journal.get("commit_ms_p50"), journal.get("commit_ms_p99")
    return [("journal", f"{said} (p50 {milliseconds(p50)} ms, p99 {milliseconds(p99)} ms)")]


def _uptime(status: dict[str, Any]) -> str:
    seconds = status.get("uptime_s")
    return duration(seconds) if isinstance(seconds, int | float) else "?"
