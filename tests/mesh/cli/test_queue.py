"""``mesh queue`` beside two brokers, one of which is home to a durable subscription."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest

from mesh import Broker, Client
from mesh.cli.app import main
from mesh.errors import NotAccepted

LOCAL = "tcp://127.0.0.1:0"


async def run(capsys: pytest.CaptureFixture[str], broker: Broker, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    capsys.readouterr()
    code = await asyncio.to_thread(main, ["queue", *words, "--url", broker.url, "--timeout", "60"])
    said = capsys.readouterr()
    return code, said.out, said.err


async def with_letters(broker: Broker) -> None:
    """``mail`` keeps 7 messages, and 3 that were dropped are dead letters."""
    async with Client(broker.url) as client:
        async with client.subscribe("jobs.#", durable="mail", window=3) as jobs:
            for number in range(10):
                await client.publish("jobs.a", b"m%d" % number, level="stored", headers={"n": number})
            for _ in range(3):
                (await anext(jobs)).drop("no such customer")
        dead = 0
        while dead < 3:  # they are written with the next commit
            said = await client.request("$sys.queues", b'{"do": "show", "name": "mail"}', timeout=60)
            dead = json.loads(said)["queue"]["dead"]


async def test_a_subscription_is_listed_copied_sent_back_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path) as broker:
        code, out, _ = await run(capsys, broker, "ls")
        assert (code, out) == (0, "no durable subscriptions at broker alpha; --all asks every broker\n")
        code, out, _ = await run(capsys, broker, "ls", "--all")
        assert (code, out) == (0, "no durable subscriptions\n")
        await with_letters(broker)

        code, out, _ = await run(capsys, broker, "ls", "--json")
        queues = {line["name"]: line for line in map(json.loads, out.splitlines())}
        assert {name: queue["waiting"] for name, queue in queues.items()} == {"mail": 7, "$dlq.mail": 3}
        assert queues["mail"]["dead"] == 3 and queues["mail"]["home"] == "alpha"
        code, out, _ = await run(capsys, broker, "ls", "--all")
        assert code == 0 and out.split()[:2] == ["queue", "home"] and "$dlq.mail" in out
        code, out, _ = await run(capsys, broker, "show", "mail")
        assert code == 0 and "7 messages" in out and "3 in $dlq.mail" in out

        code, out, _ = await run(capsys, broker, "export", "mail", "--dead")
        letters = list(map(json.loads, out.splitlines()))
        assert [letter["body"] for letter in letters] == ["m0", "m1", "m2"]
        assert letters[0]["headers"]["dead-reason"] == "no such customer"
        code, out, err = await run(capsys, broker, "requeue", "mail", letters[1]["id"])
        assert (code, out) == (0, "1 message sent back to mail\n")
        code, out, err = await run(capsys, broker, "requeue", "mail", letters[1]["id"])
        assert code == 1 and "1 of these ids belong to no dead letter of 'mail'" in err
        code, out, _ = await run(capsys, broker, "export", "mail")
        again = list(map(json.loads, out.splitlines()))
        assert [message["body"] for message in again] == [*(f"m{n}" for n in range(3, 10)), "m1"]
        assert again[-1]["id"] == letters[1]["id"] and again[-1]["headers"] == {"n": 1}

        monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
        code, out, err = await run(capsys, broker, "rm", "mail")
        assert code == 64 and "8 messages that wait; give --yes to confirm" in err
        code, out, _ = await run(capsys, broker, "rm", "mail", "--yes")
        assert (code, out) == (0, "removed mail at alpha: 8 messages\n2 messages stay in $dlq.mail\n")
        code, _, err = await run(capsys, broker, "show", "mail")
        assert (code, err) == (1, "mesh queue: there is no durable subscription 'mail' at broker alpha\n")


async def test_there_are_no_dead_letters_to_copy_where_nothing_has_died(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said that there is no durable subscription '$dlq.mail'."""
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path) as broker:
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail"):
            pass
        assert await run(capsys, broker, "export", "mail", "--dead") == (0, "", "")
        code, _, err = await run(capsys, broker, "export", "nothere", "--dead")
        assert (code, err) == (1, "mesh queue: there is no durable subscription 'nothere' at broker alpha\n")


