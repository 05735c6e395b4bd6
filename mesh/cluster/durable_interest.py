"""Knows all durable subscriptions of the mesh and their homes. This knowledge outlives every broker.

Every broker has a table of every home (`mesh.cluster.durable_table`), keeps it on disk, and passes it on. The
table of a home that dies, leaves or restarts stays everywhere. Otherwise messages of level stored would skip
that home.

**Links.** On a new link both sides say which versions they hold (HELD). Each then sends what the other lacks:
the difference from the other's version, or the whole table in parts. A table comes from its home, or from
another broker that learned it. A home sends its changes to all links at once. After `RELAY_S` the others send
what they learned to members that have not confirmed it: these have no link to the home. HELD is repeated for
each version that has reached the disk. A broker that gets a difference from a version that it does not hold
asks for the whole table (WANTED).

**Versions.** The greater version wins. Suppose a home learns of a greater version of itself than its own,
because it lost its file or was forgotten. It then raises its own version above that and sends its table
again. Until the shell has reported what the home's journal holds (`set_own`), a broker also believes others
about itself. Others are believed about a home up to a bound (`durable_table.is_believed`), and ignored beyond
it.

**Known.** A live member's table is current if two things hold. The member announced its version on a link
since it came to life for this broker, and this broker holds that version. It also holds whatever else the
member held when the link began, since nobody else can tell about a dead home. A member whose table is not
current is `unknown`. Then messages of level stored cannot be acknowledged, since a home might be skipped.
Members without the capability are no homes.

**The barrier.** A version of the own table is known when all live members with the capability have said that
they hold it (`mesh.cluster.barriers`), and when this broker itself routes by it.

**Bounds.** There are at most `HOMES_MAX` homes, with at most `TOTAL_MAX` patterns together. An empty table of
a broker that is not live is replaced by one that is not empty. A table without room is not accepted, and its
home is `unknown`.

The data plane takes changes with `next_change`, in pieces. A version counts as on disk (`saved`) only after
that, so a broker that sends HELD routes by it.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from mesh.cluster.barriers import BARRIER_S, NAME_SHOWN_MAX, BarrierDone, Barriers
from mesh.cluster.durable_table import (
    OWN_MAX,
    PATTERNS_MAX,
    SUBSCRIPTIONS_MAX,
    Difference,
    HomeTable,
    Subscriptions,
    TableParts,
    check_bounds,
    check_subscriptions,
    forgotten_version,
    is_believed,
    is_own,
    own_version,
    table_frames,
)
from mesh.errors import LinkError
from mesh.wire.link_frames import HOMES_MAX, LinkKind, encode

RELAY_S: Final = 1.0
"""After this time a table goes to members that have not got it from its home."""
TOTAL_MAX: Final = 4 * (PATTERNS_MAX + SUBSCRIPTIONS_MAX)
"""Patterns of all homes. A subscription without any counts as one."""
TOLD_MAX: Final = 4 * HOMES_MAX
"""Homes that one link may name. That exceeds the number at any one time, since homes may replace others."""
MADE_MAX: Final = 1024
"""Own versions remembered. An older one held by others does not count for the barrier."""


@dataclass(frozen=True, slots=True)
class HomeChanged:
    """A change for the data plane. ``name`` and ``client_url`` are the home's."""

    home: int
    name: str
    client_url: str
    added: Subscriptions
    removed: tuple[str, ...]


class _Link:
    """A link to a member that has the capability."""

    __slots__ = ("asks", "greeted", "has", "heard", "incoming", "outgoing", "sends", "tells")

    def __init__(self) -> None:
        self.greeted = False
        """It was told everything held here."""
        self.heard = False
        """It has said what it holds."""
        self.has: dict[int, int] = {}
        """Versions by home that the other side holds or was sent."""
        self.sends: dict[int, None] = {}
        """Homes whose tables it should be sent, unless it has them."""
        self.tells: dict[int, None] = {}
        """Homes whose versions on this disk it should be told."""
        self.asks: dict[int, bool] = {}
        """Homes whose whole tables are wanted, and whether it was asked for them."""
        self.incoming = TableParts()
        self.outgoing: Iterator[bytes] | None = None
        """The rest of a table that is sent in parts."""

    @property
    def busy(self) -> bool:
        """True if there is something to send."""
        if not self.greeted or self.outgoing is not None or self.tells or (self.heard and self.sends):
            return True
        return not all(self.asks.values())


