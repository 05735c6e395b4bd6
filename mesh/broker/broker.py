"""`Broker`: the broker as programs and ``mesh broker`` see it.

It takes options, is an async context manager, and gives its status. `mesh.broker.node` is one run of it, from
a known identity to a graceful leave. Decisions are made further down, in `mesh.cluster.membership`,
`mesh.cluster.remote_interest` and `mesh.dataplane.exchange`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from mesh.access import Anonymity, Principal
from mesh.broker.identity import format_id
from mesh.broker.inspection import Inspection
from mesh.broker.node import LEAVE, Node
from mesh.broker.options import BrokerOptions, each_of, folder_of, key_of
from mesh.broker.reloading import Reloaded
from mesh.environment import Environment
from mesh.errors import ConfigError, MeshError
from mesh.limits import Limits
from mesh.listen import HttpListen, Listen, as_http, as_listen
from mesh.wire.fields import shown
from protocols import TlsConfig

STORAGE_CLOSE_S: Final = 3.0
"""How long a stopping broker waits for a disk that does not answer. Its worker is a daemon thread."""


async def close_storage(environment: Environment) -> None:
    """Let the disk finish its jobs, for `STORAGE_CLOSE_S` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STORAGE_CLOSE_S):
            await environment.storage.aclose()


class Broker:
    """One broker of a mesh, inside a program or as ``mesh broker``.

    ::

        async with Broker(listen=["tcp://:7770"], join=["tcp://10.0.0.1:7770"]) as broker:
            print(broker.url)

    Entering raises `ConfigError`, `ListenError`, `StorageError` or `Locked`, each with a sentence. At the end
    of the block the broker leaves the mesh: the others are told, and nobody counts a failure.

    Args:
        name: its name; by default made from its id.
        listen: addresses to serve; by default ``tcp://127.0.0.1:7770`` and an ipc socket of this user. A
            `Listen` says which roles an address serves, and which must show a certificate.
        join: addresses of brokers to join; any one of a mesh is enough.
        mesh: name of the mesh; brokers of another mesh are refused.
        mesh_key: secret that all brokers of the mesh share; without it anybody who can connect may join.
        tls: certificate and authorities for ``tls+tcp://`` and ``wss://``, to listen and to dial brokers.
        state_dir: folder for id, incarnation and known peers; None: this broker gets a new id at each start.
        log_dir: folder for the event log; None: no event log.
        advertise: address that others are told, if it is not the one bound (NAT, containers).
        export: patterns that stock SUB sockets may see.
        period_s: seconds from one heartbeat to the next.
        deadline_s: seconds within which a heartbeat must be answered.
        stats_s: seconds between ``stats`` rows of the event log.
        log_heartbeats: ``each`` writes a row for each heartbeat to the event log; ``summary`` one for each
            peer and 16 periods, of which a crash loses the last.
        drain_s: seconds that clients have to go to other brokers when this one leaves; 0: none.
        log_keep_days: days after which files of the event log are removed; None: never.
        log_keep_mb: megabytes of the newest files that are kept; None: all.
        limits: bounds for clients and peers.
        http: where to serve health, metrics, status and a page of the mesh, such as ``127.0.0.1:9770``; an
            `HttpListen` says who may read there.
        principals: the identities that clients can prove, and the rights of each.
        anonymous: where clients without a proof may connect from: ``nowhere``, ``loopback`` or
            ``everywhere``.
        environment: disk, randomness and wall clock; the caller closes it. By default this machine's.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        listen: str | Listen | Sequence[str | Listen] = (),
        join: str | Sequence[str] = (),
        mesh: str = "mangrove",
        mesh_key: bytes | str | None = None,
        tls: TlsConfig | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        advertise: str | None = None,
        export: str | Sequence[str] = ("#",),
        period_s: float = 1.0,
        deadline_s: float = 0.5,
        stats_s: float = 5.0,
        log_heartbeats: str = "each",
        drain_s: float = 10.0,
        log_keep_days: float | None = None,
        log_keep_mb: float | None = None,
        limits: Limits | None = None,
        http: str | HttpListen | None = None,
        principals: Principal | Sequence[Principal] = (),
        anonymous: Anonymity = "loopback",
        environment: Environment | None = None,
    ) -> None:
        self._options = BrokerOptions(
            name=name,
            listen=tuple(map(as_listen, each_of("listen", listen, (str, Listen), "an address or a Listen"))),
            join=each_of("join", join, str, "an address"),
            mesh=mesh,
            mesh_key=key_of(mesh_key),
            tls=tls,
            state_dir=folder_of("state_dir", state_dir),
            log_dir=folder_of("log_dir", log_dir),
            advertise=advertise,
            export=each_of("export", export, str, "a pattern"),
            period_s=period_s,
            deadline_s=deadline_s,
            stats_s=stats_s,
            log_heartbeats=log_heartbeats,
            drain_s=drain_s,
            log_keep_days=log_keep_days,
            log_keep_mb=log_keep_mb,
            limits=Limits() if limits is None else limits,
            http=as_http(http),
            principals=each_of("principals", principals, Principal, "a Principal"),
            anonymous=anonymous,
        )
        if not isinstance(environment, Environment | None):
            raise ConfigError(f"environment is {shown(environment)}; it takes an Environment or None")
        self._given_environment = environment
        self._tasks: asyncio.TaskGroup | None = None
        self._node: Node | None = None

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise MeshError("a Broker runs once; make another one to run again")
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        environment = self._given_environment or Environment.real()
        try:
            self._node = await Node.begin(self._options, environment, self._tasks)
        except BaseException:
            await self._tasks.__aexit__(None, None, None)
            if self._given_environment is None:
                await close_storage(environment)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        node, tasks = self._running, self._tasks
        assert tasks is not None
        if kind is GeneratorExit:
            return  # the loop is gone and the coroutine is being closed: nothing can be awaited any more
        try:
            await node.stop(LEAVE if kind is None else kind.__name__)
            if self._given_environment is None:
                await close_storage(node.environment)
        finally:
            # The group is told of a cancellation, perhaps its own. Other errors are the block's and pass
            # unchanged, not inside a group.
            cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
            await (
                tasks.__aexit__(kind, error, traceback) if cancelled else tasks.__aexit__(None, None, None)
            )

    @property
    def options(self) -> BrokerOptions:
        """The options that this broker was made with, or runs with since a reload."""
        return self._options if self._node is None else self._node.options

    async def wait_ready(self) -> None:
        """Return when this broker can route messages: it has joined its mesh, or there is no mesh to join.

        Raises:
            MeshError: it left before it could.
        """
        await self._running.wait_ready()

    async def wait_asked_to_leave(self) -> None:
        """Return when a program on this host has asked this broker to leave (`mesh drain`). Then end the
        block, or call `leave`."""
        await asyncio.shield(self._running.asked_to_leave)

    def reload(self, options: BrokerOptions) -> Reloaded:
        """Replace what can be replaced while running, and read certificates again for new connections.

        Args:
            options: of another `Broker`, which need not run: ``broker.reload(Broker(export=...).options)``.

        Returns:
            The names of the options that were replaced and of those that need a restart.

        Raises:
            ConfigError: a certificate cannot be used; nothing has changed.
        """
        return self._running.reload(options)

    async def leave(self) -> None:
        """Tell the mesh, say goodbye to clients and stop. The block may continue without its broker."""
        await self._running.stop(LEAVE)

    @property
    def url(self) -> str:
        """The address that others are told. While a wildcard's own address is not known, the address as
        bound."""
        return self._running.inspection.url

    @property
    def urls(self) -> list[str]:
        """All addresses, as bound."""
        return list(self._running.inspection.listeners)

    @property
    def id(self) -> str:
        """16 hex digits."""
        return format_id(self._running.identity.id)

    @property
    def name(self) -> str:
        return self._running.name

    def members(self) -> list[dict[str, Any]]:
        """Every broker of the mesh as this one sees it, itself included; the keys are those of the status."""
        return self._running.report.members()

    def statistics(self) -> dict[str, Any]:
        """The status object (``docs/reference/status.md``), also of a broker that has left."""
        return self._running.report.snapshot()

    def inspect(self) -> Inspection:
        """A read-only view of this broker's internals, for tests and tools, also of a broker that has
        left."""
        return self._running.inspection

    @property
    def _running(self) -> Node:
        if self._node is None:
            raise MeshError("this broker is not running; use it inside `async with`")
        return self._node
