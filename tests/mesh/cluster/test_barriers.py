"""Which members a barrier waits for, and how long. `test_remote_interest.py` tests it with links."""

from __future__ import annotations

from mesh.cluster.barriers import BARRIER_S, BarrierDone, Barriers

A, B = 1, 2


def test_a_version_is_known_when_all_members_acknowledged_it_or_a_later_one() -> None:
    barriers = Barriers()
    assert barriers.members({A: "a", B: "b"}) == []
    assert barriers.wait(5, 0.0) is None and len(barriers) == 1
    assert barriers.acknowledged(A, 5) == []
    assert barriers.acknowledged(B, 4) == []
    assert barriers.acknowledged(B, 6) == [BarrierDone(5, ())]
    assert barriers.wait(6, 0.0) is None, "the one member knows only 5"


def test_a_forgotten_member_must_acknowledge_again() -> None:
    """It has lost its disk, and is waited for again."""
    barriers = Barriers()
    barriers.members({A: "a"})
    barriers.acknowledged(A, 5)
    barriers.forget(A)
    assert barriers.wait(5, 0.0) is None
    assert barriers.tick(BARRIER_S) == [BarrierDone(5, ("a",))]


def test_names_of_unheard_members_are_cut_to_the_limit_of_a_frame() -> None:
    barriers = Barriers()
    barriers.set_unheard(["tcp://" + "x" * 500], wait=False)
    done = barriers.wait(1, 0.0)
    assert done is not None and [len(name) for name in done.unreached] == [255]
