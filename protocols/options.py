"""Every option of a socket, with its default, in one place. Units are part of the names.

Options are checked when they are made, so that a wrong one is reported where it was written and not later, by
a connection that behaves oddly. ``docs/reference/options.md`` compares them with those of NNG and mangos.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from numbers import Real
from typing import Final, TypedDict

from protocols.tls import TlsConfig


class Default(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "the socket's own"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT
"""As a ``timeout``: the value in the socket's options. None is no limit, wherever a timeout is given."""

TimeLimit = float | None | Default
"""Seconds from 0, None for no limit, or `DEFAULT`."""


def seconds(timeout: TimeLimit, default_s: float | None) -> float | None:
    """The seconds that a ``timeout`` argument stands for, thirty years at most.

    Raises `TypeError` if it is no number, `ValueError` if it is negative.
    """
    if timeout is DEFAULT:
        return default_s
    if timeout is None:
        return None
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout is {timeout!r}; it is seconds from 0, or None to wait forever")
    if timeout >= 0:  # this form is false for nan
        return min(timeout, TIME_MAX_S)
    shown = max(timeout, -TIME_MAX_S)
    raise ValueError(f"timeout is {shown:g}; it is seconds from 0, or None to wait forever")


def survey_seconds(survey_s: float | Default) -> float | None:
    """How long a survey is open; None uses the value of its socket or context. Raises `TypeError`,
    `ValueError`.
    """
    if survey_s is DEFAULT:
        return None
    if survey_s is None:
        raise ValueError("survey_s is None; a survey has an end")
    _check_time("survey_s", survey_s, optional=False, positive=False)
    return survey_s


def request_limits(timeout: TimeLimit, options: SocketOptions) -> tuple[float | None, float | None]:
    """The limits of a request in seconds: for the wait for room, and in total.

    By default ``recv_timeout_s`` bounds the total, and ``send_timeout_s`` also bounds the wait for room.
    """
    limit_s = seconds(timeout, options.recv_timeout_s)
    if timeout is not DEFAULT or options.send_timeout_s is None:
        return limit_s, limit_s
    return min(options.send_timeout_s, float("inf") if limit_s is None else limit_s), limit_s


TTL_MAX: Final = 255
TIME_MAX_S: Final = 1e9
"""Thirty years; event loops cannot add more to their time."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options of one socket and of the endpoints it opens.

    Times are seconds, sizes are bytes, queues are counted in messages. ``None`` as a time means no limit. An
    endpoint may be given options of its own (``socket.dial(url, options=replace(socket.options, ...))``); it
    uses only those about connections, from ``recv_size_max`` on.

    Raises:
        TypeError: an option has a value of another type, or is unknown.
        ValueError: a value is out of range; the message says which values are allowed.
    """

    # --- queues and waiting: the socket's

    send_queue: int = 1024
    """Messages that one pipe holds for a slow peer (SP queues are counted in messages)."""
    recv_queue: int = 1024
    """Messages that a socket holds for a slow application."""
    send_timeout_s: float | None = None
    recv_timeout_s: float | None = None
    peers_max: int = 16384
    """The most peers that a socket has at once. Each costs about 3 KB, plus what is queued."""
    linger_s: float | None = 1.0
    """The most seconds that closing waits for the peers to read what is queued for them. 0: not at all."""

    # --- patterns: the socket's

    ttl: int = 8
    """The most hops (backtrace words or hop count) that a message may have, 1 to 255; NNG refuses above
    15.
    """
    resend_s: float | None = 60.0
    """Req0 sends an unanswered request again after this long; ``None`` or 0 means never, even if the pipe is
    lost.
    """
    survey_s: float = 1.0
    """How long Surveyor0 accepts answers; with 0 the survey ends at once."""
    prefer_new: bool = True
    """Sub0 with a full queue drops the oldest message (true) or the arriving one (false)."""
    best_effort: bool = False
    """Send drops (and counts) a message if no peer has room, instead of waiting."""
    fail_without_peers: bool = False
    """Send and a waiting request raise `NoPeers` at once if there is no peer."""

    # --- connections: the socket's, unless an endpoint has its own

    recv_size_max: int = 1 << 20
    """Largest frame accepted, SP header included; the peer of a larger one loses its connection. 0: any
    size.
    """
    reconnect_min_s: float = 0.1
    """First pause before a dialer tries again; it doubles up to ``reconnect_max_s``."""
    reconnect_max_s: float = 10.0
    """Longest pause between two attempts; below ``reconnect_min_s`` (0, for one) the pause does not grow."""
    handshake_timeout_s: float = 10.0
    """How long a peer may take for its whole handshake, including TLS and HTTP. A dialer allows the same time
    for the name look-up, and for each address until it accepts. (NNG's deadline; nanomsg has one second.)
    """
    happy_eyeballs_delay_s: float | None = 0.25
    """How long one address of a name may take before the next is tried in parallel (RFC 8305); ``None``: one
    after the other.
    """
    read_budget: int = 65536
    """Bytes read from one connection before the loop turns (design decision 12: bounds timer lateness)."""
    nodelay: bool = True
    """TCP sends small segments at once."""
    keepalive: bool = True
    """TCP detects a peer that vanished silently."""
    keepalive_s: int | None = None
    """Silence before the first keepalive probe, and between probes; ``None``: the system's (2 h on Linux)."""
    ipc_permissions: int = 0o600
    """Mode of the file of an ipc listener. A user who may write to the file may connect."""
    ipc_owner: int | None = None
    """User id of the owner of an ipc listener's file; ``None``: our own."""
    ipc_group: int | None = None
    """Group id of that file; ``None``: our own."""

    ws_origins: tuple[str, ...] = ()
    """Origins of web pages (``https://app.example:8443``) that may connect to a ws listener, besides those of
    its own host; ``*`` means any. A client that is no browser sends no origin, and needs none.
    """
    ws_hosts: tuple[str, ...] = ()
    """Names (``app.example``) by which web pages of its own host may call a ws listener, besides addresses
    and the host in its URL. The author of a page could make any other name point to this listener.
    """

    # --- TLS: the endpoint's

    tls: TlsConfig | None = None
    """Certificates and trust of ``tls+tcp://`` and ``wss://`` endpoints. With ``None``, dialers trust the
    system's authorities and show no certificate, and there can be no listener.
    """

    def __post_init__(self) -> None:
        if self.tls is not None and not isinstance(self.tls, TlsConfig):
            raise TypeError(f"tls is a TlsConfig or None, not {self.tls!r}")
        for name in _NAMES:
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
                raise TypeError(f"{name} is a tuple of strings, not {value!r}")
        for name, low, high in _INTEGERS:
            check_integer(name, getattr(self, name), low, high)
        for name, optional, positive in _TIMES:
            _check_time(name, getattr(self, name), optional, positive)
        for name in _SWITCHES:
            value = getattr(self, name)
            if type(value) is not bool:
                raise TypeError(f"{name} is True or False, not {value!r}")
        for name, high in _OPTIONAL_INTEGERS:
            value = getattr(self, name)
            if value is not None:
                check_integer(name, value, 1 if name == "keepalive_s" else 0, high)


