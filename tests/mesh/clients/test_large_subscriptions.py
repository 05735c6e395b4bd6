"""Subscriptions with more patterns than one frame holds, and more than a broker takes."""

from __future__ import annotations

import asyncio

import pytest

from mesh.clients.client import Client
from mesh.errors import NotAccepted
from mesh.wire.session_frames import SUBSCRIPTIONS_MAX, Kind, decode, encode
from simulations import Mesh, World
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh


def names(count: int) -> list[str]:
    return [f"device.{number:06}.temperature.celsius" for number in range(count)]


def test_thirty_thousand_patterns_are_subscribed_and_the_mesh_stays_whole() -> None:
    got: list[bytes] = []

    async def program(mesh: Client) -> None:
        async with mesh.subscribe(*names(30_000)) as subscription:
            assert not subscription.unreached
            await mesh.publish("device.029999.temperature.celsius", b"21.5")
            got.append((await anext(subscription)).body)

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("program", program)
        world.run_for(20)
        assert mesh.whole
    assert not world.failures and got == [b"21.5"]


def test_eighty_thousand_patterns_are_refused_by_name_at_once_and_the_client_continues() -> None:
    told: list[tuple[float, str]] = []

    async def program(mesh: Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NotAccepted) as refusal:
            await mesh.subscribe(*names(80_000))
        told.append((loop.time() - began, str(refusal.value)))
        refused = mesh.subscribe(*names(80_000))
        with pytest.raises(NotAccepted):
            await anext(refused)
        with pytest.raises(NotAccepted):
            await anext(refused.batches())
        async with mesh.subscribe("t") as subscription:
            await mesh.publish("t", b"still here")
            assert (await anext(subscription)).body == b"still here"
        assert mesh.statistics().sessions == 1

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("program", program)
        world.run_for(20)
        assert mesh.whole
        mesh.finish()
    ((took_s, sentence),) = told
    assert not world.failures and took_s < 1.0
    assert "broker-1 refused the subscription to device.000000" in sentence and "and 79995 more" in sentence
    assert "above the 32768 that a session may have" in sentence and len(sentence) < 500


def said(client: FakeClient, *frames: bytes) -> list[list[object]]:
    prefix = client.conversation.prefix
    client.node.exchange.client_frames(client.pipe, [prefix + frame for frame in frames], 0.0)
    return [decode(frame, 4) for frame in client.pipe.take()]


def test_parts_belong_to_the_subscription_that_follows_them() -> None:
    mesh = FakeMesh(1)
    client, sender = mesh.client(), mesh.client()
    said(
        client,
        encode(Kind.PATTERNS, 1, ["a", "b"]),
        encode(Kind.PATTERNS, 1, ["c"]),
        encode(Kind.SUBSCRIBE, 1, ["d"], 0, 100, 1000),
        encode(Kind.SUBSCRIBE, 2, ["e"], 0, 100, 1000),
    )
    assert mesh.interest[1] == [(name, 0) for name in "abcde"]
    client.consuming = False
    for topic in "abcd":
        sender.publish(topic, b"x")
    assert len([frame for frame in client.pipe.take() if frame[5] == Kind.DATA]) == 4


@pytest.mark.parametrize(
    ("frames", "word"),
    [
        ([encode(Kind.SUBSCRIBE, 2, ["d"], 0, 1, 1)], "subscription 2 came amid the parts of subscription 1"),
        ([encode(Kind.PATTERNS, 2, ["d"])], "subscription 2 came amid the parts of subscription 1"),
        ([encode(Kind.SUBSCRIBE, 1, ["a..b"], 0, 1, 1)], "empty token"),
    ],
)
def test_wrong_parts_cost_the_session_with_a_sentence(frames: list[bytes], word: str) -> None:
    client = FakeMesh(1).client()
    answers = said(client, encode(Kind.PATTERNS, 1, ["a"]), *frames)
    (error,) = [answer for answer in answers if answer[0] == Kind.ERROR]
    assert word in str(error[2]) and client.pipe.closed


def test_more_parts_than_a_session_may_have_are_not_kept_and_cost_the_subscription_only() -> None:
    client = FakeMesh(1).client()
    parts = [encode(Kind.PATTERNS, 1, ["x"] * 65_536)] * 3
    (refusal,) = said(client, *parts, encode(Kind.SUBSCRIBE, 1, ["d"], 0, 1, 1))
    assert refusal[:2] == [Kind.UNSUBSCRIBED, 1] and "196609 more are above the 32768" in refusal[2]
    assert not client.pipe.closed


def test_a_subscription_above_a_limit_is_refused_and_the_session_continues() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    for number in range(1, SUBSCRIPTIONS_MAX + 1):
        said(client, encode(Kind.SUBSCRIBE, number, ["t"], 0, 1, 1))
    (refusal,) = said(client, encode(Kind.SUBSCRIBE, SUBSCRIPTIONS_MAX + 1, ["u"], 0, 1, 1))
    assert refusal == [Kind.UNSUBSCRIBED, SUBSCRIPTIONS_MAX + 1, "a session has at most 4096 subscriptions"]
    assert not client.pipe.closed and mesh.interest[1] == [("t", 0)]
    said(client, encode(Kind.UNSUBSCRIBE, 1))
    assert not said(client, encode(Kind.SUBSCRIBE, SUBSCRIPTIONS_MAX + 1, ["u"], 0, 1, 1))
    assert mesh.interest[1] == [("t", 0), ("u", 0)]


def test_a_refusal_to_a_client_of_the_first_version_ends_its_session() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    said(client, encode(Kind.HELLO, 1, 5, 6, "old", 0))
    for number in range(1, SUBSCRIPTIONS_MAX + 1):
        said(client, encode(Kind.SUBSCRIBE, number, ["t"], 0, 1, 1))
    (error,) = said(client, encode(Kind.SUBSCRIBE, SUBSCRIPTIONS_MAX + 1, ["u"], 0, 1, 1))
    assert error[0] == Kind.ERROR and "at most 4096 subscriptions" in str(error[2])
