"""Every table of the analysis, one class each. Spark's schema and the reference page are made from these.

An `Instant` is a moment in mesh time: microseconds since the epoch, a timestamp in the tables. Durations are
seconds. Brokers are named by id, 16 hex digits. None means not observable, never zero.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

Instant = Annotated[int, msgspec.Meta(extra={"spark": "timestamp"})]
"""Microseconds since the epoch, in mesh time."""

State = Literal["up", "paused", "down", "away", "unknown"]
"""The state of a process. ``away``: it left. ``unknown``: its log is lost, and nobody heard it."""

LifeEnd = Literal[
    "start", "restart", "crash", "power_off", "pause", "resume", "leave", "log lost", "heard again"
]
"""The cause that ended a stretch of a broker's life and began the next one."""

DeathCause = Literal["crash", "power_off", "paused", "cut off", "log lost", "mistaken", "left"]
"""Why a broker was reported dead. Only ``crash`` and ``power_off`` are failures."""

PartKind = Literal["complete", "partial", "one-way"]
"""``complete``: sides that heard nothing of each other. ``partial``: pairs that should be linked did not hear
each other, though both heard a third. ``one-way``: pairs of which only one heard the other."""


class Record(msgspec.Struct, frozen=True):
    """A row of a table. ``run`` is part of every key."""

    run: str


class FileRow(msgspec.Struct, frozen=True):
    """One log file."""

    run: str | None
    """None: no row could be read. A file with rows of two runs has two rows here."""
    file: str
    """Its path within the analysed folder."""
    bytes: int
    lines: int
    """All lines except empty ones: rows, duplicates, corrupt and unknown. In a file of two runs, those of the
    run; corrupt and unknown lines count for the first."""
    rows: int
    """Each number of a boot counts once."""
    corrupt: int
    """Lines that are not rows; they are in quarantine."""
    unknown: int
    """Rows of a version or kind that this program does not know; they are in quarantine."""
    duplicates: int
    """Rows whose number occurred before, in this file or in one whose path comes first."""
    conflicts: int
    """Rows that share their number with another row of different content, which was used instead."""
    gaps: int
    """Missing numbers between the file's first and last of each boot."""
    first: Instant | None
    """By the writer's wall clock."""
    last: Instant | None
    damage: str | None = None
    """The damage of a compressed or Parquet file that could not be read to its end. Its readable rows count,
    and the damage counts as one corrupt line. A log with bytes and no line is reported here, too, and
    a compressed or Parquet file of no byte. None: the file is sound."""


class Hole(Record, frozen=True):
    """Rows that are missing in the middle of a broker's log: a file is not there, or lines are damaged. What
    the broker heard meanwhile is not known, so it is neither an outage nor a partition."""

    node: str
    boot: str
    start: Instant
    """Of the last row before them. If the broker writes summaries, the start of the summary's window."""
    end: Instant
    """Of the first row after them."""
    rows: int


class Broker(Record, frozen=True):
    """One broker of a run, and its counters."""

    node: str
    name: str
    """As it calls itself. If its log is lost, as others call it."""
    host: str | None
    version: str | None
    boots: int
    """Boots that have a log."""
    period_s: float | None
    deadline_s: float | None
    stats_s: float | None
    published: int | None
    delivered: int | None
    dropped: int | None
    rss_bytes_max: int | None
    loop_late_ms_p50: float | None
    loop_late_ms_max: float | None


class Life(Record, frozen=True):
    """A stretch of one broker's life in one state. The stretches of a broker are consecutive."""

    node: str
    no: int
    """1, 2, 3 ... for each broker."""
    boot: str | None
    """None: no process ran, or it is not known which."""
    state: State
    start: Instant
    end: Instant
    cause: LifeEnd | None
    """The cause of its end. None: it was still open at the end of the logs."""
    truncated: bool
    """It began before the logs."""
    censored: bool
    """It was still open at the end of the logs."""
    error_s: float
    """Maximum error of ``end``."""
    met: Instant | None = None
    """When another broker first heard it in this time. None: nobody heard it, or no process ran."""


