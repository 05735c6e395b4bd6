"""A broker with `http`: health while it joins, figures, a survey for the page, and refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mesh import Broker, Client, HttpListen, ListenError
from mesh.broker.node import Node
from mesh.http.site import AGE_S
from tests.mesh.http.client import Caller, get
from tests.mesh.loopback import Cluster, crash, whole

pytestmark = pytest.mark.virtual
HTTP = "127.0.0.1:9770"
URL = f"http://{HTTP}"


def node(broker: Broker) -> Node:
    assert broker._node is not None
    return broker._node


async def test_a_broker_is_ready_once_it_has_joined_and_names_the_address_that_it_waits_for() -> None:
    async with Broker(listen="tcp://127.0.0.1:7771", join="tcp://127.0.0.1:7770", http=HTTP) as joining:
        assert joining.statistics()["http"] == URL
        assert (await get(URL, "/livez")).status == 200
        waits = await get(URL, "/readyz")
        assert waits.status == 503 and "waits for tcp://127.0.0.1:7770" in waits.text
        async with Broker(listen="tcp://127.0.0.1:7770") as other:
            await joining.wait_ready()
            assert (await get(URL, "/readyz")).status == 200
            await crash(other)
        await asyncio.sleep(10)
        assert (await get(URL, "/readyz")).status == 200, "it has joined, and serves its own clients"


async def test_a_broker_that_leaves_is_not_ready_and_closes_its_pages() -> None:
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha", http=HTTP)
        beta = await cluster.broker("beta", alpha)
        await whole([alpha, beta])
        page, probe = await Caller.dial(URL), await Caller.dial(URL)
        page.ask("/live", accept="text/event-stream")
        assert (await page.head()).headers["content-type"] == "text/event-stream"
        leaving = asyncio.create_task(alpha.leave())
        await asyncio.sleep(0)
        probe.ask("/readyz")
        answer = await probe.answer()
        assert answer.status == 503 and "is leaving" in answer.text
        await leaving
        assert (await page.ended()).endswith(b"0\r\n\r\n")
        page.close()
        probe.close()


async def test_a_hundred_scrapes_a_second_cost_as_much_as_one() -> None:
    """Each scrape gathered and encoded all figures anew, in the loop that carries messages."""
    async with Broker(listen="tcp://127.0.0.1:7770", http=HTTP) as broker:
        made: list[float] = []
        figures = node(broker).report.figures

        def counted() -> Any:
            made.append(asyncio.get_running_loop().time())
            return figures()

        node(broker).report.figures = counted  # type: ignore[method-assign]
        callers = [await Caller.dial(URL) for _ in range(10)]
        for _ in range(100):
            for caller in callers:
                caller.ask("/metrics")
            answers = [await caller.answer() for caller in callers]
            assert {answer.status for answer in answers} == {200}
            await asyncio.sleep(0.1)
        assert len(made) <= 10 / AGE_S + 1, "a thousand scrapes in ten seconds"
        for caller in callers:
            caller.close()


async def test_the_status_is_the_one_that_requests_get() -> None:
    async with Broker(listen="tcp://127.0.0.1:7770", name="alpha", http=HTTP) as broker:
        async with Client(broker.url) as client:
            asked = await client.status()
        answer = await get(URL, "/status.json")
        served = json.loads(answer.body)
        assert answer.headers["content-type"] == "application/json"
        assert served["schema"] == 1 and served.keys() == asked.keys() and served["id"] == asked["id"]


async def test_a_page_gets_the_whole_mesh_and_a_death() -> None:
    async with Cluster() as cluster:
        alpha = await cluster.broker("alpha", http=HTTP)
        others = [await cluster.broker(name, alpha) for name in ("beta", "gamma")]
        await whole([alpha, *others])
        page = await Caller.dial(URL)
        page.ask("/live", accept="text/event-stream")
        await page.head()

        async def frame() -> dict[str, Any]:
            while True:
                lines = (await page.chunk()).decode().strip().split("\n")
                if "event: mesh" in lines:
                    found = json.loads(lines[lines.index("event: mesh") + 1].removeprefix("data: "))
                    assert isinstance(found, dict)
                    return found

        seen = await frame()
        assert {each["name"]: each["answered"] for each in seen["brokers"]} == dict.fromkeys(
            ("alpha", "beta", "gamma"), True
        )
        assert seen["links_up"] == 3 and not seen["links_bad"] and len(seen["parts"]) == 1
        await crash(others[0])

        async def until_dead() -> dict[str, Any]:
            while True:
                seen = await frame()
                if any(each["state"] == "dead" for each in seen["brokers"]):
                    return seen

        seen = await asyncio.wait_for(until_dead(), 30)
        [dead] = [each for each in seen["brokers"] if each["state"] == "dead"]
        assert dead["name"] == "beta" and dead["changes"][-1][1] == "dead" and not dead["answered"]
        assert any("beta" in item["text"] for item in seen["news"])
        page.close()


async def test_a_broker_makes_no_surveys_while_no_page_is_open() -> None:
    async with Broker(listen="tcp://127.0.0.1:7770", http=HTTP) as broker:
        asked = 0
        survey = node(broker).exchange.survey

        def counted(*given: Any) -> None:
            nonlocal asked
            asked += 1
            survey(*given)

        node(broker).exchange.survey = counted  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert asked == 0
        page = await Caller.dial(URL)
        page.ask("/live", accept="text/event-stream")
        await page.head()
        await asyncio.sleep(20)
        assert 8 <= asked <= 12
        page.close()
        await asyncio.sleep(5)
        before = asked
        await asyncio.sleep(60)
        assert asked == before


async def test_an_address_that_is_taken_is_one_sentence_and_leaves_nothing_open() -> None:
    async with Broker(listen="tcp://127.0.0.1:7770", http=HTTP):
        with pytest.raises(ListenError, match=r"cannot serve HTTP at 127\.0\.0\.1:9770: another program"):
            async with Broker(listen="tcp://127.0.0.1:7771", http=HTTP):
                pass
    async with Broker(listen="tcp://127.0.0.1:7771", http=HTTP):
        assert (await get(URL, "/livez")).status == 200, "both addresses are free again"


async def test_a_configured_password_is_required() -> None:
    async with Broker(listen="tcp://127.0.0.1:7770", http=HttpListen(HTTP, password="swordfish")):
        answer = await get(URL, "/metrics")
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("basic")
        assert (await get(URL, "/metrics", authorization="Bearer swordfish")).status == 200
        assert (await get(URL, "/readyz")).status == 200
