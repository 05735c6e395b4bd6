"""The way of a message through the mesh, as lines. Pure.

The brokers say who takes a topic there and where it goes next (`mesh.dataplane.looking`). A *fault* is where
messages of the topic are lost or wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mesh.console.figures import milliseconds
from mesh.picture import Picture, listed, number_in
from mesh.printable import counted

ID: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,16})-([0-9]{1,19})")
"""Publisher, run and number of a message, as `mesh queue export` has it."""
INDENT: Final = "  "


class MessageId(NamedTuple):
    """Which message: of which publisher, in which run, with which number."""

    publisher: int
    boot: int
    sequence: int


def read_id(text: str) -> MessageId | None:
    """The parts of a message's id; None: it is none."""
    found = ID.fullmatch(text)
    return None if found is None else MessageId(int(found[1], 16), int(found[2], 16), int(found[3]))


class Step(NamedTuple):
    """One line; ``depth`` is how far it is indented, ``fault`` that messages are lost or wait there."""

    depth: int
    text: str
    fault: bool = False


def way(documents: Sequence[Mapping[str, Any]], picture: Picture, silent: Sequence[str]) -> list[Step]:
    """The way of a topic from the connected broker on."""
    by_id = {str(document.get("id")): document for document in documents}
    trips = {frozenset((edge.a, edge.b)): edge.rtt_ms for edge in picture.edges}
    entry = by_id.get(picture.connected)
    if entry is None:
        return [Step(0, "the connected broker did not answer", True)]
    steps = [Step(0, f"{entry.get('broker')} takes it from the publisher"), *_at(entry, 1)]
    for hop in _records(entry, "next"):
        id, name, via = str(hop.get("id")), hop.get("broker"), hop.get("via")
        if via is None:
            steps.append(Step(1, f"to {name}: no link, so that it is dropped (no_link)", True))
            continue
        trip = trips.get(frozenset((picture.connected, id)))
        told = [f"round trip {milliseconds(trip)} ms"] if trip is not None else []
        told += [f"by way of {via}"] if via != name else []
        told += _counts(hop, "waiting", "dropped", "lost")
        steps.append(Step(1, f"to {name}: {', '.join(told) or 'linked'}", _is_fault(hop)))
        there = by_id.get(id)
        if there is not None:
            steps += _at(there, 2)
        elif name in silent:
            steps.append(Step(2, "it did not answer", True))
    if int(number_in(entry, "next_count") or 0) > len(_records(entry, "next")):
        steps.append(Step(1, "and to more brokers"))
    kept = [
        f"{name} at {durable.get('home')}"
        for durable in _records(entry, "durable")
        for name in listed(durable, "names")
    ]
    steps.append(
        Step(1, f"level stored: kept for {', '.join(kept)}" if kept else "level stored: nobody keeps it")
    )
    if len(steps) == 2 and not kept:
        steps.insert(1, Step(1, "nobody wants it", True))
    return steps


def _at(document: Mapping[str, Any], depth: int) -> Iterator[Step]:
    if document.get("held"):
        yield Step(depth, "messages wait, since it does not know yet who wants what", True)
    takers = _records(document, "takers")
    for taker in takers:
        name = taker.get("name") or ("stock socket" if taker.get("kind") == "stock" else "unnamed")
        told = _counts(taker, "waiting", "under_way", "dropped")
        said = f": {', '.join(told)}" if told else ""
        text = f"{name} ({taker.get('address')}) by {taker.get('pattern')}{said}"
        yield Step(depth, text, _is_fault(taker))
    more = int(number_in(document, "takers_count") or 0) - len(takers)
    if more > 0:
        yield Step(depth, f"and {counted(more, 'more subscriber')}")


def _counts(record: Mapping[str, Any], *keys: str) -> list[str]:
    return [f"{count} {key.replace('_', ' ')}" for key in keys if (count := number_in(record, key))]


def _is_fault(record: Mapping[str, Any]) -> bool:
    return any(number_in(record, key) for key in ("waiting", "dropped", "lost"))


def _records(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [record for record in listed(document, key) if isinstance(record, dict)]


HEARD: Final = {
    True: "it came here",
    False: "no record of it",
    None: "no record of its publisher",
}
NO_RECORD: Final = (
    "a broker without a record has not had the message, or has forgotten it, or the level was sent, "
    "which leaves no record"
)


def heard(documents: Sequence[Mapping[str, Any]], ways: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Which brokers have had a message. ``ways`` are their answers about its topic, if that is known: a
    broker whose clients want the topic should have had it."""
    wanting = {str(each.get("id")) for each in ways if _records(each, "takers")}
    steps = []
    for document in documents:
        came = document.get("heard")
        came = came if isinstance(came, bool) else None
        missed = came is not True and str(document.get("id")) in wanting
        more = "; its clients want the topic" if missed else ""
        steps.append(Step(0, f"{document.get('broker')}: {HEARD[came]}{more}", missed))
    if any(document.get("heard") is not True for document in documents):
        steps.append(Step(0, NO_RECORD))
    return steps


def lines(steps: Sequence[Step]) -> list[str]:
    """The steps as text. An exclamation mark begins the line of a fault."""
    return [f"{'! ' if step.fault else '  '}{INDENT * step.depth}{step.text}" for step in steps]
