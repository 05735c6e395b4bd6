"""Why a member was reported dead. Each rule is tried with the rest of the story unchanged."""

from __future__ import annotations

import pytest

from mesh.analysis.opinions.causes import Death, Silence, Stretch, cause_of_death

S = 1_000_000
TOLD = 50 * S


def life(*stretches: tuple[float, str, str | None, str | None]) -> list[Stretch]:
    """For each stretch: its end, state, boot, and why it ended."""
    made, start = [], 0
    for end_s, state, boot, cause in stretches:
        end = round(end_s * S)
        made.append(Stretch(boot, state, start, end, cause))
        start = end
    return made


RAN = life((100, "up", "b1", None))


@pytest.mark.parametrize(
    ("story", "silences", "death"),
    [
        (life((47, "up", "b1", "crash"), (100, "down", None, None)), {}, Death("crash", 47 * S)),
        (life((47, "up", "b1", "power_off"), (100, "down", None, None)), {}, Death("power_off", 47 * S)),
        (life((47, "up", "b1", "leave"), (100, "away", None, None)), {}, Death("left", 47 * S)),
        (
            life((46, "up", "b1", "pause"), (56, "paused", "b1", "resume"), (100, "up", "b1", None)),
            {},
            Death("paused", 46 * S),
        ),
        (life((40, "up", "b1", "log lost"), (100, "unknown", None, None)), {}, Death("log lost", None)),
        (life((100, "up", "b0", None)), {}, Death("log lost", None)),
        (RAN, {"o": [Silence(46 * S, 60 * S)]}, Death("cut off", None)),
        (RAN, {"o": [Silence(46 * S, None)]}, Death("cut off", None)),
        (RAN, {"via": [Silence(46 * S, 60 * S)]}, Death("cut off", None)),
        (RAN, {"stranger": [Silence(46 * S, 60 * S)]}, Death("mistaken", None)),
        (RAN, {"o": [Silence(5 * S, 12 * S)]}, Death("mistaken", None)),
        (RAN, {"o": [Silence(60 * S, 70 * S)]}, Death("mistaken", None)),
        (RAN, {}, Death("mistaken", None)),
    ],
)
def test_the_cause_of_a_death(story: list[Stretch], silences: dict[str, list[Silence]], death: Death) -> None:
    assert cause_of_death(TOLD, "b1", ["o", "via"], story, silences, period_us=S) == death


def test_a_process_that_ends_after_its_reported_death_was_alive_then() -> None:
    story = life((60, "up", "b1", "crash"), (100, "down", None, None))
    assert cause_of_death(TOLD, "b1", ["o"], story, {}, period_us=S) == Death("mistaken", None)


def test_a_pause_that_was_long_over_is_no_cause() -> None:
    story = life((5, "up", "b1", "pause"), (9, "paused", "b1", "resume"), (100, "up", "b1", None))
    assert cause_of_death(TOLD, "b1", ["o"], story, {}, period_us=S) == Death("mistaken", None)


def test_a_death_is_the_fate_of_the_boot_that_it_names() -> None:
    story = life(
        (20, "up", "b1", "crash"),
        (25, "down", None, "restart"),
        (48, "up", "b2", "leave"),
        (99, "away", None, None),
    )
    assert cause_of_death(TOLD, "b1", ["o"], story, {}, period_us=S) == Death("crash", 20 * S)
    assert cause_of_death(TOLD, "b2", ["o"], story, {}, period_us=S) == Death("left", 48 * S)
