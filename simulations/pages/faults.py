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

A fault has a time (`at_s`), a `kind`, whom it strikes (`a`, and `b` for what happens between two sides),
perhaps how long it lasts (`for_s`) and its numbers: `value` is the kind's main one, further ones stand beside
it under their names. `World.inject(kind, a, b, value, for_s=..., ...)` does one now; in a
[scenario](scenario-format.md) each is a `[[fault]]`.

* Kinds of **processes** and **hosts** strike whom `a` names.
* Kinds of **links** happen between the hosts of `a` and those of `b`. One of the two may be left out: it is
  all other hosts then. What only makes links slow, lossy or narrow may name the same hosts in both: it
  strikes all links among them. A host always reaches itself.
* What **lasts** ends after `for_s`, by a `heal` of links, or by the heal of the whole world (`World.heal`),
  and takes back exactly what it did: faults of one kind add up. Whom several faults keep down starts when the
  last of them is over; a side left out are the hosts that there were when the fault began.
* What cannot be done to a process, since it is down, passes it over.
* A `value` left out is the default; 0 is 0, where the kind can have that.
* **Compound** kinds unfold into simple ones, each of which stands in the history; what the seed chooses comes
  from a random stream of that fault alone.

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
            parts += [f"## {title}\n\n", "| kind | what it does | lasts | numbers |\n|---|---|---|---|\n"]
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
