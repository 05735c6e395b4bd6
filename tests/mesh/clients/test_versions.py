"""Clients of this version at brokers of the first one, and the protection of a client's id."""

from __future__ import annotations

import asyncio

import pytest

from mesh.clients.client import Client
from mesh.clients.conversation import Conversation
from mesh.errors import Disconnected, PeerError, Unknown
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED
from mesh.wire.capabilities import FIRST, PUBLISHER_SECRET, Agreed, Offer
from mesh.wire.session_frames import AGAIN, DATA_SIZE, Kind, data_head, decode, encode, read_data
from mesh.wire.session_opening import TOO_LONG_FOR_FIRST, client_id, hello, read_hello, verified, welcome
from simulations import Mesh, World
from tests.mesh.clients.brokerless import PREFIX
from tests.mesh.dataplane.neighbourhood import FakeMesh

SECRET = b"0123456789abcdef"
ID = client_id(SECRET)
REFUSAL = encode(Kind.ERROR, "SessionError", TOO_LONG_FOR_FIRST)


def dialled(conversation: Conversation) -> list[object]:
    """Connect anew; return the HELLO that is sent."""
    conversation.connected(0.0)
    (frame,) = conversation.take_control()
    assert frame[:4] == PREFIX
    return decode(frame, 4)[1:]


def answered(conversation: Conversation, version: int) -> None:
    """Let a broker of that version say WELCOME."""
    capabilities = frozenset([PUBLISHER_SECRET]) if version > 1 else frozenset()
    frame = welcome(Agreed(version, capabilities), 9, "alpha", "mesh", 1, 1000, 1 << 20)
    conversation.received([PREFIX + frame], 0.0)


def lost(conversation: Conversation, error: bytes = b"") -> None:
    if error:
        with pytest.raises(PeerError):
            conversation.received([PREFIX + error], 0.0)
    conversation.disconnected()


def fresh() -> Conversation:
    return Conversation(secret=SECRET, boot=2, name="me", prefix=PREFIX, keepalive_s=0.0, now=0.0)


def sent(conversation: Conversation) -> list[tuple[int, int, int]]:
    """Publisher, sequence and flags of the blocks that are sent."""
    found = []
    for frame in conversation.take_frames():
        block = blocks.open_block(frame, 4 + DATA_SIZE)
        found.append((block.publisher, block.sequence, read_data(frame, 4)[1]))
    return found


def test_a_client_says_its_offer_and_falls_back_after_the_refusal_of_the_first_version() -> None:
    conversation = fresh()
    assert read_hello(dialled(conversation)).publisher("") == verified(ID) and not conversation.falls_back
    lost(conversation, REFUSAL)
    assert conversation.falls_back
    assert dialled(conversation) == [1, ID, 2, "me", 0], "exactly the fields of version 1"
    answered(conversation, 1)
    assert (
        conversation.settled and not conversation.falls_back and conversation.agreed == Agreed(1, frozenset())
    )
    lost(conversation)
    assert len(dialled(conversation)) == 7, "the next broker may be of a later version"


def test_other_refusals_do_not_make_a_client_fall_back() -> None:
    conversation = fresh()
    dialled(conversation)
    lost(conversation, encode(Kind.ERROR, "SessionError", "broker alpha is leaving: stop"))
    assert not conversation.falls_back and len(dialled(conversation)) == 7


def test_a_refused_first_version_is_followed_by_the_whole_offer_again() -> None:
    conversation = fresh()
    dialled(conversation)
    lost(conversation, REFUSAL)
    dialled(conversation)
    lost(conversation, encode(Kind.ERROR, "SessionError", "broker alpha is leaving: stop"))
    assert len(dialled(conversation)) == 7


def test_a_broker_may_not_answer_with_a_version_that_was_not_offered() -> None:
    conversation = fresh()
    dialled(conversation)
    with pytest.raises(PeerError, match="version 3"):
        conversation.received([PREFIX + encode(Kind.WELCOME, 3, 9, "alpha", "mesh", 1, 1, 1)], 0.0)


def test_blocks_name_the_verified_id_only_to_brokers_that_know_it() -> None:
    conversation = fresh()
    for version, publisher in ((2, verified(ID)), (1, ID), (2, verified(ID))):
        dialled(conversation)
        answered(conversation, version)
        for topic in ("a", "b"):
            conversation.add_many(topic, [b"x"], 0)
        conversation.flush()
        assert {block[0] for block in sent(conversation)} == {publisher}
        lost(conversation)


def test_a_message_published_under_version_1_is_sent_again_under_version_1() -> None:
    conversation = fresh()
    dialled(conversation)
    lost(conversation, REFUSAL)
    dialled(conversation)
    answered(conversation, 1)
    ticket, _ = conversation.add("t", b"x", ACCEPTED, b"")
    conversation.flush()
    assert sent(conversation) == [(ID, 1, 0)]
    lost(conversation)
    assert dialled(conversation)[0] == 1, "a broker of any version recognises the retry"
    answered(conversation, 1)
    conversation.flush()
    assert sent(conversation) == [(ID, 1, AGAIN)] and ticket is not None and not ticket.done
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0)
    assert ticket.done and ticket.error is None
    lost(conversation)
    assert dialled(conversation)[0] == 2


