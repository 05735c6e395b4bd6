"""The present trouble of a mesh, in sentences, the worst first. Pure.

Only present trouble counts: a broker that was dead and is back is in the events, but no longer in trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mesh.picture import Picture, Vertex
from mesh.printable import listed

LATE_MS: Final = 100.0
"""A loop later than this answers heartbeats late: a fifth of their usual deadline."""
LATE_APART: Final = 3
"""Most late brokers that have a sentence each."""
TROUBLES_MAX: Final = 12
BAD: Final = "bad"
WARN: Final = "warn"


class Trouble(NamedTuple):
    """One sentence. ``level`` is `BAD` if messages are lost or brokers are down, otherwise `WARN`."""

    level: str
    text: str


def troubles(
    picture: Picture, drops_s: Mapping[str, float | None], missing: Sequence[tuple[str, str]]
) -> list[Trouble]:
    """``drops_s``: messages that each broker drops per second, by id. ``missing``: the result of
    `missing_links`."""
    found = [
        *_members(picture),
        *_links(picture, missing),
        *_drops(picture, drops_s),
        *_late(picture),
        *_disks(picture),
        *_queues(picture),
    ]
    found.sort(key=lambda trouble: trouble.level != BAD)
    left_out = len(found) - TROUBLES_MAX
    if left_out <= 0:
        return found
    return [*found[: TROUBLES_MAX - 1], Trouble(WARN, f"{left_out + 1} more are not shown")]


def _names(picture: Picture, wanted: Callable[[Vertex], bool]) -> list[str]:
    return [node.name for node in picture.nodes if wanted(node)]


def _said(names: list[str], one: str, many: str) -> str:
    return f"{listed(names)} {one if len(names) == 1 else many}"


def _members(picture: Picture) -> Iterator[Trouble]:
    dead = _names(picture, lambda node: node.state == "dead" and not node.answered)
    if dead:
        # This side cannot tell a process that is gone from one behind a broken network.
        yield Trouble(BAD, _said(dead, "is dead or cut off", "are dead or cut off"))
    if len(picture.parts) > 1:
        names = {node.id: node.name for node in picture.nodes}
        parts = "; ".join(listed([names[id] for id in part]) for part in picture.parts[:4])
        yield Trouble(BAD, f"the mesh is split into {len(picture.parts)} parts: {parts}")
    isolated = _names(picture, lambda node: node.mode == "isolated")
    if isolated:
        yield Trouble(BAD, _said(isolated, "is isolated", "are isolated"))
    suspect = _names(picture, lambda node: node.state == "suspect")
    if suspect:
        yield Trouble(WARN, _said(suspect, "misses heartbeats", "miss heartbeats"))
    silent = _names(picture, lambda node: node.state == "alive" and not node.answered)
    if silent and picture.silent:
        yield Trouble(WARN, _said(silent, "did not say how it is", "did not say how they are"))


def _links(picture: Picture, missing: Sequence[tuple[str, str]]) -> Iterator[Trouble]:
    names = {node.id: node.name for node in picture.nodes}
    if missing:
        yield Trouble(WARN, f"no link: {listed([_pair(names[a], names[b]) for a, b in missing])}")
    half = [
        _pair(names.get(edge.a, edge.a), names.get(edge.b, edge.b))
        for edge in picture.edges
        if not edge.whole
    ]
    if half:
        yield Trouble(WARN, f"a link that only one end reports: {listed(half)}")


def _pair(one: str, other: str) -> str:
    return " - ".join(sorted((one, other)))


def _drops(picture: Picture, drops_s: Mapping[str, float | None]) -> Iterator[Trouble]:
    dropping = [(rate, node.name) for node in picture.nodes if (rate := drops_s.get(node.id))]
    for rate, name in sorted(dropping, reverse=True):
        yield Trouble(BAD, f"{name} drops {_rate(rate)} a second")


def _rate(rate: float) -> str:
    if rate < 1:
        return "less than one message"
    return f"{rate:,.0f} {'message' if round(rate) == 1 else 'messages'}".replace(",", "\u202f")


def _late(picture: Picture) -> Iterator[Trouble]:
    late = [(node.late_ms or 0.0, node.name) for node in picture.nodes if (node.late_ms or 0) > LATE_MS]
    late.sort(reverse=True)
    if len(late) > LATE_APART:  # a machine that is too slow makes all of its brokers late
        names = listed([name for _, name in late])
        yield Trouble(WARN, f"the event loops of {names} were late, by {_duration(late[0][0])} at most")
        return
    for late_ms, name in late:
        yield Trouble(WARN, f"the event loop of {name} was {_duration(late_ms)} late")


def _duration(late_ms: float) -> str:
    return f"{late_ms:.0f} ms" if late_ms < 9999.5 else f"{late_ms / 1e3:.0f} s"


def _disks(picture: Picture) -> Iterator[Trouble]:
    for node in picture.nodes:
        for sentence in node.disk:
            yield Trouble(BAD, f"{node.name}: {sentence}")
        if node.filling:
            yield Trouble(WARN, f"{node.name}: {node.filling}")


def _queues(picture: Picture) -> Iterator[Trouble]:
    for name, homes in picture.twice:
        yield Trouble(WARN, f"durable subscription {name} has homes at {listed(list(homes))}; remove one")
    idle = [str(queue.get("name")) for queue in picture.queues if _waits_in_vain(queue)]
    if idle:
        yield Trouble(WARN, f"messages wait without a consumer in {listed(idle)}")


def _waits_in_vain(queue: Mapping[str, Any]) -> bool:
    return queue.get("consumers") == 0 and bool(queue.get("waiting"))
