"""Interest of many brokers: versions, differences, what is asked for again, and the barrier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.remote_interest import BARRIER_S, REMOTE_PATTERNS_MAX, BarrierDone, InterestTable
from mesh.errors import LinkError
from mesh.wire.link_frames import LinkKind, decode

A, B, C = 1, 2, 3


class Side:
    """A table and what it would say; frames are carried by hand."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.table = InterestTable(id)

    def take(self, sender: int, frames: list[bytes]) -> list[bytes]:
        """What the shell does with a link's interest frames; returns the answers."""
        answers: list[bytes] = []
        for frame in frames:
            match decode(frame):
                case [LinkKind.INTEREST, version, part, last, patterns, owner]:
                    assert owner == sender
                    if self.table.whole_received(sender, version, part, bool(last), patterns):
                        answers.append(b"held")
                case [LinkKind.INTEREST_CHANGE, base, version, added, removed, owner]:
                    assert owner == sender
                    fits = self.table.change_received(sender, base, version, added, removed)
                    answers.append(b"held" if fits else b"wanted")
        return answers


def linked() -> tuple[Side, Side]:
    a, b = Side(A), Side(B)
    a.table.members({B: "b"})
    b.table.members({A: "a"})
    from_a, from_b = a.table.link_up(B, 1), b.table.link_up(A, 1)
    assert b.take(A, from_a) == a.take(B, from_b) == [b"held"]
    return a, b


def test_a_link_begins_with_the_whole_and_goes_on_with_differences() -> None:
    a, b = linked()
    a.table.set_own([("x", 0), ("y", 1)])
    frames = a.table.pending(B)
    assert decode(frames[0])[0] == LinkKind.INTEREST_CHANGE
    assert b.take(A, frames) == [b"held"]
    assert b.table.patterns(A) == [("x", 0), ("y", 1)]
    a.table.set_own([("y", 0), ("z.#", 0)])
    assert b.take(A, a.table.pending(B)) == [b"held"]
    assert sorted(b.table.patterns(A)) == [("y", 0), ("z.#", 0)]
    assert a.table.pending(B) == [] and a.table.behind() == []
    assert b.table.held_version(A) == a.table.version == 3


def test_nothing_new_makes_no_version() -> None:
    a, _ = linked()
    assert a.table.set_own([("x", 0)]) == a.table.set_own([("x", 0)]) == 2


def test_a_difference_that_does_not_fit_asks_for_the_whole_once() -> None:
    a, b = linked()
    a.table.set_own([("x", 0)])
    a.table.pending(B)  # lost
    a.table.set_own([("x", 0), ("y", 0)])
    assert b.take(A, a.table.pending(B)) == [b"wanted"]
    assert b.table.ask(A) and not b.table.ask(A)
    assert b.take(A, a.table.wanted(B)) == [b"held"]
    assert b.table.patterns(A) == [("x", 0), ("y", 0)]
    assert b.table.ask(A)


def test_a_version_named_in_a_survey_and_not_held_is_asked_for_once() -> None:
    a, b = linked()
    a.table.set_own([("x", 0)])
    a.table.pending(B)  # lost
    assert not b.table.heard_version(A, 1)
    assert b.table.heard_version(A, 2) and not b.table.heard_version(A, 2)
    b.take(A, a.table.wanted(B))
    assert not b.table.heard_version(A, 2)


def test_another_boot_begins_anew_and_the_same_one_keeps_what_is_held() -> None:
    a, b = linked()
    a.table.set_own([("x", 0)])
    b.take(A, a.table.pending(B))
    b.table.link_down(A)
    assert b.table.patterns(A) == [("x", 0)] and b.table.absent() == ("a",)
    b.table.link_up(A, 1)
    assert b.table.patterns(A) == [("x", 0)] and b.table.absent() == ()
    b.table.link_up(A, 2)
    assert b.table.patterns(A) == [] and b.table.absent() == ("a",)


def test_a_great_interest_comes_in_parts_and_holds_only_when_all_are_there() -> None:
    a, b = linked()
    a.table.set_own([(f"t{number}", number % 2) for number in range(10_000)])
    a.table.wanted(B)
    frames = a.table.wanted(B)
    assert len(frames) == 5
    assert b.take(A, frames[:4]) == []
    assert b.table.patterns(A) == []
    assert b.take(A, frames[4:]) == [b"held"] and len(b.table.patterns(A)) == 10_000
    assert b.take(A, frames[1:]) == [], "parts without the first are of an earlier link"


