"""Clients with names and rights, at brokers in virtual time: which are admitted, and which requests are
refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import pytest

from mesh import Broker, Client, Disconnected, Environment, MeshError, NotAccepted, Principal
from mesh.access import proofs
from mesh.access.credentials import Credential, KeyCredential, TokenCredential
from mesh.access.keys import SigningKey
from mesh.broker.listeners import GATHER_FROM, GATHER_S
from mesh.clients.conversation import Conversation
from protocols import Pub0, Push0, Req0, Sub0
from simulations import Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of

KEY: Final = SigningKey.generate()
TOKEN: Final = b"a-token-of-some-random-text"
SHOWN: Final = proofs.key_text(KEY.public)
HASHED: Final = proofs.token_text(proofs.stored_key(proofs.client_key(TOKEN)))
ALL: Final[dict[str, Any]] = {
    "publish": ("#",),
    "subscribe": ("#", "$sys.#"),
    "ask": ("#", "$sys.#"),
    "answer": ("#",),
}
ENVIRONMENTS: Final[WeakKeyDictionary[Process, Environment]] = WeakKeyDictionary()
NOTHING: Final[dict[str, Any]] = {"publish": ("elsewhere",)}

Acting = Callable[[Process, Broker], Awaitable[None]]


def at_a_broker(act: Acting, seconds: float = 60.0, **options: Any) -> None:
    """Run ``act`` on its own host, beside a broker with these options on another one."""
    done: list[str] = []

    async def serve(process: Process) -> None:
        async with Broker(
            name="alpha", listen=url_of(process.address), environment=environment_of(process), **options
        ) as broker:
            process.exposed = broker
            await process.stopping.wait()

    async def main(process: Process) -> None:
        await act(process, process.world.node("alpha").exposed)
        done.append("yes")

    with World(1) as world:
        world.add_node("alpha", serve).start()
        world.run_for(1.0)
        world.add_node("far", main).start()
        world.run_for(seconds)
    assert done == ["yes"]


def client(process: Process, broker: Broker, credential: Credential | None = None, **given: Any) -> Client:
    if process not in ENVIRONMENTS:  # another one would draw the same secrets again
        ENVIRONMENTS[process] = environment_of(process)
    made = Client(broker.url, environment=ENVIRONMENTS[process], **given)
    made._credential = credential
    return made


def far(**options: Any) -> dict[str, Any]:
    """Anonymous clients may come from everywhere, and are this principal."""
    return {"principals": Principal("anonymous", **options), "anonymous": "everywhere"}


def wanted(broker: Broker) -> list[str]:
    """The patterns that its clients want."""
    return [pattern for pattern in broker.inspect().wanted if not pattern.startswith("$")]


# --- admission


@pytest.mark.parametrize("credential", [KeyCredential(KEY), TokenCredential(TOKEN)], ids=["key", "token"])
def test_a_client_of_another_host_is_admitted_with_a_key_or_token(credential: Credential) -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, credential) as mesh:
            assert mesh._conversation.principal == "alice"
            assert (await mesh.publish("news", b"hello")).level == "accepted"

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), tokens=(HASHED,), **ALL))


def test_an_anonymous_client_of_another_host_is_refused_with_the_setting_that_admits_it() -> None:
    async def act(process: Process, broker: Broker) -> None:
        with pytest.raises(Disconnected, match="mesh broker --anonymous everywhere"):
            await client(process, broker).open()
        assert broker.statistics()["refused"] == {"not_allowed": 1}
        broker.reload(replace(broker.options, anonymous="everywhere"))
        async with client(process, broker) as mesh:
            assert (await mesh.publish("news", b"hello")).level == "accepted"

    at_a_broker(act)


@pytest.mark.parametrize(
    ("credential", "sentence"),
    [
        (KeyCredential(SigningKey.generate()), "no principal of this broker has this key"),
        (TokenCredential(TOKEN + b"!"), "no principal of this broker has this token"),
    ],
)
def test_an_unknown_key_or_token_is_refused(credential: Credential, sentence: str) -> None:
    async def act(process: Process, broker: Broker) -> None:
        with pytest.raises(Disconnected, match=sentence):
            await client(process, broker, credential).open()
        assert broker.statistics()["refused"] == {"wrong_proof": 1}

    at_a_broker(act, anonymous="everywhere", principals=Principal("alice", keys=(SHOWN,), **ALL))


class Liar:
    """Names a key that it does not have, and sends what it is told to."""

    def __init__(self, proof: Callable[[bytes], bytes]) -> None:
        self.claim = (proofs.KEY, KEY.public)
        self.prove = proof


@pytest.mark.parametrize(
    ("proof", "sentence"),
    [
        (lambda about: bytes(64), "wrong_proof: the proof does not belong to the key"),
        (lambda about: b"", "wrong_proof: the proof does not belong to the key"),
        (SigningKey.generate().sign, "wrong_proof: the proof does not belong to the key"),
        (lambda about: bytes(65), "bad_session_frame: field proof is .* expected at most 64 bytes"),
        (lambda about: bytes(900_000), "bad_session_frame: field proof is"),
    ],
    ids=["zeros", "empty", "another's", "oversized", "huge"],
)
def test_wrong_and_oversized_proofs_end_the_session_with_a_sentence(
    proof: Callable[[bytes], bytes], sentence: str
) -> None:
    async def act(process: Process, broker: Broker) -> None:
        with pytest.raises(Disconnected, match=sentence):
            await client(process, broker, Liar(proof)).open()
        assert broker.statistics()["sessions"] == 0
        async with client(process, broker, KeyCredential(KEY)) as mesh:
            assert mesh._conversation.principal == "alice"

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


def test_a_client_that_guesses_waits_after_each_guess() -> None:
    """The first few refusals come at once, later ones after up to two seconds. A right key is not kept
    out."""

    async def act(process: Process, broker: Broker) -> None:
        took_s = []
        for _ in range(12):
            began = process.loop.time()
            with pytest.raises(Disconnected, match="wrong_proof"):
                await client(process, broker, Liar(lambda about: bytes(64))).open()
            took_s.append(process.loop.time() - began)
        assert max(took_s[:2]) < 0.1 and sum(took_s) > 8.0 and max(took_s) < 3.0
        unknown = KeyCredential(SigningKey.generate())
        with pytest.raises(Disconnected, match="no principal of this broker has this key"):
            await client(process, broker, unknown).open()
        both = [client(process, broker, Liar(lambda about: bytes(64))) for _ in range(200)]
        began = process.loop.time()
        await asyncio.gather(*(each.open() for each in both), return_exceptions=True)
        assert 1.0 < process.loop.time() - began < 3.0, "all at once"
        await asyncio.sleep(31.0)
        async with client(process, broker, KeyCredential(KEY)) as mesh:
            assert mesh._conversation.principal == "alice"

    at_a_broker(act, 120.0, principals=Principal("alice", keys=(SHOWN,), **ALL))


def test_an_overheard_proof_is_refused_in_another_session() -> None:
    """Another client replays it with the same HELLO, byte by byte: the nonce is different."""

    class Overheard:
        claim = (proofs.KEY, KEY.public)

        def __init__(self) -> None:
            self.said = b""

        def prove(self, about: bytes) -> bytes:
            self.said = self.said or KEY.sign(about)
            return self.said

    async def act(process: Process, broker: Broker) -> None:
        heard = Overheard()
        honest = client(process, broker, heard, name="honest")
        await honest.open()
        replayed = client(process, broker, heard, name="honest")
        await honest.aclose()
        same = honest._conversation
        replayed._connection_to = lambda place: replayed._connected_by(place, same)  # type: ignore[method-assign]
        same._control.clear()
        with pytest.raises(Disconnected, match="the proof does not belong to the key"):
            await replayed.open()

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


def test_an_unanswered_challenge_times_out() -> None:
    class Silent(Conversation):
        def _prove(self, challenge: bytes) -> None:
            """Sends nothing."""

    async def act(process: Process, broker: Broker) -> None:
        mesh = client(process, broker, KeyCredential(KEY), connect_timeout=20.0)
        mesh._environment = environment_of(process)
        conversation = Silent.of(
            mesh._environment.rng,
            mesh._environment.token,
            name="silent",
            keepalive_s=0.0,
            now=0.0,
            credential=KeyCredential(KEY),
        )
        mesh._connection_to = lambda place: mesh._connected_by(place, conversation)  # type: ignore[method-assign]
        with pytest.raises(Disconnected, match="deadline: no PROVE frame came within 5 s"):
            await mesh.open()

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


def test_a_principal_cannot_publish_under_the_id_of_another_even_with_its_secret() -> None:
    """On every broker, the id of a publisher is derived from the secret and the principal's name."""
    mallory = SigningKey.generate()

    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as mesh:
            await mesh.publish("news", b"one")
            honest = mesh._conversation
            other = client(process, broker, KeyCredential(mallory))
            stolen = Conversation(
                secret=honest.introduction._secret,
                boot=honest.boot,
                name="mallory",
                prefix=honest.prefix,
                keepalive_s=0.0,
                now=0.0,
                credential=KeyCredential(mallory),
            )
            other._connection_to = lambda place: other._connected_by(place, stolen)  # type: ignore[method-assign]
            async with other:
                assert stolen.publisher != honest.publisher
                stolen._identify(honest.publisher)
                with pytest.raises(MeshError):
                    await other.publish("news", b"as alice", timeout=1.0)
            assert broker.statistics()["refused"]["bad_session_frame"] >= 1, "it names another publisher"
            again = client(process, broker, KeyCredential(KEY))
            async with again:
                assert again._conversation.publisher != honest.publisher, "another secret"

    both = (
        Principal("alice", keys=(SHOWN,), **ALL),
        Principal("m", keys=(proofs.key_text(mallory.public),), **ALL),
    )
    at_a_broker(act, principals=both)


