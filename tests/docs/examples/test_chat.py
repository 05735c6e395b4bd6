"""The lines of a person in a room reach the others there, at any broker, and no other room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from mesh import Client
from simulations import Mesh, World
from tests.docs.examples.programs import program

chatting = program("chat")


class Person:
    """Somebody who says what a test tells, and hears."""

    def __init__(self, mesh: Mesh, name: str, at: str, room: str = "lobby") -> None:
        self.heard: list[str] = []
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()

        async def live(client: Client) -> None:
            await chatting.chat(client, name, room, self._typed(), self.heard.append)
            self.heard.append("left")

        mesh.client(name, live, at=at)

    async def _typed(self) -> AsyncIterator[str]:
        while (line := await self.lines.get()) is not None:
            yield line


def test_everyone_in_the_room_except_the_speaker_gets_a_line_once() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        ada, bob = Person(mesh, "ada", "broker-1"), Person(mesh, "bob", "broker-2")
        cook = Person(mesh, "cook", "broker-2", room="kitchen")
        world.run_for(2)
        for line in ("hello", "", "a \x1b[31mred\x07 word"):
            ada.lines.put_nowait(line)
        world.run_for(2)
        assert bob.heard == ["subscribed: you are bob in lobby", "ada: hello", "ada: a [31mred word"]
        assert ada.heard == ["subscribed: you are ada in lobby"]
        assert cook.heard == ["subscribed: you are cook in kitchen"]
        bob.lines.put_nowait(None)
        world.run_for(1)
        assert bob.heard[-1] == "left"
        assert partial(chatting.chat)