class DurableInterest:
    """The tables of all homes, and the links that exchange them. Members and homes are ids; ``wall_us`` is
    wall time in microseconds.

    Args:
        tables: the tables that an earlier run kept, by home.
    """

    def __init__(
        self,
        me: int,
        name: str,
        tables: Mapping[int, HomeTable] | None = None,
        *,
        barrier_s: float = BARRIER_S,
    ) -> None:
        self._me = me
        self._name = name
        self._client_url = ""
        self._tables = dict(tables or {})
        self._weight = sum(table.weight for table in self._tables.values())
        self._sure = False
        """True once the own table is the content of this home's journal."""
        self._claimed = 0
        """The greatest version of the own table that others named."""
        self._links: dict[int, _Link] = {}
        self._live: dict[int, str] = {}
        self._incapable: dict[int, None] = {}
        self._claims: dict[int, int] = {}
        """Versions of their own tables, as live members announced them."""
        self._owed: dict[int, dict[int, int]] = {}
        """Versions of other homes that members held when their links began, and that this broker does not
        hold yet."""
        self._current: dict[int, None] = {}
        self._refused: dict[int, str] = {}
        """Homes whose tables had no room, by name."""
        self._unheard: tuple[str, ...] = ()
        self._saved = self.versions()
        self._dirty = False
        self._fresh: dict[int, None] = {}
        """Homes whose tables changed here, until these are relayed."""
        self._relay_due = inf
        self._changes: deque[HomeChanged] = deque()
        self._made: dict[int, None] = {}
        """The last versions that this home made. Other versions that others hold for it do not count."""
        if is_own(self.version):
            self._made[self.version] = None
        self._barriers = Barriers(barrier_s)
        self._barriers.members({me: name})
        for home, table in self._tables.items():
            if table.subscriptions:
                self._tell_change(home, Difference(table.subscriptions, ()))

    # --- state

    @property
    def homes(self) -> Mapping[int, HomeTable]:
        """The tables, by home. Do not change them."""
        return self._tables

    @property
    def own(self) -> Subscriptions:
        """This broker's durable subscriptions."""
        table = self._tables.get(self._me)
        return {} if table is None else table.subscriptions

    @property
    def version(self) -> int:
        """The version of the own table. 0 if it never had any content."""
        return self._held_version(self._me)

    def unknown(self) -> tuple[str, ...]:
        """Names of the members that may be homes and whose tables are unknown here."""
        missing = [
            name
            for member, name in self._live.items()
            if member not in self._current and member not in self._incapable
        ]
        full = [name for home, name in self._refused.items() if home not in self._live]
        return (*self._unheard, *missing, *full)

    # --- the own table

    def set_own(self, subscriptions: Subscriptions, wall_us: int) -> int:
        """Set what the home's journal holds. Returns the version of the own table."""
        if not self._sure:
            self._sure = True
            for link in self._links.values():
                link.tells[self._me] = None
        table = self._tables.get(self._me)
        if table is None:
            stale = bool(subscriptions) or self._claimed > 0
        else:
            stale = (
                table.subscriptions != subscriptions
                or table.name != self._name
                or table.client_url != (self._client_url or table.client_url)
                or self._claimed > table.version
                or not is_own(table.version)
            )
        if stale:
            self._replace_own(subscriptions, wall_us)
        return self.version

    def change_own(self, added: Mapping[str, Iterable[str]], removed: Iterable[str], wall_us: int) -> int:
        """Durable subscriptions of this home were made or got other patterns (``added``), or were removed.
        Returns the version that includes the change: the present one if there is none."""
        table = self._tables.get(self._me)
        wanted = {name: tuple(patterns) for name, patterns in added.items()}
        if table is None:
            if wanted:
                self._replace_own(wanted, wall_us)
            return self.version
        held = table.subscriptions
        gone = tuple(name for name in dict.fromkeys(removed) if name in held and name not in wanted)
        if gone or any(held.get(name) != patterns for name, patterns in wanted.items()):
            changed = table.change(self._next_version(wall_us), Difference(wanted, gone))
            self._changed(self._me, table, changed)
            self._send_to_all(self._me)
        return self.version

    def identify(self, client_url: str, wall_us: int) -> None:
        """Set the address of this broker for clients; empty: not known yet. If it is a home, all others are
        told."""
        self._client_url = client_url or self._client_url
        if self._sure:
            self.set_own(self.own, wall_us)

    def _replace_own(self, subscriptions: Subscriptions, wall_us: int) -> None:
        table = self._tables.get(self._me)
        if table is None:
            table = self._tables[self._me] = HomeTable(0, self._name, self._client_url)
        url = self._client_url or table.client_url
        changed = table.replace(self._next_version(wall_us), self._name, url, dict(subscriptions))
        self._changed(self._me, table, changed)
        self._send_to_all(self._me)

    def _next_version(self, wall_us: int) -> int:
        version = own_version(max(self.version, self._claimed), wall_us)
        self._made[version] = None
        if len(self._made) > MADE_MAX:
            del self._made[next(iter(self._made))]
        return version

    def _claim(self, version: int) -> None:
        """Another member holds a table of this home with this version."""
        self._claimed = max(self._claimed, version)
        if self._sure and version > self.version:
            self._replace_own(self.own, 0)

    def forget(self, home: int, wall_us: int) -> bool:
        """Another home will not come back: its table is empty from now on, in the whole mesh. If it is alive,
        it sends its table again. False if there is no such home, or if it is this broker."""
        name = self._refused.pop(home, None) or self._live.get(home)
        if name is not None and home not in self._current:
            self._tables.setdefault(home, HomeTable(0, name, ""))
        table = self._tables.get(home)
        if table is None or home == self._me:
            return False
        version = forgotten_version(table.version, wall_us)
        self._changed(home, table, table.replace(version, table.name, table.client_url, {}))
        self._send_to_all(home)
        return True

    # --- the barrier

    def wait(self, version: int, now: float) -> BarrierDone | None:
        """Wait until all hold a version of the own table. Returns the result if they already do; otherwise
        one of the calls that return barriers does."""
        return self._barriers.wait(version, now)

    # --- members and links

    def members(self, live: Mapping[int, str]) -> list[BarrierDone]:
        """Members that are alive or suspect, with their names, without this broker."""
        self._live = dict(live)
        for known in (self._current, self._claims, self._owed, self._incapable):
            for member in [each for each in known if each not in live and each not in self._links]:
                del known[member]
        return self._await()

    def set_unheard(self, names: Iterable[str], unknown: Iterable[str], *, wait: bool) -> list[BarrierDone]:
        """Members that this broker was told about but has not heard from. Barriers name them, and with
        ``wait`` also wait for them. Some are `unknown`: they may be homes whose subscriptions are not in this
        broker's file."""
        self._unheard = tuple(name[:NAME_SHOWN_MAX] for name in unknown)
        return self._barriers.set_unheard(names, wait=wait)

    def link_up(self, member: int, *, capable: bool) -> list[BarrierDone]:
        """A link is admitted, perhaps in place of another. ``capable``: both sides have the capability."""
        self._current.pop(member, None)
        self._claims.pop(member, None)
        self._owed.pop(member, None)
        self._barriers.forget(member)
        if capable:
            self._incapable.pop(member, None)
            self._links[member] = _Link()
        else:
            self._links.pop(member, None)
            self._incapable[member] = None
        return self._await()

    def link_down(self, member: int) -> None:
        """The link has ended. The member's statements are kept while it is live."""
        self._links.pop(member, None)

    def _await(self) -> list[BarrierDone]:
        others = {id: name for id, name in self._live.items() if id not in self._incapable}
        return self._barriers.members({self._me: self._name, **others})

    # --- frames from members

    def held_received(self, member: int, versions: Iterable[tuple[int, int]]) -> list[BarrierDone]:
        """A member holds these versions. Raises `LinkError`."""
        link, done = self._links[member], list[BarrierDone]()
        for home, version in versions:
            if not self._believes(member, home, version):
                continue
            link.has[home] = max(version, link.has.get(home, 0))
            if home == self._me:
                self._claim(version)
                # Any other version may be of a run whose file was lost, or that was made to forget this home.
                if version in self._made:
                    done += self._barriers.acknowledged(member, version)
            elif home == member:
                self._claims[member] = version
            elif not link.heard and version > self._held_version(home):
                self._owed.setdefault(member, {})[home] = version
        if not link.heard:
            link.heard = True
            link.sends.update(dict.fromkeys(self._tables))
        self._check_current(member)
        return done

    def whole_received(self, member: int, fields: list[Any], now: float) -> None:
        """Take one part of a home's table: the fields of its frame. Raises `LinkError`."""
        link = self._links[member]
        new = link.incoming.take(*fields)
        if new is None:
            return
        home: int = fields[0]
        link.asks.pop(home, None)
        if not self._is_news(link, member, home, new.version):
            return
        table = self._tables.get(home)
        if not self._make_room(home, new.weight, table):
            if new.weight:  # otherwise it makes no difference
                self._refused[home] = new.name or f"{home:016x}"
            self._settle_owed(home, new.version)
            return
        if table is None:
            table = self._tables[home] = HomeTable(0, new.name, new.client_url)
        changed = table.replace(new.version, new.name, new.client_url, new.subscriptions)
        self._learned(home, table, changed, now)

    def change_received(self, member: int, fields: list[Any], now: float) -> None:
        """Take a difference of a home's table: the fields of its frame. Raises `LinkError`."""
        home, base, version, added, removed = fields
        link, table = self._links[member], self._tables.get(home)
        check_subscriptions(added)
        if not self._is_news(link, member, home, version):
            return
        if table is None or table.version != base:
            link.asks.setdefault(home, False)
            return
        change = Difference(dict(added), tuple(removed))
        count, size = table.size_after(change)
        check_bounds(count, size)
        if not self._make_room(home, size, table):
            self._refused[home] = table.name
            self._settle_owed(home, version)
            return
        self._learned(home, table, table.change(version, change), now)

    def wanted(self, member: int, home: int) -> None:
        """A member asks for the whole table of a home."""
        link = self._links[member]
        link.has.pop(home, None)
        if home in self._tables:
            link.sends[home] = None

    def _believes(self, member: int, home: int, version: int) -> bool:
        """True if this member may be right about the version of a home. Raises `LinkError`."""
        told = self._links[member].has
        if len(told) >= TOLD_MAX and home not in told:
            raise LinkError(f"a broker told of more than {TOLD_MAX} homes of durable subscriptions")
        if home == member:
            if version > OWN_MAX:
                raise LinkError(f"a home has version {version} of its durable subscriptions, above {OWN_MAX}")
            return True
        return is_believed(version, self._held_version(home))

    def _is_news(self, link: _Link, member: int, home: int, version: int) -> bool:
        """True if a received table should be accepted."""
        if not self._believes(member, home, version):
            return False
        link.has[home] = max(version, link.has.get(home, 0))
        if home == self._me:
            self._claim(version)
            if self._sure:
                return False
        table = self._tables.get(home)
        return table is None or version > table.version

    def _make_room(self, home: int, size: int, table: HomeTable | None) -> bool:
        """True if a home's table may have so many patterns."""
        if size and self._weight + size - (0 if table is None else table.weight) > TOTAL_MAX:
            return False
        others = len(self._tables) - (self._me in self._tables)
        if table is not None or home == self._me or others < HOMES_MAX - 1:
            return True
        empty = [
            (each.version, id)
            for id, each in self._tables.items()
            if not each.subscriptions and id != self._me and id not in self._live
        ]
        if not empty or not size:
            return False
        _, oldest = min(empty)
        del self._tables[oldest]
        self._saved.pop(oldest, None)
        return True

    def _learned(self, home: int, table: HomeTable, changed: Difference, now: float) -> None:
        self._refused.pop(home, None)
        self._changed(home, table, changed)
        self._check_current(home)
        self._settle_owed(home, table.version)
        self._fresh[home] = None
        self._relay_due = min(self._relay_due, now + RELAY_S)

    def _settle_owed(self, home: int, version: int) -> None:
        """Nobody owes this version of a home any more."""
        for member in [each for each, owed in self._owed.items() if owed.get(home, version + 1) <= version]:
            del self._owed[member][home]
            if not self._owed[member]:
                del self._owed[member]
            self._check_current(member)

    def _check_current(self, member: int) -> None:
        claim = self._claims.get(member)
        if claim is not None and claim <= self._held_version(member) and member not in self._owed:
            self._current[member] = None

    def _held_version(self, home: int) -> int:
        table = self._tables.get(home)
        return 0 if table is None else table.version

    def _changed(self, home: int, table: HomeTable, changed: Difference) -> None:
        self._dirty = True
        self._weight = sum(each.weight for each in self._tables.values())
        self._tell_change(home, changed)

    # --- for the data plane and the disk

    def _tell_change(self, home: int, changed: Difference) -> None:
        table = self._tables[home]
        for piece in changed.pieces():
            self._changes.append(HomeChanged(home, table.name, table.client_url, piece.added, piece.removed))

    def next_change(self) -> HomeChanged | None:
        """The next change for the data plane. Make it before any other call here."""
        return self._changes.popleft() if self._changes else None

    @property
    def changed(self) -> bool:
        """True if there is a change for the data plane."""
        return bool(self._changes)

    def applied(self) -> list[BarrierDone]:
        """The data plane has made all changes so far."""
        return self._barriers.acknowledged(self._me, self.version)

    @property
    def unsaved(self) -> bool:
        """True if there is something to write that the data plane already knows."""
        return self._dirty and not self._changes

    def versions(self) -> dict[int, int]:
        """Versions of all tables, by home."""
        return {home: table.version for home, table in self._tables.items()}

    def saved(self, versions: Mapping[int, int]) -> None:
        """These versions are on disk, or there is no disk. Versions that the data plane does not know yet do
        not count: they may have arrived just before the write."""
        before, routed_late = self._saved, {change.home for change in self._changes}
        self._saved = {
            home: before[home] if home in routed_late else version
            for home, version in versions.items()
            if home in self._tables and (home in before or home not in routed_late)
        }
        self._dirty = self._saved != self.versions()
        news = [home for home, version in self._saved.items() if before.get(home) != version]
        for link in self._links.values():
            link.tells.update(dict.fromkeys(home for home in news if home != self._me or not self._sure))

    # --- frames to members

    def behind(self) -> list[int]:
        """Linked members for which a frame is pending."""
        return [member for member, link in self._links.items() if link.busy]

    def pending(self, member: int) -> bytes | None:
        """The next frame for a linked member; None if there is none."""
        link = self._links.get(member)
        if link is None:
            return None
        if not link.greeted:
            link.greeted = True
            link.tells.clear()
            return self._held(list(self._saved))
        if link.tells:
            homes = list(link.tells)
            link.tells.clear()
            return self._held(homes)
        for home, asked in link.asks.items():
            if not asked:
                link.asks[home] = True
                return encode(LinkKind.DURABLE_WANTED, home)
        if link.outgoing is None and link.heard:
            frame = self._begin(link)
            if frame is not None:
                return frame
        if link.outgoing is None:
            return None
        frame = next(link.outgoing, None)
        if frame is None:
            link.outgoing = None
            return self.pending(member)
        return frame

    def _held(self, homes: list[int]) -> bytes:
        versions = {home: self._saved[home] for home in homes if home in self._saved}
        if self._sure or self.version:
            versions[self._me] = self.version
        return encode(LinkKind.DURABLE_HELD, list(versions.items()))

    def _begin(self, link: _Link) -> bytes | None:
        """The next difference for a link. None if the whole table goes instead, or if it lacks nothing."""
        while link.sends:
            home = next(iter(link.sends))
            table = self._tables.get(home)
            has = link.has.get(home, 0)
            if table is None or table.version <= has:
                del link.sends[home]
                continue
            change = table.since(has) if has else None
            if change is None:
                link.outgoing = table_frames(home, table)
                link.has[home] = table.version
                return None
            version, changed = change
            link.has[home] = version
            return encode(
                LinkKind.DURABLE_CHANGE, home, has, version, list(changed.added.items()), changed.removed
            )
        return None

    def _send_to_all(self, home: int) -> None:
        for link in self._links.values():
            link.sends[home] = None

    # --- time

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        return min(self._barriers.next_deadline(), self._relay_due)

    def tick(self, now: float) -> list[BarrierDone]:
        """Returns barriers whose time is over. Tables learned from others go to members that lack them."""
        if now >= self._relay_due:
            self._relay_due = inf
            for link in self._links.values():
                link.sends.update(self._fresh)
            self._fresh.clear()
        return self._barriers.tick(now)
