"""Pictures of pages, as a browser shows them: the live page of a broker, and a report of the analysis.

`tests.docs.pictures` takes them. They need Chromium, and the report needs Spark.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.mesh.http.scenes import SCENES, staged
from tests.support.chromium import PROGRAM, Browser

PAGE_SIZE: Final = (1280, 700)
REPORT_SIZE: Final = (1000, 1180)
BYTES_MAX: Final = 250_000

INCIDENT: Final = """\
name = "evening"
summary = "a crash, a pause and a partition"
brokers = 5

[[fault]]
at_s = 12
kind = "crash"
a = "broker-4"
for_s = 9

[[fault]]
at_s = 30
kind = "pause"
a = "broker-2"
for_s = 5

[[fault]]
at_s = 45
kind = "partition"
a = ["broker-1", "broker-5"]
b = ["broker-2", "broker-3", "broker-4"]
for_s = 12
"""


def missing() -> str | None:
    """Why no photographs can be taken here; None if they can."""
    if PROGRAM is None:
        return "chromium is not installed"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: it is in the extra analysis"
    return None


async def photograph(url: str, shown: str, size: tuple[int, int]) -> bytes:
    """The upper part of a page as PNG, once a JavaScript expression is true in it."""
    async with Browser.run() as browser:
        page = await browser.page(*size)
        await page.go(url)
        await page.until(shown)
        return await page.picture(height_max=size[1])


async def live_page() -> bytes:
    async with staged(SCENES["death"]()) as (_, url):
        return await photograph(url, "!!document.querySelector('#topology .node')", PAGE_SIZE)


async def report() -> bytes:
    with TemporaryDirectory() as folder:
        (Path(folder) / "evening.toml").write_text(INCIDENT)
        mesh = shutil.which("mesh", path=str(Path(sys.executable).parent))
        assert mesh is not None
        for words in ("simulate ./evening.toml --seed 7 --out logs", "analyze logs --out report"):
            subprocess.run([mesh, *words.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        [page] = Path(folder).glob("report/*/report.html")
        return await photograph(page.as_uri(), "!!document.querySelector('svg')", REPORT_SIZE)


PHOTOGRAPHS: Final = {"page.png": live_page, "report.png": report}


def photographs() -> dict[str, bytes]:
    """Every photograph by the name of its file."""
    return {name: asyncio.run(take()) for name, take in PHOTOGRAPHS.items()}
