"""A drawing of the mesh: which brokers are linked, and whether the mesh is in one piece.

Each part of the mesh is a ring of its brokers with their links as chords. Parts stand side by side with a
wall between them, so that a split is seen at once. Brokers without any link stand below as a list. A matrix
of observers (rows) and observed (columns) replaces the rings above `DRAWN_MAX` brokers, and in a terminal
without room or Unicode.

Rings rather than springs: a node keeps its place from frame to frame, a full mesh looks like one, and it
needs no numerical library. The order around a ring is by name.
"""

from __future__ import annotations

import math
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mesh.console.canvas import Canvas
from mesh.console.figures import shortened
from mesh.console.links import kind_of
from mesh.console.signs import Signs, colour
from mesh.picture import Edge, Picture, Vertex, missing_links

DRAWN_MAX: Final = 30
ALL_LINKS_OF: Final = 10
"""The most brokers with all links drawn. More would be a disc, so only missing and bad links are drawn."""
LABEL_MAX: Final = 14
BUSY_MSGS_S: Final = 1.0
"""Messages a second from which on a link is drawn as busy."""


def topology(picture: Picture, width: int, height: int, signs: Signs) -> list[Text]:
    """The drawing in at most ``height`` lines of ``width`` cells."""
    apart = [node for node in picture.nodes if all(node.id not in part for part in picture.parts)]
    drawn = sum(len(part) for part in picture.parts)
    footer = _listed(apart, width, signs) if apart else []
    room = height - len(footer)
    if not signs.unicode or drawn > DRAWN_MAX or drawn > 2 * room + 2 or room < 3:
        return matrix(picture, width, height, signs)
    return [*_rings(picture, width, room, signs), *footer][:height]


def _listed(nodes: list[Vertex], width: int, signs: Signs) -> list[Text]:
    """The brokers that are in no part, on as few lines as possible."""
    lines = [Text(no_wrap=True, overflow="ellipsis")]
    for node in nodes:
        entry = f"{signs.of(node.state)} {node.name}"
        if lines[-1].cell_len and lines[-1].cell_len + 2 + cell_len(entry) > width:
            lines.append(Text(no_wrap=True, overflow="ellipsis"))
        if lines[-1].cell_len:
            lines[-1].append("  ")
        lines[-1].append(entry, colour(node.state))
    return lines[:2]


def _rings(picture: Picture, width: int, height: int, signs: Signs) -> list[Text]:
    canvas = Canvas(width, height)
    nodes = {node.id: node for node in picture.nodes}
    slices = _slices([len(part) for part in picture.parts], width)
    places: dict[str, tuple[float, float]] = {}
    for part, (left, right) in zip(picture.parts, slices, strict=True):
        longest = max(min(cell_len(nodes[id].name), LABEL_MAX) + 2 for id in part)
        places.update(_ring(part, left, right, height, longest))
        if left > 0:
            _wall(canvas, left - 1, height)
    all_links = len(places) <= ALL_LINKS_OF
    for edge in picture.edges:
        if edge.a in places and edge.b in places and (all_links or kind_of(edge) != "up"):
            _draw_edge(canvas, edge, places[edge.a], places[edge.b])
    for a, b in missing_links(picture):
        canvas.line(*_dots(places[a]), *_dots(places[b]), "red", dashed=True)
    for id, (column, row) in places.items():
        left, right = next(pair for part, pair in zip(picture.parts, slices, strict=True) if id in part)
        _draw_node(canvas, nodes[id], column, row, left, right, signs)
    return canvas.lines()


def _slices(sizes: list[int], width: int) -> list[tuple[int, int]]:
    """Columns from-to for each part, wider for larger ones, one column for the wall between two."""
    walls = len(sizes) - 1
    weights = [2 + math.sqrt(size) for size in sizes]
    free = max(len(sizes), width - walls)
    slices, left = [], 0
    for index, weight in enumerate(weights):
        rest = sum(weights[index:])
        share = max(1, round((free - (left - index)) * weight / rest)) if rest else free
        right = min(width, left + share)
        slices.append((left, right))
        left = right + 1
    return slices


