"""A chat: what you type goes to everybody in the room, whichever broker each is connected to.

    python chat.py ada                     # in one terminal
    python chat.py bob --room kitchen      # another room

A room is a topic, so there is nothing to create. Messages are not stored: you hear what is said while you
are there. Ctrl-C or Ctrl-D leaves the room.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable

from mesh import Client, MeshError, Subscription, TopicError

Say = Callable[[str], None]


def show_line(line: str) -> None:
    print(line, flush=True)  # at once, also into a pipe


async def chat(client: Client, name: str, room: str, lines: AsyncIterator[str], say: Say = show_line) -> None:
    """Publish each line, and show what others say, until there are no more lines."""
    async with client.subscribe(f"chat.{room}") as heard:
        # On return of the subscription every broker knows of it: nothing said from now on is missed.
        say(f"subscribed: you are {name} in {room}")
        showing = asyncio.create_task(show(heard, name, say))
        try:
            async for line in lines:
                if line:
                    headers = {"name": name}
                    await client.publish(f"chat.{room}", line.encode(), headers=headers)
        finally:
            showing.cancel()


async def show(heard: Subscription, name: str, say: Say) -> None:
    """One line for each message of others; our own come back, too."""
    async for message in heard:
        speaker = str(message.headers.get("name", "somebody"))
        if speaker != name:
            line = f"{speaker}: {message.body.decode(errors='replace')}"
            say("".join(sign for sign in line if sign.isprintable()))  # others write to our terminal here


async def typed() -> AsyncIterator[str]:
    """Lines of standard input. A thread reads them, since a terminal cannot be awaited."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(waiting.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(waiting.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()  # daemon: it does not keep the program from ending
    while (line := await waiting.get()) is not None:
        yield line


async def main(url: str | None, name: str, room: str) -> None:
    async with Client(url, name=name) as client:
        await chat(client, name, room, typed())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A chat.")
    parser.add_argument("name")
    parser.add_argument("--room", default="lobby", help="letters and digits, with dots between parts")
    parser.add_argument("--url", help="the broker; by default the local one")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.url, given.name, given.room))
    except (MeshError, TopicError) as error:
        sys.exit(f"chat: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
