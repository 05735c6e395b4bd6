"""Keys: what they do to the view, the choice, the order and the filter; and how they come from bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.console.control import FILTER_MAX, METRICS, VIEW_KEYS, Control, Listing, View
from mesh.console.keys import keys_in

ROWS = Listing(tuple(f"row-{number}" for number in range(30)), ("broker", "rtt", "drop"), 10)


def pressed(*keys: str, listing: Listing = ROWS) -> Control:
    control = Control()
    for key in keys:
        control.press(key, listing)
    return control


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (("down",), 0),
        (("up",), 29),
        (("j", "j", "k"), 0),
        (("end", "down"), 29),
        (("down", "pagedown", "pagedown"), 20),
        (("end", "pageup", "home", "up"), 0),
        (("pagedown",), 0),
    ],
)
def test_arrows_choose_a_row(keys: tuple[str, ...], chosen: int) -> None:
    control = pressed(*keys)
    assert control.chosen[View.MESH] == f"row-{chosen}" and control.place(ROWS.ids) == chosen


def test_the_choice_moves_from_a_removed_row_and_an_empty_list_has_none() -> None:
    control = pressed("down", "enter")
    assert control.details
    assert control.place(ROWS.ids[1:]) is None
    control.press("escape", ROWS)
    control.press("enter", Listing(ROWS.ids[1:]))
    assert not control.details, "there is nothing to show"
    assert pressed("down", "enter", listing=Listing()).chosen == {}


def test_each_view_has_its_own_choice_and_escape_leads_back() -> None:
    control = pressed("down", "l", "down", "down", "enter")
    assert control.view is View.LINKS and control.details
    assert control.chosen == {View.MESH: "row-0", View.LINKS: "row-1"}
    control.press("escape", ROWS)
    assert not control.details and control.view is View.LINKS
    control.press("escape", ROWS)
    assert control.view is View.LINKS and View.LINKS not in control.chosen
    control.press("escape", ROWS)
    assert control.view is View.MESH
    assert [pressed(key).view for key in VIEW_KEYS] == list(VIEW_KEYS.values())
    assert not pressed("t", "down", "enter").details, "a pattern has no details"


def test_sorting_goes_through_the_columns_and_round() -> None:
    assert pressed("s").order == {View.MESH: ("rtt", True)}, "of figures the largest first"
    assert pressed("s", "s", "s").order == {View.MESH: ("broker", False)}
    assert pressed("S").order == {View.MESH: ("drop", True)}
    assert pressed("s", "r").order == {View.MESH: ("rtt", False)}
    assert pressed("r").order == {View.MESH: ("broker", True)}
    assert pressed("s", listing=Listing()).order == {}
    assert pressed("x", "s").metric == METRICS[1] and pressed("x", "s", "s", "s").metric == METRICS[0]


def test_keys_are_text_while_a_filter_is_typed() -> None:
    control = pressed("/", "q", "?", "m", "backspace")
    assert control.filter == "q?" and control.typing and not control.quits and not control.help
    control.press("enter", ROWS)
    control.press("escape", ROWS)
    assert control.filter == "" and not control.typing
    assert pressed("/", "a", "escape").filter == ""
    assert len(pressed("/", *"x" * 100).filter) == FILTER_MAX
    assert pressed("/", "up").filter == "", "an arrow is no text"


def test_help_is_left_by_any_key_and_q_quits() -> None:
    assert pressed("?").help
    control = pressed("?", "l")
    assert not control.help and control.view is View.MESH
    assert pressed("q").quits and pressed("?", "q").quits


KEYS = [
    "up",
    "down",
    "home",
    "end",
    "pageup",
    "pagedown",
    "enter",
    "escape",
    "backspace",
    *"mlxctesSr/?jk ab",
]


@given(st.lists(st.sampled_from(KEYS)), st.integers(0, 5))
def test_no_keys_lead_to_an_invalid_state(keys: list[str], count: int) -> None:
    listing = Listing(ROWS.ids[:count], ROWS.columns if count % 2 else (), max(1, count))
    control = pressed(*keys, listing=listing)
    assert control.place(listing.ids) is None or 0 <= (control.place(listing.ids) or 0) < count
    assert all(column in listing.columns for column, _ in control.order.values())
    assert not control.quits and len(control.filter) <= FILTER_MAX


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[Bj\x1bOH\x1b[6~", ["up", "down", "j", "home", "pagedown"]),
        (b"\x1b", ["escape"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b[1;5A", []),
        (b"\x1b[200~", []),
        (b"\x1b[", []),
        (b"\r\x7f\x04", ["enter", "backspace", "q"]),
        ("ü/日".encode(), ["ü", "/", "日"]),
        (b"\xff\xc3\x00\x07a", ["a"]),
    ],
)
def test_keys_of_bytes(data: bytes, keys: list[str]) -> None:
    assert keys_in(data) == keys


@given(st.binary(max_size=200))
def test_any_bytes_of_a_terminal_are_read_to_the_end(data: bytes) -> None:
    assert all((len(key) == 1 and key.isprintable()) or key.isalpha() for key in keys_in(data))
