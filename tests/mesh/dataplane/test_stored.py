"""The answers of homes to a publication, and its outcome, without brokers around it."""

from __future__ import annotations

import pytest

from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.durable_routes import KnownHome
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.publications import KEPT, PAST, UNWANTED, Ending, Part, Publication
from mesh.dataplane.sessions import Session
from mesh.dataplane.stored import ORPHANED_S, PAUSES_S, StoredPublications
from mesh.wire.capabilities import Agreed
from mesh.wire.durable_frames import Kept
from mesh.wire.session_frames import Keepalive, ReceiveWindow
from tests.mesh.dataplane.neighbourhood import client_port, stranger

A, B = KnownHome(1), KnownHome(2)
A.name, B.name = "a", "b"


class Desk:
    """A machine, one session, and the credit that it got back."""

    def __init__(self) -> None:
        self.stored = StoredPublications()
        self.publishers = Publishers(16)
        self.session = self.begin_session()

    def begin_session(self) -> Session:
        return Session(
            1,
            client_port(),
            b"\x80\0\0\x01",
            name="",
            agreed=Agreed(2, frozenset()),
            publisher=self.publishers.begin(8, 9),
            keepalive=Keepalive(0.0, 0.0),
            options=ExchangeOptions(),
            guest=stranger(),
        )

    def held(self, session: Session | None = None) -> HeldCredit:
        held = HeldCredit((session or self.session).ingress, 1, 100)
        held.outlets = 1
        return held

    @property
    def given_back(self) -> int:
        return self.session.ingress.window.owed_messages

    def publish(
        self, first: int, *homes: KnownHome, pieces: int = 0, now: float = 0.0
    ) -> tuple[Publication, list[Part]]:
        publication = self.stored.begin(
            self.session, b"t", first, first, homes, 0, now, piecewise=bool(pieces)
        )
        parts = [
            self.stored.add(publication, offset, bytes(100), 1, self.held()) for offset in range(pieces or 1)
        ]
        for part in parts:
            for home in homes:
                part.waiting[home] += 1
        return publication, parts

    def say(self, home: KnownHome, verdict: Kept, first: int = 1, offset: int = 0) -> Publication | None:
        return self.stored.answered(home, (8, 9), first, offset, verdict, f"{home.name} says")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ([(A, Kept.KEPT)], None),
        ([(A, Kept.KEPT), (B, Kept.KEPT)], KEPT),
        ([(A, Kept.KEPT), (B, Kept.UNWANTED)], KEPT),
        ([(A, Kept.UNWANTED), (B, Kept.UNWANTED)], UNWANTED),
        ([(A, Kept.REFUSED)], None),
        ([(A, Kept.REFUSED), (B, Kept.REFUSED)], Ending(False, "a says")),
        ([(A, Kept.UNWANTED), (B, Kept.REFUSED)], Ending(False, "b says")),
        ([(A, Kept.REFUSED), (B, Kept.KEPT)], None),
        ([(A, Kept.REFUSED), (B, Kept.DOUBT)], None),
        ([(A, Kept.PAST)], None),
        ([(A, Kept.PAST), (B, Kept.PAST)], PAST),
        ([(A, Kept.KEPT), (B, Kept.PAST)], PAST),
        ([(A, Kept.UNWANTED), (B, Kept.PAST)], PAST),
        ([(A, Kept.DOUBT), (B, Kept.PAST)], None),
        ([(A, Kept.REFUSED), (B, Kept.PAST)], None),
        ([(A, Kept.KEPT), (B, Kept.CONFLICT)], None),
        ([(A, Kept.KEPT), (B, Kept.PART)], None),
        ([(A, Kept.REFUSED), (A, Kept.KEPT), (B, Kept.KEPT)], KEPT),
    ],
)
def test_the_answers_of_its_homes_decide_the_outcome_of_a_publication(
    said: list[tuple[KnownHome, Kept]], outcome: Ending | None
) -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A, B)
    for home, verdict in said:
        assert desk.say(home, verdict) is publication
    assert publication.outcome() == outcome


def test_credit_is_returned_once_despite_repeated_answers_and_ends() -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A)
    for _ in range(3):
        desk.say(A, Kept.KEPT)
    for _ in range(2):
        desk.stored.end(publication)
    assert desk.given_back == 1 and len(desk.stored) == 0
    assert desk.say(A, Kept.KEPT) is None


