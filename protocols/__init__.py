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
`Pair1`         `Pair1`          to the one peer, with a hop count
`Push0`         `Pull0`          to one puller, in turn
`Pub0`          `Sub0`           to every subscriber, which filters by prefix
`Req0`          `Rep0`           to one replier, whose answer returns to the asking socket
`Surveyor0`     `Respondent0`    to every respondent, whose answers return until a deadline
`Bus0`          `Bus0`           to every direct peer
`Star0`         `Star0`          to every peer, direct or not: each node passes it on
==============  ===============  ==================================================================

A `RawSocket` has no pattern state, and a `Device` joins two of them into an intermediate node.
``docs/reference/patterns/`` tells what each pattern does when a queue is full, a peer leaves or a call comes
out of turn.
"""

import protocols.system  # noqa: F401  # first: it may refuse the system
from protocols.channel import Channel, Conversation
from protocols.context import Context, RequestContext, SubContext, SurveyContext
from protocols.core import Receiver
from protocols.device import Device, DeviceStatistics
from protocols.dialling import Dialer
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
    PartlySent,
    PipeRefused,
    ProtocolError,
    RemoteProtocolError,
    RequestLost,
    SPError,
    StateError,
    SurveyOver,
    Timeout,
    TlsConfigError,
    WouldBlock,
)
from protocols.events import PipeEvent, PipeEvents
from protocols.identity import PeerIdentity
from protocols.listening import Listener, SharedListener
from protocols.message import Message
from protocols.options import DEFAULT, SocketOptions
from protocols.patterns.relay import FlowStatistics
from protocols.patterns.survey import Answer, SurveyResult
from protocols.pipe import Pipe, PipeStatistics
from protocols.pipe_view import PipeView
from protocols.raw_socket import RawSocket
from protocols.socket import Socket
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
from protocols.tls import TlsConfig
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
    "Conversation",
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
    "PipeView",
    "ProtocolError",
    "ProtocolNumber",
    "Pub0",
    "Pull0",
    "Push0",
    "RawSocket",
    "Receiver",
    "RemoteProtocolError",
    "Rep0",
    "Req0",
    "RequestContext",
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
    "is_wildcard",
    "register_transport",
]
