"""Moves a client from a broker that is about to leave to another one, while its session goes on.

A `Landing` decides what is said there. The connection has two pipes meanwhile, and knows which is whose.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mesh.clients.finding import dialable
from mesh.clients.landing import Landing
from mesh.clients.moving_conversation import MovingConversation
from mesh.errors import PeerError
from protocols import Pipe, SPError

if TYPE_CHECKING:
    from mesh.clients.connection import ClientConnection

PAUSE_S = 0.1
"""Pause after a round of addresses in vain, in seconds, for as long as the broker stays."""


class Mover:
    """One move: finds another broker and drives the landing there. Made at GOAWAY; `aclose` ends it."""

    def __init__(self, connection: ClientConnection, conversation: MovingConversation) -> None:
        self._connection = connection
        self.conversation = conversation
        self.landing: Landing | None = None
        self.pipe: Pipe | None = None
        """The landing's pipe."""
        self.task = connection.loop.create_task(self._run(), name=f"mesh client leaves {connection.url}")

    async def _run(self) -> None:
        """Try brokers until a landing is ready. The end of the current session ends this, too."""
        connection = self._connection
        addresses = connection.addresses
        self.conversation.ping()  # the broker waits for a client without keepalive only if it hears it
        connection.writer.hand_over()
        while True:
            addresses.told(dialable(self.conversation.told))
            for url in addresses.others():
                if await self._land_at(url):
                    addresses.url = url
                    connection.may_land()
                    return
            await asyncio.sleep(PAUSE_S)

    async def _land_at(self, url: str) -> bool:
        connection = self._connection
        landing = self.landing = self.conversation.new_landing()
        try:
            async with asyncio.timeout(connection.connect_timeout_s):
                await connection.dial(url)
                while not landing.ready and not landing.over and self.pipe is not None:
                    await connection.wait(landing, None)
        except (TimeoutError, SPError, OSError):
            pass
        if landing.ready and self.pipe is not None:
            return True
        self._drop("it was of no use")
        return False

    def _drop(self, why: str) -> None:
        pipe, self.pipe, self.landing = self.pipe, None, None
        self.conversation.landing = None
        if pipe is not None:
            pipe.close(why)

    def attached(self, pipe: Pipe) -> None:
        """Use this pipe for the landing."""
        self.pipe = pipe
        self.hand_over()

    def detached(self) -> None:
        """Note that the landing's pipe is gone."""
        self.pipe = None
        if self.landing is not None:
            self.landing.over = "its connection was lost"
            self.landing.wake()

    def received(self, frames: list[bytes]) -> None:
        """Read frames of the landing's connection."""
        assert self.landing is not None and self.pipe is not None, "it has a pipe"
        try:
            self.landing.received(frames)
        except PeerError as error:
            self.pipe.close(str(error))
            return
        self.hand_over()

    def hand_over(self) -> None:
        """Hand the landing's frames to its pipe."""
        if self.pipe is not None and self.landing is not None:
            self.pipe.send_many(self.landing.take_frames())

    def tick(self) -> None:
        """Run once a keepalive interval."""
        if self.landing is not None:
            self.landing.ping()
            self.hand_over()

    def close(self) -> None:
        """End the landing: it is not needed any more."""
        self.task.cancel()
        self._drop("the client does not move")

    def take(self) -> tuple[Landing, Pipe]:
        """Hand over the landing, which is ready, and its pipe; both belong to the caller now."""
        landing, pipe = self.landing, self.pipe
        assert landing is not None and pipe is not None and landing.ready, "there is one"
        self.landing = self.pipe = None
        self.conversation.landing = None
        self.task.cancel()
        return landing, pipe

    @property
    def is_ready(self) -> bool:
        return self.landing is not None and self.pipe is not None and self.landing.ready
