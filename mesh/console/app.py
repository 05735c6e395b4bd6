"""``mesh top``: looks at the mesh again and again, and redraws when something changed.

On a terminal it takes the whole screen, ends on ``q`` or Ctrl-C and leaves one line behind, since the screen
it drew vanishes. Elsewhere it prints a line for each look and one for each event, which is what a log wants.
A broker that goes away is not the end: the client goes on with another one. Until that answers, the last
picture stays, marked as old.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mesh import Client
from mesh.console.feed import Feed
from mesh.console.history import History
from mesh.console.probe import Look, look
from mesh.console.signs import signs_for
from mesh.console.view import Screen, plain_line
from mesh.console.watched import Watched
from mesh.errors import MeshError
from mesh.logs import log
from mesh.picture import Picture

REDRAW_MIN_S = 0.25
"""Never redraw more often: a screen that flickers is not read."""


async def watch(client: Client, console: Console, interval_s: float) -> None:
    """Show the mesh until ``q`` or the end of the task; needs a terminal."""
    screen = _Terminal(console)
    try:
        with screen.shown(), _keys() as quit_asked:
            while not quit_asked.is_set():
                await screen.look(client, interval_s)
                await _pause(quit_asked, interval_s)
    finally:
        if screen.latest is not None:
            console.print(Text(plain_line(screen.latest, _clock())), soft_wrap=True)


async def _pause(event: asyncio.Event, interval_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(interval_s, REDRAW_MIN_S)):
            await event.wait()


class _Terminal:
    """The screen and what is on it."""

    def __init__(self, console: Console) -> None:
        self.latest: Picture | None = None
        self.past = History()
        self._console = console
        self._signs = signs_for(console.encoding)
        self._live = Live(console=console, screen=True, auto_refresh=False, transient=True)
        self._look: Look | None = None
        self._watched = Watched()

    @contextmanager
    def shown(self) -> Iterator[None]:
        # What the client logs of a lost broker would be written into the picture, which says it itself.
        quiet = logging.NullHandler()
        log.addHandler(quiet)
        try:
            with self._live:
                self._live.update(Text("asking the mesh ..."), refresh=True)
                yield
        finally:
            log.removeHandler(quiet)

    async def look(self, client: Client, interval_s: float) -> None:
        """One look, drawn; a look that fails leaves the last picture, and says how old it is."""
        try:
            seen = await look(client, max(interval_s, 0.5))
        except (MeshError, TimeoutError) as error:
            self._draw(self._watched.failed(client, error, _now()))
            return
        self.latest = seen.picture(self._look)
        self.past.add(self.latest, _now())
        self._look = seen
        self._draw(self._watched.answered(seen, _now()))

    def _draw(self, note: str) -> None:
        if self.latest is None:
            self._live.update(Text(f"no picture yet: {note}", "bold yellow"), refresh=True)
            return
        screen = Screen(self.latest, _clock(), note, self._signs, self.past, stale=self._watched.is_stale)
        self._live.update(screen, refresh=True)


@contextmanager
def _keys() -> Iterator[asyncio.Event]:
    """An event that is set when ``q`` is typed; the terminal's own settings come back at the end."""
    asked = asyncio.Event()
    if not sys.stdin.isatty():
        yield asked
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)

    def typed() -> None:
        keys = os.read(descriptor, 64).lower()
        if not keys or b"q" in keys or b"\x04" in keys:
            asked.set()

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, typed)
        yield asked
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)


async def follow(client: Client, console: Console, interval_s: float, count: int | None = None) -> None:
    """Plain lines: the mesh at each look, and each event once; ``count`` looks, or until the task ends."""
    feed = Feed(signs_for(console.encoding))
    watched, past = Watched(), History()
    before: Look | None = None
    while count is None or count > 0:
        started = _now()
        try:
            seen = await look(client, max(interval_s, 0.5))
        except (MeshError, TimeoutError) as error:
            said = [f"{_clock()} {watched.failed(client, error, _now())}"]
        else:
            picture = seen.picture(before)
            past.add(picture, _now())
            before = seen
            moved = watched.answered(seen, _now())
            said = [f"{_clock()} {moved}"] if moved else []
            said += [*feed.lines(picture), plain_line(picture, _clock(), past)]
        for line in said:
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        console.file.flush()
        count = count - 1 if count is not None else None
        if count != 0:
            await asyncio.sleep(max(0.0, interval_s - (_now() - started)))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _clock() -> str:
    """UTC, as everything in the log is."""
    return time.strftime("%H:%M:%SZ", time.gmtime())
