"""`mesh drain` ends a broker once its clients have gone to others."""

from __future__ import annotations

import asyncio
from io import StringIO

import pytest

from mesh import Broker, Client
from mesh.cli import drain, serving
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.config import ClientConfig
from mesh.logs import CalmHandler

pytestmark = pytest.mark.virtual

ALPHA, BRAVO = "tcp://127.0.0.1:7770", "tcp://127.0.0.1:7771"


async def test_a_drained_broker_ends_and_its_clients_are_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(serving, "tell", said.append)
    monkeypatch.setattr(serving, "leave_on_signal", lambda stop, told: None)
    monkeypatch.setattr(serving, "on_hangup", lambda stop, reload: None)
    options = {"name": "alpha", "listen": [ALPHA], "join": [BRAVO]}
    async with Broker(name="bravo", listen=BRAVO) as bravo:
        served = asyncio.create_task(
            serving.serve(options, reload=dict, ports_file=None, lines=CalmHandler(StringIO()))
        )
        while not any(member["name"] == "alpha" for member in bravo.members()):
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        async with Client([ALPHA]) as client, client.subscribe("a") as subscription:
            assert await drain._drain(ClientConfig(url=ALPHA)) == 0
            await served
            assert client.broker == "bravo" and subscription.interrupted == 0
    shown = capsys.readouterr().out
    assert shown == "alpha leaves; 1 of its clients go to other brokers\nalpha has left\n"
    assert said[-2:] == ["alpha leaves: mesh drain", "alpha has left"]


async def test_the_end_of_its_own_session_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def serve() -> None:
        async with Broker(name="alpha", listen=ALPHA) as broker:
            await broker.wait_asked_to_leave()

    serving = asyncio.create_task(serve())
    assert await drain._drain(ClientConfig(url=ALPHA)) == 0
    await serving
    assert [record.getMessage() for record in caplog.records if "session" in record.getMessage()] == []


async def test_one_broker_has_to_be_chosen() -> None:
    """A client goes to any of its addresses: a broker drawn by lot would end."""
    with pytest.raises(
        CommandFailed, match="it ends one broker, and 2 are named: choose one with --url"
    ) as failed:
        await drain._drain(ClientConfig(url=f"{ALPHA},{BRAVO}"))
    assert failed.value.code == ExitCode.USAGE


async def test_a_program_with_a_broker_decides_itself_when_it_leaves() -> None:
    async with Broker(name="alpha", listen=ALPHA, drain_s=1.0) as broker:
        with pytest.raises(CommandFailed, match="alpha had not left after 6 s") as failed:
            await drain._drain(ClientConfig(url=ALPHA))
        assert failed.value.code == ExitCode.TIMEOUT
        await broker.wait_asked_to_leave()
