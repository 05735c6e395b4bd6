"""Tables of durable interest over links that lose frames in flight when they end, with disks and journals.

Links keep the order of frames. A broker that restarts has its id, its journal's durable subscriptions, and
its file, unless that was lost. `Brokers` checks after every step that no version of a table has two contents,
and that no barrier counted a member that never held the version.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any

from mesh.cluster.barriers import BarrierDone
from mesh.cluster.durable_interest import DurableInterest
from mesh.cluster.durable_table import HomeTable
from mesh.wire.link_frames import LinkKind, decode

Table = dict[str, tuple[str, ...]]


class DurableBroker:
    """One broker: the machine, the calls to its data plane, its file and its journal."""

    def __init__(self, brokers: Brokers, id: int) -> None:
        self.brokers = brokers
        self.id = id
        self.file: dict[int, HomeTable] = {}
        self.journal: Table = {}
        self.held: set[tuple[int, int]] = set()
        """Everything that was ever on its disk: home and version."""
        self.made: list[int] = []
        """Versions of its own table in this run."""
        self.alive = False
        self.reached: list[BarrierDone] = []
        self.greeted: dict[int, dict[int, int]] = {}
        """The versions of homes that each linked member held when it first said so on its link."""

    def start(self) -> None:
        self.alive = True
        self.routed: dict[int, Table] = {}
        self.made = []
        self.reached = []
        self.interest = DurableInterest(self.id, f"n{self.id}", deepcopy(self.file))
        self.made.append(self.interest.set_own(self.journal, self.brokers.wall_us()))

    def change(self, added: Table, removed: list[str]) -> int:
        for name in removed:
            self.journal.pop(name, None)
        self.journal.update(added)
        version = self.interest.change_own(added, removed, self.brokers.wall_us())
        self.made.append(version)
        self.done(self.interest.wait(version, self.brokers.now))
        return version

    def done(self, *barriers: BarrierDone | None) -> None:
        for barrier in barriers:
            if barrier is None:
                continue
            self.reached.append(barrier)
            if barrier.unreached:
                continue
            for other in self.brokers.live:
                good = other is self or any(
                    home == self.id and version in self.made and version >= barrier.version
                    for home, version in other.held
                )
                assert good or not barrier.version, f"{other.id} never held {barrier.version} of {self.id}"

    def apply(self) -> None:
        """Tell the data plane."""
        while (change := self.interest.next_change()) is not None:
            routed = self.routed.setdefault(change.home, {})
            for name in change.removed:
                del routed[name]
            routed.update(change.added)
        self.done(*self.interest.applied())

    def save(self, *, fails: bool = False) -> None:
        """Tell the data plane, and write the file."""
        self.apply()
        if fails or not self.interest.unsaved:
            return
        self.file = deepcopy(dict(self.interest.homes))
        self.held |= {(home, table.version) for home, table in self.file.items()}
        self.interest.saved(self.interest.versions())

    def tables(self) -> dict[int, tuple[int, Table]]:
        """Version and content of all tables, without those that never had any content."""
        return {
            home: (table.version, dict(table.subscriptions)) for home, table in self.interest.homes.items()
        }

    def take(self, sender: int, frame: bytes) -> None:
        interest, now = self.interest, self.brokers.now
        match decode(frame):
            case [LinkKind.DURABLE_HELD, versions]:
                self.greeted.setdefault(sender, dict(versions))
                self.done(*interest.held_received(sender, versions))
                self.made.append(interest.version)
            case [LinkKind.DURABLE, *fields]:
                interest.whole_received(sender, fields, now)
                self.made.append(interest.version)
            case [LinkKind.DURABLE_CHANGE, *fields]:
                interest.change_received(sender, fields, now)
                self.made.append(interest.version)
            case [_, home]:
                interest.wanted(sender, home)


class Brokers:
    """See the module. Ids are 1 to ``count``."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self._wall_us = 1000
        self.all = [DurableBroker(self, id) for id in range(1, count + 1)]
        self.wires: dict[tuple[int, int], deque[bytes]] = {}
        self.contents: dict[tuple[int, int], Any] = {}
        for broker in self.all:
            broker.start()
        self.members_changed()

    def wall_us(self) -> int:
        self._wall_us += 2
        return self._wall_us

    @property
    def live(self) -> list[DurableBroker]:
        return [broker for broker in self.all if broker.alive]

    def broker(self, id: int) -> DurableBroker:
        return self.all[id - 1]

    def members_changed(self) -> None:
        for broker in self.live:
            others = {other.id: f"n{other.id}" for other in self.live if other is not broker}
            broker.done(*broker.interest.members(others))

    def link(self, one: int, other: int) -> None:
        """A new link, perhaps in place of another."""
        for here, there in ((one, other), (other, one)):
            self.wires[here, there] = deque()
            self.broker(here).greeted.pop(there, None)
            self.broker(here).done(*self.broker(here).interest.link_up(there, capable=True))

    def cut(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.broker(here).greeted.pop(there, None)
            if self.wires.pop((here, there), None) is not None and self.broker(here).alive:
                self.broker(here).interest.link_down(there)

    def crash(self, id: int, *, loses_file: bool = False) -> None:
        broker = self.broker(id)
        broker.alive = False
        if loses_file:
            broker.file = {}
        for other in self.all:
            self.cut(id, other.id)
        self.members_changed()

    def start(self, id: int) -> None:
        self.broker(id).start()
        self.members_changed()

    def say(self, frames_max: int = 1000) -> None:
        """All brokers send up to so many frames on each link."""
        for (sender, receiver), wire in self.wires.items():
            for _ in range(frames_max):
                frame = self.broker(sender).interest.pending(receiver)
                if frame is None:
                    break
                wire.append(frame)

    def deliver(self, sender: int, receiver: int, frames_max: int = 1000) -> None:
        wire = self.wires.get((sender, receiver))
        for _ in range(min(frames_max, len(wire or ()))):
            assert wire is not None
            self.broker(receiver).take(sender, wire.popleft())

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for broker in self.live:
            broker.done(*broker.interest.tick(self.now))

    def settle(self) -> None:
        """Run until nobody has anything to send."""
        for _ in range(1000):
            for broker in self.live:
                broker.apply()
            self.say()
            if not any(self.wires.values()) and not any(broker.interest.unsaved for broker in self.live):
                break
            for sender, receiver in list(self.wires):
                self.deliver(sender, receiver)
            for broker in self.live:
                broker.save()
        else:
            raise AssertionError("they never stop talking")
        assert not any(broker.interest.behind() for broker in self.live)

    def heal(self) -> None:
        """Link all live brokers, and let them send everything."""
        for one in self.live:
            for other in self.live:
                if one.id < other.id and (one.id, other.id) not in self.wires:
                    self.link(one.id, other.id)
        for _ in range(3):
            self.settle()
            self.tick(2.0)

    def check(self) -> None:
        """The invariants after every step."""
        for broker in self.live:
            for home, (version, content) in broker.tables().items():
                known = self.contents.setdefault((home, version), content)
                assert known == content, f"version {version} of {home} has two contents"
            self._check_known(broker)

    def _check_known(self, broker: DurableBroker) -> None:
        """A member that is not unknown named no home that is not held here."""
        unknown, tables = broker.interest.unknown(), broker.tables()
        for member, versions in broker.greeted.items():
            if f"n{member}" in unknown or not self.broker(member).alive:
                continue
            for home, version in versions.items():
                held = tables[home][0] if home in tables else 0
                assert home == broker.id or held >= version, f"{member} is known, and what it held of {home}"
