"""Windows and bounds of the data plane: what one client, one link or the whole broker may claim."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Bounds and patience of the queue before one consumer."""

    messages_max: int = 65536
    """Messages that wait without holding their publisher's credit."""
    bytes_max: int = 16 << 20
    stall_s: float = 10.0
    """A consumer that made no progress for so long is stalled."""
    link_stall_s: float = 3.0
    """The same for what came over a link, whose credit other topics share."""


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """Windows are (messages, bytes). What is beyond a bound is refused with a sentence or dropped and
    counted; each line says which."""

    session_messages: int = 65536
    """Window for what a client publishes."""
    session_bytes: int = 12 << 20
    link_messages: int = 131072
    """Window for what a broker sends over its link."""
    link_bytes: int = 16 << 20
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    link_delivery: DeliveryOptions = field(default_factory=lambda: DeliveryOptions(bytes_max=64 << 20))
    sessions_per_pipe_max: int = 1024
    """Sessions behind one connection; one more is refused."""
    sessions_max: int = 16384
    """Sessions of all clients; one more is refused."""
    unwritten_bytes_max: int = 16 << 20
    """Bytes ready to be written to one client; beyond them its messages wait as without credit."""
    link_unwritten_bytes_max: int = 64 << 20
    """The same for a link."""
    stock_unwritten_bytes_max: int = 16 << 20
    """The same for a stock subscriber; beyond them its messages are dropped, the newest first."""
    waiting_bytes_max: int = 64 << 20
    """Bytes that wait for all subscriptions of one session together, at nobody's expense; the oldest of the
    subscription that passes the bound are dropped."""
    answer_bytes_max: int = 16 << 20
    """Bytes of answers that one client may leave unread; one more ends its session."""
    session_patterns_max: int = 32768
    """Patterns of one session; a subscription that passes them is refused."""
    patterns_max: int = 64_512
    """Different patterns that this broker wants for all its clients; a subscription that passes them is
    refused. Other brokers drop the link of one that wants more than 65 536 in all."""
    session_starred_patterns_max: int = 32
    """Patterns of one session with more than `STARS_MAX` stars; one subscription more is refused."""
    starred_patterns_max: int = 256
    """Different such patterns of all clients; a subscription that passes them is refused."""
    questions_max: int = 4096
    """Requests and surveys of one session without a result; one more is refused."""
    question_bytes_max: int = 16 << 20
    """Bytes of the bodies of these; one that passes them is refused, but for a single one."""
    durables_max: int = 16384
    """Durable subscriptions that have their home here; one more is refused."""
    consumers_max: int = 16384
    """Consumers of all of them; one more is refused."""
    work_window_max: int = 65536
    """Unsettled messages of one consumer; a larger window is cut to it."""
    work_bytes_max: int = 64 << 20
    """Bytes of these, about; a larger window is cut to it."""
    publishers_max: int = 16384
    """Publishers whose messages are checked for repetition; beyond them the one idle for longest is
    forgotten and counted. Those with a session here are not forgotten."""
    route_cache_bytes_max: int = 64 << 20
    """Memory of cached routes; beyond it the cache starts afresh."""
