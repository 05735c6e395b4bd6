"""The code in README and docs is run, as a reader would run it.

* The ``sh`` blocks of a page are one session of one shell, top to bottom. A line that ends with ``&`` runs
  on once it has said that it is ready or subscribed; everything else must end with exit code 0.
  An ``output`` block says what the block above it prints, line by line; ``...`` in a line is anything.
* A block can be pasted whole: commands wait for a broker that is starting, but not for a subscriber.
* A ``python`` block is a program; it runs by itself and must end well. A comment ``#> text`` in it says what
  must stand in its output. One that uses `Client` without a `Broker` finds one running.
* Ports 7770 to 7779 are replaced by free ones, and home and runtime folders are the test's own. The shell
  stands in a folder with `docs` in it, as that of a clone.
* A program of another library runs if that library is installed; one that imports ``nats`` finds a server.
* Blocks that are not run are listed in `left_out`, each with the reason.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import BLOCKS, PAGES, Block, blocks_of
from tests.docs.left_out import is_left_out
from tests.docs.shell import Shell

OTHERS = ("pynng", "zmq", "nats")
"""Libraries that the pages on moving from them import."""
WAITED_FOR = ("mesh broker ", "mesh cat ", "mesh device ")
"""Commands that others wait for: what listens. They do not wait for a subscriber."""
PAGE_TIMEOUT_S = 1800.0
"""A page has many commands, each of which has a limit of its own."""
RUN = [block for block in BLOCKS if not is_left_out(block)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def pages_with_commands() -> list[Path]:
    return [page for page in PAGES if any(block.page == page and block.language == "sh" for block in RUN)]


@pytest.mark.process
@pytest.mark.timeout(PAGE_TIMEOUT_S)
@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda page: page.stem)
def test_shell_lines_of_a_page_work_in_order(page: Path, shell: Shell) -> None:
    said: str | None = None
    for block in blocks_of(page):
        if block.file is not None:
            (shell.folder / block.file).write_text(block.code)
        elif block.language == "output" and said is not None:
            for expected in block.code.splitlines():
                shell.expect(expected, said)
        elif block.language == "sh" and is_left_out(block):
            said = None
        elif block.language == "sh":
            said = ""
            for line in block.commands():
                program = line.split()[0]
                if program in ("nngcat", "nanocat") and shutil.which(program) is None:
                    pytest.skip(f"{program} is not installed")
                said += shell.run(line)


@pytest.mark.process
@pytest.mark.parametrize("block", [block for block in RUN if block.language == "python"], ids=str)
def test_python_blocks_are_programs_that_end_well(block: Block, shell: Shell) -> None:
    program = shell.folder / "example.py"
    program.write_text(shell.translated(block.code))
    for library in OTHERS:
        if f"import {library}" in block.code:
            pytest.importorskip(library)
    if "import nats" in block.code:
        if shutil.which("nats-server") is None:
            pytest.skip("nats-server is not installed")
        shell.run("nats-server -js -sd jetstream -a 127.0.0.1 -p 7779 &")
    if "Broker(" not in block.code and "mesh" in block.code:
        shell.run("mesh broker --name example --listen tcp://127.0.0.1:7770 &")
        shell.environment["MANGROVE_URL"] = shell.translated("tcp://127.0.0.1:7770")
    said = shell.run(f"{shlex.quote(sys.executable)} -W error {shlex.quote(str(program))}")
    for line in block.code.splitlines():
        if "#>" in line:
            assert line.partition("#>")[2].strip() in said, f"{block}: {line.strip()} but it said: {said}"


@pytest.mark.parametrize("block", [block for block in RUN if block.language == "sh"], ids=str)
def test_a_block_of_commands_can_be_pasted_whole(block: Block) -> None:
    """The tutorial published in the block that started its subscriber, which was not there yet."""
    started: list[str] = []
    for line in block.commands():
        if line.rstrip().endswith("&"):
            started.append(line)
        elif line.startswith("until "):
            started.clear()
        else:
            unheeded = [each for each in started if not each.startswith(WAITED_FOR) or "mesh " not in line]
            assert not unheeded, f"{block}: {line!r} does not wait for {unheeded}: begin a new block"
            started.clear()


def test_comments_and_output_are_not_pasted() -> None:
    """zsh runs a pasted `#` as a command, and makes a file of the word behind `#>`."""
    pasted = [
        f"{block}: {line}"
        for block in RUN
        if block.language == "sh"
        for line in block.code.splitlines()
        if line.startswith("#") or "#" in shlex.split(line.removesuffix("\\"))
    ]
    assert not pasted


@pytest.mark.parametrize("language", ["toml", "json"])
def test_blocks_of_data_can_be_read(language: str) -> None:
    for block in BLOCKS:
        if block.language == language:
            try:
                tomllib.loads(block.code) if language == "toml" else json.loads(block.code)
            except ValueError as error:
                pytest.fail(f"{block}: {error}")
