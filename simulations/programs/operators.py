"""An operator's commands to a mesh, by the real client, as a program of a simulated process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final

from mesh.broker.identity import format_id
from mesh.errors import MeshError
from mesh.wire.durable_frames import QUEUES
from simulations.programs.clients import opened
from simulations.world import Main, Process

TRIES: Final = 8
AGAIN_S: Final = 1.0
"""The error for a home that is not dead yet."""


def forgetter(homes: Sequence[int], transport: str = "tcp") -> Main:
    """Declare that these homes will not come back, like ``mesh queue forget``.

    It exposes the answers, each a JSON object or the sentence of an error.
    """

    async def main(process: Process) -> None:
        answers: list[str] = []
        async with contextlib.aclosing(await opened(process, transport)) as mesh:
            for home in homes:
                question = {"do": "forget", "home": format_id(home)}
                for _ in range(TRIES):
                    try:
                        said = (await mesh.request(QUEUES, json.dumps(question).encode())).decode()
                    except MeshError as error:
                        said = str(error)
                    if '"error"' not in said:
                        break
                    await asyncio.sleep(AGAIN_S)
                answers.append(said)
        process.exposed = answers
        await process.stopping.wait()

    return main
