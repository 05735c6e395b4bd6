"""``mesh queue``: durable subscriptions as an operator sees them.

Each command talks to one broker, which knows the homes of all subscriptions and passes questions on. `--home`
chooses between two subscriptions of one name. `mesh.dataplane.operating` describes questions and answers.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from rich.console import Console

from mesh import Client
from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.exported import Exported, exported
from mesh.cli.messages import described
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Timeout, connected
from mesh.config import ClientConfig
from mesh.console.queues import queue_report, queues_table
from mesh.errors import NoResponders
from mesh.printable import listed, printable
from mesh.wire.durable_frames import DEAD_PREFIX, QUEUES

PLAIN_WIDTH: Final = 120
LINES_AT_ONCE: Final = 256

HomeFlag = Annotated[
    str | None, Parameter(help="Name or id of its home, where two brokers have one of that name.")
]

app = App(
    name="queue",
    help="Look after durable subscriptions: list, copy, send back, remove.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)


@app.command
def ls(
    *,
    all: bool = False,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """List the durable subscriptions that have their home at a broker.

    Parameters
    ----------
    all
        Ask every broker, not only the one connected to; exit code 75 if one was silent.
    json
        Print one JSON object a line, one for each subscription.
    """
    return _run(_ls(flags.settings(timeout), everyone=all, as_json=json))


@app.command
def show(
    name: str,
    /,
    *,
    home: HomeFlag = None,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Show one durable subscription: waiting messages, consumers and dead letters.

    Parameters
    ----------
    name
        Its name; its dead letters are in $dlq.NAME.
    json
        Print one JSON object.
    """
    return _run(_show(flags.settings(timeout), name, home, as_json=json))


