"""Admission lets in the right peers, in the newest version that both sides have."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.admission import Admission, LinkRank, Refused, Stage, supersedes
from mesh.wire.capabilities import FIRST, LINK, Offer
from mesh.wire.link_frames import CHALLENGE_SIZE, LAYOUTS, SENTENCE_MAX, Hello, LinkKind, decode, encode

TOKEN = b"t" * 16


def hello(id: int = 1, **changes: object) -> Hello:
    fields = {
        "mesh": "m",
        "id": id,
        "boot": id + 100,
        "incarnation": 1,
        "name": f"n{id}",
        "host": "h",
        "peer_url": f"tcp://{id}:1",
        "client_url": f"tcp://{id}:1",
        "epoch": 0,
        "challenge": bytes([id]) * CHALLENGE_SIZE,
        **changes,
    }
    return Hello(**fields)  # type: ignore[arg-type]


def pair(
    *,
    keys: tuple[bytes | None, bytes | None] = (None, None),
    hellos: tuple[Hello, Hello] | None = None,
    epochs: tuple[int, int] = (0, 0),
) -> tuple[Admission, Admission]:
    mine, theirs = hellos or (hello(1), hello(2))
    dialler = Admission(
        mine, dialed=True, mesh_key=keys[0], token=b"", epoch_after=lambda _: epochs[0], expect=theirs.id
    )
    listener = Admission(theirs, dialed=False, mesh_key=keys[1], token=TOKEN, epoch_after=lambda _: epochs[1])
    return dialler, listener


def talk(dialler: Admission, listener: Admission) -> list[bytes]:
    """Pass frames back and forth until nobody has more to send. Returns all."""
    said = []
    to_listener, to_dialler = dialler.begin(), listener.begin()
    while to_listener or to_dialler:
        said += to_listener + to_dialler
        answers = [answer for frame in to_listener for answer in listener.received(frame)]
        to_listener = [answer for frame in to_dialler for answer in dialler.received(frame)]
        to_dialler = answers
    return said


@pytest.mark.parametrize("key", [None, b"secret"])
def test_two_of_one_mesh_and_key_are_admitted(key: bytes | None) -> None:
    dialler, listener = pair(keys=(key, key))
    talk(dialler, listener)
    assert (dialler.stage, listener.stage) == (Stage.READY, Stage.BIND)
    assert dialler.token == listener.token == TOKEN
    assert dialler.peer == hello(2, epoch=1) and listener.peer == hello(1, epoch=1)
    assert not listener.bind("surveyor") and listener.bind("respondent")
    assert dialler.received(encode(LinkKind.READY)) == []
    assert (dialler.stage, listener.stage) == (Stage.UP, Stage.UP)
    assert dialler.rank == listener.rank


LATER = Offer.of(1, 7, [*LINK.capabilities, "later"])


@pytest.mark.parametrize("key", [None, b"secret"])
@pytest.mark.parametrize(
    ("offers", "version", "capabilities"),
    [
        ((LINK, LINK), LINK.newest, LINK.capabilities),
        ((LATER, LINK), LINK.newest, LINK.capabilities),
        ((LINK, LATER), LINK.newest, LINK.capabilities),
        ((LATER, LATER), 7, LATER.capabilities),
        ((FIRST, LINK), 1, frozenset()),
    ],
)
def test_both_sides_agree_on_the_newest_common_version_and_common_capabilities(
    key: bytes | None, offers: tuple[Offer, Offer], version: int, capabilities: frozenset[str]
) -> None:
    dialler, listener = pair(keys=(key, key), hellos=(hello(1, offer=offers[0]), hello(2, offer=offers[1])))
    talk(dialler, listener)
    assert (dialler.stage, listener.stage) == (Stage.READY, Stage.BIND)
    for admission in (dialler, listener):
        assert (admission.agreed.version, admission.agreed.capabilities) == (version, capabilities)


def test_a_listener_sends_exactly_the_fields_of_version_1_to_a_dialler_of_version_1() -> None:
    dialler, listener = pair(hellos=(hello(1, offer=FIRST), hello(2)))
    said = talk(dialler, listener)
    for frame in said:
        assert frame[0] & 0x0F == len(LAYOUTS[frame[1]]) + 1
    assert [frame[2] for frame in said[:2]] == [1, 1]


@pytest.mark.parametrize(
    ("reason", "offer", "again"),
    [
        ("malformed", LINK, True),
        ("version", LINK, True),
        ("key", LINK, False),
        ("duplicate", LINK, False),
        ("malformed", FIRST, False),
    ],
)
def test_a_dialler_refused_for_its_offer_may_speak_version_1_instead(
    reason: str, offer: Offer, again: bool
) -> None:
    dialler, _ = pair(hellos=(hello(1, offer=offer), hello(2)))
    dialler.begin()
    with pytest.raises(Refused):
        dialler.received(encode(LinkKind.REFUSED, reason, "a sentence"))
    assert dialler.speaks_first is again


def test_a_later_refusal_does_not_make_a_dialler_speak_version_1() -> None:
    dialler, listener = pair()
    dialler.received(listener.received(dialler.begin()[0])[0])
    with pytest.raises(Refused):
        dialler.received(encode(LinkKind.REFUSED, "malformed", "a sentence"))
    assert not dialler.speaks_first


@pytest.mark.parametrize("keys", [(b"a", b"b"), (None, b"b"), (b"a", None)])
def test_another_key_or_none_is_refused_before_any_token_is_given(
    keys: tuple[bytes | None, bytes | None],
) -> None:
    dialler, listener = pair(keys=keys)
    with pytest.raises(Refused) as refusal:
        talk(dialler, listener)
    assert refusal.value.reason == "key"
    assert not listener.token and not dialler.token


def test_a_listener_that_does_not_know_the_key_is_refused_by_the_dialler() -> None:
    dialler, listener = pair(keys=(b"secret", b"secret"))
    (answer,) = listener.received(dialler.begin()[0])
    (proof,) = dialler.received(answer)
    assert decode(proof)[0] == LinkKind.PROOF
    for forged in (b"", bytes(32), decode(proof)[1]):  # nothing, a guess, our own proof sent back
        with pytest.raises(Refused) as refusal:
            dialler.received(encode(LinkKind.TOKEN, forged, TOKEN))
        assert refusal.value.reason == "key"


def test_a_hello_changed_on_the_way_breaks_the_proof() -> None:
    dialler, listener = pair(keys=(b"secret", b"secret"))
    dialler.begin()
    (answer,) = listener.received(hello(1, epoch=1, peer_url="tcp://evil:1").encode())
    (proof,) = dialler.received(answer)
    with pytest.raises(Refused, match="another mesh key"):
        listener.received(proof)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (hello(2, mesh="other"), "mesh"),
        (hello(2, offer=Offer.of(7, 9, [])), "version"),
        (hello(1), "self"),
        (hello(1, boot=5), "conflict"),
    ],
)
def test_brokers_of_another_mesh_and_the_broker_itself_are_refused(other: Hello, reason: str) -> None:
    dialler, listener = pair(hellos=(hello(1), other))
    with pytest.raises(Refused) as refusal:
        talk(dialler, listener)
    assert refusal.value.reason == reason


def test_a_refusal_for_an_id_in_use_names_the_usual_cause_and_the_fix() -> None:
    """It said only that another process uses the id. A copied state folder contains the id."""
    dialler, listener = pair(hellos=(hello(1), hello(1, boot=5)))
    with pytest.raises(Refused, match=r"a state folder is copied; .* remove identity\.json from") as refusal:
        talk(dialler, listener)
    assert len(str(refusal.value)) <= SENTENCE_MAX, "the other broker reads all of it"


@pytest.mark.parametrize("kind", sorted(LAYOUTS))
def test_unexpected_frames_are_refused_at_every_stage(kind: int) -> None:
    """At every stage: every kind of well-formed frame that is not the expected one."""
    fields = {
        LinkKind.HELLO: [*decode(hello(2).encode())[1:-1], LINK.packed()],
        LinkKind.PROOF: [b""],
        LinkKind.TOKEN: [b"", TOKEN],
        LinkKind.BIND: [TOKEN],
        LinkKind.REFUSED: ["mesh", "no"],
        LinkKind.MEMBERS: [0, []],
        LinkKind.INTEREST: [1, 0, 1, []],
        LinkKind.INTEREST_CHANGE: [1, 2, [], []],
        LinkKind.INTEREST_HELD: [1],
        LinkKind.SURVEY: [bytes(8), 1],
        LinkKind.ANSWER: [bytes(8), 1],
    }.get(LinkKind(kind), [])
    frame = encode(kind, *fields)
    dialler, listener = pair()
    if kind != LinkKind.HELLO:
        for admission in (dialler, listener):
            with pytest.raises(Refused):
                admission.received(frame)
    dialler, listener = pair()
    talk(dialler, listener)
    if kind != LinkKind.READY:
        with pytest.raises(Refused):
            dialler.received(frame)
    with pytest.raises(Refused):
        listener.received(frame)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_garbage_from_a_stranger_is_refused_or_read(frames: list[bytes]) -> None:
    _, listener = pair()
    for frame in frames:
        try:
            listener.received(frame)
        except Refused as refusal:
            assert refusal.reason == "malformed"


def test_a_heartbeat_connection_is_bound_once() -> None:
    dialler, listener = pair()
    talk(dialler, listener)
    listener.bind("surveyor")
    with pytest.raises(Refused):
        listener.bind("surveyor")


def test_a_greeting_takes_little_memory() -> None:
    _, listener = pair()
    with pytest.raises(Refused, match="5000 bytes, at most 4096"):
        listener.received(bytes(5000))


# --- duplicates


def test_both_ends_compute_the_same_rank_of_a_link() -> None:
    for hellos in ((hello(1), hello(2)), (hello(2), hello(1))):
        for epochs in ((0, 0), (3, 0), (0, 7), (5, 5)):
            dialler, listener = pair(hellos=hellos, epochs=epochs)
            talk(dialler, listener)
            assert dialler.rank == listener.rank
            assert dialler.rank.epoch == max(epochs) + 1
            assert dialler.rank.dialed_by_lower is (hellos[0].id == 1)


def test_the_greater_epoch_wins_then_the_lower_ids_dial_then_the_challenge() -> None:
    ranks = [
        LinkRank(1, False, b"z"),
        LinkRank(1, True, b"a"),
        LinkRank(1, True, b"b"),
        LinkRank(2, False, b"a"),
    ]
    for lower, higher in pairwise(ranks):
        both = {"new_hello": hello(2), "old_hello": hello(2), "old_answers": True}
        assert supersedes(higher, lower, **both) and not supersedes(lower, higher, **both)  # type: ignore[arg-type]


def test_a_later_run_wins_and_a_second_process_with_one_id_does_not() -> None:
    rank = LinkRank(1, True, b"a")
    old = hello(2, incarnation=5)
    later, same = hello(2, boot=9, incarnation=6), hello(2, boot=9, incarnation=5)
    assert supersedes(rank, rank, new_hello=later, old_hello=old, old_answers=True)
    assert not supersedes(rank, rank, new_hello=same, old_hello=old, old_answers=True)
    assert supersedes(rank, rank, new_hello=same, old_hello=old, old_answers=False)


@pytest.mark.parametrize("reason", ["role", "certificate", "leaving"])
def test_a_refusal_is_counted_under_the_peers_own_reason(reason: str) -> None:
    dialler, _ = pair()
    with pytest.raises(Refused, match="the sentence") as refused:
        dialler.received(encode(LinkKind.REFUSED, reason, "the sentence"))
    assert refused.value.reason == reason
