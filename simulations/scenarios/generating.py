"""A scenario from a seed, swarm style: each leaves out some classes of faults and strikes hard with others.

Groce et al., Swarm Testing (2012): runs that may do everything at all times test less than runs that each do
a few things a lot, since faults mask each other. So each class of faults is present with a chance of one
half, with a separate intensity. All faults are listed up front, with their times and names, so that a failure
can be shrunk.

Faults from which today's mesh cannot recover are avoided: no broker loses its last valid address
(`within_reach`).
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from simulations.faults import Fault
from simulations.scenario import Scenario, Workload

SAFETY_S: Final = 30.0
BROKERS: Final = (3, 7)
SPARES: Final = (0, 0, 2)
PUBLISHERS: Final = (0, 1, 1, 2, 2, 3, 3)
ASKERS: Final = (0, 0, 1, 2)
GAP_S: Final = (3.0, 15.0)
"""Seconds between two faults of a class: the mean of a run is drawn from this range."""
CLASS_CHANCE: Final = 0.5
GAP_LEAST_S: Final = 0.1
DONE_BY: Final = 0.9
"""The part of the safety phase in which faults begin."""

Whom = Literal["nobody", "everybody", "one", "some", "pair", "sides", "spares"]
"""Kinds of targets: none by name, which means all hosts; every broker in a suitable state; one broker; up to
half of them; one and another; both sides of a split; brokers that are not up yet.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a kind of fault is drawn: numbers evenly from between two, words from a choice."""

    kind: str
    whom: Whom
    for_s: tuple[float, float] | None = None
    value: tuple[float, float] | None = None
    more: tuple[tuple[str, float, float], ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    alone_s: float | None = None
    """If set, no other such fault strikes its target until so long after its end. A broker that is down
    cannot be taken down, and one that must start again needs a working disk, or may rightly refuse.
    """


WAYS: Final = (("ways", ("both", "there")),)
STATE: Final = (("files", ("state",)),)
"""Never the event log, on which the verdicts are based."""
RESTARTS: Final = (("how", ("crash", "stop")), ("state", ("kept", "lost", "torn", "flipped")))
"""Always with the usual seeds: with stale ones and no state, no broker finds its way back."""
CLASSES: Final[dict[str, tuple[Recipe, ...]]] = {
    "partitions": (
        Recipe("partition", "sides", (2, 15)),
        Recipe("partition", "pair", (2, 15)),
        Recipe("cut_one_way", "sides", (2, 15)),
        Recipe("isolate", "one", (1, 15)),
        Recipe("one_edge", "nobody", (2, 15)),
        Recipe("bridge", "one", (3, 15)),
        Recipe("majorities_ring", "nobody", (3, 15)),
        Recipe("rolling_partition", "nobody", (6, 20), (2, 8), (("gap_s", 0, 4),)),
        Recipe(
            "flip_flop",
            "sides",
            (6, 20),
            more=(("on_s", 1, 6), ("off_s", 1, 6)),
            words=(("what", ("partition", "cut_one_way", "clog")),),
        ),
        Recipe("swizzle", "nobody", (5, 20), (3, 15)),
        Recipe("clog", "sides", (0.2, 6)),
    ),
    "links": (
        Recipe("slow_link", "some", (3, 15), (0.005, 0.2), (("jitter_s", 0, 0.05),), WAYS),
        Recipe("lossy_link", "some", (3, 15), (0.01, 0.3), words=WAYS),
        Recipe("bursty_link", "pair", (5, 15), (0.2, 2), (("between_s", 1, 8),), WAYS),
        Recipe("narrow_link", "some", (3, 15), (20_000, 500_000), words=WAYS),
    ),
    "connections": (
        Recipe("reset", "one", more=(("share", 0.3, 1),), words=WAYS),
        Recipe("reset_storm", "nobody", (3, 12), (0.2, 2)),
        Recipe("cut_short", "pair", (2, 8)),
        Recipe("half_open", "pair", (2, 10), words=WAYS),
        Recipe("refuse", "pair", (2, 10)),
        Recipe("black_hole", "pair", (2, 10)),
        Recipe("silent_accept", "pair", (2, 10)),
        Recipe("byte_split", "pair", (2, 8), (4, 200), words=WAYS),
        Recipe("coalesce", "pair", (2, 10), (0.005, 0.1), words=WAYS),
        Recipe("slow_reader", "one", (1, 6), (0, 20_000)),
    ),
    "processes": (
        Recipe("crash", "one", (0.5, 12), alone_s=1),
        Recipe("stop", "one", (1, 12), alone_s=1),
        Recipe("pause", "one", (0.5, 10), alone_s=0),
        Recipe("block_io", "one", (0.5, 10), alone_s=0),
        Recipe("stall", "one", value=(0.1, 2)),
        Recipe("hog", "one", (4, 15), (0.05, 0.6), (("every_s", 1, 3),)),
        Recipe("starve", "one", (2, 8), (2, 20), (("slice_s", 0.005, 0.05),)),
        Recipe("slow_process", "one", (3, 15), (2, 50)),
    ),
    "hosts": (
        Recipe("power_off", "one", (2, 12), alone_s=1),
        Recipe("move", "one", value=(0.5, 5), alone_s=7),
    ),
    "clocks": (
        Recipe("clock_step", "some", (3, 15), (-3600, 3600)),
        Recipe("clock_drift", "some", (3, 15), (-50_000, 50_000)),
        Recipe("monotonic_drift", "some", (3, 15), (-1000, 1000)),
    ),
    "disks": (
        Recipe("disk_fault", "one", (2, 10), (errno.EIO, errno.EIO), alone_s=0),
        Recipe("disk_fault", "one", (2, 10), (errno.ENOSPC, errno.ENOSPC), alone_s=0),
        Recipe("slow_disk", "one", (3, 15), (0.05, 1)),
        Recipe("lying_disk", "one", (3, 15)),
        Recipe("failing_syncs", "one", (2, 10), (0.1, 1), alone_s=0),
        Recipe("full_disk", "one", (2, 10), (0, 24 << 20), alone_s=0),
        Recipe("torn_file", "one", value=(1, 200), words=STATE),
        Recipe("flipped_bits", "one", value=(1, 20), words=STATE),
        Recipe("lost_files", "one", words=STATE),
    ),
    "data": (
        Recipe("garbage", "one", value=(1, 5)),
        Recipe("truncated_frame", "one", value=(1, 5)),
        Recipe("huge_frame", "one", value=(1, 5)),
        Recipe("wrong_key", "one", value=(1, 5)),
        Recipe("wrong_version", "one", value=(1, 5)),
        Recipe("replayed_admission", "one", value=(1, 5)),
        Recipe("forged_dead", "pair"),
        Recipe("huge_incarnation", "pair"),
        Recipe("replayed_news", "pair", value=(1, 10)),
    ),
    "operations": (
        Recipe("restart", "one", value=(0.2, 6), words=RESTARTS, alone_s=8),
        Recipe("rolling_restart", "some", value=(1, 4), more=(("down_s", 0.2, 2),), alone_s=15),
        Recipe("mass_leave", "some", (3, 10), (0, 2), alone_s=2),
        Recipe("mass_join", "spares", value=(0, 2)),
        Recipe("config_skew", "one", (5, 15), (0.5, 2), alone_s=3),
        Recipe("duplicate_id", "one", (3, 10), alone_s=3),
        Recipe("version_skew", "one", (5, 15), (1, 1), alone_s=3),
    ),
    # Kinds that end other faults early, whose own ends must then find nothing left to do.
    "endings": (
        Recipe("heal", "nobody"),
        Recipe("start", "everybody"),
        Recipe("resume", "everybody"),
    ),
}
"""All recipes, by class; every kind there is."""

FORGETTING: Final = ("lost_files", "torn_file", "flipped_bits", "lying_disk")
"""Kinds that may cost a broker its state file, and with it all addresses but those of its settings."""
LEAVING: Final = ("stop", "mass_leave", "rolling_restart", "config_skew", "version_skew")
"""Kinds that let brokers end in good order, as `restart` may."""


def generate(seed: int, *, stored: bool = False) -> Scenario:
    """The scenario of this seed, with all its names and numbers concrete.

    ``stored``: the same with durable subscriptions, under another name.
    """
    if stored:
        return _with_work(generate(seed), random.Random(f"{seed}:swarm:work"))
    rng = random.Random(f"{seed}:swarm")
    plain = Scenario(
        name=f"swarm-{seed}",
        summary="drawn from its seed",
        brokers=rng.randint(*BROKERS),
        spares=rng.choice(SPARES),
        warm_s=2.0,
        safety_s=SAFETY_S,
        quiet_s=8.0,
        workload=Workload(
            publishers=rng.choice(PUBLISHERS),
            subscribers=rng.randint(2, 4),
            pause_s=round(rng.uniform(0.1, 0.4), 3),
        ),
    )
    plain = _with_variety(plain, random.Random(f"{seed}:swarm:variety"))
    plain = _with_surveys(plain, random.Random(f"{seed}:swarm:surveys"))
    draw = _Draw(plain.broker_names, plain.spare_names)
    for name, recipes in CLASSES.items():
        if rng.random() < CLASS_CHANCE:
            draw.faults_of(recipes, random.Random(f"{seed}:swarm:{name}"))
    faults = sorted(draw.faults, key=lambda fault: fault.at_s)
    contacts = partial(may_join_by, plain)
    return replace(plain, faults=within_reach(plain.broker_names, faults, contacts, plain.spare_names))


def _with_surveys(plain: Scenario, rng: random.Random) -> Scenario:
    askers = rng.choice(ASKERS)
    answerers = rng.randint(1, 3) if askers else 0
    return replace(plain, workload=replace(plain.workload, askers=askers, answerers=answerers))


def _with_work(plain: Scenario, rng: random.Random) -> Scenario:
    """With less to publish: stored messages are also processed, at several homes."""
    load = plain.workload
    queues = rng.randint(1, 3)
    workload = replace(
        load,
        publishers=max(1, load.publishers),
        pause_s=max(0.25, load.pause_s),
        batch_max=min(load.batch_max, 6),
        stored_share=rng.choice((0.3, 0.8)),
        durable_subscriptions=queues,
        workers=queues * rng.randint(1, 3),
        slow_workers=rng.choice((0, 0, 1)),
        work_window=rng.choice((1, 4, 64)),
        retry_share=rng.choice((0.0, 0.05)),
        fail_share=rng.choice((0.0, 0.02)),
        drop_share=rng.choice((0.0, 0.02)),
        poison_share=rng.choice((0.0, 0.01)),
        outbox_share=rng.choice((0.0, 0.0, 0.3)),
    )
    return replace(plain, name=f"stored-{plain.name}", workload=workload)


def _with_variety(plain: Scenario, rng: random.Random) -> Scenario:
    """With all that clients may do, each in some of the seeds, and with the freedoms of event loops."""
    workload = replace(
        plain.workload,
        sent_share=rng.choice((0.0, 0.3)),
        batch_max=rng.choice((1, 1, 20)),
        headers_share=rng.choice((0.0, 0.3)),
        large_share=rng.choice((0.0, 0.0, 0.03)),
        request_share=rng.choice((0.0, 0.4)),
        stock_publishers=rng.choice((0, 0, 1, 3)),
        stock_subscribers=rng.choice((0, 0, 1)),
        transport=rng.choice(("tcp", "tcp", "ws")),
    )
    return replace(plain, workload=workload, chunked=rng.choice((0, 0, 1)), permuted=rng.choice((0, 1)))


class _Draw:
    """Draws the faults of one class after the other."""

    def __init__(self, brokers: list[str], spares: list[str]) -> None:
        self.faults: list[Fault] = []
        self._brokers = brokers
        self._spares = spares
        self._alone = Alone()

    def faults_of(self, recipes: tuple[Recipe, ...], rng: random.Random) -> None:
        mean_s = rng.uniform(*GAP_S)
        at_s = rng.uniform(0, mean_s)
        while at_s < SAFETY_S * DONE_BY:
            recipe = rng.choice(recipes)
            for_s = None if recipe.for_s is None else round(rng.uniform(*recipe.for_s), 3)
            a, b = self._struck(recipe.whom, rng)
            if (a or recipe.whom == "nobody") and self._alone.take(recipe, a, at_s, for_s or 0.0):
                self.faults.append(_fault(recipe, round(at_s, 3), a, b, for_s, rng))
            at_s += max(GAP_LEAST_S, rng.expovariate(1 / mean_s))

    def _struck(self, whom: Whom, rng: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
        brokers = self._brokers
        if whom in ("nobody", "spares"):
            return tuple(self._spares) if whom == "spares" else (), ()
        if whom == "everybody":
            return tuple(brokers), ()
        if whom == "pair":
            one, other = rng.sample(brokers, 2)
            return (one,), (other,)
        count = 1 if whom == "one" else rng.randint(1, max(1, len(brokers) // 2))
        chosen = [brokers[index] for index in sorted(rng.sample(range(len(brokers)), count))]
        others = [name for name in brokers if name not in chosen]
        return tuple(chosen), tuple(others) if whom == "sides" else ()


class Alone:
    """The targets of faults that need them alone, and until when."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[float, float]]] = {}

    def take(self, recipe: Recipe, names: Iterable[str], at_s: float, for_s: float) -> bool:
        """Return True if no other fault needs any of them alone in that time; then this one has them."""
        if recipe.alone_s is None:
            return True
        end_s = at_s + for_s + recipe.alone_s
        times = [each for name in names for each in self._taken.get(name, ())]
        if any(at_s <= until_s and from_s <= end_s for from_s, until_s in times):
            return False
        for name in names:
            self._taken.setdefault(name, []).append((at_s, end_s))
        return True


