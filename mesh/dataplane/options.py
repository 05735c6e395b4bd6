"""Windows and bounds of the data plane: what one client, one link or the whole broker may claim."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Limits of the queue of one consumer."""

    messages_max: int = 65536
    """Messages that wait without holding their publisher's credit."""
    bytes_max: int = 16 << 20
    stall_s: float = 10.0
    """A consumer that makes no progress for so long is stalled."""
    link_stall_s: float = 3.0
    """The same for blocks from a link. Other topics share its credit."""


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """Windows are (messages, bytes). Whatever exceeds a bound is refused with a reason, or dropped and
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
    """Bytes ready to be written to one client. Beyond them its messages wait as they do without credit."""
    link_unwritten_bytes_max: int = 64 << 20
    """The same for a link."""
    stock_unwritten_bytes_max: int = 16 << 20
    """The same for a stock subscriber. Beyond them its messages are dropped, the newest first."""
    waiting_bytes_max: int = 64 << 20
    """Bytes that wait for all subscriptions of one session together without holding anybody's credit. A
    subscription that exceeds the bound loses its oldest."""
    answer_bytes_max: int = 16 << 20
    """Bytes of answers that one client may leave unread. One more answer ends its session."""
    session_patterns_max: int = 32768
    """Patterns of one session. A subscription that exceeds them is refused."""
    patterns_max: int = 64_512
    """Different patterns that this broker wants for all its clients. A subscription that exceeds them is
    refused. Other brokers drop the link of a broker that wants more than 65 536 in all."""
    session_starred_patterns_max: int = 32
    """Patterns of one session with more than `STARS_MAX` stars. One subscription more is refused."""
    starred_patterns_max: int = 256
    """Different such patterns of all clients. A subscription that exceeds them is refused."""
    questions_max: int = 4096
    """Requests and surveys of one session without a result; one more is refused."""
    question_bytes_max: int = 16 << 20
    """Bytes of the bodies of these. A question that exceeds them is refused, unless it is the only one."""
    durables_max: int = 16384
    """Durable subscriptions whose home is here; one more is refused."""
    consumers_max: int = 16384
    """Consumers of all durable subscriptions; one more is refused."""
    work_window_max: int = 65536
    """Unsettled messages of one consumer; a larger window is cut to it."""
    work_bytes_max: int = 64 << 20
    """Bytes of these, approximately; a larger window is cut to it."""
    publishers_max: int = 16384
    """Publishers checked for repeated messages. Beyond them the publisher idle for longest is forgotten and
    counted. Publishers with a session here are never forgotten."""
    route_cache_bytes_max: int = 64 << 20
    """Memory of cached routes. Beyond it the cache starts afresh."""
