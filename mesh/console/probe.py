"""Questions to a mesh: the status of the connected broker, and surveys of all brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mesh import Client
from mesh.errors import MeshError
from mesh.picture import Picture, compose
from mesh.printable import printable, printable_document

STATUS_TOPIC = "$sys.status"
LOOK_TOPIC = "$sys.look"


@dataclass(frozen=True, slots=True)
class Look:
    """The statuses of one look, the connected broker's first, and the names of those that did not answer."""

    statuses: tuple[dict[str, Any], ...]
    silent: tuple[str, ...] = ()
    unreadable: int = field(default=0)

    def picture(self, before: Look | None = None) -> Picture:
        return compose(self.statuses, before.statuses if before is not None else (), self.silent)


async def look(client: Client, deadline_s: float, *, everyone: bool = True) -> Look:
    """Ask the connected broker, then all. If the survey fails, the picture shows the connected broker's view.

    Raises:
        MeshError, TimeoutError: the connected broker did not answer.
    """
    async with asyncio.timeout(deadline_s):
        connected = await client.status()
    if not everyone:
        return Look((connected,))
    try:
        result = await client.survey(STATUS_TOPIC, b"", deadline=deadline_s)
    except (MeshError, TimeoutError):
        return Look((connected,), tuple(_others(connected)))
    statuses, unreadable = _decoded([answer.body for answer in result.answers])
    others = [status for status in statuses if status.get("id") != connected.get("id")]
    return Look((connected, *others), tuple(result.missing), unreadable)


@dataclass(frozen=True, slots=True)
class Answers:
    """The brokers' answers to a question of `mesh.dataplane.looking`, by name. All text is printable.
    ``silent`` names brokers that did not answer."""

    documents: tuple[dict[str, Any], ...]
    silent: tuple[str, ...]


async def ask_all(client: Client, question: dict[str, Any], deadline_s: float) -> Answers:
    """Ask all brokers the same. Answers that are none are left out.

    Raises:
        MeshError, TimeoutError: the connected broker did not answer, or all refuse to.
    """
    result = await client.survey(LOOK_TOPIC, json.dumps(question).encode(), deadline=deadline_s)
    documents, _ = _decoded([answer.body for answer in result.answers])
    documents = [printable_document(document) for document in documents if "error" not in document]
    if not documents and result.refused:
        raise MeshError(f"brokers refuse the question: {result.refused[0]}")
    documents.sort(key=lambda document: str(document.get("broker")))
    return Answers(tuple(documents), tuple(map(printable, result.missing)))


def _decoded(bodies: Sequence[bytes]) -> tuple[list[dict[str, Any]], int]:
    """The statuses among the answers, and the number of other answers: any client may answer a survey."""
    statuses = []
    for body in bodies:
        try:
            status = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(status, dict) and "id" in status:
            statuses.append(status)
    return statuses, len(bodies) - len(statuses)


def _others(connected: dict[str, Any]) -> list[str]:
    members = connected.get("members")
    live = [member for member in members if not member.get("self")] if isinstance(members, list) else []
    return [str(member.get("name")) for member in live if member.get("state") in ("alive", "suspect")]
