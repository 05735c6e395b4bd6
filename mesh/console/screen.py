"""The screen of ``mesh top``, drawn for whatever size the terminal has at that moment. Pure.

A head of two lines, the view that was chosen (`mesh.console.control`), and one line of hints. The view of the
mesh has the topology beside the brokers, and below them events and trouble. Regions keep their size while
figures change, so nothing jumps. The least important columns are left out where room is short. A screen of
80 x 24 has those that an alarm needs, a wider one has them all. A terminal too small for panels gets the
brokers without any.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.text import Text

from mesh.console.brokers import BROKER_COLUMNS, BrokerRow, broker_rows, brokers_table
from mesh.console.clients import CLIENT_COLUMNS, TOPIC_COLUMNS, client_rows, cut, topic_rows
from mesh.console.control import HELP, SHORT_HELP, Control, Listing, View
from mesh.console.details import broker_details, client_details, link_details
from mesh.console.history import History
from mesh.console.links import LINK_COLUMNS, LinkRow, link_rows, links_said
from mesh.console.matrix import matrix
from mesh.console.queues import journals_line, queues_table
from mesh.console.signs import UNICODE, Shown, Signs
from mesh.console.tables import Column, fitting, in_order, rows_shown, table, window
from mesh.console.topology import ALL_LINKS_OF, DRAWN_MAX, topology
from mesh.console.view import WIDE, head, news_lines, trouble_lines
from mesh.news import gathered
from mesh.picture import Picture

SMALL_WIDTH: Final = 50
SMALL_HEIGHT: Final = 12
"""A terminal with less has no panels."""
FRAME: Final = 2
"""Lines, and columns without padding, of a panel's frame."""
HEAD: Final = 2
HINTS: Final = 1
HELP_PAD: Final = 1
TROUBLE_LINES: Final = 30

DETAILS: Final = {View.MESH: "broker", View.LINKS: "link", View.CLIENTS: "client"}

Row = TypeVar("Row")


class Asked(NamedTuple):
    """The brokers' answers about clients or topics, for the views of these; None: not asked yet. The answers
    ``before`` are of ``elapsed_s`` earlier."""

    documents: Sequence[Mapping[str, Any]] | None = None
    before: Sequence[Mapping[str, Any]] = ()
    elapsed_s: float = 0.0


class Rows(NamedTuple):
    """The rows of a view, filtered and in their order; their ids and columns."""

    rows: Sequence[Any]
    ids: Sequence[Hashable]
    columns: Sequence[Column[Any]]


