"""Commands of a client without a right: each names the rule and ends with 1."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mesh import Broker, Principal
from mesh.cli.app import main
from mesh.cli.exits import ExitCode
from tests.mesh.loopback import LOCAL


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (["pub", "news", "hello"], "publish has no pattern for it"),
        (["sub", "news.#", "--count", "1"], "subscribe has no pattern that covers it"),
        (["request", "news", "hello"], "ask has no pattern for it"),
        (["survey", "news", "hello"], "ask has no pattern for it"),
        (["status"], "ask has no pattern for it"),
        (["queue", "ls"], "ask has no pattern for it"),
    ],
)
async def test_a_command_without_the_right_names_the_rule(
    command: list[str], rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    assert main(["key", "token", str(token)]) == ExitCode.OK
    known = Principal("sensors", tokens=(capsys.readouterr().out.strip(),), publish=("telemetry.#",))
    async with Broker(listen=LOCAL, principals=known, anonymous="nowhere") as broker:
        flags = ["--url", broker.url, "--token-file", str(token)]
        assert await asyncio.to_thread(main, [*command, *flags]) == ExitCode.FAILED
        assert f"principals.sensors.{rule}" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*command, "--url", broker.url]) == ExitCode.UNAVAILABLE
        assert "prove who you are" in capsys.readouterr().err


async def test_a_command_with_the_right_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    assert main(["key", "new", str(key)]) == ExitCode.OK
    known = Principal("ops", keys=(capsys.readouterr().out.strip(),), publish=("#",), ask=("$sys.#",))
    monkeypatch.setenv("MANGROVE_KEY_FILE", str(key))
    async with Broker(name="alpha", listen=LOCAL, principals=known, anonymous="nowhere") as broker:
        assert await asyncio.to_thread(main, ["pub", "news", "hello", "--url", broker.url]) == ExitCode.OK
        assert capsys.readouterr().out.startswith("accepted topic=news broker=alpha")
        assert await asyncio.to_thread(main, ["status", "--url", broker.url]) == ExitCode.OK
        monkeypatch.setenv("MANGROVE_KEY_FILE", str(tmp_path / "none"))
        assert await asyncio.to_thread(main, ["status", "--url", broker.url]) == ExitCode.CONFIG
        assert "the key cannot be read: No such file" in capsys.readouterr().err