# --- rights of sessions


@pytest.mark.parametrize("level", ["accepted", "stored"])
def test_publishing_without_the_right_is_refused_with_the_rule(level: str) -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.publish has no pattern for it"):
                await mesh.publish("news", b"x", level=level)
            assert (await mesh.publish("elsewhere", b"x")).level == "accepted"

    at_a_broker(act, **far(**NOTHING))


def test_messages_of_level_sent_without_the_right_are_counted_and_the_client_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            for _ in range(2):
                await mesh.publish_many("news", [b"x"] * 5, level="sent")
                await mesh.publish("elsewhere", b"x")
        assert broker.statistics()["drops"] == {"not_allowed": 10}
        assert broker.statistics()["totals"]["published"] == 2
        told = [line for line in caplog.messages if "refused messages of level sent" in line]
        assert len(told) == 1 and "principals.anonymous.publish has no pattern" in told[0]

    at_a_broker(act, **far(**NOTHING))


def test_subscriptions_requests_and_system_topics_without_the_right_are_refused_with_the_rule() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.subscribe has no pattern"):
                await mesh.subscribe("news.#")
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.ask has no pattern"):
                await mesh.request("rpc", b"")
            result = await mesh.survey("rpc", b"", deadline=1.0)
            assert result.asked == 0 and "principals.anonymous.ask has no pattern" in result.refused[0]
            with pytest.raises(NotAccepted, match=r"may not ask '\$sys\.status'"):
                await mesh.status()
            with pytest.raises(NotAccepted, match=r"may not subscribe to '\$sys\.queue\.#'"):
                await mesh.subscribe("$sys.queue.#")
            assert mesh.connected, "the session goes on"

    at_a_broker(act, **far(**NOTHING))


