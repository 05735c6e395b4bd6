"""A headless Chromium for tests of pages, spoken to by its debugging pipe.

Messages are JSON, each ended by a zero byte (Chrome DevTools Protocol).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

PROGRAM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needed: Final = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed")
LIMIT_S: Final = 120.0
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    async def _do(self, method: str, **parameters: Any) -> Any:
        return await self._browser.do(method, self._session, **parameters)

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        await self._do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._do("Emulation.setEmulatedMedia", features=[scheme])

    async def go(self, url: str) -> None:
        await self._do("Page.enable")
        await self._do("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = await self._do(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        loop = asyncio.get_running_loop()
        end = loop.time() + LIMIT_S
        while True:
            with contextlib.suppress(AssertionError):  # the page is between two documents
                if value := await self.evaluate(expression):
                    return value
            if loop.time() > end:
                text = await self.evaluate("document.body.innerText")
                raise AssertionError(f"never became true: {expression}\nthe page says: {text}")
            await asyncio.sleep(0.05)

    async def picture(self, height_max: float = math.inf) -> bytes:
        """The page as PNG, from its top."""
        size = (await self._do("Page.getLayoutMetrics"))["cssContentSize"]
        height = min(size["height"], height_max)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        taken = await self._do("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])


class Browser:
    """A browser that runs; what pages log as errors is in ``errors``."""

    def __init__(self, reader: asyncio.StreamReader, writer: Any) -> None:
        self.errors: list[str] = []
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def run(cls) -> AsyncIterator[Browser]:
        """Start one, in a folder of its own."""
        assert PROGRAM is not None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            to_child, ours_out = os.pipe()
            ours_in, from_child = os.pipe()
            command = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
            flags = (*FLAGS, f"--user-data-dir={folder}", "about:blank")
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", command, PROGRAM, *flags,
                pass_fds=(to_child, from_child),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "HOME": folder},
            )  # fmt: skip
            os.close(to_child)
            os.close(from_child)
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(limit=64 << 20)
            incoming, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
            )
            outgoing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours_out, "wb"))
            browser = cls(reader, outgoing)
            reading = asyncio.create_task(browser._read())
            try:
                yield browser
            finally:
                reading.cancel()
                await asyncio.wait([reading])
                outgoing.close()
                incoming.close()
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        target = await self.do("Target.createTarget", url="about:blank")
        attached = await self.do("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        await page._do("Runtime.enable")
        await page._do("Log.enable")
        await page.resize(width, height, dark=dark)
        return page

    async def do(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps(message).encode() + b"\0")
        return await asyncio.wait_for(answer, LIMIT_S)

    async def _read(self) -> None:
        while True:
            message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            if "id" in message:
                asked = self._asked.pop(message["id"], None)
                if asked is not None and not asked.done():
                    if "error" in message:
                        asked.set_exception(AssertionError(message["error"]))
                    else:
                        asked.set_result(message["result"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
