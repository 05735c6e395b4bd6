"""Churn: who joined, left, failed and came back, and how long each stayed.

Spark reduces the rows to one record a boot, a death and a return (`boots`, `deaths`, `returns`); `judge` is
pure and says what they mean. The rules:

* A **join** is the first sign of a broker: its first row, or another's word where its own log is missing.
* A **leave** is the leaver's own row. DEAD said of it afterwards is a leave that was not heard, no failure.
* A **failure** is DEAD in any log, at the time of the dead one's own last heartbeat row before that. Where
  its log has none, or lost its end with the host's power, it is when the broker was last heard; else when it
  was found. DEAD of one boot and incarnation is one failure however many say so, and so is DEAD of a later
  incarnation unless the broker lived in between: a refutation came between them, and the broker's own last
  heartbeat row is another one.
* A **rejoin** is the first sign of life after an absence: ALIVE with a higher incarnation of the same boot
  (``refutation``), or a new boot (``new boot``), be it after a failure, a leave, or a silence nobody noticed.
* A **session** is one boot's time between these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from mesh.analysis.findings import Availability, ChurnEvent, EndCause, EventKind, PartitionEpisode, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAVE_TOLERANCE_S: Final = 1.0
"""Clocks of two hosts differ; DEAD up to this long before the leaver's own row is still said of a leaver."""


FLUSH_S: Final = 2.0
"""Rows reach the disk within a second; a log that ends longer before its writer was last heard is torn."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of one broker, from its own log (``rows`` > 0) or from what the others heard of it."""

    run: str
    node: str
    boot: str
    name: str
    first: float
    last: float
    first_seq: int = 1
    last_seq: int = 0
    rows: int = 0
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """DEAD said of one incarnation, for the first time at ``detected``; when it last heard and was heard."""

    run: str
    node: str
    boot: str
    inc: int
    detected: float
    observers: int
    last_own: float | None = None
    last_heard: float | None = None

    @property
    def at(self) -> float:
        """When it failed, by the rule above."""
        if self.last_own is None:
            return self.detected if self.last_heard is None else self.last_heard
        torn = self.last_heard is not None and self.last_heard - self.last_own > FLUSH_S
        return self.last_heard if torn and self.last_heard is not None else self.last_own


@dataclass(frozen=True, slots=True)
class Return:
    """ALIVE said of one incarnation for the first time."""

    run: str
    node: str
    boot: str
    inc: int
    at: float


def judge(
    boots: Sequence[Boot], deaths: Sequence[Death], returns: Sequence[Return], *, slack_s: float
) -> tuple[list[ChurnEvent], list[Session]]:
    """Events and sessions; a log that ends within ``slack_s`` of its run's end ends with it."""
    lives: dict[tuple[str, str], _Life] = {}
    for boot in sorted(boots, key=attrgetter("run", "node", "first", "boot")):
        lives.setdefault((boot.run, boot.node), _Life()).boots.append(boot)
    for death in deaths:
        lives[death.run, death.node].deaths.append(death)
    for back in returns:
        lives[back.run, back.node].returns.append(back)
    ends: dict[str, float] = {}
    for boot in boots:
        ends[boot.run] = max(ends.get(boot.run, boot.last), boot.last)
    for (run, _), life in lives.items():
        life.tell(ends[run], slack_s)
    events = [event for life in lives.values() for event in life.events]
    events.sort(key=attrgetter("at", "run", "node"))
    return events, [session for life in lives.values() for session in life.sessions]


def complete_boots(
    boots: Sequence[Boot],
    deaths: Sequence[Death],
    returns: Sequence[Return],
    names: Mapping[tuple[str, str, str], str],
    heard: Mapping[tuple[str, str], float],
) -> list[Boot]:
    """The boots with a log, and those of which others only spoke.

    ``names`` is by (run, node, boot); ``heard`` says when anyone last heard of a node.
    """
    found = {(boot.run, boot.node, boot.boot): boot for boot in boots}
    logged = dict.fromkeys((boot.run, boot.node) for boot in boots)
    for back in sorted(returns, key=attrgetter("at")):
        key = (back.run, back.node, back.boot)
        # A boot of a broker that logs is known from its log; what others still say of earlier ones is old
        # news.
        if key not in found and key[:2] not in logged:
            last = max(back.at, heard.get(key[:2], back.at))
            found[key] = Boot(*key, name=names.get(key, ""), first=back.at, last=last)
    for death in sorted(deaths, key=attrgetter("detected")):
        key = (death.run, death.node, death.boot)
        if key not in found:
            found[key] = Boot(*key, name=names.get(key, ""), first=death.at, last=death.at, first_seq=2)
    return list(found.values())


