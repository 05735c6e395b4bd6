"""A mesh with every kind of event that tables report."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load

HOLE = ("broker-4", "2026-01-01T00:00:42", "2026-01-01T00:00:46")
"""A broker that lost the rows of a time in the first partition, of the other side than those cut off."""
ROUND_S = 75.0
"""Duration of one round of all faults."""


def play(folder: Path, rows: int, form: str) -> Path:
    """Its logs, with about so many rows if each heartbeat is logged."""
    (folder / "everything.toml").write_text(story(rows))
    logs = folder / form
    Play(load(str(folder / "everything.toml")), seed=5, out=str(logs), log_heartbeats=form).run()
    name, since, until = HOLE
    for path in logs.glob(f"{name}-*"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not since < _moment(line) < until))
    return logs


def _moment(line: str) -> str:
    """Its wall clock, or nothing of a line that a power loss cut off."""
    found = re.search('"ts":"([^"]*)"', line)
    return found[1] if found else ""


def story(rows: int) -> str:
    """A scenario with every kind of event, repeated until the logs have so many rows."""
    brokers = 6 if rows <= 20_000 else 12
    rounds = max(1, round(rows / (2 * brokers * (brokers - 1) * ROUND_S)))
    rng = random.Random(rows)
    text = f'name = "everything"\nsummary = "all faults"\nbrokers = {brokers}\nspares = 1\n'
    text += "[workload]\npause_s = 0.5\n"
    names = [f"broker-{number}" for number in range(1, brokers + 1)]
    faults: list[tuple[float, str, list[str], list[str], float | None, str]] = [
        (1, "clock_step", names[1:2], [], None, "value = 7200"),
        (2, "start", [f"broker-{brokers + 1}"], [], None, ""),
    ]
    for number in range(rounds):
        at = 4 + number * ROUND_S
        one, two, three, four, five = rng.sample(names, 5)
        six = next(name for name in names if name not in (one, two, three, four, five))
        faults += [
            (at, "crash", [one], [], 6, ""),
            (at + 12, "power_off", [two], [], 5, ""),
            (at + 22, "pause", [three], [], 6, ""),
            (at + 32, "partition", sorted([one, four]), [], 9, ""),
            (at + 36, "stop", [two], [], 12, ""),
            (at + 50, "cut_one_way", [five], sorted([one, three]), 7, ""),
            (at + 62, "partition", [two], [four], 7, ""),
            (at + 66, "crash", [six], [], 3, ""),  # in the middle of a summary's window
        ]
    for at, kind, a, b, for_s, more in faults:
        text += f'\n[[fault]]\nat_s = {at}\nkind = "{kind}"\na = {json.dumps(a)}\n{more}\n'
        text += f"b = {json.dumps(b)}\n" if b else ""
        text += "" if for_s is None else f"for_s = {for_s}\n"
    return text
