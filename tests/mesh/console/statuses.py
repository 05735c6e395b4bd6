"""Statuses as brokers answer them, for tests of what the console makes of them."""

from __future__ import annotations

import zlib
from typing import Any

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


def broker_id(name: str) -> str:
    return f"{zlib.crc32(name.encode()):016x}"


def link(rtt_ms: float | None = 0.41, **changes: Any) -> dict[str, Any]:
    fields = {
        "dir": "out",
        "up_s": 812.4,
        "rtt_ms": rtt_ms,
        "msgs_in": 51_234,
        "msgs_out": 48_900,
        "bytes_in": 7_100_000,
        "bytes_out": 6_900_000,
        "dropped": 0,
        "lost": 0,
        "queued": 3,
    }
    return fields | changes


def member(name: str, state: str = "alive", *, is_self: bool = False, **changes: Any) -> dict[str, Any]:
    fields = {
        "id": broker_id(name),
        "name": name,
        "state": state,
        "incarnation": 1,
        "boot": "00000000000000b1",
        "url": f"tcp://10.0.0.{len(name)}:7770",
        "host": f"host-{name}",
        "since_s": 812.4,
        "self": is_self,
        "link": None if is_self or state in ("dead", "left") else link(),
    }
    return fields | changes


def row(node: str, seq: int, kind: str, ts: str, **fields: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "run": "demo",
        "ts": f"2026-11-21T{ts}Z",
        "node": broker_id(node),
        "boot": "00000000000000b1",
        "seq": seq,
        "kind": kind,
        **fields,
    }


def changed(
    node: str, seq: int, ts: str, subject: str, before: str, after: str, reason: str
) -> dict[str, Any]:
    return row(
        node,
        seq,
        "mem",
        ts,
        subject=broker_id(subject),
        subject_name=subject,
        from_state=before,
        to_state=after,
        reason=reason,
    )


def link_changed(node: str, seq: int, ts: str, peer: str, state: str, reason: str) -> dict[str, Any]:
    return row(node, seq, "link", ts, peer=broker_id(peer), dir="in", state=state, reason=reason)


def status(
    name: str = "alpha", members: list[dict[str, Any]] | None = None, **changes: Any
) -> dict[str, Any]:
    """One broker's status; by default all of five see each other alive."""
    if members is None:
        members = [member(other, is_self=other == name) for other in NAMES]
    fields = {
        "schema": 1,
        "mesh": "demo",
        "id": broker_id(name),
        "name": name,
        "boot": "00000000000000b1",
        "incarnation": 1,
        "host": f"host-{name}",
        "pid": 4242,
        "version": "0.1.0",
        "url": f"tcp://10.0.0.{len(name)}:7770",
        "client_url": f"tcp://10.0.0.{len(name)}:7770",
        "listeners": [f"tcp://10.0.0.{len(name)}:7770", f"ipc:///run/user/0/mangrove/{name}.sock"],
        "state": "ready",
        "uptime_s": 812.4,
        "period_s": 1.0,
        "members": members,
        "totals": {
            "published": 120_000,
            "delivered": 118_500,
            "dropped": 0,
            "msgs_in": 240_000,
            "msgs_out": 230_000,
            "bytes_in": 31_000_000,
            "bytes_out": 30_000_000,
        },
        "rates": {
            "msgs_in_s": 12_345.6,
            "msgs_out_s": 11_999.0,
            "bytes_in_s": 1_580_000.0,
            "bytes_out_s": 1_535_872.0,
        },
        "drops": {},
        "refused": {},
        "loop": {"late_ms_p50": 0.2, "late_ms_max": 3.4},
        "rss_bytes": 41_943_040,
        "sessions": 4,
        "subscriptions": 9,
        "interest": ["news.#", "weather.*.uk"],
        "taps": [],
        "events": [],
    }
    return fields | changes


def calm() -> list[dict[str, Any]]:
    """All five brokers, all well."""
    events = [
        row("alpha", 1, "meta", "09:00:00.000001", op="start", name="alpha"),
        row("alpha", 2, "link", "09:00:00.350000", peer=broker_id("beta"), dir="in", state="up", reason=""),
        changed("alpha", 3, "09:00:00.400000", "beta", "unknown", "alive", "link"),
    ]
    return [status(name, events=events if name == "alpha" else []) for name in NAMES]


def after_a_kill() -> list[dict[str, Any]]:
    """Beta was killed, delta is late; the four others answer."""
    states = {"beta": "dead", "delta": "suspect"}
    answers = []
    for place, name in enumerate(("alpha", "gamma", "delta", "epsilon")):
        members = [
            member(other, "alive" if other == name else states.get(other, "alive"), is_self=other == name)
            for other in NAMES
        ]
        events = [
            row(
                name,
                1,
                "link",
                f"09:01:02.{place}00000",
                peer=broker_id("beta"),
                dir="in",
                state="down",
                reason="reset",
            ),
            changed(name, 2, f"09:01:03.{place}00000", "beta", "alive", "suspect", "missed 1"),
            changed(name, 3, f"09:01:05.{place}00000", "beta", "suspect", "dead", "missed 3"),
            changed(name, 4, f"09:01:06.{place}00000", "delta", "alive", "suspect", "missed 1"),
        ]
        answers.append(status(name, members, events=events if name != "delta" else events[:3]))
    answers[0]["totals"] = answers[0]["totals"] | {"dropped": 37}
    answers[0]["drops"] = {"slow_subscriber": 30, "peer_gone": 7}
    answers[2]["loop"] = {"late_ms_p50": 8.0, "late_ms_max": 612.0}
    answers[1]["refused"] = {"handshake_timeout": 2}
    return answers


def split() -> list[dict[str, Any]]:
    """Two sides that do not see each other, as a screen that reaches both would get them."""
    sides = (("alpha", "beta", "gamma"), ("delta", "epsilon"))
    answers = []
    for side in sides:
        for name in side:
            members = [
                member(other, "alive" if other in side else "dead", is_self=other == name) for other in NAMES
            ]
            answers.append(status(name, members))
    return answers


def crowd(count: int) -> list[dict[str, Any]]:
    """Many brokers, of which the first few answered."""
    names = [f"broker-{number:02d}" for number in range(count)]
    return [
        status(name, [member(other, is_self=other == name) for other in names], host=f"h{name}")
        for name in names[:5]
    ]
