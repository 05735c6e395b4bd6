"""Every JSON document of every command has a schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mesh.bench.cli as bench
from mesh import Broker, Client
from mesh.analysis import pipeline
from mesh.analysis.reporting.findings import findings_of
from mesh.bench.harness import Outcome
from mesh.cli import device, queue, work
from mesh.cli.app import main
from simulations.runs import diffing, playing, replaying, shrinking, swarming
from simulations.runs.playing import Result
from simulations.scenario import Scenario
from tests.mesh.analysis.reporting.tables_by_hand import digest
from tests.mesh.cli.commands import commands
from tests.simulations.cli.test_app import KEYWORDS, WRONG, result, some_fail

LOCAL = "tcp://127.0.0.1:0"
ASKING = {
    "pub": "pub news.uk hello --level stored --json",
    "sub": "sub news.# --count 1 --json",
    "request": "request jobs.sum x --json",
    "survey": "survey jobs.sum x --json",
    "work": "work mail --count 1 --json",
    "queue ls": "queue ls --json",
    "queue show": "queue show mail --json",
    "queue export": "queue export mail",
    "queue requeue": "queue requeue mail --json",
    "status": "status --json",
    "status --all": "status --all --json",
    "clients": "clients --json",
    "topics": "topics --json",
    "links": "links --json",
    "trace": "trace news.uk --json",
    "queue rm": "queue rm mail --yes --json",
    "queue forget": "queue forget alpha --yes --json",
}
"""Commands that ask a broker, in an order in which each of them has something to tell."""
LINES = {
    "clients": "clients --jsonl",
    "topics": "topics --jsonl",
    "links": "links --jsonl",
    "events": "events --jsonl",
}
ALONE = {"context list", "config show", "simulate list", "simulate faults"}
BY_STAND_INS = {
    *("device", "simulate", "simulate swarm", "simulate replay", "simulate shrink", "simulate diff"),
    *("analyze", "analyze diff"),
    *("bench sockets", "bench broker", "bench durable", "bench analyze", "bench simulate"),
}
"""Commands that take long, or run until a signal."""


def test_no_command_is_forgotten() -> None:
    with_json = {*commands("--json"), "queue export", "status --all"}
    assert with_json == {*ASKING, *ALONE, *BY_STAND_INS}
    assert set(commands("--jsonl")) == set(LINES)


def schemas(out: str) -> list[Any]:
    """The schema of each document in an output: one over several lines, or one on each."""
    try:
        documents = [json.loads(out)]
    except ValueError:
        documents = [json.loads(line) for line in out.splitlines()]
    return [document["schema"] for document in documents]


@asynccontextmanager
async def lively(folder: Path) -> AsyncIterator[Broker]:
    """A broker with a link, a durable subscription, a responder, and messages all the time."""
    async with (
        Broker(name="alpha", listen=LOCAL, state_dir=folder) as broker,
        Broker(name="bravo", listen=LOCAL, join=broker.url),
        Client(broker.url) as client,
    ):

        async def answer() -> None:
            async with client.subscribe("jobs.#", answers=True) as questions:
                async for question in questions:
                    question.done(b"3")

        async def publish() -> None:
            while True:
                await client.publish("news.uk", b"hello")
                await asyncio.sleep(0.01)

        async with client.subscribe("news.#", durable="mail"):
            await client.publish("news.uk", b"kept", level="stored")
        tasks = [asyncio.create_task(answer()), asyncio.create_task(publish())]
        try:
            yield broker
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_documents_of_commands_that_ask_brokers_have_a_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgotten(asked: object, **question: object) -> dict[str, object]:
        return {"forgotten": ["mail"], "count": 1}

    # Commands run in a thread here, where no signals arrive.
    monkeypatch.setattr(work, "_on_signal", lambda act: nullcontext())
    async with lively(tmp_path) as broker:
        for name, words in [*ASKING.items(), *LINES.items()]:
            capsys.readouterr()
            if name == "queue forget":  # no broker forgets a home that lives
                monkeypatch.setattr(queue._Home, "ask", forgotten)
            code = await asyncio.to_thread(main, [*words.split(), "--url", broker.url])
            said = capsys.readouterr()
            assert code == 0, f"{words}: {said.err}"
            assert said.out and set(schemas(said.out)) == {1}, words


@pytest.mark.parametrize("name", sorted(ALONE))
def test_documents_of_commands_without_a_broker_have_a_schema(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main([*name.split(), "--json"]) == 0
    assert schemas(capsys.readouterr().out) == [1]


def failure(folder: Path) -> str:
    path = folder / "failure.toml"
    path.write_text(replaying.write(replaying.failure_of(result(Scenario("large", brokers=2), WRONG))))
    return str(path)


def summary(folder: Path) -> str:
    path = folder / "summary.json"
    path.write_text(json.dumps(findings_of(digest()).as_json()))
    return str(path)


def arguments(name: str, folder: Path) -> list[str]:
    match name:
        case "simulate":
            return ["calm"]
        case "simulate replay" | "simulate shrink":
            return [failure(folder)]
        case "simulate diff":
            for trace in ("one", "other"):
                (folder / trace).write_text(f'{diffing.HEAD}{{"format": 2}}\n5|broker-1|turn|1\n')
            return [str(folder / "one"), str(folder / "other")]
        case "analyze":
            return [str(folder)]
        case "analyze diff":
            return [summary(folder), summary(folder)]
        case "device":
            return ["--proto", "push", "--front", LOCAL, "--back", LOCAL]
        case _:
            return []


@pytest.mark.parametrize("name", sorted(BY_STAND_INS))
def test_documents_of_long_commands_have_a_schema(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(scenario: Scenario, **given: Any) -> Result:
        return result(scenario, WRONG)

    async def forwarded(*given: object) -> dict[str, Any]:
        return {"forward": {}, "backward": {}, "drops": {}}

    monkeypatch.setattr(device, "forward", forwarded)
    monkeypatch.setattr(
        playing, "Play", lambda scenario, **given: SimpleNamespace(run=lambda: played(scenario))
    )
    monkeypatch.setattr(playing, "play", played)
    monkeypatch.setattr(swarming, "swarm", some_fail)
    monkeypatch.setattr(shrinking.shrink, "__kwdefaults__", {**KEYWORDS, "play": played})
    monkeypatch.setattr(bench, "run_cases", lambda *given: Outcome(1))
    monkeypatch.setattr(bench, "_chosen", lambda *given: [])
    monkeypatch.setattr(
        pipeline,
        "analyse",
        lambda *given, **named: SimpleNamespace(findings=findings_of(digest()), scenario=None),
    )
    assert main([*name.split(), *arguments(name, tmp_path), "--json"]) in (0, 1, 70)
    (schema,) = schemas(capsys.readouterr().out)
    assert schema == ("mangrove.analysis/2" if name == "analyze" else 1)
