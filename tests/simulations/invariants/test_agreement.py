"""The checks find tables that differ, a mesh that is not whole, and numbers of members that come late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    THREE,
    TWO,
    Spoilt,
    history,
    judged,
    record,
    refused,
    spoilt,
    with_view,
    with_views,
)


def _dead_at_rest(evidence: Evidence) -> None:
    with_view(evidence, 18.0, ONE, table=(record(ONE), record(TWO, State.DEAD), record(THREE, incarnation=3)))


def _absent_at_rest(evidence: Evidence) -> None:
    for index, sample in enumerate(evidence.samples):
        if sample.at_s == 18.0:
            views = {name: view for name, view in sample.views.items() if name != TWO}
            evidence.samples[index] = replace(sample, views=views)


def _never_started(evidence: Evidence) -> None:
    evidence.scenario = replace(evidence.scenario, brokers=4)


def _never_whole(evidence: Evidence) -> None:
    del evidence.phases["held_s"]
    with_view(evidence, 16.0, THREE, table=(record(THREE),))


def _two_digests(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, digest=b"something else")


def _apart_after_the_cut(evidence: Evidence) -> None:
    with_view(evidence, 17.0, ONE, table=(record(ONE), record(TWO), record(THREE, State.DEAD, 3)))


def _slow_start(evidence: Evidence) -> None:
    for at_s in (1.0, 2.0, 3.0):
        with_view(evidence, at_s, ONE, table=(record(ONE),))


def _one_alone(evidence: Evidence) -> None:
    with_view(evidence, 8.0, ONE, table=(record(ONE),))


SPOILT: list[Spoilt] = [
    spoilt("converged", _dead_at_rest, "broker-1 does not see broker-2 alive at 18.0 s"),
    spoilt("converged", _absent_at_rest, "broker-2 is not up at 18.0 s"),
    spoilt("converged", _absent_at_rest, "broker-1 sees broker-2 alive at 18.0 s, but it is not"),
    spoilt("converged", _never_started, "broker-4 is not up"),
    spoilt("converged", _never_whole, "broker-3 does not see"),
    spoilt("one_digest", _two_digests, "at 18.0 s the digests differ"),
    spoilt(
        "healed",
        _apart_after_the_cut,
        "broker-1 does not see broker-3 3 s after the partition ended at 13.4 s",
        within_s=3.0,
    ),
    spoilt("members_within", _slow_start, "broker-1 sees 1 members 2 s after 0.1 s, not 3", within_s=2.0),
    spoilt("view_sizes_at_most", _one_alone, "3 numbers of members were seen, more than 2", most=2),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_parted_broker_is_seen_under_its_id_of_that_time() -> None:
    """A broker that lost its state later was looked for under its last id."""
    evidence = history()
    evidence.lives.append(Life(THREE, 3, THREE, 31.5, None, "", 9, 99))
    assert judged(evidence, "healed", within_s=3.0).ok
    _apart_after_the_cut(evidence)
    assert len(judged(evidence, "healed", within_s=3.0).violations) == 1


def test_members_are_counted_from_the_start_or_from_a_fault() -> None:
    assert judged(history(), "members_within", number=3, within_s=2.0).ok
    refused(judged(history(), "members_within", number=4, within_s=2.0), "3 brokers are up, not 4")
    assert judged(history(), "members_within", after="crash", within_s=12.0).ok
    refused(judged(history(), "members_within", after="mass_join"), "no fault of kind mass_join")


def test_members_that_lack_a_link_are_not_linked_in_time() -> None:
    evidence = history()
    assert judged(evidence, "members_within", within_s=2.0, linked="yes").ok
    with_views(evidence, (ONE,), links=(IDS[TWO],))
    assert judged(evidence, "members_within", within_s=2.0).ok
    refused(judged(evidence, "members_within", within_s=2.0, linked="yes"), "broker-1 has links to 1 of 2")
