"""Figures from lives, computed the slow way: by checking every moment, and every pair.

A life is any object with the columns of the table ``lives``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from typing import Any

ALIVE = ("up", "paused")
FAILED = ("crash", "power_off")
SECOND = 1_000_000


def availability(lives: Sequence[Any]) -> dict[str, Any]:
    """By column."""

    def spent(*states: str) -> int:
        return sum(life.end - life.start for life in lives if life.state in states)

    up, down = spent("up", "paused"), spent("down")
    failures = len([life for life in lives if life.cause in FAILED])
    closed = [
        life.end - life.start
        for life in lives
        if life.state == "down" and not life.censored and not life.truncated
    ]
    return {
        "up_s": up / SECOND,
        "paused_s": spent("paused") / SECOND,
        "down_s": down / SECOND,
        "away_s": spent("away") / SECOND,
        "unknown_s": spent("unknown") / SECOND,
        "failures": failures,
        "availability": float(Fraction(up, up + down)) if up + down else None,
        "mttf_s": up / SECOND / failures if failures else None,
        "mttr_s": sum(closed) / SECOND / len(closed) if closed else None,
    }


def churn(lives: Sequence[Any], window_s: float) -> list[dict[str, Any]]:
    """The windows, each computed by iterating over all moments at which anything happened."""
    window = round(window_s * SECOND)
    begin = min(life.start for life in lives) // window
    end = (max(max(life.end for life in lives) - 1, min(life.start for life in lives))) // window
    ends = [life.end for life in lives if life.cause in (*FAILED, "leave", "start", "restart")]
    end = max(end, max(ends, default=0) // window)
    return [_churn(lives, number * window, window) for number in range(begin, end + 1)]


def _churn(lives: Sequence[Any], start: int, window: int) -> dict[str, Any]:
    def alive_before(moment: int) -> set[str]:
        return {life.node for life in lives if life.state in ALIVE and _covers(life, moment)}

    def in_window(moment: int) -> bool:
        return start <= moment < start + window

    joins = [
        life.start
        for life in lives
        if life.no == 1 and life.state in ALIVE and not life.truncated and in_window(life.start)
    ]
    ends = [life for life in lives if life.state in ALIVE and in_window(life.end)]
    leaves = [life.end for life in ends if life.cause == "leave"]
    failures = [life.end for life in ends if life.cause in FAILED]
    rejoins = [
        life.end
        for life in lives
        if life.state not in ALIVE and life.cause in ("start", "restart") and in_window(life.end)
    ]
    changes = [*joins, *leaves, *failures, *rejoins]
    rate = 0.0
    for moment in sorted(set(changes)):
        before, after = len(alive_before(moment)), len(alive_before(moment + 1))
        rate += changes.count(moment) / max(before, after, 1)
    return {
        "start": start,
        "window_s": window / SECOND,
        "alive": len(alive_before(start)),
        "joins": len(joins),
        "leaves": len(leaves),
        "failures": len(failures),
        "rejoins": len(rejoins),
        "rate": rate / (window / SECOND),
    }


def _covers(life: Any, moment: int) -> bool:
    """True if it was in that state just before a moment."""
    return bool(life.start < moment <= life.end)


Length = tuple[int, int, bool, bool]
"""Start, length, whether its end was observed, whether it was open at the end of the logs."""


def lengths_up(lives: Sequence[Any]) -> list[Length]:
    """Follow each broker's life from each start through pauses until something else happens."""
    found = []
    for node in sorted({life.node for life in lives}):
        own = sorted((life for life in lives if life.node == node), key=lambda life: life.no)
        for number, life in enumerate(own):
            begins = not life.truncated if number == 0 else own[number - 1].cause not in CONTINUES
            if life.state not in ALIVE or not begins:
                continue
            last = number
            while own[last].cause in ("pause", "resume"):
                last += 1
            ended = own[last].cause in (*FAILED, "leave")
            found.append((life.start, own[last].end - life.start, ended, own[last].cause is None))
    return found


CONTINUES = ("pause", "resume", "heard again", "log lost", None)


def lengths_down(lives: Sequence[Any]) -> list[Length]:
    return [
        (life.start, life.end - life.start, not life.censored, life.censored)
        for life in lives
        if life.state == "down" and not life.truncated
    ]


def survival(lives: Sequence[Any]) -> dict[tuple[str, str, float], dict[str, Any]]:
    """By kind, method and time: the share of longer stretches, counted one by one."""
    begin, end = min(life.start for life in lives), max(life.end for life in lives)
    half = (end - begin) // 2
    found: dict[tuple[str, str, float], dict[str, Any]] = {}
    for of, lengths in (("up", lengths_up(lives)), ("down", lengths_down(lives))):
        naive = [each for each in lengths if each[2]]
        created = [
            each for each in lengths if each[0] < begin + half and (each[2] or each[3] or each[1] >= half)
        ]
        for method, chosen, longest in (("naive", naive, None), ("create-based", created, half)):
            for time in sorted({length for _, length, ended, _ in chosen if ended}):
                if longest is None or time <= longest:
                    longer = [each for each in chosen if each[1] > time]
                    found[of, method, time / SECOND] = {
                        "at_risk": len([each for each in chosen if each[1] >= time]),
                        "ended": len([each for each in chosen if each[1] == time and each[2]]),
                        "survival": len(longer) / len(chosen),
                        "low": None,
                        "high": None,
                    }
        for time in sorted({length for _, length, ended, _ in lengths if ended}):
            found[of, "kaplan-meier", time / SECOND] = _kaplan_meier(lengths, time)
    return found


def _kaplan_meier(lengths: list[Length], time: int) -> dict[str, Any]:
    share, greenwood = Fraction(1), Fraction(0)
    low: float | None = None
    high: float | None = None
    at_risk = ended = 0
    for earlier in sorted({length for _, length, seen, _ in lengths if seen and length <= time}):
        at_risk = len([each for each in lengths if each[1] >= earlier])
        ended = len([each for each in lengths if each[1] == earlier and each[2]])
        share *= Fraction(at_risk - ended, at_risk)
        if at_risk > ended:
            greenwood += Fraction(ended, at_risk * (at_risk - ended))
    if at_risk > ended:
        margin = 1.959963984540054 * float(share) * sqrt(greenwood)
        low, high = max(0.0, float(share) - margin), min(1.0, float(share) + margin)
    return {"at_risk": at_risk, "ended": ended, "survival": float(share), "low": low, "high": high}
