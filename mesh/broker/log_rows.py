"""Rows of the event log as a broker writes them: their common columns, their numbers, their text. Pure.

`mesh.eventlog.rows` defines the content of a row. Heartbeats are most of the rows. They are only noted when
they arrive, and made into text together when they are written. Rows of one boot are numbered without a gap,
so a gap means loss.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mesh.broker.identity import format_id
from mesh.eventlog.rows import VERSION, Row

SOURCES_KEPT: Final = 1024
"""Members whose part of a heartbeat row is cached before the cache is emptied."""

Fields = dict[str, Any]
"""Columns of one kind of row besides the common ones."""
Heard = tuple[bool, int, int, float | None, int, int, float, float]
"""A noted heartbeat: whether it is a survey, its source, its round, an answer's round-trip time in seconds,
the row's number, the writer's incarnation, and the times on the loop's clock and the wall clock."""

_encode: Final = msgspec.json.Encoder().encode


def as_text(value: Any) -> str:
    """JSON of a row or of a part of one. Bytes that are not UTF-8, as in a path, each become a ``?``."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace").decode()


class RowBuilder:
    """The columns that every row of one writer has, and its number. Pure."""

    def __init__(self, *, run: str, node: int, boot: int) -> None:
        self.incarnation = 0
        self.seq = 0
        self._run = run
        self._node = format_id(node)
        self._boot = format_id(boot)
        self._begins = f'{{"v":{VERSION},"run":{as_text(run)},"ts":"'
        self._of_whom = f',"node":"{self._node}","boot":"{self._boot}","inc":'
        self._middles: dict[int, tuple[str, str]] = {}
        self._second = -2.0
        self._second_as_text = ""

    def row(self, kind: type[Row], fields: Fields, *, now: float, wall: float) -> Row:
        """A whole row. ``now`` is monotonic, ``wall`` since the epoch, both in seconds."""
        self.seq += 1
        return kind(
            v=VERSION,
            run=self._run,
            ts=self._time(wall),
            mono_ns=int(now * 1e9),
            node=self._node,
            boot=self._boot,
            inc=self.incarnation,
            seq=self.seq,
            **fields,
        )

    def lines(self, rows: list[str | Heard]) -> list[str]:
        """Rows as text. Heartbeats are written by hand in the form of `mesh.eventlog.rows.HbRow`: passing a
        dict through json costs seven times as much."""
        begins, of_whom = self._begins, self._of_whom
        lines = []
        whole_s, second = self._second, self._second_as_text
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
                continue
            survey, source, number, rtt_s, seq, incarnation, now, wall = row
            middle = self._middles.get(source) or self._middle(source)
            rtt_us = "null" if rtt_s is None else int(rtt_s * 1e6 + 0.5) if rtt_s > 0.0 else 0
            us = round((wall - whole_s) * 1e6)
            if not 0 <= us < 1_000_000:
                us = self._enter_second(wall)
                whole_s, second = self._second, self._second_as_text
            digits = us if us >= 100_000 else f"{us:06d}"  # padding is slow
            lines.append(
                f'{begins}{second}.{digits}Z","mono_ns":{int(now * 1e9)}{of_whom}{incarnation},"seq":{seq}'
                f'{middle[survey]}{number},"rtt_us":{rtt_us}}}'
            )
        return lines

    def _middle(self, source: int) -> tuple[str, str]:
        """The constant middle part of one member's heartbeat rows: for an answer, for a survey."""
        if len(self._middles) >= SOURCES_KEPT:
            self._middles.clear()
        to_us = f'"src":"{format_id(source)}","dst":"{self._node}","hb_seq":'
        begins = ',"kind":"hb","msg":'
        middle = self._middles[source] = (f'{begins}"answer",{to_us}', f'{begins}"survey",{to_us}')
        return middle

    def _time(self, wall: float) -> str:
        """RFC 3339 in UTC with microseconds. The text of the second is cached, since many rows share it."""
        us = round((wall - self._second) * 1e6)
        if not 0 <= us < 1_000_000:
            us = self._enter_second(wall)
        return f"{self._second_as_text}.{us:06d}Z"

    def _enter_second(self, wall: float) -> int:
        """Switch to another second than that of the last row. Returns the microseconds in it."""
        fraction, second = math.modf(wall)
        microseconds = round(fraction * 1e6)
        if microseconds == 1_000_000:
            second, microseconds = second + 1, 0
        self._second = second
        self._second_as_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return microseconds


def member_fields(
    *,
    subject: int,
    name: str,
    boot: int,
    incarnation: int,
    from_state: str,
    to_state: str,
    reason: str,
    via: int,
) -> Fields:
    """A member changed its state in this writer's view. ``via`` reported it, perhaps the writer itself."""
    return {
        "subject": format_id(subject),
        "subject_name": name,
        "subject_boot": format_id(boot),
        "subject_inc": incarnation,
        "from_state": from_state,
        "to_state": to_state,
        "reason": reason,
        "via": format_id(via),
    }


def link_fields(*, peer: int, dialed: bool, up: bool, reason: str) -> Fields:
    """A link came up or went down. ``dialed``: this writer dialled it."""
    return {
        "peer": format_id(peer),
        "dir": "out" if dialed else "in",
        "state": "up" if up else "down",
        "reason": reason,
    }
