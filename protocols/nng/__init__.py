"""The second engine: the same cooked sockets over pynng, which is NNG, in C, with threads of its own.

    from protocols import nng

    async with nng.Pull0(listen="tcp://127.0.0.1:7000") as pull:
        async for body in pull:
            print(body)

It exists to prove the native engine against, with the same program on both sides, and needs the extra
``nng``. Constructor arguments, calls and errors are those of `protocols`; what pynng has no public call for
raises `NotSupported`: raw sockets, Star0, shared listeners, single peers, hooks.

What the two do not share:

==========================  ==================================================================================
queues                      NNG's: of sizes 1 to 8192, and a message in flight beside each
a cancelled ``recv``        loses nothing: what NNG hands over late is the next ``recv``'s
a cancelled ``send``        was not taken, unless NNG took it in that very moment
``recv_nowait``             is not for surveys and contexts: NNG would end the survey, pynng has no call
``send_nowait``             is not for answers and contexts: NNG would forget the question
a late ``send``             of an answer gives up the right to answer
a late ``recv``             leaves a survey or a request open (a bare NNG socket ends the survey)
an unread answer            is lost at the end of its survey, but for the one that a ``recv`` had asked for
``aclose``                  drops what is queued: NNG does not linger, and cannot say what is left
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
