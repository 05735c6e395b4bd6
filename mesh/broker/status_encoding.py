"""The status as JSON that fits into one answer. Pure.

An answer above 960 000 bytes breaks a rule of the link, and a status may grow beyond that: interest has a
pattern for each of thousands of subscriptions, and the members' hosts and addresses are the members' own
words. A status above `STATUS_BYTES_MAX` is therefore cut, list by list, the least useful first, and its
``omitted`` says how many entries each list lacks. Members go last, those that left or died before the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

STATUS_BYTES_MAX: Final = 480_000
"""Half of what an answer may have: a survey of a large mesh brings one from each broker."""
SHARE_BYTES: Final = 32_000
"""What every list but the members may keep of a status that is cut."""
CUT_IN_ORDER: Final = ("interest", "taps", "refused", "drops", "listeners", "events")
GONE: Final = ("left", "dead")


def encode_status(status: Mapping[str, Any], bytes_max: int = STATUS_BYTES_MAX) -> bytes:
    """JSON of at most ``bytes_max`` bytes; ``status`` itself stays as it is."""
    data = _encode(status)
    if len(data) <= bytes_max:
        return data
    cut = {**status, "omitted": {}}
    for key in CUT_IN_ORDER:
        _cut(cut, key, SHARE_BYTES)
        data = _encode(cut)
        if len(data) <= bytes_max:
            return data
    others = len(
        _encode({**cut, "members": [], "omitted": {**cut["omitted"], "members": len(cut["members"])}})
    )
    _cut(cut, "members", bytes_max - others)
    return _encode(cut)


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _cut(status: dict[str, Any], key: str, bytes_max: int) -> None:
    """Keep the most useful entries that have so many bytes together, in the order that they had."""
    entries = status[key]
    pairs = list(entries.items() if isinstance(entries, dict) else enumerate(entries))
    by_worth = sorted(range(len(pairs)), key=lambda place: _worth(key, *pairs[place]))
    kept = sorted(_fitting(by_worth, [pairs[place] for place in by_worth], bytes_max))
    if len(kept) == len(pairs):
        return
    chosen = [pairs[place] for place in kept]
    status[key] = dict(chosen) if isinstance(entries, dict) else [entry for _, entry in chosen]
    status["omitted"][key] = len(pairs) - len(kept)


def _worth(key: str, name: Any, entry: Any) -> int:
    """The lower, the longer it is kept; what is equal is kept from the first on."""
    match key:
        case "events":
            return -int(name)
        case "drops" | "refused":
            return -int(entry)
        case "members":
            return 0 if entry["self"] else 2 if entry["state"] in GONE else 1
        case _:
            return 0


def _fitting(places: Iterable[int], pairs: Iterable[tuple[Any, Any]], bytes_max: int) -> Iterable[int]:
    """The first places whose entries have at most so many bytes together."""
    size = 0
    for place, (name, entry) in zip(places, pairs, strict=True):
        size += len(_encode(entry)) + (len(_encode(name)) + 1 if isinstance(name, str) else 0) + 1
        if size > bytes_max:
            return
        yield place
