"""When a dialer tries again, and its warnings meanwhile."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.dial_schedule import DialSchedule, backoff_s, is_lasting
from protocols.errors import AddressError, HandshakeError, PipeRefused, Timeout, TlsConfigError


@given(st.integers(0, 2000), st.floats(0.001, 10), st.floats(0, 100), st.integers())
def test_a_pause_lies_in_the_upper_half_of_its_ceiling(
    attempt: int, minimum_s: float, maximum_s: float, seed: int
) -> None:
    pause_s = backoff_s(attempt, minimum_s, maximum_s, random.Random(seed))
    assert minimum_s / 2 <= pause_s <= max(minimum_s, maximum_s)


def test_pauses_double_up_to_the_maximum() -> None:
    class Highest(random.Random):
        def random(self) -> float:
            return 1.0

    assert [backoff_s(i, 0.1, 1.0, Highest()) for i in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [backoff_s(i, 0.1, 0.0, Highest()) for i in range(3)] == [0.1, 0.1, 0.1]


# --- failures that last


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (HandshakeError("x", reason="wrong protocol"), True),
        (HandshakeError("x", reason="not SP"), True),
        (HandshakeError("x", reason="TLS on a plain address"), True),
        (HandshakeError("x", reason="tls: untrusted certificate"), True),
        (HandshakeError("x", reason="websocket: subprotocol"), True),
        (TlsConfigError("x"), True),
        (HandshakeError("x", reason="closed"), False),
        (HandshakeError("x", reason="timeout"), False),
        (HandshakeError("x", reason="websocket: refused"), False),
        (AddressError("x"), False),
        (Timeout("x"), False),
        (PipeRefused("x"), False),
    ],
)
def test_failures_that_last_until_one_end_is_changed(error: AddressError, lasting: bool) -> None:
    assert is_lasting(error) == lasting


# --- a dialer's rounds


REFUSED = AddressError("nobody listens")
WRONG = HandshakeError("the peer is pull0", reason="wrong protocol")


def schedule() -> DialSchedule:
    return DialSchedule("tcp://there", 0.1, 10.0, random.Random(1))


def test_the_pause_grows_with_each_failure_and_a_lasting_one_has_the_longest_at_once() -> None:
    grows = schedule()
    ceilings = [0.1, 0.2, 0.4, 0.8]
    for ceiling in ceilings:
        pause_s, _ = grows.failed(REFUSED)
        assert ceiling / 2 <= pause_s <= ceiling
    pause_s, sentence = schedule().failed(WRONG)
    assert 5.0 <= pause_s <= 10.0
    assert sentence == (
        "dialling tcp://there failed: the peer is pull0; one of the two ends must be changed, the next "
        "attempts are 10 s apart"
    )


def test_a_reason_is_reported_once_until_it_changes_or_a_pipe_lasted() -> None:
    told = schedule()
    assert told.failed(REFUSED)[1] and told.failed(WRONG)[1] and told.failed(REFUSED)[1]
    assert not told.failed(REFUSED)[1]
    assert told.ended(1000.0, "closed by the peer")[1] == ""
    assert told.failed(REFUSED)[1]


def test_pipes_that_end_soon_are_reported_from_the_third_on_and_dialled_more_slowly() -> None:
    told = schedule()
    said = [told.ended(0.01, "closed by the peer") for _ in range(5)]
    assert [bool(sentence) for _, sentence in said] == [False, False, True, False, False]
    assert "3 times in a row, now after 0.01 s: closed by the peer" in said[2][1]
    assert said[4][0] > said[0][0]
    pause_s, _ = told.ended(0.5, "closed by the peer")
    assert pause_s > 0.8, "half a second is no life"
    pause_s, _ = told.ended(10.0, "closed by the peer")
    assert pause_s <= 0.1, "a pipe that lived begins anew"


def test_a_pipe_that_lasted_does_not_count_as_ended_soon() -> None:
    """It was counted: the warning said "3 times in a row" after two short lives."""
    told = schedule()
    said = [told.ended(lived_s, "closed by the peer")[1] for lived_s in (3600.0, 0.01, 0.01, 0.01)]
    assert said[:3] == ["", "", ""]
    assert "3 times in a row" in said[3]


def test_a_pipe_lasted_from_ten_shortest_pauses_on() -> None:
    for lived_s, low, high in ((1.0, 0.05, 0.1), (0.99, 0.4, 0.8)):
        told = schedule()
        pause_s = [told.ended(lived_s, "closed by the peer")[0] for _ in range(4)][-1]
        assert low <= pause_s <= high
