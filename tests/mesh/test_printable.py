"""Text from others cannot affect the terminal or the log that it is printed to."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.logs import FORMAT, ForeignText, PeopleFormatter, log
from mesh.printable import listed, printable, printable_document, shortened

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\u202egnp\u2028\udcff\x9b31m"


def test_control_and_bidirectional_characters_are_escaped() -> None:
    assert printable("a\x1b[2Jb\r\n\tc") == "a\\x1b[2Jb\\r\\n\\tc"
    assert printable("\u202egnp.exe") == "\\u202egnp.exe"
    assert printable("\x9b31m") == "\\x9b31m" and printable("\udcff") == "\\udcff"


@given(st.text(alphabet=st.characters()))
def test_every_text_becomes_printable_and_printable_text_stays(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert printable(text) == text


def test_a_document_is_made_printable_with_its_keys() -> None:
    document = {HOSTILE: [HOSTILE, 1, None, {"name": HOSTILE}]}
    safe = printable_document(document)
    ((key, (first, number, nothing, inner)),) = safe.items()
    assert key == first == inner["name"] == printable(HOSTILE)
    assert (number, nothing) == (1, None)


def test_a_document_may_be_nested_as_deep_as_a_peer_likes() -> None:
    deep: object = "end"
    for _ in range(100_000):
        deep = [deep]
    assert str(printable_document(deep)).count("[") == 32


def test_a_record_of_the_mesh_has_no_control_characters_in_any_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "mesh"):
        log.warning("link to %s dropped after %d s: %s", HOSTILE, 3, ValueError(HOSTILE))
        log.warning("%r is %.1f", HOSTILE, 0.25)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.isprintable() and second.isprintable()
    assert first == f"link to {printable(HOSTILE)} dropped after 3 s: {printable(HOSTILE)}"
    assert second.endswith(" is 0.2")


def test_the_log_of_a_command_escapes_all_messages_but_no_tracebacks() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PeopleFormatter(FORMAT))
    other = logging.getLogger("tests.other")
    other.addHandler(handler)
    other.propagate = False
    try:
        other.warning("%s", HOSTILE)
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            other.exception("a bug")
    finally:
        other.removeHandler(handler)
        other.propagate = True
    first, rest = stream.getvalue().split("\n", 1)
    assert first.isprintable() and "\\x1b]0;owned" in first
    assert rest.splitlines()[1] == "Traceback (most recent call last):"


def test_the_filter_is_installed_once() -> None:
    assert sum(isinstance(each, ForeignText) for each in log.filters) == 1


def test_a_long_text_and_a_long_list_are_cut_where_a_sentence_repeats_them() -> None:
    assert shortened("x" * 250) == "x" * 250 and shortened("x" * 251) == "x" * 250 + "..."
    assert shortened("abc", 2) == "ab..."
    assert (listed([]), listed(["a"]), listed(list("abcde"))) == ("", "a", "a, b, c, d, e")
    assert listed(list("abcdef")) == "a, b, c, d, e and 1 more"
    assert len(listed(["x" * 10_000] * 80_000)) < 1400
