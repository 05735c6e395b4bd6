"""Sends blocks of level stored to their homes: each copy that a home is asked to keep.

The home of this broker is asked directly, others over their links. When a link is lost, its copies have
arrived or never will. So the next link gets everything that its home has not confirmed.

**Order.** Blocks go to a home in order of arrival. Blocks for a new link, and blocks offered again, stand in
the home's line, and new ones queue behind them. They go in steps, since they may be many.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from mesh.dataplane.durable_routes import DurableRoutes, KnownHome
from mesh.dataplane.home_for_peers import PUBLISHERS_MAX, HomeForPeers
from mesh.dataplane.intake import Intake
from mesh.dataplane.members import Neighbour
from mesh.dataplane.ports import Turn
from mesh.dataplane.publications import Key, Part
from mesh.dataplane.stored import StoredPublications
from mesh.wire.durable_frames import KEEP, Durable, Kept
from mesh.wire.session_frames import AGAIN, encode

OFFERED_AT_ONCE: Final = 256
"""Blocks that one step offers over a new link, some milliseconds."""

Told = Callable[[KnownHome, Key, int, int, Kept, str], None]
"""The home of this broker answers for a block, which is identified by a publisher, a first number and an
offset. Called once for each copy, perhaps before `Offering.offer` returns."""


class Offering:
    """Sends copies to homes. ``id`` is this broker's."""

    def __init__(
        self,
        id: int,
        routes: DurableRoutes,
        stored: StoredPublications,
        intake: Intake,
        own: HomeForPeers,
        turn: Turn,
        *,
        told: Told,
        work_pending: Callable[[], None],
    ) -> None:
        self._id = id
        self._routes = routes
        self._stored = stored
        self._intake = intake
        self._own = own
        self._turn = turn
        self._told = told
        self._work_pending = work_pending
        self._lines: dict[KnownHome, deque[tuple[Part, int]]] = {}
        """Blocks to offer to homes, with the flags of their DATA frames. No line is empty between steps."""

    def offer(self, part: Part, home: KnownHome, flags: int, now: float) -> None:
        """Ask a home to keep a block, once."""
        publication = part.publication
        source = publication.source
        if home.id == self._id:
            if self._own.home is not None:
                part.waiting[home] += 1
                self._own.home.keep(
                    bytes(part.block),
                    *source.key,
                    publication.first,
                    publication.last,
                    source.lowest,
                    part.offset,
                    partial(self._told, home, source.key, publication.first, part.offset),
                    bool(flags & AGAIN),
                )
        elif home in self._lines:
            self._lines[home].append((part, flags))
        elif home.link is not None:
            self._send(part, home, home.link, flags, now)

    def _send(self, part: Part, home: KnownHome, link: Neighbour, flags: int, now: float) -> None:
        source, told = part.publication.source, link.lowest_told
        if source.lowest > told.get(source.key, 0):
            told[source.key] = source.lowest
            if len(told) > PUBLISHERS_MAX:
                told.popitem(last=False)
            link.send(encode(Durable.LOWEST, *source.key, source.lowest))
        part.waiting[home] += 1
        self._intake.hand_out((link.outlet,), part.block, part.count, 0, flags | KEEP, None, now, part.held)

    # --- again

    def link_up(self, link: Neighbour) -> None:
        """A link came up. If the broker is a home, offer it the blocks that it has not kept."""
        home = self._routes.homes.get(link.member.id)
        if home is None or not link.durable:
            return
        home.link = link
        for publication in self._stored:
            for part in publication.parts.values():
                if home in part.waiting:
                    part.waiting[home] = 0  # copies on the earlier link have arrived, or never will
                    self._line_up(part, home)

    def link_down(self, link: Neighbour) -> None:
        """A link has ended."""
        home = self._routes.homes.get(link.member.id)
        if home is not None and home.link is link:
            home.link = None
            self._lines.pop(home, None)

    def offer_again(self, unanswered: Iterable[tuple[Part, KnownHome, int]], now: float) -> None:
        """Offer blocks again that homes have not answered for long, each with the number of its copies in
        flight. A home whose line is not finished is left alone, and so is a link that is behind."""
        busy = set(self._lines)
        for part, home, copies in unanswered:
            if home.id == self._id:
                if copies <= 0 and self._stored.ask_again(part, home):  # otherwise it will answer
                    self.offer(part, home, AGAIN, now)
            elif home.link is not None and home not in busy and not home.link.outlet.behind:
                self._line_up(part, home)

    def _line_up(self, part: Part, home: KnownHome) -> None:
        """Put a block in line behind others that are offered again."""
        if self._stored.ask_again(part, home):
            line = self._lines.get(home)
            if line is None:
                line = self._lines[home] = deque()
                self._turn.jobs.append(partial(self._step, home, line))
                self._work_pending()
            line.append((part, AGAIN))

    def _step(self, home: KnownHome, line: deque[tuple[Part, int]], now: float) -> bool:
        """Take one step along a line. True if more remains."""
        if self._lines.get(home) is not line:
            return False  # its link has ended
        for _ in range(min(OFFERED_AT_ONCE, len(line))):
            part, flags = line.popleft()
            if home.link is not None and home in part.waiting and not part.publication.over:
                self._send(part, home, home.link, flags, now)
        if not line:
            del self._lines[home]
        return bool(line)
