"""A broker's own interest: counted by role, told once a turn, confirmed when everybody knows."""

from __future__ import annotations

from mesh.dataplane.local_interest import Wants
from mesh.dataplane.ports import Session, Turn
from mesh.wire.session_frames import Kind, Role, decode

from .neighbourhood import FakePipe


class Told:
    """Whoever is told; each telling is a new version."""

    def __init__(self) -> None:
        self.told: list[list[tuple[str, int]]] = []

    def __call__(self, patterns: list[tuple[str, int]]) -> int:
        self.told.append(patterns)
        return len(self.told)


def session(*numbers: int) -> Session:
    made = Session(Turn(), FakePipe(), b"\x80\0\0\1", 1)
    made.subscriptions = dict.fromkeys(numbers)  # type: ignore[assignment]
    return made


def confirmed(one: Session) -> list[tuple[int, list[str]]]:
    frames, one.ready = [decode(frame, 4) for frame in one.ready], []
    assert all(frame[0] == Kind.SUBSCRIBED for frame in frames)
    return [(frame[1], frame[2]) for frame in frames]


def test_a_pattern_is_wanted_until_the_last_one_leaves_and_answers_outrank_listening() -> None:
    tell = Told()
    wants = Wants(tell)
    wants.add(["a", "b"], Role.LISTEN)
    wants.add(["a"], Role.ANSWERS)
    assert wants.patterns == [("a", Role.ANSWERS), ("b", Role.LISTEN)]
    wants.remove(["a"], Role.ANSWERS)
    wants.remove(["b"], Role.LISTEN)
    wants.flush()
    wants.flush()
    assert tell.told == [[("a", Role.LISTEN)]], "once a turn, and not when nothing changed"


def test_a_subscription_is_confirmed_by_the_version_told_after_it_and_by_no_earlier_one() -> None:
    wants = Wants(Told())
    early, late = session(1), session(2, 3)
    wants.confirm(early, 1)
    wants.flush()
    wants.confirm(late, 2)
    wants.flush()
    wants.reached(1, ["gone"])
    assert confirmed(early) == [(1, ["gone"])] and confirmed(late) == []
    wants.confirm(late, 3)
    wants.reached(2, [])
    assert confirmed(late) == [(2, [])], "3 has not even been told"
    wants.flush()
    wants.reached(3, [])
    assert confirmed(late) == [(3, [])]


def test_a_session_that_is_over_is_forgotten_and_a_subscription_that_is_over_not_confirmed() -> None:
    wants = Wants(Told())
    gone, left = session(1), session(1)
    for one in (gone, left):
        wants.confirm(one, 1)
    wants.forget(gone)
    wants.flush()
    left.subscriptions.clear()
    wants.reached(1, [])
    assert confirmed(gone) == confirmed(left) == []
