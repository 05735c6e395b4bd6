"""The reference page of checks: ``python -m simulations.pages.invariants > FILE``."""

from __future__ import annotations

from typing import Final

from simulations.invariants.catalogue import ALL
from simulations.invariants.check import Check, Parameter

HEAD: Final = """# Invariants and expectations

Made from the catalogue by `python -m simulations.pages.invariants > docs/reference/invariants.md`; a test
compares them.

A check judges the evidence of a run: the brokers' event logs, their state once a simulated second (a
*look*), the messages that clients sent and received, and the faults as they were done. It reports how many
things it considered and its violations. All checks read a run together, once, in the order of time: rows of
the logs, the changes of each broker at a look, and the look as a whole
(`simulations/evidence/reading.py`). Each keeps only what it needs. So the cost of checks grows with the links
and with events, and not with the number of heartbeats.

* Invariants of **every run** always apply. Some are about events that do not occur in every run (a broker
  that leaves, a void round); they are silent if there were none.
* An `[[expect]]` of a [scenario](scenario-format.md) asks for any check by its id or its name, with its
  parameters, and replaces the invariant of the same check. It fails if there is nothing to judge.
* A check asked **by** another program has nothing to judge in a single run.

**When**: `always` judges the whole run, `eventually` the time after the heal or after a bound, `end` the
state at the end. *At rest* begins when the mesh is whole again and stays so, and ends when everybody leaves.
A difference that is gone a second later does not count.

**Excuses for a death**: the member was down, was struck by another fault, or was silent for more than 2.5
periods (a silence of the accuser right after it counts). Being parted from the accuser up to ten periods
before is an excuse, too. Trouble shorter than two rounds between two brokers that stayed linked is none. A
loss of up to a tenth of the packets is no excuse, nor is a latency that fits into half a deadline both ways.
Short stalls queue in their process, and count together. Faults do not affect a process that is down. If no
log has a death, its accuser is a broker whose log is lost or lacks its last rows.

**Brokers that must notice a loss**: most of those that are left, if they were well from a period and a
deadline before it, linked to the lost one and to each other.

The content of a home of durable subscriptions is read from its journal at the end. Only damage excuses a
loss: files of its state that were torn, lost or had bits flipped, and a power loss while its disk lied. Then
messages acknowledged before its next start are no longer owed.

"""
GROUPS: Final = (
    ("Membership", "M"),
    ("Delivery", "D"),
    ("Soundness", "X"),
    ("What scenarios expect", "S"),
)
TAIL: Final = """
## Breaking them

Each check has tests that break its subject on purpose, in two ways. One changes a correct history written by
hand (`SPOILT` in the tests of its subject, in `tests/simulations/invariants/`). The other runs brokers with
an injected bug, where the subject is in brokers (`test_broken_brokers.py`, `test_broken_homes.py`). Tests
ensure that both tables are complete.
[How many seeds of the swarm find a bug](../results/sensitivity.md) is counted by a command.
"""


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD]
    for title, letter in GROUPS:
        parts += [
            f"## {title}\n\n",
            "| id | name | what must hold | when | asked | parameters |\n|---|---|---|---|---|---|\n",
        ]
        parts += [_row(check) for check in ALL if check.id.startswith(letter)]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n" + TAIL


def _row(check: Check) -> str:
    if check.elsewhere:
        asked = f"by {check.elsewhere}"
    elif check.default:
        asked = "of every run in which it happens" if check.occasional else "of every run"
    else:
        asked = ""
    numbers = "; ".join(_parameter(parameter) for parameter in check.parameters)
    return f"| {check.id} | `{check.name}` | {check.sentence} | {check.when} | {asked} | {numbers} |\n"


def _parameter(parameter: Parameter) -> str:
    default = f"{parameter.default:g}" if isinstance(parameter.default, int | float) else parameter.default
    choices = f", one of {', '.join(parameter.choices)}" if parameter.choices else ""
    shown = f"; default {default}" if default else ""
    return f"`{parameter.name}`: {parameter.sentence} ({parameter.type}{choices}{shown})"


if __name__ == "__main__":
    print(page(), end="")
