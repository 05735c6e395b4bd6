"""A broker's own interest: counted by role, told once a turn, confirmed when everybody knows."""

from __future__ import annotations

from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.sessions import Session
from mesh.wire.capabilities import Agreed
from mesh.wire.session_frames import Keepalive, Kind, Role, decode

from .neighbourhood import client_port


class Told:
    """Whoever is told; each telling is a new version."""

    def __init__(self) -> None:
        self.told: list[tuple[list[tuple[str, int]], list[str]]] = []

    def __call__(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        self.told.append((added, removed))
        return len(self.told)


def session(*numbers: int) -> Session:
    made = Session(
        1,
        client_port(),
        b"\x80\0\0\1",
        name="",
        agreed=Agreed(1, frozenset()),
        publisher=Publishers(10).get(1, 1),
        keepalive=Keepalive(0.0, 0.0),
        options=ExchangeOptions(),
    )
    made.subscriptions = dict.fromkeys(numbers)  # type: ignore[assignment]
    return made


def confirmed(one: Session) -> list[tuple[int, list[str]]]:
    frames = [decode(frame, 4) for frame in one.port.ready]
    one.port.ready.clear()
    assert all(frame[0] == Kind.SUBSCRIBED for frame in frames)
    return [(frame[1], frame[2]) for frame in frames]


def test_a_pattern_is_wanted_until_the_last_one_leaves_and_answers_outrank_listening() -> None:
    tell = Told()
    interest = LocalInterest(tell)
    interest.add(["a", "b"], Role.LISTEN)
    interest.add(["a"], Role.ANSWERS)
    assert list(interest.patterns) == ["a", "b"]
    interest.remove(["a"], Role.ANSWERS)
    interest.remove(["b"], Role.LISTEN)
    interest.flush()
    interest.flush()
    assert tell.told == [([("a", Role.LISTEN)], [])], "once a turn, and not when nothing changed"
    interest.add(["a"], Role.ANSWERS)
    interest.add(["c"], Role.LISTEN)
    interest.flush()
    interest.remove(["a", "c"], Role.LISTEN)
    interest.remove(["a"], Role.ANSWERS)
    interest.add(["c"], Role.LISTEN)
    interest.flush()
    changes = [([("a", Role.ANSWERS), ("c", Role.LISTEN)], []), ([], ["a"])]
    assert tell.told[1:] == changes, "what differs from what was told"


def test_a_subscription_is_confirmed_by_the_version_told_after_it_and_by_no_earlier_one() -> None:
    interest = LocalInterest(Told())
    early, late = session(1), session(2, 3)
    interest.confirm(early, 1)
    interest.flush()
    interest.confirm(late, 2)
    interest.flush()
    interest.reached(1, ["gone"])
    assert confirmed(early) == [(1, ["gone"])] and confirmed(late) == []
    interest.confirm(late, 3)
    interest.reached(2, [])
    assert confirmed(late) == [(2, [])], "3 has not even been told"
    interest.flush()
    interest.reached(3, [])
    assert confirmed(late) == [(3, [])]


def test_a_session_that_is_over_is_forgotten_and_a_subscription_that_is_over_not_confirmed() -> None:
    interest = LocalInterest(Told())
    gone, left = session(1), session(1)
    for one in (gone, left):
        interest.confirm(one, 1)
    interest.forget(gone)
    interest.flush()
    left.subscriptions.clear()
    interest.reached(1, [])
    assert confirmed(gone) == confirmed(left) == []
