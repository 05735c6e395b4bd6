"""``mesh top``: looks at the mesh again and again, and redraws when something changed.

On a terminal it takes the whole screen and hears keys (`mesh.console.control`). It ends on ``q`` or Ctrl-C
and leaves one line behind, since the screen it drew vanishes. Elsewhere it prints a line for each look and
one for each event, which is what a log wants. A broker that goes away is not the end: the client goes on with
another one. Until that answers, the last picture stays, marked as old.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mesh import Client
from mesh.console.control import Control, Listing, View
from mesh.console.feed import Feed
from mesh.console.history import History
from mesh.console.keys import keys_in
from mesh.console.probe import Look, ask_all, look
from mesh.console.screen import Asked, Screen
from mesh.console.signs import signs_for
from mesh.console.view import plain_line
from mesh.console.watched import Watched
from mesh.errors import MeshError
from mesh.logs import log
from mesh.picture import Picture
from mesh.printable import printable

REDRAW_MIN_S = 0.25
"""Never look more often: a screen that flickers is not read."""
QUESTIONS = {View.CLIENTS: "clients", View.TOPICS: "topics"}
"""Views that need more than the statuses of brokers, and their questions."""


async def watch(client: Client, console: Console, interval_s: float) -> None:
    """Show the mesh until ``q`` or the end of the task; needs a terminal."""
    screen = _Terminal(console)
    try:
        with screen.shown(), _keys(screen.pressed):
            while not screen.control.quits:
                await screen.look(client, interval_s)
                await screen.pause(interval_s)
    finally:
        if screen.latest is not None:
            console.print(Text(plain_line(screen.latest, _clock(), screen.past)), soft_wrap=True)


class _Terminal:
    """The screen and what is on it."""

    def __init__(self, console: Console) -> None:
        self.latest: Picture | None = None
        self.past = History()
        self.control = Control()
        self._console = console
        self._signs = signs_for(console.encoding)
        self._live = Live(console=console, screen=True, auto_refresh=False, transient=True)
        self._look: Look | None = None
        self._asked: dict[View, Asked] = {}
        self._asked_at: dict[View, float] = {}
        self._watched = Watched()
        self._note = ""
        self._wanted = asyncio.Event()
        """Set by a key that needs an answer of the brokers, or that quits."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        # The client's log lines about a lost broker would be written into the picture.
        quiet = logging.NullHandler()
        log.addHandler(quiet)
        try:
            with self._live:
                self._live.update(Text("asking the mesh ..."), refresh=True)
                yield
        finally:
            log.removeHandler(quiet)

    async def pause(self, interval_s: float) -> None:
        """Wait until the next look is due, or a key needs one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(interval_s, REDRAW_MIN_S)):
                await self._wanted.wait()

    async def look(self, client: Client, interval_s: float) -> None:
        """Look and draw. A look that fails leaves the last picture and says how old it is."""
        self._wanted.clear()
        deadline_s = max(interval_s, 0.5)
        try:
            seen = await look(client, deadline_s)
        except (MeshError, TimeoutError) as error:
            self._draw(self._watched.failed(client, error, _now()))
            return
        self.latest = seen.picture(self._look)
        self.past.add(self.latest, _now())
        self._look = seen
        refusal = await self._ask(client, deadline_s)
        self._draw(refusal or self._watched.answered(seen, _now()))

    async def _ask(self, client: Client, deadline_s: float) -> str:
        """Ask what the view needs besides the statuses; returns why there is no answer."""
        view = self.control.view
        if view not in QUESTIONS:
            return ""
        try:
            answers = await ask_all(client, {"look": QUESTIONS[view]}, deadline_s)
        except (MeshError, TimeoutError) as error:
            return f"no {view}: {printable(str(error)) or 'no broker answered in time'}"
        before, now = self._asked.get(view, Asked()), _now()
        elapsed_s = now - self._asked_at.get(view, now)
        self._asked[view] = Asked(answers.documents, before.documents or (), elapsed_s)
        self._asked_at[view] = now
        return ""

    def pressed(self, keys: Sequence[str]) -> None:
        """Keys were pressed."""
        for key in keys:
            screen = self._screen()
            width, height = self._console.size
            self.control.press(key, Listing() if screen is None else screen.listing(width, height))
        if self.control.quits or (self.control.view in QUESTIONS and self.control.view not in self._asked):
            self._wanted.set()
        if self.latest is not None:
            self._draw(self._note)

    def _screen(self) -> Screen | None:
        if self.latest is None:
            return None
        return Screen(
            self.latest,
            _clock(),
            self._note,
            self._signs,
            self.past,
            stale=self._watched.is_stale,
            control=self.control,
            asked=self._asked.get(self.control.view),
        )

    def _draw(self, note: str) -> None:
        self._note = note
        said = Text(f"no picture yet: {note}", "bold yellow")
        self._live.update(self._screen() or said, refresh=True)


@contextmanager
def _keys(pressed: Callable[[Sequence[str]], None]) -> Iterator[None]:
    """Report keys as they are typed. The terminal's own settings come back at the end."""
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)

    def typed() -> None:
        data = os.read(descriptor, 1024)
        pressed(keys_in(data) if data else ["escape", "escape", "q"])  # the terminal is gone

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, typed)
        yield
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
    """The time in UTC, as in the log."""
    return time.strftime("%H:%M:%SZ", time.gmtime())
