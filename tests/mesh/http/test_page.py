"""The page in a real browser: how it shows states of a mesh, and brokers that are killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

import pytest

from tests.mesh.http.scenes import NARROW, SCENES, WIDE, Scene, staged
from tests.support import chromium
from tests.support.children import ends_with_tests
from tests.support.chromium import Browser, Page
from tests.support.ports import free_port

pytestmark = [chromium.needed, pytest.mark.long]

OVERLAPS = """(() => {
  const labels = [...document.querySelectorAll('#topology .node > text')];
  const boxes = labels.filter((each) => !each.hasAttribute('transform'))
    .map((each) => [each.textContent, each.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([name, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
    const apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    if (!apart) found.push(`${name} ${other}`);
  }));
  const drawing = document.getElementById('topology').getBoundingClientRect();
  for (const [name, box] of boxes) {
    if (box.left < drawing.left - 1 || box.right > drawing.right + 1) found.push(name);
  }
  return found;
})()"""
ROWS = "document.querySelectorAll('#brokers tr.main')"
READY = f"!!document.querySelector('#topology .node') && {ROWS}.length > 0"


QUEUE = {
    "name": "orders.incoming.eu-west",
    "home": "broker-2",
    "waiting": 12_345,
    "oldest_s": 730.2,
    "consumers": 0,
    "in_flight": 12_000,
    "redelivered": 4_000,
    "buried": 2_000,
}


@cache
def scene(name: str) -> Scene:
    return SCENES[name]()


def text(page: Page, place: str) -> Any:
    return page.evaluate(f"document.querySelector({json.dumps(place)}).innerText")


@pytest.mark.parametrize("name", list(SCENES))
async def test_a_state_of_the_mesh_is_shown_whole_at_both_widths(name: str) -> None:
    shown = scene(name)
    frame = json.loads(shown.frame)
    frame["queues"] = [QUEUE, QUEUE | {"name": "mail"}]
    frame["drops"], frame["refused"] = {"slow_stock_subscriber": 123_456}, {"websocket_origin": 3}
    shown = Scene(shown.past, json.dumps(frame).encode())
    async with Browser.run() as browser, staged(shown) as (_, url):
        for size in (WIDE, (1120, 760), (760, 800), NARROW, (320, 600)):
            page = await browser.page(*size)
            await page.go(url)
            await page.until(READY)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size[0], "nothing is cut off or needs to be scrolled sideways"
            assert await page.evaluate(OVERLAPS) == []
        reasons = await text(page, "#reasons")
        assert "slow stock subscriber" in reasons and "123k" in reasons and "refused" in reasons
        rows = await page.evaluate("document.querySelectorAll('#brokers tr.main').length")
        assert rows == len(frame["brokers"])
        trouble = await page.evaluate("[...document.querySelectorAll('#trouble li')].map((e) => e.innerText)")
        assert trouble == [each["text"] for each in frame["trouble"]]
        assert not browser.errors


async def test_long_names_make_no_table_wider_than_its_card() -> None:
    """Between 1 100 and 1 250 pixels, and with long names up to 1 400, the table of brokers left its card."""
    frame = json.loads(scene("calm").frame)
    for number, broker in enumerate(frame["brokers"]):
        broker["name"] = f"broker-of-a-far-away-data-centre-{number}"
    async with (
        Browser.run() as browser,
        staged(Scene(scene("calm").past, json.dumps(frame).encode())) as (_, url),
    ):
        for width in (1120, 1200, 1280, 1400, 1700):
            page = await browser.page(width, 800)
            await page.go(url)
            await page.until(READY)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            table = await page.evaluate("document.querySelector('#brokers').scrollWidth")
            assert table <= await page.evaluate("document.querySelector('#members').clientWidth"), width


async def test_words_of_others_are_text_and_never_markup() -> None:
    wild = "<img src=x onerror=alert(1)>"
    frame = json.loads(scene("calm").frame)
    frame["mesh"] = frame["brokers"][1]["name"] = frame["brokers"][1]["url"] = wild
    frame["news"][0]["text"] = frame["news"][0]["state"] = wild
    frame["trouble"] = [{"level": "bad", "text": wild}]
    frame["queues"] = [{"name": wild, "home": wild, "waiting": 1}]
    async with Browser.run() as browser:
        async with staged(Scene(scene("calm").past, json.dumps(frame).encode())) as (_, url):
            page = await browser.page()
            await page.go(url)
            await page.until(READY)
            await page.evaluate("document.querySelectorAll('#brokers tr.main')[1].click()")
            assert await page.evaluate("document.querySelectorAll('img').length") == 0
            assert await text(page, "#mesh") == wild
            assert not browser.errors, "the policy of the page had nothing to stop"


async def test_pages_of_other_sites_get_nothing_out_of_a_broker() -> None:
    """The requests that a browser really makes: a fetch, a stream, an image and a script of a page from
    elsewhere."""
    async with Browser.run() as browser, staged(scene("calm")) as (stage, url):
        page = await browser.page()  # about:blank has no origin
        assert stage.server is not None
        answers = stage.server.answers
        assert await page.evaluate(f"fetch('{url}livez').then(() => 'read', () => 'failed')") == "failed"
        await page.evaluate(f"fetch('{url}live', {{mode: 'no-cors'}}).then(() => 1, () => 1)")
        for making in (
            f"const it = new EventSource('{url}live'); it.onerror = done",
            f"const it = new Image(); it.onerror = done; it.src = '{url}live'",
            f"const it = document.createElement('script'); it.onerror = done; it.src = '{url}live';"
            " document.documentElement.append(it)",
        ):
            await page.evaluate(f"new Promise((done) => {{ {making} }}).then(() => 1)")
        assert set(answers) <= {403, 406} and sum(answers.values()) == 5, answers
        assert not stage.pushes
        await page.go(url)
        await page.until(READY)


async def test_a_broker_has_its_details_and_keeps_them_open() -> None:
    async with Browser.run() as browser, staged(scene("death")) as (stage, url):
        page = await browser.page(*NARROW)
        await page.go(url)
        await page.until(READY)
        await page.evaluate("document.querySelector('#brokers tr.main').click()")
        said = await text(page, "#brokers tr.details")
        assert "dead" in said and "state, last" in said and "missed" in said
        frame = json.loads(scene("death").frame)
        for number in range(3):
            frame["at"] += 2
            stage.show(Scene(b"", json.dumps(frame).encode()))
            await page.until(
                f"document.querySelectorAll('#brokers tr.details').length === 1 && {number} >= 0"
            )
        await page.evaluate("document.querySelector('#brokers tr.main').click()")
        assert await page.evaluate("document.querySelectorAll('#brokers tr.details').length") == 0


async def test_a_page_that_is_open_for_long_keeps_a_bounded_past() -> None:
    """A day has forty thousand frames; a page keeps as much after three hundred."""
    async with Browser.run() as browser, staged(scene("calm")) as (stage, url):
        page = await browser.page()
        await page.go(url)
        await page.until(READY)
        count = "document.querySelectorAll('*').length"
        frame = json.loads(scene("calm").frame)
        seen = []
        for number in range(1, 301):
            frame["at"] += 2
            frame["brokers"][0]["in_s"] = number
            frame["news"] = [{**each, "text": f"{number} {each['text']}"} for each in scene_news()]
            stage.show(Scene(b"", json.dumps(frame).encode()))
            if number % 100 == 0:
                await page.until(f"{ROWS}[0].cells[2].innerText === '{number}'")
                points = "document.querySelector('#brokers .spark polyline').points.length"
                seen.append((await page.evaluate(count), await page.evaluate(points)))
        assert seen[1] == seen[2] and seen[2][1] == 150


def scene_news() -> list[dict[str, Any]]:
    found = json.loads(scene("calm").frame)["news"]
    assert isinstance(found, list)
    return found


@asynccontextmanager
async def broker(name: str, port: int, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "mesh", "broker", "--name", name, "--listen", f"tcp://127.0.0.1:{port}")
    whole = ends_with_tests([*command, *flags, "--period", "0.5", "--deadline", "0.4"])
    process = await asyncio.create_subprocess_exec(*whole, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        while b"is ready" not in await process.stderr.readline():
            pass
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.process
async def test_brokers_are_killed_while_the_page_is_open() -> None:
    """The page shows the death of another broker. If its own broker dies, it says so beside the last picture,
    until that is back."""
    ports = [free_port() for _ in range(4)]
    http = ("--http", str(ports[3]))
    join = ("--join", f"tcp://127.0.0.1:{ports[0]}")
    async with AsyncExitStack() as stack, Browser.run() as browser:
        first = await stack.enter_async_context(broker("alpha", ports[0], *http))
        beta = await stack.enter_async_context(broker("beta", ports[1], *join))
        await stack.enter_async_context(broker("gamma", ports[2], *join))
        page = await browser.page()
        await page.go(f"http://127.0.0.1:{ports[3]}/")
        await page.until("document.querySelector('#counts')?.innerText === '3 alive'")
        os.kill(beta.pid, signal.SIGKILL)
        await page.until("document.querySelector('#trouble').innerText.includes('beta is dead')")
        assert await page.evaluate("document.querySelectorAll('#topology .node.dead').length") == 1
        assert "beta" in await text(page, "#events")
        os.kill(first.pid, signal.SIGKILL)
        await page.until("document.querySelector('#link').innerText.includes('no word from alpha')")
        assert "gamma" in await text(page, "#brokers"), "the last picture stays"
        async with broker("alpha", ports[0], *http, "--join", f"tcp://127.0.0.1:{ports[2]}"):
            await page.until("document.querySelector('#link').innerText.includes('live')")
