"""Selects the part of an incident to play again: the events around a time, and few enough brokers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mesh.analysis.incident.happenings import Happening, Incident

BROKERS_MOST: Final = 100
"""Scenarios of a larger mesh keep the affected brokers, and bystanders up to this number."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The selected part, and what was left out."""

    incident: Incident
    left_out: tuple[str, ...]
    """Brokers that are not played."""
    dropped: int
    """Events outside of the requested time."""


def around(incident: Incident, at: int, within_s: float) -> Scope:
    """Only events that began or lasted at most ``within_s`` from ``at``. An event that lasted begins with the
    window."""
    least, most = at - round(within_s * 1e6), at + round(within_s * 1e6)
    kept: list[Happening] = []
    for each in incident.happenings:
        if each.kind == "start":
            if least <= each.at <= most:
                kept.append(each)
        elif each.at <= most and (each.until is None or each.until >= least) and each.at >= least:
            kept.append(each)
        elif each.at < least and (each.until is None or each.until >= least):
            kept.append(replace(each, at=least))
    came = {node for each in kept if each.kind == "start" for node in each.a}
    gone = {
        node for each in incident.happenings if each.kind == "start" and each.at > most for node in each.a
    }
    early = tuple(node for node in incident.first if node not in came and node not in gone)
    late = tuple(node for node in incident.first if node in came)
    untold = tuple(each for each in incident.untold if least <= each.at <= most)
    scoped = replace(
        incident,
        started=max(incident.started, least),
        ended=min(incident.ended, most),
        first=early + late,
        late=len(late),
        happenings=tuple(sorted(kept, key=lambda each: (each.at, each.kind, each.a))),
        untold=untold,
    )
    return Scope(scoped, tuple(sorted(gone)), len(incident.happenings) - len(kept))


def at_most(scope: Scope, brokers_most: int = BROKERS_MOST) -> Scope:
    """The same with few enough brokers.

    Raises:
        ValueError: something happened to more brokers than that.
    """
    incident = scope.incident
    if len(incident.first) <= brokers_most:
        return scope
    parted = [each for each in incident.happenings if each.kind == "partition" and len(each.b) > 1]
    struck = {
        node
        for each in incident.happenings
        for node in (each.a if each in parted else each.concerned)
        if not (each in parted and len(each.a) > brokers_most // 4)
    }
    if len(struck) > brokers_most:
        raise ValueError(
            f"something happened to {len(struck)} brokers, and a scenario takes {brokers_most}; "
            "name a time with --around"
        )
    kept = set(struck)
    # Every side of a cut needs a broker, so sides contribute their bystanders in turn.
    groups = [list(each.a) for each in parted] + [list(each.b) for each in parted] + [list(incident.first)]
    position = 0
    while len(kept) < brokers_most and any(groups):
        group = groups[position % len(groups)]
        position += 1
        if group:
            kept.add(group.pop(0))
    happenings = []
    for each in incident.happenings:
        a = tuple(node for node in each.a if node in kept)
        b = tuple(node for node in each.b if node in kept)
        if a and (b or not each.b):
            happenings.append(replace(each, a=a, b=b))
    first = tuple(node for node in incident.first if node in kept)
    late = sum(node in kept for node in incident.first[len(incident.first) - incident.late :])
    scoped = replace(incident, first=first, late=late, happenings=tuple(happenings))
    left_out = tuple(sorted({*scope.left_out, *(node for node in incident.first if node not in kept)}))
    return Scope(scoped, left_out, scope.dropped + len(incident.happenings) - len(happenings))
