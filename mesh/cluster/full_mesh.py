"""Which members ought to have links to each other: today all of them. Code that assumes this asks here.

It is asked when a broker chooses whom to dial (`overlay`), judges members without a link (`judgement`), says
whose messages may be missed (`remote_interest`), believes what it hears of interest (`gossip`), and knows
when it has joined (`core`). The simulator's checks of links ask the same, so that they follow.

A mesh of fewer links needs more than this, which is not decided yet:

* acknowledgements of interest, by which a barrier knows that all live brokers hold a version, come from each
  on its own link (`remote_interest`);
* a table goes to all links, and each of its changes at once, so that no gossip has to be repaired in turn;
* a block of messages passes one link: `mesh.dataplane.intake` refuses any that came over another one, and
  the conservation of messages is judged for two brokers (`simulations.invariants.conservation`).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


def ought_to_link(one: int, other: int) -> bool:
    """True if two members, by their ids, ought to have a link while both are alive."""
    return one != other


def neighbours_of(me: int, live: Iterable[int]) -> list[int]:
    """Those of the live members to which one of them ought to have a link."""
    return [id for id in live if ought_to_link(me, id)]


def may_tell_interest(sender: int, owner: int) -> bool:
    """True if ``sender`` may tell the interest of ``owner``: each member is heard on its own link only."""
    return owner == sender
