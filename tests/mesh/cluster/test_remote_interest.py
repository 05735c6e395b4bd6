"""Interest of many brokers: versions, differences, requests for the whole, and the barrier."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster import remote_interest
from mesh.cluster.barriers import BARRIER_S, BarrierDone
from mesh.cluster.remote_interest import (
    LAG_S,
    REMOTE_PATTERNS_MAX,
    SENT_MAX,
    Change,
    InterestTable,
    Pattern,
)
from mesh.errors import LinkError
from mesh.wire.link_frames import LinkKind, decode

A, B, C = 1, 2, 3


class Side:
    """A table and the frames that it would send, which are carried by hand."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.table = InterestTable(id)
        self.routed: dict[str, int] = {}

    def take(self, sender: int, frames: list[bytes]) -> list[bytes]:
        """Handle a link's interest frames as the shell does. Returns the answers."""
        answers: list[bytes] = []
        for frame in frames:
            match decode(frame):
                case [LinkKind.INTEREST, version, part, last, patterns, owner]:
                    assert owner == sender
                    change = self.table.whole_received(sender, version, part, bool(last), patterns)
                    self.route(change)
                    if change is not None and change.complete:
                        answers.append(b"held")
                case [LinkKind.INTEREST_CHANGE, base, version, added, removed, owner]:
                    assert owner == sender
                    change = self.table.change_received(sender, base, version, added, removed)
                    self.route(change)
                    answers.append(b"wanted" if change is None else b"held")
        return answers

    def route(self, change: Change | None) -> None:
        """Handle a change of the other side as the data plane does."""
        if change is not None:
            for pattern in change.removed:
                del self.routed[pattern]
            self.routed.update(change.added)


def set_own(table: InterestTable, patterns: Iterable[Pattern]) -> int:
    """Want exactly these."""
    wanted = dict(patterns)
    return table.change_own(wanted.items(), [pattern for pattern, _ in table.own if pattern not in wanted])


def pending(table: InterestTable, member: int) -> list[bytes]:
    """All frames that bring a member up to date."""
    frames = []
    while (frame := table.pending(member)) is not None:
        frames.append(frame)
    assert member not in table.behind()
    return frames


def link_up(table: InterestTable, member: int, boot: int) -> list[bytes]:
    table.link_up(member, boot)
    return pending(table, member)


def wanted(table: InterestTable, member: int) -> list[bytes]:
    table.wanted(member)
    return pending(table, member)


def linked() -> tuple[Side, Side]:
    a, b = Side(A), Side(B)
    a.table.members({B: "b"})
    b.table.members({A: "a"})
    from_a, from_b = link_up(a.table, B, 1), link_up(b.table, A, 1)
    assert b.take(A, from_a) == a.take(B, from_b) == [b"held"]
    return a, b


def test_a_link_begins_with_the_whole_table_and_continues_with_differences() -> None:
    a, b = linked()
    set_own(a.table, [("x", 0), ("y", 1)])
    frames = pending(a.table, B)
    assert decode(frames[0])[0] == LinkKind.INTEREST_CHANGE
    assert b.take(A, frames) == [b"held"]
    assert b.table.patterns(A) == [("x", 0), ("y", 1)]
    set_own(a.table, [("y", 0), ("z.#", 0)])
    assert b.take(A, pending(a.table, B)) == [b"held"]
    assert sorted(b.table.patterns(A)) == [("y", 0), ("z.#", 0)]
    assert pending(a.table, B) == [] and a.table.behind() == []
    assert b.table.held_version(A) == a.table.version == 3


def test_unchanged_interest_makes_no_new_version() -> None:
    a, _ = linked()
    assert set_own(a.table, [("x", 0)]) == set_own(a.table, [("x", 0)]) == 2


