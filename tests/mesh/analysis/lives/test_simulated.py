"""Simulated brokers are killed, lose their power, are paused, stopped and started: the lives report exactly
that.

The facts come from the oracle's reader, so this tests whether the rules fit the rows that brokers really
write. ``MANGROVE_SEEDS=50`` plays more seeds than the default.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mesh.analysis.lives.telling import Told
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.lives.gathering import lives_of
from tests.mesh.analysis.oracle.log_facts import Facts, read_facts, wall_us

SEEDS = int(os.environ.get("MANGROVE_SEEDS", "8"))
PERIOD = 1_000_000
SCORED = ("crash", "power_off", "pause", "resume", "leave")


class Done(NamedTuple):
    """A fault of a broker, and its time."""

    cause: str
    name: str
    at: int
    over: int
    """The end of a pause, which lasts."""


def scenario(seed: int) -> str:
    """Faults of brokers, one after the other, some two at once, some during a cut or resets."""
    rng = random.Random(seed)
    names = [f"broker-{number + 1}" for number in range(rng.choice([3, 4, 6]))]
    hidden = names.pop()  # its crash is behind a cut, so that only its log can tell; it keeps its power
    text = f'name = "lives"\nsummary = "faults of brokers"\nbrokers = {len(names) + 1}\nquiet_s = 2\n'
    at_s = 4.0
    for _ in range(6):
        for_s = rng.choice([rng.uniform(0.3, 2), rng.uniform(2.5, 8)])
        name = rng.choice(names)
        match rng.choice(["crash", "power_off", "pause", "stop", "restart", "two", "hidden", "resets"]):
            case "crash" | "power_off" | "stop" as kind:
                text += _fault(at_s, kind, name, for_s)
            case "pause":
                for_s = rng.uniform(2.4, 8)
                text += _fault(at_s, "pause", name, for_s)
            case "restart":
                text += _fault(at_s, "restart", name, None, f"value = {rng.uniform(0.05, 2):.3f}")
                for_s = 2.0
            case "two":
                other = rng.choice([each for each in names if each != name])
                text += _fault(at_s, "crash", name, for_s) + _fault(at_s + 0.1, "power_off", other, for_s)
            case "hidden":
                text += _fault(at_s, "partition", hidden, 9) + _fault(at_s + 5, "crash", hidden, 6)
                for_s = 11.0
            case "resets":
                text += _fault(at_s, "reset_storm", "brokers", 6, "value = 2")
                text += _fault(at_s + 2, rng.choice(["crash", "power_off"]), name, 2)
                for_s = 6.0
        at_s += for_s + rng.uniform(3, 6)
    return text


def _fault(at_s: float, kind: str, name: str, for_s: float | None, more: str = "") -> str:
    lasts = "" if for_s is None else f"for_s = {for_s:.3f}\n"
    return f'\n[[fault]]\nat_s = {at_s:.3f}\nkind = "{kind}"\na = "{name}"\n{lasts}{more}\n'


def done(facts: Facts) -> Iterator[Done]:
    for row in facts.truth:
        for name in row["a"].split(","):
            if not name.startswith("broker-"):
                continue
            at = wall_us(row)
            if row["op"] in ("crash", "power_off"):
                yield Done(row["op"], name, at, at)
            elif row["op"] == "pause":
                yield Done("pause", name, at, at + round(row["for_s"] * 1_000_000))
            elif row["op"] == "stop":
                yield Done("leave", name, at, at)
            elif row["op"] == "restart" and row["of"] == "restart":
                yield Done("crash", name, at, at)
            elif row["op"] == "end" and row["of"] == "pause":
                yield Done("resume", name, at, at)


def played(seed: int, folder: Path) -> Facts:
    file = folder / f"lives-{seed}.toml"
    file.write_text(scenario(seed))
    logs = folder / f"logs-{seed}"
    assert Play(load(str(file)), seed=seed, out=str(logs)).run().ok
    return read_facts(logs)


def score(facts: Facts) -> tuple[Counter[str], list[str]]:
    """True and false positives and false negatives, with a sentence for each error."""
    found = {
        (name, told.no): Done(str(told.cause), name, told.end, told.end)
        for name, lives in lives_of(facts).items()
        for told in lives
        if told.cause in SCORED
    }
    errors = {(name, told.no): told.error_s for name, lives in lives_of(facts).items() for told in lives}
    counts: Counter[str] = Counter()
    wrong = []
    for truth in done(facts):
        near = [
            key
            for key, each in found.items()
            if each[:2] == truth[:2] and _agree(truth.at, each.at, errors[key])
        ]
        if near:
            del found[min(near, key=lambda key: abs(found[key].at - truth.at))]
            counts["tp"] += 1
        elif truth.cause in ("pause", "resume") and not _wrote(facts, truth):
            counts["lost"] += 1
        else:
            counts["fn"] += 1
            wrong.append(f"not found: {truth} of logs that begin at {facts.begin}")
    for each in found.values():
        counts["fp"] += 1
        wrong.append(f"not done: {each} of logs that begin at {facts.begin}")
    return counts, wrong


def _wrote(facts: Facts, truth: Done) -> bool:
    """True if its log continues to the next stats row: a later power loss removes that row, and with it the
    lateness of the loop."""
    return any(
        facts.names[boot.node] == truth.name
        and boot.first <= truth.at
        and truth.over + round(boot.stats_s * 1_000_000) <= boot.last
        for boot in facts.boots
    )


def _agree(truth: int, found: int, error_s: float) -> bool:
    """Within a period, or within the error that the table itself states."""
    return abs(truth - found) <= max(PERIOD, round(error_s * 1_000_000))


def confused(facts: Facts) -> list[str]:
    """Crashes reported as power losses, or vice versa."""
    lives = lives_of(facts)
    wrong = []
    for truth in done(facts):
        if truth.cause in ("crash", "power_off"):
            told = _running(lives[truth.name], truth.at)
            if told is not None and told.cause in ("crash", "power_off") and told.cause != truth.cause:
                wrong.append(f"{truth} was told as {told}")
    return wrong


def _running(lives: list[Told], at: int) -> Told | None:
    """The stretch that ended at the time of a fault, as far as its error allows."""
    ends = [told for told in lives if told.cause is not None and _agree(at, told.end, told.error_s)]
    return min(ends, key=lambda told: abs(told.end - at), default=None)


def test_the_lives_of_one_seed_are_right(tmp_path: Path) -> None:
    facts = played(1, tmp_path)

    counts, wrong = score(facts)

    assert not wrong
    assert counts["tp"] > 5


@pytest.mark.long
def test_the_lives_of_many_seeds_are_right(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    wrong, mixed = [], []
    for seed in range(SEEDS):
        facts = played(seed, tmp_path)
        more, sentences = score(facts)
        counts += more
        wrong += [f"seed {seed}: {sentence}" for sentence in sentences]
        mixed += [f"seed {seed}: {sentence}" for sentence in confused(facts)]

    assert not mixed
    assert counts["tp"] / (counts["tp"] + counts["fp"]) >= 0.99, wrong
    assert counts["tp"] / (counts["tp"] + counts["fn"]) >= 0.99, wrong


@pytest.mark.long
def test_peers_of_a_dead_broker_without_a_log_never_confuse_a_crash_with_a_power_loss(
    tmp_path: Path,
) -> None:
    """Events that nobody can distinguish then are unknown, and not failures."""
    mixed = []
    for seed in range(min(SEEDS, 5)):
        played(seed, tmp_path)
        for name in ("broker-1", "broker-2"):
            facts = read_facts(tmp_path / f"logs-{seed}", without=[f"{name}-"])
            mixed += [f"seed {seed} without {name}: {sentence}" for sentence in confused(facts)]

    assert not mixed