def test_pieces_give_their_credit_back_as_every_home_has_them_and_the_last_ends_the_body() -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A, B, pieces=3)
    for offset in (0, 1):
        desk.say(A, Kept.PART, offset=offset)
        assert desk.given_back == offset
        desk.say(B, Kept.PART, offset=offset)
        assert desk.given_back == offset + 1
    desk.say(A, Kept.KEPT, offset=2)
    assert publication.outcome() is None
    desk.say(B, Kept.KEPT, offset=2)
    assert publication.outcome() == KEPT and desk.given_back == 3


def test_a_home_that_has_the_whole_body_need_not_answer_for_each_piece() -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A, pieces=3)
    desk.say(A, Kept.KEPT, offset=1)
    assert publication.outcome() == KEPT and desk.given_back == 3


def test_a_home_that_refused_is_asked_again_only_once_another_has_kept_it() -> None:
    desk = Desk()
    publication, (part,) = desk.publish(1, A, B)
    desk.say(A, Kept.REFUSED)
    assert not desk.stored.ask_again(part, A) and desk.stored.ask_again(part, B)
    desk.say(B, Kept.KEPT)
    assert desk.stored.ask_again(part, A) and not desk.stored.ask_again(part, B)
    assert not publication.refused, "it is asked now"


@pytest.mark.parametrize("verdict", [Kept.PAST, Kept.CONFLICT])
def test_a_home_with_a_final_answer_is_not_asked_again(verdict: Kept) -> None:
    desk = Desk()
    _, (part,) = desk.publish(1, A, B)
    desk.say(A, verdict)
    desk.say(B, Kept.KEPT)
    assert not desk.stored.ask_again(part, A)


def test_a_slow_publication_is_reported_once_and_due_with_growing_pauses() -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A)
    assert desk.stored.slow(0.25) == []
    assert desk.stored.slow(0.5) == [publication] and desk.stored.slow(0.75) == []
    now = 0.5
    for pause_s in (*PAUSES_S, PAUSES_S[-1]):
        assert desk.stored.due(now + pause_s - 0.1) == []
        now += pause_s
        assert desk.stored.due(now) == [publication]
    desk.stored.end(publication)
    assert desk.stored.due(now + 1000.0) == []


def test_only_publications_below_the_publishers_lowest_number_are_given_up() -> None:
    desk = Desk()
    publications = [desk.publish(first, A)[0] for first in (1, 2, 3)]
    assert desk.stored.waits_from((8, 9), 3) == publications[:2]
    assert desk.stored.waits_from((8, 9), 2) == [] and desk.given_back == 2
    assert list(desk.stored) == publications[2:]


def test_a_retry_by_another_session_takes_over_the_credit_and_one_by_the_same_returns_its_own() -> None:
    desk = Desk()
    publication, (part,) = desk.publish(1, A)
    desk.stored.sent_again(publication, part, desk.session, desk.held(), 0.0)
    assert desk.given_back == 1
    other = desk.begin_session()
    desk.stored.sent_again(publication, part, other, desk.held(other), 0.0)
    assert desk.given_back == 2 and publication.sender is other
    assert other.ingress.window.owed_messages == 0
    desk.stored.end(publication)
    assert other.ingress.window.owed_messages == 1


def test_orphaned_publications_are_given_up_a_minute_after_their_publishers_last_session() -> None:
    desk = Desk()
    publication, _ = desk.publish(1, A)
    other = desk.begin_session()
    for at, session in ((0.0, desk.session), (100.0, other)):
        desk.publishers.end(session.publisher)
        session.closed = True
        assert desk.stored.session_over(session, at) == []
        assert desk.stored.expire(at + ORPHANED_S - 1.0) == []
    assert desk.stored.expire(100.0 + ORPHANED_S) == [publication]
    assert publication.over and len(desk.stored) == 0


def test_held_credit_is_returned_to_the_window_of_its_ingress() -> None:
    """The desk reads the credit that is due; it would read nothing if credit went elsewhere."""
    window = ReceiveWindow(10, 1000)
    ingress = Ingress(Desk().session, window, [], is_link=False)
    held = HeldCredit(ingress, 2, 20)
    held.outlets = 1
    held.release()
    assert (window.owed_messages, window.owed_bytes) == (2, 20)
