"""The real broker as a program of a simulated process."""

from __future__ import annotations

from collections.abc import Sequence

from simulations.kernel.storage import LOG_FOLDER, STATE_FOLDER
from simulations.programs.environment import environment_of
from simulations.programs.versions import broker_ahead
from simulations.world import Main, Process

PORTS = {"tcp": 7770, "ws": 7780}
"""The addresses of a broker, by transport; other brokers connect by TCP."""


def url_of(address: str, transport: str = "tcp") -> str:
    path = "/sp" if transport == "ws" else ""
    return f"{transport}://{address}:{PORTS[transport]}{path}"


def broker(
    mesh: str,
    join: Sequence[str],
    *,
    period_s: float = 1.0,
    deadline_s: float = 0.5,
    transport: str = "tcp",
    log_heartbeats: str = "each",
) -> Main:
    """A broker with state and log on its host's disk; it exposes the `Broker` once that is up.

    Its node's settings may have replaced the addresses it joins, may lengthen its period and deadline, and
    may make it one of a future version. Clients may also connect by ``transport``.
    """

    async def main(process: Process) -> None:
        settings = process.node.settings
        async with broker_ahead(settings.versions_ahead)(
            name=process.name,
            listen=[url_of(process.address, each) for each in dict.fromkeys(("tcp", transport))],
            join=[url_of(address) for address in (join if settings.join is None else settings.join)],
            mesh=mesh,
            mesh_key=settings.mesh_key,
            anonymous="everywhere",
            state_dir=STATE_FOLDER,
            log_dir=LOG_FOLDER,
            log_heartbeats=log_heartbeats,
            period_s=period_s * settings.times,
            deadline_s=deadline_s * settings.times,
            environment=environment_of(process),
        ) as running:
            process.exposed = running
            await process.stopping.wait()

    return main
