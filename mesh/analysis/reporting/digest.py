"""The part of the tables that findings and pictures need: small enough for any driver.

Tables that grow with events are complete. From tables that grow with pairs of brokers or with time, Spark
returns the worst rows, or sums over all brokers (`mesh.analysis.reporting.gathering`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from mesh.analysis.results.tables import (
    Availability,
    Broker,
    Change,
    Churn,
    Clock,
    Detector,
    Drop,
    FileRow,
    Instant,
    Life,
    Link,
    Match,
    Part,
    PartSide,
    Survival,
    Traffic,
    View,
)


class Heartbeats(msgspec.Struct, frozen=True):
    """Sums over all links of a run."""

    run: str
    links: int
    heard: int
    """Surveys that arrived."""
    missed: int
    """Surveys that did not arrive, by their rounds."""
    answers: int
    rtt_p50_us: float | None
    rtt_p99_us: float | None
    rtt_min_us: int | None = None
    rtt_counts: list[int] = []
    """By the buckets of `mesh.analysis.carried.round_trips`."""


class Holes(msgspec.Struct, frozen=True):
    """The holes in a broker's log."""

    run: str
    node: str
    holes: int
    rows: int
    """Rows that are missing."""
    start: Instant
    """The longest hole."""
    end: Instant


class Mistaken(msgspec.Struct, frozen=True):
    """Mistakes about one member, by state and cause."""

    run: str
    subject: str
    state: str
    cause: str
    count: int
    observers: int
    longest_s: float | None


class Digest(msgspec.Struct, frozen=True):
    """Rows of the tables of these names; see `mesh.analysis.results.tables`."""

    files: list[FileRow]
    holes: list[Holes]
    """One row for each broker whose log has holes."""
    brokers: list[Broker]
    lives: list[Life]
    availability: list[Availability]
    churn: list[Churn]
    """At most `WINDOWS_MOST` windows of equal length for each run."""
    survival: list[Survival]
    parts: list[Part]
    part_sides: list[PartSide]
    changes: list[Change]
    """Only changes to ``dead`` and ``left``."""
    mistaken: list[Mistaken]
    detector: list[Detector]
    """The pooled rows."""
    views: list[View]
    """The windows in which members did not agree."""
    clocks: list[Clock]
    """For each boot the row with the largest error, offset from its wall clock, or steps."""
    links: list[Link]
    """The worst, at most `LINKS_MOST` for each run."""
    heartbeats: list[Heartbeats]
    traffic: list[Traffic]
    """Summed over brokers if there are more than `BROKERS_MOST`: then ``node`` is ``*``."""
    drops: list[Drop]
    matches: list[Match]


WINDOWS_MOST: Final = 240
LINKS_MOST: Final = 400
BROKERS_MOST: Final = 40
