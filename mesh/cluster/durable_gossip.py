"""Sends and receives durable interest on links, as `mesh.cluster.durable_interest` decides.

Frames go out at once and then at most every `DURABLE_PAUSE_S`. Long ones, and changes for the data plane, go
one a loop turn, so that rounds and dials run in between. A change goes to the data plane first, then to disk;
only then this broker says that it holds it. The data plane is told at once when a broker's table becomes
unknown. It is told that the table is known after all changes are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from mesh.cluster.barriers import BarrierDone
from mesh.cluster.durable_interest import DurableInterest, HomeChanged
from mesh.cluster.durable_table import HomeTable, Subscriptions
from mesh.cluster.link import Link
from mesh.cluster.paced_call import PacedCall
from mesh.errors import LinkError
from mesh.wire.capabilities import DURABLE
from mesh.wire.link_frames import LinkKind

DURABLE_PAUSE_S: Final = 0.005
"""Combines many changes into few frames."""
LONG_FRAME: Final = 2048
"""Frames from this size count as long work."""
KINDS: Final = range(LinkKind.DURABLE, LinkKind.DURABLE_WANTED + 1)


class DurableHooks(Protocol):
    """Callbacks of the broker about durable subscriptions. All are synchronous; none may raise."""

    def home_changed(self, change: HomeChanged) -> None:
        """The durable subscriptions of a home have changed. The home may be this broker."""

    def unknown_homes_changed(self, names: tuple[str, ...]) -> None:
        """The brokers that may be homes and whose subscriptions are unknown here have changed."""

    def durable_unsaved(self) -> None:
        """There is something to write (`DurableGossip.homes`). Call `DurableGossip.saved` afterwards."""

    def durable_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        """All live brokers, except those named, know this home's durable subscriptions up to ``version`` and
        have them on disk."""


class DurableGossip:
    """The durable interest of one broker on its links. Make it inside a running event loop.

    Args:
        links: the links that are up.
        wall_time: seconds since the epoch, for versions.
        tables: the tables that an earlier run kept.
    """

    def __init__(
        self,
        me: int,
        name: str,
        links: Mapping[int, Link],
        *,
        wall_time: Callable[[], float],
        tables: Mapping[int, HomeTable],
        hooks: DurableHooks,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._links = links
        self._wall_time = wall_time
        self._hooks = hooks
        self._interest = DurableInterest(me, name, tables)
        self._unknown: tuple[str, ...] = ()
        self._says = PacedCall(self._say, DURABLE_PAUSE_S)
        self._tells = PacedCall(self._tell, 0.0)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        """When it is due: uvloop's handle of one that is due at once cannot tell."""
        self._stopped = False

    # --- the broker's side

    @property
    def homes(self) -> Mapping[int, HomeTable]:
        """All known tables, by home. Do not change them."""
        return self._interest.homes

    @property
    def own(self) -> Subscriptions:
        """This broker's durable subscriptions."""
        return self._interest.own

    def versions(self) -> dict[int, int]:
        """Versions of all tables, by home: pass them to `saved` once they are on disk."""
        return self._interest.versions()

    def unknown(self) -> tuple[str, ...]:
        """Names of the members that may be homes and whose tables are unknown here."""
        return self._interest.unknown()

    @property
    def version(self) -> int:
        """The version of this home's own table. 0 if this broker knows of no content ever."""
        return self._interest.version

    def set_own(self, subscriptions: Subscriptions) -> None:
        """Set what the home's journal holds. Until then others are believed about this broker too."""
        self._interest.set_own(subscriptions, self._wall_us())
        self._moved()

    def change_own(self, added: Mapping[str, Iterable[str]], removed: Iterable[str] = ()) -> int:
        """Durable subscriptions of this home were made or changed (``added``, with their patterns) or
        removed. Returns the version that includes the change. `DurableHooks.durable_reached` follows in a
        later loop turn, even if nothing changed."""
        version = self._interest.change_own(added, removed, self._wall_us())
        done = self._interest.wait(version, self._loop.time())
        if done is not None:
            self._loop.call_soon(self._reached, [done])
        self._moved()
        return version

    def forget(self, home: int) -> bool:
        """Another home will not come back: its durable subscriptions are removed. False if there is no such
        home. If it is alive, it announces them again."""
        forgot = self._interest.forget(home, self._wall_us())
        self._moved()
        return forgot

    def identify(self, client_url: str) -> None:
        """Set the address of this broker for clients."""
        self._interest.identify(client_url, self._wall_us())
        self._moved()

    def saved(self, versions: Mapping[int, int]) -> None:
        """These versions are on disk, or this broker has no disk."""
        self._interest.saved(versions)
        self._moved()

    def stop(self) -> None:
        """From now on nothing is sent, reported or written."""
        self._stopped = True
        self._says.cancel()
        self._tells.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def tell(self) -> None:
        """Give the data plane all changes now, before anything is published."""
        while self._interest.changed:
            self._tell()

    # --- calls of `mesh.cluster.peering`

    def link_up(self, link: Link) -> None:
        self._reached(self._interest.link_up(link.peer.id, capable=link.agreed.has(DURABLE)))
        frame = self._interest.pending(link.peer.id)
        if frame is not None:
            link.say([frame])  # a joining broker waits for it
        self._moved()

    def link_down(self, member: int) -> None:
        self._interest.link_down(member)

    def members(self, live: Mapping[int, str]) -> None:
        """Ids and names of the others that are alive or suspect."""
        self._reached(self._interest.members(live))
        self._moved()

    def set_unheard(self, names: Iterable[str], unknown: Iterable[str], *, wait: bool) -> None:
        """Members that this broker was told about but has not heard from (`DurableInterest.set_unheard`)."""
        self._reached(self._interest.set_unheard(names, unknown, wait=wait))
        self._moved()

    def received(self, link: Link, message: list[Any]) -> None:
        """Handle one decoded frame of a link. Raises `LinkError`."""
        interest, member, now = self._interest, link.peer.id, self._loop.time()
        if not link.agreed.has(DURABLE):
            raise LinkError(f"{LinkKind(message[0]).name} came without the capability {DURABLE!r}")
        match message:
            case [LinkKind.DURABLE, *fields]:
                interest.whole_received(member, fields, now)
            case [LinkKind.DURABLE_CHANGE, *fields]:
                interest.change_received(member, fields, now)
            case [LinkKind.DURABLE_HELD, versions]:
                self._reached(interest.held_received(member, versions))
            case [_, home]:
                interest.wanted(member, home)
        self._moved()

    # --- consequences

    def _wall_us(self) -> int:
        return int(self._wall_time() * 1e6)

    def _moved(self) -> None:
        """Something may have changed: start all work that may follow from it."""
        if self._stopped:
            return
        self._tell_unknown(dict.fromkeys((*self._unknown, *self._interest.unknown())))
        if self._interest.changed or self._interest.unsaved or self._interest.unknown() != self._unknown:
            self._tells.ask()
        if self._interest.behind():
            self._says.ask()
        self._arm()

    def _say(self) -> None:
        """Send one frame to each link that needs one. The rest waits for other work."""
        for member in self._interest.behind():
            link = self._links.get(member)
            frame = self._interest.pending(member)
            if link is not None and frame is not None:
                link.say([frame])
                if len(frame) > LONG_FRAME:
                    break
        if self._interest.behind():
            self._says.ask_soon()

    def _tell(self) -> None:
        """Give the data plane one change. After the last one, tell it the unknown homes and then save."""
        change = self._interest.next_change()
        if self._interest.changed:
            self._tells.ask_soon()
        if change is not None:
            self._hooks.home_changed(change)
        if self._interest.changed:
            return
        self._reached(self._interest.applied())
        self._tell_unknown(self._interest.unknown())
        if self._interest.unsaved:
            self._hooks.durable_unsaved()

    def _tell_unknown(self, names: Iterable[str]) -> None:
        unknown = tuple(names)
        if unknown != self._unknown:
            self._unknown = unknown
            self._hooks.unknown_homes_changed(unknown)

    def _reached(self, done: Iterable[BarrierDone]) -> None:
        for barrier in done:
            self._hooks.durable_reached(barrier.version, barrier.unreached)

    def _arm(self) -> None:
        due = self._interest.next_deadline()
        if self._timer is not None:
            if self._timer_due <= due:
                return  # a timer that fires early finds nothing due and is set again
            self._timer.cancel()
            self._timer = None
        if due < float("inf"):
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._reached(self._interest.tick(self._loop.time()))
        self._moved()
