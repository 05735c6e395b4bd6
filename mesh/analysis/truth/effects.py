"""From a simulation's faults to their effects: which brokers ran, and which links could carry frames. Pure.

Rows of kind ``truth`` record the start and end of each fault. Two simultaneous faults have a combined effect:
a link carries frames once the last fault that cut it ends, and a process runs again once the last of its
pauses ends. So findings are never compared with faults, but with the effects of all of them.

A link that was cut carries nothing. A **strained** link may: it lost many frames, was slow or full, or only
its connections were cut. Chance decides what was heard over it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from mesh.analysis.silence.apart import Times, joined

What = Literal["start", "crash", "power_off", "pause", "resume", "leave"]
State = Literal["up", "paused", "down", "away"]

CUTS: Final = ("partition", "isolate", "cut_one_way", "clog")
ONE_WAY: Final = ("cut_one_way",)
STRAINS: Final = (
    "lossy_link", "bursty_link", "slow_link", "narrow_link", "half_open", "cut_short", "reset", "refuse",
    "black_hole", "silent_accept", "slow_reader", "block_io",
)  # fmt: skip
STARVES: Final = ("slow_process", "starve", "hog")
STARVED: Final = 10.0
"""A process that is slowed down by this factor may find no time to link."""
LOST_SHARE: Final = 0.1
"""A link that loses more than this share is strained."""
SLOW_S: Final = 0.25
"""So is a link with this delay: answers come after the deadline of their round, and links are given up."""
STALLS: Final = ("stall",)
AFTER: Final[Mapping[What, State]] = {
    "start": "up", "crash": "down", "power_off": "down", "pause": "paused", "resume": "up", "leave": "away",
}  # fmt: skip
ENDS: Final[Mapping[str, What]] = {"crash": "crash", "power_off": "power_off", "stop": "leave"}


class Row(NamedTuple):
    """A row of kind ``truth``. ``op`` is the kind of fault, or ``end`` with the kind in ``of``."""

    at: int
    """Microseconds of mesh time."""
    op: str
    of: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    value: float | None
    for_s: float | None
    more: Mapping[str, Any]


class Effect(NamedTuple):
    """A fault's effect on a process."""

    name: str
    what: What
    at: int


class Lived(NamedTuple):
    """A stretch of a broker's life."""

    name: str
    state: State
    start: int
    end: int


class Effects(NamedTuple):
    done: list[Effect]
    lives: list[Lived]
    cut: dict[tuple[str, str], Times]
    """When a link could carry nothing from one broker to another."""
    strained: dict[tuple[str, str], Times]


def effects(rows: Sequence[Row], brokers: Sequence[str], end: int) -> Effects:
    """The effects on brokers, by name. The hosts of a simulation are named after them."""
    lives = _Lives(brokers)
    cut = _Links(brokers)
    strained = _Links(brokers)
    for row in sorted(rows, key=lambda row: row.at):
        lives.take(row)
        if row.of in CUTS:
            cut.take(row)
        elif _strains(row):
            strained.take(row)
    lives.finish(end)
    return Effects(lives.done, lives.lives, cut.finish(end), strained.finish(end))


def _strains(row: Row) -> bool:
    value = row.value or 0.0
    if row.of in STARVES:
        return row.of != "slow_process" or value >= STARVED
    if row.of == "lossy_link":
        return value > LOST_SHARE
    if row.of == "slow_link":
        return value + _number(row.more, "jitter_s") + _number(row.more, "tail_s") >= SLOW_S
    return row.of in STRAINS


def _number(more: Mapping[str, Any], name: str) -> float:
    """Zero if it is missing, or no number."""
    try:
        return float(more.get(name, 0.0))
    except ValueError:
        return 0.0


