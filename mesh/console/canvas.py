"""A drawing surface of text: thin lines in braille dots (2 x 4 to a cell), labels on top of them.

The last label wins over lines; a label that would cover another is refused, so that the caller can try
a shorter one or another place. Pure.
"""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.text import Text

DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of each dot by column and row, in the order Unicode gives them."""
BLANK: Final = 0x2800


class Canvas:
    """``width`` x ``height`` cells; points are in dots, ``2 * width`` across and ``4 * height`` down."""

    def __init__(self, width: int, height: int) -> None:
        self.width = max(1, width)
        self.height = max(1, height)
        self._dots = [[0] * self.width for _ in range(self.height)]
        self._styles = [[""] * self.width for _ in range(self.height)]
        self._labels: dict[tuple[int, int], tuple[str, str]] = {}
        self._taken: set[tuple[int, int]] = set()

    def point(self, x: int, y: int, style: str = "") -> None:
        """Set one dot; dots outside are ignored."""
        column, row = x // 2, y // 4
        if 0 <= column < self.width and 0 <= row < self.height:
            self._dots[row][column] |= DOTS[x % 2][y % 4]
            self._styles[row][column] = style

    def line(self, x0: int, y0: int, x1: int, y1: int, style: str = "", *, dashed: bool = False) -> None:
        """A straight line (Bresenham), every third dot of it where it is dashed."""
        dx, dy = abs(x1 - x0), -abs(y1 - y0)
        step_x, step_y = (1 if x0 < x1 else -1), (1 if y0 < y1 else -1)
        error = dx + dy
        count = 0
        while True:
            if not dashed or count % 3 == 0:
                self.point(x0, y0, style)
            if (x0, y0) == (x1, y1):
                return
            twice = 2 * error
            if twice >= dy:
                error += dy
                x0 += step_x
            if twice <= dx:
                error += dx
                y0 += step_y
            count += 1

    def label(self, column: int, row: int, text: str, style: str = "") -> bool:
        """Write ``text`` from a cell on; False and nothing written where it sticks out or covers another."""
        length = cell_len(text)
        cells = [(column + offset, row) for offset in range(length)]
        if not (0 <= row < self.height and 0 <= column and column + length <= self.width):
            return False
        if any(cell in self._taken for cell in cells):
            return False
        self._labels[column, row] = (text, style)
        self._taken.update(cells)
        return True

    def lines(self) -> list[Text]:
        """The drawing, top to bottom."""
        return [self._row(row) for row in range(self.height)]

    def _row(self, row: int) -> Text:
        text = Text(no_wrap=True, overflow="crop", end="")
        column = 0
        while column < self.width:
            label = self._labels.get((column, row))
            if label is not None:
                text.append(*label)
                column += cell_len(label[0])
                continue
            dots = self._dots[row][column]
            text.append(chr(BLANK + dots) if dots else " ", self._styles[row][column] if dots else "")
            column += 1
        return text
