"""Commands wait for a broker that is starting, and a broker says whom it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import StringIO

import pytest

from mesh import Broker, Disconnected
from mesh.cli import messages, serving, status
from mesh.cli.app import main
from mesh.cli.service_manager import ServiceManager
from mesh.cli.settings import BrokerFlags
from mesh.config import ClientConfig
from mesh.errors import ConfigError
from mesh.logs import CalmHandler

URL = "tcp://127.0.0.1:7770"
SETTINGS = ClientConfig(url=URL, timeout_s=5.0)


@pytest.mark.virtual
async def test_pub_waits_for_a_broker_that_is_starting(capsys: pytest.CaptureFixture[str]) -> None:
    """README's first block ended with 69 when it was pasted as a whole: a broker needs a second."""
    publishing = asyncio.create_task(
        messages._publish(SETTINGS, "news.uk", b"x", "accepted", {}, False, None)
    )
    await asyncio.sleep(2)
    assert not publishing.done()
    async with Broker(name="alpha", listen=URL):
        assert await publishing == 0
    assert capsys.readouterr().out.startswith("accepted topic=news.uk broker=alpha")


@pytest.mark.virtual
async def test_the_other_commands_wait_too() -> None:
    looking = asyncio.create_task(status._look(SETTINGS, False))
    show = messages._shown_as_text
    subscribed = asyncio.create_task(messages._subscribe(SETTINGS, ("a",), None, 4.0, show))
    await asyncio.sleep(3)
    async with Broker(name="alpha", listen=URL):
        assert (await looking).statuses[0]["name"] == "alpha"
        assert await subscribed == 0, "its time was over after it had subscribed"


@pytest.mark.virtual
async def test_the_wait_ends_at_the_timeout_and_says_so() -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    sentence = r"^no broker at tcp://127.0.0.1:7770 \(.*; gave up after 5 s$"
    with pytest.raises(Disconnected, match=sentence):
        await status._look(SETTINGS, False)
    assert 4.5 <= clock() - began <= 5.0


@pytest.mark.virtual
async def test_a_long_wait_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """`mesh status --timeout 60` printed nothing for a minute."""
    with pytest.raises(Disconnected, match="gave up after 20 s$"):
        await status._look(ClientConfig(url=URL, timeout_s=20.0), False)
    (told,) = [record.getMessage() for record in caplog.records if "retrying" in record.getMessage()]
    assert told.startswith(f"no broker at {URL} (") and told.endswith("; retrying for 15 more seconds")


@pytest.mark.virtual
async def test_a_joining_broker_names_the_addresses_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(serving, "tell", said.append)
    async with Broker(name="beta", listen="tcp://127.0.0.1:7771", join=URL) as broker:
        telling = asyncio.create_task(serving._say_waits(broker, ServiceManager()))
        await asyncio.sleep(10)
        assert said == [f"beta is not ready: it waits for {URL}"]
        async with Broker(name="alpha", listen=URL):
            await broker.wait_ready()
            await telling
    assert len(said) == 1


@pytest.mark.parametrize(
    ("command", "usage"),
    [("pub", "TOPIC [BODY]"), ("sub", "PATTERN..."), ("work", "NAME [PATTERN...]")],
)
def test_the_usage_line_names_the_arguments(
    command: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was ``TOPIC [ARGS]``."""
    main([command, "--help"])
    assert capsys.readouterr().out.splitlines()[0] == f"Usage: mesh {command} [OPTIONS] {usage}"


def test_a_broker_says_why_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def told_to_leave(stop: asyncio.Event, told: Callable[[str], None]) -> None:
        told("SIGTERM")
        stop.set()

    monkeypatch.setattr(serving, "tell", said.append)
    monkeypatch.setattr(serving, "leave_on_signal", told_to_leave)
    options = {"name": "alpha", "listen": ["tcp://127.0.0.1:0"], "join": []}
    asyncio.run(serving.serve(options, reload=dict, ports_file=None, lines=CalmHandler(StringIO())))
    assert said[-2:] == ["alpha leaves: SIGTERM", "alpha has left"]


@pytest.mark.virtual
async def test_a_command_may_be_given_several_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    flags = BrokerFlags(url=["tcp://127.0.0.1:1", URL])
    assert flags.settings().url == f"tcp://127.0.0.1:1,{URL}"
    async with Broker(name="alpha", listen=URL):
        assert await messages._publish(flags.settings(), "a", b"x", "accepted", {}, False, None) == 0
    assert "broker=alpha" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="bad address"):
        BrokerFlags(url=[URL, "x"]).settings()