class _Lives:
    """The states of processes over time."""

    def __init__(self, brokers: Iterable[str]) -> None:
        self.done: list[Effect] = []
        self.lives: list[Lived] = []
        self._state: dict[str, tuple[State, int] | None] = dict.fromkeys(brokers)
        self._pauses: Counter[str] = Counter()
        self._stalled: list[tuple[int, str]] = []

    def take(self, row: Row) -> None:
        self._wake(row.at)
        for name in row.a:
            if name in self._state:
                self._take(name, row)

    def _take(self, name: str, row: Row) -> None:
        """A fault that strikes a stopped process, or starts a running one, has no effect."""
        now = self._state[name]
        if now is None or now[0] in ("down", "away"):
            if row.of == "start":
                self._pauses[name] = 0
                self._enter(name, "start", row.at)
        elif row.op in ENDS:
            self._enter(name, ENDS[row.op], row.at)
        elif row.op == "ended" and row.of in ENDS:
            self._enter(name, ENDS[row.of], row.at)
        elif row.op == "pause":
            self._pause(name, row.at)
        elif row.op in STALLS and row.value:
            self._pause(name, row.at)
            self._stalled.append((row.at + round(row.value * 1e6), name))
        elif row.op == "end" and row.of == "pause":
            self._resume(name, row.at)
        elif row.op == "resume":
            self._pauses[name] = min(self._pauses[name], 1)
            self._resume(name, row.at)

    def finish(self, end: int) -> None:
        self._wake(end)
        for name, now in self._state.items():
            if now is not None and now[1] < end:
                self.lives.append(Lived(name, now[0], now[1], end))

    def _wake(self, now: int) -> None:
        due = sorted(stalled for stalled in self._stalled if stalled[0] <= now)
        self._stalled = [stalled for stalled in self._stalled if stalled[0] > now]
        for at, name in due:
            self._resume(name, at)

    def _pause(self, name: str, at: int) -> None:
        self._pauses[name] += 1
        if self._pauses[name] == 1:
            self._enter(name, "pause", at)

    def _resume(self, name: str, at: int) -> None:
        now = self._state[name]
        if now is not None and now[0] == "paused" and self._pauses[name] > 0:
            self._pauses[name] -= 1
            if not self._pauses[name]:
                self._enter(name, "resume", at)

    def _enter(self, name: str, what: What, at: int) -> None:
        before = self._state[name]
        if before is not None and before[1] < at:
            self.lives.append(Lived(name, before[0], before[1], at))
        self._state[name] = (AFTER[what], at)
        self.done.append(Effect(name, what, at))


class _Links:
    """The links that faults affect, and how many faults."""

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = brokers
        self._by: Counter[tuple[str, str]] = Counter()
        self._since: dict[tuple[str, str], int] = {}
        self._times: dict[tuple[str, str], Times] = {}

    def take(self, row: Row) -> None:
        for link in dict.fromkeys(self._links(row)):
            if row.op == "end":
                self._mend(link, row.at)
            else:
                self._by[link] += 1
                self._since.setdefault(link, row.at)

    def finish(self, end: int) -> dict[tuple[str, str], Times]:
        for link, since in self._since.items():
            self._times.setdefault(link, []).append((since, end))
        return {link: joined(times) for link, times in self._times.items()}

    def _mend(self, link: tuple[str, str], at: int) -> None:
        if not self._by[link]:
            return
        self._by[link] -= 1
        if not self._by[link]:
            self._times.setdefault(link, []).append((self._since.pop(link), at))

    def _links(self, row: Row) -> Iterable[tuple[str, str]]:
        """A side that is not named contains all others. For one kind, each named host is alone."""
        here = [name for name in self._brokers if name in row.a]
        there = [name for name in self._brokers if name in row.b]
        if row.of == "isolate":
            here, there = [*here, *there], list(self._brokers)
        elif not row.a:
            here = [name for name in self._brokers if name not in row.b]
        elif not row.b:
            there = [name for name in self._brokers if name not in row.a]
        one_way = row.of in ONE_WAY or row.more.get("ways") == "there"
        for one in here:
            for other in there:
                if one != other:
                    yield one, other
                    if not one_way:
                        yield other, one
