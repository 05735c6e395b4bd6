"""The code in README and docs is run, as a reader would run it.

* A ``python`` block is a program; it runs by itself and must end well. A comment ``#> text`` in it says what
  must stand in its output. One that uses `Client` without a `Broker` finds one running.
* The ``sh`` blocks of a page are one session of one shell, top to bottom. A line that ends with ``&`` runs
  on once it has said that it is ready or subscribed; everything else must end with exit code 0.
  A line ``#> text`` says what must stand in the output of the command before it (for a background command: by
  the end of the page).
* Ports 7770 to 7779 are replaced by free ones, and home and runtime folders are the test's own. The shell
  stands in a folder with `docs` in it, as that of a clone.
* A program of another library runs if that library is installed; one that imports ``nats`` finds a server.
* ``<!-- not run: why -->`` on the line before a block leaves it out. It must compile all the same.
* ``toml`` and ``json`` blocks must be such.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from mesh.cli.app import COMMANDS
from tests.support.children import ends_with_tests
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
OTHERS = ("pynng", "zmq", "nats")
"""Libraries that the pages on moving from them import."""
COMMAND_TIMEOUT_S = 120.0
PAGE_TIMEOUT_S = 600.0
"""A page has many commands, each of which has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start("code")), match["language"], match["code"])
        for match in BLOCK.finditer(text)
        if match["language"] == language and not match["before"].startswith("<!-- not run")
    ]


@dataclass
class Background:
    """A command that runs on, and what it has said so far."""

    command: str
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    def follow(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            self.readers.append(threading.Thread(target=self._read, args=(stream,), daemon=True))
            self.readers[-1].start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.said.append(line)

    def wait_until(self, *words: str) -> None:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not any(word in line for line in list(self.said) for word in words):
            assert self.process.poll() is None or self.process.returncode == 0, (
                f"{self.command}: {''.join(self.said)}"
            )
            assert time.monotonic() < deadline, f"{self.command} never said {words}: {''.join(self.said)}"
            time.sleep(0.02)

    def end(self) -> None:
        """As Ctrl-C does: to everything the line started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for reader in self.readers:
            reader.join(120)


class Shell:
    """One reader's terminal: his folder, his environment, his background commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}
        self.background: list[Background] = []
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        (folder / "docs").symlink_to(ROOT / "docs")
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(runtime),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }

    def translated(self, text: str) -> str:
        return re.sub(r"\b777\d\b", lambda match: self.ports.setdefault(match[0], str(free_port())), text)

    def run(self, line: str) -> str:
        """Runs one line to its end, or until it is ready if it is to stay; returns what it said."""
        line = self.translated(line)
        stays = line.rstrip().endswith("&")
        process = subprocess.Popen(
            ends_with_tests(["bash", "-c", line.rstrip().rstrip("&")], signal.SIGTERM),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stays else subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if stays:
            job = Background(line, process)
            job.follow()
            self.background.append(job)
            job.wait_until("ready", "subscribed")
            return ""
        try:
            said, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            pytest.fail(f"{line} did not end within {COMMAND_TIMEOUT_S:g} s; it said: {said}")
        assert process.returncode == 0, f"{line} ended with exit code {process.returncode}: {said}"
        return said

    def close(self) -> None:
        for job in reversed(self.background):
            job.end()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def commands(block: Block) -> Iterator[str]:
    """The block's commands; continued lines are joined, comments left out but for what they expect."""
    whole = ""
    for line in block.code.splitlines():
        whole += line.removesuffix("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        if whole.strip() and (not whole.lstrip().startswith("#") or whole.startswith("#>")):
            yield whole
        whole = ""


@pytest.mark.process
@pytest.mark.timeout(PAGE_TIMEOUT_S)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.stem)
def test_shell_lines_of_a_page_work_in_order(page: Path, shell: Shell) -> None:
    said, job = "", None
    for block in blocks(page, "sh"):
        for line in commands(block):
            if line.startswith("#>"):
                expected = shell.translated(line.removeprefix("#>").strip())
                if job is not None:
                    job.expected.append(expected)
                else:
                    assert expected in said, f"{block}: expected {expected!r} in: {said}"
                continue
            program = line.split()[0]
            if program in ("nngcat", "nanocat") and shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
            said = shell.run(line)
            job = shell.background[-1] if line.rstrip().endswith("&") else None
    for job in shell.background:
        for expected in job.expected:
            job.wait_until(expected)


@pytest.mark.process
@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "python")], ids=str)
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


def left_out(language: str) -> list[Block]:
    """Blocks that are not run."""
    found = []
    for page in PAGES:
        text = page.read_text()
        found += [
            Block(page, text.count("\n", 0, match.start("code")), language, match["code"])
            for match in BLOCK.finditer(text)
            if match["language"] == language and match["before"].startswith("<!-- not run")
        ]
    return found


@pytest.mark.parametrize("block", left_out("python"), ids=str)
def test_python_blocks_that_are_not_run_compile(block: Block) -> None:
    compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_shell_blocks_that_are_not_run_are_lines_of_a_shell_that_name_commands() -> None:
    names = {name for name, _, _ in COMMANDS}
    for block in left_out("sh") + left_out("text"):
        if block.language == "sh":
            checked = subprocess.run(["bash", "-n", "-c", block.code], capture_output=True, text=True)
            assert checked.returncode == 0, f"{block}: {checked.stderr}"
        for name in re.findall(r"^mesh (\w+)\b(?!:)", block.code, re.MULTILINE):
            assert name in names, f"{block}: mesh {name}"


@pytest.mark.parametrize("language", ["toml", "json"])
def test_blocks_of_data_can_be_read(language: str) -> None:
    for page in PAGES:
        for block in blocks(page, language):
            try:
                tomllib.loads(block.code) if language == "toml" else json.loads(block.code)
            except ValueError as error:
                pytest.fail(f"{block}: {error}")


LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if link and not (page.parent / link).exists()]
    assert not broken, f"{page.relative_to(ROOT)} links to {broken}"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    seen, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.read_text()):
            target = (page.parent / link).resolve()
            if link and target.suffix == ".md" and target.exists() and target not in seen:
                seen.add(target)
                waiting.append(target)
    lost = [str(page.relative_to(ROOT)) for page in PAGES if page not in seen and page.name != "README.md"]
    assert not lost, f"no page links to {lost}"
