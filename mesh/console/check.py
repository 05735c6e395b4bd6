"""A mesh judged by thresholds, for Nagios and similar monitors: a code, one sentence, and figures. Pure.

A threshold is a pair, warning and critical. A value above it is trouble; for `FLOORS` a value below it is.
Some things are trouble without a threshold, such as a broker that is isolated or cannot store.
Figures follow the guidelines of monitoring plugins: ``label=value[unit];warning;critical;least;most``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from mesh.console.probe import Look
from mesh.picture import LIVE, Picture, listed, number_in
from mesh.printable import listed as named
from mesh.printable import printable

Limit = tuple[float, float] | None
"""Warning and critical."""
FLOORS: Final = ("alive", "certificate_days")


class Code(IntEnum):
    """The exit codes of monitoring plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds; None: the figure is printed and not judged."""

    alive: Limit = None
    """Brokers alive, as the connected broker sees them."""
    dead: Limit = (0, 1)
    drops: Limit = (0, 100)
    """Messages dropped a second."""
    late_ms: Limit = (100, 500)
    """Lateness of the event loop, in the last interval."""
    rtt_ms: Limit = None
    certificate_days: Limit = (14, 2)
    """Until the first certificate expires."""
    queue: Limit = None
    """Waiting messages in one durable subscription."""
    queue_age_s: Limit = None
    """How long the first message of one has waited."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and the sentence about it."""

    key: str
    value: float
    unit: str
    sentence: str
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a mesh."""

    code: Code
    line: str


def judge(before: Look, after: Look, limits: Limits, elapsed_s: float, now_s: float) -> Verdict:
    """``elapsed_s`` lie between the two looks; ``now_s`` is since the epoch."""
    picture = after.picture(before)
    found = [*_states(after, picture)]
    figures = list(_figures(before, after, picture, elapsed_s, now_s))
    for figure in figures:
        limit: Limit = getattr(limits, figure.key)
        code = _code(figure, limit)
        if code and limit is not None:
            found.append((code, figure.sentence + _beyond(figure, limit[code == Code.CRITICAL])))
    found.sort(key=lambda each: -each[0])
    alive = sum(1 for node in picture.nodes if node.state in LIVE)
    known = sum(1 for node in picture.nodes if node.state != "left")
    calm = f"{alive} of {known} brokers alive, nothing dropped"
    code = found[0][0] if found else Code.OK
    said = "; ".join(sentence for _, sentence in found) or calm
    return Verdict(code, line(code, said, " ".join(_told(figure, limits) for figure in figures)))


def line(code: Code, sentence: str, figures: str = "") -> str:
    """The line that a plugin prints. A bar begins the figures, so the sentence has none."""
    text = f"MESH {code.name} - {printable(sentence).replace('|', '/')}"
    return f"{text} | {figures}" if figures else text


def _code(figure: Figure, limit: Limit) -> Code:
    if limit is None:
        return Code.OK
    warning, critical = limit
    if figure.key in FLOORS:
        warns, alarms = figure.value < warning, figure.value < critical
    else:
        warns, alarms = figure.value > warning, figure.value > critical
    return Code.CRITICAL if alarms else Code.WARNING if warns else Code.OK


def _beyond(figure: Figure, limit: float) -> str:
    """The limit, where the sentence of the figure alone does not say that anything is wrong."""
    return f", fewer than {limit:g}" if figure.key == "alive" else ""


def _told(figure: Figure, limits: Limits) -> str:
    limit: Limit = getattr(limits, figure.key)
    end = ":" if figure.key in FLOORS else ""
    warning, critical = ("", "") if limit is None else (f"{limit[0]:g}{end}", f"{limit[1]:g}{end}")
    most = "" if figure.most is None else f"{figure.most:g}"
    return f"{figure.key}={_short(figure.value)}{figure.unit};{warning};{critical};0;{most}".rstrip(";")


def _short(value: float) -> str:
    return f"{round(value, 3):f}".rstrip("0").rstrip(".")


def _states(after: Look, picture: Picture) -> Iterator[tuple[Code, str]]:
    isolated = [node.name for node in picture.nodes if node.mode == "isolated"]
    if isolated:
        yield Code.CRITICAL, f"isolated: {named(isolated)}"
    waiting = [node.name for node in picture.nodes if node.mode in ("joining", "leaving")]
    if waiting:
        yield Code.WARNING, f"joining or leaving: {named(waiting)}"
    if len(picture.parts) > 1 and len(after.statuses) > 1:  # one broker alone knows its own links only
        yield Code.CRITICAL, f"split into {len(picture.parts)} parts"
    for node in picture.nodes:
        for trouble in node.disk:
            yield Code.CRITICAL, f"{node.name}: {trouble}"
        if node.filling:
            yield Code.WARNING, f"{node.name}: {node.filling}"
    if after.silent:
        yield Code.WARNING, f"no answer from {named(list(after.silent))}"
    if picture.twice:
        yield Code.WARNING, f"two homes: {named([name for name, _ in picture.twice])}"


def _figures(before: Look, after: Look, picture: Picture, elapsed_s: float, now_s: float) -> Iterator[Figure]:
    live = [node for node in picture.nodes if node.state in LIVE]
    dead = [node.name for node in picture.nodes if node.state == "dead"]
    known = len([node for node in picture.nodes if node.state != "left"])
    yield Figure("alive", len(live), "", f"{len(live)} of {known} brokers alive", known)
    yield Figure("dead", len(dead), "", f"dead: {named(dead)}")
    dropped = _dropped(before.statuses, after.statuses) / elapsed_s
    yield Figure("drops", dropped, "", f"{_short(dropped)} messages dropped a second")
    late = [(node.late_ms, node.name) for node in picture.nodes if node.late_ms is not None]
    if late:
        late_ms, whose = max(late)
        yield Figure("late_ms", late_ms, "ms", f"event loop of {whose} {late_ms:g} ms late")
    trips = [(node.rtt_ms, node.name) for node in picture.nodes if node.rtt_ms is not None]
    if trips:
        rtt_ms, whose = max(trips)
        yield Figure("rtt_ms", rtt_ms, "ms", f"round trip to {whose} {rtt_ms:g} ms")
    yield from _certificates(after.statuses, now_s)
    yield from _queues(picture)


def _dropped(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> float:
    """Messages dropped between two looks, by brokers that are the same run in both."""
    earlier = {(each.get("id"), each.get("boot")): each for each in before}
    grown = 0.0
    for status in after:
        then = earlier.get((status.get("id"), status.get("boot")))
        if then is not None:
            now_dropped = number_in(status.get("totals"), "dropped") or 0
            grown += max(0, now_dropped - (number_in(then.get("totals"), "dropped") or 0))
    return grown


def _certificates(statuses: Sequence[dict[str, Any]], now_s: float) -> Iterator[Figure]:
    left: list[tuple[float, str]] = []
    for status in statuses:
        for entry in listed(status, "certificates"):
            try:
                expires_s = datetime.fromisoformat(entry["expires"]).timestamp()
            except (ValueError, KeyError, TypeError):
                continue
            left.append(((expires_s - now_s) / 86_400, f"{entry.get('url')} of {status.get('name')}"))
    if left:
        days, whose = min(left)
        said = f"expires in {days:.1f} days" if days > 0 else "has expired"
        yield Figure("certificate_days", days, "", f"the certificate of {whose} {said}")


def _queues(picture: Picture) -> Iterator[Figure]:
    for key, of_status, unit, said in (
        ("queue", "waiting", "", "messages wait in"),
        ("queue_age_s", "oldest_s", "s", "s waited the first message of"),
    ):
        found = [
            (value, str(queue.get("name")))
            for queue in picture.queues
            if (value := number_in(queue, of_status)) is not None
        ]
        if found:
            most, name = max(found)
            yield Figure(key, most, unit, f"{_short(most)} {said} {name}")


def read_limit(text: str) -> Limit:
    """``WARNING,CRITICAL`` or one number for both; ``off`` for none. Raises ValueError with a sentence."""
    if text == "off":
        return None
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not all(0 <= number < 1e12 for number in numbers):
        raise ValueError(f"{text!r} is no threshold; write WARNING,CRITICAL such as 10,100, or off")
    return numbers[0], numbers[-1]


LIMITS: Final = tuple(item.name for item in fields(Limits))
