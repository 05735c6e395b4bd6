"""Names and texts of others are escaped in receipts, answers and errors of the command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.cli import messages
from mesh.cli.app import main
from mesh.cli.exits import CommandFailed
from mesh.cli.messages import receipt_line
from mesh.clients.questions import Answer, SurveyResult
from mesh.config import ClientConfig
from mesh.wire.session_frames import Receipt

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\u202egnp"
ESCAPED = "\\x1b]0;owned\\x07\\x1b[2J\\r\\n\\u202egnp"


def test_a_receipt_names_the_absent_in_printable_words() -> None:
    line = receipt_line("news.uk", Receipt("accepted", HOSTILE, 1, 1, (HOSTILE,)), json=False)
    assert line.isprintable() and line.count(ESCAPED) == 2
    assert receipt_line("news.uk", Receipt("accepted", HOSTILE, 1, 1, ()), json=True).isprintable()


def test_an_error_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([HOSTILE]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and ESCAPED in line


class Surveyed:
    """A client whose survey brings hostile names."""

    async def survey(self, *given: Any, **options: Any) -> SurveyResult:
        answer = Answer(HOSTILE, HOSTILE, b"a body is printed as it is \x07", None)
        return SurveyResult([answer], [HOSTILE], refused=[HOSTILE])


def test_a_survey_prints_names_escaped_and_bodies_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    @asynccontextmanager
    async def connected(settings: ClientConfig) -> AsyncIterator[Surveyed]:
        yield Surveyed()

    monkeypatch.setattr(messages, "connected", connected)
    with pytest.raises(CommandFailed, match="no answer within"):
        asyncio.run(messages._survey(ClientConfig(), "news.uk", b"", {}, 1.0, False))
    out, err = capfdbinary.readouterr()
    assert out == f"{ESCAPED}/{ESCAPED} ".encode() + b"a body is printed as it is \x07\n"
    assert err == f"mesh survey: refused by {ESCAPED}\n".encode()


def test_a_name_that_the_output_cannot_show_is_no_error(tmp_path: Path) -> None:
    """As on a terminal of another locale."""
    file = tmp_path / "mangrove.toml"
    file.write_text('[broker]\nstate_dir = "/gr\\u00f6\\u00dfe"\n')
    ran = subprocess.run(
        [sys.executable, "-m", "mesh", "config", "show", "--config", str(file)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    assert rb'state_dir = "/gr\xf6\xdfe"' in ran.stdout
