"""One `TlsConfig` for both engines: NNG's TLS from it, alone and against ours; and the URLs of ws
listeners.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import protocols
from protocols import NotSupported, SocketOptions, Timeout, TlsConfig, TlsConfigError
from tests.support.certificates import LOCAL, Authority, Signed

pytest.importorskip("pynng", reason="pynng is not installed (extra nng)")

from protocols import nng

pytestmark = [pytest.mark.interop, pytest.mark.isolated]

DEADLINE_S = 30.0
ENGINES: dict[str, tuple[ModuleType, ModuleType]] = {
    "nng-nng": (nng, nng),
    "nng-ours": (nng, protocols),
    "ours-nng": (protocols, nng),
}
ANYWHERE = "tls+tcp://127.0.0.1:0"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Signed:
    return authority.sign(*LOCAL)


@pytest.fixture(params=ENGINES)
def engines(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    yield ENGINES[request.param]


def options(**tls: Any) -> SocketOptions:
    return SocketOptions(tls=TlsConfig(**tls), reconnect_min_s=0.02, recv_timeout_s=DEADLINE_S)


@pytest.mark.parametrize("url", [ANYWHERE, "wss://127.0.0.1:0/mangrove"])
async def test_messages_pass_with_certificates_in_files(
    engines: tuple[Any, Any], url: str, authority: Authority, server: Signed, tmp_path: Path
) -> None:
    cert, key = server.write(tmp_path, "server")
    listening = options(cert_file=cert, key_file=key)
    dialling = options(ca_file=authority.write(tmp_path))
    async with engines[0].Pull0(options=listening) as pull, engines[1].Push0(options=dialling) as push:
        push.dial((await pull.listen(url)).url)
        body = bytes(range(256)) * 1000
        await push.wait_for_peers(1, timeout=DEADLINE_S)
        await push.send(body)
        assert await pull.recv() == body


async def test_a_websocket_listener_tells_where_it_really_is() -> None:
    async with nng.Pull0() as pull, nng.Push0() as push:
        listener = await pull.listen("ws://127.0.0.1:0/path")
        assert ":0" not in listener.url
        push.dial(listener.url)
        await push.send(b"x")
        assert await pull.recv(DEADLINE_S) == b"x"


async def test_both_sides_may_have_to_show_a_certificate(
    engines: tuple[Any, Any], authority: Authority, server: Signed
) -> None:
    listening = options(cert=server.cert, key=server.key, ca=authority.pem, verify="required")
    client = authority.sign("client@example.org")
    async with engines[0].Pull0(options=listening) as pull:
        url = (await pull.listen(ANYWHERE)).url
        async with engines[1].Push0(options=options(ca=authority.pem)) as nobody:
            nobody.dial(url)
            with pytest.raises(Timeout):
                await pull.wait_for_peers(1, timeout=0.3)
        shown = options(ca=authority.pem, cert=client.cert, key=client.key)
        async with engines[1].Push0(options=shown) as push:
            push.dial(url)
            await pull.wait_for_peers(1, timeout=DEADLINE_S)
            await push.send(b"it is me")
            assert await pull.recv() == b"it is me"


async def test_an_untrusted_certificate_is_refused_unless_verification_is_off(
    engines: tuple[Any, Any], server: Signed
) -> None:
    listening = options(cert=server.cert, key=server.key)
    async with engines[0].Pull0(options=listening) as pull:
        url = (await pull.listen(ANYWHERE)).url
        async with engines[1].Push0(options=options(ca=Authority().pem)) as push:
            push.dial(url)
            with pytest.raises(Timeout):
                await push.wait_for_peers(1, timeout=0.3)
        async with engines[1].Push0(options=options(verify="none")) as push:
            push.dial(url)
            await push.wait_for_peers(1, timeout=DEADLINE_S)


async def test_the_name_must_be_the_one_that_was_dialled(
    engines: tuple[Any, Any], authority: Authority
) -> None:
    elsewhere = authority.sign("elsewhere.example")
    listening = options(cert=elsewhere.cert, key=elsewhere.key)
    async with engines[0].Pull0(options=listening) as pull:
        url = (await pull.listen(ANYWHERE)).url
        async with engines[1].Push0(options=options(ca=authority.pem)) as push:
            push.dial(url)
            with pytest.raises(Timeout):
                await push.wait_for_peers(1, timeout=0.3)
        named = options(ca=authority.pem, server_name="elsewhere.example")
        async with engines[1].Push0(options=named) as push:
            push.dial(url)
            await push.wait_for_peers(1, timeout=DEADLINE_S)


async def test_unusable_input_gives_one_sentence(
    tmp_path: Path, authority: Authority, server: Signed
) -> None:
    garbled = tmp_path / "garbled.pem"
    garbled.write_bytes(b"\xff\xfe")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    other = tmp_path / "other.txt"
    other.write_text("something else")
    listening = {
        "needs a certificate": {},
        "cannot be read: No such file": {"cert_file": str(tmp_path / "nowhere")},
        "is not PEM": {"cert_file": str(garbled)},
        "is empty": {"cert_file": str(empty)},
        "NNG cannot use": {"cert_file": str(other)},
        "NNG trusts nobody by itself": {"cert": server.cert, "key": server.key, "verify": "required"},
    }
    for sentence, tls in listening.items():
        async with nng.Pull0(options=options(**tls)) as pull:
            with pytest.raises(TlsConfigError, match=sentence):
                await pull.listen(ANYWHERE)
    async with nng.Pull0() as pull:
        with pytest.raises(TlsConfigError, match="NNG trusts nobody by itself"):
            pull.dial("tls+tcp://127.0.0.1:1")
        with pytest.raises(TlsConfigError, match="needs a certificate"):
            await pull.listen(ANYWHERE)
    async with nng.Pull0(options=options(ca=authority.pem, version_min="1.3")) as pull:
        with pytest.raises(NotSupported, match="versions"):
            pull.dial("tls+tcp://127.0.0.1:1")
