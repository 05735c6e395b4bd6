"""The views of `mesh top` at the sizes people use, also where a terminal can little."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from mesh.console.control import HELP, SHORT_HELP, Control
from mesh.console.history import History
from mesh.console.screen import Asked, Screen
from mesh.console.signs import ASCII, UNICODE, Signs
from mesh.picture import Picture, compose
from tests.mesh.console import statuses
from tests.mesh.console.scenes import CLIENTS, SCENES, STATES, drawn, forty, seen

SIZES = [(20, 8), (20, 24), (40, 10), (80, 24), (100, 30), (132, 43), (200, 60)]
TOPICS = [
    {
        "id": "1",
        "broker": "alpha",
        "topics": [{"pattern": f"t.{n}", "listen": n, "answer": 0} for n in range(40)],
    }
]


def frame(
    picture: Picture,
    keys: str | tuple[str, ...] = (),
    width: int = 80,
    height: int = 24,
    *,
    past: History | None = None,
    signs: Signs = UNICODE,
    asked: Asked | None = None,
    colours: bool = False,
) -> list[str]:
    control = Control()
    for key in keys:
        screen = Screen(picture, "09:00:00Z", "", signs, past, control=control, asked=asked)
        control.press(key, screen.listing(width, height))
    screen = Screen(picture, "09:00:00Z", "", signs, past, control=control, asked=asked)
    environ = {"NO_COLOR": "1", "TERM": "xterm"}
    console = Console(
        file=StringIO(),
        width=width,
        height=height,
        _environ=environ,
        legacy_windows=False,
        force_terminal=colours,
    )
    console.print(screen, height=height)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip("\n").split("\n")


VIEWS = {
    "mesh": "",
    "broker": ("down", "down", "enter"),
    "links": "l",
    "link": ("l", "end", "enter"),
    "matrix": "x",
    "clients": "c",
    "client": ("c", "down", "enter"),
    "topics": "t",
    "events": "e",
    "help": "?",
}


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_every_view_fits_every_terminal(width: int, height: int, signs: Signs) -> None:
    for state in (statuses.calm, statuses.after_a_kill, statuses.split):
        picture = compose(state())
        for view, keys in VIEWS.items():
            asked = Asked(TOPICS if view == "topics" else CLIENTS)
            lines = frame(picture, keys, width, height, signs=signs, asked=asked)
            assert len(lines) <= height and max(map(len, lines)) <= width, view
            if signs is ASCII:
                assert "\n".join(lines).isascii(), f"{view} of a terminal without UTF-8"


def test_a_screen_of_twenty_columns_names_the_dead_broker() -> None:
    lines = frame(compose(statuses.after_a_kill()), "", 20, 12)
    text = "\n".join(lines)
    assert "beta" in text and "✕ dead" in text and "beta is dead or cut" in text
    assert lines[0].startswith("✕ 1 dead"), "the states come before the name, which may be cut off"
    assert not set(text) & set("╭│╯"), "there is no room for frames"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_the_help_can_be_read_in_every_terminal(width: int) -> None:
    """At twenty columns each explanation was cut to its first letter."""
    shown = frame(compose(statuses.calm()), "?", width, 24)
    assert not any("…" in line for line in shown[2:-1]), shown
    text = "\n".join(shown)
    assert len(SHORT_HELP) == len(HELP)
    assert all(said in text for _, said in (HELP if width == 80 else SHORT_HELP))


def test_a_chosen_row_is_visible_without_colour() -> None:
    lines = frame(compose(statuses.calm()), ("down", "down"), colours=True)
    (chosen,) = [line for line in lines if "beta" in line and "\x1b[7m" in line]
    assert "\x1b[3" not in chosen and "\x1b[4" not in chosen, "reverse, without a colour"


def test_sixteen_brokers_are_scrolled_through_at_80x24() -> None:
    """Those that did not fit could not be seen at all."""
    picture = compose(statuses.crowd(16))
    first = "\n".join(frame(picture, ("down",)))
    assert "broker-00" in first and "broker-15" not in first and "1-10 of 16" in first
    last = "\n".join(frame(picture, ("end",)))
    assert "broker-15" in last and "11-16 of 16" in last
    seen_names = {
        name
        for steps in range(1, 17)
        for line in frame(picture, ("down",) * steps)
        for name in line.split()
        if name.startswith("broker-")
    }
    assert {f"broker-{number:02}" for number in range(16)} <= seen_names


def test_rows_are_sorted_and_filtered() -> None:
    answers = statuses.calm()
    for number, answer in enumerate(answers):
        answer["rates"] = answer["rates"] | {"msgs_in_s": 100.0 * number}
    lines = frame(compose(answers), ("s", "s", "s"))
    names = [line.split("││ ")[1].split()[0] for line in lines if "● alive" in line[32:]]
    assert names == ["epsilon", "delta", "gamma", "beta", "alpha"]
    filtered = "\n".join(frame(compose(answers), ("/", "g", "a", "m", "enter")))
    assert "filter: gam" in filtered and "gamma" in filtered
    assert "filter: gam_" in "\n".join(frame(compose(answers), ("/", "g", "a", "m")))


def test_a_broker_has_its_last_minutes_and_its_links() -> None:
    picture, past = seen("overload")
    text = "\n".join(frame(picture, ("end", "enter"), 100, 40, past=past))
    assert "broker            gamma (" in text and "400      most 400" in text and "journal 86 % full" in text
    assert "▁▁" in text and "█" in text and "delta - gamma" in text
    letters = "\n".join(frame(picture, ("end", "enter"), 100, 40, past=past, signs=ASCII))
    assert "@@" in letters


def test_a_link_that_was_lost_leaves_a_gap() -> None:
    picture, past = seen("partition")
    text = "\n".join(frame(picture, ("l", "end", "enter"), 100, 30, past=past))
    assert "link              " in text and "up" in text
    assert any(sample.rtt_ms is None for sample in past.links[min(past.links)]) or past.links


def test_a_choice_that_goes_leaves_the_list() -> None:
    control = Control()
    full, fewer = (
        compose(statuses.calm()),
        compose([statuses.status("alpha", [statuses.member("alpha", is_self=True)])]),
    )
    for key in ("end", "enter"):
        control.press(key, Screen(full, control=control).listing(80, 24))
    console = Console(file=StringIO(), width=80, height=24, _environ={})
    console.print(Screen(fewer, control=control), height=24)
    assert isinstance(console.file, StringIO)
    assert "alpha" in console.file.getvalue()


def test_the_matrix_marks_missing_links_and_changes_its_figure() -> None:
    picture = compose(forty(10))
    text = "\n".join(frame(picture, "x", 120, 60))
    assert text.count("✕") == 5, "two missing links from both ends, and the legend"
    assert "round trip: ▁ 0 to █" in text
    assert "loss: " in "\n".join(frame(picture, "xs", 120, 60))
    assert "rate: " in "\n".join(frame(picture, "xss", 120, 60))
    assert "✕ no link; 30 rows more " in "\n".join(frame(picture, "x", 100, 18))
    assert "✕ no link; 2 columns more" in "\n".join(frame(picture, "x", 60, 60))


def test_clients_and_topics_wait_for_answers() -> None:
    picture = compose(statuses.calm())
    assert "asking all brokers ..." in "\n".join(frame(picture, "c"))
    text = "\n".join(frame(picture, "c", 120, 30, asked=Asked(CLIENTS)))
    assert "gateway-3" in text and "20 clients" in text
    one = "\n".join(frame(picture, ("c", "down", "enter"), asked=Asked(CLIENTS)))
    assert "client            desk-2 at alpha" in one and "telemetry.#" in one
    topics = "\n".join(frame(picture, "t", asked=Asked(TOPICS)))
    assert "t.10" in topics and "40 topics" in topics and "1-17 of 40" in topics


def test_the_pictures_of_the_docs_can_be_made() -> None:
    assert set(STATES) <= {state for state, *_ in SCENES.values()}
    assert drawn("death", 80, 24).startswith("<svg")
