"""A web program with a broker inside is a member of the mesh: it publishes, streams and shows members."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mesh import Broker, Client
from tests.docs.examples.programs import program

web = program("web_broker")
pytestmark = pytest.mark.virtual
MESH = "tcp://127.0.0.1:7770"


class Call:
    """One request to the program, by ASGI."""

    def __init__(self, method: str, path: str, body: bytes = b"") -> None:
        self.status = 0
        self.body = b""
        self.gone = asyncio.Event()
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
            "server": ("127.0.0.1", 8000),
        }

    async def run(self) -> Call:
        await web.app(self._scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        if self._requests:
            return self._requests.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


@pytest.fixture(autouse=True)
def joins_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESH_NAME", "web")
    monkeypatch.setenv("MESH_JOIN", MESH)


async def test_published_messages_reach_the_mesh_and_messages_of_others_are_streamed() -> None:
    async with Broker(name="alpha", listen=MESH), web.lifespan(web.app), Client(MESH) as client:
        while len(web.app.state.broker.members()) < 2:
            await asyncio.sleep(0.1)
        members = await Call("GET", "/members").run()
        assert {each["name"] for each in json.loads(members.body)} == {"alpha", "web"}
        async with client.subscribe("news.#") as news:
            published = await Call("POST", "/publish/news.uk", b"hello").run()
            assert json.loads(published.body) == {"level": "accepted"}
            assert (await anext(news)).body == b"hello"
        stream = Call("GET", "/events/news.#")
        streaming = asyncio.create_task(stream.run())
        while b"subscribed" not in stream.body:
            await asyncio.sleep(0.1)
        await client.publish("news.uk", b"hello again")
        while b"data:" not in stream.body:
            await asyncio.sleep(0.1)
        assert b'data: {"topic": "news.uk", "body": "hello again"}' in stream.body
        stream.gone.set()  # the browser goes
        await streaming


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/publish/news..uk", b"", 400),
        ("GET", "/events/a.#.b.#..", b"", 400),
        ("POST", "/publish/news.uk", b"x" * (web.BODY_MAX + 1), 413),
    ],
)
async def test_wrong_requests_get_an_error_with_the_reason(
    method: str, path: str, body: bytes, status: int
) -> None:
    async with Broker(name="alpha", listen=MESH), web.lifespan(web.app):
        assert (await Call(method, path, body).run()).status == status
