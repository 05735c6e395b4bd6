"""The event loop of a process that has a network: `SimLoop` with connections, servers and name look-up."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from simulations.kernel.loop import Machine, SimLoop
from simulations.kernel.network import LOOPBACK, WILDCARD, Address, Half, Host, Listener, Network
from simulations.kernel.scheduler import Scheduler
from simulations.kernel.transport import BoundUnixSocket, SimServer, SimTransport

LOOKUP_NS: Final = 50_000


class NetworkedMachine(Machine, Protocol):
    """A process on a host."""

    @property
    def alive(self) -> bool: ...

    @property
    def host(self) -> Host: ...

    @property
    def network(self) -> Network: ...


class ProcessLoop(SimLoop):
    """`SimLoop` on a host of a network. TLS, ready-made sockets and datagrams are not simulated."""

    __slots__ = ("_chunk_rng", "_process", "host")

    def __init__(
        self,
        scheduler: Scheduler,
        machine: NetworkedMachine,
        *,
        chunk_rng: random.Random | None = None,
        order_rng: random.Random | None = None,
        clock_offset_ns: int = 0,
        drift_ppb: int = 0,
    ) -> None:
        super().__init__(
            scheduler,
            machine,
            clock_offset_ns=clock_offset_ns,
            drift_ppb=drift_ppb,
            order_rng=order_rng,
        )
        self._process = machine
        self.host = machine.host
        self._chunk_rng = chunk_rng

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """Hosts have their names, ``localhost`` is the process's own host, others are unknown; there is no
        IPv6.

        Numeric addresses (AI_NUMERICHOST) need no look-up and take no time.
        """
        if not flags & socket.AI_NUMERICHOST:
            looked_up = self.create_future()
            self.scheduler.after(LOOKUP_NS, _settle, looked_up)
            await looked_up
        if isinstance(host, bytes):
            host = host.decode()
        if not host:
            address: str | None = WILDCARD if flags & socket.AI_PASSIVE else LOOPBACK
        else:
            address = self._process.network.resolve(host)
        if address is None or family not in (0, socket.AF_INET):
            raise socket.gaierror(socket.EAI_NONAME, f"no host is called {host!r}")
        try:
            number = int(port or 0)
        except ValueError:
            raise socket.gaierror(socket.EAI_SERVICE, f"{port!r} is not a port number") from None
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, number))]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        local_addr: Any = None,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        **_options: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        self._refuse_options("create_connection", ssl=ssl, sock=sock, local_addr=local_addr)
        if host is None and port is None:
            raise ValueError("host and port was not specified and no sock specified")
        infos = await self.getaddrinfo(host, port, family=family, proto=proto, flags=flags)
        return await self._connected(protocol_factory, infos[0][4])

    async def create_unix_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: Any = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **_options: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        self._refuse_options("create_unix_connection", ssl=ssl, sock=sock)
        if path is None:
            raise ValueError("no path and sock were specified")
        return await self._connected(protocol_factory, str(path))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        backlog: int = 100,
        start_serving: bool = True,
        **_options: Any,
    ) -> SimServer:
        self._refuse_options("create_server", ssl=ssl, sock=sock)
        if host is None and port is None:
            raise ValueError("Neither host/port nor sock were specified")
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        addresses = []
        for name in hosts:
            infos = await self.getaddrinfo(name, port, flags=socket.AI_PASSIVE)
            addresses.append(infos[0][4])
        server = SimServer(self, protocol_factory, self._chunk_rng)
        try:
            for address, number in addresses:
                self._listener(server, backlog).bind(address, number)
        except OSError:
            server.close()
            raise
        return await self._served(server, start_serving)

    async def create_unix_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: Any = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        backlog: int = 100,
        start_serving: bool = True,
        **_options: Any,
    ) -> SimServer:
        self._refuse_options("create_unix_server", ssl=ssl)
        server = SimServer(self, protocol_factory, self._chunk_rng)
        if isinstance(sock, BoundUnixSocket):
            sock.listener.backlog = backlog
            sock.listener.accept = partial(server._accept, sock.listener)
            server._listeners.append(sock.listener)
            return await self._served(server, start_serving)
        self._refuse_options("create_unix_server", sock=sock)
        if path is None:
            raise ValueError("path was not specified, and no sock specified")
        self._listener(server, backlog).bind_unix(str(path))
        return await self._served(server, start_serving)

    def bind_unix(self, path: str) -> BoundUnixSocket:
        """Bind a path before its server is made; a file without a listener is taken over.

        Raises OSError (EADDRINUSE) if another socket listens there.
        """
        held = self.host.unix.get(path)
        if held is not None and held.listener is not None:
            raise OSError(errno.EADDRINUSE, f"{path!r} is in use on host {self.host.name}")
        listener = Listener(self.host, self._process, Half.reset, 0)
        listener.bind_unix(path)
        return BoundUnixSocket(listener)

    # ---

    async def _connected(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], destination: Address
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        opened: asyncio.Future[Half] = self.create_future()
        process = self._process

        def done(half: Half | None, error: OSError | None) -> None:
            if half is None:
                assert error is not None
                if not opened.done():
                    opened.set_exception(error)
            elif opened.done():
                half.reset()
            else:
                opened.set_result(half)

        if not isinstance(destination, str) and destination[0] == WILDCARD:
            destination = (LOOPBACK, destination[1])
        attempt = process.network.connect(process.host, process, destination, done)
        try:
            half = await opened
        except asyncio.CancelledError:
            attempt.cancel()
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                opened.result().reset()
            raise
        protocol = protocol_factory()
        waiter: asyncio.Future[None] = self.create_future()
        transport = SimTransport(self, half, protocol, waiter=waiter, chunk_rng=self._chunk_rng)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def _listener(self, server: SimServer, backlog: int) -> Listener:
        listener: Listener

        def accept(half: Half) -> None:
            server._accept(listener, half)

        listener = Listener(self._process.host, self._process, accept, backlog)
        server._listeners.append(listener)
        return listener

    async def _served(self, server: SimServer, start_serving: bool) -> SimServer:
        if start_serving:
            await server.start_serving()
        return server

    def _refuse_options(self, call: str, **options: Any) -> None:
        for name, value in options.items():
            if value is not None and value is not False:
                self._not_simulated(f"{call} with {name}=")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
