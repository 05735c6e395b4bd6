"""What happened in a mesh: the events of all brokers as one feed. Pure.

Each broker reports what it saw. The feed tells each change once, with the names of its observers, and puts
what belongs together into one line (`gathered`). It is made of rows of brokers' event logs, and tolerant of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mesh.printable import listed

EVENTS_MAX: Final = 200
LINKS_GATHERED: Final = 3
SAME_NEWS_S: Final = 5.0
"""Observers that report the same change of the same member within this time share one line."""
SAME_CAUSE_S: Final = 2.0
"""Brokers whose state changes within this time share one line, too."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class News:
    """A line of the feed: ``observers`` brokers reported it, the first at ``ts``."""

    ts: str
    kind: str
    text: str
    state: str
    observers: tuple[str, ...]
    ends: tuple[str, ...] = ()
    """For a link: the names of its two brokers."""
    subject: str = ""
    """For a change of state: the name of the broker."""
    change: str = ""
    """What became of the subject: ``suspect → dead``."""
    reason: str = ""
    """The part of the text in brackets at its end, without them."""
    shorter: tuple[str, ...] = ()
    """Other forms of the text, each shorter than the one before."""


def feed(rows: Iterable[Row], names: Mapping[str, str]) -> tuple[News, ...]:
    """The feed of rows, newest last, with each change reported once. ``names`` are those of brokers, by
    id."""
    distinct = {(row.get("node"), row.get("boot"), row.get("seq")): row for row in rows}
    told: list[News] = []
    latest: dict[str, int] = {}
    for row in sorted(distinct.values(), key=lambda row: str(row.get("ts", ""))):
        what, reason, state = _told(row, names)
        observer = names.get(str(row.get("node")), str(row.get("node"))[:8])
        index = latest.get(what)
        if index is not None and _seconds_between(told[index].ts, str(row.get("ts", ""))) <= SAME_NEWS_S:
            same = told[index]
            if observer not in same.observers:
                told[index] = replace(same, observers=(*same.observers, observer))
            continue
        latest[what] = len(told)
        reason = "" if reason == state else reason  # not "left (left)"
        changes = row.get("kind") == "mem"
        told.append(
            News(
                ts=str(row.get("ts", "")),
                kind=str(row.get("kind", "")),
                text=_with(reason, what),
                state=state,
                observers=(observer,),
                ends=_ends(row, names) if row.get("kind") == "link" else (),
                subject=_subject(row, names) if changes else "",
                change=_change(row) if changes else "",
                reason=reason,
                shorter=_shorter(row, what, reason),
            )
        )
    return tuple(told[-EVENTS_MAX:])


def _shorter(row: Row, what: str, reason: str) -> tuple[str, ...]:
    """Without the reason; of a link then without the word, so that its new state is the last to be cut."""
    forms = (what,) if reason else ()
    return (*forms, what.removeprefix("link ")) if row.get("kind") == "link" else forms


def _ends(row: Row, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted((names.get(str(row.get("node")), "?"), names.get(str(row.get("peer")), "?"))))


def gathered(news: Sequence[News]) -> list[News]:
    """The same feed in fewer lines. A broker that dies ends its links to all others, and a partition changes
    the state of many brokers at once. One line tells of `LINKS_GATHERED` links of a broker that came up or
    went down within `SAME_NEWS_S`. One line tells of the brokers of which an observer reported the same
    change within `SAME_CAUSE_S`."""
    told: list[News] = []
    taken: set[int] = set()
    for place, item in enumerate(news):
        if place in taken:
            continue
        near = [
            at
            for at in range(place, len(news))
            if at not in taken
            and news[at].kind == item.kind
            and news[at].state == item.state
            and _seconds_between(item.ts, news[at].ts) <= SAME_NEWS_S
        ]
        if item.ends:
            mine, texts = _links_of_one(item, {at: news[at] for at in near if news[at].ends})
        else:
            mine, texts = _same_change(item, {at: news[at] for at in near if news[at].change == item.change})
        if not texts:
            told.append(item)
            continue
        taken.update(mine)
        observers = tuple(dict.fromkeys(name for at in mine for name in news[at].observers))
        text, *shorter = texts
        told.append(News(item.ts, item.kind, text, item.state, observers, shorter=tuple(shorter)))
    return told


def _links_of_one(item: News, near: Mapping[int, News]) -> tuple[list[int], list[str]]:
    """The links of one end of ``item``, and the text about all of them. No text: tell them one by one."""
    counts: dict[str, int] = {}
    for name in (name for other in near.values() for name in other.ends):
        counts[name] = counts.get(name, 0) + 1
    whose = max(item.ends, key=lambda name: counts.get(name, 0))
    if counts.get(whose, 0) < LINKS_GATHERED:
        return [], []
    mine = [at for at, other in near.items() if whose in other.ends]
    return mine, [f"{len(mine)} links of {whose} {item.state.removeprefix('link-')}"]


def _same_change(item: News, near: Mapping[int, News]) -> tuple[list[int], list[str]]:
    """The same for brokers with the same change as ``item``; the text is followed by shorter ones."""
    mine = [
        at
        for at, other in near.items()
        if _seconds_between(item.ts, other.ts) <= SAME_CAUSE_S
        and not set(other.observers).isdisjoint(item.observers)
    ]
    subjects = list(dict.fromkeys(near[at].subject for at in mine))
    if not item.subject or len(subjects) < 2:
        return [], []
    reasons = {near[at].reason for at in mine}
    named, state = listed(subjects), item.state
    texts = [
        _with(reasons.pop() if len(reasons) == 1 else "", f"{named} {item.change}"),
        f"{named} {item.change}",
        f"{named} → {state}",
        f"{len(subjects)} brokers → {state}",
    ]
    return mine, list(dict.fromkeys(texts))


def _with(reason: str, what: str) -> str:
    return f"{what} ({reason})" if reason else what


def _told(row: Row, names: Mapping[str, str]) -> tuple[str, str, str]:
    """The event, its reason (other brokers may give another), and the state that determines its colour."""
    reason = str(row.get("reason") or "")
    if row.get("kind") == "mem":
        state = str(row.get("to_state", "unknown"))
        return f"{_subject(row, names)} {_change(row)}", reason, state
    if row.get("kind") == "link":
        ends = _ends(row, names)
        state = str(row.get("state", "?"))
        return f"link {' - '.join(ends)} {state}", reason if state == "down" else "", f"link-{state}"
    if row.get("kind") == "meta":
        name = str(row.get("name") or names.get(str(row.get("node")), "?"))
        op = {"start": "started", "stop": "stopped"}.get(str(row.get("op")), str(row.get("op")))
        return f"{name} {op}", reason, f"meta-{row.get('op')}"
    return str(row.get("kind", "?")), reason, ""


def _subject(row: Row, names: Mapping[str, str]) -> str:
    return str(names.get(str(row.get("subject"))) or row.get("subject_name") or "?")


def _change(row: Row) -> str:
    return f"{row.get('from_state', '?')} → {row.get('to_state', 'unknown')}"


def _seconds_between(earlier: str, later: str) -> float:
    """Seconds between two RFC 3339 times. Brokers' clocks may differ, so this is only for grouping."""
    return abs(_day_seconds(later) - _day_seconds(earlier)) if earlier[:10] == later[:10] else 86400.0


def _day_seconds(ts: str) -> float:
    try:
        return int(ts[11:13]) * 3600 + int(ts[14:16]) * 60 + float(ts[17:].rstrip("Z"))
    except ValueError:
        return 0.0
