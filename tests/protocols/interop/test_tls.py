"""``tls+tcp://`` against NNG (mbedTLS): pynng and ``nngcat``, listening and dialling in turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocols import HandshakeError, Pair1, Pull0, Push0, Rep0, Req0, SharedListener
from tests.protocols.transports.support import until
from tests.support.certificates import Signed, alice, authority, config, local, stranger
from tests.support.ports import free_port

from .peers import DEADLINE_S, OPTIONS, Nng, program

pytestmark = [pytest.mark.interop, pytest.mark.isolated]

SERVER = replace(OPTIONS, tls=config(local()))
MUTUAL = replace(OPTIONS, tls=config(local(), verify="required"))
CLIENT = replace(OPTIONS, tls=config())
ALICE = replace(OPTIONS, tls=config(alice()))


def anywhere() -> str:
    """NNG's mbedTLS checks the name it dials, and knows no addresses in certificates."""
    return f"tls+tcp://localhost:{free_port()}"


def nng_tls(*, server: bool, signed: Signed | None = None, verify: bool = True) -> Any:
    import pynng

    kind = pynng.TLSConfig
    own = {} if signed is None else {"own_cert_string": signed.cert, "own_key_string": signed.key}
    return kind(
        kind.MODE_SERVER if server else kind.MODE_CLIENT,
        ca_string=authority().pem,
        server_name=None if server else "localhost",
        auth_mode=kind.AUTH_MODE_REQUIRED if verify else kind.AUTH_MODE_NONE,
        **own,
    )


def dialling(kind: str, url: str, tls: Any) -> Nng:
    """It may not wait for our handshake, which needs the loop that calls this."""
    return Nng(kind, dial=url, tls_config=tls, block_on_dial=False)


async def test_nng_dials_us() -> None:
    async with Rep0(listen="tls+tcp://127.0.0.1:0", options=SERVER) as rep:
        with dialling("Req0", rep.listeners[0].url, nng_tls(server=False)) as req:
            for body in (b"hello", bytes(100_000), b"x" * 2_000_000):
                await req.send(body)
                assert await rep.recv() == body
                await rep.send(body[::-1])
                assert await req.recv() == body[::-1]


async def test_we_dial_nng() -> None:
    url = anywhere()
    with Nng("Rep0", listen=url, tls_config=nng_tls(server=True, signed=local(), verify=False)) as rep:
        async with Req0(dial=url, options=CLIENT) as req:
            for body in (b"hello", bytes(100_000), b"x" * 2_000_000):
                await req.send(body)
                assert await rep.recv() == body
                await rep.send(body[::-1])
                assert await req.recv() == body[::-1]


async def test_a_batch_crosses_in_order_both_ways() -> None:
    bodies = [b"%d" % number for number in range(2000)]
    async with Pair1(listen="tls+tcp://127.0.0.1:0", options=SERVER) as here:
        with dialling("Pair1", here.listeners[0].url, nng_tls(server=False)) as there:
            await here.wait_for_peers(1, timeout=10.0)
            for body in bodies:
                await here.send(body)
            assert await there.recv_all(len(bodies)) == bodies
            await there.send_all(bodies)
            assert [await here.recv() for _ in bodies] == bodies


async def test_nng_shows_its_certificate_where_we_require_one() -> None:
    async with Pull0(listen="tls+tcp://127.0.0.1:0", options=MUTUAL) as pull:
        own = nng_tls(server=False, signed=alice())
        with dialling("Push0", pull.listeners[0].url, own) as push:
            await push.send(b"from alice")
            assert await pull.recv() == b"from alice"


async def test_we_show_our_certificate_where_nng_requires_one() -> None:
    url = anywhere()
    with Nng("Pull0", listen=url, tls_config=nng_tls(server=True, signed=local())) as pull:
        async with Push0(dial=url, options=ALICE) as push:
            await push.send(b"from alice")
            assert await pull.recv() == b"from alice"
        async with Push0(options=CLIENT) as nobody:
            with pytest.raises(HandshakeError) as caught:
                await nobody.dial_once(url, timeout=10.0)
            assert caught.value.reason.startswith("tls: ")