def test_answering_needs_its_own_right_and_that_to_subscribe() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            async with mesh.subscribe("a"):
                pass
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.answer has no pattern"):
                await mesh.subscribe("a", answers=True)
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.subscribe has no pattern"):
                await mesh.subscribe("b", answers=True)
            async with mesh.subscribe("c", answers=True):
                pass

    at_a_broker(act, **far(subscribe=("a", "c"), answer=("b", "c")))


def test_a_large_subscription_with_one_pattern_too_many_is_refused_as_a_whole() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            patterns = [f"t.{number}" for number in range(2000)]
            with pytest.raises(NotAccepted, match="may not subscribe to 'secret'"):
                await mesh.subscribe(*patterns, "secret")
            async with mesh.subscribe(*patterns):
                pass
            assert wanted(broker) == patterns
        assert wanted(broker) == []

    at_a_broker(act, **far(subscribe=("t.#",)))


def test_rules_that_overlap_deny() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            await mesh.publish("a.b", b"")
            with pytest.raises(NotAccepted, match=r"deny_publish has '\*\.secret'"):
                await mesh.publish("a.secret", b"")
            with pytest.raises(NotAccepted, match=r"deny_subscribe has 'a\.secret\.#'"):
                await mesh.subscribe("a.#")
            await mesh.subscribe("a.b.#")

    rules = {"publish": ("a.#", "a.secret"), "deny_publish": ("*.secret",)}
    at_a_broker(act, **far(**rules, subscribe=("#",), deny_subscribe=("a.secret.#",)))


