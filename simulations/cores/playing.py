"""Plays a scenario with the cores alone: its brokers and its faults, without clients, disks and checks.

The phases are those of full fidelity as far as they apply: all start, ``warm_s``, the safety phase with its
faults, the heal, and ``bound_s``. Only the end is judged: every broker must see every other alive.
"""

from __future__ import annotations

from simulations.cores.field import Options
from simulations.cores.running import Outcome, build, check_size, finish, start_all
from simulations.cores.striking import Striking
from simulations.scenario import Scenario
from simulations.scenarios.selecting import resolve

SETTLE_S = 5.0
"""Seconds after the start until all have met."""
WRONG_SHOWN = 10


def play(scenario: Scenario, *, seed: int) -> Outcome:
    """Play it from a seed, at its own size.

    Raises:
        ValueError: it has a fault, or a number of brokers, that the cores alone do not support.
    """
    check_size(scenario.brokers)  # first, since even making a million names takes seconds
    if scenario.spares:
        raise ValueError(f"{scenario.name} has spare brokers, which the cores alone do not know")
    found = resolve(scenario, seed)
    network = found.network
    options = Options(network.latency_s, network.jitter_s, found.period_s, found.deadline_s)
    field = build(nodes=found.brokers, seed=seed, options=options)
    striking = Striking(field)
    striking.check(found.faults)
    start_all(field)
    field.run_for(SETTLE_S + found.warm_s)
    striking.schedule(found.faults, began_s=field.now_s)
    field.run_for(found.safety_length_s)
    striking.heal()
    field.run_for(found.bound_s)
    return finish(field)


def told(outcome: Outcome, wall_s: float) -> str:
    """The outcome in lines, with the same beginning as a summary of full fidelity."""
    lines = [
        f"cores alone ({outcome.nodes} brokers) --seed {outcome.seed}: "
        f"{'whole at the end' if outcome.ok else 'NOT WHOLE'}",
        f"  history {outcome.history_hash}, {outcome.virtual_s:.1f} virtual seconds in {wall_s:.1f} real ones"
        f" ({outcome.virtual_s / wall_s if wall_s else 0:.0f} : 1)",
        f"  {outcome.messages} messages, {outcome.changes_seen} changes seen,"
        f" {outcome.deaths_seen} of them deaths, of {len(outcome.dead)} brokers",
    ]
    lines += [f"  {sentence}" for sentence in outcome.wrong[:WRONG_SHOWN]]
    if len(outcome.wrong) > WRONG_SHOWN:
        lines.append(f"  and {len(outcome.wrong) - WRONG_SHOWN} more")
    return "\n".join(lines)