def _ring(
    part: tuple[str, ...], left: int, right: int, height: int, label: int
) -> dict[str, tuple[float, float]]:
    """The place of each broker's sign in cells, on an ellipse that leaves room for labels."""
    middle_x, middle_y = (left + right - 1) / 2, (height - 1) / 2
    if len(part) == 1:
        return {part[0]: (middle_x, middle_y)}
    radius_x = max(1.0, (right - left - label) / 2)
    # A cell is about twice as high as wide; a ring taller than wide is no ring.
    radius_y = max(1.0, min((height - 1) / 2, radius_x * 0.6 + 1))
    # A pair lies side by side where its labels fit so, everything else begins at the top.
    start = 0.0 if len(part) == 2 and right - left > 2 * label + 4 else -math.pi / 2
    angles = [start + 2 * math.pi * index / len(part) for index in range(len(part))]
    return {
        id: (middle_x + radius_x * math.cos(angle), middle_y + radius_y * math.sin(angle))
        for id, angle in zip(part, angles, strict=True)
    }


def _wall(canvas: Canvas, column: int, height: int) -> None:
    for row in range(height):
        canvas.label(column, row, "┃" if row % 2 == 0 else "╏", "red")


def _draw_edge(canvas: Canvas, edge: Edge, start: tuple[float, float], end: tuple[float, float]) -> None:
    busy = edge.msgs_s is not None and edge.msgs_s >= BUSY_MSGS_S
    kind = kind_of(edge)
    style = "yellow" if kind in ("half", "losing") else "cyan" if busy else "bright_black"
    canvas.line(*_dots(start), *_dots(end), style, dashed=not edge.whole)


def _dots(cell: tuple[float, float]) -> tuple[int, int]:
    return round(cell[0] * 2 + 0.5), round(cell[1] * 4 + 1.5)


def _draw_node(
    canvas: Canvas, node: Vertex, column: float, row: float, left: int, right: int, signs: Signs
) -> None:
    """The longest label that fits near the node's place: its name, a shorter one, at last the sign alone."""
    style = f"bold {colour(node.state)}" + (" underline" if node.connected else "")
    sign = signs.of(node.state)
    for length in (LABEL_MAX, 8, 5, 3, 0):
        name = shortened(node.name, length) if length else ""
        text = f"{sign} {name}" if name else sign
        wide = cell_len(text)
        at = max(left, min(right - wide, round(column - wide / 2 + 0.5)))
        for drop in (0, 1, -1):
            if canvas.label(at, round(row) + drop, text, style):
                return


def matrix(picture: Picture, width: int, height: int, signs: Signs) -> list[Text]:
    """A matrix: rows are the brokers that answered, columns all. A cell is the column's state as the row sees
    it."""
    watchers = [node for node in picture.nodes if node.id in picture.views]
    name_width = min(
        LABEL_MAX, max((cell_len(node.name) for node in watchers), default=4), max(3, width // 4)
    )
    columns = picture.nodes[: max(1, width - name_width - 2)]
    lines = []
    for node in watchers[: max(1, height - 1)]:
        view = picture.views[node.id]
        line = Text(no_wrap=True, overflow="crop")
        # Names of many brokers differ at their ends.
        name = node.name if cell_len(node.name) <= name_width else "…" + node.name[1 - name_width :]
        line.append(set_cell_size(name, name_width) + " ", colour(node.state))
        for other in columns:
            state = view.get(other.id)
            line.append(signs.of(state) if state else signs.none, colour(state) if state else "bright_black")
        lines.append(line)
    hidden = (len(watchers) - len(lines), len(picture.nodes) - len(columns))
    note = "row sees column"
    if any(count > 0 for count in hidden):
        note += f"; {max(0, hidden[0])} rows and {max(0, hidden[1])} columns more"
    lines.append(Text(set_cell_size(note, min(width, cell_len(note))), "bright_black", no_wrap=True))
    return lines[:height]
