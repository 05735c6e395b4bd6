"""``mesh pub | sub | request | survey``: messages from a shell, through any running broker.

Standard output carries bodies, answers and receipts, one a line. Standard error names silent brokers and
tells what went wrong. ``--count`` and ``--timeout`` end a stream.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.gaps import Gaps
from mesh.cli.lines import LineReader, LineTooLong
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Count, Seconds, connected
from mesh.clients.messages import Delivery
from mesh.clients.questions import Answer, SurveyResult
from mesh.config import ClientConfig
from mesh.errors import MeshError
from mesh.printable import printable
from mesh.topics import check_pattern, check_public_topic, check_topic
from mesh.wire.blocks import BODY_MAX
from mesh.wire.session_frames import Receipt

Body = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
File = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Header = Annotated[list[str] | None, Parameter(name=["--header", "-H"])]


def pub(
    topic: str,
    body: Body = None,
    /,
    *,
    file: File = None,
    header: Header = None,
    level: Literal["sent", "accepted", "stored", "outbox"] | None = None,
    outbox: str | None = None,
    json: bool = False,
    timeout: float | None = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Publish a message and print its receipt.

    Parameters
    ----------
    topic
        Where it goes, such as news.uk.
    body
        The message; without one it is empty. A single - publishes each line of standard input.
    file
        Publish the content of this file as one message (- is standard input).
    header
        KEY=VALUE to go with the message; may be repeated.
    level
        What a success is worth: sent, accepted (default), stored or outbox.
    outbox
        Keep the message in this file, at level outbox, until it is stored; exit code 75 if it is not yet.
    json
        Print receipts as JSON.
    timeout
        Seconds to wait for the broker.
    """
    check_public_topic(topic)
    settings = flags.settings(timeout)
    headers = _headers(header or [])
    how = level or ("accepted" if outbox is None else "outbox")
    if (how == "outbox") != (outbox is not None):
        raise CommandFailed(ExitCode.USAGE, "--outbox PATH and level outbox go together")
    if outbox == "":
        raise CommandFailed(ExitCode.USAGE, "--outbox is empty; it is the path of a file")
    if file is not None and body is not None:
        raise CommandFailed(ExitCode.USAGE, "give a body or --file, not both")
    if body == "-":
        return asyncio.run(_publish_lines(settings, topic, how, headers, json, outbox))
    payload = _file(file) if file is not None else (body or "").encode("utf-8", "surrogateescape")
    return asyncio.run(_publish(settings, topic, payload, how, headers, json, outbox))


