"""The findings of the analysis, which programs read as ``summary.json`` and which are reported to people.
Pure.

Counts come with causes: the number of times that a member was reported dead comes with what had happened to
it. Only crashes and power losses are failures.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mesh.analysis.reporting.digest import Digest
from mesh.analysis.results.tables import Change, FileRow, Instant, Life, PartKind

SCHEMA: Final = "mangrove.analysis/2"
SILENT_PERIODS: Final = 2.2
"""A shorter hole in a log hides no silence."""
FAILURES: Final = ("crash", "power_off")
ALIVE: Final = ("paused", "cut off", "mistaken")
"""Causes of reported deaths of processes that had not ended."""
WHAT_OF: Final[Mapping[str, str]] = {
    "crash": "crash",
    "power_off": "power loss",
    "leave": "leave",
    "pause": "pause",
    "log lost": "log lost",
}
"""The words for each cause that ended a life."""
PART_WORDS: Final[Mapping[PartKind, str]] = {
    "complete": "partition",
    "partial": "cut links",
    "one-way": "one-way cut",
}
UNHEARD: Final = "did not hear"
"""Stands between the first side of a one-way cut and the second."""
NUMBERS: Final = re.compile("([0-9]+)")
LETTERS: Final = 1 << 62
"""In the order of names, letters come after numbers."""


class Event(msgspec.Struct, frozen=True):
    """One event that affected brokers at the same time."""

    at: Instant
    what: str
    """``start``, ``crash``, ``power loss``, ``leave``, ``pause``, ``log lost``, or ``part``."""
    brokers: list[str]
    """By name, in natural order."""
    lasted_s: float | None
    """Seconds until they ran again, or the part healed. None: it lasted to the end of the logs, or had no
    duration."""
    told_s: float | None
    """Seconds until the first member reported one of them dead."""
    told_by: int
    """Maximum number of members that reported it."""
    part: int | None = None
    """The number of the part."""


class PartFound(msgspec.Struct, frozen=True):
    """The mesh in parts."""

    no: int
    start: Instant
    end: Instant | None
    kind: PartKind
    majority: bool
    sides: list[list[str]]
    """Brokers by name, the largest side first. One-way: the first side did not hear the second."""


class BrokerFound(msgspec.Struct, frozen=True):
    """The figures of one broker."""

    node: str
    name: str
    boots: int
    failures: int
    availability: float | None
    up_s: float
    paused_s: float
    down_s: float
    away_s: float
    unknown_s: float
    mttr_s: float | None


class HolesFound(msgspec.Struct, frozen=True):
    """The holes in the log of one broker."""

    broker: str
    """By name."""
    holes: int
    rows: int
    """Rows that are missing."""
    start: Instant
    """The longest hole."""
    end: Instant


class RunFound(msgspec.Struct, frozen=True):
    """One run: the events of brokers, and the opinions about them."""

    run: str
    verdict: str
    """One sentence."""
    started: Instant
    ended: Instant
    period_s: float | None
    deadline_s: float | None
    brokers: list[BrokerFound]
    failures: dict[str, int]
    """By cause."""
    deaths_told: dict[str, int]
    """Number of reported deaths, by cause; each boot and incarnation counts once."""
    events: list[Event]
    parts: list[PartFound]
    availability: float | None
    """All brokers pooled: time up divided by time up and down."""
    mttf_s: float | None
    mttr_s: float | None
    detection: dict[str, float | int | None]
    """Pooled over all pairs; the columns of the table ``detector``."""
    agreement: float | None
    """The smallest share of members with the most common view at a window's end. None: they agreed."""
    heartbeats: dict[str, float | int | None]
    traffic: dict[str, int]
    """Empty if no broker wrote its counters."""
    drops: dict[str, int]
    late_ms: float | None
    """The maximum lateness of a loop."""
    clock_error_s: float | None
    wall_off_s: float | None
    """The maximum distance of a wall clock from mesh time."""
    unlogged: list[str]
    """Brokers without a log. What is known of them is what others heard and reported."""
    holes: list[HolesFound]
    """Brokers whose logs lack the rows of more than 2.2 periods in the middle."""
    matches: dict[str, int]
    """Comparison with the truth of a simulation, by verdict. Empty if there is none."""


