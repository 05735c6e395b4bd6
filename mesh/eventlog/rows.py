"""Every row of the event log, one class each. Pure.

The broker's writer, the schema with which Spark reads, the checks of the rows read, and the reference page
are made from these classes.

A column without a default is required: a line without it is no row. Writers write all of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

VERSION: Final = 1
Id = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""16 hex digits."""
Time = Annotated[str, Meta(pattern=r"^(19[7-9]|2\d\d)\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$")]
"""RFC 3339 in UTC, from 1970 to 2999."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Sums of many fit into 64 bits."""
NANOS_MAX: Final = 10**18
Nanos = Annotated[int, Meta(ge=0, le=NANOS_MAX)]
"""On the monotonic clock: 31 years at most."""
ROUND_MAX: Final = 2**53
Round = Annotated[int, Meta(ge=0, le=ROUND_MAX)]
SEQ_MAX: Final = 2**43
"""70 years of 4,000 rows a second."""
Seconds = Annotated[float, Meta(ge=1e-6, le=1e6)]
MICROS_MAX: Final = 10**13
Micros = Annotated[int, Meta(ge=0, le=MICROS_MAX)]
"""Four months at most, so that sums of many fit into 64 bits."""
Counters = Annotated[int, Meta(ge=0, lt=2**60)]
"""Five counters of 12 bits."""
Lateness = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""Milliseconds, 31 years at most."""
State = Literal["unknown", "alive", "suspect", "dead", "left"]


class Row(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=False):
    """The columns of every row."""

    v: Literal[1]
    """version of the schema, 1"""
    run: Annotated[str, Meta(min_length=1)]
    """name of the mesh"""
    ts: Time
    """wall clock, RFC 3339, UTC, microseconds, `Z`"""
    mono_ns: Nanos
    """monotonic clock of the writer; compare only within one boot"""
    node: Id
    """id of the broker that wrote the row, 16 hex digits"""
    boot: Id
    """drawn at each start of the broker, 16 hex digits"""
    inc: int
    """the writer's incarnation"""
    seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    """1, 2, 3 ... without a gap for one (`node`, `boot`)"""


class MetaRow(Row, frozen=True, kw_only=True, tag="meta", omit_defaults=True):
    """The broker starts, goes on or stops. It goes on in a further file, so that files can be read when
    earlier ones are removed. It also goes on when it begins or ends to sum up heartbeats in windows. A boot
    without a stop row ended without a shutdown."""

    op: Literal["start", "continue", "stop"]
    """start, continue or stop"""
    name: str | None = None
    """name of the broker"""
    host: str | None = None
    """name of its host"""
    pid: int | None = None
    """id of its process"""
    version: str | None = None
    """version of the program"""
    period_s: Seconds | None = None
    """seconds between two surveys"""
    deadline_s: Seconds | None = None
    """seconds within which a survey must be answered"""
    stats_s: Annotated[float, Meta(ge=1e-6, le=1e12)] | None = None
    """seconds between two `stats` rows"""
    window_ns: Annotated[int, Meta(ge=64)] | None = None
    """length of the windows of its `heard` rows; null: each heartbeat has a row"""
    url: str | None = None
    """where peers dial it"""
    reason: str | None = None
    """reason of a stop: `leave` or the error that ended it"""


class HbRow(Row, frozen=True, kw_only=True, tag="hb"):
    """A survey or an answer was heard (`log_heartbeats = "each"`). Brokers judge members by the answers."""

    msg: Literal["survey", "answer"]
    """another broker asked the writer, or answered it"""
    src: Id
    """id of the sender"""
    dst: Id
    """id of the receiver, which is `node`"""
    hb_seq: Round
    """the round, numbered by the broker that asked"""
    rtt_us: Micros | None = None
    """answers: round trip in microseconds; surveys: null"""


class HeardRow(Row, frozen=True, kw_only=True, tag="heard"):
    """Everything that the writer heard from one peer in one window (`log_heartbeats = "summary"`). A window
    that spans two files has a row in each; they add up."""

    src: Id
    """id of the peer"""
    window: Nanos
    """number of the window: `mono_ns` divided by its length, rounded down"""
    window_ns: Annotated[int, Meta(ge=64)]
    """length of the window: 16 periods of the writer"""
    surveys: Annotated[int, Meta(ge=0, lt=2**31)]
    """surveys of the peer that arrived"""
    answers: Annotated[int, Meta(ge=0, lt=2**31)]
    """answers of the peer that arrived"""
    first_ns: Nanos
    """`mono_ns` of the first heartbeat"""
    last_ns: Nanos
    """`mono_ns` of the last heartbeat"""
    first_round: Round | None = None
    """lowest round of the surveys"""
    last_round: Round | None = None
    """highest round of the surveys"""
    rtt_sum_us: Micros = 0
    """sum of the round trips"""
    rtt_min_us: Micros | None = None
    """shortest round trip"""
    rtt_max_us: Micros | None = None
    """longest round trip"""
    rtt_low: Counters = 0
    """counters of 12 bits of round trips below 50, 100, 200, 400 and 800 us, the lowest bits first"""
    rtt_mid: Counters = 0
    """below 1.6, 3.2, 6.4, 12.8 and 25.6 ms"""
    rtt_high: Counters = 0
    """below 51.2, 102.4, 204.8 ms, 1 s, and longer"""
    slots: int
    """64 bits, signed: bit `i` is set if anything was heard in the i-th 64th of the window"""
    survey_round: Round | None = None
    """round of the last survey whose round is a multiple of 16 or a power of two"""
    survey_ns: Nanos | None = None
    """`mono_ns` of its arrival"""
    answer_round: Round | None = None
    """round of the last answer to such a round"""
    answer_ns: Nanos | None = None
    """`mono_ns` of its arrival"""
    answer_rtt_us: Micros | None = None
    """its round trip"""