@app.command
def rm(
    name: str,
    /,
    *,
    yes: bool = False,
    home: HomeFlag = None,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Remove a durable subscription and all messages that wait in it, for good.

    Parameters
    ----------
    name
        Its name. Dead letters stay in $dlq.NAME, which is removed by itself.
    yes
        Do not ask first.
    json
        Print one JSON object; needs --yes.
    """
    return _run(_rm(flags.settings(timeout), name, home, sure=yes, as_json=json))


@app.command
def forget(
    broker: str,
    /,
    *,
    yes: bool = False,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Say that a home will not come back: nothing is stored for its durable subscriptions any longer.

    The broker that is asked tells all others.

    Parameters
    ----------
    broker
        Name or id of the home. Messages on its disk stay there.
    yes
        Do not ask first.
    json
        Print one JSON object; needs --yes.
    """
    return _run(_forget(flags.settings(timeout), broker, sure=yes, as_json=json))


@app.command(usage="Usage: mesh queue requeue [OPTIONS] NAME [ID...]")
def requeue(
    name: str,
    /,
    *ids: str,
    home: HomeFlag = None,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Send dead letters back to the subscription that they died in, to be tried again.

    Parameters
    ----------
    name
        The subscription (not $dlq.NAME).
    ids
        Ids of the messages, as export --dead prints them; all of them by default.
    json
        Print one JSON object.
    """
    return _run(_requeue(flags.settings(timeout), name, list(ids), home, as_json=json))


@app.command
def export(
    name: str,
    /,
    *,
    dead: bool = False,
    home: HomeFlag = None,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Write the waiting messages as lines of JSON, the oldest first, and remove nothing.

    Parameters
    ----------
    name
        The subscription.
    dead
        Write its dead letters instead.
    """
    return _run(_export(flags.settings(timeout), name, home, dead=dead))


def _run(command: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(command)


class _Home:
    """The broker that has the subscription, asked through the one that we are connected to."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._topic = QUEUES
        self._place = ""
        """The home, once it is found."""

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer. Raises `CommandFailed` with its sentence."""
        try:
            body = await self._client.request(
                self._topic, jsonlib.dumps(question).encode(), timeout=self._timeout_s
            )
        except NoResponders:
            raise CommandFailed(
                ExitCode.UNAVAILABLE,
                "no broker with durable subscriptions answers; its version may be too old"
                if not self._place
                else f"{self._place} cannot be reached now; if it will not come back: mesh queue forget",
            ) from None
        answer = _document(body)
        if answer is None:
            raise CommandFailed(ExitCode.BAD_DATA, "the answer is not a JSON object")
        if "error" in answer:
            raise CommandFailed(ExitCode.FAILED, printable(str(answer["error"])))
        return answer

    async def homes(self, name: str) -> list[tuple[str, str]]:
        """Ids and names of the brokers where a subscription lives."""
        return [
            (str(each.get("id")), str(each.get("name")))
            for each in (await self.ask(do="homes", name=name)).get("homes", ())
            if isinstance(each, dict)
        ]

    async def find(self, name: str, home: str | None) -> None:
        """Ask from now on where this subscription lives."""
        found = await self.homes(name)
        chosen = [each for each in found if home is None or home in each]
        if len(chosen) > 1:
            raise CommandFailed(
                ExitCode.USAGE,
                f"{name!r} lives at {len(chosen)} brokers: {listed([_named(each) for each in chosen])};"
                " say which one with --home and its name or id",
            )
        if home is not None and not chosen:
            where = f"; it lives at {listed([_named(each) for each in found])}" if found else ""
            raise CommandFailed(
                ExitCode.FAILED, f"there is no durable subscription {name!r} at broker {home!r}{where}"
            )
        if chosen:
            self._topic = f"{QUEUES}.{chosen[0][0]}"
            self._place = f"broker {_named(chosen[0])}, the home of {printable(name)},"


def _named(home: tuple[str, str]) -> str:
    return f"{printable(home[1])} ({printable(home[0])})"


@asynccontextmanager
async def _home_of(settings: ClientConfig, name: str, home: str | None) -> AsyncIterator[_Home]:
    async with connected(settings) as client:
        asked = _Home(client, settings.timeout_s)
        await asked.find(name, home)
        yield asked


# --- looking


async def _ls(settings: ClientConfig, *, everyone: bool, as_json: bool) -> int:
    async with connected(settings) as client:
        if everyone:
            queues, silent = await _all_queues(client, settings.timeout_s)
        else:
            queues, silent = await _queues(client, settings.timeout_s), []
        broker = client.broker
    if as_json:
        for queue in queues:
            print(to_json(queue))
    elif queues:
        console = _console()
        console.print(queues_table(queues, console.width))
    elif not everyone:
        print(f"no durable subscriptions at broker {printable(broker)}; --all asks every broker")
    elif not silent:
        print("no durable subscriptions")
    if silent:
        raise CommandFailed(ExitCode.TIMEOUT, f"no answer from {', '.join(map(printable, silent))}")
    return ExitCode.OK


async def _queues(client: Client, timeout_s: float, topic: str = QUEUES) -> list[dict[str, Any]]:
    """All durable subscriptions of one broker."""
    home = _Home(client, timeout_s)
    home._topic = topic
    queues: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = await home.ask(do="ls", after=after)
        page = _of_answer(answer)
        queues += page
        if not answer.get("more") or not page:
            return queues
        after = str(page[-1].get("name"))


async def _all_queues(client: Client, timeout_s: float) -> tuple[list[dict[str, Any]], list[str]]:
    """All durable subscriptions of all brokers: the first page by survey, the rest from each broker that has
    more. Also names what did not answer: silent brokers, and homes that are away with what they keep."""
    question = jsonlib.dumps({"do": "ls"}).encode()
    result = await client.survey(QUEUES, question, deadline=min(timeout_s, 2.0))
    queues: list[dict[str, Any]] = []
    silent = dict.fromkeys(result.missing, "")
    members = {
        str(member.get("name")): str(member.get("id")) for member in (await client.status())["members"]
    }
    for one in result.answers:
        answer = _document(one.body)
        if answer is None or "error" in answer:
            silent[one.broker] = ""
            continue
        silent.update(_away(answer))
        if answer.get("more") and one.broker in members:
            queues += await _queues(client, timeout_s, f"{QUEUES}.{members[one.broker]}")
        else:
            queues += _of_answer(answer)
    for one in result.answers:  # a home that is away for another broker
        if silent.get(one.broker):
            del silent[one.broker]
    queues.sort(key=lambda queue: (str(queue.get("name")), str(queue.get("home"))))
    return queues, [f"{name}{keeps}" for name, keeps in silent.items()]


def _away(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The homes that are away for a broker, and what they keep."""
    away = answer.get("away")
    for home in away if isinstance(away, list) else ():
        if isinstance(home, dict) and isinstance(home.get("queues"), list):
            names = [str(name) for name in home["queues"]]
            more = (
                f" and {int(home.get('count') or 0) - len(names)} more"
                if len(names) < (home.get("count") or 0)
                else ""
            )
            yield str(home.get("name")), f" (home of {', '.join(names)}{more})"


def _of_answer(answer: dict[str, Any]) -> list[dict[str, Any]]:
    queues = answer.get("queues")
    found = queues if isinstance(queues, list) else []
    return [{"home": answer.get("broker"), **queue} for queue in found if isinstance(queue, dict)]


async def _show(settings: ClientConfig, name: str, home: str | None, *, as_json: bool) -> int:
    async with _home_of(settings, name, home) as asked:
        queue = await _shown(asked, name)
    if as_json:
        print(to_json(queue))
    else:
        console = _console()
        console.print(queue_report(queue, console.width))
    return ExitCode.OK


async def _shown(asked: _Home, name: str) -> dict[str, Any]:
    answer = await asked.ask(do="show", name=name)
    queue = answer.get("queue")
    return {"home": answer.get("broker"), **(queue if isinstance(queue, dict) else {})}


# --- changing


async def _rm(settings: ClientConfig, name: str, home: str | None, *, sure: bool, as_json: bool) -> int:
    if as_json and not sure:
        raise CommandFailed(ExitCode.USAGE, "--json removes without asking, so it needs --yes")
    async with _home_of(settings, name, home) as asked:
        queue = await _shown(asked, name)
        if not sure:
            _confirm(queue)
        answer = await asked.ask(do="rm", name=name)
    if as_json:
        print(to_json({"home": answer.get("broker"), "name": name, "removed": answer.get("removed")}))
        return ExitCode.OK
    at = printable(str(answer.get("broker")))
    print(f"removed {printable(name)} at {at}: {_messages(answer.get('removed'))}")
    if queue.get("dead"):
        print(f"{_messages(queue['dead'])} stay in {DEAD_PREFIX}{printable(name)}")
    return ExitCode.OK


def _confirm(queue: dict[str, Any]) -> None:
    """Raises `CommandFailed` unless somebody says yes at a terminal."""
    name, home = printable(str(queue.get("name"))), printable(str(queue.get("home")))
    consumers = queue.get("consumers")
    working = f", at which {consumers} work now," if consumers else ""
    said = f"{name} at {home}{working} with {_messages(queue.get('waiting'))} that wait"
    _ask_for_yes(f"remove {said}", "removed")


def _ask_for_yes(what: str, done: str) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(ExitCode.USAGE, f"this would {what}; give --yes to confirm")
    print(f"{what}, for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed(ExitCode.FAILED, f"nothing was {done}")


async def _forget(settings: ClientConfig, broker: str, *, sure: bool, as_json: bool) -> int:
    if as_json and not sure:
        raise CommandFailed(ExitCode.USAGE, "--json forgets without asking, so it needs --yes")
    if not sure:
        _ask_for_yes(f"forget broker {printable(broker)} and its durable subscriptions", "forgotten")
    async with connected(settings) as client:
        answer = await _Home(client, settings.timeout_s).ask(do="forget", home=broker)
    names = [printable(str(name)) for name in answer.get("forgotten") or ()]
    if as_json:
        print(to_json({"home": broker, "count": answer.get("count"), "forgotten": names}))
    else:
        print(f"forgot {printable(broker)}: {listed(names) or 'it has no durable subscriptions'}")
    return ExitCode.OK


def _messages(count: Any) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


async def _requeue(
    settings: ClientConfig, name: str, ids: list[str], home: str | None, *, as_json: bool
) -> int:
    totals = dict.fromkeys(("requeued", "busy", "damaged"), 0)
    async with _home_of(settings, name, home) as asked:
        # Messages that die again meanwhile come behind the present ones, and stay.
        left = int((await _shown(asked, name)).get("dead") or 0)
        after, more = 0, left > 0
        while more and left > 0:
            wanted = {"ids": ids} if ids else {}
            answer = await asked.ask(do="requeue", name=name, after=after, **wanted)
            for key in totals:
                totals[key] += int(answer.get(key) or 0)
            left -= int(answer.get("seen") or 0)
            after, more = int(answer.get("after") or 0), bool(answer.get("more"))
    if as_json:
        print(to_json({"name": name, **totals}))
    else:
        print(f"{_messages(totals['requeued'])} sent back to {printable(name)}")
        if totals["busy"]:
            print(f"{_messages(totals['busy'])} left to the consumers that have them")
    missing = len(set(ids)) - totals["requeued"] - totals["busy"] if ids else 0
    if missing > 0:
        raise CommandFailed(ExitCode.FAILED, f"{missing} of these ids belong to no dead letter of {name!r}")
    if totals["damaged"]:
        raise CommandFailed(
            ExitCode.BAD_DATA, f"{_messages(totals['damaged'])} cannot be read and stay where they are"
        )
    return ExitCode.OK


# --- copying


async def _export(settings: ClientConfig, name: str, home: str | None, *, dead: bool) -> int:
    damaged = 0
    async with connected(settings) as client:
        asked = _Home(client, settings.timeout_s)
        if dead and await asked.homes(DEAD_PREFIX + name):
            name = DEAD_PREFIX + name
            dead = False
        await asked.find(name, home)
        if dead:  # no message has died there yet, if the subscription exists
            await _shown(asked, name)
            return ExitCode.OK
        after = piece = 0
        more = True
        reading = Exported()
        while more:
            answer = await asked.ask(do="export", name=name, after=after, piece=piece)
            lines: list[str] = []
            for message in exported(answer, reading):
                if isinstance(message, str):
                    damaged += 1
                    print(printable(f"mesh queue: {message}"), file=sys.stderr)
                    continue
                body = described(message.body, message.headers)
                lines.append(to_json({**message.about, **body}) + "\n")
            sys.stdout.writelines(lines)
            after, piece = int(answer.get("after") or 0), int(answer.get("piece") or 0)
            more = bool(answer.get("more"))
    if damaged:
        raise CommandFailed(ExitCode.BAD_DATA, f"{damaged} of the rows cannot be read")
    return ExitCode.OK


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = jsonlib.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
