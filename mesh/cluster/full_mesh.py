"""Decides which members should have links to each other: today all of them. Code that assumes this asks here.

`overlay` asks to choose dials, `judgement` to judge members without a link, `remote_interest` to name members
that may miss messages, `gossip` to check the source of interest, and `core` to decide that it has joined. The
simulator's checks of links ask here too, so that they follow.

A mesh with fewer links needs more than this. The following is not decided yet:

* acknowledgements of interest come from each member on its own link (`remote_interest`); a barrier uses them
  to know that all live brokers hold a version;
* a table goes to all links, and so does each of its changes at once, so that gossip needs no repair hop by
  hop;
* a block of messages passes one link: `mesh.dataplane.intake` refuses blocks that have passed another one.
  The conservation of messages is judged for pairs of brokers (`simulations.invariants.conservation`).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


def ought_to_link(one: int, other: int) -> bool:
    """True if two members, by their ids, should have a link while both are alive."""
    return one != other


def neighbours_of(me: int, live: Iterable[int]) -> list[int]:
    """The live members to which the member ``me`` should have a link."""
    return [id for id in live if ought_to_link(me, id)]


def may_tell_interest(sender: int, owner: int) -> bool:
    """True if ``sender`` may announce the interest of ``owner``: only each member itself may, on its own
    link."""
    return owner == sender
