"""The status as JSON that fits into one answer. Pure.

An answer above 960 000 bytes breaks a rule of the link, and a status may grow beyond that: interest has a
pattern for each of thousands of subscriptions, and members choose their hosts and addresses themselves. So a
status above `STATUS_BYTES_MAX` is cut, list by list, the least useful first. Its ``omitted`` says how many
entries each list lacks. Members are cut last, and among them those that left or died first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

STATUS_BYTES_MAX: Final = 480_000
"""Half of the bound of an answer, since a survey of a large mesh collects one from each broker."""
SHARE_BYTES: Final = 32_000
"""Bytes that each list except the members may keep in a cut status."""
CUT_IN_ORDER: Final = (
    "interest",
    "queues_twice",
    "queues",
    "taps",
    "refused",
    "drops",
    "listeners",
    "events",
)
GONE: Final = ("left", "dead")
WORTH: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "events": lambda place, _: -int(place),
    "drops": lambda _, count: -int(count),
    "refused": lambda _, count: -int(count),
    "queues": lambda _, queue: -int(queue["waiting"]),
    "queues_twice": lambda _, homes: 0,
    "members": lambda _, member: 0 if member["self"] else 2 if member["state"] in GONE else 1,
}
"""The rank of an entry: low ranks are kept longest. Among equal ranks, and in other lists, the first entries
stay."""


_text: Final = json.JSONEncoder(separators=(",", ":")).encode


def encode_status(status: Mapping[str, Any], bytes_max: int = STATUS_BYTES_MAX) -> bytes:
    """JSON of at most ``bytes_max`` bytes. ``status`` itself is not changed.

    Its ``interest`` may be any collection; no more of it is read than may be sent.
    """
    interest = status["interest"]
    cut = {**status, "interest": _head(interest, bytes_max), "omitted": {}}
    if len(cut["interest"]) < len(interest):
        cut["omitted"]["interest"] = len(interest) - len(cut["interest"])
    parts = {key: _text(value) for key, value in cut.items()}
    for key in CUT_IN_ORDER:
        if _size(parts) <= bytes_max:
            return _join(parts)
        _cut(cut, key, SHARE_BYTES)
        parts |= {key: _text(cut[key]), "omitted": _text(cut["omitted"])}
    if _size(parts) > bytes_max:
        most = _text({**cut["omitted"], "members": len(cut["members"])})
        _cut(cut, "members", bytes_max - _size({**parts, "members": "[]", "omitted": most}))
        parts |= {"members": _text(cut["members"]), "omitted": _text(cut["omitted"])}
    return _join(parts)


def _size(parts: Mapping[str, str]) -> int:
    return 1 + sum(len(key) + len(part) + 4 for key, part in parts.items())


def _join(parts: Mapping[str, str]) -> bytes:
    return ("{" + ",".join(f'"{key}":{part}' for key, part in parts.items()) + "}").encode()


def _cut(status: dict[str, Any], key: str, bytes_max: int) -> None:
    """Keep the most useful entries that fit into so many bytes together, in their order."""
    entries = status[key]
    if key in WORTH:
        status[key] = _most_useful(entries, WORTH[key], bytes_max)
    else:
        status[key] = _head(entries, bytes_max)
    if len(status[key]) < len(entries):
        before = status["omitted"].get(key, 0)
        status["omitted"][key] = before + len(entries) - len(status[key])


def _head(entries: Iterable[str], bytes_max: int) -> list[str]:
    """The first entries that fit into so many bytes together. Reads one more than it returns."""
    head: list[str] = []
    for entry in entries:
        bytes_max -= len(_text(entry)) + 1
        if bytes_max < 0:
            break
        head.append(entry)
    return head


def _most_useful(entries: Any, worth: Callable[[Any, Any], int], bytes_max: int) -> Any:
    pairs = list(entries.items() if isinstance(entries, dict) else enumerate(entries))
    by_worth = sorted(range(len(pairs)), key=lambda place: worth(*pairs[place]))
    kept: list[int] = []
    for place in by_worth:
        name, entry = pairs[place]
        bytes_max -= len(_text(entry)) + (len(_text(name)) + 1 if isinstance(name, str) else 0) + 1
        if bytes_max < 0:
            break
        kept.append(place)
    chosen = [pairs[place] for place in sorted(kept)]
    return dict(chosen) if isinstance(entries, dict) else [entry for _, entry in chosen]
