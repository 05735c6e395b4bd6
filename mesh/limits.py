"""Bounds for the clients and peers of one broker: all that can be configured. Pure.

A claim beyond a bound is refused with a sentence that names the bound, or its messages are dropped and
counted; each line says which. The data plane uses the same names (`mesh.dataplane.options`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from mesh.errors import ConfigError

BYTES_LEAST: Final = 2 << 20
"""Room for a block of the largest size and one more."""
BYTES_MOST: Final = 1 << 40
PATTERNS_MOST: Final = 64_512
"""Patterns of clients. Other brokers drop the link of a broker that wants more than 65 536 in total. The rest
is for the broker itself and for the patterns that it shows stock subscribers."""
STARRED_PATTERNS_MOST: Final = 4096
"""Each makes the look-up of a new topic slower by some 5 us."""
MESH_KEY_MIN: Final = 8
"""Bytes. Everybody who reaches the broker may guess, so a shorter key does not protect it."""
EXPORT_MOST: Final = 500
"""While one list replaces another, twice as many are wanted."""


def export_problem(patterns: Sequence[str]) -> str | None:
    """The error in the number of patterns that stock subscribers may see. None if there is none."""
    if len(patterns) <= EXPORT_MOST:
        return None
    return f"has {len(patterns)} patterns; a broker shows stock SUB sockets at most {EXPORT_MOST}"


def option(default: Any, env: str, help: str, check: Callable[[Any], str | None] | None = None) -> Any:
    """A field that is an option of the configuration."""
    return field(default=default, metadata={"env": env, "help": help, "check": check})


def _between(least: int, most: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if type(value) is int and least <= value <= most:
            return None
        return f"must be an integer from {least} to {most}, not {value!r}"

    return check


_bytes: Final = _between(BYTES_LEAST, BYTES_MOST)


def _limit(default: int, name: str, help: str, check: Callable[[Any], str | None]) -> Any:
    return option(default, f"MANGROVE_{name}", help, check)


@dataclass(frozen=True, slots=True)
class Limits:
    """``[limits]``: bounds for one client, one peer and all together at a broker.

    Raises `ConfigError` for an invalid value.
    """

    sessions_per_pipe_max: int = _limit(
        1024,
        "SESSIONS_PER_PIPE_MAX",
        "sessions behind one connection of an SP device; one more is refused",
        _between(1, 1 << 20),
    )
    sessions_max: int = _limit(
        16_384,
        "SESSIONS_MAX",
        "sessions of all clients of this broker; one more is refused",
        _between(1, 1 << 20),
    )
    session_patterns_max: int = _limit(
        32_768,
        "SESSION_PATTERNS_MAX",
        "patterns of one client; one more subscription is refused",
        _between(1, PATTERNS_MOST),
    )
    patterns_max: int = _limit(
        PATTERNS_MOST,
        "PATTERNS_MAX",
        "different patterns of all clients of this broker; one more subscription is refused",
        _between(16, PATTERNS_MOST),
    )
    session_starred_patterns_max: int = _limit(
        32,
        "SESSION_STARRED_PATTERNS_MAX",
        "patterns of one client with more than 3 `*`; one more subscription is refused",
        _between(0, STARRED_PATTERNS_MOST),
    )
    starred_patterns_max: int = _limit(
        256,
        "STARRED_PATTERNS_MAX",
        "different patterns of all clients with more than 3 `*`; one more subscription is refused",
        _between(0, STARRED_PATTERNS_MOST),
    )
    questions_max: int = _limit(
        4096,
        "QUESTIONS_MAX",
        "requests and surveys of one client without a result; one more is refused",
        _between(1, 1 << 20),
    )
    question_bytes_max: int = _limit(
        16 << 20,
        "QUESTION_BYTES_MAX",
        "bytes in the bodies of these; one more request is refused",
        _bytes,
    )
    answer_bytes_max: int = _limit(
        16 << 20,
        "ANSWER_BYTES_MAX",
        "bytes of answers that a client may leave unread before it loses its connection",
        _bytes,
    )
    unwritten_bytes_max: int = _limit(
        16 << 20,
        "UNWRITTEN_BYTES_MAX",
        "bytes ready to be written to one client; beyond them its messages wait as without credit",
        _bytes,
    )
    link_unwritten_bytes_max: int = _limit(
        64 << 20, "LINK_UNWRITTEN_BYTES_MAX", "the same for a link to another broker", _bytes
    )
    stock_unwritten_bytes_max: int = _limit(
        16 << 20,
        "STOCK_UNWRITTEN_BYTES_MAX",
        "the same for a stock SUB socket, whose newest messages are dropped then",
        _bytes,
    )
    waiting_bytes_max: int = _limit(
        64 << 20,
        "WAITING_BYTES_MAX",
        "bytes that wait for one session's subscriptions; beyond them the oldest are dropped and counted",
        _bytes,
    )
    durables_max: int = _limit(
        16_384,
        "DURABLES_MAX",
        "durable subscriptions that have their home at this broker; one more is refused",
        _between(0, 16_384),
    )
    consumers_max: int = _limit(
        16_384,
        "CONSUMERS_MAX",
        "consumers of all durable subscriptions at this broker; one more is refused",
        _between(1, 1 << 20),
    )
    work_window_max: int = _limit(
        65_536,
        "WORK_WINDOW_MAX",
        "messages that one consumer of a durable subscription may hold unsettled; it gets no more at once",
        _between(1, 1 << 20),
    )
    work_bytes_max: int = _limit(
        64 << 20,
        "WORK_BYTES_MAX",
        "the same in bytes, approximately",
        _bytes,
    )
    publishers_max: int = _limit(
        16_384,
        "PUBLISHERS_MAX",
        "publishers checked for repeated messages; beyond them the one idle for longest is forgotten",
        _between(16, 1 << 20),
    )
    route_cache_bytes_max: int = _limit(
        64 << 20,
        "ROUTE_CACHE_BYTES_MAX",
        "memory of cached routes; beyond it the cache starts afresh",
        _bytes,
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            problem = item.metadata["check"](getattr(self, item.name))
            if problem:
                raise ConfigError(f"limits.{item.name} {problem}")