class _Life:
    """One broker's story, told boot by boot."""

    def __init__(self) -> None:
        self.boots: list[Boot] = []
        self.deaths: list[Death] = []
        self.returns: list[Return] = []
        self.events: list[ChurnEvent] = []
        self.sessions: list[Session] = []
        self._name = ""

    def tell(self, end: float, slack_s: float) -> None:
        """Fill ``events`` and ``sessions``; every boot and death is one of ``boots``, in order of time."""
        first = self.boots[0]
        self._name = next((boot.name for boot in reversed(self.boots) if boot.name), first.node)
        self._event(EventKind.JOIN, first, first.first, "already up" if first.first_seq > 1 else "")
        cause: EndCause | None = None
        for boot, following in pairwise([*self.boots, None]):
            assert boot is not None
            if cause is not None:
                self._event(EventKind.REJOIN, boot, boot.first, "new boot", after=cause)
            up_at_end = following is None and boot.last >= end - slack_s
            cause = self._tell_boot(boot, until=following.first if following else inf, up_at_end=up_at_end)

    def _tell_boot(self, boot: Boot, *, until: float, up_at_end: bool) -> EndCause:
        """``until`` is when the next boot began, which those who heard it did not tell from this one."""
        start = boot.first
        for death, back in self._absences(boot):
            at = min(until, max(start, death.at))
            self._event(EventKind.FAILURE, boot, at, death=death)
            self._session(boot, start, at, EndCause.FAILURE)
            # A return told after the next boot began is old news of this one.
            if back is None or max(back.at, death.detected) >= until:
                if boot.left is not None:  # held dead to the end, and took its leave all the same
                    self._event(EventKind.LEAVE, boot, boot.left)
                    return EndCause.LEAVE
                return EndCause.FAILURE
            start = max(back.at, death.detected)
            self._event(EventKind.REJOIN, boot, start, "refutation", after=EndCause.FAILURE)
        if boot.left is not None:
            self._event(EventKind.LEAVE, boot, boot.left)
            end, cause = boot.left, EndCause.LEAVE
        else:
            end, cause = boot.last, EndCause.CENSORED if up_at_end else EndCause.SILENCE
        self._session(boot, start, max(start, end), cause)
        return cause

    def _absences(self, boot: Boot) -> list[tuple[Death, Return | None]]:
        """Failures of one boot, each with the return that ended it."""
        deaths = sorted(
            (death for death in self.deaths if death.boot == boot.boot and not _after_leave(death, boot)),
            key=attrgetter("inc"),
        )
        returns = sorted((back for back in self.returns if back.boot == boot.boot), key=attrgetter("inc"))
        groups: list[list[Death]] = []
        for death in deaths:
            if groups and not _lived_between(groups[-1][-1], death, returns):
                groups[-1].append(death)
            else:
                groups.append([death])
        absences: list[tuple[Death, Return | None]] = []
        for group in groups:
            first = min(group, key=attrgetter("detected"))
            last_inc = group[-1].inc
            merged = Death(
                first.run,
                first.node,
                first.boot,
                last_inc,
                first.detected,
                max(death.observers for death in group),
                first.last_own,
                first.last_heard,
            )
            absences.append((merged, next((back for back in returns if back.inc > last_inc), None)))
        return absences

    def _event(
        self,
        kind: EventKind,
        boot: Boot,
        at: float,
        detail: str = "",
        *,
        after: str = "",
        death: Death | None = None,
    ) -> None:
        self.events.append(
            ChurnEvent(
                boot.run,
                kind,
                boot.node,
                self._name,
                boot.boot,
                at,
                detail,
                str(after),
                death.detected if death else None,
                death.observers if death else 0,
            )
        )

    def _session(self, boot: Boot, start: float, end: float, cause: EndCause) -> None:
        truncated = boot.first_seq > 1 and start == boot.first
        number = len(self.sessions) + 1
        self.sessions.append(
            Session(boot.run, boot.node, self._name, boot.boot, number, start, end, cause, truncated)
        )


def _after_leave(death: Death, boot: Boot) -> bool:
    return boot.left is not None and death.detected >= boot.left - LEAVE_TOLERANCE_S


def _lived_between(earlier: Death, later: Death, returns: Iterable[Return]) -> bool:
    """Whether two deaths of one boot are two failures."""
    if earlier.last_own is not None and earlier.last_own == later.last_own:
        return False
    return any(earlier.inc < back.inc <= later.inc for back in returns)