def test_a_member_taken_for_dead_is_routed_to_again_after_another_link() -> None:
    """The data plane forgets a dead member with its link, so all of its interest is news on the next one."""
    a, b = linked()
    set_own(a.table, [("x", 0), ("y", 1)])
    b.take(A, pending(a.table, B))
    b.table.members({})
    b.routed.clear()
    b.table.link_up(A, 1)  # in place of the other
    b.take(A, link_up(a.table, B, 1))
    b.table.members({A: "a"})
    assert b.routed == {"x": 0, "y": 1} == dict(b.table.patterns(A))
    assert b.table.absent() == ()


def test_a_difference_that_does_not_fit_asks_for_the_whole_once() -> None:
    a, b = linked()
    set_own(a.table, [("x", 0)])
    pending(a.table, B)  # lost
    set_own(a.table, [("x", 0), ("y", 0)])
    assert b.take(A, pending(a.table, B)) == [b"wanted"]
    assert b.table.ask(A) and not b.table.ask(A)
    assert b.take(A, wanted(a.table, B)) == [b"held"]
    assert b.table.patterns(A) == [("x", 0), ("y", 0)]
    assert b.table.ask(A)


def test_a_version_named_in_a_survey_and_not_held_is_requested_once() -> None:
    a, b = linked()
    set_own(a.table, [("x", 0)])
    pending(a.table, B)  # lost
    assert not b.table.heard_version(A, 1, 0.0)
    assert not b.table.heard_version(A, 2, 0.0), "it may be on its way"
    assert b.table.heard_version(A, 2, LAG_S) and not b.table.heard_version(A, 2, 9.0)
    b.take(A, wanted(a.table, B))
    assert not b.table.heard_version(A, 2, 9.0)


def test_the_whole_table_is_not_requested_again_while_its_parts_arrive() -> None:
    a, b = linked()
    set_own(a.table, [(f"t{number}", 0) for number in range(3 * SENT_MAX)])
    for number, frame in enumerate(wanted(a.table, B)):
        assert not b.table.heard_version(A, a.table.version, number * LAG_S)
        b.take(A, [frame])
    assert not b.table.heard_version(A, a.table.version, 9.0)


def test_another_boot_begins_anew_and_the_same_boot_keeps_its_held_interest() -> None:
    a, b = linked()
    set_own(a.table, [("x", 0)])
    b.take(A, pending(a.table, B))
    b.table.link_down(A)
    assert b.table.patterns(A) == [("x", 0)] and b.table.absent() == ("a",)
    b.table.link_up(A, 1)
    assert b.table.patterns(A) == [("x", 0)] and b.table.absent() == ()
    b.table.link_up(A, 2)
    assert b.table.absent() == ("a",), "what it wanted is kept until all that it wants now is known"
    set_own(a.table, [("y", 0)])
    b.take(A, wanted(a.table, B))
    assert b.table.patterns(A) == [("y", 0)] and b.routed == {"y": 0} and b.table.absent() == ()


