"""What the analysis found, as records. Times are seconds since the epoch by the writer's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    """What can happen to a broker."""

    JOIN = "join"
    LEAVE = "leave"
    FAILURE = "failure"
    REJOIN = "rejoin"


class EndCause(StrEnum):
    """Why a session ended."""

    LEAVE = "leave"
    FAILURE = "failure"
    SILENCE = "silence"
    """Its log stops, it did not leave, and nobody held it dead."""
    CENSORED = "censored"
    """It did not: the broker was up when the logs end."""


@dataclass(frozen=True, slots=True)
class ChurnEvent:
    """Something that happened to one broker.

    ``detail``: of a rejoin ``new boot`` or ``refutation``; of a failure ``during partition N`` where it was
    found in one; of a join ``already up`` where the logs begin later than the broker; else empty.
    ``detected_at`` and ``observers`` are a failure's: when it was first held dead, by how many.
    """

    run: str
    kind: EventKind
    node: str
    name: str
    boot: str
    at: float
    detail: str = ""
    after: str = ""
    detected_at: float | None = None
    observers: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """One broker up without a break: from a start or a return to a leave, a failure, or its log's end."""

    run: str
    node: str
    name: str
    boot: str
    number: int
    start: float
    end: float
    end_cause: EndCause
    left_truncated: bool
    """It was up already when its log begins."""

    @property
    def duration_s(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Availability:
    """How much of the time from its first sign on a broker was up; away after a leave does not count."""

    run: str
    node: str
    name: str
    sessions: int
    up_s: float
    down_s: float
    away_s: float
    failures: int
    mttf_s: float | None
    """Mean length of the sessions that ended in a failure or in silence."""
    mttr_s: float | None
    """Mean length of the absences that ended."""

    @property
    def availability(self) -> float | None:
        """Up over up and down; None where nothing was observed."""
        observed = self.up_s + self.down_s
        return self.up_s / observed if observed > 0 else None


@dataclass(frozen=True, slots=True)
class PartitionEpisode:
    """The mesh in parts that heard nothing of one another: from the last heartbeat across to the next.

    ``end`` is None if it had not healed when the logs end; ``windows`` counts the windows that show it.
    """

    run: str
    number: int
    start: float
    end: float | None
    windows: int
    sides: tuple[tuple[str, ...], ...]

    def named(self, names: Mapping[str, str]) -> list[list[str]]:
        """The sides by the brokers' names, in order."""
        return [sorted(names.get(node, node) for node in side) for side in self.sides]


@dataclass(frozen=True, slots=True)
class Quality:
    """What the logs themselves were like."""

    files: int
    lines: int
    rows: int
    duplicates: int
    conflicts: int
    """Duplicates that differ from the row they repeat: the logs of two runs lie in one folder."""
    quarantined: int
    missing: int
    """Rows that were numbered but are not there: their broker's disk failed, or a file is gone."""
    problems: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Findings:
    """The whole verdict; also what ``summary.json`` holds."""

    runs: tuple[str, ...]
    started: float
    ended: float
    window_s: float
    names: Mapping[str, str]
    """Broker id to name."""
    events: tuple[ChurnEvent, ...]
    """In order of time."""
    sessions: tuple[Session, ...]
    availability: tuple[Availability, ...]
    partitions: tuple[PartitionEpisode, ...]
    windows: int
    """Windows in which at least one broker counts, see `mesh.analysis.partitions`."""
    traffic: Mapping[str, int]
    """Messages ``published``, ``delivered``, ``dropped`` at all brokers, ``lost`` between them."""
    drops: Mapping[str, int]
    quality: Quality

    @property
    def brokers(self) -> int:
        """How many there were in all runs; simulations of one seed have brokers of the same ids."""
        return len(self.availability)

    def called(self, run: str, name: str) -> str:
        """What a broker is called: by its run as well where there are several, in which names come again."""
        return f"{run}/{name}" if len(self.runs) > 1 else name

    def of_kind(self, kind: EventKind) -> tuple[ChurnEvent, ...]:
        return tuple(event for event in self.events if event.kind == kind)

    @property
    def joins(self) -> tuple[ChurnEvent, ...]:
        return self.of_kind(EventKind.JOIN)

    @property
    def leaves(self) -> tuple[ChurnEvent, ...]:
        return self.of_kind(EventKind.LEAVE)

    @property
    def failures(self) -> tuple[ChurnEvent, ...]:
        return self.of_kind(EventKind.FAILURE)

    @property
    def rejoins(self) -> tuple[ChurnEvent, ...]:
        return self.of_kind(EventKind.REJOIN)

    @property
    def duration_s(self) -> float:
        return self.ended - self.started

    def as_json(self) -> dict[str, Any]:
        """Plain values; counts first, for those who only look at these."""
        return {
            "schema": 1,
            "runs": list(self.runs),
            "started": format_time(self.started),
            "ended": format_time(self.ended),
            "duration_s": round(self.duration_s, 6),
            "window_s": self.window_s,
            "counts": {
                "brokers": self.brokers,
                "joins": len(self.joins),
                "leaves": len(self.leaves),
                "failures": len(self.failures),
                "rejoins": len(self.rejoins),
                "partitions": len(self.partitions),
                "windows": self.windows,
            },
            "names": dict(self.names),
            "events": [_with_times(asdict(event), "at", "detected_at") for event in self.events],
            "partitions": [_with_times(asdict(episode), "start", "end") for episode in self.partitions],
            "sessions": [
                _with_times(asdict(session), "start", "end") | {"duration_s": round(session.duration_s, 6)}
                for session in self.sessions
            ],
            "availability": [
                asdict(broker) | {"availability": broker.availability} for broker in self.availability
            ],
            "traffic": dict(self.traffic),
            "drops": dict(self.drops),
            "quality": asdict(self.quality),
        }


def format_time(at: float) -> str:
    """RFC 3339 in UTC with microseconds, as in the logs."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _with_times(record: dict[str, Any], *names: str) -> dict[str, Any]:
    """Times as text beside the numbers, which stay for programs."""
    for name in names:
        if record[name] is not None:
            record[f"{name}_utc"] = format_time(record[name])
    return record
