"""The log of a command: one fact on each line, as text or JSON, with repeats counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest

from mesh.logs import FORMAT, CalmHandler, JsonFormatter, PeopleFormatter, life, log
from tests.mesh.test_printable import HOSTILE


@contextmanager
def written(form: type[logging.Formatter]) -> Iterator[tuple[CalmHandler, Callable[[], list[str]]]]:
    """A handler of the logger, and its lines so far."""
    stream = StringIO()
    handler = CalmHandler(stream)
    handler.setFormatter(form() if form is JsonFormatter else form(FORMAT))
    log.addHandler(handler)
    try:
        yield handler, lambda: stream.getvalue().splitlines()
    finally:
        log.removeHandler(handler)
        handler.close()


def objects(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_every_record_is_one_object_on_one_line() -> None:
    with written(JsonFormatter) as (_, lines):
        log.warning(
            "the link to %s is lost: %s", HOSTILE, "reset", extra={"broker": "alpha", "kind": "links"}
        )
        life.info("%s", "alpha is ready\n")
        try:
            raise RuntimeError("broken\nin two")
        except RuntimeError:
            log.exception("a bug")
        first, ready, bug = objects(lines())
    assert first["level"] == "warning" and first["logger"] == "mesh" and first["ts"].endswith("Z")
    assert first["message"].isprintable() and first["message"].endswith("is lost: reset")
    assert (first["broker"], first["kind"]) == ("alpha", "links")
    assert ready["level"] == "info" and ready["message"] == "alpha is ready\\n"
    assert "RuntimeError: broken\nin two" in bug["traceback"]


def test_text_lines_have_the_time_in_utc_except_a_commands_own_messages() -> None:
    with written(PeopleFormatter) as (_, lines):
        log.warning("no link")
        life.info("%s", "alpha is ready")
        first, second = lines()
    assert first[10] == "T" and "Z WARNING mesh: no link" in first
    assert second == "mesh broker: alpha is ready"


def test_a_flood_of_one_line_is_one_line_and_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that did the same a thousand times caused a thousand lines."""
    with written(JsonFormatter) as (handler, lines):
        for _ in range(1000):
            log.warning("no link to %s", "beta")
        log.warning("no link to %s", "gamma")
        assert len(lines()) == 2, "another peer is another fact"
        handler.tell_repeats(logging.makeLogRecord({}).created + 3600)
        told = objects(lines())[2]
    assert told["repeated"] == 999 and told["message"].startswith("no link to beta (999 more times in ")
    assert told["level"] == "warning" and told["logger"] == "mesh"


def test_pending_counts_are_reported_at_the_end() -> None:
    with written(PeopleFormatter) as (handler, lines):
        for _ in range(3):
            log.warning("no link")
        handler.close()
        assert lines()[-1].endswith("no link (2 more times in 0 s)")


def test_one_repeat_is_told_in_the_singular() -> None:
    with written(PeopleFormatter) as (handler, lines):
        for _ in range(2):
            log.warning("no link")
        handler.close()
        assert lines()[-1].endswith("no link (once more in 0 s)")


def test_a_traceback_is_never_left_out() -> None:
    with written(JsonFormatter) as (_, lines):
        for _ in range(3):
            log.error("a bug", exc_info=RuntimeError("broken"))
        assert len(lines()) == 3


def test_a_stream_that_is_gone_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = StringIO()
    handler = CalmHandler(stream)
    for _ in range(2):
        handler.emit(logging.makeLogRecord({"msg": "x", "name": "mesh", "levelno": 30}))
    stream.close()
    handler.close()
