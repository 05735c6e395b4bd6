"""Combines the heartbeats of each peer in the open window into rows of kind ``heard``. Pure.

A window is an interval of the monotonic clock, the same for all peers. The first heartbeat after it ends it,
or the log when it next writes. An open window is in no file yet, so a crash loses at most one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from mesh.broker.identity import format_id
from mesh.eventlog.windows import COUNTER_BITS, COUNTERS, PERIODS, RTT_BELOW_US, SLOTS, window_ns

PACKED: Final = (len(RTT_BELOW_US) + 1) // len(COUNTERS)
COUNTER_MAX: Final = (1 << COUNTER_BITS) - 1


class _Heard:
    """One peer in one window."""

    __slots__ = (
        "answer",
        "answers",
        "first_ns",
        "first_round",
        "last_ns",
        "last_round",
        "rtt_counts",
        "rtt_max_us",
        "rtt_min_us",
        "rtt_sum_us",
        "slots",
        "survey",
        "surveys",
    )

    def __init__(self, now_ns: int) -> None:
        self.surveys = 0
        self.answers = 0
        self.first_ns = now_ns
        self.last_ns = now_ns
        self.first_round: int | None = None
        self.last_round: int | None = None
        self.rtt_sum_us = 0
        self.rtt_min_us: int | None = None
        self.rtt_max_us: int | None = None
        self.rtt_counts = [0] * (len(RTT_BELOW_US) + 1)
        self.slots = 0
        self.survey: tuple[int, int] | None = None
        """The last survey used to compare clocks: its round, its arrival."""
        self.answer: tuple[int, int, int | None] | None = None
        """The last such answer: its round, its arrival, its round trip."""

    def survey_came(self, round: int, now_ns: int) -> None:
        self.surveys += 1
        first, last = self.first_round, self.last_round
        if first is None or round < first:
            self.first_round = round
        if last is None or round > last:
            self.last_round = round
        if round % PERIODS == 0 or round & (round - 1) == 0:
            self.survey = (round, now_ns)

    def answer_came(self, round: int, rtt_us: int | None, now_ns: int) -> None:
        self.answers += 1
        if rtt_us is not None:
            self.rtt_sum_us += rtt_us
            least, most = self.rtt_min_us, self.rtt_max_us
            if least is None or rtt_us < least:
                self.rtt_min_us = rtt_us
            if most is None or rtt_us > most:
                self.rtt_max_us = rtt_us
            self.rtt_counts[bisect_right(RTT_BELOW_US, rtt_us)] += 1
        if round % PERIODS == 0 or round & (round - 1) == 0:
            self.answer = (round, now_ns, rtt_us)

    def fields(self) -> dict[str, Any]:
        survey_round, survey_ns = self.survey or (None, None)
        answer_round, answer_ns, answer_rtt_us = self.answer or (None, None, None)
        return {
            "surveys": self.surveys,
            "answers": self.answers,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "first_round": self.first_round,
            "last_round": self.last_round,
            "rtt_sum_us": self.rtt_sum_us,
            "rtt_min_us": self.rtt_min_us,
            "rtt_max_us": self.rtt_max_us,
            **{name: self._packed(place * PACKED) for place, name in enumerate(COUNTERS)},
            "slots": self.slots - (1 << SLOTS) if self.slots >> (SLOTS - 1) else self.slots,
            "survey_round": survey_round,
            "survey_ns": survey_ns,
            "answer_round": answer_round,
            "answer_ns": answer_ns,
            "answer_rtt_us": answer_rtt_us,
        }

    def _packed(self, first: int) -> int:
        counts = self.rtt_counts[first : first + PACKED]
        return sum(min(count, COUNTER_MAX) << COUNTER_BITS * place for place, count in enumerate(counts))


class HeardWindows:
    """The windows of all peers. ``period_s`` is this broker's."""

    def __init__(self, period_s: float) -> None:
        self.length_ns = window_ns(period_s)
        self._number = 0
        self._peers: dict[int, _Heard] = {}

    def heard(
        self, survey: bool, source: int, round: int, rtt_s: float | None, now: float
    ) -> list[dict[str, Any]] | None:
        """Note a heartbeat, as the log writes each. Returns the fields of the rows of a window that it
        ended."""
        now_ns = int(now * 1e9)
        number, place = divmod(now_ns, self.length_ns)
        ended = None
        if number != self._number:
            ended = self.end()
            self._number = number
        peer = self._peers.get(source)
        if peer is None:
            peer = self._peers[source] = _Heard(now_ns)
        peer.last_ns = now_ns
        peer.slots |= 1 << place * SLOTS // self.length_ns
        if survey:
            peer.survey_came(round, now_ns)
        else:
            rtt_us = None if rtt_s is None else int(rtt_s * 1e6 + 0.5) if rtt_s > 0.0 else 0
            peer.answer_came(round, rtt_us, now_ns)
        return ended

    def end(self, now: float | None = None) -> list[dict[str, Any]]:
        """The fields of a row for each peer that was heard; the window is then empty. With ``now`` only if
        the window is over by then."""
        if now is not None and int(now * 1e9) // self.length_ns == self._number:
            return []
        common = {"window": self._number, "window_ns": self.length_ns}
        rows = [{"src": format_id(peer), **common, **heard.fields()} for peer, heard in self._peers.items()]
        self._peers.clear()
        return rows
