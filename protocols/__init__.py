"""The Scalability Protocols in pure Python, on asyncio.

Wire-compatible with NNG, nanomsg and mangos, over ``tcp://``, ``ipc://``, ``inproc://``,
``tls+tcp://``, ``ws://`` and ``wss://``::

    async with Pull0(listen="tcp://127.0.0.1:7000") as pull:
        async for body in pull:
            print(body)

==============  ===============  ==================================================================
socket          talks to         a message goes
==============  ===============  ==================================================================
`Pair0`         `Pair0`          to the one peer
`Pair1`         `Pair1`          likewise, with a count of its hops
`Push0`         `Pull0`          to one puller, in turn
`Pub0`          `Sub0`           to every subscriber, who filters by prefix
`Req0`          `Rep0`           to one replier, whose answer comes back to who asked
`Surveyor0`     `Respondent0`    to every respondent, whose answers come back until a deadline
`Bus0`          `Bus0`           to every direct peer
`Star0`         `Star0`          to every peer, direct or not: each node passes it on
==============  ===============  ==================================================================

`device` joins two raw sockets into a stop on the way. What each pattern does when a queue is full, a peer
leaves or a call comes out of turn: ``docs/reference/patterns/``.
"""

import protocols.system  # noqa: F401  # first: it may refuse the system
from protocols.context import Channel, Context, PartlySent, SubContext, SurveyContext
from protocols.device import Device, DeviceStatistics, device
from protocols.endpoint import Dialer, Listener, SharedListener
from protocols.errors import (
    AddressError,
    AddressInUse,
    Closed,
    ConnectionRefused,
    HandshakeError,
    LocalProtocolError,
    MessageTooLarge,
    NoPeers,
    NotSupported,
    PipeRefused,
    ProtocolError,
    RemoteProtocolError,
    SPError,
    StateError,
    SurveyOver,
    Timeout,
    WouldBlock,
)
from protocols.events import PipeEvent, PipeEvents
from protocols.identity import PeerIdentity
from protocols.message import Message
from protocols.options import DEFAULT, SocketOptions
from protocols.patterns.relay import FlowStatistics
from protocols.patterns.reqrep import RequestLost
from protocols.patterns.survey import Answer, SurveyResult
from protocols.pipe import Pipe, PipeStatistics
from protocols.socket import Receiver, Socket
from protocols.sockets import (
    Bus0,
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    Respondent0,
    Star0,
    Sub0,
    Surveyor0,
)
from protocols.statistics import ClosedPipe, SocketStatistics
from protocols.tls import TlsConfig, TlsConfigError
from protocols.transports.registry import (
    check_dialable,
    check_url,
    is_wildcard,
    register_transport,
)
from protocols.wire.handshake import ProtocolNumber

__all__ = [
    "DEFAULT",
    "AddressError",
    "AddressInUse",
    "Answer",
    "Bus0",
    "Channel",
    "Closed",
    "ClosedPipe",
    "ConnectionRefused",
    "Context",
    "Device",
    "DeviceStatistics",
    "Dialer",
    "FlowStatistics",
    "HandshakeError",
    "Listener",
    "LocalProtocolError",
    "Message",
    "MessageTooLarge",
    "NoPeers",
    "NotSupported",
    "Pair0",
    "Pair1",
    "PartlySent",
    "PeerIdentity",
    "Pipe",
    "PipeEvent",
    "PipeEvents",
    "PipeRefused",
    "PipeStatistics",
    "ProtocolError",
    "ProtocolNumber",
    "Pub0",
    "Pull0",
    "Push0",
    "Receiver",
    "RemoteProtocolError",
    "Rep0",
    "Req0",
    "RequestLost",
    "Respondent0",
    "SPError",
    "SharedListener",
    "Socket",
    "SocketOptions",
    "SocketStatistics",
    "Star0",
    "StateError",
    "Sub0",
    "SubContext",
    "SurveyContext",
    "SurveyOver",
    "SurveyResult",
    "Surveyor0",
    "Timeout",
    "TlsConfig",
    "TlsConfigError",
    "WouldBlock",
    "check_dialable",
    "check_url",
    "device",
    "is_wildcard",
    "register_transport",
]
