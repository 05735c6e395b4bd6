"""`mesh sub` says when messages may be missing."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from mesh.broker.broker import Broker
from mesh.cli import messages
from mesh.cli.gaps import LOOK_S, Gaps
from mesh.clients.client import Client
from mesh.config import ClientConfig

pytestmark = pytest.mark.virtual

LINE = r"mesh sub: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d messages may be missing: .*apart from others\n"


@pytest.mark.parametrize("quiet", [True, False], ids=["before anything comes", "before what comes next"])
async def test_a_subscription_that_may_lack_messages_says_so_with_the_time(
    quiet: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide promised the line; there was none where the broker had been apart from others."""
    monkeypatch.setattr(messages, "Gaps", partial(Gaps, wall_time=lambda: 1.8e9))
    async with Broker(name="alpha", listen="tcp://127.0.0.1:0") as broker, Client(broker.url) as publisher:
        settings = ClientConfig(url=broker.url)
        task = asyncio.create_task(messages._subscribe(settings, ("a",), 2, None, messages._shown_as_json))
        await asyncio.sleep(3.0)
        assert capsys.readouterr().err == "mesh sub: subscribed to a\n"
        await publisher.publish("a", b"one")
        assert broker._node is not None
        await asyncio.sleep(3.0)
        assert capsys.readouterr() == ('{"schema": 1, "topic": "a", "body": "one"}\n', "")
        broker._node.exchange.interrupted(asyncio.get_running_loop().time())
        if quiet:
            await asyncio.sleep(2 * LOOK_S)
            assert re.fullmatch(LINE, capsys.readouterr().err)
        await publisher.publish("a", b"two")
        assert await task == 0
        shown = capsys.readouterr()
        assert shown.out == '{"schema": 1, "topic": "a", "body": "two"}\n'
        assert shown.err == "" if quiet else re.fullmatch(LINE, shown.err)
