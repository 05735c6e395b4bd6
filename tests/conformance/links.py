"""Two ends over a transport, of the engines that the case asks for.

The second engine, `protocols.nng`, has the same calls, options and errors as the first, so each test is
written once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import protocols
from protocols import SocketOptions
from tests.support.certificates import authority, config, local
from tests.support.ports import free_port
from tests.support.waiting import until

from .declaring import OURS, Case
from .script import Script

DEADLINE_S = 20.0
"""The limit for an expected event. A busy machine is late, and only a failure waits for all of it."""
OPTIONS = SocketOptions(
    reconnect_min_s=0.01,
    reconnect_max_s=0.05,
    recv_size_max=0,
    send_timeout_s=DEADLINE_S,
    recv_timeout_s=DEADLINE_S,
    survey_s=DEADLINE_S,
)
End = Any
"""A socket of either engine; their classes share no base."""


def engine_of(name: str) -> ModuleType:
    """The module that has an engine's sockets."""
    if name == OURS:
        return protocols
    from protocols import nng

    return nng


class Link:
    """The transport of a case, and its engines to make ends of."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.transport = case.transport
        self.folder = folder
        self.url = ""
        """The URL at which the last `meet` listens."""
        self.secure = case.transport in ("tls+tcp", "wss")
        self.options = OPTIONS
        if self.secure:
            self.options = replace(OPTIONS, tls=config(local(), server_name="localhost"))
        self._count = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._stack.aclose()

    # --- addresses

    def address(self) -> str:
        """A new URL to listen at."""
        self._count += 1
        match self.transport:
            case "inproc":
                return f"inproc://{self.folder.name}-{self._count}"
            case "ipc":
                return f"ipc://{self.folder / str(self._count)}"
            case "abstract":
                return f"abstract://mangrove-{free_port()}-{self._count}"
            case "ws" | "wss":
                return f"{self.transport}://127.0.0.1:{free_port()}/path"
            case _:
                return f"{self.transport}://127.0.0.1:{free_port()}"

    # --- ends

    def first(self, kind: str, **options: Any) -> End:
        """An end of the case's first engine; it lives as long as the link."""
        return self._make(self.case.pair[0], kind, options)

    def second(self, kind: str, **options: Any) -> End:
        return self._make(self.case.pair[-1], kind, options)

    def ours(self, kind: str, **options: Any) -> Any:
        """One of our sockets, whatever the case says."""
        return self._make(OURS, kind, options)

    def _make(self, engine: str, kind: str, options: dict[str, Any]) -> End:
        rest = {name: options.pop(name) for name in ("raw", "topics", "receiver", "admit") if name in options}
        raw = rest.pop("raw", False)
        made = getattr(protocols if raw else engine_of(engine), kind)
        make: Any = partial(protocols.RawSocket, made) if raw else made
        end: End = make(options=replace(self.options, **options), **rest)
        self._stack.push_async_callback(end.aclose)
        return end

    async def meet(self, listening: End, *dialling: End) -> None:
        """Let one listen and connect the others to it, in this order."""
        self.url = (await listening.listen(self.address())).url
        await self.join(listening, *dialling)

    async def join(self, listening: End, *dialling: End) -> None:
        """Connect more ends to the listener; return when both sides see each other."""
        for end in dialling:
            before, there = len(listening.pipes), len(end.pipes)
            end.dial(self.url)
            await until(
                lambda before=before, there=there, end=end: (
                    len(listening.pipes) > before and len(end.pipes) > there
                )
            )

    @asynccontextmanager
    async def pair(
        self,
        first: str,
        second: str,
        *,
        a: dict[str, Any] | None = None,
        b: dict[str, Any] | None = None,
    ) -> AsyncIterator[tuple[End, End]]:
        """Two connected ends; ``a`` and ``b`` are their options."""
        async with self:
            one, two = self.first(first, **(a or {})), self.second(second, **(b or {}))
            await self.meet(one, two)
            yield one, two

    @asynccontextmanager
    async def scripted(self, kind: str, number: int, **options: Any) -> AsyncIterator[tuple[End, Script]]:
        """An end of the first engine that listens, and a scripted peer with this protocol number."""
        async with self:
            end = self.first(kind, **options)
            self.url = (await end.listen(self.address())).url
            yield end, await self.script(number, end)

    async def script(self, number: int, listening: End) -> Script:
        """One more scripted peer of an end that listens."""
        before = len(listening.pipes)
        script = await self.dial_script()
        await script.greet(number)
        await until(lambda: len(listening.pipes) > before)
        return script

    async def dial_script(self) -> Script:
        """A connection on which nothing has been sent yet (TLS is up)."""
        context = None
        if self.secure:
            context = ssl.create_default_context(cadata=authority().pem)
            context.check_hostname = False
        script = await Script.dial(self.url, context)
        self._stack.push_async_callback(script.aclose)
        return script


async def soon(waiting: Any) -> asyncio.Task[Any]:
    """A task of the coroutine, which has begun to wait."""
    task = asyncio.ensure_future(waiting)
    for _ in range(5):
        await asyncio.sleep(0)
    return task
