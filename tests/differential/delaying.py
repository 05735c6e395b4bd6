"""A TCP proxy that forwards everything so many seconds later, in order: latency where there is no netem.

python -m tests.differential.delaying LISTEN_HOST TARGET_HOST PORT SECONDS
"""

from __future__ import annotations

import asyncio
import sys

CHUNK_BYTES = 1 << 16


async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Forward everything with the delay, including the end."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        data = b"more"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except ConnectionError:
                data = b""
            waiting.put_nowait((loop.time() + delay_s, data))

    reading = asyncio.create_task(read())
    while True:
        due, data = await waiting.get()
        await asyncio.sleep(due - loop.time())
        if not data:
            break
        writer.write(data)
    await reading
    writer.close()


async def serve(listen: str, target: str, port: int, delay_s: float) -> None:
    """Serve until the process is killed."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(target, port)
        async with asyncio.TaskGroup() as group:
            group.create_task(hand_on(reader, there[1], delay_s))
            group.create_task(hand_on(there[0], writer, delay_s))

    async with await asyncio.start_server(accepted, listen, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    _, host, towards, number, seconds = sys.argv
    asyncio.run(serve(host, towards, int(number), float(seconds)))
