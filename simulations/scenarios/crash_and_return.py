"""One broker is killed, another loses its host's power, a third is stopped for several deadlines; all come
back.
"""

from __future__ import annotations

from simulations.federation import Federation


def play(mesh: Federation) -> None:
    """Faults overlap as the seed has it; afterwards the mesh is whole again and carries everything."""
    mesh.start_brokers()
    mesh.wait_whole("start")
    mesh.start_clients()
    mesh.let_pass(3)
    killed, unplugged, paused = mesh.rng.sample(mesh.brokers, 3)

    mesh.do("crash", [killed])
    mesh.let_pass(mesh.rng.uniform(1, 8))
    mesh.do("pause", [paused])
    mesh.let_pass(mesh.rng.uniform(5, 8))
    mesh.do("start", [killed])
    mesh.let_pass(mesh.rng.uniform(0, 2))
    mesh.do("resume", [paused])
    mesh.let_pass(mesh.rng.uniform(0, 3))
    lost = [node.name for node in mesh.world.nodes.values() if node.host.name == unplugged and node.running]
    mesh.do("power_off", [unplugged])
    mesh.let_pass(mesh.rng.uniform(4, 8))
    mesh.do("start", [unplugged])
    for name in lost:
        if name != unplugged:
            mesh.do("start", [name])

    mesh.wait_whole("return")
    mesh.let_pass(5)  # clients find their brokers again
    mesh.quiet_time(10)
    mesh.end()