class Screen:
    """One frame."""

    def __init__(
        self,
        picture: Picture,
        clock: str = "",
        note: str = "",
        signs: Signs = UNICODE,
        past: History | None = None,
        *,
        stale: bool = False,
        control: Control | None = None,
        asked: Asked | None = None,
    ) -> None:
        """``past`` has all looks up to this one. ``stale``: the picture is old. Without a ``control`` there
        are no keys."""
        self.picture = picture
        self.past = past
        self.clock = clock
        self.note = note
        self.signs = signs
        self.stale = stale
        self.keys = control is not None
        self.control = control or Control()
        self.asked = asked or Asked()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        yield Shown(self._frame(width, height), self.signs)

    def listing(self, width: int, height: int) -> Listing:
        """The rows that keys act on, on a screen of that size."""
        rows = self._rows()
        if self.control.view is View.MESH and not self._is_small(width, height):
            room = self._heights(width, height)[0] - FRAME
        elif self.control.view is View.MESH:
            room = max(2, height - HEAD - HINTS - 1)
        else:
            room = height - HEAD - HINTS - FRAME
        drawing = self._drawing_width(width, self._heights(width, height)[0])
        if self.control.view is not View.MESH or self._is_small(width, height):
            drawing = 0
        shown = fitting(rows.columns, rows.rows, max(1, width - drawing - 4), self.signs)
        titles = [column.title for column in shown if column.key is not None]
        return Listing(rows.ids, titles, rows_shown(len(rows.ids), room))

    # --- rows

    def _rows(self) -> Rows:
        picture, control = self.picture, self.control
        match control.view:
            case View.MESH:
                return self._chosen(
                    broker_rows(picture, self.past), BROKER_COLUMNS, lambda row: row.node.id, _broker_text
                )
            case View.LINKS:
                return self._chosen(link_rows(picture), LINK_COLUMNS, lambda row: row.id, _link_text)
            case View.CLIENTS:
                rows = client_rows(self.asked.documents or ())
                return self._chosen(
                    rows, CLIENT_COLUMNS, lambda row: row.id, lambda row: f"{row.broker} {row.record}"
                )
            case View.TOPICS:
                topics = topic_rows(self.asked.documents or (), self.asked.before, self.asked.elapsed_s)
                return self._chosen(
                    topics,
                    TOPIC_COLUMNS,
                    lambda row: row.pattern,
                    lambda row: " ".join((row.pattern, *row.brokers)),
                )
            case View.EVENTS:
                news = gathered(picture.news)
                return self._chosen(news, (), lambda item: (item.ts, item.text), lambda item: item.text)
            case View.MATRIX:
                return Rows(picture.nodes, [node.id for node in picture.nodes], ())

    def _chosen(self, rows: Iterable[Row], columns: Sequence[Column[Row]], id_of: Any, text_of: Any) -> Rows:
        """The rows that have the filter's text in them, in the chosen order."""
        wanted = self.control.filter.lower()
        found = [row for row in rows if wanted in text_of(row).lower()] if wanted else list(rows)
        column, reverse = self.control.order.get(self.control.view, ("", False))
        by = next((each for each in columns if each.title == column), None)
        if by is not None:
            found = in_order(found, by, reverse=reverse)
        return Rows(found, [id_of(row) for row in found], columns)

    # --- drawing

    def _is_small(self, width: int, height: int) -> bool:
        return width < SMALL_WIDTH or height < SMALL_HEIGHT

    def _frame(self, width: int, height: int) -> RenderableType:
        control = self.control
        if control.help:
            body: RenderableType = self._help(width)
        elif self._is_small(width, height) and control.view is View.MESH and not control.details:
            return self._small(width, height)
        elif control.view is View.MESH and not control.details:
            return self._mesh(width, height)
        else:
            body = self._view(width, height)
        frame = Layout()
        frame.split_column(
            Layout(Group(*self._head(width)), name="head", size=HEAD),
            Layout(body, name="body"),
            Layout(self._hints(), name="hints", size=HINTS),
        )
        return frame

    def _head(self, width: int) -> list[Text]:
        lines = head(self.picture, width, self.signs, self.past)
        if not self.stale:
            return lines
        who = Text("as it was: ", "bold white on red", no_wrap=True, overflow="ellipsis")
        return [
            who + Text(lines[0].plain, "bright_black"),
            Text(lines[1].plain, "bright_black", no_wrap=True),
        ]

    def _hints(self) -> Text:
        control = self.control
        if control.typing:
            return Text(f"filter: {control.filter}_  Enter keeps it, Escape ends it", "bold", no_wrap=True)
        if self.note:
            return Text(self.note, "bold yellow", no_wrap=True, overflow="ellipsis")
        said = f"{self.clock}  " + ("? help  q quits" if self.keys else "q quits")
        line = Text(said, "bright_black", no_wrap=True, overflow="ellipsis")
        if control.filter:
            line.append(f"  filter: {control.filter}", "bold")
        return line

    def _panel(self, content: RenderableType, title: str, pad: int = 0, below: str = "") -> Panel:
        return Panel(
            content,
            title=title,
            title_align="left",
            subtitle=Text(below) if below else None,
            subtitle_align="right",
            border_style="bright_black",
            padding=(0, pad),
            box=box.ROUNDED if self.signs.unicode else box.ASCII,
        )

    def _table(self, width: int, height: int) -> RenderableType:
        """The rows of the view."""
        rows, control = self._rows(), self.control
        page = window(control.place(rows.ids), len(rows.ids), height)
        column, _ = control.order.get(control.view, ("", False))
        if control.view is View.MESH:
            return brokers_table(
                rows.rows, width, height, self.signs, window=page if self.keys else None, sorted_by=column
            )
        return table(rows.columns, rows.rows, width, height, self.signs, window=page, sorted_by=column)

    def _small(self, width: int, height: int) -> RenderableType:
        """Without panels: the brokers, and the worst trouble."""
        lines = self._head(width)[: 1 if height < SMALL_HEIGHT else 2]
        room = max(2, height - len(lines) - HINTS)
        rows = min(len(self.picture.nodes) + 1, max(1, room // 2))
        said = trouble_lines(self.picture, room - rows, self.past, width)
        return Group(*lines, self._table(width, room - len(said)), *said, self._hints())

    def _heights(self, width: int, height: int) -> tuple[int, int, int]:
        """Heights of the body, the feed and the queues in the view of the mesh."""
        feed = max(3, (height - HEAD - HINTS) // 3)
        queues = self.picture.queues
        rows = min(len(queues) + 3, max(5, (height - HEAD - HINTS) * 2 // 7)) if queues else 0
        feed = max(3, feed - rows // 3)
        body = max(4, height - HEAD - HINTS - feed - rows)
        # Trouble gets the lines that it needs, from what the brokers can spare.
        wanted = len(trouble_lines(self.picture, TROUBLE_LINES, self.past, _aside(width) - 4)) + FRAME
        spare = body - min(len(self.picture.nodes) + 1 + FRAME, (height - HEAD - HINTS) // 2)
        more = max(0, min(wanted - feed, spare))
        return body - more, feed + more, rows

    def _mesh(self, width: int, height: int) -> RenderableType:
        picture, signs = self.picture, self.signs
        body, feed, queues = self._heights(width, height)
        frame = Layout()
        rows = [
            Layout(Group(*self._head(width)), name="head", size=HEAD),
            Layout(name="body", size=body),
            Layout(name="feed", size=feed),
            Layout(self._hints(), name="hints", size=HINTS),
        ]
        if queues:
            below = journals_line(picture.journals)
            content = queues_table(picture.queues, width - 4, queues - FRAME)
            panel = self._panel(content, "durable subscriptions", pad=1, below=below)
            rows.insert(2, Layout(panel, name="queues", size=queues))
        frame.split_column(*rows)
        frame["body"].split_row(*self._body(width, body))
        aside = _aside(width)
        news = news_lines(gathered(picture.news), feed - FRAME, width, signs, width - aside - 4)
        trouble = trouble_lines(picture, feed - FRAME, self.past, aside - 4)
        side = Layout(self._panel(_joined(trouble), "trouble", pad=1), name="trouble", size=aside)
        frame["feed"].split_row(Layout(self._panel(_joined(news), "events", pad=1), name="events"), side)
        return frame

    def _body(self, width: int, body: int) -> list[Layout]:
        """The topology and the brokers. A narrow screen has no room for the drawing of a large mesh."""
        count, drawing = len(self.picture.nodes), self._drawing_width(width, body)
        below = links_said(link_rows(self.picture)) + " links" if count > ALL_LINKS_OF else ""
        brokers = self._table(width - drawing - 4, body - FRAME)
        parts = [Layout(self._panel(brokers, "brokers", pad=1, below=below), name="brokers")]
        if drawing:
            parts.insert(
                0, Layout(self._drawing(drawing - FRAME, body - FRAME), name="topology", size=drawing)
            )
        return parts

    def _drawing_width(self, width: int, body: int) -> int:
        """Columns of the topology; 0: there is no room for it."""
        if width >= WIDE:
            return min(width // 2 - 8, body * 4)
        return 0 if len(self.picture.nodes) > ALL_LINKS_OF else max(20, min(width * 35 // 100, body * 5))

    def _drawing(self, width: int, height: int) -> Panel:
        picture, signs = self.picture, self.signs
        if len(picture.nodes) > DRAWN_MAX:
            return self._panel(_joined(matrix(picture, "round trip", width, height, signs)), "links")
        title = "topology" if len(picture.nodes) <= ALL_LINKS_OF else "missing and bad links"
        return self._panel(_joined(topology(picture, width, height, signs)), title)

    def _view(self, width: int, height: int) -> Panel:
        """One of the other views, or the details of a row."""
        control, signs = self.control, self.signs
        inner, room = max(1, width - 4), max(2, height - HEAD - HINTS - FRAME)
        if control.details:
            shown = self._details(inner, room)
            if shown is not None:
                return self._panel(shown, DETAILS[control.view], pad=1, below="Escape goes back")
        rows = self._rows()
        if control.view is View.MATRIX:
            first = control.place(rows.ids) or 0
            lines = matrix(self.picture, control.metric, inner, room, signs, first)
            return self._panel(
                _joined(lines), f"links: {control.metric}", pad=1, below="s shows another figure"
            )
        if control.view is View.EVENTS:
            place = control.place(rows.ids)
            last = len(rows.rows) if place is None else max(place + 1, room)
            news = rows.rows[max(0, last - room) : last]
            said = f"{len(rows.rows)} events, the newest last"
            return self._panel(
                _joined(news_lines(news, room, width, signs, inner)), "events", pad=1, below=said
            )
        return self._panel(self._table(inner, room), control.view, pad=1, below=self._below(rows))

    def _below(self, rows: Rows) -> str:
        if self.control.view is View.LINKS:
            return links_said(link_rows(self.picture))
        if self.asked.documents is None:
            return "asking all brokers ..."
        more = cut(self.asked.documents, str(self.control.view))
        return f"{len(rows.rows)} {self.control.view}" + (f", {more} more not told" if more else "")

    def _details(self, width: int, height: int) -> RenderableType | None:
        """Details of the chosen row; None: it is gone."""
        rows = self._rows()
        place = self.control.place(rows.ids)
        if place is None:
            return None
        row = rows.rows[place]
        if isinstance(row, BrokerRow):
            return broker_details(row.node, self.picture, self.past, width, height, self.signs)
        if isinstance(row, LinkRow):
            return link_details(row, self.past, width, self.signs)
        return client_details(row)

    def _help(self, width: int) -> Panel:
        lines = _aligned(HELP)
        if max(map(len, lines)) + FRAME + 2 * HELP_PAD > width:
            lines = _aligned(SHORT_HELP)
        text = _joined([Text(line, no_wrap=True, overflow="ellipsis") for line in lines])
        return self._panel(text, "keys", pad=HELP_PAD, below="any key goes back")


def _broker_text(row: BrokerRow) -> str:
    node = row.node
    return f"{node.name} {node.state} {node.mode or ''} {node.host} {node.url} {node.id}"


def _link_text(row: LinkRow) -> str:
    return f"{row.a} {row.b} {row.kind}"


def _aligned(told: Sequence[tuple[str, str]]) -> list[str]:
    wide = max(len(keys) for keys, _ in told)
    return [f"{keys:<{wide}}  {said}" for keys, said in told]


def _joined(lines: Sequence[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _aside(width: int) -> int:
    """Columns of the trouble beside the events."""
    return min(38, width // 2) if width < WIDE else min(48, width // 3)
