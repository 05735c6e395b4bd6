"""The eight bytes each side sends first, and the protocol numbers in them.

```
00 'S' 'P' 00 | protocol number, u16 big-endian | 00 00
```

The number is the *sender's own*; each side then checks that the other's is the one its pattern talks to.
Source: nanomsg RFC sp-tcp-mapping-01; numbers as NNG 1.11, nanomsg 1.2 and mangos 3 put them on the wire.
There is no negotiation: a header that does not fit costs the connection, without an error frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from protocols.errors import HandshakeError, LocalProtocolError

HEADER_SIZE: Final = 8

_HEADER: Final = Struct(">4sHH")
_MAGIC: Final = b"\x00SP\x00"
_HTTP: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ", b"CONNECT ", b"DELETE ", b"HTTP/")


class ProtocolNumber(IntEnum):
    """Twelve bits of protocol, four of role."""

    PAIR0 = 0x10
    PAIR1 = 0x11
    PUB0 = 0x20
    SUB0 = 0x21
    REQ0 = 0x30
    REP0 = 0x31
    PUSH0 = 0x50
    PULL0 = 0x51
    SURVEYOR0 = 0x62
    RESPONDENT0 = 0x63
    BUS0 = 0x70
    STAR0 = 0x640


PEER_OF: Final[dict[int, ProtocolNumber]] = {
    ProtocolNumber.PAIR0: ProtocolNumber.PAIR0,
    ProtocolNumber.PAIR1: ProtocolNumber.PAIR1,
    ProtocolNumber.PUB0: ProtocolNumber.SUB0,
    ProtocolNumber.SUB0: ProtocolNumber.PUB0,
    ProtocolNumber.REQ0: ProtocolNumber.REP0,
    ProtocolNumber.REP0: ProtocolNumber.REQ0,
    ProtocolNumber.PUSH0: ProtocolNumber.PULL0,
    ProtocolNumber.PULL0: ProtocolNumber.PUSH0,
    ProtocolNumber.SURVEYOR0: ProtocolNumber.RESPONDENT0,
    ProtocolNumber.RESPONDENT0: ProtocolNumber.SURVEYOR0,
    ProtocolNumber.BUS0: ProtocolNumber.BUS0,
    ProtocolNumber.STAR0: ProtocolNumber.STAR0,
}
"""The protocol that each protocol talks to."""


def protocol_name(number: int) -> str:
    """``req0`` for 0x30; ``protocol 0x123`` for an unassigned number."""
    try:
        return ProtocolNumber(number).name.lower()
    except ValueError:
        return f"protocol {number:#x}"


def encode_header(protocol: int) -> bytes:
    """Our first eight bytes. Raises `LocalProtocolError` for a number that does not fit in sixteen bits."""
    if not 0 < protocol <= 0xFFFF:
        raise LocalProtocolError(f"protocol number {protocol} is not between 1 and 65535")
    return _HEADER.pack(_MAGIC, protocol, 0)


def parse_header(header: bytes) -> int:
    """The peer's protocol number.

    Raises `HandshakeError` for anything but an SP header of version 0. The reserved field must be zero, as
    the RFC and NNG demand (nanomsg ignores it, but always sends zero).
    """
    if len(header) != HEADER_SIZE:
        raise HandshakeError(
            f"the header has {len(header)} bytes instead of {HEADER_SIZE}", reason="short header"
        )
    magic, protocol, reserved = _HEADER.unpack(header)
    if magic[:3] != _MAGIC[:3]:
        raise _not_sp(header)
    if magic != _MAGIC:
        raise HandshakeError(
            f"the peer speaks version {magic[3]} of the wire; only 0 exists", reason="version"
        )
    if reserved:
        raise HandshakeError(f"the reserved field is {reserved:#x} instead of 0", reason="reserved field")
    return int(protocol)


def _not_sp(header: bytes) -> HandshakeError:
    """A message for the peer's first bytes, with hints for two common mistakes."""
    if header[:2] == b"\x16\x03":
        return HandshakeError(
            "the peer speaks TLS and this address is plain; dial tcp:// or give the listener tls+tcp://",
            reason="TLS on a plain address",
        )
    if header.startswith(_HTTP):
        return HandshakeError(
            "the peer speaks HTTP and this end does not; for WebSocket both use ws://, or wss:// with TLS",
            reason="HTTP on an SP address",
        )
    return HandshakeError(
        f"the first bytes {header.hex(' ')} are not a Scalability Protocols header", reason="not SP"
    )


@dataclass(frozen=True, slots=True)
class Greeting:
    """Our side of the handshake.

    ``serves`` maps the protocol number of a peer to the number we answer with; it may change while a listener
    runs. With ``wait`` our header is sent only after the peer's was read, so that one listener can serve
    several protocols. Without it, ``serves`` has one entry and the header goes out at once (nanomsg allows 1
    s).
    """

    serves: Mapping[int, int]
    wait: bool = False

    @classmethod
    def of(cls, own: int, peer: int) -> Greeting:
        return cls({peer: own})

    @property
    def own(self) -> int:
        """Our number, if there is only one."""
        assert not self.wait
        return next(iter(self.serves.values()))

    def answer(self, peer: int) -> int:
        """Our number for this peer. Raises `HandshakeError` if nothing here talks to it."""
        own = self.serves.get(peer)
        if own is not None:
            return own
        raise HandshakeError(self._mismatch(peer), reason="wrong protocol")

    def _mismatch(self, peer: int) -> str:
        wanted = PEER_OF.get(peer)
        who = f"the peer is {protocol_name(peer)}"
        if wanted is not None:
            who += f", which talks to {protocol_name(wanted)}"
        if not self.wait:
            (served,) = self.serves
            return f"{who}; this end is {protocol_name(self.own)}, which talks to {protocol_name(served)}"
        if wanted is not None:
            who += f", and no {protocol_name(wanted)} listens here"
        served_here = ", ".join(protocol_name(number) for number in self.serves) or "nobody now"
        return f"{who}; this address takes {served_here}"
