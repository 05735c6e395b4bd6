"""The answers to an orchestrator in each state of a broker."""

from __future__ import annotations

import pytest

from mesh.http import health


@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        ("starting", 503, "is starting"),
        ("joining", 503, "waits for tcp://10.0.0.7:7770, beta"),
        ("ready", 200, "is ready"),
        ("isolated", 200, "no other broker answers"),
        ("leaving", 503, "is leaving"),
    ],
)
def test_a_broker_is_ready_when_joined_and_otherwise_says_what_is_missing(
    state: str, status: int, said: str
) -> None:
    answer = health.ready("alpha", state, ("tcp://10.0.0.7:7770", "beta"))
    assert answer.status == status and said in answer.body.decode()
    assert answer.body.decode().count("\n") == 1


def test_names_of_others_cannot_forge_lines_and_many_are_counted() -> None:
    answer = health.ready("alpha", "joining", ["a\nready", *(f"b{number}" for number in range(40))])
    assert answer.body.decode().count("\n") == 1 and "and 36 more" in answer.body.decode()
    assert "the members of its mesh" in health.ready("alpha", "joining", ()).body.decode()


def test_a_broker_that_answers_is_live() -> None:
    assert health.live("alpha").status == 200