class MemRow(Row, frozen=True, kw_only=True, tag="mem"):
    """A member changed its state in the writer's view. A broker that leaves writes a row about itself with
    `to_state` `left`."""

    subject: Id
    """id of the member"""
    subject_name: str | None = None
    """its name"""
    subject_boot: Id
    """its boot"""
    subject_inc: Count
    """its incarnation"""
    from_state: State
    """`unknown`, `alive`, `suspect`, `dead` or `left`"""
    to_state: State
    """the new state, one of the same"""
    reason: str | None = None
    """reason, one phrase"""
    via: str | None = None
    """id of the broker that reported it, which is `node` if the writer saw it itself"""


class LinkRow(Row, frozen=True, kw_only=True, tag="link"):
    """A link to another broker came up or went down."""

    peer: Id
    """id of the other broker"""
    dir: Literal["out", "in"] | None = None
    """`out` if the writer dialled"""
    state: Literal["up", "down"]
    """the new state"""
    reason: str | None = None
    """reason"""


class LinkCounters(msgspec.Struct, frozen=True):
    """A link of a `stats` row, counted since boot."""

    peer: Id
    """id of the other broker"""
    msgs_in: Count | None = None
    """messages from it"""
    msgs_out: Count | None = None
    """messages to it"""
    bytes_in: Count | None = None
    """bytes from it"""
    bytes_out: Count | None = None
    """bytes to it"""
    dropped: Count | None = None
    """messages that were not sent to it"""
    lost: Count | None = None
    """gaps in the numbering of messages from it"""
    rtt_us: int | None = None
    """round trip in microseconds; null if unknown"""


class QueueCounters(msgspec.Struct, frozen=True):
    """A durable subscription in a `stats` row; the fields are those of the status."""

    name: str | None = None
    waiting: int | None = None
    bytes: int | None = None
    oldest_s: float | None = None
    consumers: int | None = None
    in_flight: int | None = None
    to_redeliver: int | None = None
    delivered: int | None = None
    redelivered: int | None = None
    settled: int | None = None
    retried: int | None = None
    buried: int | None = None


class JournalCounters(msgspec.Struct, frozen=True):
    """The journal in a `stats` row; the fields are those of the status."""

    failing: str | None = None
    stored: int | None = None
    duplicates: int | None = None
    refused: int | None = None
    commits: int | None = None
    commit_ms_p50: float | None = None
    commit_ms_p99: float | None = None


class StatsRow(Row, frozen=True, kw_only=True, tag="stats", omit_defaults=True):
    """Counters since boot, and the event loop's lateness in the last interval: every `stats_s`, and at the
    stop."""

    published: Count
    """messages that clients published here"""
    delivered: Count
    """messages delivered to clients here; it falls by those that were in flight on a lost link or session"""
    dropped: Count
    """messages that were dropped"""
    loop_late_ms_p50: Lateness | None = None
    """how late the event loop ran its timers: the median of the interval"""
    loop_late_ms_max: Lateness | None = None
    """the same: the worst of the interval"""
    rss_bytes: Count | None = None
    """memory of the process at that time"""
    links: list[LinkCounters] | None = None
    """a list of objects, one for each link that is up or carried something since boot"""
    drops: dict[str, Count] | None = None
    """an object: reason to count"""
    queues: list[QueueCounters] | None = None
    """only with a journal: the 32 durable subscriptions with most messages"""
    journal: JournalCounters | None = None
    """only with a journal"""


class TruthRow(Row, frozen=True, kw_only=True, tag="truth"):
    """A fault in a simulation. Only in `truth-*.jsonl`, which `mesh simulate --out` writes. `node` and `boot`
    are 1."""

    op: str
    """the kind of [fault](faults.md). A `partition` is `cut`; a `start` of a process that ran before is
    `restart`; the end of a lasting fault is `end`; the end of a process is `ended`"""
    of: str | None = None
    """always the kind; for `ended`: `stop` if the process had been asked, otherwise `crash`"""
    a: str | None = None
    """names joined by commas"""
    b: str | None = None
    """names joined by commas"""
    value: float | None = None
    """the main number of the fault; null if its kind has none"""
    for_s: float | None = None
    """duration in seconds; null if it lasts until healed, or is over at once"""
    more: dict[str, float | str] | None = None
    """an object with its other fields"""
    scenario: str | None = None
    """scenario of the run"""
    seed: int | None = None
    """seed of the run"""


KINDS: Final[dict[str, type[Row]]] = {
    "meta": MetaRow,
    "hb": HbRow,
    "heard": HeardRow,
    "mem": MemRow,
    "link": LinkRow,
    "stats": StatsRow,
    "truth": TruthRow,
}
"""Row classes by the value of their column `kind`."""

AnyRow = MetaRow | HbRow | HeardRow | MemRow | LinkRow | StatsRow | TruthRow
decode: Final = msgspec.json.Decoder(AnyRow).decode
"""A line as its row. Raises `msgspec.ValidationError` or `msgspec.DecodeError`."""


def columns(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of the columns of a kind, the common ones first."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}