class Damaged(msgspec.Struct, frozen=True):
    """A file that could not be read to its end."""

    file: str
    damage: str
    rows: int
    """Rows that were read of it."""

    @property
    def sentence(self) -> str:
        read = counted(self.rows, "row") if self.rows else "no row"
        return f"{self.file} is damaged: {self.damage}; {read} of it could be read"


class Quality(msgspec.Struct, frozen=True):
    """The quality of the logs."""

    files: int
    bytes: int
    lines: int
    rows: int
    corrupt: int
    unknown: int
    duplicates: int
    gaps: int
    """Rows that are missing in the middle of logs."""
    conflicts: int
    """Rows that repeat a number with other content: the folder contains two runs with one name."""
    damaged: list[Damaged]


class Findings(msgspec.Struct, frozen=True):
    """The content of ``summary.json``."""

    schema: str
    verdict: str
    runs: list[RunFound]
    quality: Quality

    def as_json(self) -> dict[str, Any]:
        """Plain values, instants as RFC 3339 in UTC."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for run in plain["runs"]:
            for record in (run, *run["events"], *run["parts"], *run["holes"]):
                for name in ("at", "start", "end", "started", "ended"):
                    if name in record and record[name] is not None:
                        record[name] = time_text(record[name])
        return plain


def time_text(at: Instant) -> str:
    """RFC 3339 in UTC with microseconds, as in the logs."""
    moment = datetime.fromtimestamp(at // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1_000_000:06d}Z"


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which ``broker-2`` comes before ``broker-10``. A number with more digits is larger."""
    key = []
    for place, part in enumerate(NUMBERS.split(name)):
        if place % 2:
            digits = part.lstrip("0")
            key.append((len(digits), digits))
        elif part:
            key.append((LETTERS, part))
    return key


def findings_of(digest: Digest) -> Findings:
    """The findings of every run in the tables."""
    runs = sorted({life.run for life in digest.lives}, key=natural)
    found = [_run(run, digest) for run in runs]
    files = digest.files
    return Findings(
        SCHEMA,
        found[0].verdict
        if len(found) == 1
        else f"{len(found)} runs: " + " ".join(f"{each.run}: {each.verdict}" for each in found),
        found,
        Quality(
            files=len({row.file for row in files}),
            bytes=sum({row.file: row.bytes for row in files}.values()),  # a file of two runs has two rows
            gaps=sum(row.rows for row in digest.holes),
            damaged=_damaged(files),
            **{name: sum(getattr(row, name) for row in files) for name in COUNTED},
        ),
    )


def _damaged(files: list[FileRow]) -> list[Damaged]:
    rows: dict[tuple[str, str], int] = defaultdict(int)
    for row in files:
        if row.damage is not None:
            rows[row.file, row.damage] += row.rows + row.duplicates
    return [Damaged(*key, count) for key, count in sorted(rows.items(), key=lambda each: natural(each[0][0]))]


HIDDEN: Final = ("run", "rtt_counts")
"""Fields of the heartbeats that programs do not get."""
COUNTED: Final = ("lines", "rows", "corrupt", "unknown", "duplicates", "conflicts")
"""Fields of a file's row that are summed."""


