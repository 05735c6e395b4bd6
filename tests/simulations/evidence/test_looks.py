"""Looks are read back as they were recorded, in any order, and take the memory of their changes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mesh.cluster.membership import MemberRecord, State
from mesh.dataplane.counters import LinkLoss
from simulations.evidence import Sample, View
from simulations.evidence.looks import BLOCK, Looks


def record(id: int, incarnation: int = 1) -> MemberRecord:
    return MemberRecord(id, incarnation, State.ALIVE, id, f"broker-{id}", f"host-{id}", "", "")


def view(id: int, members: int, **more: object) -> View:
    others = [each for each in range(members) if each != id]
    return replace(
        View(
            name=f"broker-{id}",
            life=1,
            id=id,
            boot=id,
            state="ready",
            table=(record(id), *map(record, others)),
            links=tuple(others),
            held={each: (2, (("#", 0),)) for each in others},
            counters={"rounds": 1},
            sizes={"members": members},
        ),
        **more,
    )


def _altered(seen: View, rng: random.Random) -> View:
    """Changed in one respect, or not at all."""
    table, links = list(seen.table), list(seen.links)
    id = rng.randrange(100, 110)
    match rng.randrange(8):
        case 0:
            return replace(
                seen, table=(*table, record(id, rng.randrange(99))) if len(table) < 20 else table[:2]
            )
        case 1:
            rng.shuffle(links)
            return replace(seen, links=tuple(links))
        case 2:
            return replace(seen, links=tuple(dict.fromkeys((*links[1:], id))))
        case 3:
            return replace(seen, held={**seen.held, id: (rng.randrange(9), ())})
        case 4:
            return replace(seen, losses={id: LinkLoss(*[rng.randrange(3)] * len(LinkLoss._fields))})
        case 5:
            return replace(seen, counters={"rounds": rng.randrange(9)}, sizes={"tasks": 3, "members": 2})
        case 6:
            return replace(seen, state=rng.choice(("ready", "isolated")), life=rng.randrange(2))
    return replace(seen)


@pytest.mark.parametrize("seed", range(4))
def test_looks_are_read_back_unchanged_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    looks, plain = Looks(), []
    views = {id: view(id, 5) for id in range(5)}
    for second in range(3 * BLOCK + 5):
        for id in views:
            views[id] = _altered(views[id], rng)
            ids = dict.fromkeys(each.id for each in views[id].table)
            if len(ids) < len(views[id].table):  # a table has each member once
                views[id] = replace(views[id], table=views[id].table[:2])
        present = [each for each in views.values() if rng.random() < 0.9]
        looks.add(float(second), present)
        plain.append(Sample(float(second), {each.name: each for each in present}))
        assert looks[rng.randrange(len(plain))] in plain and looks.latest == plain[-1]
    assert list(looks) == plain and len(looks) == len(plain)
    for index in rng.sample(range(len(plain)), len(plain)):
        assert looks[index] == plain[index]
        assert list(looks[index].views) == list(plain[index].views)
        for name, seen in looks[index].views.items():
            assert list(seen.held) == list(plain[index].views[name].held)
    assert looks[-1:] == plain[-1:] and looks[3:40:5] == plain[3:40:5]


def test_unchanged_parts_are_one_object_in_all_looks() -> None:
    looks = Looks()
    for second in range(2 * BLOCK):
        looks.add(float(second), [view(id, 30) for id in range(30)])
    first, *others = (looks[index].views["broker-3"] for index in range(2 * BLOCK))
    for other in others:
        assert other.table is first.table and other.links is first.links and other.held is first.held
