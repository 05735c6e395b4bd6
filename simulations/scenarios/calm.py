"""Nothing is done to the mesh: everything must arrive, and nobody may be suspected."""

from __future__ import annotations

from simulations.federation import Federation


def play(mesh: Federation) -> None:
    """Start, converge, publish for half a minute, leave."""
    mesh.start_brokers()
    mesh.wait_whole("start")
    mesh.start_clients()
    mesh.quiet_time(30)
    mesh.end()