def _run(run: str, digest: Digest) -> RunFound:
    lives = [life for life in digest.lives if life.run == run]
    of_node: dict[str, list[Life]] = defaultdict(list)
    for life in sorted(lives, key=lambda life: (life.node, life.start, life.no)):
        of_node[life.node].append(life)
    met = {row.node: row for row in digest.brokers if row.run == run}
    known = {node: row for node, row in met.items() if row.boots}
    names = {node: met[node].name if node in met else node for node in of_node}
    shares = {row.node: row for row in digest.availability if row.run == run}
    brokers = [
        BrokerFound(
            node,
            names[node],
            known[node].boots if node in known else len({life.boot for life in of_node[node]} - {None}),
            *(
                (
                    row.failures,
                    row.availability,
                    row.up_s,
                    row.paused_s,
                    row.down_s,
                    row.away_s,
                    row.unknown_s,
                    row.mttr_s,
                )
                if (row := shares.get(node)) is not None
                else (0, None, 0.0, 0.0, 0.0, 0.0, 0.0, None)
            ),
        )
        for node in sorted(of_node, key=lambda node: (natural(names[node]), node))
    ]
    changes = [row for row in digest.changes if row.run == run and row.state == "dead"]
    parts = _parts(run, digest, names)
    up_s, down_s = sum(each.up_s for each in brokers), sum(each.down_s for each in brokers)
    failures = Counter(life.cause for life in lives if life.cause in FAILURES)
    closed = [life for life in lives if life.state == "down" and not life.censored]
    pooled = next(
        (row for row in digest.detector if row.run == run and row.observer == row.subject == "*"), None
    )
    carried = [row for row in met.values() if row.boots]
    period_s = next((row.period_s for row in carried if row.period_s is not None), None)
    beats = next((row for row in digest.heartbeats if row.run == run), None)
    clocks = [row for row in digest.clocks if row.run == run]
    errors = [row.error_s for row in clocks if row.error_s is not None]
    drops: Counter[str] = Counter()
    for drop in digest.drops:
        if drop.run == run:
            drops[drop.reason] += drop.count
    late = [row.loop_late_ms_max for row in carried if row.loop_late_ms_max is not None]
    events = _events(of_node, names, changes, parts)
    found = RunFound(
        run=run,
        verdict="",
        started=min(life.start for life in lives),
        ended=max(life.end for life in lives),
        period_s=period_s,
        deadline_s=next((row.deadline_s for row in carried if row.deadline_s is not None), None),
        brokers=brokers,
        failures={cause: failures[cause] for cause in FAILURES if failures[cause]},
        deaths_told=dict(sorted(Counter(row.cause or "mistaken" for row in changes).items())),
        events=events,
        parts=parts,
        availability=up_s / (up_s + down_s) if up_s + down_s > 0 else None,
        mttf_s=up_s / failures.total() if failures.total() else None,
        mttr_s=sum(life.end - life.start for life in closed) / 1e6 / len(closed) if closed else None,
        detection={}
        if pooled is None
        else {
            name: value
            for name, value in msgspec.structs.asdict(pooled).items()
            if name not in ("run", "observer", "subject")
        },
        agreement=min((row.agree for row in digest.views if row.run == run and row.agree < 1), default=None),
        heartbeats={}
        if beats is None
        else {name: value for name, value in msgspec.structs.asdict(beats).items() if name not in HIDDEN},
        traffic={
            name: sum(counts)
            for name in ("published", "delivered", "dropped")
            if (counts := [count for row in carried if (count := getattr(row, name)) is not None])
        },
        drops=dict(drops.most_common()),
        late_ms=max(late, default=None),
        clock_error_s=max(errors, default=None),
        wall_off_s=max((abs(row.wall_s) for row in clocks), default=None),
        unlogged=sorted((names[node] for node in names if node not in known), key=natural),
        holes=[
            HolesFound(names[row.node], row.holes, row.rows, row.start, row.end)
            for row in sorted(digest.holes, key=lambda row: row.start)
            if row.run == run and row.end - row.start > SILENT_PERIODS * (period_s or 1.0) * 1e6
        ],
        matches=dict(Counter(row.verdict for row in digest.matches if row.run == run)),
    )
    return msgspec.structs.replace(found, verdict=verdict(found))


def _parts(run: str, digest: Digest, names: Mapping[str, str]) -> list[PartFound]:
    sides: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in digest.part_sides:
        if row.run == run:
            sides[row.no][row.side].append(names.get(row.node, row.node))
    return [
        PartFound(
            *(part.no, part.start, part.end, part.kind, part.majority),
            [sorted(sides[part.no][side], key=natural) for side in sorted(sides[part.no])],
        )
        for part in sorted(digest.parts, key=lambda part: (part.start, part.no))
        if part.run == run
    ]


TOGETHER_US: Final = 500_000
"""Starts within this time of each other are one event."""