class Availability(Record, frozen=True):
    """The share of time in which a broker ran. A paused process is up, since it did not fail."""

    node: str
    up_s: float
    """Up or paused."""
    paused_s: float
    down_s: float
    away_s: float
    unknown_s: float
    failures: int
    availability: float | None
    """up_s / (up_s + down_s)"""
    mttf_s: float | None
    """up_s / failures"""
    mttr_s: float | None
    """Mean length of the stretches down that ended."""


class Churn(Record, frozen=True):
    """Changes in one window."""

    start: Instant
    window_s: float
    alive: int
    """Brokers up at the start of the window."""
    joins: int
    leaves: int
    failures: int
    rejoins: int
    rate: float
    """Godfrey's rate: the sum, over changes, of changed brokers divided by the larger of the sizes before and
    after; per second."""


class Survival(Record, frozen=True):
    """A point of a curve: the share of stretches that last longer than ``t_s``."""

    of: Literal["up", "down"]
    method: Literal["naive", "create-based", "kaplan-meier"]
    t_s: float
    at_risk: int
    ended: int
    survival: float
    low: float | None
    """The 95 % interval, by Greenwood's formula; only for Kaplan-Meier."""
    high: float | None


class Heard(Record, frozen=True):
    """Heartbeats of ``src`` that ``dst``, in one boot, heard in one window of ``dst``'s monotonic clock."""

    dst: str
    boot: str
    """The boot of ``dst``."""
    src: str
    window: int
    """The window's number: ``mono_ns`` divided by the window's length, which is 16 periods of ``dst``."""
    window_ns: int
    """Length of the window."""
    surveys: int
    answers: int
    first_ns: int
    """``mono_ns`` of the first and the last heartbeat."""
    last_ns: int
    first_round: int | None
    """The lowest and highest round of ``src`` among the surveys. Fewer surveys than rounds: some were
    lost."""
    last_round: int | None
    rtt_sum_us: int
    rtt_min_us: int | None
    rtt_max_us: int | None
    rtt_low: int
    """12-bit counters of round trips below 50, 100, 200, 400 and 800 us, the lowest bits first."""
    rtt_mid: int
    """Below 1.6, 3.2, 6.4, 12.8 and 25.6 ms."""
    rtt_high: int
    """Below 51.2, 102.4, 204.8 ms, 1 s, and longer."""
    slots: int
    """Bit ``i`` is set if anything was heard in the i-th 64th of the window, a quarter of a period. The 64
    bits are a signed number."""
    survey_round: int | None
    """The last survey of ``src`` whose round is a multiple of 16 or a power of two, which even a short life
    has, with the ``mono_ns`` of its arrival."""
    survey_ns: int | None
    answer_round: int | None
    """The same for the last answer to a round of ``dst``, with its round trip."""
    answer_ns: int | None
    answer_rtt_us: int | None


class Outage(Record, frozen=True):
    """``dst`` heard nothing of ``src`` for more than 2.2 periods, while ``dst`` ran."""

    src: str
    dst: str
    last: Instant | None
    """The last heartbeat before it. None: the outage existed when ``dst`` began to listen."""
    next: Instant | None
    """The first heartbeat after it. None: it lasted to the end of the logs, or of ``dst``."""
    expected: bool
    """The two should be linked."""
    cause: Literal["down", "paused", "away", "unknown", "cut"]
    """The state of ``src`` meanwhile. ``cut``: it ran."""
    error_s: float
    """Maximum error of ``last`` and ``next``: 0, or one slot where the log is a summary."""


class Part(Record, frozen=True):
    """The mesh in parts, or pairs in it that did not hear each other."""

    no: int
    start: Instant
    """The last heartbeat across."""
    end: Instant | None
    """The first heartbeat across after it. None: it had not healed at the end of the logs."""
    kind: PartKind
    majority: bool
    """One side has more than half of the running brokers."""


class PartSide(Record, frozen=True):
    """A broker in a part, and its side: 0 is the largest. One-way: side 0 was heard, side 1 was not."""

    no: int
    node: str
    side: int


