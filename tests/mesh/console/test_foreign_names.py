"""Names with escape sequences in them are shown as what they are, and never reach the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.console.screen import Screen
from mesh.console.signs import ASCII
from mesh.console.view import plain_line, plain_news, status_report
from mesh.picture import compose
from tests.mesh.console import statuses
from tests.mesh.console.test_view import drawn

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\u202egnp\x9b31m\udcff"


def hostile() -> list[dict[str, Any]]:
    """Everything that a broker says in words has an escape sequence in it."""
    found = statuses.after_a_kill()
    for status in found:
        for key in ("mesh", "name", "host", "url", "client_url", "version", "state"):
            status[key] = HOSTILE + str(status[key])
        for member in status["members"]:
            for key in ("name", "host", "url"):
                member[key] = HOSTILE + str(member[key])
        for row in status["events"]:
            for key, value in row.items():
                if isinstance(value, str) and key != "ts":
                    row[key] = HOSTILE + value
        status["listeners"] = [HOSTILE]
        status["interest"] = [HOSTILE] * 3
        status["drops"] = {HOSTILE: 3}
        status["refused"] = {HOSTILE: 4}
        status["omitted"] = {HOSTILE: 5}
    return found


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 15), (132, 43), (200, 60)])
def test_no_name_of_a_broker_can_act_on_the_terminal(width: int, height: int) -> None:
    lines = drawn(Screen(compose(hostile(), silent=(HOSTILE,)), "09:00:00"), width, height)
    assert len(lines) == height and {len(line) for line in lines} == {width}
    assert all(line.isprintable() for line in lines)
    assert "\\x1b]0;" in "\n".join(lines)


def test_plain_lines_with_hostile_names_are_one_line_each() -> None:
    picture = compose(hostile(), silent=(HOSTILE,))
    for line in [plain_line(picture, "09:00:00"), *map(plain_news, picture.news)]:
        assert line.isprintable() and "\\x1b" in line


def test_the_report_of_a_status_shows_foreign_words_escaped() -> None:
    found = hostile()
    lines = drawn(status_report(compose(found, silent=(HOSTILE,)), found[0], 120), 120, 60)
    assert all(line.isprintable() for line in lines)
    text = "\n".join(lines)
    assert "cut to fit, without 5 of" in text


def test_a_console_without_unicode_shows_a_change_of_state_in_ascii() -> None:
    picture = compose(statuses.after_a_kill())
    lines = [plain_news(item, ASCII) for item in picture.news]
    assert any("suspect -> dead" in line for line in lines) and all(line.isascii() for line in lines)
    assert "suspect -> dead" in "\n".join(drawn(Screen(picture, signs=ASCII)))
