"""What is remembered, for how long, and whether two tables are equal."""

from __future__ import annotations

from mesh.cluster.membership import MemberForgotten, State, TellAll
from tests.mesh.cluster.membership.driven import Driven, record


def test_a_full_table_gives_up_its_oldest_tombstone_and_otherwise_refuses() -> None:
    driven = Driven(2, 3, members_max=4)
    driven.machine.heard([record(4)], 2, 0.0)
    driven.machine.heard([record(5)], 2, 0.0)
    assert driven.state(5) is State.UNKNOWN and driven.machine.statistics().refused_records == 1
    driven.machine.heard([record(4, 1, State.DEAD)], 2, 0.0)
    out = driven.machine.heard([record(5)], 2, 0.0)
    assert out[0] == MemberForgotten(record(4, 1, State.DEAD))
    assert driven.state(5) is State.ALIVE and driven.state(4) is State.UNKNOWN


def test_tombstones_are_forgotten_after_a_day() -> None:
    driven = Driven(2)
    driven.machine.heard([record(4)], 2, 0.0)
    driven.machine.heard([record(4, 1, State.DEAD)], 2, 0.0)
    driven.round(2)
    assert driven.state(4) is State.DEAD
    driven.now += 86_500
    out = driven.machine.tick(driven.now)
    for _ in range(4):  # to the end of a round
        driven.now = driven.machine.next_deadline()
        out += driven.machine.tick(driven.now)
    assert MemberForgotten(record(4, 1, State.DEAD)) in out, "whoever else keeps something may let it go"
    assert driven.state(4) is State.UNKNOWN


def test_digests_that_differ_for_half_a_period_exchange_the_tables() -> None:
    driven = Driven(2)
    assert driven.machine.heard_digest(2, b"12345678", 1.0) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.1) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.6) == [TellAll(2, reply=True)]
    assert driven.machine.heard_digest(2, driven.machine.digest, 1.7) == []