class Change(Record, frozen=True):
    """A change of one member's state, and how it spread."""

    subject: str
    boot: str
    incarnation: int
    state: Literal["alive", "suspect", "dead", "left"]
    at: Instant | None
    """When it happened to the process. None: it did not happen, or the time is not known."""
    cause: DeathCause | None
    """Only for ``dead``."""
    reached: int
    """Members that reported it."""
    of: int
    """Members that ran meanwhile and could learn of it."""
    first_s: float | None
    """Seconds from ``at``, or from the first report if that is None, until the first, half, nine tenths, and
    the last of ``reached``."""
    p50_s: float | None
    p90_s: float | None
    last_s: float | None


class Mistake(Record, frozen=True):
    """``observer`` believed ``subject`` dead or suspect while it ran."""

    observer: str
    subject: str
    state: Literal["suspect", "dead"]
    start: Instant
    end: Instant | None
    cause: Literal["paused", "cut off", "mistaken"]


class Detector(Record, frozen=True):
    """How well failures were detected (Chen, Toueg, Aguilera 2002). ``*`` means all of them pooled."""

    observer: str
    subject: str
    exposure_s: float
    """Time in which both ran."""
    mistakes: int
    rate_per_h: float | None
    mistake_s: float | None
    """T_M: mean length of a mistake."""
    recurrence_s: float | None
    """T_MR: mean time from the start of a mistake to the start of the next."""
    accuracy: float | None
    """P_A: share of the exposure without a mistake."""
    failures: int
    missed: int
    """Failures that ended before anybody noticed."""
    detection_p50_s: float | None
    """T_D: from the failure to DEAD."""
    detection_p99_s: float | None


class View(Record, frozen=True):
    """The agreement of members about who is present, at the end of a window."""

    start: Instant
    window_s: float
    observers: int
    distinct: int
    agree: float
    """Share of the observers that have the most common view."""


class Clock(Record, frozen=True):
    """A boot's clocks in ten minutes: mesh time is ``mono_ns`` plus ``offset_s``."""

    node: str
    boot: str
    start: Instant
    offset_s: float
    error_s: float | None
    """Half of the round trips that it is based on, in sequence. None: it is based on its wall clock, since
    nobody heard it."""
    wall_s: float
    """How far its wall clock was ahead of mesh time."""
    steps: int
    """Jumps of its wall clock by more than 0.1 s."""


class Link(Record, frozen=True):
    """A link, with the counters of ``node``, which are None if it wrote no `stats` row."""

    node: str
    peer: str
    msgs_in: int | None
    msgs_out: int | None
    bytes_in: int | None
    bytes_out: int | None
    dropped: int | None
    lost: int | None
    answers: int
    rtt_p50_us: float | None
    rtt_p99_us: float | None
    missed: int | None
    """Surveys of ``peer`` that did not arrive, by its rounds."""


class Traffic(Record, frozen=True):
    """The traffic of a broker in one window. The counts are None if the files before it are gone, since
    brokers write sums."""

    start: Instant
    window_s: float
    node: str
    published: int | None
    delivered: int | None
    owed: int | None
    """Messages that should have been delivered: delivered ones, and drops that were counted."""
    dropped: int | None
    msgs_out: int | None
    bytes_out: int | None
    loop_late_ms_max: float | None
    rss_bytes: int | None


class Drop(Record, frozen=True):
    """Messages that a broker dropped, by reason."""

    node: str
    reason: str
    count: int


class Match(Record, frozen=True):
    """An effect of a simulation's faults, compared with the findings of the analysis."""

    of: Literal["part", "crash", "power_off", "pause", "leave"]
    truth: str | None
    """The effect in words. None: there was none (fp)."""
    found: str | None
    """None: nothing was found (fn, below resolution, not observable)."""
    verdict: Literal["tp", "fp", "fn", "below resolution", "not observable"]
    """Not observable: the logs that could tell of it are lost."""
    at: Instant
    start_lag_s: float | None
    end_lag_s: float | None


TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "files": FileRow,
    "holes": Hole,
    "brokers": Broker,
    "lives": Life,
    "availability": Availability,
    "churn": Churn,
    "survival": Survival,
    "heard": Heard,
    "outages": Outage,
    "parts": Part,
    "part_sides": PartSide,
    "changes": Change,
    "mistakes": Mistake,
    "detector": Detector,
    "views": View,
    "clocks": Clock,
    "links": Link,
    "traffic": Traffic,
    "drops": Drop,
    "matches": Match,
}
"""Records by the name of their folder."""