async def test_a_home_that_is_gone_is_forgotten_and_one_that_lives_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path / "alpha") as broker:
        async with Broker(name="beta", listen=LOCAL, join=broker.url, state_dir=tmp_path / "beta") as other:
            await other.wait_ready()
            async with Client(other.url) as client, client.subscribe("jobs.#", durable="mail"):
                pass
            code, out, _ = await run(capsys, broker, "show", "mail")
            assert code == 0 and "its home is beta" in out, "the question goes on to the home"
            code, _, err = await run(capsys, broker, "forget", "beta", "--yes")
            assert code == 1 and "broker beta is alive" in err
        code, _, err = await run(capsys, broker, "rm", "mail", "--yes")
        assert code == 69 and "broker beta (" in err and "the home of mail, cannot be reached now" in err
        for flags in ((), ("--json",)):  # it was said that there are none
            code, out, err = await run(capsys, broker, "ls", "--all", *flags)
            assert (code, out, err) == (75, "", "mesh queue: no answer from beta (home of mail)\n")
        async with Client(broker.url) as client:
            with pytest.raises(NotAccepted, match="beta"):
                await client.publish("jobs.a", b"x", level="stored")
            code, _, err = await run(capsys, broker, "forget", "beta")
            assert code == 64 and "give --yes to confirm" in err
            code, out, _ = await run(capsys, broker, "forget", "beta", "--yes")
            assert (code, out) == (0, "forgot beta: mail\n")
            with pytest.raises(NotAccepted, match="nobody keeps"):
                await client.publish("jobs.a", b"x", level="stored")
            code, _, err = await run(capsys, broker, "forget", "beta", "--yes")
            assert code == 1 and "no broker 'beta' is known here" in err


async def test_a_name_with_two_homes_needs_a_choice_and_the_status_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(name="beta", listen=LOCAL, state_dir=tmp_path / "beta") as apart:
        await with_letters(apart)
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path / "alpha") as broker:
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail"):
            pass
        async with Broker(name="beta", listen=LOCAL, join=broker.url, state_dir=tmp_path / "beta") as other:
            await other.wait_ready()
            while "mail" not in broker.statistics()["queues_twice"]:
                await asyncio.sleep(0)  # it is told of in the next turns
            assert broker.statistics()["queues_twice"] == {"mail": ["alpha", "beta"]}
            capsys.readouterr()
            assert await asyncio.to_thread(main, ["status", "--url", other.url, "--timeout", "60"]) == 0
            assert "durable subscription mail has homes at alpha, beta; remove one" in capsys.readouterr().out
            code, _, err = await run(capsys, broker, "rm", "mail", "--yes")
            assert code == 64 and "'mail' lives at 2 brokers: " in err and "--home" in err
            code, _, err = await run(capsys, broker, "show", "mail", "--home", "gamma")
            assert code == 1 and "no durable subscription 'mail' at broker 'gamma'; it lives at" in err
            code, out, _ = await run(capsys, broker, "ls", "--all", "--json")
            homes = [(line["name"], line["home"]) for line in map(json.loads, out.splitlines())]
            assert code == 0 and homes == [("$dlq.mail", "beta"), ("mail", "alpha"), ("mail", "beta")]
            code, out, _ = await run(capsys, broker, "rm", "mail", "--home", "beta", "--yes")
            assert code == 0 and out.startswith("removed mail at beta: 7 messages")
            while broker.statistics()["queues_twice"]:
                await asyncio.sleep(0)
            code, out, _ = await run(capsys, broker, "show", "mail")
            assert code == 0 and "its home is alpha" in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1), ("", 1)])
async def test_removing_asks_first_at_a_terminal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    code: int,
) -> None:
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path) as broker:
        await with_letters(broker)
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        found, out, err = await run(capsys, broker, "rm", "mail")
        assert found == code and "remove mail at alpha with 7 messages that wait, for good? [y/N]" in err
        assert out.startswith("removed mail" if code == 0 else "")
        found, _, _ = await run(capsys, broker, "show", "mail")
        assert found == (1 if code == 0 else 0)


async def test_a_large_body_and_bytes_that_are_no_text_are_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(name="alpha", listen=LOCAL, state_dir=tmp_path) as broker:
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail") as _:
            await client.publish("jobs.a", b"x" * 2_000_000, level="stored")
            await client.publish("jobs.b", b"\xff", level="stored")
        code, out, _ = await run(capsys, broker, "export", "mail")
        large, binary = map(json.loads, out.splitlines())
        assert code == 0 and large["body"] == "x" * 2_000_000 and binary["body_base64"] == "/w=="
