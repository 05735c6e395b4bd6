"""Commands that draw, at terminals that can show little: narrow, dumb, without colours, without Unicode."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from mesh import Broker, Client
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

LOCAL = "tcp://127.0.0.1:0"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STYLE = re.compile(r"\x1b\[([0-9;]*)m")
PLAIN_STYLES = {"0", "1", "4", "7", "1;4"}
"""Bold, underlined and reversed: what ``NO_COLOR`` leaves."""
NARROW = 20
COMMANDS = (
    "status",
    "status --all",
    "top --once",
    "clients",
    "topics",
    "links",
    "queue ls",
    "queue show mail",
)
"""Those that draw tables and fit them to the terminal. The others print lines, which a terminal folds."""


def at_a_terminal(command: str, url: str, columns: int, variables: dict[str, str]) -> str:
    """What a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    words = [sys.executable, "-m", "mesh", *command.split(), "--url", url, "--timeout", "60"]
    words = words[:-2] if command.startswith("top") else words
    process = subprocess.Popen(
        ends_with_tests(words), stdin=theirs, stdout=theirs, stderr=theirs, env=kept | variables
    )
    os.close(theirs)
    said = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # Linux's end of a terminal
        pass
    finally:
        os.close(ours)
    text = said.decode("utf-8")
    assert process.wait(60) == 0, text
    return text


PLAIN_LOCALE = "C" if sys.prefix.isascii() else "C.UTF-8"
"""Python cannot start in the locale C if its environment has a path that is not ASCII."""


@pytest.mark.parametrize(
    ("columns", "variables"),
    [
        (NARROW, {"TERM": "xterm-256color"}),
        (80, {"TERM": "xterm-256color", "NO_COLOR": "1"}),
        (80, {"TERM": "dumb"}),
        (NARROW, {"TERM": "xterm", "LC_ALL": PLAIN_LOCALE, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}),
    ],
    ids=["narrow", "no-color", "dumb", "no-unicode"],
)
async def test_every_drawing_fits_its_terminal(
    columns: int, variables: dict[str, str], tmp_path: Path
) -> None:
    long_name = "a-broker-with-a-name-of-forty-characters"
    async with (
        Broker(name=long_name, listen=LOCAL, state_dir=tmp_path) as broker,
        Broker(name="beta", listen=LOCAL, join=broker.url) as other,
        Client(broker.url) as client,
        client.subscribe("mail.#", durable="mail"),
        client.subscribe("news.*.with-many-characters-in-it"),
    ):
        await other.wait_ready()
        for command in COMMANDS:
            text = await asyncio.to_thread(at_a_terminal, command, broker.url, columns, variables)
            lines = ESCAPE.sub("", text).splitlines()
            assert len(lines) > 1
            assert [line for line in lines if cell_len(line) > columns] == [], command
            styles = set(STYLE.findall(text))
            if variables["TERM"] == "dumb":
                assert "\x1b" not in text, command
            elif "NO_COLOR" in variables:
                assert styles <= PLAIN_STYLES, command
            if "LC_ALL" in variables:
                assert text.isascii(), command
            if command == "links":
                assert any(line.rstrip().endswith(" up") for line in lines), "the state has room beside names"
