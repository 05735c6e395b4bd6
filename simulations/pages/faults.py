"""The reference page of faults, generated from the catalogue: ``python -m simulations.pages.faults >
FILE``.
"""

from __future__ import annotations

import math
from typing import Final

from simulations.faults.catalogue import KINDS
from simulations.faults.kind import Kind, Parameter

HEAD: Final = """# Faults

Made from the catalogue by `python -m simulations.pages.faults > docs/reference/faults.md`; a test
compares them.

A fault has a time (`at_s`), a `kind` and targets (`a`, and `b` for a fault between two sides). It may have a
duration (`for_s`) and numbers: `value` is the kind's main number, and further ones have names.
`World.inject(kind, a, b, value, for_s=..., ...)` applies a fault now. In a [scenario](scenario-format.md)
each fault is a `[[fault]]`.

* Kinds of **processes** and **hosts** strike the targets that `a` names.
* Kinds of **links** act between the hosts of `a` and those of `b`. One of the two may be left out; it then
  means all other hosts. A fault that only makes links slow, lossy or narrow may name the same hosts in both:
  it strikes all links among them. A host always reaches itself.
* A **lasting** fault ends after `for_s`, by a `heal` of links, or by the heal of the whole world
  (`World.heal`). It reverses only its own effects: faults of one kind add up. A process held down by several
  faults restarts when the last one ends. A side left out means the hosts that existed when the fault began.
* A process that is down is skipped by faults that need it up.
* A `value` left out is the default; 0 is 0, where the kind can have that.
* **Compound** kinds unfold into simple ones, each of which is in the history. The seed's choices come from a
  random stream of that fault alone.

"""
GROUPS: Final = (
    ("Processes", "processes"),
    ("Hosts", "hosts"),
    ("Links and connections", "links"),
    ("The world", "nobody"),
)


def page() -> str:
    """The whole page, as Markdown."""
    parts = [HEAD]
    for title, of in GROUPS:
        kinds = [kind for kind in KINDS.values() if kind.of == of]
        if kinds:
            parts += [f"## {title}\n\n", "| kind | effect | lasts | numbers |\n|---|---|---|---|\n"]
            parts += [_row(kind) for kind in kinds]
            parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def _row(kind: Kind) -> str:
    lasts = "compound" if kind.unfold is not None else "yes" if kind.lasting else ""
    numbers = "; ".join(_number(parameter) for parameter in kind.parameters)
    return f"| `{kind.name}` | {kind.sentence} | {lasts} | {numbers} |\n"


def _number(parameter: Parameter) -> str:
    default = f"{parameter.default:g}" if isinstance(parameter.default, float | int) else parameter.default
    if parameter.choices:
        span = ", ".join(parameter.choices)
    elif math.isinf(parameter.most):
        span = f"from {parameter.least:g}"
    else:
        span = f"{parameter.least:g} to {parameter.most:g}"
    return f"`{parameter.name}`: {parameter.sentence} ({span}; default {default or 'its own'})"


if __name__ == "__main__":
    print(page(), end="")
