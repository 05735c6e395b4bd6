"""States of a mesh as the page gets them: real brokers in a simulated world, seen from one of them.

``python -m tests.mesh.http.scenes FOLDER`` makes pictures of all of them, wide and narrow, light and dark.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mesh import Client
from mesh.http.guard import Guard
from mesh.http.overview import Overview, event
from mesh.http.server import HttpServer
from mesh.http.site import Site
from mesh.http.source import Answered, Figures
from mesh.listen import HttpListen
from simulations import Mesh, World
from tests.support.chromium import Browser

LOOK_S: Final = 2.0
WIDE, NARROW = (1280, 800), (390, 780)


@dataclass(frozen=True)
class Scene:
    """The first frames of a page: the earlier samples, and one frame."""

    past: bytes
    frame: bytes


def _play(
    brokers: int, looks: int, act: Callable[[Mesh, World], None], acts_at: int, load: int = 40
) -> Scene:
    with World(seed=7) as world:
        mesh = Mesh(world, brokers=brokers)

        async def publish(client: Client) -> None:
            while True:
                for topic in ("news.uk", "weather.oslo"):
                    await client.publish_many(topic, [b"x" * 100] * load)
                await asyncio.sleep(0.5)

        async def read(client: Client) -> None:
            async with client.subscribe("#") as everything:
                async for _ in everything:
                    pass

        mesh.client("publisher", publish, at="broker-1")
        mesh.client("reader", read, at="broker-3")
        mesh.client("other", read, at="broker-2")
        overview = Overview()
        frame = b""
        for look in range(looks):
            if look == acts_at:
                act(mesh, world)
            world.run_for(LOOK_S)
            bodies, silent = _heard(mesh, world)
            frame = overview.document(bodies, silent, now=world.now_s, wall_s=_wall(world), interval_s=LOOK_S)
        return Scene(overview.past(), frame)


def _wall(world: World) -> float:
    process = world.node("broker-1").process
    assert process is not None
    return process.wall_time()


def _heard(mesh: Mesh, world: World) -> tuple[list[bytes], list[str]]:
    """The statuses of the brokers that the first one is linked to, and the names of the other living ones."""
    first = mesh.broker("broker-1")
    node = first._node
    assert node is not None
    bodies = [node.report.status()]
    linked = set(first.inspect().linked)
    silent = []
    for member in first.inspect().members[1:]:
        found = world.node(member.name).exposed
        if member.id in linked and found is not None and not world.node(member.name).process.loop.paused:  # type: ignore[union-attr]
            bodies.append(found._node.report.status())  # type: ignore[attr-defined]
        elif member.state in ("alive", "suspect"):
            silent.append(member.name)
    return bodies, silent


def calm() -> Scene:
    return _play(5, 40, lambda mesh, world: None, 0)


def death() -> Scene:
    return _play(5, 40, lambda mesh, world: world.inject("crash", ["broker-4"]), 25)


def partition() -> Scene:
    def cut(mesh: Mesh, world: World) -> None:
        world.inject("partition", ["broker-4", "broker-5"], ["broker-1", "broker-2", "broker-3"])

    return _play(5, 40, cut, 28)


def triangle() -> Scene:
    """Two sides that do not reach each other, and one broker that reaches both."""

    def cut(mesh: Mesh, world: World) -> None:
        world.inject("partition", ["broker-4", "broker-5"], ["broker-2", "broker-3"])

    return _play(5, 40, cut, 28)


def overload() -> Scene:
    """A reader that has stopped, and more load than broker 3 can take."""

    def flood(mesh: Mesh, world: World) -> None:
        async def publish(client: Client) -> None:
            while True:
                await client.publish_many("news.flood", [b"x" * 5_000] * 200, level="sent")
                await asyncio.sleep(0.2)

        async def stop(client: Client) -> None:
            async with client.subscribe("news.#", window=10):
                await asyncio.Event().wait()

        mesh.client("flooder", publish, at="broker-1")
        mesh.client("stopped", stop, at="broker-3")
        process = world.node("broker-3").process
        assert process is not None
        process.loop.slowness = 3000.0

    return _play(4, 45, flood, 15)


def forty() -> Scene:
    def some(mesh: Mesh, world: World) -> None:
        world.inject("crash", ["broker-17"])
        world.inject("partition", ["broker-8"], ["broker-30"])

    return _play(40, 14, some, 6, load=10)


SCENES: Final[dict[str, Callable[[], Scene]]] = {
    "calm": calm,
    "death": death,
    "partition": partition,
    "triangle": triangle,
    "overload": overload,
    "forty": forty,
}


class _Still:
    """A broker of which only the page is needed."""

    name, state, waits_for = "broker-1", "ready", ()

    def status(self) -> bytes:
        return b"{}"

    def figures(self) -> Figures:
        raise NotImplementedError

    def ask_all(self, deadline_s: float, bytes_max: int, then: Answered) -> None:
        raise NotImplementedError


class Stage:
    """Viewers that see a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.pushes: dict[Callable[[bytes], None], None] = {}
        self.server: HttpServer | None = None

    def add(self, push: Callable[[bytes], None]) -> bytes:
        self.pushes[push] = None
        return event("past", self.scene.past) + event("mesh", self.scene.frame)

    def remove(self, push: Callable[[bytes], None]) -> None:
        del self.pushes[push]

    def show(self, scene: Scene) -> None:
        """Show a scene to the open pages."""
        self.scene = scene
        for push in self.pushes:
            push(event("mesh", scene.frame))


@asynccontextmanager
async def staged(scene: Scene) -> AsyncIterator[tuple[Stage, str]]:
    """Serve the page with a scene; also yields the address."""
    stage = Stage(scene)
    listen = HttpListen("0")
    site = Site(_Still(), Guard(listen, "here"), answers=dict, clock=asyncio.get_running_loop().time)
    server = stage.server = HttpServer(listen, site.answer, stage)
    await server.open()
    try:
        yield stage, f"{server.url}/"
    finally:
        server.aclose()


async def _pictures(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with Browser.run() as browser:
        for name in names:
            scene = SCENES[name]()
            (folder / f"{name}.json").write_bytes(scene.frame)
            async with staged(scene) as (_, url):
                for kind, size, dark in (
                    ("wide", WIDE, False),
                    ("narrow", NARROW, False),
                    ("dark", WIDE, True),
                ):
                    page: Any = await browser.page(*size, dark=dark)
                    await page.go(url)
                    await page.until("!!document.querySelector('#topology .node')")
                    (folder / f"{name}-{kind}.png").write_bytes(await page.picture())
            print(name, browser.errors)


if __name__ == "__main__":
    asyncio.run(_pictures(Path(sys.argv[1]), sys.argv[2:] or list(SCENES)))
