"""Frames for open pages: the mesh is asked again and again while pages are open.

While pages are open, all brokers are asked for their status every `INTERVAL_S`. Their answers become one
frame, which all pages get. Without a page no broker is asked. A large mesh is asked less often, so that its
answers take at most `BYTES_S`. The frame is made in a thread, while the broker's loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from mesh.http.overview import Overview, event
from mesh.http.source import Source
from mesh.logs import log

INTERVAL_S: Final = 2.0
DEADLINE_S: Final = 1.0
BYTES_MAX: Final = 16 << 20
"""Bytes of the answers to one look; brokers beyond that count as silent."""
BYTES_S: Final = 500_000.0
FAULT_PAUSE_S: Final = 10.0
RETRY: Final = b"retry: 2000\n\n"
"""When a page asks again after its connection broke, in milliseconds."""

Push = Callable[[bytes], None]


class Live:
    """Looks at the mesh and sends frames to open pages."""

    def __init__(self, source: Source, *, clock: Callable[[], float], wall_time: Callable[[], float]) -> None:
        self.looks = 0
        """Number of looks so far."""
        self._source = source
        self._clock = clock
        self._wall_time = wall_time
        self._pages: dict[Push, None] = {}
        self._wanted = asyncio.Event()
        self._overview = Overview()
        self._past = b'{"at":0,"samples":{}}'
        self._latest = b""

    @property
    def pages(self) -> int:
        return len(self._pages)

    def add(self, push: Push) -> bytes:
        """Add an open page; returns its first frames. Later ones go to ``push``."""
        self._pages[push] = None
        self._wanted.set()
        return RETRY + event("past", self._past) + self._latest

    def remove(self, push: Push) -> None:
        """Remove a page that was closed."""
        self._pages.pop(push, None)
        if not self._pages:
            self._wanted.clear()
            self._latest = b""  # the next page must not begin with an old picture

    async def run(self) -> None:
        """Look while pages are open, until cancelled."""
        while True:
            await self._wanted.wait()
            began = self._clock()
            try:
                size = await self._look()
            except Exception:  # a broker's status that our code cannot read must not end the page for good
                log.exception("the page of the mesh failed; the next picture comes in %g s", FAULT_PAUSE_S)
                await asyncio.sleep(FAULT_PAUSE_S)
                continue
            pause_s = max(INTERVAL_S, size / BYTES_S) - (self._clock() - began)
            await asyncio.sleep(max(0.1, pause_s))

    async def _look(self) -> int:
        """Ask the brokers and send a frame to the pages; returns the size of the answers in bytes."""
        asked: asyncio.Future[tuple[list[bytes], list[str]]] = asyncio.get_running_loop().create_future()

        def answered(bodies: Sequence[bytes], silent: Sequence[str]) -> None:
            if not asked.done():
                asked.set_result((list(bodies), list(silent)))

        self.looks += 1
        self._source.ask_all(DEADLINE_S, BYTES_MAX, answered)
        others, silent = await asked
        bodies = [self._source.status(), *others]
        size = sum(map(len, others))
        frame, past = await asyncio.get_running_loop().run_in_executor(
            None,
            self._made,
            bodies,
            silent,
            self._clock(),
            self._wall_time(),
            max(INTERVAL_S, size / BYTES_S),
        )
        self._past = past
        self._latest = event("mesh", frame)
        for push in list(self._pages):
            push(self._latest)
        return size

    def _made(
        self, bodies: list[bytes], silent: list[str], now: float, wall_s: float, interval_s: float
    ) -> tuple[bytes, bytes]:
        """Make a frame, in a thread. `run` waits for it, so that there is one at a time."""
        overview = self._overview
        frame = overview.document(bodies, silent, now=now, wall_s=wall_s, interval_s=interval_s)
        return frame, overview.past()
