"""Lines of standard input, in batches, without a thread.

A thread that waits in ``read`` would keep Ctrl-C from ending the program until the next line comes. The event
loop watches pipes and terminals. It cannot watch files and ``/dev/null``, but these make no reader wait.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Final, Self

CHUNK: Final = 65536
LINE_MAX: Final = 1 << 20
"""Bytes of a line; a longer one is taken for a mistake."""


class LineTooLong(ValueError):
    """A line is longer than a message may be."""


class LineReader:
    """Iterates over batches: the lines of one read each, without their line feeds, in order.

    A last line without a line feed counts, too. Cancelling loses nothing that was not yet handed out.

    Raises:
        LineTooLong: a line has more than `LINE_MAX` bytes.
        OSError: it cannot be read, as a folder; its ``filename`` is "standard input".
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._ended = False
        self._watched = not stat.S_ISREG(os.fstat(descriptor).st_mode)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._ended:
            chunk = await self._read()
            *lines, rest = (self._rest + chunk).split(b"\n")
            self._ended = not chunk
            self._rest = rest
            if self._ended and rest:
                lines.append(rest)
            if any(len(line) > LINE_MAX for line in (*lines, rest)):
                raise LineTooLong(f"a line has more than {LINE_MAX} bytes; publish it with --file")
            if lines:
                return lines
        raise StopAsyncIteration

    async def _read(self) -> bytes:
        if self._watched:
            await self._readable()
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard input") from error

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # epoll refuses files, which are always ready
            self._watched = False
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
