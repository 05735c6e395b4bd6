"""``mesh clients``, ``topics``, ``links``, ``events`` and ``trace``: the mesh in more detail than its status.

Each asks all brokers through one of them. A broker that did not answer is named on standard error, and the
exit code is 75 then.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from rich.console import Console

from mesh import Client
from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Seconds, Timeout, connected
from mesh.config import ClientConfig, FlagError
from mesh.console.clients import CLIENT_COLUMNS, TOPIC_COLUMNS, client_rows, cut, topic_rows
from mesh.console.feed import Feed
from mesh.console.links import LINK_COLUMNS, link_rows, links_said
from mesh.console.probe import Answers, Look, ask_all, look
from mesh.console.signs import Shown, signs_for
from mesh.console.tables import Column, table
from mesh.console.trace import heard, lines, read_id, way
from mesh.errors import MeshError
from mesh.picture import Picture, compose
from mesh.printable import printable

PLAIN_WIDTH: Final = 160
SURVEY_S: Final = 1.0
"""Seconds that brokers have for an answer; healthy brokers need milliseconds."""

Row = TypeVar("Row")


def clients(
    *, json: bool = False, jsonl: bool = False, timeout: Timeout = None, flags: BrokerFlags = NO_FLAGS
) -> int:
    """List the clients of all brokers: what they want, what they sent, what waits for them.

    Parameters
    ----------
    json
        Print one JSON document.
    jsonl
        Print one JSON object a line, one for each client.
    """
    answers = _asked(flags.settings(timeout), {"look": "clients"})
    rows = client_rows(answers.documents)
    records = [{"broker": row.broker, **row.record} for row in rows]
    more = cut(answers.documents, "clients")
    return _show("clients", records, CLIENT_COLUMNS, rows, answers.silent, json, jsonl, more)


def topics(
    *, json: bool = False, jsonl: bool = False, timeout: Timeout = None, flags: BrokerFlags = NO_FLAGS
) -> int:
    """List the patterns that clients want, with the messages a second that they get, and at which brokers.

    The rates are those of all subscribers of a pattern together. A dash stands for a rate that is not known:
    a subscription with several patterns does not say which of them its messages matched.

    Parameters
    ----------
    json
        Print one JSON document.
    jsonl
        Print one JSON object a line, one for each pattern.
    """
    before, answers, elapsed_s = asyncio.run(_topics(flags.settings(timeout)))
    rows = topic_rows(answers.documents, before.documents, elapsed_s)
    records = [row._asdict() for row in rows]
    more = cut(answers.documents, "topics")
    return _show("topics", records, TOPIC_COLUMNS, rows, answers.silent, json, jsonl, more)


def links(
    *, json: bool = False, jsonl: bool = False, timeout: Timeout = None, flags: BrokerFlags = NO_FLAGS
) -> int:
    """List the links between brokers, the missing and bad ones first.

    Parameters
    ----------
    json
        Print one JSON document.
    jsonl
        Print one JSON object a line, one for each link.
    """
    seen = asyncio.run(_looks(flags.settings(timeout)))
    picture = seen[1].picture(seen[0])
    rows = link_rows(picture)
    keys = ("rtt_ms", "msgs_s", "lost", "dropped", "ends", "heard")
    records = [
        {
            "ids": row.id,
            "brokers": [row.a, row.b],
            "state": row.kind,
            **{key: None if row.edge is None else getattr(row.edge, key) for key in keys},
        }
        for row in rows
    ]
    code = _show("links", records, LINK_COLUMNS, rows, picture.silent, json, jsonl, 0)
    if not json and not jsonl:
        print(f"{links_said(rows)}")
    return code


def events(
    *,
    follow: bool = False,
    interval: Seconds = 1.0,
    jsonl: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Print the last events of all brokers: starts, deaths, links. The same news is told once.

    Parameters
    ----------
    follow
        Go on with what happens, until interrupted. When the broker dies, another one is asked.
    interval
        Seconds between two looks.
    jsonl
        Print each broker's own rows, one JSON object a line (docs/reference/event-log.md).
    """
    return asyncio.run(_events(flags.settings(timeout), follow, interval, jsonl))