def test_a_great_interest_comes_in_parts_and_holds_only_when_all_are_there() -> None:
    a, b = linked()
    set_own(a.table, [(f"t{number}", number % 2) for number in range(10_000)])
    wanted(a.table, B)
    frames = wanted(a.table, B)
    assert len(frames) == -(-10_000 // SENT_MAX)
    assert b.take(A, frames[:-1]) == [] and b.table.held_version(A) == 1
    assert len(b.routed) == SENT_MAX * (len(frames) - 1), "it is routed as it comes"
    assert b.take(A, frames[-1:]) == [b"held"] and len(b.table.patterns(A)) == 10_000
    assert b.take(A, frames[1:]) == [], "parts without the first are of an earlier link"


def test_changes_while_the_whole_is_sent_go_out_behind_it() -> None:
    a, b = linked()
    set_own(a.table, [(f"t{number}", 0) for number in range(2 * SENT_MAX)])
    a.table.wanted(B)
    first = a.table.pending(B)
    a.table.change_own([("late", 1)], ["t0"])
    assert first is not None and a.table.behind() == [B]
    assert b.take(A, [first, *pending(a.table, B)]) == [b"held", b"held"]
    assert dict(b.table.patterns(A)) == b.routed == dict(a.table.own)
    assert b.table.held_version(A) == a.table.version


def test_a_change_of_many_patterns_is_many_versions_and_frames() -> None:
    a, b = linked()
    version = a.table.change_own([(f"t{number}", 0) for number in range(3 * SENT_MAX + 1)])
    assert version == 1 + 4
    frames = pending(a.table, B)
    assert len(frames) == 4
    b.take(A, frames)
    assert b.table.held_version(A) == version and dict(b.table.patterns(A)) == dict(a.table.own)


def test_small_changes_share_a_frame() -> None:
    a, b = linked()
    for number in range(100):
        a.table.change_own([(f"t{number}", 0)], [f"t{number - 1}"])
    (frame,) = pending(a.table, B)
    assert b.take(A, [frame]) == [b"held"]
    assert b.table.patterns(A) == [("t99", 0)] and b.table.held_version(A) == 101


def test_a_peer_that_is_too_far_behind_is_sent_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_interest, "JOURNAL_MAX", 3)
    a, b = linked()
    for number in range(10):
        a.table.change_own([(f"t{number}", 0)])
    (frame,) = pending(a.table, B)
    assert decode(frame)[0] == LinkKind.INTEREST and b.take(A, [frame]) == [b"held"]
    assert len(b.table.patterns(A)) == 10


def test_one_more_pattern_among_65_000_costs_less_than_a_millisecond_at_either_side() -> None:
    a, b = linked()
    set_own(a.table, [(f"device.{number}.temperature", 0) for number in range(65_000)])
    b.take(A, pending(a.table, B))
    costs = []
    for number in range(30):
        began = time.perf_counter()
        a.table.change_own([(f"one.more.{number}", 0)])
        frame = a.table.pending(B)
        assert frame is not None and b.take(A, [frame]) == [b"held"]
        costs.append(time.perf_counter() - began)
    assert min(costs) < 0.001


def test_the_claims_of_a_peer_are_bounded() -> None:
    _, b = linked()
    with pytest.raises(LinkError, match="invalid pattern: pattern"):
        b.table.whole_received(A, 2, 0, True, [("no pattern", 0)])
    with pytest.raises(LinkError, match="this broker is at 1"):
        b.table.acknowledged(A, 2)
    limit = REMOTE_PATTERNS_MAX
    patterns = [(f"t{number}", 0) for number in range(limit + 1)]
    assert b.table.whole_received(A, 2, 0, False, patterns[:limit]) is not None
    with pytest.raises(LinkError, match=f"more than {limit}"):
        b.table.whole_received(A, 2, 1, False, patterns[limit:])


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["a", "b.*", "c.#", "d", "e"]), st.integers(0, 1)),
            st.sampled_from(["deliver", "lose", "relink", "hold"]),
        ),
        max_size=20,
    )
)
def test_the_other_side_is_right_after_one_survey_whatever_was_lost(
    steps: list[tuple[dict[str, int], str]],
) -> None:
    a, b = linked()
    for own, fate in steps:
        set_own(a.table, own.items())
        match fate:
            case "deliver":
                if b"wanted" in b.take(A, pending(a.table, B)) and b.table.ask(A):
                    b.take(A, wanted(a.table, B))
            case "lose":
                pending(a.table, B)
            case "relink":
                b.table.link_down(A)
                a.table.link_down(B)
                frames = link_up(a.table, B, 1)
                b.table.link_up(A, 1)
                b.take(A, frames)
    pending(a.table, B)  # the combined change goes out, and is lost
    b.table.heard_version(A, a.table.version, 0.0)
    if b.table.heard_version(A, a.table.version, LAG_S):
        b.take(A, wanted(a.table, B))
    assert b.routed == dict(b.table.patterns(A))
    assert sorted(b.table.patterns(A)) == sorted(a.table.own)
    assert b.table.held_version(A) == a.table.version


