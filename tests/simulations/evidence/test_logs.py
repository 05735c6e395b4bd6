"""Rows of heartbeats are read as others are, and take less memory."""

from __future__ import annotations

import pytest

from simulations.evidence.logs import HeartbeatRow, log_rows

HEAD = b'{"v":1,"run":"test","ts":"2026-01-01T00:00:05.250000Z","mono_ns":7,"node":"0a","boot":"0b","inc":1,'
HEARTBEAT = HEAD + b'"seq":3,"kind":"hb","msg":"answer","src":"0c","dst":"0a","hb_seq":9,"rtt_us":812}'
LINK = HEAD + b'"seq":2,"kind":"link","peer":"0c","state":"up"}'


def test_a_heartbeat_is_read_by_the_names_of_its_fields() -> None:
    (row,) = log_rows({"one": HEARTBEAT + b"\n"})
    assert isinstance(row, HeartbeatRow)
    assert (row["kind"], row["msg"], row["src"], row["hb_seq"], row["rtt_us"]) == (
        "hb",
        "answer",
        "0c",
        9,
        812,
    )
    assert row["at_s"] == pytest.approx(5.25)
    row["at_s"] = 6.0
    assert row["at_s"] == 6.0 and row.get("op") is None
    with pytest.raises(KeyError):
        row["op"]


def test_rows_of_all_kinds_come_by_time_and_share_their_ids() -> None:
    later = HEARTBEAT.replace(b"05.25", b"07.25")
    rows = log_rows({"one": later + b"\n" + HEARTBEAT, "two": LINK})
    assert [row["kind"] for row in rows] == ["hb", "link", "hb"]
    assert rows[0]["src"] is rows[2]["src"]


def test_lines_that_are_torn_or_make_no_sense_are_left_out() -> None:
    senseless = HEARTBEAT.replace(b'"hb_seq":9', b'"hb_seq":"x"')
    assert log_rows({"one": b"\n".join([HEARTBEAT[:-5], senseless, b"", b"[]", b"\xff"])}) == []
