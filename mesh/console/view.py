"""A picture as rich renderables and as plain lines: the parts that screens and reports are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from mesh.console.brokers import LATE_WARN_MS, broker_rows, brokers_table
from mesh.console.facts import NARROW, facts
from mesh.console.figures import duration, latency, milliseconds, number
from mesh.console.history import History
from mesh.console.queues import queues_table
from mesh.console.signs import UNICODE, Signs, colour
from mesh.news import News
from mesh.picture import Picture, listed, missing_links, omitted
from mesh.printable import counted, printable_document
from mesh.trouble import BAD, troubles

WIDE: Final = 110
INTEREST_SHOWN: Final = 20
"""Patterns in the report of a status."""


def head(picture: Picture, width: int, signs: Signs = UNICODE, past: History | None = None) -> list[Text]:
    """Two lines: what the mesh is, and what it does."""
    return [_who(picture, width, signs), _does(picture, width, past)]


def _who(picture: Picture, width: int, signs: Signs) -> Text:
    name = Text.assemble(("mesh ", "bold cyan"), (picture.mesh, "bold"))
    brokers = Text(counted(len(picture.nodes), "broker"))
    if picture.unlisted:
        brokers.append(f" and {whole(picture.unlisted)} more", "bold yellow")
    states = [
        Text(f"{signs.of(state)} {count} {state}", colour(state))
        for state in ("alive", "suspect", "dead", "left", "unknown")
        if (count := picture.count(state))
    ]
    # What does not fit is cut off: the states are worth more than the name.
    parts = [name, brokers, *states] if width >= NARROW else [*reversed(states), name, brokers]
    who = Text("  ", no_wrap=True, overflow="ellipsis").join(parts)
    if len(picture.parts) > 1:
        who.append("  ").append(f"split into {len(picture.parts)} parts", "bold white on red")
    connected = next((node for node in picture.nodes if node.connected), None)
    if connected is not None:
        mode = f" {connected.mode.upper()}" if connected.mode not in (None, "ready") else ""
        who.append(f"  via {connected.name}", "bright_black").append(mode, "bold yellow")
    return who


def _does(picture: Picture, width: int, past: History | None) -> Text:
    def total(key: str) -> float:
        return picture.total(key) if past is None else past.total(key)

    does = Text(no_wrap=True, overflow="ellipsis")
    does.append(f"published {number(picture.rate('published_s'))}/s ({number(total('published'))})")
    does.append(f"  delivered {number(picture.rate('delivered_s'))}/s ({number(total('delivered'))})")
    dropping = past is not None and any(past.drops_s.values())
    does.append("  ").append(f"dropped {number(total('dropped'))}", "bold yellow" if dropping else "")
    late = picture.late_ms
    does.append("  ").append(
        f"late {latency(late)}", "bold yellow" if late is not None and late > LATE_WARN_MS else ""
    )
    if width >= WIDE + 20:
        bytes_s = picture.total("bytes_in_s") + picture.total("bytes_out_s")
        does.append(
            f"  all brokers: in {number(picture.rate('msgs_in_s'))}/s"
            f" out {number(picture.rate('msgs_out_s'))}/s {number(bytes_s)}B/s",
            "bright_black",
        )
    return does


def news_lines(
    news: Sequence[News], rows: int, width: int = 200, signs: Signs = UNICODE, cells: int | None = None
) -> list[Text]:
    """The newest events, newest last, one line each. An event that is longer than ``cells`` is told in its
    first shorter form that fits."""
    lines = []
    for item in news[len(news) - rows if rows < len(news) else 0 :]:
        at, by = item.ts[11:19] + " ", _said_by(item.observers, width)
        by = f" {by}" if by else ""
        forms = [text.replace(UNICODE.arrow, signs.arrow) for text in (item.text, *item.shorter)]
        room = cell_len(forms[0]) if cells is None else max(1, cells - cell_len(at + by))
        said = Text(next((form for form in forms if cell_len(form) <= room), forms[-1]), colour(item.state))
        said.truncate(room, overflow="ellipsis")
        line = Text(no_wrap=True, overflow="ellipsis", end="")
        lines.append(line.append(at, "bright_black").append(said).append(by, "bright_black"))
    return lines


def _said_by(observers: Sequence[str], width: int) -> str:
    if width < WIDE:
        return f"x{len(observers)}" if len(observers) > 1 else ""
    more = f" +{len(observers) - 4}" if len(observers) > 4 else ""
    return "seen by " + ", ".join(observers[:4]) + more


def trouble_lines(
    picture: Picture, rows: int, past: History | None = None, width: int | None = None
) -> list[Text]:
    """All that is wrong now, the worst first, in at most so many lines; ``none`` in green if nothing is. With
    a ``width`` long sentences are folded where there is room for that."""
    found = troubles(picture, {} if past is None else past.drops_s, missing_links(picture))
    said = [(trouble.text, "bold red" if trouble.level == BAD else "yellow") for trouble in found]
    said += [
        (f"{node.name}: {_left_out(node.omitted)} cut off", "yellow")
        for node in picture.nodes
        if node.omitted
    ]
    if len(said) > rows == 1:
        said = [(f"1 of {len(said)}: {said[0][0]}", said[0][1])]
    elif len(said) > rows:
        said = [*said[: max(0, rows - 1)], (f"+{len(said) - rows + 1} more", "yellow")]
    if not said:
        return [Text("none", "green")]
    return [
        Text(line, style, no_wrap=True, overflow="ellipsis") for line, style in _folded(said, rows, width)
    ]


def _folded(said: Sequence[tuple[str, str]], rows: int, width: int | None) -> list[tuple[str, str]]:
    """The first sentences in as many lines as they need, for as long as all others have one each."""
    if width is None or width < 10:
        return list(said)
    lines: list[tuple[str, str]] = []
    for place, (text, style) in enumerate(said):
        parts = wrap(text, width, subsequent_indent="  ") or [text]
        left = rows - len(lines) - (len(said) - place - 1)
        lines += [(part, style) for part in parts] if len(parts) <= left else [(text, style)]
    return lines


def counted_lines(picture: Picture) -> list[Text]:
    """Messages dropped and connections refused since the start of each broker, by reason."""
    return [
        Text(f"{number(count)} {what} since the start: {_words(reason)}", "yellow", overflow="ellipsis")
        for what, counts in (("dropped", picture.drops), ("refused", picture.refused))
        for reason, count in counts.items()
    ]


def whole(count: int) -> str:
    """A count in full, thousands apart: 4 312."""
    return f"{count:,}".replace(",", " ")


def _left_out(omitted: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{whole(count)} of {key}" for key, count in omitted)


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def plain_line(picture: Picture, clock: str, past: History | None = None) -> str:
    """The state of the mesh in one line of key=value, for logs and pipes."""

    def total(key: str) -> float:
        return picture.total(key) if past is None else past.total(key)

    states = " ".join(f"{state}={picture.count(state)}" for state in ("alive", "suspect", "dead", "left"))
    late = picture.late_ms
    return (
        f"{clock} mesh={picture.mesh} brokers={len(picture.nodes) + picture.unlisted} {states} "
        f"parts={len(picture.parts)} "
        f"published_s={number(picture.rate('published_s'))} "
        f"delivered_s={number(picture.rate('delivered_s'))} "
        f"published={total('published'):.0f} delivered={total('delivered'):.0f} "
        f"dropped={total('dropped'):.0f} late_ms={'-' if late is None else format(late, '.1f')}"
    )


def plain_news(item: News, signs: Signs = UNICODE) -> str:
    """An event in one line."""
    text = item.text.replace(UNICODE.arrow, signs.arrow)
    return f"{item.ts} {text} (seen by {', '.join(item.observers)})"


def status_report(picture: Picture, status: dict[str, Any], width: int, signs: Signs = UNICODE) -> Group:
    """The report of ``mesh status``: the broker asked, the members in its view, and all trouble."""
    status = printable_document(status)
    does = _does(picture, width, None)
    told = [node.name for node in picture.nodes if node.published is not None]
    if len(told) == 1 and len(picture.nodes) > 1:  # what others' clients do is not in its figures
        does = Text.assemble(f"clients of {told[0]}: ", does)
    top = [_who(picture, width, signs), does]
    for line in top:
        line.no_wrap, line.overflow = False, "fold"
    parts: list[RenderableType] = [*top, Text(), facts(_about(status), width), Text()]
    parts.append(brokers_table(broker_rows(picture), width, len(picture.nodes) + 1, signs))
    if picture.queues:
        parts += [Text(), queues_table(picture.queues, width)]
    wrong = trouble_lines(picture, 20, width=width)
    if wrong[0].plain != "none":
        parts += [Text(), *wrong]
    before = counted_lines(picture)
    if before:
        parts += [Text(), *before]
    return Group(*parts)


def _about(status: dict[str, Any]) -> list[tuple[str, str]]:
    def get(key: str) -> str:
        return str(status.get(key, "?"))

    def _of(noun: str) -> str:
        return counted(status.get(f"{noun}s", "?"), noun)

    lacks = omitted(status)
    taps = len(listed(status, "taps")) + lacks.get("taps", 0)
    interest = _of_clients([str(pattern) for pattern in listed(status, "interest")], get("id"))
    more = len(interest[INTEREST_SHOWN:]) + lacks.get("interest", 0)
    return [
        ("broker", f"{get('name')} ({get('id')}), {get('state')}, incarnation {get('incarnation')}"),
        ("process", f"{get('host')} pid {get('pid')}, version {get('version')}, up {_uptime(status)}"),
        ("listens at", " ".join(str(url) for url in listed(status, "listeners"))),
        ("known as", f"{get('url')} to brokers, {get('client_url')} to clients"),
        ("clients", ", ".join([_of("session"), _of("subscription"), counted(taps, "tap")])),
        (
            "interest",
            " ".join(interest[:INTEREST_SHOWN]) + (f" ... and {whole(more)} more" if more else "") or "none",
        ),
        *_about_journal(status.get("journal")),
        *([("status", f"cut to fit, without {_left_out(lacks.items())}")] if lacks else []),
    ]


def _of_clients(interest: list[str], id: str) -> list[str]:
    """The patterns without the questions that the broker itself answers, such as ``$sys.look``."""
    own = {pattern for pattern in interest if pattern.startswith("$sys.") and pattern.endswith(f".{id}")}
    own |= {pattern.removesuffix(f".{id}") for pattern in own}
    return [pattern for pattern in interest if pattern not in own]


def _about_journal(journal: Any) -> list[tuple[str, str]]:
    if not isinstance(journal, dict):
        return []
    said = ", ".join(
        f"{number(journal.get(key))} {key}" for key in ("stored", "duplicates", "refused", "commits")
    )
    if journal.get("damaged"):
        said += f", {number(journal['damaged'])} damaged"
    p50, p99 = journal.get("commit_ms_p50"), journal.get("commit_ms_p99")
    return [("journal", f"{said} (p50 {milliseconds(p50)} ms, p99 {milliseconds(p99)} ms)")]


def _uptime(status: dict[str, Any]) -> str:
    seconds = status.get("uptime_s")
    return duration(seconds) if isinstance(seconds, int | float) else "?"
