"""The check of ``mesh cat`` whether it has dialled a mesh broker with a socket that only brokers use.

A broker listens for other brokers at the same port, with Bus, Surveyor and Respondent sockets. It accepts a
socket of these kinds first, and closes it once it turns out not to be a broker's.
"""

from __future__ import annotations

from typing import Final

from mesh.errors import LinkError
from mesh.printable import printable
from mesh.wire.link_frames import LinkKind, decode
from protocols import SocketOptions

PROBE_TIMEOUT_S: Final = 2.0
WHAT_TO_USE: Final = (
    "brokers speak their own protocol there and serve stock sockets by --req, --push, --pub and --sub only"
)


def is_refusal(body: bytes) -> bool:
    """True for the frame with which a broker refuses a Bus socket that is no broker's."""
    try:
        return bool(decode(body)[0] == LinkKind.REFUSED)
    except LinkError:
        return False


async def broker_at(url: str, options: SocketOptions) -> str | None:
    """The sentence to end with if a mesh broker answers at an address, asked as by a stock client."""
    from mesh.broker.listeners import status_at  # most runs need no modules of the broker

    status = await status_at(url, options.tls, PROBE_TIMEOUT_S)
    if status is None:
        return None
    who = f"broker {status['name']} of mesh {status['mesh']!r}"
    return printable(f"{url} is a port of {who}; {WHAT_TO_USE}")