# --- a reload


def test_a_reload_takes_rights_from_existing_sessions() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as mesh, mesh.subscribe("a") as kept:
            lost = await mesh.subscribe("b.*")
            await mesh.publish("b.c", b"1")
            fewer = Principal("alice", keys=(SHOWN,), publish=("a",), subscribe=("a",))
            broker.reload(replace(broker.options, principals=(fewer,)))
            await anext(lost)
            with pytest.raises(NotAccepted, match=r"principals\.alice\.subscribe has no pattern"):
                await anext(lost)
            with pytest.raises(NotAccepted, match=r"principals\.alice\.publish"):
                await mesh.publish("b.c", b"2")
            await mesh.publish("a", b"3")
            assert (await anext(kept)).body == b"3"
            assert wanted(broker) == ["a"]

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


def test_a_reload_that_takes_a_key_away_ends_its_sessions() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as mesh:
            await mesh.publish("a", b"")
            broker.reload(replace(broker.options, principals=()))
            await asyncio.sleep(1.0)
            assert not mesh.connected and broker.statistics()["sessions"] == 0
            assert broker.statistics()["refused"]["wrong_proof"] >= 1

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


# --- many wrong proofs


def test_the_owner_of_a_key_gets_in_a_moment_later_while_many_guess_it() -> None:
    """New connections are read in groups meanwhile, which saves the broker a third of its work."""

    async def guess(mesh: Client) -> None:
        with suppress(Disconnected):
            await mesh.open()

    async def opening_s(process: Process, broker: Broker) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with client(process, broker, KeyCredential(KEY)):
            return loop.time() - began

    async def act(process: Process, broker: Broker) -> None:
        calm_s = await opening_s(process, broker)
        assert calm_s < GATHER_S
        async with asyncio.TaskGroup() as guessing:
            for _ in range(3 * GATHER_FROM):
                guessing.create_task(guess(client(process, broker, Liar(lambda about: bytes(64)))))
                await asyncio.sleep(0.02)
            assert await opening_s(process, broker) == pytest.approx(calm_s + GATHER_S, abs=calm_s)
        await asyncio.sleep(1.0)
        assert await opening_s(process, broker) == pytest.approx(calm_s, abs=calm_s / 2)

    at_a_broker(act, principals=Principal("alice", keys=(SHOWN,), **ALL))


# --- limits


def test_limits_of_a_principal_are_refused_with_the_rule() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh:
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.message_bytes_max is 10"):
                await mesh.publish("a", b"x" * 11)
            with pytest.raises(NotAccepted, match=r"message_bytes_max is 10"):
                await mesh.publish("a", b"x" * 200_000)
            with pytest.raises(NotAccepted, match=r"message_bytes_max is 10"):
                await mesh.publish_many("a", [b"", b"x" * 11])
            await mesh.publish_many("a", [b"x" * 10, b""])
            one = await mesh.subscribe("a")
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.subscriptions_max is 1"):
                await mesh.subscribe("b")
            await one.aclose()
            async with mesh.subscribe("b"):
                pass
            with pytest.raises(Disconnected, match=r"principals\.anonymous\.connections_max is 1"):
                await client(process, broker).open()
            assert mesh._conversation.credit.messages <= 5
        async with client(process, broker):
            pass

    at_a_broker(act, **far(**ALL, message_bytes_max=10, subscriptions_max=1, connections_max=1, window_max=5))