# --- the barrier


def test_the_barrier_waits_for_every_live_member_with_or_without_a_link() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = set_own(table, [("x", 0)])
    assert table.wait(version, 0.0) is None
    assert table.acknowledged(B, version) == []
    assert table.acknowledged(C, version - 1) == []
    assert table.acknowledged(C, version) == [BarrierDone(version, ())]
    assert table.wait(version, 1.0) == BarrierDone(version, ())


def test_the_barrier_of_a_lone_broker_ends_at_once() -> None:
    table = InterestTable(A)
    assert table.wait(set_own(table, [("x", 0)]), 0.0) == BarrierDone(2, ())


def test_the_barrier_stops_waiting_for_dead_members_and_waits_for_new_ones() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = set_own(table, [("x", 0)])
    table.wait(version, 0.0)
    assert table.acknowledged(B, version) == []
    assert table.members({B: "b", C: "c", 4: "d"}) == []
    assert table.members({B: "b", 4: "d"}) == []
    assert table.acknowledged(4, version) == [BarrierDone(version, ())]


def test_missing_members_are_named_after_five_seconds() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = set_own(table, [("x", 0)])
    table.wait(version, 10.0)
    table.acknowledged(B, version)
    assert table.next_deadline() == 10.0 + BARRIER_S
    assert table.tick(14.9) == []
    assert table.tick(15.0) == [BarrierDone(version, ("c",))]
    assert table.next_deadline() == float("inf")


def test_a_later_caller_of_a_barrier_has_the_whole_timeout_too() -> None:
    table = InterestTable(A)
    table.members({B: "b"})
    version = set_own(table, [("x", 0)])
    table.wait(version, 0.0)
    table.wait(version, 4.0)
    assert table.tick(5.0) == [BarrierDone(version, ("b",))]
    assert table.next_deadline() == 9.0
    assert table.tick(9.0) == [BarrierDone(version, ("b",))]
    table.wait(version, 10.0)
    table.wait(version, 12.0)
    assert table.acknowledged(B, version) == [BarrierDone(version, ())], "once for all"
    assert table.next_deadline() == float("inf")


def test_many_callers_of_one_version_share_few_barriers() -> None:
    table = InterestTable(A)
    table.members({B: "b"})
    version = set_own(table, [("x", 0)])
    for number in range(1000):
        table.wait(version, 0.001 * number)
    ends = []
    while (due := table.next_deadline()) < float("inf"):
        ends += [(due, done) for done in table.tick(due)]
    assert len(ends) <= 11 and ends[-1][0] == 0.999 + BARRIER_S
    assert all(due >= BARRIER_S for due, _ in ends)


def test_barriers_of_several_versions_end_each_at_its_own() -> None:
    table = InterestTable(A)
    table.members({B: "b"})
    versions = []
    for number in range(3):
        versions.append(set_own(table, [(f"t{number}", 0)]))
        assert table.wait(versions[-1], float(number)) is None
    assert table.acknowledged(B, versions[1]) == [BarrierDone(v, ()) for v in versions[:2]]
    assert table.tick(7.0) == [BarrierDone(versions[2], ("b",))]


def test_the_barrier_of_a_joining_broker_names_unreached_addresses() -> None:
    table = InterestTable(A)
    table.set_unheard(["tcp://seed:1"], wait=True)
    version = set_own(table, [("x", 0)])
    assert table.wait(version, 0.0) is None
    assert table.tick(5.0) == [BarrierDone(version, ("tcp://seed:1",))]
    later = set_own(table, [("y", 0)])
    assert table.wait(later, 6.0) is None
    assert table.set_unheard((), wait=False) == [BarrierDone(later, ())]


def test_a_member_that_returns_with_another_boot_must_acknowledge_again() -> None:
    a, _ = linked()
    version = set_own(a.table, [("x", 0)])
    a.table.acknowledged(B, version)
    a.table.link_up(B, 2)
    assert a.table.wait(version, 0.0) is None
