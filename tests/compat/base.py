"""The base: version 0.1.0 as released, in its own processes beside the present code.

Its wheel is kept here; it was made from commit 28cd94c by ``pip wheel --no-deps``. It is unpacked into a
temporary folder, which comes first on the PYTHONPATH of a process of the base.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.mesh.loopback import DEADLINE_S, LOCAL, PERIOD_S, eventually
from tests.support.children import ends_with_tests

HERE: Final = Path(__file__).parent
WHEEL: Final = HERE / "mangrove_mesh-0.1.0-py3-none-any.whl"
SHA256: Final = "29afb81669f5b8c65e455701e41527b8d4eb401299bc1ff3ad48ebd473f8f7e6"
LIMIT_S: Final = 120.0
"""Time limit for a process on a busy machine."""


def unpack(folder: Path) -> Path:
    """The base's packages in a folder for a PYTHONPATH."""
    assert hashlib.sha256(WHEEL.read_bytes()).hexdigest() == SHA256, f"{WHEEL} is not the base's wheel"
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


def environment(*path: Path, **more: str) -> dict[str, str]:
    """The environment of a process whose modules come from these folders first."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MANGROVE_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, path)), **more}


@asynccontextmanager
async def base_broker(
    site: Path, folder: Path, name: str, *join: str, kill: bool = False
) -> AsyncIterator[str]:
    """A broker of the base. Returns its URL. At the end it is told to leave, or killed."""
    ports = folder / f"{name}.json"
    ports.unlink(missing_ok=True)
    command = [sys.executable, "-m", "mesh", "broker", "--name", name, "--ports-file", str(ports)]
    command += ["--listen", LOCAL, "--state-dir", str(folder / "state"), "--log-dir", str(folder / "logs")]
    command += ["--period", str(PERIOD_S), "--deadline", str(DEADLINE_S)]
    for url in join:
        command += ["--join", url]
    process = subprocess.Popen(
        ends_with_tests(command), cwd=folder, env=environment(site), stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:

        def is_ready() -> bool:
            assert process.stderr is not None
            assert process.poll() is None, process.stderr.read().decode()
            return ports.exists()

        await eventually(is_ready, f"{name} is ready", LIMIT_S)
        document: dict[str, Any] = json.loads(ports.read_text())
        yield document["url"]
    finally:
        process.kill() if kill else process.terminate()
        _, said = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in said.decode(), said.decode()


def run_base(site: Path, folder: Path, program: str, *arguments: str) -> str:
    """Run a program with the base's code. Returns its output."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment(site), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