def trace(
    what: str,
    /,
    *,
    topic: str | None = None,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Say which way a message goes, and where it is dropped or waits.

    Nothing is published. The way of a topic begins at the connected broker. An exclamation mark shows where
    messages are lost or wait. For the id of a message, each broker says whether it has had the message.
    Brokers record messages of level accepted, stored and outbox; a message of level sent leaves no record.

    Parameters
    ----------
    what
        A topic, or the id of a message as mesh queue export has it.
    topic
        With an id: the topic, so that brokers that should have had the message are told.
    json
        Print one JSON document.
    """
    return asyncio.run(_trace(flags.settings(timeout), what, topic, json))


def _asked(settings: ClientConfig, question: dict[str, Any]) -> Answers:
    async def run() -> Answers:
        async with connected(settings) as client:
            return await _ask(client, settings, question)

    return asyncio.run(run())


async def _topics(settings: ClientConfig) -> tuple[Answers, Answers, float]:
    """Answers before and after some seconds, which give rates."""
    async with connected(settings) as client:
        clock = asyncio.get_running_loop().time
        before, began = await _ask(client, settings, {"look": "topics"}), clock()
        await asyncio.sleep(SURVEY_S)
        after = await _ask(client, settings, {"look": "topics"})
        return before, after, clock() - began


async def _ask(client: Client, settings: ClientConfig, question: dict[str, Any]) -> Answers:
    answers = await ask_all(client, question, min(settings.timeout_s, SURVEY_S))
    if not answers.documents:
        raise CommandFailed(
            ExitCode.UNAVAILABLE, "no broker knows this question; they may be of an older version"
        )
    return answers


async def _looks(settings: ClientConfig) -> tuple[Look, Look]:
    """Two looks, which give rates."""
    async with connected(settings) as client:
        before = await look(client, min(settings.timeout_s, SURVEY_S))
        await asyncio.sleep(SURVEY_S)
        return before, await look(client, min(settings.timeout_s, SURVEY_S))


def _show(
    key: str,
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    silent: Sequence[str],
    json: bool,
    jsonl: bool,
    more: int,
) -> int:
    if json and jsonl:
        raise FlagError("--json and --jsonl exclude each other")
    if json:
        document = {key: records, "more": more, "silent": list(silent)}
        print(to_json(document, indent=2))
    elif jsonl:
        for record in records:
            print(to_json(record))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
        signs = signs_for(console.encoding)
        console.print(Shown(table(columns, rows, console.width, len(rows) + 1, signs), signs))
        if more:
            print(f"{more} more are not shown")
    _tell_silent(silent)
    return ExitCode.OK


def _tell_silent(silent: Iterable[str]) -> None:
    names = ", ".join(silent)
    if names:
        raise CommandFailed(ExitCode.TIMEOUT, f"no answer from {names}")


async def _events(settings: ClientConfig, follow: bool, interval_s: float, jsonl: bool) -> int:
    feed = Feed(signs_for(sys.stdout.encoding or ""))
    async with connected(settings, watching=follow) as client:
        while True:
            try:
                seen = await look(client, min(settings.timeout_s, max(SURVEY_S, interval_s)))
            except (MeshError, TimeoutError):
                if not follow:
                    raise
            else:
                _print_events(feed, seen, jsonl)
            if not follow:
                return ExitCode.OK
            await asyncio.sleep(interval_s)


def _print_events(feed: Feed, seen: Look, jsonl: bool) -> None:
    if jsonl:
        told = [to_json(row) for row in feed.rows(seen.statuses)]
    else:
        told = feed.lines(compose(seen.statuses))
    if told:
        print("\n".join(told), flush=True)


async def _trace(settings: ClientConfig, what: str, topic: str | None, json: bool) -> int:
    message = read_id(what)
    if message is None and topic is not None:
        raise FlagError(f"--topic is for the id of a message, and {what!r} is none")
    wanted = what if message is None else topic
    ways, answers, picture = Answers((), ()), Answers((), ()), None
    async with connected(settings) as client:
        if wanted is not None:
            ways = await _ask(client, settings, {"look": "way", "topic": wanted})
        if message is None:
            picture = (await look(client, min(settings.timeout_s, SURVEY_S))).picture()
        else:
            answers = await _ask(client, settings, {"look": "message", **message._asdict()})
    return _print_trace(what, ways, answers, picture, json)


def _print_trace(what: str, ways: Answers, answers: Answers, picture: Picture | None, json: bool) -> int:
    if picture is None:
        steps = heard(answers.documents, ways.documents)
    else:
        steps = way(ways.documents, picture, ways.silent)
    silent = dict.fromkeys((*ways.silent, *answers.silent))
    if json:
        document = {
            "traced": what,
            "steps": [step._asdict() for step in steps],
            "brokers": list(ways.documents),
            "messages": list(answers.documents),
            "silent": list(silent),
        }
        print(to_json(document, indent=2))
    else:
        print(printable(what))
        for line in lines(steps):
            print(printable(line))
    _tell_silent(silent)
    return ExitCode.OK
