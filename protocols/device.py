"""Devices: two raw sockets joined, so that peers of one reach those of the other; or one that reflects.

A device is an intermediate node. Requests cross it and their answers return the same way, topics pass
unfiltered, and back-pressure reaches from one side to the other. `protocols.patterns.relay` decides what
crosses, and what happens without room. This module only starts and ends a device.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from protocols.errors import Closed, NotSupported, StateError
from protocols.patterns.relay import FlowStatistics, Relay
from protocols.raw_socket import as_raw
from protocols.socket import Socket
from protocols.wire.handshake import protocol_name

NOTHING = FlowStatistics(0, 0, 0, {})


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """A snapshot: ``forward`` is from the first socket to the second, ``backward`` the other way.

    A direction that the protocols do not have, or that a reflector's one direction covers, stays at 0. Frames
    that the sockets themselves dropped (over ``ttl``, a slow subscriber) are in their statistics.
    """

    forward: FlowStatistics
    backward: FlowStatistics
    ended: str
    """Why the device ended; empty while it runs."""


class Device:
    """Joins ``front`` and ``back``; with one socket (the same twice, or None) it reflects.

    The caller still owns the sockets: the device neither opens nor closes them. When it has ended, a socket
    that is still open goes on as a raw socket.

    Raises:
        NotSupported: a socket is not raw or has a receiver; the protocols do not complement each other.
        ValueError: there is no socket.
    """

    def __init__(self, front: Socket | None, back: Socket | None = None) -> None:
        first = front if front is not None else back
        second = back if back is not None else front
        if first is None or second is None:
            raise ValueError("a device needs at least one socket")
        if first.protocol != second.peer:
            raise NotSupported(mismatch(first, second))
        for socket in (first, second):
            as_raw(socket)
        self._front = first
        self._back = second
        self._relay: Relay | None = None
        self._ended = ""

    async def run(self) -> DeviceStatistics:
        """Forward until one of the sockets closes; return the counters and the reason for the end.

        If cancelled, it stops forwarding; the sockets stay open.

        Raises:
            Closed: a socket was already closed.
            NotSupported: a socket's frames go to its receiver.
            StateError: a socket is already in a device, or this device has run.
        """
        if self._relay is not None:
            raise StateError("a device runs once")
        for socket in (self._front, self._back):
            if socket.closed:
                raise Closed(f"the {protocol_name(socket.protocol)} socket of the device is closed")
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._relay = Relay(as_raw(self._front), as_raw(self._back), lambda: finish(ended))
        try:
            await ended
            self._ended = f"the {self._closed_socket()} socket was closed"
        finally:
            self._ended = self._ended or "the device was cancelled"
            self._relay.end()
        return self.statistics()

    def statistics(self) -> DeviceStatistics:
        relay = self._relay
        flows = (relay.forward, relay.backward) if relay is not None else (None, None)
        forward, backward = (flow.statistics() if flow is not None else NOTHING for flow in flows)
        return DeviceStatistics(forward, backward, self._ended)

    def _closed_socket(self) -> str:
        return protocol_name((self._front if self._front.closed else self._back).protocol)


def finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def mismatch(first: Socket, second: Socket) -> str:
    names = protocol_name(first.protocol), protocol_name(second.protocol)
    if first is second:
        return f"a device of one socket reflects pair, bus or star, not {names[0]}"
    return f"a device cannot join {names[0]} and {names[1]}; {names[0]} goes with {protocol_name(first.peer)}"
