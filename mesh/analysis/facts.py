"""What the logs say, as small records: what the decisions of the analysis are made from.

Heartbeats are not among them: they are reduced to `mesh.analysis.results.tables.Heard`. `Instant` is in mesh
time, by `mesh.analysis.clocks`.
"""

from __future__ import annotations

import msgspec

from mesh.analysis.results.tables import Instant


class Boot(msgspec.Struct, frozen=True):
    """One start of one broker, by its own log; from `Said` of others only if its log is lost."""

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
    """Its first row and its last."""
    last: Instant
    first_seq: int
    last_seq: int
    rows: int
    """0: its log is lost; it is known from what others said."""
    stopped: Instant | None
    """Its `meta` row of op ``stop``."""
    reason: str | None
    """Why it stopped: ``leave``, or an error."""
    left: Instant | None
    """Its own row that it leaves."""
    torn: bool
    """Its last line is no row: it was cut off in the middle, as a power loss does it, or is being written."""


class Said(msgspec.Struct, frozen=True):
    """A `mem` row: ``node`` says of ``subject`` that it changed its state."""

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
    """Of ``dst``."""
    first: Instant
    last: Instant
    error_s: float


class Late(msgspec.Struct, frozen=True):
    """A `stats` row that says that the loop was late: a sign of a pause."""

    run: str
    node: str
    boot: str
    at: Instant
    late_s: float
