"""Prometheus itself scrapes a broker."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mesh import Broker, HttpListen
from tests.mesh.http.client import get
from tests.support.children import ends_with_tests
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


async def test_prometheus_scrapes_a_broker_by_its_password(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "prometheus.yml"
    async with Broker(
        name="alpha", listen="tcp://127.0.0.1:0", http=HttpListen("0", password="x y")
    ) as broker:
        target = broker.statistics()["http"].removeprefix("http://")
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: mangrove\n"
            f"  authorization: {{credentials: x y}}\n  static_configs: [{{targets: ['{target}']}}]\n"
        )
        flags = (
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        process = await asyncio.create_subprocess_exec(
            *ends_with_tests(["prometheus", *flags]), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            found = await first(f"http://127.0.0.1:{port}", "mangrove_broker_info")
        finally:
            process.terminate()
            await process.wait()
    assert found["metric"]["broker"] == "alpha" and found["value"][1] == "1"


async def first(url: str, query: str) -> dict[str, Any]:
    """The first series of a query, as soon as there is one."""
    async with asyncio.timeout(200):
        while True:
            try:
                answer = await get(url, f"/api/v1/query?query={quote(query)}")
                series = json.loads(answer.body)["data"]["result"]
            except (OSError, asyncio.IncompleteReadError, KeyError, ValueError):
                series = []
            if series:
                return dict(series[0])
            await asyncio.sleep(0.2)
