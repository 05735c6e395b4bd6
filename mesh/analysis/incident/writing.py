"""An incident in the tables as a scenario file's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Final

from mesh.analysis.carried.round_trips import tail
from mesh.analysis.incident.happenings import incident
from mesh.analysis.incident.scenario_text import RoundTrips, Setting, scenario_text
from mesh.analysis.incident.scope import Scope, around, at_most
from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.analysis.reporting.digest import Digest
    from mesh.analysis.reporting.findings import Findings, RunFound
    from mesh.analysis.results.tables import Instant, Outage

TAIL_FACTOR: Final = 8.0
NAMED_MOST: Final = 8
"""Runs that an error names."""
WITHIN_S: Final = 60.0
"""The time around the requested one, unless another is requested."""


class NoScenario(MeshError):
    """There is nothing to make a scenario from. The message says why."""


def write_scenario(
    found: Findings,
    digest: Digest,
    outages: Iterable[Outage],
    *,
    run: str | None = None,
    at: Instant | None = None,
    within_s: float = WITHIN_S,
) -> str:
    """The scenario of a run, which needs no name if it is the only one. ``at`` limits it to events around
    that time.

    Raises:
        NoScenario: nothing happened, something happened to too many, or ``run`` does not name a run.
    """
    return _write(chosen_run(found.runs, run), digest, outages, at, within_s)


def _write(
    run: RunFound, digest: Digest, outages: Iterable[Outage], at: Instant | None, within_s: float
) -> str:
    period_s = run.period_s or 1.0
    try:
        told = incident(
            [row for row in digest.lives if row.run == run.run],
            [row for row in digest.parts if row.run == run.run],
            [row for row in digest.part_sides if row.run == run.run],
            [row for row in outages if row.run == run.run],
            period_s=period_s,
        )
        scope = Scope(told, (), 0) if at is None else around(told, at, within_s)
        if at is not None and told.happenings and not scope.incident.happenings:
            raise ValueError(_nothing_near(at, within_s, scope.dropped))
        return scenario_text(
            at_most(scope),
            Setting(
                run=run.run,
                names={broker.node: broker.name for broker in run.brokers},
                period_s=period_s,
                deadline_s=run.deadline_s or period_s / 2,
                round_trips=_round_trips(run.run, digest),
                published_per_s=run.traffic.get("published", 0) / max(1e-6, (run.ended - run.started) / 1e6),
                verdict=[run.verdict],
            ),
        )
    except ValueError as error:
        raise NoScenario(str(error)) from error


def _nothing_near(at: Instant, within_s: float, outside: int) -> str:
    near = datetime.fromtimestamp(at // 1_000_000, UTC)
    events = "1 event" if outside == 1 else f"{outside:,} events"
    return (
        f"nothing happened to brokers or links within {within_s:g} s of {near:%H:%M:%S} UTC, but {events} "
        "happened outside of that time; name a longer time with --within"
    )


def parse_moment(text: str) -> datetime | time:
    """A time from a user: ``14:03:20``, or with its date. Without a zone it is UTC.

    Raises:
        ValueError: it is not a time.
    """
    try:
        if "-" not in text:
            return datetime.strptime(text, _clock_form(text)).time()
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; give one such as 14:03:20 or 2026-01-31T14:03:20Z"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def moment_of(text: str, started: Instant, ended: Instant) -> Instant:
    """The instant of a time in the form of `parse_moment`. A time without a date is the first such after the
    run began.

    Raises:
        ValueError: it is not a time, or lies outside of the run.
    """
    begun, over = (datetime.fromtimestamp(at // 1_000_000, UTC) for at in (started, ended))
    parsed = parse_moment(text)
    moment = parsed if isinstance(parsed, datetime) else datetime.combine(begun.date(), parsed, UTC)
    at = round(moment.timestamp() * 1e6)
    if not isinstance(parsed, datetime) and at < started - 1_000_000:
        at += 86_400_000_000  # past midnight
    if not started - 1_000_000 <= at <= ended + 1_000_000:
        form = "%Y-%m-%dT%H:%M:%SZ"
        raise ValueError(f"{text} is outside of the run, from {begun:{form}} to {over:{form}}")
    return at


def _clock_form(text: str) -> str:
    return "%H:%M:%S.%f" if "." in text else "%H:%M:%S" if text.count(":") == 2 else "%H:%M"


def chosen_run(runs: Sequence[RunFound], name: str | None) -> RunFound:
    """The run of this name, or the only one.

    Raises:
        NoScenario: there is no such run, or there are several.
    """
    names = ", ".join(run.run for run in runs[:NAMED_MOST]) + (" ..." if len(runs) > NAMED_MOST else "")
    for run in runs:
        if run.run == name or (name is None and len(runs) == 1):
            return run
    if name is not None:
        raise NoScenario(f"the logs hold no run {name!r}; name one of these with --run: {names}")
    raise NoScenario(
        f"a scenario is made of one run, and the logs hold {len(runs)}; name one with --run: {names}"
    )


def _round_trips(run: str, digest: Digest) -> RoundTrips | None:
    beats = next((row for row in digest.heartbeats if row.run == run), None)
    if beats is None or beats.rtt_p50_us is None or beats.rtt_min_us is None:
        return None
    share, typical_us = tail(beats.rtt_counts, beats.rtt_p50_us, TAIL_FACTOR)
    return RoundTrips(beats.rtt_min_us, beats.rtt_p50_us, share, typical_us)
