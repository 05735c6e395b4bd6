"""The reports of members about each other, judged the slow way: each question iterates over all reports.

A life is any object with the columns of the table ``lives``, an outage one with those of ``outages``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import Any

from mesh.analysis.facts import Said

Row = dict[str, Any]
FAILED = ("crash", "power_off")
STATES = ("alive", "suspect", "dead", "left")
SECOND = 1_000_000


class Opinions:
    """The opinions of one run."""

    def __init__(
        self, said: Sequence[Said], lives: Sequence[Any], outages: Sequence[Any], period_s: float
    ) -> None:
        self.run = said[0].run
        self.said = sorted((each for each in said if each.node != each.subject), key=lambda each: each.at)
        self.lives = sorted(lives, key=lambda life: (life.node, life.start))
        self.cuts = [outage for outage in outages if outage.cause == "cut"]
        self.lookback = 30 * round(period_s * SECOND)
        self.end = max(life.end for life in lives)
        self.nodes = sorted({life.node for life in lives})
        self.ran = {node: self._ran(node) for node in self.nodes}

    def _ran(self, node: str) -> list[tuple[int, int]]:
        """From and to, including pauses. A stretch that follows at once belongs to it."""
        spans: list[tuple[int, int]] = []
        for life in self.of(node):
            if life.state in ("up", "paused"):
                if spans and spans[-1][1] == life.start:
                    spans[-1] = (spans[-1][0], life.end)
                else:
                    spans.append((life.start, life.end))
        return spans

    def of(self, node: str) -> list[Any]:
        return [life for life in self.lives if life.node == node]

    def cause(self, subject: str, boot: str, told: int, tellers: set[str]) -> tuple[str, int | None]:
        """Why it was reported dead, and since when its process was affected."""
        own = [life for life in self.of(subject) if life.boot == boot]
        recent = [
            life for life in self.of(subject) if life.start <= told and life.end >= told - self.lookback
        ]
        ended = [life for life in own if life.cause in (*FAILED, "leave") and life.end <= told + SECOND]
        paused = [life for life in recent if life.boot == boot and life.state == "paused"]
        if ended:
            return ("left" if ended[-1].cause == "leave" else ended[-1].cause), ended[-1].end
        if paused:
            return "paused", paused[-1].start
        if not own or any(life.state == "unknown" for life in recent):
            return "log lost", None
        for cut in self.cuts:
            over = self.end + self.lookback if cut.next is None else cut.next
            if cut.src == subject and cut.dst in tellers and (cut.last or 0) <= told <= over + self.lookback:
                return "cut off", None
        return "mistaken", None

    # --- changes

    def changes(self) -> list[Row]:
        keys = {(each.subject, each.subject_boot, each.incarnation, each.to_state) for each in self.said}
        return [self._change(*key) for key in sorted(keys) if key[3] in STATES]

    def _change(self, subject: str, boot: str, incarnation: int, state: str) -> Row:
        key = (subject, boot, incarnation, state)
        about = [
            each
            for each in self.said
            if (each.subject, each.subject_boot, each.incarnation, each.to_state) == key
        ]
        firsts = {
            node: min(each.at for each in about if each.node == node) for node in {e.node for e in about}
        }
        times = sorted(firsts.values())
        cause, at = None, None
        own = [life for life in self.of(subject) if life.boot == boot]
        if state == "dead":
            tellers = {each.node for each in about} | {each.via for each in about}
            cause, at = self.cause(subject, boot, times[0], tellers)
        elif state == "left":
            at = next((life.end for life in own if life.cause == "leave"), None)
        elif state == "alive":
            earlier = [
                each
                for each in self.said
                if each.subject == subject and each.subject_boot == boot and each.incarnation < incarnation
            ]
            at = own[0].start if own and not earlier else None
        since = times[0] if at is None else at
        could = {
            node
            for node in self.nodes
            if node != subject
            and (node in firsts or any(a <= since and times[-1] <= b for a, b in self.ran[node]))
        }
        lags = [max(0, time - since) / 1e6 for time in times]
        return {
            "run": self.run,
            "subject": subject,
            "boot": boot,
            "incarnation": incarnation,
            "state": state,
            "at": at,
            "cause": cause,
            "reached": len(times),
            "of": len(could | set(firsts)),
            "first_s": lags[0],
            "p50_s": rank(lags, 0.5),
            "p90_s": rank(lags, 0.9),
            "last_s": lags[-1],
        }

    # --- mistakes and the detector

    @cached_property
    def mistakes(self) -> list[Row]:
        pairs = sorted({(each.node, each.subject) for each in self.said})
        return [row for pair in pairs for row in self._of_pair(*pair)]

    def _of_pair(self, observer: str, subject: str) -> list[Row]:
        """Each of its reports, until it reported the member alive or gone, or one of both ended."""
        words = [each for each in self.said if (each.node, each.subject) == (observer, subject)]
        found: list[Row] = []
        over = {"suspect": -1, "dead": -1}
        for place, word in enumerate(words):
            state = word.to_state
            if state not in over:
                continue
            cause, _ = self.cause(subject, word.subject_boot, word.at, {word.node, word.via})
            if cause not in ("paused", "cut off", "mistaken") or over[state] > place:
                continue
            until = ("alive", "left", "dead") if state == "suspect" else ("alive", "left")
            next_ = next(
                (at for at in range(place + 1, len(words)) if words[at].to_state in until), len(words)
            )
            over[state] = next_
            ends = [words[next_].at] if next_ < len(words) else []
            ends += [
                life.end
                for life in self.lives
                if life.node in (observer, subject)
                and life.cause in (*FAILED, "leave")
                and life.end > word.at
            ]
            found.append(
                {
                    "run": self.run,
                    "observer": observer,
                    "subject": subject,
                    "state": state,
                    "start": word.at,
                    "end": min(ends, default=None),
                    "cause": cause,
                }
            )
        return found

    def detector(self) -> list[Row]:
        pairs = {
            (one, other): self._quality(one, other)
            for one in self.nodes
            for other in self.nodes
            if one != other
        }
        table = [
            self._line(*pair, [quality])
            for pair, quality in pairs.items()
            if quality["failures"] or quality["wrong"]
        ]
        for node in self.nodes:
            table.append(self._line(node, "*", [pairs[pair] for pair in pairs if pair[0] == node]))
            table.append(self._line("*", node, [pairs[pair] for pair in pairs if pair[1] == node]))
        table.append(self._line("*", "*", list(pairs.values())))
        return table

    def _quality(self, observer: str, subject: str) -> Row:
        wrong = sorted(
            (row["start"], self.end if row["end"] is None else row["end"])
            for row in self.mistakes
            if (row["observer"], row["subject"], row["state"]) == (observer, subject, "dead")
        )
        lags, failures, lost = [], 0, 0
        for life in self.of(subject):
            if life.cause not in FAILED or not any(a <= life.end < b for a, b in self.ran[observer]):
                continue
            told = [
                each.at
                for each in self.said
                if (each.node, each.subject, each.subject_boot, each.to_state)
                == (observer, subject, life.boot, "dead")
            ]
            back = min((a for a, _ in self.ran[subject] if a >= life.end), default=None)
            if told:
                failures += 1
                lags.append(max(0, min(told) - life.end) / 1e6)
            elif back is not None and any(a <= life.end and back <= b for a, b in self.ran[observer]):
                failures, lost = failures + 1, lost + 1
        exposure = sum(
            max(0, min(b, d) - max(a, c)) for a, b in self.ran[observer] for c, d in self.ran[subject]
        )
        return {"wrong": wrong, "lags": lags, "failures": failures, "missed": lost, "exposure": exposure}

    def _line(self, observer: str, subject: str, pooled: Sequence[Row]) -> Row:
        exposure_s = sum(one["exposure"] for one in pooled) / 1e6
        lengths = [(end - start) / 1e6 for one in pooled for start, end in one["wrong"]]
        again = [(b[0] - a[0]) / 1e6 for one in pooled for a, b in pairwise(one["wrong"])]
        lags = sorted(lag for one in pooled for lag in one["lags"])
        return {
            "run": self.run,
            "observer": observer,
            "subject": subject,
            "exposure_s": exposure_s,
            "mistakes": len(lengths),
            "rate_per_h": 3600 * len(lengths) / exposure_s if exposure_s else None,
            "mistake_s": mean(lengths),
            "recurrence_s": mean(again),
            "accuracy": max(0.0, 1 - sum(lengths) / exposure_s) if exposure_s else None,
            "failures": sum(one["failures"] for one in pooled),
            "missed": sum(one["missed"] for one in pooled),
            "detection_p50_s": rank(lags, 0.5),
            "detection_p99_s": rank(lags, 0.99),
        }

    # --- views

    def views(self, window_s: float) -> list[Row]:
        window = round(window_s * SECOND)
        begin = min(life.start for life in self.lives)
        table = []
        for start in range(begin // window * window, self.end, window):
            now = start + window
            running = [node for node in self.nodes if any(a <= now < b for a, b in self.ran[node])]
            if not running:
                continue
            held = Counter(self._view(node, now) for node in running)
            table.append(
                {
                    "run": self.run,
                    "start": start,
                    "window_s": window_s,
                    "observers": len(running),
                    "distinct": len(held),
                    "agree": max(held.values()) / len(running),
                }
            )
        return table

    def _view(self, observer: str, now: int) -> frozenset[str]:
        """The members that it believes present, by the reports of its boot that spoke last."""
        words = [
            each
            for each in self.said
            if each.node == observer
            and each.at <= now
            and _present(each.from_state) != _present(each.to_state)
        ]
        held = {observer}
        for word in words:
            if word.boot == words[-1].boot:
                (held.add if _present(word.to_state) else held.discard)(word.subject)
        return frozenset(held)


def _present(state: str) -> bool:
    return state in ("alive", "suspect")


def rank(ordered: Sequence[float], share: float) -> float | None:
    return ordered[max(1, ceil(share * len(ordered))) - 1] if ordered else None


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
