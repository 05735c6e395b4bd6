"""The checks find links that are missing, one-ended, too many, or dead and kept."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    THREE,
    TWO,
    Spoilt,
    cut,
    history,
    spoilt,
    with_view,
)


def _one_link_too_many(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, links=(2, 3, 4))


def _one_ended_link(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, links=(3,))


def _apart(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, links=())
        with_view(evidence, at_s, TWO, links=(3,))
        with_view(evidence, at_s, THREE, links=(2,))


def _not_linked_again(evidence: Evidence) -> None:
    with_view(evidence, 16.0, ONE, links=(2,))


def _dead_link(*, down_s: float) -> Evidence:
    evidence = history(lambda log: log.link(ONE, down_s, TWO, "down"))
    cut(evidence, 12.0, 20.0)
    return evidence


SPOILT: list[Spoilt] = [
    spoilt("degree", _one_link_too_many, "broker-1 has 3 links at 12.0 s, more than 2"),
    spoilt("degree", _one_ended_link, "broker-1 has 1 links, fewer than 2"),
    spoilt("degree", _one_ended_link, "broker-2 has a link to broker-1, which has none to it"),
    spoilt("connected", _apart, "no way of links leads from broker-1 to broker-2, broker-3 at 18.0 s"),
    spoilt(
        "links_back_within",
        _not_linked_again,
        "broker-1 has no link to broker-3 2 s after the partition ended",
        whom=(ONE,),
        within_s=2.0,
    ),
    Spoilt(
        "link_given_up",
        lambda: _dead_link(down_s=15.0),
        lambda: _dead_link(down_s=19.0),
        "the link of broker-1 and broker-2 was not given up within 4.5 s of 12.000 s",
        {"whom": (ONE, TWO)},
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()
