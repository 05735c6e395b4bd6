"""Every default of a socket in one place. Units are part of the names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options of one socket and of the endpoints it opens.

    Times are seconds, sizes are bytes, queues are counted in messages. ``None`` as a time means "for ever".
    """

    send_queue: int = 1024
    """Messages one pipe holds for a peer that is slow to read (SP queues are counted in messages)."""
    recv_queue: int = 1024
    """Messages a socket holds for an application that is slow to read."""
    recv_size_max: int = 1 << 20
    """Largest frame accepted, SP header included; a larger one costs the peer its connection. 0: any size."""
    send_timeout_s: float | None = None
    recv_timeout_s: float | None = None
    reconnect_min_s: float = 0.1
    reconnect_max_s: float = 10.0
    handshake_timeout_s: float = 10.0
    """NNG's deadline; our own header goes out within milliseconds, as nanomsg waits for one second."""
    linger_s: float = 1.0
    """How long ``aclose`` waits for queued messages to reach the kernel."""
    ttl: int = 8
    """Most hops (backtrace words or hop count) a message may have; 1 to 255, and NNG refuses more than 15."""
    resend_s: float | None = 60.0
    """Req0 sends an unanswered request again after this long; ``None`` or 0 = never, even on pipe loss."""
    survey_s: float = 1.0
    read_budget: int = 65536
    """Bytes read from one connection before the loop turns (design decision 12: bounds timer lateness)."""
    nodelay: bool = True
    keepalive: bool = True
    prefer_new: bool = True
    """Sub0 with a full queue drops the oldest message (true) or the arriving one (false)."""
