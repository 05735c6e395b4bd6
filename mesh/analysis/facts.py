"""Small records of what the logs say. The decisions of the analysis are made from these.

Heartbeats are not included: they are reduced to `mesh.analysis.results.tables.Heard`. `Instant` is in mesh
time, from `mesh.analysis.clocks`.
"""

from __future__ import annotations

import msgspec

from mesh.analysis.results.tables import Instant


class Boot(msgspec.Struct, frozen=True):
    """One start of one broker, from its own log. If the log is lost, only `Said` records of others tell about
    it."""

    run: str
    node: str
    boot: str
    name: str
    host: str | None
    version: str | None
    period_s: float
    deadline_s: float
    stats_s: float
    first: Instant
    """Instants of its first and its last row."""
    last: Instant
    told: Instant
    """The end of the time for which its rows say what it heard. A killed broker's last window of summaries is
    lost."""
    first_seq: int
    last_seq: int
    rows: int
    """0: its log is lost, and only others' records tell about it."""
    stopped: Instant | None
    """From its `meta` row of op ``stop``."""
    reason: str | None
    """Why it stopped: ``leave``, or an error."""
    left: Instant | None
    """From its own row that it leaves."""
    torn: bool
    """Its last line is incomplete: a power loss cut it off, or it is still being written."""


class Said(msgspec.Struct, frozen=True):
    """A `mem` row: ``node`` reports that ``subject`` changed its state."""

    run: str
    node: str
    boot: str
    at: Instant
    subject: str
    subject_name: str
    subject_boot: str
    incarnation: int
    from_state: str
    to_state: str
    reason: str
    via: str


class Linked(msgspec.Struct, frozen=True):
    """A `link` row: the link of ``node`` to ``peer`` came up or went down."""

    run: str
    node: str
    boot: str
    at: Instant
    peer: str
    out: bool
    """``node`` dialled."""
    up: bool
    reason: str


class Stretch(msgspec.Struct, frozen=True):
    """One run of heartbeats of ``src`` at ``dst`` without a gap of more than 2.2 periods (from `Heard`)."""

    run: str
    src: str
    dst: str
    boot: str
    """The boot of ``dst``."""
    first: Instant
    last: Instant
    error_s: float
    resumed: bool = False
    """It began as its listener resumed after a stop, which read at once what had waited for it."""


class Late(msgspec.Struct, frozen=True):
    """A `stats` row that reports a late loop: a sign of a pause."""

    run: str
    node: str
    boot: str
    at: Instant
    late_s: float
