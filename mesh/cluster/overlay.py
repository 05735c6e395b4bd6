"""Chooses when to dial which brokers: living members without a link, and lost ones.

There are three kinds of targets. Each is dialled at most once at a time, with growing pauses between
failures:

* **living members** that should have a link (`mesh.cluster.full_mesh`) and have none. The lower id dials at
  once. The higher one dials only after two periods without a link, so that both rarely do. After a void round
  both dial at once (`redial`);
* **join URLs**, at once, and again for as long as the member behind them is not alive: a broker may be there
  again after a partition. The overlay remembers which member answered at a URL, or that it is this broker
  itself;
* **dead members**: every five periods one at random, with a probability equal to the number of dead members
  divided by that of living ones (Serf's rule). So two halves of a mesh find each other without any join URL.
  Members that left are not dialled.

Peers known from an earlier run replace join URLs while there is no link at all. After that, they are dialled
like dead members for a day, unless a member at their address is known to be alive or to have left. The first
link may lead to a broker that was away as well, while the mesh is elsewhere.

A pause is reset only once a link has lived for two periods. So two brokers that refuse each other, or take a
link from each other, do so at the rate of the longest pause.

Pure: `tick` returns what to dial. The shell reports the result with `dial_failed` or `link_up`. Each of these
ends the dial that it names, whether the expected broker answered or another at the same address.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mesh.cluster.full_mesh import ought_to_link
from mesh.cluster.membership import MemberRecord, State
from mesh.cluster.pace import Pace

KNOWN_S: Final = 86400.0
"""How long after its start a broker tries addresses of its last run: as long as membership remembers dead
members."""
NOBODY: Final = 0
Key = TypeVar("Key", int, str)


@dataclass(frozen=True, slots=True)
class Dial:
    """Try this address once. ``member`` is the expected id, 0 if not known."""

    url: str
    member: int


@dataclass(frozen=True, slots=True)
class OverlayOptions:
    """Times are seconds."""

    period_s: float = 1.0
    pause_min_s: float = 0.1
    living_pause_max_s: float = 2.0
    join_pause_max_s: float = 5.0
    dead_pause_s: float = 5.0

    @classmethod
    def of(cls, period_s: float) -> OverlayOptions:
        """Options in proportion to the heartbeat period."""
        return cls(period_s, 0.1 * period_s, 2 * period_s, 5 * period_s, 5 * period_s)


class _Target:
    """One address to dial."""

    __slots__ = ("dialling", "due", "failures", "member", "pause_max_s", "url")

    def __init__(self, url: str, member: int, pause_max_s: float, due: float) -> None:
        self.url = url
        self.member = member
        self.pause_max_s = pause_max_s
        self.due = due
        self.failures = 0
        self.dialling = False


class Overlay:
    """Chooses dials by the rules above."""

    def __init__(
        self,
        me: int,
        *,
        join: Sequence[str],
        known: Sequence[str] = (),
        options: OverlayOptions | None = None,
        pace: Pace | None = None,
        rng: random.Random,
        now: float,
    ) -> None:
        self.options = options or OverlayOptions()
        self.pace = pace or Pace()
        """Maximum number of concurrent dials."""
        self._me = me
        self._rng = rng
        pause_max_s = self.options.join_pause_max_s
        self._join = {url: _Target(url, NOBODY, pause_max_s, now) for url in join}
        # Join URLs first: brokers that were told about the mesh should not begin with addresses of last week.
        later = now + self.options.period_s if join else now
        self._known = {
            url: _Target(url, NOBODY, pause_max_s, later) for url in known if url not in self._join
        }
        self._known_until = now + KNOWN_S
        self._known_next = ""  # the next in turn, once there is a link
        self._living: dict[int, _Target] = {}
        self._dead: dict[int, _Target] = {}
        self._records: dict[int, MemberRecord] = {}
        self._any_dead: bool | None = False  # None: count again
        self._links: dict[int, float] = {}
        self._dead_due = now + self.options.dead_pause_s
        self._dials = 0
        self._due: tuple[int, float] | None = None
        """The last result of `next_deadline`, and the number of concurrent dials then. None after any input.
        Computing it costs by the number of members, and every frame of news asks for it."""

    # --- state for others

    @property
    def join(self) -> tuple[str, ...]:
        """The join URLs that it was given."""
        return tuple(self._join)

    @property
    def known(self) -> tuple[str, ...]:
        """URLs of an earlier run whose members it has not met yet."""
        return tuple(self._known)

    # --- inputs

    def member_changed(self, record: MemberRecord, now: float) -> None:
        """The record of another member has changed."""
        self._due = None
        self._records[record.id] = record
        self._any_dead = None
        if not record.in_view:
            self._forget(self._living, record.id)
            return
        self._forget(self._dead, record.id)
        if record.id not in self._links and ought_to_link(self._me, record.id):
            self._want(record, now)

    def link_up(self, id: int, dial: Dial | None, now: float) -> None:
        """A link with a member is admitted. ``dial`` made it; None if the other side dialled."""
        self._due = None
        self._links[id] = now
        self.pace.linked()
        if dial is not None:
            self.met(dial.url, id)
            if dial.member not in (NOBODY, id):
                self.dial_failed(dial.url, dial.member, now)  # another broker is there now
            elif (target := self._find(dial.url, dial.member)) is not None:
                self._ended(target)

    def link_down(self, id: int, now: float) -> None:
        """The link of a member has ended."""
        self._due = None
        since = self._links.pop(id, now)
        record = self._records.get(id)
        if record is None or not record.in_view or not ought_to_link(self._me, id):
            return
        target = self._want(record, now)
        if now - since >= 2 * self.options.period_s:
            target.failures = 0
        else:
            target.due = max(target.due, now + self._pause(target))

    def forget(self, id: int) -> None:
        """A member is forgotten."""
        self._due = None
        self._records.pop(id, None)
        self._any_dead = None
        self._forget(self._living, id)
        self._forget(self._dead, id)

    def dial_failed(self, url: str, id: int, now: float) -> None:
        """A dial made no link, or none with ``id``, the expected member."""
        self._due = None
        target = self._find(url, id)
        if target is not None:
            self._ended(target)
            target.due = now + self._pause(target)
            if target is self._dead.get(id):
                del self._dead[id]
        if url == self._known_next:
            self._known_next = ""

    def met(self, url: str, id: int) -> None:
        """Record which broker is behind an address, even if that makes no link (a duplicate, for example)."""
        self._due = None
        target = self._join.get(url)
        if target is not None:
            target.member = id
        if id in self._links:
            self._forget(self._known, url)

    def is_self(self, url: str) -> None:
        """This broker answered its own dial: do not try that address again."""
        self._due = None
        for targets in (self._join, self._known):
            self._forget(targets, url)

    def join_urls(self) -> list[str]:
        """The join URLs, without this broker's own addresses."""
        return list(self._join)

    def redial(self, now: float) -> None:
        """After a void round everything is due now."""
        self._due = None
        for targets in (self._living, self._join):
            for target in targets.values():
                target.due = now
                target.failures = min(target.failures, 1)

    def tick(self, now: float) -> list[Dial]:
        """The dials to make now."""
        self._due = None
        dials: list[Dial] = []
        self._choose_dead(now)
        for target in list(self._targets()):
            if self._dials >= self.pace.dials_max:
                break
            if not target.dialling and target.due <= now:
                target.dialling = True
                self._dials += 1
                dials.append(Dial(target.url, target.member))
        return dials

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        dials_max = self.pace.dials_max
        if self._due is not None and self._due[0] == dials_max:
            return self._due[1]
        due = self._dead_due if self._has_dead() or (self._links and self._known) else float("inf")
        if self._dials < dials_max:
            for target in self._targets():
                if not target.dialling:
                    due = min(due, target.due)
        self._due = (dials_max, due)
        return due

    # ---

    def _targets(self) -> Iterable[_Target]:
        """Targets worth dialling, the best first."""
        if not self._living.keys() <= self._links.keys():  # at rest there is a link to everybody
            for id, target in self._living.items():
                if id not in self._links:
                    yield target
        for target in self._join.values():
            record = self._records.get(target.member)
            found = record.in_view if record is not None else self._lives_at(target.url)
            if not found and target.member not in self._links:
                yield target
        if not self._links:
            yield from self._known.values()
        elif self._known_next in self._known:
            yield self._known[self._known_next]
        for id, target in self._dead.items():
            if id not in self._links:
                yield target

    def _want(self, record: MemberRecord, now: float) -> _Target:
        target = self._living.get(record.id)
        if target is None or target.url != record.peer_url:
            wait_s = 0.0 if self._me < record.id else 2 * self.options.period_s
            pause_max_s = self.options.living_pause_max_s
            before, target = target, _Target(record.peer_url, record.id, pause_max_s, now + wait_s)
            if before is not None:
                self._ended(before)
            if not record.peer_url:
                target.due = float("inf")  # its address is unknown, so it must dial
            self._living[record.id] = target
        elif record.id not in self._links and not target.dialling and target.due < now:
            wait_s = 0.0 if self._me < record.id else 2 * self.options.period_s
            target.due = now + wait_s
        return target

    def _find(self, url: str, id: int) -> _Target | None:
        """The target of a dial in progress."""
        for target in (self._living.get(id), self._join.get(url), self._known.get(url), self._dead.get(id)):
            if target is not None and target.dialling and target.url == url:
                return target
        return None

    def _forget(self, targets: dict[Key, _Target], key: Key) -> None:
        """Forget a target. A dial to it that is in progress is not waited for."""
        target = targets.pop(key, None)
        if target is not None:
            self._ended(target)

    def _ended(self, target: _Target) -> None:
        if target.dialling:
            target.dialling = False
            self._dials -= 1

    def _pause(self, target: _Target) -> float:
        options = self.options
        pause_s = min(options.pause_min_s * 2.0 ** min(target.failures, 20), target.pause_max_s)
        target.failures += 1
        return pause_s * (0.75 + 0.5 * self._rng.random())

    def _lives_at(self, url: str) -> bool:
        return any(record.peer_url == url and record.in_view for record in self._records.values())

    def _has_dead(self) -> bool:
        if self._any_dead is None:
            self._any_dead = any(record.state is State.DEAD for record in self._records.values())
        return self._any_dead

    def _choose_dead(self, now: float) -> None:
        if now < self._dead_due:
            return
        self._dead_due = now + self.options.dead_pause_s * (0.75 + 0.5 * self._rng.random())
        taken = {record.peer_url for record in self._records.values() if record.in_view} | {""}
        dead = [
            record
            for record in self._records.values()
            if record.state is State.DEAD
            and record.peer_url not in taken  # a broker without a state folder has another id after a restart
            and record.id not in self._dead
            and record.id not in self._links
        ]
        known = self._known_elsewhere(taken, now)
        living = sum(record.in_view for record in self._records.values()) + 1
        lost = len(dead) + len(known)
        if not lost or self._rng.random() >= lost / living:
            return
        chosen = self._rng.randrange(lost)
        if chosen < len(dead):
            record = dead[chosen]
            self._dead[record.id] = _Target(record.peer_url, record.id, self.options.dead_pause_s, now)
        else:
            target = known[chosen - len(dead)]
            target.due, self._known_next = now, target.url

    def _known_elsewhere(self, taken: Container[str], now: float) -> list[_Target]:
        """Addresses of an earlier run about which nothing newer is known."""
        left = {record.peer_url for record in self._records.values() if record.state is State.LEFT}
        for url in list(self._known):
            if url in taken or url in left or now >= self._known_until:
                self._forget(self._known, url)
        return [target for target in self._known.values() if self._links and not target.dialling]
