"""The guided fuzzer: a short run over each decoder, and proof that it finds what is broken.

The proof makes a copy of the packages and removes one rule of one decoder from it. The fuzzer must find an
input that reveals this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

pytest.importorskip("atheris", reason="the guided fuzzer is not installed (pip install atheris)")

ROOT = Path(__file__).resolve().parent.parent.parent
# A short run in every `make test`; nightly runs say more.
RUNS = int(os.environ.get("MANGROVE_FUZZ_RUNS", "1500"))


def fuzz(root: Path, found: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *options, "--found", str(found)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=50 + RUNS / 100)


@pytest.mark.parametrize("target", TARGETS)
def test_a_short_run_finds_nothing(target: str, tmp_path: Path) -> None:
    ran = fuzz(ROOT, tmp_path, target, "--runs", str(RUNS), "--seed", "1")
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule taken out of a module. ``blank`` runs begin with nothing, so guidance alone must find it."""

    target: str
    module: str
    rule: str
    broken: str
    blank: bool = False


MUTANTS = {
    "the limit of a frame": Mutant(
        "sp", "protocols/wire/framing.py", "if size > size_max > 0:", "if size > size_max + 1 > 1:"
    ),
    "the byte before an ipc frame": Mutant(
        "sp", "protocols/wire/framing.py", "if lead and data[position] != lead[0]:", "if False:"
    ),
    "the end of a run of equal frames": Mutant(
        "sp", "protocols/wire/framing.py", "in range(len(prefix)):", "in range(len(prefix) - 1):"
    ),
    "a prefix cut in two": Mutant(
        "sp", "protocols/wire/framing.py", "self._start = data[position:]", "self._start = b''", blank=True
    ),
    "the reserved field": Mutant(
        "handshake", "protocols/wire/handshake.py", "if reserved:", "if reserved > 255:"
    ),
    "the hops of a backtrace": Mutant(
        "words", "protocols/wire/backtrace.py", "for _ in range(ttl):", "for _ in range(ttl + 1):", blank=True
    ),
    "the limit of a message in fragments": Mutant(
        "websocket",
        "protocols/wire/websocket.py",
        "size = self._message_size + payload_length",
        "size = payload_length",
    ),
    "the end of a WebSocket's request": Mutant(
        "websocket", "protocols/wire/upgrade.py", "max(before - len(_END) + 1, 0)", "before"
    ),
    "what TLS raises": Mutant(
        "tls", "protocols/wire/tls.py", "except ssl.SSLError as error:", "except KeyError as error:"
    ),
    "what msgpack raises": Mutant(
        "link",
        "mesh/wire/link_frames.py",
        "except (ValueError, msgpack.UnpackException, RecursionError)",
        "except KeyError",
    ),
    "the size of a block's tables": Mutant(
        "block", "mesh/wire/blocks.py", "if end - at < tables * 4 * count:", "if end - at < count:"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fuzzer_notices_a_removed_rule(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    for package in ("protocols", "mesh", "tests/fuzz", "tests/support"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests" / "__init__.py").touch()
    module = tmp_path / mutant.module
    source = module.read_text()
    assert mutant.rule in source, f"{mutant.module} has changed: choose another rule to take out"
    module.write_text(source.replace(mutant.rule, mutant.broken))
    options = ["--blank"] if mutant.blank else []
    found = tmp_path / "found"
    ran = fuzz(tmp_path, found, mutant.target, "--runs", "200000", "--seconds", "30", "--seed", "3", *options)
    assert ran.returncode == 1, f"nobody misses it: {ran.stderr[-2000:]}"
    (file,) = found.iterdir()
    assert file.name.startswith(f"{mutant.target}-crash-")
    ran = fuzz(tmp_path, found, mutant.target, "--replay", str(file))
    assert ran.returncode == 1 and "Traceback" in ran.stderr, "the input alone shows it again"
    ran = fuzz(ROOT, found, mutant.target, "--replay", str(file))
    assert ran.returncode == 0, "and it is the rule that makes the difference"