def test_a_principal_that_publishes_too_fast_is_slowed_down_and_loses_nothing() -> None:
    async def act(process: Process, broker: Broker) -> None:
        began = process.loop.time()
        async with client(process, broker) as mesh, client(process, broker) as other:
            async with mesh.subscribe("t", window=100_000) as reader:
                for number in range(100):
                    bodies = [b"%d.%d" % (number, place) for place in range(20)]
                    await (mesh, other)[number % 2].publish_many("t", bodies, timeout=60.0)
                got = {(await anext(reader)).body for _ in range(2000)}
        took_s = process.loop.time() - began
        assert len(got) == 2000 and broker.statistics()["drops"] == {}
        assert 17.0 < took_s < 22.0, "a hundred a second, and one second's at once"

    at_a_broker(act, **far(**ALL, rate_max=100.0))


# --- stock sockets


def test_stock_sockets_have_the_rights_of_their_principal() -> None:
    async def act(process: Process, broker: Broker) -> None:
        rng = process.stream("stock")
        async with Req0(rng=rng) as req, Push0(rng=rng) as push, Pub0(rng=rng) as pub, Sub0(rng=rng) as sub:
            for socket in (req, push, pub, sub):
                await socket.dial_once(broker.url)
            sub.subscribe("")

            async def ask(text: bytes) -> bytes:
                await req.send(text)
                return bytes(await req.recv(timeout=10.0))

            assert b"principals.anonymous.publish has no pattern" in await ask(b"news hello")
            assert b"may not ask '$sys.status'" in await ask(b"$sys.status")
            assert (await ask(b"open.a 1")).startswith(b"accepted topic=open.a")
            assert (await ask(b"open.secret 2")).startswith(b"accepted")
            await push.send(b"news 3")
            await push.send(b"open.b 4")
            await pub.send(b"news 5")
            await pub.send(b"open.c 6")
            got = {bytes(await sub.recv(timeout=10.0)) for _ in range(3)}
            assert got == {b"open.a 1", b"open.b 4", b"open.c 6"}
            assert broker.statistics()["drops"] == {"not_allowed": 2}

    rules: dict[str, Any] = {"publish": ("open.#",), "subscribe": ("open.#",)}
    at_a_broker(act, **far(**rules, deny_subscribe=("*.secret",)))


def test_stock_sockets_that_could_do_nothing_are_refused_and_counted() -> None:
    async def act(process: Process, broker: Broker) -> None:
        rng = process.stream("stock")
        async with Push0(rng=rng) as push, Sub0(rng=rng) as sub:
            for socket in (push, sub):
                await socket.dial_once(broker.url)
            await asyncio.sleep(2.0)
            assert not push.pipes and not sub.pipes
        assert broker.statistics()["refused"] == {"not_allowed": 2}

    at_a_broker(act, **far(ask=("#",)))


def test_stock_sockets_of_other_hosts_are_refused_unless_the_setting_lets_them_in() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with Req0(rng=process.stream("stock")) as req:
            await req.dial_once(broker.url)
            await req.send(b"news hello")
            assert b"mesh broker --anonymous everywhere" in await req.recv(timeout=10.0)

    at_a_broker(act)


def test_a_stock_publisher_that_is_too_fast_is_not_read_for_a_while() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh, mesh.subscribe("t", window=100_000) as reader:
            began = process.loop.time()
            async with Push0(rng=process.stream("stock")) as push:
                await push.dial_once(broker.url)
                for number in range(1000):
                    await push.send(b"t %d" % number + bytes(1000))
                for _ in range(1000):
                    await anext(reader)
            assert 7.0 < process.loop.time() - began < 12.0
        assert broker.statistics()["drops"] == {}

    at_a_broker(act, **far(**ALL, rate_max=100.0))


def test_a_reload_applies_to_existing_stock_subscribers() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with Sub0(rng=process.stream("stock")) as sub:
            await sub.dial_once(broker.url)
            sub.subscribe("")
            await asyncio.sleep(1.0)
            assert broker.statistics()["taps"] == ["#"]
            fewer = Principal("anonymous", subscribe=("open.#",))
            broker.reload(replace(broker.options, principals=(fewer,)))
            assert broker.statistics()["taps"] == ["open.#"]
            broker.reload(replace(broker.options, principals=(), anonymous="nowhere"))
            await asyncio.sleep(1.0)
            assert broker.statistics()["taps"] == []

    at_a_broker(act, anonymous="everywhere")
