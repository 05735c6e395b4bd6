"""Endpoints in virtual time: names without a file, hooks, events and lingering are the production ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols import Pipe, PipeRefused, Pull0, Push0, SocketOptions
from simulations.world import Process, World


@pytest.mark.parametrize(
    "url", ["abstract://here%00too", "ipc://@here", "ipc://FOLDER/here", "inproc://here"]
)
def test_all_queued_messages_arrive_and_every_peer_is_reported(url: str, tmp_path: Path) -> None:
    url = url.replace("FOLDER", str(tmp_path))
    kinds: list[str] = []
    received: list[bytes] = []
    asked: list[Pipe] = []

    def admit(pipe: Pipe) -> None:
        asked.append(pipe)
        if len(asked) == 1:
            raise PipeRefused("the first is turned away")

    async def main(process: Process) -> None:
        options = SocketOptions(ipc_permissions=0o660, linger_s=60.0)
        pull = Pull0(admit=admit, options=options, rng=process.stream("pull"))
        events = pull.events()
        async with pull:
            listener = await pull.listen(url)
            push = Push0(dial=listener.url, options=options, rng=process.stream("push"))
            async with push:
                await pull.wait_for_peers()
                await push.wait_for_peers()
                await push.send_many([b"%d" % number * 1000 for number in range(500)])
            while len(received) < 500:
                received.append(await pull.recv())
        kinds.extend([event.kind async for event in events])

    with World(5) as world:
        world.add_node("one", main).start()
        world.run_until(lambda: len(kinds) >= 4, timeout_s=120, what="the end of the stream")
        assert not world.failures
    assert received == [b"%d" % number * 1000 for number in range(500)]
    assert kinds == ["attaching", "attaching", "attached", "detached"]