def test_a_message_that_version_1_cannot_recognise_is_unknown_and_not_sent_again() -> None:
    conversation = fresh()
    dialled(conversation)
    answered(conversation, 2)
    ticket, _ = conversation.add("t", b"x", ACCEPTED, b"")
    conversation.flush()
    assert sent(conversation) == [(verified(ID), 1, 0)] and ticket is not None
    lost(conversation)
    dialled(conversation)
    lost(conversation, REFUSAL)
    dialled(conversation)
    conversation.received(
        [PREFIX + welcome(Agreed(FIRST.newest, frozenset()), 9, "alpha", "mesh", 1, 1000, 1 << 20)], 0.0
    )
    conversation.flush()
    assert sent(conversation) == []
    with pytest.raises(Unknown, match="which knows this client by another id"):
        ticket.receipt(0)
    again, _ = conversation.add("t", b"y", ACCEPTED, b"")
    conversation.flush()
    assert sent(conversation) == [(ID, 2, 0)] and again is not None and not again.done


# --- with real data planes


def claim(mesh: FakeMesh, frame: bytes, *blocks_of: bytes) -> str:
    """The broker's refusal, if any, of a client that begins with this HELLO and sends these blocks."""
    client = mesh.client(2)
    prefix = client.conversation.prefix
    said = [frame, *(data_head(0, 0, 0, 0, len(block)) + block for block in blocks_of)]
    mesh.nodes[2].exchange.client_frames(client.pipe, [prefix + each for each in said], mesh.now)
    mesh.clients.remove(client)
    answers = [decode(answer, 4) for answer in client.pipe.take()]
    return next((answer[2] for answer in answers if answer[0] == Kind.ERROR), "")


def test_a_subscriber_that_claims_a_seen_publisher_is_refused_and_suppresses_nothing() -> None:
    mesh = FakeMesh(2)
    sender, reader = mesh.client(1), mesh.client(2)
    feed = reader.subscribe("t")
    sender.publish("t", b"1", level=ACCEPTED)
    publisher, boot = sender.conversation.publisher, sender.conversation.boot
    assert publisher >= 1 << 63

    def forged(publisher: int) -> bytes:
        return blocks.seal(b"t", [b"forged"], publisher=publisher, boot=boot, sequence=2, level=ACCEPTED)

    id = publisher - (1 << 63)
    secret = bytes(32)
    offer = [1, [PUBLISHER_SECRET]]
    stolen = encode(Kind.HELLO, 2, id, boot, "impostor", 0, offer, secret)
    assert f"claims id {id:016x}, which does not belong to its secret" in claim(mesh, stolen)
    first = encode(Kind.HELLO, 1, id, boot, "impostor", 0)
    assert "another publisher than its session's HELLO" in claim(mesh, first, forged(publisher))
    own = encode(Kind.HELLO, 2, client_id(secret), boot, "impostor", 0, offer, secret)
    assert "another publisher than its session's HELLO" in claim(mesh, own, forged(publisher))
    assert claim(mesh, first, forged(id)) == "", "a client of version 1 publishes as somebody unverified"
    mesh.pump()
    assert [body for _, body in reader.take(feed)] == [b"1", b"forged"]
    for body in (b"2", b"3"):
        sender.publish("t", body, level=ACCEPTED)
    assert [body for _, body in reader.take(feed)] == [b"2", b"3"], "no number is taken, none shifted"
    sender.lose()
    sender.connect(mesh.nodes[2])
    sender.publish("t", b"4", level=ACCEPTED)
    assert [body for _, body in reader.take(feed)] == [b"4"]
    assert all(not node.exchange.statistics().drops for node in mesh.nodes.values())


def test_a_client_cannot_claim_the_id_that_a_broker_uses_for_stock_clients() -> None:
    mesh = FakeMesh(2)
    reader = mesh.client(2)
    feed = reader.subscribe("t")
    exchange = mesh.nodes[1].exchange
    first = encode(Kind.HELLO, 1, exchange.id, exchange.boot, "impostor", 0)
    forged = blocks.seal(
        b"t", [b"forged"], publisher=exchange.id, boot=exchange.boot, sequence=1, level=ACCEPTED
    )
    assert claim(mesh, first, forged) == ""
    mesh.pump()
    exchange.publish("t", [b"stock"], "accepted", mesh.now)
    assert [body for _, body in reader.take(feed)] == [b"forged", b"stock"]


# --- with whole brokers


def test_a_subscriber_that_steals_an_id_is_refused_with_the_reason_and_its_victim_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stolen: list[tuple[int, int]] = []
    got: list[bytes] = []
    told: list[str] = []

    def claims(
        offer: Offer, secret: bytes, boot: int, name: str, keepalive_s: float, claim: None = None
    ) -> bytes:
        if name != "thief":
            return hello(offer, secret, boot, name, keepalive_s)
        publisher, boot = stolen[0]
        return encode(Kind.HELLO, 2, publisher - (1 << 63), boot, name, 0, offer.packed(), secret)

    async def victim(mesh: Client) -> None:
        for number in range(40):
            await mesh.publish("t", b"%d" % number)
            await asyncio.sleep(0.25)

    async def thief(mesh: Client) -> None:
        async with mesh.subscribe("t") as subscription:
            async for delivery in subscription:
                got.append(delivery.body)
                if len(got) == 3:
                    run = subscription._feed.current
                    assert run is not None
                    stolen.extend((publisher, boot) for publisher, boot, _, _ in run.origins())
                    with pytest.raises(Disconnected) as refusal:
                        await Client(mesh.url, name="thief", environment=mesh._environment).open()
                    told.append(str(refusal.value))

    monkeypatch.setattr("mesh.clients.introduction.hello", claims)
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("robber", thief, at="broker-2")
        world.run_for(1)
        mesh.client("victim", victim, at="broker-1")
        world.run_for(12)
        mesh.finish()
    assert not world.failures
    assert got == [b"%d" % number for number in range(40)]
    assert len(told) == 1 and "which does not belong to its secret" in told[0]
