"""The network splits in two, heals, and then one host is heard by nobody; each side goes on and all find
together again.
"""

from __future__ import annotations

from simulations.federation import Federation


def play(mesh: Federation) -> None:
    """Whole hosts are parted, so clients stay with their brokers."""
    mesh.start_brokers()
    mesh.wait_whole("start")
    mesh.start_clients()
    mesh.let_pass(3)

    one_side = mesh.rng.sample(mesh.brokers, mesh.rng.randint(1, mesh.size // 2))
    mesh.do("partition", one_side, [name for name in mesh.brokers if name not in one_side])
    mesh.let_pass(mesh.rng.uniform(10, 25))
    mesh.do("heal")
    mesh.wait_whole("heal of the split")

    unheard = mesh.rng.choice(mesh.brokers)
    mesh.do("cut_one_way", [unheard], [name for name in mesh.brokers if name != unheard])
    mesh.let_pass(mesh.rng.uniform(5, 10))
    mesh.do("heal")
    mesh.wait_whole("heal of the one-way cut")

    mesh.let_pass(5)
    mesh.quiet_time(10)
    mesh.end()
