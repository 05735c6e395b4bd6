"""Durable subscriptions on the screen and in the report, also where room is short."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from mesh.console.queues import journals_line, queue_report, queues_table
from mesh.console.screen import Screen
from mesh.console.view import status_report
from mesh.picture import compose
from tests.mesh.console.statuses import member, status


def text(renderable: Any, width: int, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, _environ={})
    console.print(renderable, height=height) if isinstance(renderable, Screen) else console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def queue(name: str, waiting: int, **figures: Any) -> dict[str, Any]:
    return {"name": name, "waiting": waiting, "oldest_s": 61.0, "consumers": 2, "in_flight": 1, **figures}


def test_a_narrow_table_keeps_the_most_important_columns() -> None:
    lines = text(queues_table([queue("mail", 1234, home="alpha")], 34), 34)
    assert lines == ["queue     home     waiting oldest", "mail      alpha      1.23k    61s"]


def test_the_queues_with_most_messages_are_shown_when_not_all_fit() -> None:
    lines = text(queues_table([queue(f"q{n}", n) for n in range(9)], 40, rows=4), 40)
    assert [line.split()[0] for line in lines] == ["queue", "q8", "q7", "+7"]


def test_a_long_name_leaves_room_for_the_figures_of_80_columns() -> None:
    """It took 32 of them, and what was delivered again and the dead letters were left out."""
    long = queue("archive of everything that was ever said", 7, home="alpha")
    narrow = text(queues_table([long], 76), 76)
    assert narrow[0].split()[-2:] == ["redeliv", "dead"] and narrow[1].startswith("archive of ever… ")
    wide = text(queues_table([long], 160), 160)
    assert wide[0].split()[-1] == "retried" and wide[1].startswith("archive of everything that was …")


def test_journals_are_one_line_of_duplicates_and_the_slowest_commits() -> None:
    """The console told nothing of them."""
    alpha = {"duplicates": 1, "commit_ms_p50": 1.5, "commit_ms_p99": 7.25}
    beta = {"duplicates": 2, "commit_ms_p50": 0.5, "commit_ms_p99": 12.0}
    assert journals_line([("alpha", alpha)]) == "1 duplicate, commits p50 1.50 ms, p99 7.25 ms"
    both = journals_line([("alpha", alpha), ("be\x1bta", beta)])
    assert both == "3 duplicates, commits p50 1.50 ms, p99 12 ms at be\\x1bta"
    assert journals_line([]) == ""
    assert journals_line([("old", {"duplicates": "?"})]) == "0 duplicates, commits p50 - ms, p99 - ms"


def test_a_count_of_one_is_in_the_singular() -> None:
    lines = "\n".join(text(queue_report(queue("mail", 1, home="alpha") | {"consumers": 1}, 80), 80))
    assert "1 message," in lines and "1 at 1 consumer\n" in lines


def test_damage_and_late_settlements_are_shown_only_if_there_are_any() -> None:
    lines = "\n".join(text(queue_report(queue("mail", 1, home="alpha", damaged=0, in_vain=0), 80), 80))
    assert "damaged" not in lines and "in vain" not in lines
    lines = "\n".join(text(queue_report(queue("mail", 1, damaged=2, unreadable=7, in_vain=3), 80), 80))
    assert "2 blocks; 7 messages could not be read again" in lines and "3 messages were settled" in lines


def test_words_of_others_cannot_move_the_cursor() -> None:
    lines = text(queues_table([queue("a\x1b[2Jb", 1, home="x\ny")], 60), 60)
    assert len(lines) == 2 and "\\x1b[2Jb" in lines[1]
    assert "\x1b" not in "".join(text(queue_report(queue("a\x1bb", 1, patterns=["\x1b"]), 80), 80))


def test_unknown_values_are_a_dash_and_malformed_figures_a_question_mark() -> None:
    lines = text(queues_table([{"name": "mail", "waiting": "many", "oldest_s": None}], 120), 120)
    assert lines[1].split()[:3] == ["mail", "?", "-"]


def test_the_screen_of_80_columns_has_queues_and_warns_of_two_homes() -> None:
    one = status("alpha", [member("alpha", is_self=True)])
    one["queues"] = [queue(f"q{n}", n) for n in range(20)]
    one["queues_twice"] = {"mail": ["alpha", "beta"]}
    one["journal"] = {"failing": "the disk failed", "stored": 1}
    screen = text(Screen(compose([one])), 80)
    assert len(screen) == 24 and all(len(line) <= 80 for line in screen)
    shown = "\n".join(screen)
    assert "0 duplicates, commits p50 - ms" in shown
    assert "durable subscriptions" in shown and "q19" in shown and "+18 more" in shown and "alpha" in shown
    report = "\n".join(text(status_report(compose([one]), one, 120), 120))
    assert "durable subscription mail has homes at alpha, beta; remove one" in report
    assert "alpha: stores no messages: the disk failed" in report and "q19" in report


def test_a_broker_of_an_earlier_version_has_no_queues() -> None:
    picture = compose([status("alpha", [member("alpha", is_self=True)])])
    assert picture.queues == () and picture.twice == ()
