"""All looks at the brokers of a run, kept as the differences from one to the next.

A broker's table, its links and its interest grow with the number of brokers, so a look at all of them grows
with its square. From one second to the next, little of it changes. So only differences are kept, and a
`Sample` is built from them on demand. Consecutive samples share their common parts, so they may be compared
by identity first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar, overload

from mesh.cluster.membership import MemberRecord
from simulations.evidence.view import Sample, View

T = TypeVar("T")
BLOCK: Final = 16
"""Looks that form a block; the first of each is kept whole."""
BLOCKS_MADE: Final = 2
"""Blocks that are cached: a reader that asks for a look asks for the next one later."""
NOTHING: Final[Mapping[Any, Any]] = {}


class Difference(NamedTuple):
    """The difference of one mapping from another; their order counts."""

    gone: tuple[Any, ...]
    new: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Difference:
        gone = tuple(key for key in before if key not in now)
        new = tuple((key, each) for key, each in now.items() if key not in before or before[key] != each)
        found = cls(gone, new)
        return found if list(found.applied(before)) == list(now) else cls(tuple(before), tuple(now.items()))

    def applied(self, before: Mapping[Any, Any]) -> dict[Any, Any]:
        found = dict(before)
        for key in self.gone:
            del found[key]
        found.update(self.new)
        return found


class Counts(NamedTuple):
    """Numbers by name; mappings with the same names share one object for them."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]

    def mapping(self) -> dict[str, int]:
        return dict(zip(self.names, self.numbers, strict=True))


@dataclass(frozen=True, slots=True)
class Glance:
    """One broker at one look. For the large parts None means: as at the look before."""

    rest: View
    """The small parts, which hardly ever change; equal ones share one object."""
    counters: Counts
    sizes: Counts
    table: Difference | None
    links: Difference | None
    held: Difference | None
    losses: Difference | None

    def view(self, before: View) -> View:
        """The view at this look, made from the view at the look before."""
        table = before.table
        if self.table is not None:
            table = tuple(self.table.applied(_by_id(before.table)).values())
        links = before.links
        if self.links is not None:
            links = tuple(self.links.applied(dict.fromkeys(before.links)))
        return replace(
            self.rest,
            counters=self.counters.mapping(),
            sizes=self.sizes.mapping(),
            table=table,
            links=links,
            held=before.held if self.held is None else self.held.applied(before.held),
            losses=before.losses if self.losses is None else self.losses.applied(before.losses),
        )


class Looks(Sequence[Sample]):
    """All looks, in the order of time."""

    def __init__(self) -> None:
        self._glances: list[tuple[float, tuple[Glance, ...]]] = []
        """The time of each look, and the brokers at it."""
        self._whole: list[Sample] = []
        """The first look of each block."""
        self._latest: Sample | None = None
        self._rests: dict[str, View] = {}
        """The last look, by broker."""
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._made: dict[int, list[Sample]] = {}

    @property
    def latest(self) -> Sample | None:
        return self._latest

    def add(self, at_s: float, views: Iterable[View]) -> None:
        before = self._latest.views if self._latest is not None else {}
        seen = {view.name: _sharing(before.get(view.name), view) for view in views}
        number = len(self._glances)
        self._latest = Sample(at_s, seen)
        if number % BLOCK == 0:
            self._whole.append(self._latest)
        glances = tuple(self._glance(before.get(name) or _unseen(view), view) for name, view in seen.items())
        self._glances.append((at_s, glances))
        self._made.pop(number // BLOCK, None)

    def __len__(self) -> int:
        return len(self._glances)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self._block(number // BLOCK)[number % BLOCK]

    def _block(self, number: int) -> list[Sample]:
        made = self._made.get(number)
        if made is None:
            while len(self._made) >= BLOCKS_MADE:
                del self._made[next(iter(self._made))]
            sample = self._whole[number]
            made = self._made[number] = [sample]
            for at_s, glances in self._glances[number * BLOCK + 1 : (number + 1) * BLOCK]:
                before, views = sample.views, {}
                for glance in glances:
                    name = glance.rest.name
                    views[name] = glance.view(before.get(name) or _unseen(glance.rest))
                sample = Sample(at_s, views)
                made.append(sample)
        return made

    def _glance(self, before: View, view: View) -> Glance:
        rest = replace(
            view, table=(), links=(), held=NOTHING, losses=NOTHING, counters=NOTHING, sizes=NOTHING
        )
        if self._rests.get(view.name) == rest:
            rest = self._rests[view.name]
        self._rests[view.name] = rest
        return Glance(
            rest=rest,
            counters=self._counts(view.counters),
            sizes=self._counts(view.sizes),
            table=_difference(before.table, view.table, _by_id),
            links=_difference(before.links, view.links, dict.fromkeys),
            held=_difference(before.held, view.held, dict),
            losses=_difference(before.losses, view.losses, dict),
        )

    def _counts(self, counted: Mapping[str, int]) -> Counts:
        names = tuple(counted)
        return Counts(self._names.setdefault(names, names), tuple(counted.values()))


def _difference(before: T, now: T, mapping: Callable[[T], Mapping[Any, Any]]) -> Difference | None:
    return None if before is now else Difference.of(mapping(before), mapping(now))


def _by_id(table: Iterable[MemberRecord]) -> dict[int, MemberRecord]:
    return {record.id: record for record in table}


def _unseen(view: View) -> View:
    """The view before the first look at a broker, without large parts."""
    return replace(view, table=(), links=(), held=NOTHING, losses=NOTHING)


def _sharing(before: View | None, now: View) -> View:
    """The view now, with the objects of the view before where they are equal."""
    if before is None:
        return now
    return replace(
        now,
        table=_same(before.table, now.table),
        links=_same(before.links, now.links),
        held=_same(before.held, now.held),
        losses=_same(before.losses, now.losses),
    )


def _same(before: T, now: T) -> T:
    return before if before == now else now
