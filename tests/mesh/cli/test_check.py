"""`mesh check` as a monitoring plugin runs it: what it prints and with what it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mesh import Broker
from mesh.cli.app import main
from tests.support.ports import free_port


@contextmanager
def a_broker() -> Iterator[str]:
    """One in a thread, since the command has a loop of its own."""
    url, up, down = f"tcp://127.0.0.1:{free_port()}", threading.Event(), threading.Event()

    async def serve() -> None:
        async with Broker(name="alpha", listen=url):
            up.set()
            await asyncio.get_running_loop().run_in_executor(None, down.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(240)
        yield url
    finally:
        down.set()
        thread.join()


def test_a_mesh_is_judged_with_the_exit_codes_of_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    with a_broker() as url:
        common = ["check", "--url", url, "--interval", "0.1", "--late", "off"]
        assert main(common) == 0
        assert capsys.readouterr().out.startswith(
            "MESH OK - 1 of 1 brokers alive, nothing dropped | alive=1;"
        )
        assert main([*common, "--alive", "2,1"]) == 1
        assert main([*common, "--all", "--alive", "3,2"]) == 2
        seen = capsys.readouterr()
        assert "MESH CRITICAL - 1 of 1 brokers alive, fewer than 2 | " in seen.out and not seen.err


def test_a_broker_that_does_not_answer_is_critical(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--url", f"tcp://127.0.0.1:{free_port()}", "--timeout", "0.3"]) == 2
    seen = capsys.readouterr()
    assert seen.out.startswith("MESH CRITICAL - no broker at") and not seen.err
    assert seen.out.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["--dead", "x"], ["--nonsense"], ["--url", "no address"], ["--config", "/nowhere"], ["more"]],
)
def test_misuse_is_unknown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A usage error ended with 64, which Nagios takes for out of range."""
    assert main(["check", *arguments]) == 3
    seen = capsys.readouterr()
    assert seen.out.startswith("MESH UNKNOWN - ") and seen.out.count("\n") == 1 and not seen.err
