"""A survey of a hundred respondents, 25 in each of four processes: the time until all have answered."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import BODY, Report, percentiles, run_async
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG, PYNNG_ASYNCIO, Peers
from protocols import Respondent0, SocketOptions, Surveyor0

SURVEY: Final = "survey of 100"
RESPONDENTS: Final = 100
PROCESSES: Final = 4
EACH: Final = RESPONDENTS // PROCESSES
WARM_UP: Final = 10
SURVEY_S: Final = 20.0

TARGETS: Final = (
    Target(SURVEY, "p50 us", OURS, PYNNG, 0.5, False),
    Target(SURVEY, "p50 us", OURS, PYNNG_ASYNCIO, 0.5, False),
)


# --- ours


def ours_surveyor(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Surveyor0(options=SocketOptions(survey_s=SURVEY_S)) as surveyor:
            listener = await surveyor.listen(LOOPBACK)
            report(listener.url)
            await surveyor.wait_for_peers(RESPONDENTS)
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                result = await surveyor.survey(BODY)
                assert len(result.answers) == RESPONDENTS
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            report(percentiles(samples))

    run_async(main())


def ours_respondents(url: str, report: Report, gate: Any) -> None:
    async def answer() -> None:
        async with Respondent0(dial=url) as respondent:
            while True:
                await respondent.send(await respondent.recv())

    async def main() -> None:
        await asyncio.gather(*(answer() for _ in range(EACH)))

    run_async(main())


# --- pynng


def pynng_surveyor(count: int, report: Report, gate: Any) -> None:
    import pynng

    with pynng.Surveyor0(listen=LOOPBACK, survey_time=int(SURVEY_S * 1000)) as surveyor:
        report(f"tcp://{surveyor.listeners[0].local_address}")
        while len(surveyor.pipes) < RESPONDENTS:
            time.sleep(0.01)
        samples = []
        for number in range(count + WARM_UP):
            start = time.perf_counter()
            surveyor.send(BODY)
            for _ in range(RESPONDENTS):
                surveyor.recv()
            if number >= WARM_UP:
                samples.append(time.perf_counter() - start)
        report(percentiles(samples))


def pynng_respondents(url: str, report: Report, gate: Any) -> None:
    """One thread each: pynng's blocking calls let others run while they wait."""
    import pynng

    def answer(respondent: Any) -> None:
        while True:
            respondent.send(respondent.recv())

    respondents = [pynng.Respondent0(dial=url, block_on_dial=True) for _ in range(EACH)]
    for respondent in respondents:
        threading.Thread(target=answer, args=(respondent,), daemon=True).start()
    gate.wait()
    os._exit(0)  # NNG aborts if it is closed while threads wait in it


def pynng_asyncio_surveyor(count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Surveyor0(listen=LOOPBACK, survey_time=int(SURVEY_S * 1000)) as surveyor:
            report(f"tcp://{surveyor.listeners[0].local_address}")
            while len(surveyor.pipes) < RESPONDENTS:  # noqa: ASYNC110  its callback is another thread's
                await asyncio.sleep(0.01)
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await surveyor.asend(BODY)
                for _ in range(RESPONDENTS):
                    await surveyor.arecv()
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            report(percentiles(samples))

    run_async(main())


def pynng_asyncio_respondents(url: str, report: Report, gate: Any) -> None:
    import pynng

    async def answer(respondent: Any) -> None:
        while True:
            await respondent.asend(await respondent.arecv())

    async def main() -> None:
        respondents = [pynng.Respondent0(dial=url, block_on_dial=True) for _ in range(EACH)]
        await asyncio.gather(*map(answer, respondents))

    run_async(main())


# --- the cases


def surveyed(surveyor: Callable[..., None], respondents: Callable[..., None], count: int) -> Figures:
    with workers() as group:
        asker = group.start(surveyor, count)
        url = asker.hear()
        for _ in range(PROCESSES):
            group.start(respondents, url)
        figures: Figures = asker.hear()
        return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    count = max(20, int(300 * scale))
    yield Case(SURVEY, OURS, partial(surveyed, ours_surveyor, ours_respondents, count))
    if peers.pynng:
        yield Case(SURVEY, PYNNG, partial(surveyed, pynng_surveyor, pynng_respondents, count))
        yield Case(
            SURVEY, PYNNG_ASYNCIO, partial(surveyed, pynng_asyncio_surveyor, pynng_asyncio_respondents, count)
        )