def mark_partitions(events: Sequence[ChurnEvent], episodes: Sequence[PartitionEpisode]) -> list[ChurnEvent]:
    """Say of a failure found during a partition which one that was: the broker was perhaps only cut off."""
    marked = []
    for event in events:
        found = event.detected_at
        cut = next(
            (
                episode
                for episode in episodes
                if found is not None
                and episode.run == event.run
                and episode.start <= found <= (found if episode.end is None else episode.end)
            ),
            None,
        )
        marked.append(replace(event, detail=f"during partition {cut.number}") if cut else event)
    return marked


def availability(sessions: Sequence[Session]) -> list[Availability]:
    """One record a broker of each run; the run ends with its last session."""
    of_broker: dict[tuple[str, str], list[Session]] = {}
    ends: dict[str, float] = {}
    for session in sessions:
        of_broker.setdefault((session.run, session.node), []).append(session)
        ends[session.run] = max(ends.get(session.run, session.end), session.end)
    return [_availability(of_broker[key], ends[key[0]]) for key in sorted(of_broker)]


def _availability(sessions: list[Session], end: float) -> Availability:
    down_s = away_s = 0.0
    absences: list[float] = []
    for session, following in pairwise([*sessions, None]):
        assert session is not None
        absent_s = max(0.0, (following.start if following else end) - session.end)
        if session.end_cause is EndCause.LEAVE:
            away_s += absent_s
        elif session.end_cause is not EndCause.CENSORED:
            down_s += absent_s
            if following:
                absences.append(absent_s)
    failed = [s.duration_s for s in sessions if s.end_cause in (EndCause.FAILURE, EndCause.SILENCE)]
    return Availability(
        sessions[0].run,
        sessions[0].node,
        sessions[0].name,
        len(sessions),
        sum(session.duration_s for session in sessions),
        down_s,
        away_s,
        sum(session.end_cause is EndCause.FAILURE for session in sessions),
        _mean(failed),
        _mean(absences),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def boots(rows: DataFrame) -> DataFrame:
    """One row a boot: what its own log shows."""
    from pyspark.sql import functions as F

    own_leave = (F.col("kind") == "mem") & (F.col("subject") == F.col("node")) & (F.col("to_state") == "left")
    return rows.groupBy("run", "node", "boot").agg(
        F.max("name").alias("name"),
        F.min("us").alias("first_us"),
        F.max("us").alias("last_us"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("*").alias("rows"),
        F.min(F.when(own_leave, F.col("us"))).alias("left_us"),
    )


def deaths(rows: DataFrame) -> DataFrame:
    """One row a dead incarnation: when it was found, by how many, when it last heard and was last heard."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = ("run", "subject", "subject_boot", "subject_inc")
    dead = (
        rows.where(
            (F.col("kind") == "mem") & (F.col("to_state") == "dead") & (F.col("subject") != F.col("node"))
        )
        .groupBy(*key)
        .agg(F.min("us").alias("detected_us"), F.countDistinct("node").alias("observers"))
    )
    beats = rows.where(F.col("kind") == "hb")
    own = beats.select("run", F.col("node").alias("subject"), F.col("boot").alias("subject_boot"), "us")
    # A survey tells who is heard, not which boot of it, so that only bounds the time where its own log is
    # missing.
    heard = beats.where(F.col("msg") == "survey").select("run", F.col("src").alias("subject"), "us")

    def last_before(beats: DataFrame, by: tuple[str, ...], name: str) -> DataFrame:
        marks = dead.select(*key, F.col("detected_us").alias("us"), F.lit(None).cast("long").alias("beat"))
        both = marks.unionByName(beats.withColumn("beat", F.col("us")), allowMissingColumns=True)
        window = (
            Window.partitionBy(*by)
            .orderBy("us", F.col("beat").isNull())
            .rowsBetween(Window.unboundedPreceding, 0)
        )
        return (
            both.withColumn(name, F.last("beat", ignorenulls=True).over(window))
            .where(F.col("beat").isNull())
            .select(*key, name)
        )

    return dead.join(last_before(own, ("run", "subject", "subject_boot"), "own_us"), list(key), "left").join(
        last_before(heard, ("run", "subject"), "heard_us"), list(key), "left"
    )


def returns(rows: DataFrame) -> DataFrame:
    """One row an incarnation: when it was first called alive, by anyone, and by what name."""
    from pyspark.sql import functions as F

    return (
        rows.where((F.col("kind") == "mem") & (F.col("to_state") == "alive"))
        .groupBy("run", "subject", "subject_boot", "subject_inc")
        .agg(F.min("us").alias("at_us"), F.max("us").alias("last_us"), F.max("subject_name").alias("name"))
    )
