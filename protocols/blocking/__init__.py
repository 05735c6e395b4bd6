"""The Scalability Protocols for programs without an event loop: the same sockets, with blocking calls.

    from protocols import blocking

    with blocking.Rep0(listen="tcp://127.0.0.1:7000") as rep:
        rep.serve(bytes.upper)

Any thread may make any call. A socket has one thread for its connections and one for each URL it dials. The
transports are ``tcp://``, ``ipc://``, ``inproc://`` (between blocking sockets of one process),
``tls+tcp://``, ``ws://`` and ``wss://``. Constructors open their URLs at once; ``with`` closes the socket.
"""

from protocols.blocking.dialling import Dialer
from protocols.blocking.listening import Listener
from protocols.blocking.socket import Context, Socket
from protocols.blocking.sockets import (
    Bus0,
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    RequestContext,
    Respondent0,
    Star0,
    Sub0,
    SubContext,
    SurveyContext,
    Surveyor0,
)

__all__ = [
    "Bus0",
    "Context",
    "Dialer",
    "Listener",
    "Pair0",
    "Pair1",
    "Pub0",
    "Pull0",
    "Push0",
    "Rep0",
    "Req0",
    "RequestContext",
    "Respondent0",
    "Socket",
    "Star0",
    "Sub0",
    "SubContext",
    "SurveyContext",
    "Surveyor0",
]
