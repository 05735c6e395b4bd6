"""Which members are remembered, for how long, and whether two tables are equal."""

from __future__ import annotations

from mesh.cluster.membership import (
    DropLink,
    Instruction,
    MemberForgotten,
    MemberRecord,
    MembershipOptions,
    State,
    TellAll,
)
from mesh.cluster.membership.roster import Roster
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
    assert MemberForgotten(record(4, 1, State.DEAD)) in out, "other parts may drop what they keep of it"
    assert driven.state(4) is State.UNKNOWN


def test_digests_that_differ_for_half_a_period_exchange_the_tables() -> None:
    driven = Driven(2)
    assert driven.machine.heard_digest(2, b"12345678", 1.0) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.1) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.6) == [TellAll(2, reply=True)]
    assert driven.machine.heard_digest(2, driven.machine.digest, 1.7) == []


def roster_of(*records: MemberRecord) -> Roster:
    roster = Roster(MembershipOptions())
    for each in records:
        roster.admit(each, 0, 0.0, [])
    return roster


def as_number(digest: bytes) -> int:
    return int.from_bytes(digest, "little")


def test_a_digest_covers_exactly_the_living_members() -> None:
    a, b, dead = record(2), record(3, 5), record(4, 1, State.DEAD)
    digests = [as_number(roster_of(*records).digest) for records in ((a,), (b,), (a, b), (a, b, dead))]
    assert digests[0] ^ digests[1] == digests[2] == digests[3] != 0 and digests[0] != digests[1]
    roster = roster_of(a, b)
    for member in list(roster.members.values()):
        roster.forget(member, [])
    assert roster.digest == roster_of().digest == bytes(8), "an empty table is the same everywhere"


def test_only_tombstones_without_a_link_are_forgotten_by_age() -> None:
    day_s = MembershipOptions().tombstone_s
    roster = roster_of(
        record(2), record(3, 1, State.SUSPECT), record(4, 1, State.DEAD), record(5, 1, State.LEFT)
    )
    out: list[Instruction] = []
    roster.expire(day_s, out)
    assert out == [] and len(roster.members) == 4, "a day is not over yet"
    roster.members[5].linked = True
    roster.expire(day_s + 0.1, out)
    assert out == [MemberForgotten(record(4, 1, State.DEAD)), DropLink(5, "left")]
    assert set(roster.members) == {2, 3, 5}


def test_a_digest_of_an_unknown_member_is_ignored_and_an_equal_one_ends_a_difference() -> None:
    driven = Driven(2)
    assert driven.machine.heard_digest(9, b"12345678", 1.0) == []
    driven.machine.heard_digest(2, b"12345678", 1.0)
    driven.machine.heard_digest(2, driven.machine.digest, 1.2)
    assert driven.machine.heard_digest(2, b"12345678", 1.6) == [], "the difference began anew"
    assert driven.machine.heard_digest(2, b"12345678", 2.1) == [TellAll(2, reply=True)]
    assert driven.machine.heard_digest(2, b"12345678", 2.2) == [], "and an exchange ends it"
    assert driven.machine.statistics().syncs == 1


def test_a_tombstone_is_as_old_as_the_death_and_a_state_as_old_as_the_change_to_it() -> None:
    """Counted from the first report of a member, one that lived for a week would be forgotten at its
    death."""
    driven = Driven(2, 3)
    machine, day_s = driven.machine, MembershipOptions().tombstone_s
    machine.link_down(3, 1.0)
    died_at = 7 * day_s
    machine.heard([record(3, 1, State.DEAD)], 2, died_at)
    assert machine.since(3) == died_at
    machine.heard([record(3, 1, State.DEAD)], 2, died_at + 5)
    assert machine.since(3) == died_at, "the same word again is no change"
    out: list[Instruction] = []
    machine.roster.expire(died_at + 0.9 * day_s, out)
    assert not out and driven.state(3) is State.DEAD
    machine.roster.expire(died_at + 1.1 * day_s, out)
    assert out == [MemberForgotten(record(3, 1, State.DEAD))]


def test_the_oldest_tombstone_of_a_full_table_is_removed_first() -> None:
    driven = Driven(2, members_max=5)
    machine = driven.machine
    machine.heard([record(3), record(4), record(5)], 2, 0.0)
    for died_at, id in ((1.0, 4), (2.0, 5), (3.0, 3)):
        machine.heard([record(id, 1, State.DEAD)], 2, died_at)
    for stranger, goes in ((6, 4), (7, 5), (8, 3)):
        out = machine.heard([record(stranger)], 2, 4.0)
        assert out[0] == MemberForgotten(record(goes, 1, State.DEAD))
