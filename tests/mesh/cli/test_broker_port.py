"""`mesh cat` at the port of a mesh broker: what brokers say to each other is not printed, and it ends."""

from __future__ import annotations

import pytest

from mesh import Broker
from mesh.cli.broker_port import broker_at, is_refusal
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.wire.link_frames import LinkKind, encode
from protocols import Bus0, SocketOptions
from tests.mesh.cli.cats import Running


@pytest.mark.parametrize("flags", [("--bus",), ("--surveyor", "-D", "x"), ("--respondent",), ("--pair",)])
async def test_a_socket_that_is_for_brokers_only_ends_with_a_sentence(flags: tuple[str, ...]) -> None:
    """It printed the frames of brokers, or nothing, and dialled again and again."""
    async with Broker(name="alpha", listen="tcp://127.0.0.1:0", period_s=0.2, deadline_s=0.1) as broker:
        running = Running(*flags, "--dial", broker.url)
        with pytest.raises(
            CommandFailed, match=rf"^{broker.url} is a port of .*broker.*--req, --push"
        ) as end:
            await running.run()
        assert end.value.code == ExitCode.UNAVAILABLE
        assert not running.shown


async def test_a_timeout_before_the_broker_disconnects_is_no_success() -> None:
    """It ended with 0 and without a word, where a little more patience got the sentence."""
    async with Broker(name="alpha", listen="tcp://127.0.0.1:0") as broker:
        for flags in (
            ("--respondent", "-D", "x"),
            ("--respondent", "-C1"),
            ("--bus",),
            ("--surveyor", "-D", "x"),
        ):
            running = Running(*flags, "--recv-timeout", "0.01", "--dial", broker.url)
            with pytest.raises(CommandFailed, match=rf"^{broker.url} is a port of broker alpha") as end:
                await running.run()
            assert end.value.code == ExitCode.UNAVAILABLE


async def test_a_peer_that_is_no_broker_is_not_taken_for_one() -> None:
    async with Bus0() as bus:
        listener = await bus.listen("tcp://127.0.0.1:0")
        assert await broker_at(listener.url, SocketOptions()) is None
    assert await broker_at(listener.url, SocketOptions()) is None
    for body in (b"", b"hello", b"\x90\x25", encode(LinkKind.GOODBYE)):
        assert not is_refusal(body)
    assert is_refusal(encode(LinkKind.REFUSED, "deadline", "not admitted within 2.0 s"))
