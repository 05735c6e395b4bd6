"""Every table of the analysis, a class each. Spark's schema and the reference page are made from these.

An `Instant` is a moment in mesh time: microseconds since the epoch, a timestamp in the tables. Durations are
seconds. Brokers are named by id, 16 hex digits. None means not observable, never zero.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

Instant = Annotated[int, msgspec.Meta(extra={"spark": "timestamp"})]
"""Microseconds since the epoch, in mesh time."""

State = Literal["up", "paused", "down", "away", "unknown"]
"""What a process did. ``away``: it left. ``unknown``: its log is lost, and nobody heard it."""

LifeEnd = Literal[
    "start", "restart", "crash", "power_off", "pause", "resume", "leave", "log lost", "heard again"
]
"""What ended a stretch of a broker's life: what began the next one."""

DeathCause = Literal["crash", "power_off", "paused", "cut off", "log lost", "mistaken", "left"]
"""Why a broker was held dead. Only ``crash`` and ``power_off`` are failures."""

PartKind = Literal["complete", "partial", "one-way"]
"""``complete``: sides that heard nothing of each other. ``partial``: pairs that ought to be linked did not
hear each other, though both heard a third. ``one-way``: pairs of which only one heard the other."""


class Record(msgspec.Struct, frozen=True):
    """A row of a table; ``run`` is part of every key."""

    run: str


class FileRow(msgspec.Struct, frozen=True):
    """One log file."""

    run: str | None
    """None: not one row could be read. A file with rows of two runs has two rows here."""
    file: str
    """Its path from the analysed folder on."""
    bytes: int
    lines: int
    """All but empty ones: rows, duplicates, corrupt and unknown. In a file of two runs, those of the run; the
    corrupt and unknown ones stand with the first."""
    rows: int
    """Each number of a boot once."""
    corrupt: int
    """Lines that are no rows; they are in quarantine."""
    unknown: int
    """Rows of a version or kind that this program does not know; they are in quarantine."""
    duplicates: int
    """Rows whose number stood before, in this file or in one whose path comes first."""
    conflicts: int
    """Rows that share their number with another one of different content, which was read in their place."""
    gaps: int
    """Numbers that are missing between the file's first and last of each boot."""
    first: Instant | None
    """By the writer's wall clock."""
    last: Instant | None


class Broker(Record, frozen=True):
    """One broker of a run, and what it counted."""

    node: str
    name: str
    host: str | None
    version: str | None
    boots: int
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
    """A stretch of one broker's life in one state. Stretches of a broker follow one another."""

    node: str
    no: int
    """1, 2, 3 ... for each broker."""
    boot: str | None
    """None: no process ran, or nobody knows which."""
    state: State
    start: Instant
    end: Instant
    cause: LifeEnd | None
    """What ended it; None: it lasted when the logs end."""
    truncated: bool
    """It had begun before the logs do."""
    censored: bool
    """It lasted when the logs end."""
    error_s: float
    """How far ``end`` may be from the truth."""


class Availability(Record, frozen=True):
    """How much of the time a broker ran. A paused process is up, since it did not fail."""

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
    """Brokers up when the window begins."""
    joins: int
    leaves: int
    failures: int
    rejoins: int
    rate: float
    """Godfrey's: the sum, over changes, of changed brokers over the larger of the sizes before and after; for
    each second."""


class Survival(Record, frozen=True):
    """A point of a curve: the share of stretches that last longer than ``t_s``."""

    of: Literal["up", "down"]
    method: Literal["naive", "create-based", "kaplan-meier"]
    t_s: float
    at_risk: int
    ended: int
    survival: float
    low: float | None
    """The interval of 95 %, by Greenwood's formula; only of Kaplan-Meier."""
    high: float | None


class Heard(Record, frozen=True):
    """What ``dst``, in one boot, heard of ``src`` in one window of ``dst``'s monotonic clock."""

    dst: str
    boot: str
    """Of ``dst``."""
    src: str
    window: int
    """The window's number: ``mono_ns`` over the window's length, which is 16 periods of ``dst``."""
    window_ns: int
    """Length of the window."""
    surveys: int
    answers: int
    first_ns: int
    """``mono_ns`` of the first and the last heartbeat."""
    last_ns: int
    first_round: int | None
    """Of the surveys: the lowest and highest round of ``src``. Fewer surveys than rounds: some were lost."""
    last_round: int | None
    rtt_sum_us: int
    rtt_min_us: int | None
    rtt_max_us: int | None
    rtt_low: int
    """Counters of 12 bits of round trips below 50, 100, 200, 400 and 800 us, the lowest bits first."""
    rtt_mid: int
    """Below 1.6, 3.2, 6.4, 12.8 and 25.6 ms."""
    rtt_high: int
    """Below 51.2, 102.4, 204.8 ms, 1 s, and longer."""
    slots: int
    """Bit ``i`` is set if anything was heard in the i-th 64th of the window, a quarter of a period. The
    64 bits are a signed number."""
    survey_round: int | None
    """Of the last survey of ``src`` whose round is a multiple of 16, or a power of two, which a short life
    has, too; with the ``mono_ns`` of its arrival."""
    survey_ns: int | None
    answer_round: int | None
    """The same of the last answer to a round of ``dst``, and its round trip."""
    answer_ns: int | None
    answer_rtt_us: int | None


