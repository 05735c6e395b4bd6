"""Asking in one call, and answering with a function: over contexts of one socket, of either engine."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

from protocols.channel import Body, as_bytes, check_handler
from protocols.errors import Closed, Timeout
from protocols.options import DEFAULT, SocketOptions, TimeLimit, check_integer, request_limits
from protocols.waiting import deadline_of

Handler = Callable[[bytes], Body | Awaitable[Body]]
"""Takes a question, returns or awaits its answer."""


class Conversing(Protocol):
    """The methods of a context that this module uses."""

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None: ...

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes: ...

    async def aclose(self) -> None: ...


async def request(context: Conversing, body: Body, timeout: TimeLimit, options: SocketOptions) -> bytes:
    """Ask in this context, and return the answer. Raises the errors of `send` and `recv`."""
    try:
        room_s, limit_s = request_limits(timeout, options)
        deadline = deadline_of(limit_s)
        await context.send(body, room_s)
        left_s = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
        return await context.recv(left_s)
    except Timeout as error:
        raise Timeout(f"no answer in time: {error}") from error


async def serve(new_context: Callable[[], Conversing], handler: Handler, concurrency: int) -> None:
    """Answer questions, ``concurrency`` at a time, until the socket closes.

    Raises `TypeError`, `ValueError`.
    """
    check_handler(handler)
    check_integer("concurrency", concurrency, 1)
    contexts = [new_context() for _ in range(concurrency)]
    async with asyncio.TaskGroup() as group:
        for number, context in enumerate(contexts):
            group.create_task(answer_each(context, handler), name=f"serve {number}")


async def answer_each(context: Conversing, handler: Handler) -> None:
    try:
        while True:
            answer = await answer_of(handler, await context.recv(None))
            if answer is not None:
                with contextlib.suppress(Timeout):  # the peer reads no answers: take the next question
                    await context.send(answer)
    except Closed:
        return
    finally:
        await context.aclose()


async def answer_of(handler: Handler, question: bytes) -> bytes | None:
    """Return the handler's answer. If the handler failed, tell the loop's exception handler and return
    None.
    """
    try:
        answer = handler(question)
        return as_bytes(await answer if inspect.isawaitable(answer) else answer)
    except Exception as error:  # user code; the next question still deserves an answer
        report = {"message": f"the handler {handler!r} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(report)
        return None