def _events(
    of_node: Mapping[str, Sequence[Life]],
    names: Mapping[str, str],
    deaths: Iterable[Change],
    parts: Iterable[PartFound],
) -> list[Event]:
    told: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for death in deaths:
        told[death.subject, death.boot].append(death)
    single: list[Event] = []
    for node, stretches in of_node.items():
        single.append(Event(stretches[0].start, "start", [names[node]], None, None, 0))
        for life in stretches:
            what = WHAT_OF.get(life.cause or "")
            if what is None:
                continue
            back = next((each.start for each in stretches if each.no > life.no and each.state == "up"), None)
            of_boot = [each for each in told[node, life.boot or ""] if each.at == life.end]
            firsts = [each.first_s for each in of_boot if each.first_s is not None]
            single.append(
                Event(
                    life.end,
                    what,
                    [names[node]],
                    None if back is None else (back - life.end) / 1e6,
                    min(firsts, default=None),
                    max((each.reached for each in of_boot), default=0),
                )
            )
    single.sort(key=lambda event: (event.what, event.at))
    grouped: list[Event] = []
    for event in single:
        last = grouped[-1] if grouped else None
        if last is not None and last.what == event.what and event.at - last.at <= TOGETHER_US:
            grouped[-1] = _merged(last, event)
        else:
            grouped.append(event)
    cuts = [
        Event(
            part.start,
            "part",
            sorted((name for side in part.sides[1:] for name in side), key=natural),
            None if part.end is None else (part.end - part.start) / 1e6,
            None,
            0,
            part.no,
        )
        for part in parts
    ]
    return sorted([*grouped, *cuts], key=lambda event: (event.at, event.what))


def _merged(one: Event, other: Event) -> Event:
    lasted = [event.lasted_s for event in (one, other) if event.lasted_s is not None]
    firsts = [event.told_s for event in (one, other) if event.told_s is not None]
    return Event(
        one.at,
        one.what,
        sorted({*one.brokers, *other.brokers}, key=natural),
        max(lasted) if len(lasted) == 2 else None,
        min(firsts, default=None),
        max(one.told_by, other.told_by),
    )


def verdict(found: RunFound) -> str:
    """The run in one sentence: failures, parts, mistaken deaths, the availability of brokers, and of how many
    there is no log."""
    lasted = duration((found.ended - found.started) / 1e6)
    said = [f"{counted(len(found.brokers), 'broker')} in {lasted}"]
    failed = [counted(count, WHAT_OF[cause], "es") for cause, count in found.failures.items()]
    said.append(" and ".join(failed) if failed else "no failure")
    complete = [part for part in found.parts if part.kind == "complete"]
    other = len(found.parts) - len(complete)
    said.append(counted(len(complete), "partition") if complete else "no partition")
    if other:
        said.append(f"{counted(other, 'cut')} of single links")
    wrong = {cause: count for cause, count in found.deaths_told.items() if cause in ALIVE}
    if wrong:
        causes = ", ".join(f"{count} {cause}" for cause, count in wrong.items())
        deaths = counted(sum(wrong.values()), "death")
        said.append(f"{deaths} reported for brokers that had not failed ({causes})")
    if lost := found.deaths_told.get("log lost"):
        said.append(f"{counted(lost, 'death')} that no log explains")
    if found.availability is not None:
        said.append(f"availability {share(found.availability)}")
    lacking = []
    if found.unlogged:
        lacking.append(f"{counted(len(found.unlogged), 'broker')} left no log")
    if found.holes:
        many = len(found.holes) != 1
        lacking.append(f"{counted(len(found.holes), 'log')} {'have' if many else 'has'} holes")
    if lacking:
        said.append(f"but {' and '.join(lacking)}: what nobody else saw is unknown")
    return ", ".join(said) + "."


def counted(count: int, noun: str, plural: str = "s") -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" + (plural if count != 1 else "")


def event_word(event: Event, run: RunFound) -> str:
    """The kind of an event, for people."""
    if event.part is None:
        return event.what
    return PART_WORDS[next(part.kind for part in run.parts if part.no == event.part)]


def brokers_text(event: Event, run: RunFound, most: int) -> str:
    """The brokers of an event, with at most ``most`` names of each side of a part."""
    if event.part is None:
        return named(event.brokers, most)
    return sides_text(next(part for part in run.parts if part.no == event.part), most)


def sides_text(part: PartFound, most: int) -> str:
    """The sides of a part: ``a, b | c``. Of a one-way cut it says who did not hear whom."""
    between = f" {UNHEARD} " if part.kind == "one-way" else " | "
    return between.join(named(side, most) for side in part.sides)


def named(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def share(value: float) -> str:
    """A share as per cent, with enough digits to distinguish it from all."""
    if value >= 1:
        return "100 %"
    for digits in (1, 2, 3, 4):
        text = f"{value * 100:.{digits}f}"
        if float(text) < 100:
            return f"{text} %"
    return "99.9999 %"


def duration(seconds: float) -> str:
    """A duration for people: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``5 h 2 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, less, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