class Outage(Record, frozen=True):
    """``dst`` heard nothing of ``src`` for more than 2.2 periods, while ``dst`` ran."""

    src: str
    dst: str
    last: Instant | None
    """The last heartbeat before it; None: it was there when ``dst`` began to listen."""
    next: Instant | None
    """The first after it; None: it lasted when the logs, or ``dst``, end."""
    expected: bool
    """The two ought to be linked."""
    cause: Literal["down", "paused", "away", "unknown", "cut"]
    """What ``src`` did meanwhile; ``cut``: it ran."""
    error_s: float
    """How far ``last`` and ``next`` may be from the truth: 0, or a slot where the log is a summary."""


class Part(Record, frozen=True):
    """The mesh in parts, or pairs in it that did not hear each other."""

    no: int
    start: Instant
    """The last heartbeat across."""
    end: Instant | None
    """The first heartbeat across after it; None: it had not healed when the logs end."""
    kind: PartKind
    majority: bool
    """One side holds more than half of the brokers that ran."""


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
    """When it happened to the process; None: it did not, or nobody knows."""
    cause: DeathCause | None
    """Of ``dead`` only."""
    reached: int
    """Members that said so."""
    of: int
    """Members that ran meanwhile and could hear of it."""
    first_s: float | None
    """From ``at``, else from the first that said so: to the first, half, nine tenths, last of ``reached``."""
    p50_s: float | None
    p90_s: float | None
    last_s: float | None


class Mistake(Record, frozen=True):
    """``observer`` held ``subject`` for dead, or for suspect, while it ran."""

    observer: str
    subject: str
    state: Literal["suspect", "dead"]
    start: Instant
    end: Instant | None
    cause: Literal["paused", "cut off", "mistaken"]


class Detector(Record, frozen=True):
    """How well failures were detected (Chen, Toueg, Aguilera 2002). ``*`` stands for all of them pooled."""

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
    """Failures that were over before anybody noticed."""
    detection_p50_s: float | None
    """T_D: from the failure to DEAD."""
    detection_p99_s: float | None


class View(Record, frozen=True):
    """Whether members agree on who is there, at the end of a window."""

    start: Instant
    window_s: float
    observers: int
    distinct: int
    agree: float
    """Share of the observers that hold the most common view."""


class Clock(Record, frozen=True):
    """A boot's clocks in ten minutes: mesh time is ``mono_ns`` plus ``offset_s``."""

    node: str
    boot: str
    start: Instant
    offset_s: float
    error_s: float | None
    """Half of the round trips it stands on, one after the other; None: it stands on its wall clock, since
    nobody heard it."""
    wall_s: float
    """How far its wall clock was ahead of mesh time."""
    steps: int
    """Jumps of its wall clock by more than 0.1 s."""


class Link(Record, frozen=True):
    """A link as ``node`` counted it."""

    node: str
    peer: str
    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    lost: int
    answers: int
    rtt_p50_us: float | None
    rtt_p99_us: float | None
    missed: int | None
    """Surveys of ``peer`` that did not arrive, by its rounds."""


class Traffic(Record, frozen=True):
    """What a broker did in one window."""

    start: Instant
    window_s: float
    node: str
    published: int
    delivered: int
    owed: int | None
    """What should have been delivered: delivered, and drops that were counted."""
    dropped: int
    msgs_out: int
    bytes_out: int
    loop_late_ms_max: float | None
    rss_bytes: int | None


class Drop(Record, frozen=True):
    """Messages that a broker dropped, by reason."""

    node: str
    reason: str
    count: int


class Match(Record, frozen=True):
    """What a simulation did, beside what the analysis found."""

    of: Literal["part", "crash", "power_off", "pause", "leave"]
    truth: str | None
    """What was done, in words; None: nothing was (fp)."""
    found: str | None
    """None: nothing was found (fn, below resolution)."""
    verdict: Literal["tp", "fp", "fn", "below resolution"]
    at: Instant
    start_lag_s: float | None
    end_lag_s: float | None


TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "files": FileRow,
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
"""By name of the folder it lies in."""
