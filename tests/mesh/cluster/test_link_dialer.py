"""An attempt at a link frees its place however it ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mesh import Broker
from mesh.cluster.link_dialer import UNREACHED_S
from mesh.cluster.links import LinkManager
from simulations import Mesh, World
from tests.mesh.loopback import Cluster


@pytest.mark.parametrize("seed", [1, 2])
def test_an_attempt_that_ends_by_a_defect_is_reported_and_dialled_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address counted as being dialled forever: it was never tried again, and its place under the bound
    of concurrent dials was lost."""
    begin, faults = LinkManager.begin, 0

    def broken(self: LinkManager, *arguments: object) -> object:
        nonlocal faults
        if faults < 6 and arguments[1] is not None:  # this side dialled
            faults += 1
            raise LookupError("a defect")
        return begin(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LinkManager, "begin", broken)
    with World(seed, keep_failures=True) as world:
        mesh = Mesh(world, brokers=3)
        world.run_for(10)
        assert faults == 6 == len([each for each in world.failures if "a defect" in str(each)])
        world.failures.clear()
        for number in (1, 2, 3):
            broker = mesh.broker(f"broker-{number}")
            assert sum(member["state"] == "alive" for member in broker.members()) == 3
        failures = [mesh.broker(f"broker-{number}").inspect().peering.dial_failures for number in (1, 2, 3)]
        assert sum(each.get("defect", 0) for each in failures) == 6
        mesh.finish()


@pytest.mark.virtual
async def test_an_unreachable_address_to_join_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker with a wrong --join logged nothing and stayed `joining`."""
    async with Cluster() as cluster:
        await cluster.broker("alpha", ["tcp://127.0.0.1:1"])
        await asyncio.sleep(4 * UNREACHED_S)
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [line for line in told if "127.0.0.1:1 " in line] == [
        "no link to tcp://127.0.0.1:1 for 5 s: nobody listens at tcp://127.0.0.1:1; retrying"
    ]


@pytest.mark.virtual
async def test_the_brokers_own_address_among_those_to_join_causes_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Brokers with the same list of addresses each warned about their own: "this is the broker itself"."""
    urls = ["tcp://127.0.0.1:7770", "tcp://127.0.0.1:7771"]
    async with (
        Broker(name="alpha", listen=urls[0], join=urls) as alpha,
        Broker(name="bravo", listen=urls[1], join=urls) as bravo,
    ):
        await alpha.wait_ready()
        await bravo.wait_ready()
        assert len(alpha.members()) == len(bravo.members()) == 2
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [line for line in told if "no link to" in line] == []
