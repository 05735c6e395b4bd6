"""Clients that claim too much, at brokers in virtual time: the mesh stays whole, and every loss has a number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh import Client
from mesh.broker.broker import Broker
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import MeshError
from mesh.wire.session_frames import BYTES_MAX, MESSAGES_MAX, Kind, decode, encode
from protocols import Bus0, Pub0, Push0, Req0, Respondent0, SocketOptions, Sub0, Surveyor0
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of

HELLO = encode(Kind.HELLO, 1, 5, 6, "greedy", 0)


async def session(process: Process) -> Any:
    """A raw connection to the broker of the host, on which a client says what it likes."""
    socket = Req0(raw=True, rng=process.stream("raw"))
    await socket.dial(url_of(process.address))
    await socket.wait_connected(timeout=5.0)
    return socket


def stock(mesh: Mesh, name: str, program: Any, at: str = "broker-1") -> None:
    mesh.world.add_node(name, program, host=at)
    mesh.world.node(name).start()
