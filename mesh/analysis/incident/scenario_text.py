"""An incident as a scenario file for `mesh simulate`. Pure.

The format is that of docs/reference/scenario-format.md. Measured values (period, deadline, round trips) are
written as measured. Comments at the top name what logs cannot tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesh.analysis.incident.happenings import Happening
from mesh.analysis.incident.scope import Scope

CALM_S: Final = 3.0
"""The first fault comes this long after the start of the safety phase."""
AFTERMATH_S: Final = 5.0
"""The safety phase continues for this long after the last fault ended."""
BEGIN_SHARE: Final = 0.25
"""The last heartbeat across comes, on average, this share of a period before a cut."""
END_SHARE: Final = 0.6
"""The first heartbeat across comes this share of a period after a heal."""
LEAST_S: Final = 0.2
"""Minimum duration of a fault."""
TAIL_SHARE_LEAST: Final = 0.001
NAMES_IN_LINE: Final = 8
PUBLISHERS_MOST: Final = 20
RATE_MOST: Final = 200.0
"""Messages per second. A scenario with more plays slower than the original."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round trips of the heartbeats, in microseconds."""

    least_us: float
    p50_us: float
    tail_share: float
    """Share of the round trips that took more than eight times the median."""
    tail_us: float
    """How long these took, at the median."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Facts about the mesh besides the events."""

    run: str
    names: Mapping[str, str]
    """By id."""
    period_s: float
    deadline_s: float
    round_trips: RoundTrips | None
    published_per_s: float | None
    verdict: Sequence[str]
    """The findings of the analysis, one sentence each."""


def scenario_text(scope: Scope, setting: Setting) -> str:
    """The text of the scenario file. The same incident always gives the same text.

    Raises:
        ValueError: nothing happened.
    """
    incident = scope.incident
    if not incident.happenings:
        raise ValueError("nothing happened to brokers or links, so there is nothing to make a scenario of")
    numbers = {node: f"broker-{number}" for number, node in enumerate(incident.first, 1)}
    blows = incident.happenings
    zero = blows[0].at - round(CALM_S * 1e6)
    faults = [_fault(each, numbers, zero, setting.period_s) for each in blows]
    lines = [
        *_comments(scope, setting, numbers),
        f"name = {_text(_scenario_name(setting.run))}",
        f"summary = {_text('an incident of ' + _plain(setting.run) + ', from its event logs')}",
        f"brokers = {len(incident.first) - incident.late}",
    ]
    if incident.late:
        lines.append(f"spares = {incident.late}")
    lines += [f"period_s = {setting.period_s:g}", f"deadline_s = {setting.deadline_s:g}"]
    last = max(each.until or each.at for each in blows)
    lines.append(f"safety_s = {_seconds((last - zero) / 1e6 + AFTERMATH_S)}")
    return (
        "\n".join(
            [*lines, *_network(setting.round_trips), *_workload(setting.published_per_s), *_flat(faults)]
        )
        + "\n"
    )


def _fault(each: Happening, numbers: Mapping[str, str], zero: int, period_s: float) -> list[str]:
    at_s = (each.at - zero) / 1e6
    for_s = None if each.until is None else (each.until - each.at) / 1e6
    if each.kind in ("partition", "cut_one_way"):
        at_s += BEGIN_SHARE * period_s
        if for_s is not None:
            for_s = max(LEAST_S, for_s - (BEGIN_SHARE + END_SHARE) * period_s)
    lines = [
        "",
        "[[fault]]",
        f"at_s = {_seconds(at_s)}",
        f'kind = "{each.kind}"',
        f"a = {_who(each.a, numbers)}",
    ]
    if each.b:
        lines.append(f"b = {_who(each.b, numbers)}")
    if for_s is not None and each.kind != "start":
        lines.append(f"for_s = {_seconds(max(LEAST_S, for_s))}")
    return lines


def _comments(scope: Scope, setting: Setting, numbers: Mapping[str, str]) -> list[str]:
    def named(nodes: Iterable[str]) -> str:
        return ", ".join(_plain(setting.names.get(node, node)) for node in nodes)

    lines = [f"# What happened in the mesh {_plain(setting.run)}, by its event logs.", "#"]
    lines += [f"# {_plain(sentence)}" for sentence in setting.verdict]
    lines += ["#", "# The brokers by their first sign:"]
    lines += [f"#   {number} was {named([node])}" for node, number in numbers.items()]
    if scope.left_out:
        lines.append(
            f"# Not played, since nothing is known to have happened to them: {named(scope.left_out)}"
        )
    if scope.dropped:
        outside = "1 more event lies" if scope.dropped == 1 else f"{scope.dropped:,} more events lie"
        lines.append(f"# {outside} outside of what was asked for.")
    lines += [
        "#",
        "# The logs do not tell:",
        "# * packets that TCP sent again (they show as long round trips only);",
        "# * who published and subscribed to what; the workload below has the rate alone.",
    ]
    for each in scope.incident.untold:
        lines.append(f"# * {named(each.nodes)}: {_plain(each.what)}")
    return [*lines, ""]


def _network(trips: RoundTrips | None) -> list[str]:
    if trips is None:
        return []
    latency_s = trips.least_us / 2e6
    jitter_s = max(0.0, trips.p50_us - trips.least_us) / 2e6
    lines = ["", "[network]", f"latency_s = {_fine(latency_s)}", f"jitter_s = {_fine(jitter_s)}"]
    if jitter_s:
        lines.append('shape = "exponential"')
    if trips.tail_share >= TAIL_SHARE_LEAST:
        # A round trip has two ways, each of which may be the slow one.
        lines += [f"tail = {min(0.5, trips.tail_share / 2):.4f}", f"tail_s = {_fine(trips.tail_us / 1e6)}"]
    return lines


def _workload(published_per_s: float | None) -> list[str]:
    lines = ["", "[workload]"]
    if not published_per_s:
        return [*lines, "publishers = 1", "subscribers = 1", "pause_s = 0.5"]
    rate = min(RATE_MOST, published_per_s)
    publishers = max(1, min(PUBLISHERS_MOST, round(rate / 10)))
    if published_per_s > RATE_MOST:
        lines.append(f"# It was {published_per_s:.0f} messages a second.")
    return [*lines, f"publishers = {publishers}", "subscribers = 2", f"pause_s = {_fine(publishers / rate)}"]


def _who(nodes: Sequence[str], numbers: Mapping[str, str]) -> str:
    names = sorted((numbers[node] for node in nodes), key=lambda name: int(name.rpartition("-")[2]))
    if len(names) == 1:
        return _text(names[0])
    rows = [names[start : start + NAMES_IN_LINE] for start in range(0, len(names), NAMES_IN_LINE)]
    texts = [", ".join(map(_text, row)) for row in rows]
    return f"[{texts[0]}]" if len(texts) == 1 else "[\n    " + ",\n    ".join(texts) + ",\n]"


def _scenario_name(run: str) -> str:
    """A name that the format allows: the run's, without characters that it does not allow."""
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    return f"incident-{plain}"[:48].rstrip("-")


def _plain(text: str) -> str:
    """One line without control characters, so that a name from a log cannot end a comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _text(text: str) -> str:
    """A TOML string, which JSON's is for printable text."""
    return json.dumps(text, ensure_ascii=False)


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.2f}".rstrip("0").rstrip(".")


def _fine(seconds: float) -> str:
    return f"{max(1e-6, seconds):.6f}".rstrip("0").rstrip(".")


def _flat(lists: Iterable[list[str]]) -> list[str]:
    return [line for lines in lists for line in lines]