class OptionKeywords(TypedDict, total=False):
    """The options of `SocketOptions` as keyword arguments, for constructors."""

    send_queue: int
    recv_queue: int
    send_timeout_s: float | None
    recv_timeout_s: float | None
    peers_max: int
    linger_s: float | None
    ttl: int
    resend_s: float | None
    survey_s: float
    prefer_new: bool
    best_effort: bool
    fail_without_peers: bool
    recv_size_max: int
    reconnect_min_s: float
    reconnect_max_s: float
    handshake_timeout_s: float
    happy_eyeballs_delay_s: float | None
    read_budget: int
    nodelay: bool
    keepalive: bool
    keepalive_s: int | None
    ipc_permissions: int
    ipc_owner: int | None
    ipc_group: int | None
    ws_origins: tuple[str, ...]
    ws_hosts: tuple[str, ...]
    tls: TlsConfig | None


INTEGER_MAX: Final = (1 << 63) - 1
_INTEGERS: Final = (
    ("send_queue", 1, INTEGER_MAX),
    ("recv_queue", 1, INTEGER_MAX),
    ("peers_max", 1, INTEGER_MAX),
    ("recv_size_max", 0, INTEGER_MAX),
    ("read_budget", 1, 1 << 30),
    ("ttl", 1, TTL_MAX),
    ("ipc_permissions", 0, 0o777),
)
"""Name, lowest, highest."""
_OPTIONAL_INTEGERS: Final = (
    ("keepalive_s", 32767),  # the maximum on Linux
    ("ipc_owner", (1 << 32) - 2),
    ("ipc_group", (1 << 32) - 2),
)
_TIMES: Final = (
    ("send_timeout_s", True, False),
    ("recv_timeout_s", True, False),
    ("linger_s", True, False),
    ("resend_s", True, False),
    ("survey_s", False, False),
    ("reconnect_min_s", False, False),
    ("reconnect_max_s", False, False),
    ("handshake_timeout_s", False, True),
    ("happy_eyeballs_delay_s", True, False),
)
"""Name, whether None is allowed, whether 0 is forbidden."""
_NAMES: Final = ("ws_origins", "ws_hosts")
_SWITCHES: Final = ("prefer_new", "best_effort", "fail_without_peers", "nodelay", "keepalive")


def options_or(options: SocketOptions | None, default: SocketOptions) -> SocketOptions:
    """Return the given options, or else the default ones. Raises `TypeError` for any other object."""
    if options is None:
        return default
    if not isinstance(options, SocketOptions):
        raise TypeError(f"options is a SocketOptions or None, not {options!r}")
    return options


def check_integer(name: str, value: object, low: int, high: int = INTEGER_MAX) -> None:
    """Raises `TypeError`, `ValueError`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if not low <= value <= high:
        write = oct if name == "ipc_permissions" else str
        allowed = f"{low} or more" if high == INTEGER_MAX else f"from {write(low)} to {write(high)}"
        raise ValueError(f"{name} is {write(value)}; it must be {allowed}")


def _check_time(name: str, value: object, optional: bool, positive: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} is a number of seconds{' or None' if optional else ''}, not {value!r}")
    if not 0 <= value <= TIME_MAX_S or (positive and value == 0):  # this form is false for nan
        allowed = "more than 0 and at most 1e9" if positive else "from 0 to 1e9"
        forever = ", or None for no limit" if optional else ""
        raise ValueError(f"{name} is {value}; it must be {allowed} seconds{forever}")


assert {field.name for field in fields(SocketOptions)} == {
    *(row[0] for row in (*_INTEGERS, *_OPTIONAL_INTEGERS, *_TIMES)),
    *_SWITCHES,
    *_NAMES,
    "tls",
}, "an option without a check"
assert {field.name for field in fields(SocketOptions)} == set(OptionKeywords.__annotations__), (
    "an option that constructors do not take"
)