async def test_nng_without_a_certificate_is_refused_where_we_require_one() -> None:
    shared = SharedListener("tls+tcp://127.0.0.1:0", options=MUTUAL)
    await shared.start()
    with dialling("Push0", shared.url, nng_tls(server=False)):
        await until(lambda: shared.statistics().refused.get("tls: no certificate"))
    await shared.aclose()


async def test_we_do_not_trust_an_nng_that_a_stranger_signed() -> None:
    url = anywhere()
    bad = nng_tls(server=True, signed=stranger().sign("localhost"), verify=False)
    with Nng("Pull0", listen=url, tls_config=bad):
        async with Push0(options=CLIENT) as push:
            with pytest.raises(HandshakeError) as caught:
                await push.dial_once(url, timeout=10.0)
            assert caught.value.reason == "tls: untrusted certificate"


async def test_several_patterns_on_one_address_serve_nng() -> None:
    shared = SharedListener("tls+tcp://127.0.0.1:0", options=SERVER)
    async with Pull0(options=SERVER) as pull, Rep0(options=SERVER) as rep:
        await pull.listen(shared)
        await rep.listen(shared)
        await shared.start()
        with (
            dialling("Push0", shared.url, nng_tls(server=False)) as push,
            dialling("Req0", shared.url, nng_tls(server=False)) as req,
        ):
            await push.send(b"pushed")
            assert await pull.recv() == b"pushed"
            await req.send(b"asked")
            assert await rep.recv() == b"asked"
            await rep.send(b"answered")
            assert await req.recv() == b"answered"
        await shared.aclose()


@pytest.mark.process
async def test_nngcat_dials_us_and_checks_our_certificate(tmp_path: Path) -> None:
    ca = authority().write(tmp_path)
    async with Push0(listen="tls+tcp://127.0.0.1:0", options=SERVER) as push:
        url = push.listeners[0].url.replace("127.0.0.1", "localhost")
        async with program("nngcat", "--pull", "--connect", url, "--cacert", ca, "--quoted") as peer:
            await push.wait_for_peers(1, timeout=10.0)
            await push.send(b"over TLS")
            assert await peer.lines(1) == [b'"over TLS"']


@pytest.mark.process
async def test_we_dial_nngcat(tmp_path: Path) -> None:
    cert, key = local().write(tmp_path, "server")
    url = anywhere()
    async with program("nngcat", "--pull", "--bind", url, "-E", cert, "--key", key, "--quoted") as peer:
        async with Push0(dial=url, options=CLIENT) as push:
            await push.send(b"over TLS")
            assert await peer.lines(1) == [b'"over TLS"']


@pytest.mark.process
async def test_a_peer_may_change_its_keys_and_ask_us_to_change_ours(tmp_path: Path) -> None:
    """TLS 1.3 key updates, as ``openssl s_client`` sends them for a line that begins with K."""
    ca = authority().write(tmp_path)
    header = bytes.fromhex("0053500000110000")
    async with Pair1(listen="tls+tcp://127.0.0.1:0", options=SERVER) as here:
        port = here.listeners[0].url.rpartition(":")[2]
        options = ("-connect", f"localhost:{port}", "-CAfile", ca, "-verify_return_error")
        process = await asyncio.create_subprocess_exec(
            "openssl",
            "s_client",
            *options,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(DEADLINE_S):
                process.stdin.write(header + frame(b"\0\0\0\1before"))
                assert await here.recv() == b"before"
                process.stdin.write(b"K\n")
                await process.stdout.readuntil(b"KEYUPDATE")
                process.stdin.write(frame(b"\0\0\0\1after"))
                assert await here.recv() == b"after"
                await here.send(b"with keys of our own that are new")
                await process.stdout.readuntil(b"with keys of our own that are new")
        finally:
            process.kill()
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(8, "big") + payload
