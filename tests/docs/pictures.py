"""The pictures of README and docs: ``python -m tests.docs.pictures``, or ``make pictures``, draws them again.

Drawings show the console for a mesh of five brokers. The recording is a few of them, which the style sheet
of an SVG shows one after the other: no script, and no font of others. Pages are photographed, see
`tests.docs.photographs`.
"""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console

from mesh.console.control import Control
from mesh.console.history import History
from mesh.console.screen import Asked, Screen
from mesh.picture import compose
from tests.docs.photographs import missing, photographs
from tests.mesh.console.scenes import CLIENTS, STATES

FOLDER: Final = Path(__file__).parents[2] / "docs/pictures"
WIDTH, HEIGHT = 110, 32
FIRST, LAST, DEATH = 72, 92, 80
"""Seconds of a state; in the last of these the broker is dead."""
EVERY: Final = 4
CLOCK_S: Final = 9 * 3600 + 65
"""The time of the clock then, since the events of the state have times of day."""
SHOWN_S: Final = 1.0
"""How long each frame of the recording is shown; the last one four times as long."""
FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
FAMILY: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def frames(state: str, first: int, last: int) -> list[str]:
    """The console in these seconds of a state, each as an SVG."""
    past, before, drawn = History(), list[dict[str, object]](), []
    for second in range(last + 1):
        answers = STATES[state](second)
        silent = ["beta"] if state == "death" and second >= DEATH else []
        picture = compose(answers, before, silent)
        past.add(picture, float(second))
        before = answers
        if second >= first and (second - first) % EVERY == 0:
            now = CLOCK_S + second - DEATH
            clock = f"{now // 3600:02}:{now // 60 % 60:02}:{now % 60:02}Z"
            drawn.append(
                _drawn(Screen(picture, clock, "", past=past, control=Control(), asked=Asked(CLIENTS)))
            )
    return drawn


def _drawn(screen: Screen) -> str:
    console = Console(
        file=StringIO(),
        record=True,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
        _environ={},
    )
    console.print(screen, height=HEIGHT)
    svg = console.export_svg(title="mesh top", unique_id="picture")
    return FONT.sub("", svg).replace("font-family: Fira Code, monospace;", f"font-family: {FAMILY};")


def recording(svgs: list[str]) -> str:
    """One SVG that shows others of one size in turn, without end."""
    total_s = SHOWN_S * (len(svgs) + 3)
    style, groups, begins_s = [], [], 0.0
    for number, svg in enumerate(svgs):
        ends_s = begins_s + SHOWN_S * (4 if number == len(svgs) - 1 else 1)
        begin, end = (100 * at / total_s for at in (begins_s, ends_s))
        shown = f"{begin:.3f}%, {end - 0.001:.3f}% {{ visibility: visible }}"
        hidden = "".join(f" {at} {{ visibility: hidden }}" for at in _outside(begin, end))
        style.append(f"@keyframes frame-{number} {{ {shown}{hidden} }}")
        style.append(f".frame-{number} {{ animation: frame-{number} {total_s:g}s step-end infinite }}")
        inside = re.sub(r"^<svg[^>]*>|</svg>\s*$", "", svg.strip())
        inside = inside.replace("picture", f"picture-{number}")
        groups.append(f'<g class="frame frame-{number}">{inside}</g>')
        begins_s = ends_s
    opening = re.match(r"<svg[^>]*>", svgs[0].strip())
    assert opening is not None
    last = len(svgs) - 1
    calm = "@media (prefers-reduced-motion: reduce) { "
    calm += f".frame-{last} {{ animation: none; visibility: visible }} "
    still = ", ".join(f".frame-{number}" for number in range(last))
    calm += f"{still} {{ animation: none }} }}"
    css = "\n".join([".frame { visibility: hidden }", *style, calm])
    return f"{opening[0]}\n<style>\n{css}\n</style>\n" + "\n".join(groups) + "\n</svg>\n"


def _outside(begin: float, end: float) -> list[str]:
    return [*(["0%"] if begin > 0 else []), *([f"{end:.3f}%", "100%"] if end < 100 else [])]


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {
        "console.svg": frames("death", LAST, LAST)[0],
        "console-death.svg": recording(frames("death", FIRST, LAST)),
        "console-partition.svg": frames("partition", LAST, LAST)[0],
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name: text.encode() for name, text in pictures().items()}
    if reason := missing():
        print(f"no photographs of pages: {reason}", file=sys.stderr)
    else:
        drawn |= photographs()
    for name, content in drawn.items():
        (folder / name).write_bytes(content)
        print(f"{folder / name}: {len(content)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
