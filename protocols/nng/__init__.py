"""The second engine: the same cooked sockets over pynng, the binding to NNG (in C, with its own threads).

    from protocols import nng

    async with nng.Pull0(listen="tcp://127.0.0.1:7000") as pull:
        async for body in pull:
            print(body)

It exists to test the native engine against NNG, with the same program on both sides. It needs the extra
``nng``. Constructor arguments, calls and errors are those of `protocols`. Features without a public call in
pynng raise `NotSupported`: raw sockets, Star0, shared listeners, single peers, hooks.

The differences between the two:

==========================  ==================================================================================
queues                      NNG's: of sizes 1 to 8192, and a message in flight beside each
a cancelled ``recv``        loses nothing: the next ``recv`` gets what NNG hands over late
a cancelled ``send``        has sent nothing, unless NNG took the message in that moment
``recv_nowait``             is not for surveys and contexts: NNG would end the survey, pynng has no call
``send_nowait``             is not for answers and contexts: NNG would forget the question
a late ``send``             of an answer gives up the right to answer
a late ``recv``             leaves a survey or a request open (a bare NNG socket ends the survey)
an unread answer            is lost at the end of its survey, except the one that a ``recv`` had asked for
``aclose``                  drops queued messages: NNG does not linger, and cannot say what is left
a ``StateError`` of Rep0    may follow a ``recv`` that was given up just as a question came: `recv` gives it
options                     no effect: ``linger_s``, ``handshake_timeout_s`` (it is 10 s), ``read_budget``
web pages                   NNG's ws listeners take them from any origin
``statistics``              counts bodies that this program sent and received, and peers; no queues
ws, wss, rarely TLS         NNG 1.11 may abort the process when such a connection closes
fork                        NNG panics in the child; make sockets after the fork
a listener's ipc path       NNG would remove any file that is there; here only a socket may be in its place
==========================  ==================================================================================
"""

from protocols.nng.channel import Channel
from protocols.nng.endpoints import NngDialer, NngListener, NngPipe
from protocols.nng.socket import Context, NngStatistics, Socket
from protocols.nng.sockets import (
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

__all__ = [
    "Bus0",
    "Channel",
    "Context",
    "NngDialer",
    "NngListener",
    "NngPipe",
    "NngStatistics",
    "Pair0",
    "Pair1",
    "Pub0",
    "Pull0",
    "Push0",
    "Rep0",
    "Req0",
    "Respondent0",
    "Socket",
    "Star0",
    "Sub0",
    "Surveyor0",
]