def sub(
    *patterns: str,
    count: Count = None,
    timeout: Seconds | None = None,
    raw: bool = False,
    json: bool = False,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Subscribe, and print each message as topic, space, body.

    Parameters
    ----------
    patterns
        What to subscribe to: news.uk, news.* (one token), news.# (any number of them).
    count
        End after this many messages.
    timeout
        End after this many seconds; exit code 75 if --count was not reached by then.
    raw
        Print bodies only, byte for byte, each followed by a line feed.
    json
        Print one JSON object a line: topic, body (or body_base64) and headers.
    """
    if not patterns:
        raise CommandFailed(
            ExitCode.USAGE, "say what to subscribe to: a pattern such as news.#, or # for all"
        )
    if raw and json:
        raise CommandFailed(ExitCode.USAGE, "give --raw or --json, not both")
    settings = flags.settings()
    show = _shown_as_json if json else _shown_raw if raw else _shown_as_text
    for pattern in patterns:
        check_pattern(pattern)
    return asyncio.run(_subscribe(settings, patterns, count, timeout, show))


def request(
    topic: str,
    body: Body = None,
    /,
    *,
    header: Header = None,
    timeout: float | None = None,
    json: bool = False,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Ask one subscriber that answers on a topic, the nearest first, and print its answer.

    Parameters
    ----------
    topic
        What to ask about.
    body
        The question.
    header
        KEY=VALUE to go with it; may be repeated.
    timeout
        Seconds to wait for the answer; exit code 75 when they are over, 69 at once if nobody answers there.
    json
        Print the answer as JSON.
    """
    settings = flags.settings(timeout)
    question = (body or "").encode("utf-8", "surrogateescape")
    check_topic(topic)
    return asyncio.run(_request(settings, topic, question, _headers(header or []), json))


def survey(
    topic: str,
    body: Body = None,
    /,
    *,
    header: Header = None,
    deadline: Seconds = 1.0,
    json: bool = False,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Ask all subscribers that answer on a topic; print the answers and name the missing.

    Parameters
    ----------
    topic
        What to ask about.
    body
        The question.
    header
        KEY=VALUE to go with it; may be repeated.
    deadline
        Seconds within which answers count; exit code 75 if one that was asked stayed silent.
    json
        Print one JSON document: answers, missing, late.
    """
    settings = flags.settings()
    question = (body or "").encode("utf-8", "surrogateescape")
    check_topic(topic)
    return asyncio.run(_survey(settings, topic, question, _headers(header or []), deadline, json))


async def _publish(
    settings: ClientConfig,
    topic: str,
    payload: bytes,
    level: str,
    headers: dict[str, str],
    json: bool,
    outbox: str | None,
) -> int:
    async with connected(settings, outbox) as client, _judged():
        receipt = await client.publish(
            topic, payload, level=level, headers=headers or None, timeout=settings.timeout_s
        )
        print(receipt_line(topic, receipt, json), flush=True)
        if outbox is not None:
            await client.drained(settings.timeout_s)
    return ExitCode.OK


async def _publish_lines(
    settings: ClientConfig,
    topic: str,
    level: str,
    headers: dict[str, str],
    json: bool,
    outbox: str | None,
) -> int:
    """Publish all lines of a read as one batch with one receipt; a slow source makes small batches."""
    async with connected(settings, outbox) as client, _judged():
        async for lines in LineReader(sys.stdin.fileno()):
            if headers:
                # Headers belong to one message: these lines are published, and acknowledged, one by one.
                for line in lines:
                    receipt = await client.publish(
                        topic, line, level=level, headers=headers, timeout=settings.timeout_s
                    )
                    print(receipt_line(topic, receipt, json), flush=True)
            else:
                receipt = await client.publish_many(topic, lines, level=level, timeout=settings.timeout_s)
                print(receipt_line(topic, receipt, json), flush=True)
        if outbox is not None:
            await client.drained(settings.timeout_s)
    return ExitCode.OK


async def _subscribe(
    settings: ClientConfig,
    patterns: tuple[str, ...],
    count: int | None,
    timeout_s: float | None,
    show: Callable[[Delivery], bytes],
) -> int:
    left, subscribed = count, False
    try:
        async with asyncio.timeout(timeout_s), connected(settings) as client:
            async with client.subscribe(*patterns) as subscription:
                subscribed = True
                _say_subscribed(patterns, subscription.unreached)
                with Gaps(subscription) as gaps:
                    async for batch in subscription.batches():
                        lines = [show(delivery) for delivery in islice(batch.deliveries(), left)]
                        gaps.tell()
                        sys.stdout.buffer.write(b"".join(lines))
                        sys.stdout.buffer.flush()
                        if left is not None and (left := left - len(lines)) <= 0:
                            break
    except MeshError:
        raise  # the client's own timeout is one of these
    except TimeoutError:
        if timeout_s is None:
            raise
        if not subscribed:
            raise CommandFailed(
                ExitCode.TIMEOUT, f"no broker had confirmed the subscription within {timeout_s:g} s"
            ) from None
        if left is not None:
            raise CommandFailed(
                ExitCode.TIMEOUT, f"{(count or 0) - left} of {count} messages came within {timeout_s:g} s"
            ) from None
    return ExitCode.OK


@asynccontextmanager
async def _judged() -> AsyncIterator[None]:
    """Turn a client's error about a message that cannot be sent at all into one about the user's input."""
    try:
        yield
    except (MeshError, LineTooLong):
        raise
    except ValueError as error:
        raise CommandFailed(ExitCode.BAD_DATA, str(error)) from error


def _say_subscribed(patterns: tuple[str, ...], unreached: Sequence[str]) -> None:
    print(f"mesh sub: subscribed to {' '.join(patterns)}", file=sys.stderr, flush=True)
    if unreached:
        names = printable(", ".join(unreached))
        print(f"mesh sub: not known yet at {names}", file=sys.stderr, flush=True)


async def _request(
    settings: ClientConfig, topic: str, question: bytes, headers: dict[str, str], json: bool
) -> int:
    async with connected(settings) as client, _judged():
        answer = await client.request(topic, question, headers=headers or None, timeout=settings.timeout_s)
    line = to_json({"topic": topic, **described(answer, None)}).encode() if json else answer
    sys.stdout.buffer.write(line + b"\n")
    return ExitCode.OK


async def _survey(
    settings: ClientConfig,
    topic: str,
    question: bytes,
    headers: dict[str, str],
    deadline_s: float,
    json: bool,
) -> int:
    async with connected(settings) as client, _judged():
        result = await client.survey(topic, question, headers=headers or None, deadline=deadline_s)
    if json:
        print(to_json(survey_document(result)))
    else:
        for answer in result.answers:
            name = printable(f"{answer.broker}/{answer.responder}")
            sys.stdout.buffer.write(f"{name} ".encode() + answer.body + b"\n")
    sys.stdout.buffer.flush()
    if result.refused and not (result.asked or result.answers or result.missing):
        raise CommandFailed(ExitCode.FAILED, f"nobody was asked, {result.refused[0]}")
    for refusal in result.refused:
        print(printable(f"mesh survey: refused by {refusal}"), file=sys.stderr)
    if result.missing:
        names = ", ".join(result.missing)
        raise CommandFailed(ExitCode.TIMEOUT, f"no answer within {deadline_s:g} s from {names}")
    if not result.answers and not result.refused:
        raise CommandFailed(ExitCode.UNAVAILABLE, f"nobody answers on {topic}")
    return ExitCode.OK


def receipt_line(topic: str, receipt: Receipt, json: bool) -> str:
    """A receipt in the words a stock client gets, or as JSON."""
    if json:
        return to_json({"topic": topic, **msgspec.structs.asdict(receipt)})
    words = [receipt.level, f"topic={topic}", f"broker={receipt.broker or '-'}"]
    if receipt.seq:
        words.append(f"seq={receipt.seq}")
    if receipt.count != 1:
        words.append(f"count={receipt.count}")
    if receipt.homes:
        words.append(f"homes={','.join(receipt.homes)}")
    if receipt.absent:
        words.append(f"absent={','.join(receipt.absent)}")
    return printable(" ".join(words))


def described(body: bytes, headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """A message for JSON: text as text, anything else in base64."""
    out: dict[str, Any] = {}
    try:
        out["body"] = body.decode()
    except UnicodeDecodeError:
        out["body_base64"] = base64.b64encode(body).decode()
    if headers:
        out["headers"] = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in headers.items()
        }
    return out


def survey_document(result: SurveyResult) -> dict[str, Any]:
    def answers(given: Sequence[Answer]) -> list[dict[str, Any]]:
        return [
            {"broker": one.broker, "responder": one.responder, **described(one.body, one.headers)}
            for one in given
        ]

    return {
        "asked": result.asked,
        "answers": answers(result.answers),
        "missing": result.missing,
        "late": answers(result.late),
        "refused": result.refused,
    }


def _shown_as_text(delivery: Delivery) -> bytes:
    return f"{delivery.topic} ".encode() + delivery.body + b"\n"


def _shown_raw(delivery: Delivery) -> bytes:
    return delivery.body + b"\n"


def _shown_as_json(delivery: Delivery) -> bytes:
    document = {"topic": delivery.topic, **described(delivery.body, delivery.headers)}
    return to_json(document).encode() + b"\n"


def _headers(given: list[str]) -> dict[str, str]:
    headers = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandFailed(ExitCode.USAGE, f"--header {item!r} is not KEY=VALUE")
        headers[key] = value
    return headers


def _file(path: str) -> bytes:
    """The content of a file, but no more than a message may have: a device may have no end."""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(BODY_MAX + 1)
        else:
            with open(path, "rb") as file:
                body = file.read(BODY_MAX + 1)
    except IsADirectoryError:
        raise CommandFailed(ExitCode.NO_INPUT, f"--file {path} is a folder; name a file") from None
    if len(body) > BODY_MAX:
        sentence = f"--file {path} has more than the {BODY_MAX} bytes that a message may have"
        raise CommandFailed(ExitCode.BAD_DATA, sentence)
    return body
