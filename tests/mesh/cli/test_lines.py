"""Standard input as batches of lines."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mesh.cli.exits import ExitCode, explain
from mesh.cli.lines import LINE_MAX, LineReader, LineTooLong


async def gather(reader: LineReader) -> list[bytes]:
    return [line async for batch in reader for line in batch]


async def test_a_regular_file_is_read_to_its_end_without_a_last_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\nthree")
    with path.open("rb") as file:
        assert await gather(LineReader(file.fileno())) == [b"one", b"", b"three"]


async def test_a_pipe_hands_over_lines_as_they_come_and_joins_their_parts() -> None:
    read, write = os.pipe()
    reader = LineReader(read)
    os.write(write, b"one\ntw")
    assert await anext(reader) == [b"one"]
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    assert not waiting.done(), "half a line is no line"
    os.write(write, b"o\n")
    assert await waiting == [b"two"]
    os.close(write)
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    os.close(read)


async def test_a_cancelled_read_loses_nothing() -> None:
    read, write = os.pipe()
    reader = LineReader(read)
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    os.write(write, b"kept\n")
    assert await anext(reader) == [b"kept"]
    os.close(write)
    os.close(read)


async def test_dev_null_is_empty() -> None:
    with open(os.devnull, "rb") as file:
        assert await gather(LineReader(file.fileno())) == []


async def test_a_device_that_is_always_ready_is_read() -> None:
    """`mesh pub a.b - < /dev/zero` ended with "Operation not permitted": the loop cannot watch it."""
    with open("/dev/zero", "rb") as file, pytest.raises(LineTooLong, match="a line has more than"):
        await gather(LineReader(file.fileno()))


async def test_an_unreadable_input_is_named(tmp_path: Path) -> None:
    """The error of a folder did not say what is a directory."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as failed:
            await gather(LineReader(descriptor))
    finally:
        os.close(descriptor)
    assert explain(failed.value) == (ExitCode.FAILED, "standard input: Is a directory")


async def test_an_endless_line_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.write_bytes(b"x" * (LINE_MAX + 1))
    with path.open("rb") as file, pytest.raises(LineTooLong, match="--file"):
        await gather(LineReader(file.fileno()))