def _fault(
    recipe: Recipe,
    at_s: float,
    a: tuple[str, ...],
    b: tuple[str, ...],
    for_s: float | None,
    rng: random.Random,
) -> Fault:
    more: dict[str, float | str] = {
        name: round(rng.uniform(least, most), 3) for name, least, most in recipe.more
    }
    more |= {name: rng.choice(words) for name, words in recipe.words}
    value = None if recipe.value is None else round(rng.uniform(*recipe.value), 3)
    return Fault(at_s, recipe.kind, a, b, for_s, value, tuple(sorted(more.items())))


def within_reach(
    names: Collection[str],
    faults: Iterable[Fault],
    contacts: Callable[[str], Iterable[str]],
    later: Iterable[str] = (),
) -> tuple[Fault, ...]:
    """Without the moves after which a broker would know no valid address.

    One of the brokers ``names`` stays where it is and never leaves, so that all that remember it find it: a
    leave makes the others forget an address. A broker that may forget, or comes ``later``, knows only its
    ``contacts``: these stay.
    """
    faults = list(faults)
    anchors = set(names) - {name for fault in faults if leaves(fault) for name in fault.a}
    forgetful = [*later, *(name for fault in faults if _forgets(fault) for name in fault.a)]
    staying = {contact for name in forgetful for contact in contacts(name)}
    kept = []
    for fault in faults:
        if fault.kind == "move":
            if not anchors.difference(fault.a) or not staying.isdisjoint(fault.a):
                continue
            anchors.difference_update(fault.a)
        kept.append(fault)
    return tuple(kept)


def may_join_by(scenario: Scenario, name: str) -> list[str]:
    """A broker's contacts when it is started are among these: one or two of those before it."""
    names = scenario.broker_names
    index = [*names, *scenario.spare_names].index(name)
    return names[1:2] if index == 0 else names[max(0, index - 2) : index] or names


def leaves(fault: Fault) -> bool:
    """True if its targets say goodbye, after which the others forget their addresses."""
    return fault.kind in LEAVING or (fault.kind == "restart" and fault.text("how", "crash") == "stop")


def _forgets(fault: Fault) -> bool:
    return fault.kind in FORGETTING or (fault.kind == "restart" and fault.text("state", "kept") != "kept")
