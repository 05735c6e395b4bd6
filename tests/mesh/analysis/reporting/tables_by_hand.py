"""Tables of a small run, made by hand: three brokers, a crash, a pause, a cut, and a mistake."""

from __future__ import annotations

from typing import Any

from mesh.analysis.reporting.digest import Digest, Heartbeats, Holes, Mistaken
from mesh.analysis.results.tables import (
    Availability,
    Broker,
    Change,
    Detector,
    Drop,
    FileRow,
    Life,
    LifeEnd,
    Part,
    PartSide,
    State,
)

S = 1_000_000
RUN = "north"
ZERO = 1_700_000_000 * S


def at(seconds: float) -> int:
    return ZERO + round(seconds * S)


def life(node: str, no: int, state: State, start: float, end: float, cause: LifeEnd | None) -> Life:
    boot = None if state in ("down", "away", "unknown") else f"{node}-{no}"
    return Life(RUN, node, no, boot, state, at(start), at(end), cause, False, cause is None, 0.0)


def dead(subject: str, boot: str, when: float | None, cause: Any, reached: int, first_s: float) -> Change:
    moment = None if when is None else at(when)
    return Change(
        *(RUN, subject, boot, 1, "dead", moment, cause, reached, 2, first_s, first_s, first_s, first_s + 1)
    )


def broker(node: str, name: str, **counted: Any) -> Broker:
    given = {"boots": 1, "published": 10, "delivered": 20, "dropped": 1, "loop_late_ms_max": 3.0, **counted}
    return Broker(
        run=RUN,
        node=node,
        name=name,
        host="h",
        version="0.2",
        period_s=1.0,
        deadline_s=0.5,
        stats_s=5.0,
        rss_bytes_max=1,
        loop_late_ms_p50=0.1,
        **given,
    )


def digest(**changes: Any) -> Digest:
    """A crashes at 20 s for 6 s; B is paused at 40 s for 4 s; C is cut off from 60 s to 70 s."""
    lives = [
        life("a", 1, "up", 0, 20, "crash"),
        life("a", 2, "down", 20, 26, "restart"),
        life("a", 3, "up", 26, 100, None),
        life("b", 1, "up", 0, 40, "pause"),
        life("b", 2, "paused", 40, 44, "resume"),
        life("b", 3, "up", 44, 100, None),
        life("c", 1, "up", 0, 100, None),
    ]
    given: dict[str, Any] = {
        "files": [FileRow(RUN, "a.jsonl", 1000, 11, 10, 1, 0, 0, 0, 2, at(0), at(100))],
        "holes": [Holes(RUN, "a", 1, 2, at(60), at(61))],
        "brokers": [broker("a", "broker-10"), broker("b", "broker-2"), broker("c", "broker-1")],
        "lives": lives,
        "availability": [
            Availability(RUN, "a", 94.0, 0.0, 6.0, 0.0, 0.0, 1, 0.94, 94.0, 6.0),
            Availability(RUN, "b", 100.0, 4.0, 0.0, 0.0, 0.0, 0, 1.0, None, None),
            Availability(RUN, "c", 100.0, 0.0, 0.0, 0.0, 0.0, 0, 1.0, None, None),
        ],
        "churn": [],
        "survival": [],
        "parts": [Part(RUN, 1, at(60), at(70), "complete", True)],
        "part_sides": [PartSide(RUN, 1, "a", 0), PartSide(RUN, 1, "b", 0), PartSide(RUN, 1, "c", 1)],
        "changes": [
            dead("a", "a-1", 20, "crash", 2, 2.5),
            dead("b", "b-1", 40, "paused", 1, 3.0),
            dead("c", "c-1", None, "cut off", 2, 0.0),
        ],
        "mistaken": [Mistaken(RUN, "c", "dead", "cut off", 2, 2, 8.0)],
        "detector": [Detector(RUN, "*", "*", 560.0, 3, 19.3, 8.0, None, 0.95, 2, 0, 2.5, 3.5)],
        "views": [],
        "clocks": [],
        "links": [],
        "heartbeats": [Heartbeats(RUN, 6, 570, 30, 560, 400.0, 900.0)],
        "traffic": [],
        "drops": [Drop(RUN, "a", "queue full", 3)],
        "matches": [],
    }
    return Digest(**{**given, **changes})
