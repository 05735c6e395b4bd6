"""Checks of the arguments that programs give to the calls of both clients. Pure.

Each check runs once a call, where the value enters and before anything changes. A bad value gets one clear
error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from numbers import Real
from typing import Any, Final

from mesh.errors import TopicError
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue
from mesh.wire.durable_frames import AFTER_MAX_MS
from mesh.wire.fields import shown
from mesh.wire.session_frames import NAME_MAX

# --- one value


def checked_seconds(what: str, given: Any) -> float:
    """Check a time in seconds, which must not be negative. Raises TypeError, ValueError."""
    if not isinstance(given, Real):
        raise TypeError(f"{what} is {shown(given)}; it is a number of seconds")
    seconds = _as_float(given)
    if seconds >= 0:  # false for nan, too
        return seconds
    raise ValueError(f"{what} is {seconds:g}; it is seconds from 0")


def checked_after(given: Any) -> float:
    """Check the delay of a redelivery in seconds. Raises TypeError, ValueError."""
    seconds = checked_seconds("after", given)
    problem = after_problem(seconds)
    if problem:
        raise ValueError(f"after is {problem}")
    return seconds


def after_problem(seconds: float) -> str:
    """Say what is wrong with the delay of a redelivery; empty if nothing is."""
    most_s = AFTER_MAX_MS // 1000
    if seconds <= most_s:
        return ""
    days = most_s // 86_400
    return f"{seconds:.10g}; a message is tried again within {most_s} s ({days} days)"


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of 300 digits
        return inf if number > 0 else -inf


def checked_name(name: Any) -> str:
    """Check the name that others see of a client; None gives an empty one. Raises TypeError, ValueError."""
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"the name of a client is a str, not {type(name).__name__}")
    if len(name) > NAME_MAX:
        raise ValueError(f"a name of {len(name)} characters is above the limit of {NAME_MAX}")
    return name


def checked_pending_max(given: Any) -> int:
    """Check how many messages of ``publish_soon`` may be pending at once. Raises TypeError, ValueError."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"pending_max is {shown(given)}; it is a number of messages")
    if given < 1:
        raise ValueError(f"pending_max is {given}; it is a number of messages from 1")
    return given


def level_number(level: str) -> int:
    """The number of a level in a block. Raises ValueError."""
    try:
        return blocks.LEVELS.index(level)
    except ValueError:
        known = ", ".join(repr(name) for name in (*blocks.LEVELS, "outbox"))
        raise ValueError(f"level {shown(level)} is not known; levels are {known}") from None


def packed(headers: Mapping[str, HeaderValue] | None, key: str | None = None) -> bytes:
    """Encode headers; ``key`` travels as the header of that name. Raises TypeError, ValueError."""
    if headers is None and key is None:
        return b""
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"headers are a mapping of names to values, not {type(headers).__name__}")
    if key is None:
        return blocks.pack_headers(headers)
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {type(key).__name__}")
    return blocks.pack_headers({**(headers or {}), "key": key})


# --- bodies


def checked_body(body: Any) -> bytes:
    """Check a body and return it as bytes. Raises TypeError, ValueError."""
    if isinstance(body, bytes):
        checked = body
    elif isinstance(body, (bytearray, memoryview)):
        checked = bytes(body)
    else:
        raise TypeError(f"a body is bytes, not {type(body).__name__}; encode it first")
    if len(checked) > blocks.BODY_MAX:
        raise ValueError(f"a body of {len(checked)} bytes is above the limit of {blocks.BODY_MAX}")
    return checked


_BYTES: Final = {bytes}


def checked_bodies(bodies: Iterable[Any]) -> tuple[list[bytes], int]:
    """Check a list of bodies as `checked_body` does; return them and their total size in bytes. A list of
    plain bytes is returned itself.

    Raises TypeError, ValueError.
    """
    if isinstance(bodies, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"bodies are a list of bytes, not one {type(bodies).__name__}; publish takes one")
    if not isinstance(bodies, Iterable):
        raise TypeError(f"bodies are a list of bytes, not {type(bodies).__name__}")
    checked = bodies if type(bodies) is list else list(bodies)
    if set(map(type, checked)) == _BYTES:
        size = sum(map(len, checked))
        if size <= blocks.BODY_MAX:
            return checked, size
    checked = [checked_body(body) for body in checked]
    return checked, sum(map(len, checked))


def by_topic(
    messages: str | Sequence[tuple[str, bytes]], bodies: Sequence[bytes] | None
) -> list[tuple[str, list[bytes], int]]:
    """Sort the arguments of ``publish_many``: each topic, its bodies, and their size in bytes.

    Raises:
        TypeError, ValueError: the arguments, or one of the bodies, cannot be used.
    """
    if isinstance(messages, str):
        if bodies is None:
            raise TypeError("publish_many('topic', bodies) needs the list of bodies")
        checked, size = checked_bodies(bodies)
        return [(messages, checked, size)] if checked else []
    if bodies is not None:
        raise TypeError(f"publish_many takes a topic and bodies, or pairs of both, not {shown(messages)}")
    if not isinstance(messages, Iterable):
        raise TypeError(f"publish_many takes a topic and bodies, or pairs of both, not {shown(messages)}")
    gathered: dict[str, list[bytes]] = {}
    for pair in messages:
        try:
            topic, body = pair
            found = gathered.setdefault(topic, [])
        except (TypeError, ValueError):
            raise _wrong_pair(pair) from None
        found.append(checked_body(body))
    return [(topic, found, sum(map(len, found))) for topic, found in gathered.items()]


def _wrong_pair(pair: Any) -> Exception:
    """Say why something is not a pair of topic and body."""
    if isinstance(pair, Sequence) and len(pair) == 2:
        return TopicError(f"a topic is a str such as 'news.uk', not {shown(pair[0])}")
    return TypeError(f"publish_many takes pairs of a topic and a body, not {shown(pair)}")
