"""The order in which a broker learns of a link and of its frames."""

from __future__ import annotations

import pytest

from tests.mesh.peers import Peers, until


async def test_a_broker_is_told_of_a_link_before_it_is_told_to_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link returned, which was all that a joining broker lacked: the messages that it held were routed
    before the data plane knew the link, and lost as `no_link`."""
    async with Peers() as peers:
        joined = await peers.peer("a")
        joining = await peers.peer("b", joined)
        said: list[str] = []
        core, interest = joining.peering.core, joining.peering.interest
        monkeypatch.setattr(core.joining, "is_complete", lambda live: bool(list(live)))
        monkeypatch.setattr(interest, "absent", lambda: ())  # held since an earlier link
        monkeypatch.setattr(joining, "link_up", lambda *args: said.append("link"))
        monkeypatch.setattr(joining, "may_route", lambda: said.append("route"))
        await until(lambda: len(said) >= 2, "the link and the release")
        assert said[:2] == ["link", "route"]
