"""Principals over real sockets: keys and tokens from files, certificates over TLS, a reload, and the cost of
guessing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesh import BlockingClient, Broker, Client, ConfigError, Disconnected, Listen, NotAccepted, Principal
from mesh.access import proofs
from mesh.access.keys import SigningKey
from mesh.cli.serving import reloaded
from protocols import HandshakeError, Req0, SocketOptions, SPError
from tests.mesh.broker.guessers import broker_that_knows, by_guessers, guess
from tests.mesh.loopback import LOCAL, eventually
from tests.support import certificates

TOKEN = b"a-token-of-some-random-text"
HASHED = proofs.token_text(proofs.stored_key(proofs.client_key(TOKEN)))
SECURE = "tls+tcp://127.0.0.1:0"


def alice(**given: Any) -> Principal:
    return Principal("alice", **{"publish": ("a",), **given})


async def test_both_clients_prove_themselves_by_the_files_that_they_are_given(tmp_path: Path) -> None:
    key = SigningKey.generate()
    (tmp_path / "key").write_bytes(key.pem())
    (tmp_path / "token").write_bytes(TOKEN)
    known = alice(keys=(proofs.key_text(key.public),), tokens=(HASHED,))
    async with Broker(listen=LOCAL, principals=known, anonymous="nowhere") as broker:

        def publish(**given: Any) -> None:
            with BlockingClient(broker.url, **given) as mesh:
                mesh.publish("a", b"")
                with pytest.raises(NotAccepted, match=r"principals\.alice\.publish has no pattern"):
                    mesh.publish("b", b"")

        for given in ({"key": tmp_path / "key"}, {"token_file": str(tmp_path / "token")}):
            async with Client(broker.url, **given) as mesh:
                await mesh.publish("a", b"")
                with pytest.raises(NotAccepted, match=r"principals\.alice\.publish has no pattern"):
                    await mesh.publish("b", b"")
            await asyncio.to_thread(publish, **given)
        with pytest.raises(Disconnected, match="anonymous is 'nowhere'"):
            await Client(broker.url).open()
        with pytest.raises(Disconnected, match="anonymous is 'nowhere'"):
            await asyncio.to_thread(publish)
        async with Req0(options=SocketOptions(resend_s=None)) as req:
            await req.dial_once(broker.url)
            await req.send(b"a hello")
            assert b"anonymous is 'nowhere'" in await req.recv(timeout=60)


async def test_an_address_that_requires_a_proof_refuses_anonymous_clients_and_another_admits_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_bytes(TOKEN)
    listen = [Listen(LOCAL, require_proof=True), Listen("ipc://" + str(tmp_path / "sock"))]
    async with Broker(listen=listen, principals=alice(tokens=(HASHED,)), anonymous="everywhere") as broker:
        with pytest.raises(Disconnected, match="serves no anonymous clients"):
            await Client(broker.url).open()
        async with Client(broker.url, token_file=tmp_path / "token") as mesh:
            await mesh.publish("a", b"")
        async with Client(broker.urls[1]) as mesh:
            await mesh.publish("anything", b"")


async def test_a_certificate_is_a_proof_for_clients_and_for_stock_sockets() -> None:
    trusted, mine = certificates.config(certificates.local()), certificates.config(certificates.alice())
    stranger = certificates.config(certificates.authority().sign("bob@example.com", common_name="bob"))
    known = (alice(certificates=("alice",)), Principal("certified", subscribe=("b",)))
    where = Listen(SECURE, serves=("clients",), require_certificate=("clients",))
    async with Broker(listen=where, tls=trusted, principals=known, anonymous="nowhere") as broker:
        async with Client(broker.url, tls=mine) as mesh:
            await mesh.publish("a", b"")
            with pytest.raises(NotAccepted, match=r"principals\.alice\.publish"):
                await mesh.publish("b", b"")
        async with Client(broker.url, tls=stranger) as mesh:
            async with mesh.subscribe("b"):
                pass
            with pytest.raises(NotAccepted, match=r"principals\.certified\.publish"):
                await mesh.publish("a", b"")
        async with Req0(options=SocketOptions(resend_s=None, tls=mine)) as req:
            await req.dial_once(broker.url)
            for said, answer in ((b"a 1", b"accepted topic=a"), (b"b 2", b"principals.alice.publish")):
                await req.send(said)
                assert answer in await req.recv(timeout=60)


async def test_a_certificate_is_a_proof_at_an_address_that_requires_none() -> None:
    """An address only for clients requested no certificates, and so recognised nobody by one."""
    tls, known = certificates.config(certificates.local()), alice(certificates=("alice",))
    async with Broker(
        listen=Listen(SECURE, serves=("clients",)),
        tls=tls,
        principals=(known, Principal("anonymous", publish=("b",))),
    ) as broker:
        async with Client(broker.url, tls=certificates.config(certificates.alice())) as mesh:
            await mesh.publish("a", b"")
        async with Client(broker.url, tls=certificates.config()) as mesh:
            await mesh.publish("b", b"")
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.publish"):
                await mesh.publish("a", b"")


async def test_an_expired_certificate_is_refused_and_both_ends_say_so() -> None:
    old = certificates.config(certificates.authority().expired("alice@example.com"))
    where = Listen(SECURE, serves=("clients",), require_certificate=("clients",))
    tls = certificates.config(certificates.local())
    async with Broker(listen=where, tls=tls, principals=alice(certificates=("alice@example.com",))) as broker:
        with pytest.raises(Disconnected, match="expired"):
            await Client(broker.url, tls=old).open()
        async with Req0(options=SocketOptions(tls=old)) as req:
            with pytest.raises((HandshakeError, SPError)):
                await req.dial_once(broker.url)
                await req.send(b"a 1")
                await req.recv(timeout=5)
        assert broker.statistics()["refused"]["tls_expired_certificate"] >= 1


async def test_a_reload_with_a_mistake_keeps_the_old_rights_and_says_so() -> None:
    """Like SIGHUP: the mistake is found before anything is replaced."""
    async with Broker(listen=LOCAL, principals=Principal("anonymous", publish=("a",))) as broker:

        def mistaken() -> dict[str, Any]:
            raise ConfigError("mangrove.toml:5: principals.alice.publish has a bad pattern: ...")

        sentence = reloaded(broker, mistaken)
        assert sentence.startswith("SIGHUP: nothing is changed: mangrove.toml:5: principals.alice.publish")
        twice = {
            "listen": LOCAL,
            "principals": (alice(tokens=(HASHED,)), Principal("b", tokens=(HASHED,), ask=("a",))),
        }
        assert "nothing is changed" in reloaded(broker, lambda: twice)
        async with Client(broker.url) as mesh:
            await mesh.publish("a", b"")
            with pytest.raises(NotAccepted):
                await mesh.publish("b", b"")
            good = {"listen": LOCAL, "principals": Principal("anonymous", publish=("b",))}
            assert reloaded(broker, lambda: good) == "SIGHUP: principals replaced"
            await mesh.publish("b", b"")
        assert replace(broker.options, principals=()).anonymous == "loopback"


# --- what wrong proofs cost


RIGHTS: dict[str, Any] = {
    "publish": ("open.#",),
    "subscribe": ("open.#",),
    "ask": ("open.#",),
    "answer": ("open.#",),
}
NOT_ALLOWED = {
    "publish": r"may not publish to 'closed': principals\.anonymous\.publish has no pattern",
    "subscribe": r"may not subscribe to 'closed': principals\.anonymous\.subscribe has no pattern",
    "answer": r"may not answer 'open\.secret': principals\.anonymous\.deny_answer has 'open\.secret'",
    "request": r"may not ask 'closed': principals\.anonymous\.ask has no pattern",
    "status": r"may not ask '\$sys\.status': principals\.anonymous\.ask has no pattern",
    "notices": r"may not subscribe to '\$sys\.queue\.#': principals\.anonymous\.subscribe has no pattern",
}


def forbidden(mesh: Client | BlockingClient) -> dict[str, Callable[[], Any]]:
    """A call for each kind of right that the client does not have."""
    return {
        "publish": lambda: mesh.publish("closed", b""),
        "subscribe": lambda: mesh.subscribe("closed"),
        "answer": lambda: mesh.subscribe("open.secret", answers=True),
        "request": lambda: mesh.request("closed", b""),
        "status": mesh.status,
        "notices": lambda: mesh.subscribe("$sys.queue.#"),
    }


async def test_a_principal_without_a_right_is_refused_over_both_clients_with_the_rule() -> None:
    def blocking(url: str) -> None:
        with BlockingClient(url) as mesh:
            for what, call in forbidden(mesh).items():
                with pytest.raises(NotAccepted, match=NOT_ALLOWED[what]):
                    call()
            survey = mesh.survey("closed", b"", deadline=1.0)
            assert survey.asked == 0 and "may not ask 'closed'" in survey.refused[0]

    known = Principal("anonymous", **RIGHTS, deny_answer=("open.secret",))
    async with Broker(listen=LOCAL, principals=known) as broker, Client(broker.url) as mesh:
        for what, call in forbidden(mesh).items():
            with pytest.raises(NotAccepted, match=NOT_ALLOWED[what]):
                await call()
        survey = await mesh.survey("closed", b"", deadline=1.0)
        assert survey.asked == 0 and "may not ask 'closed'" in survey.refused[0]
        await asyncio.to_thread(blocking, broker.url)


@pytest.mark.interop
@pytest.mark.isolated
async def test_a_principal_without_a_right_is_refused_over_nng_with_the_rule() -> None:
    """Stock sockets publish by REQ, PUSH and PUB, subscribe by SUB, and ask the mesh by REQ. They cannot make
    requests and surveys on other topics."""
    pynng = pytest.importorskip("pynng")

    def stock(url: str) -> dict[str, bytes]:
        patience = {"recv_timeout": 60_000, "send_timeout": 60_000}
        said: dict[str, bytes] = {}
        with (
            pynng.Req0(dial=url, **patience) as req,
            pynng.Push0(dial=url, **patience) as push,
            pynng.Pub0(dial=url, **patience) as pub,
            pynng.Sub0(dial=url, topics=b"", **patience) as sub,
        ):
            for text in ("closed 1", "$sys.status", "$sys.look", "open.a 2", "open.secret 3"):
                req.send(text.encode())
                said[text] = req.recv()
            for socket, name in ((push, "push"), (pub, "pub")):
                socket.send(b"closed 4")
                socket.send(b"open.%s 5" % name.encode())
            assert {sub.recv() for _ in range(3)} == {b"open.a 2", b"open.push 5", b"open.pub 5"}
        return said

    known = Principal("anonymous", **RIGHTS, deny_subscribe=("open.secret",))
    async with Broker(listen=LOCAL, principals=known) as broker:
        said = await asyncio.to_thread(stock, broker.url)
        assert b"principals.anonymous.publish has no pattern" in said["closed 1"]
        for text in ("$sys.status", "$sys.look"):
            assert b"principals.anonymous.ask has no pattern" in said[text]
        assert said["open.a 2"].startswith(b"accepted") and said["open.secret 3"].startswith(b"accepted")
        assert broker.statistics()["drops"] == {"not_allowed": 2}
    async with Broker(listen=LOCAL, principals=Principal("anonymous", ask=("#",))) as broker:

        def none_is_let_in() -> None:
            with pynng.Push0(dial=broker.url), pynng.Sub0(dial=broker.url, topics=b""):
                asyncio.run_coroutine_threadsafe(refused_both(), loop).result()

        async def refused_both() -> None:
            await eventually(
                lambda: broker.statistics()["refused"].get("not_allowed", 0) >= 2, "both are", 60
            )

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(none_is_let_in)


@pytest.mark.long
@pytest.mark.process
async def test_guessers_that_never_stop_get_fewer_than_a_hundred_refusals_a_second(tmp_path: Path) -> None:
    """A hundred connections that keep guessing would make some thousand attempts a second. The broker holds
    its refusals back. ``python -m tests.mesh.broker.guessers`` measures what they cost."""
    public = SigningKey.generate().public
    with broker_that_knows(public, tmp_path) as (found, url):
        await eventually(found, "it is ready", 120)
        broker = found()
        assert broker is not None
        for _ in range(10):
            assert await guess(url, public) == "wrong_proof"
        guessed = await by_guessers(broker, url, public, 100, 10.0)
        assert 0 < guessed.rate < 100