def test_what_a_peer_may_claim_is_bounded() -> None:
    _, b = linked()
    with pytest.raises(LinkError, match="none: pattern"):
        b.table.whole_received(A, 2, 0, True, [("no pattern", 0)])
    with pytest.raises(LinkError, match="this broker is at 1"):
        b.table.acknowledged(A, 2)
    with pytest.raises(LinkError, match="more than 65536"):
        b.table.whole_received(A, 2, 0, False, [(f"t{n}", 0) for n in range(REMOTE_PATTERNS_MAX + 1)])


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["a", "b.*", "c.#", "d", "e"]), st.integers(0, 1)),
            st.sampled_from(["deliver", "lose", "relink", "hold"]),
        ),
        max_size=20,
    )
)
def test_whatever_is_lost_the_other_side_holds_the_truth_after_one_survey(
    steps: list[tuple[dict[str, int], str]],
) -> None:
    a, b = linked()
    for own, fate in steps:
        a.table.set_own(own.items())
        match fate:
            case "deliver":
                if b"wanted" in b.take(A, a.table.pending(B)) and b.table.ask(A):
                    b.take(A, a.table.wanted(B))
            case "lose":
                a.table.pending(B)
            case "relink":
                b.table.link_down(A)
                a.table.link_down(B)
                frames = a.table.link_up(B, 1)
                b.table.link_up(A, 1)
                b.take(A, frames)
    a.table.pending(B)  # what was coalesced goes out, and is lost
    if b.table.heard_version(A, a.table.version):
        b.take(A, a.table.wanted(B))
    assert sorted(b.table.patterns(A)) == sorted(a.table.own)
    assert b.table.held_version(A) == a.table.version


# --- the barrier


def test_the_barrier_waits_for_every_live_member_linked_or_not() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = table.set_own([("x", 0)])
    assert table.wait(version, 0.0) is None
    assert table.acknowledged(B, version) == []
    assert table.acknowledged(C, version - 1) == []
    assert table.acknowledged(C, version) == [BarrierDone(version, ())]
    assert table.wait(version, 1.0) == BarrierDone(version, ())


def test_alone_there_is_nobody_to_wait_for() -> None:
    table = InterestTable(A)
    assert table.wait(table.set_own([("x", 0)]), 0.0) == BarrierDone(2, ())


def test_who_dies_is_waited_for_no_longer_and_who_joins_is_waited_for_too() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = table.set_own([("x", 0)])
    table.wait(version, 0.0)
    assert table.acknowledged(B, version) == []
    assert table.members({B: "b", C: "c", 4: "d"}) == []
    assert table.members({B: "b", 4: "d"}) == []
    assert table.acknowledged(4, version) == [BarrierDone(version, ())]


def test_after_five_seconds_the_missing_are_named() -> None:
    table = InterestTable(A)
    table.members({B: "b", C: "c"})
    version = table.set_own([("x", 0)])
    table.wait(version, 10.0)
    table.acknowledged(B, version)
    assert table.next_deadline() == 10.0 + BARRIER_S
    assert table.tick(14.9) == []
    assert table.tick(15.0) == [BarrierDone(version, ("c",))]
    assert table.next_deadline() == float("inf")


def test_who_asks_later_for_a_version_has_the_whole_time_too() -> None:
    table = InterestTable(A)
    table.members({B: "b"})
    version = table.set_own([("x", 0)])
    table.wait(version, 0.0)
    table.wait(version, 4.0)
    assert table.tick(5.0) == [BarrierDone(version, ("b",))]
    assert table.next_deadline() == 9.0
    assert table.tick(9.0) == [BarrierDone(version, ("b",))]
    table.wait(version, 10.0)
    table.wait(version, 12.0)
    assert table.acknowledged(B, version) == [BarrierDone(version, ())], "once for all"
    assert table.next_deadline() == float("inf")


def test_many_who_ask_for_one_version_share_few_barriers() -> None:
    table = InterestTable(A)
    table.members({B: "b"})
    version = table.set_own([("x", 0)])
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
        versions.append(table.set_own([(f"t{number}", 0)]))
        assert table.wait(versions[-1], float(number)) is None
    assert table.acknowledged(B, versions[1]) == [BarrierDone(v, ()) for v in versions[:2]]
    assert table.tick(7.0) == [BarrierDone(versions[2], ("b",))]


def test_while_joining_the_barrier_waits_and_names_what_was_not_reached() -> None:
    table = InterestTable(A)
    table.set_unheard(["tcp://seed:1"], wait=True)
    version = table.set_own([("x", 0)])
    assert table.wait(version, 0.0) is None
    assert table.tick(5.0) == [BarrierDone(version, ("tcp://seed:1",))]
    later = table.set_own([("y", 0)])
    assert table.wait(later, 6.0) is None
    assert table.set_unheard((), wait=False) == [BarrierDone(later, ())]


def test_a_member_that_returns_with_another_boot_must_acknowledge_again() -> None:
    a, _ = linked()
    version = a.table.set_own([("x", 0)])
    a.table.acknowledged(B, version)
    a.table.link_up(B, 2)
    assert a.table.wait(version, 0.0) is None
