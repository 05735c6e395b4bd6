"""The reference page of checks: ``python -m simulations.pages.invariants > FILE``."""

from __future__ import annotations

from typing import Final

from simulations.invariants.catalogue import ALL
from simulations.invariants.check import Check, Parameter

HEAD: Final = """# Invariants and expectations

Made from the catalogue by `python -m simulations.pages.invariants > docs/reference/invariants.md`; a test
compares them.

A check looks at what a run left: the brokers' event logs, what they looked like once a simulated second,
what clients sent and got, and what was really done. It says how many things it looked at and what it found
wrong. All checks read a run together, once, in the order of time: rows of the logs, what is new of a broker
at a look, and the look as a whole (`simulations/evidence/reading.py`). Each keeps only what it needs, so
what checks take grows with the links and with what happens, and not with how long heartbeats go on.

* Those of **every run** need not be asked for. Some are about what does not happen in every run (a broker
  that leaves, a void round); they say nothing where it did not.
* An `[[expect]]` of a [scenario](scenario-format.md) asks for any check by its id or its name, with its
  parameters, and takes the place of the one of every run. It fails where there is nothing to look at.
* One run by itself leaves nothing to look at for what is asked **by** somebody else.

**When**: `always` is judged of the whole run, `eventually` of the time after the heal or after a bound, `end`
of what the run leaves. *At rest* is from the time at which the mesh is whole again and has stayed so, until
everybody leaves; a difference that is gone a second later is none. What excuses a death: being down, silent
for more than 2.5 periods (the caller's silence right behind counts) or struck otherwise, or being parted from
whoever calls it, up to ten periods before; but no trouble shorter than two rounds between two that stayed
linked. A loss of up to a tenth of the packets, or a latency that fits into half a deadline both ways, excuses
nothing. Short stalls queue in their process, and count together; nothing is done to who is down. A death that
no log has was called by somebody whose log is lost or lacks its last rows. Who must *notice* a loss: most of
those who are left, if they were well from a period and a deadline before it, linked to the lost one and to
each other.

What a home of durable subscriptions keeps is read from its journal at the end. Only damage excuses a loss:
files of its state that were torn, lost or had bits flipped, and a power loss while its disk lied. What was
acknowledged before it started again is owed no more then.

"""
GROUPS: Final = (
    ("Membership", "M"),
    ("Delivery", "D"),
    ("Soundness", "X"),
    ("What scenarios expect", "S"),
)
TAIL: Final = """
## Breaking them

Each check has tests in which its subject is broken on purpose: in a right history written by hand
(`SPOILT` in the tests of its subject, in `tests/simulations/invariants/`), and, where the brokers have the
subject, by running brokers with a bug put in (`test_broken_brokers.py`, `test_broken_homes.py`). Both tables
are held to be complete.
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
