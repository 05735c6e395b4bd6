"""A raw socket: a pattern without its state. Whole frames pass, header words in front, pipe by pipe.

Use it for relays, and to build other patterns. `protocols.patterns.raw` says what remains of each pattern.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NoReturn, Unpack

from protocols.channel import Channel
from protocols.core import Admit, Core, Receiver
from protocols.errors import NotSupported
from protocols.message import Message
from protocols.options import DEFAULT, OptionKeywords, SocketOptions, TimeLimit
from protocols.patterns.raw import TO_ALL, Raw
from protocols.pipe import Connection, Pipe
from protocols.socket import Addresses, Socket, options_of, rng_of
from protocols.wire.handshake import ProtocolNumber


class RawSocket(Channel, Socket):
    """A raw socket of any protocol, as in ``RawSocket(Req0, dial=url)``.

    Without a receiver, ``recv`` and iterating give whole frames. `recv_message` gives one frame with its peer
    and its header separated, `recv_run` all frames that wait from one peer. ``send`` distributes frames as
    the pattern does, and `send_to` queues them for one peer.

    Args:
        kind: a socket class, or its protocol number.
        receiver: gets runs of frames synchronously instead of ``recv``.
        dial, listen, admit, options, rng: as for any `Socket`.

    Raises:
        ValueError: there is no such protocol.
    """

    _pattern_type = Raw

    def __init__(
        self,
        kind: type[Socket] | int,
        *,
        receiver: Receiver | None = None,
        dial: Addresses = (),
        listen: Addresses = (),
        admit: Admit | None = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        rng = rng_of(rng)
        handed_over = receiver.frames_received if receiver is not None else None
        number = ProtocolNumber(kind) if isinstance(kind, int) else kind._pattern_type.protocol
        pattern = Raw(number, options_of(options, keywords), rng, handed_over)
        self._pattern = pattern
        self._receiver = receiver
        name = f"RawSocket {pattern.name}"
        self._begin(Core(name, pattern, rng, admit=admit, receiver=receiver), dial, listen)

    @property
    def pipes(self) -> list[Pipe]:
        """The attached peers, oldest first."""
        return list(self._core.pipes.values())

    def new_context(self) -> NoReturn:
        """Raises `NotSupported`."""
        raise NotSupported("raw sockets have no contexts")

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a peer of a connection whose handshake is complete. Raises `PipeRefused`; the caller closes
        it.
        """
        return self._core.attach(connection, url=url, dialed=dialed)

    async def dial_once(  # type: ignore[override]  # a raw socket gives its pipes away
        self, url: str, timeout: TimeLimit = DEFAULT, *, options: SocketOptions | None = None
    ) -> Pipe:
        """Like `Socket.dial_once`."""
        return await self._dial_once(url, timeout, options)

    def send_to(self, pipe: Pipe, frames: list[bytes], *, control: bool = False) -> bool:
        """Queue whole frames for one peer, all or none; return False if it is full (or gone).

        The receiver's ``pipe_writable`` follows a refusal. ``control`` frames go ahead of all others and are
        never refused; a peer that lets thousands pile up loses its pipe.
        """
        if control:
            for frame in frames:
                pipe.send_control(frame)
            return not pipe.closed
        if len(frames) == 1:
            return pipe.send(frames[0])
        if len(frames) > self._core.options.send_queue:
            raise ValueError(f"{len(frames)} frames never fit in a queue of {self.options.send_queue}")
        return pipe.send_all(frames)

    def send_message(self, message: Message[Pipe]) -> bool:
        """Queue one message for its pipe; return False if it is full (or gone)."""
        return self.send_to(message.pipe, [message.frame])

    def send_past(self, pipe: Pipe, frames: Sequence[bytes]) -> None:
        """Queue frames for every peer except ``pipe``, to pass on what came from there.

        Only for patterns that send to all. A peer whose queue is full misses them, counted as ``peer slow``.
        """
        self._core.check_open()
        if self._pattern.protocol not in TO_ALL:
            raise NotSupported(f"{self._pattern.name} sends to one peer; there is none to leave out")
        self._pattern.offer(frames, past=pipe)

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> NoReturn:
        """Raises `NotSupported`."""
        raise NotSupported("a raw socket tells pipes apart: use recv_run()")

    async def recv_run(self, timeout: TimeLimit = DEFAULT) -> tuple[Pipe, list[bytes]]:
        """Return everything that waits from one peer; peers take turns. Not with a receiver."""
        self._check_no_receiver()
        return await self._receivers.taken(self._take_run, timeout, self.options.recv_timeout_s)

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[Any]:
        """Return one frame, with its header separated and its peer. Not with a receiver."""
        self._check_no_receiver()
        frame = await self.recv(timeout)
        offset = self._pattern.header_size(frame)
        return Message(self._lane.origin(), frame[:offset], frame[offset:])

    def _take_run(self) -> tuple[Pipe, list[bytes]] | None:
        self._check_entered()
        return self._pattern.take_run()

    def _check_no_receiver(self) -> None:
        if self._receiver is not None:
            raise NotSupported("this socket's frames go to its receiver")


def as_raw(socket: Socket) -> Raw:
    """The pattern of a raw socket, for devices. Raises `NotSupported`."""
    if not isinstance(socket, RawSocket):
        name = type(socket).__name__
        raise NotSupported(f"a device joins raw sockets: RawSocket({name}) instead of {name}()")
    return socket._pattern
