"""Two sites hear each other over TLS, and nobody joins them without a certificate of their authority."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from mesh import Broker, Client
from protocols import TlsConfig
from tests.docs.examples.programs import program

sites = program("two_sites")
ANY, LOCAL = "tls+tcp://127.0.0.1:0", "tcp://127.0.0.1:0"


async def test_sites_exchange_messages_and_a_stranger_cannot_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    sites.make_certificates(keys, {"berlin": "127.0.0.1", "oslo": "127.0.0.1"})
    assert stat.S_IMODE((keys / "berlin.pem").stat().st_mode) == 0o600
    async with (
        sites.site_broker("berlin", keys, ANY, [], LOCAL) as berlin,
        sites.site_broker("oslo", keys, ANY, [berlin.url], LOCAL) as oslo,
        Broker(name="stranger", listen=LOCAL, join=berlin.url, tls=TlsConfig(ca_file=str(keys / "ca.pem"))),
    ):
        await oslo.wait_ready()
        async with (
            Client(oslo.statistics()["client_url"]) as there,
            Client(berlin.statistics()["client_url"]) as here,
        ):
            said = asyncio.create_task(sites.say_and_show(there, "oslo", every_s=3600))
            async with here.subscribe("sites.*") as heard:
                await here.publish("sites.berlin", b"good\x07 morning")
                while "berlin: good" not in capsys.readouterr().out:
                    await here.publish("sites.berlin", b"good morning")
                assert (await anext(heard)).topic.startswith("sites.")
            said.cancel()
            await asyncio.wait([said])
        assert {each["name"] for each in berlin.members()} == {"berlin", "oslo"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "berlin.example.org"])
def test_a_certificate_names_the_host_that_others_dial(tmp_path: Path, host: str) -> None:
    from cryptography import x509

    sites.make_certificates(tmp_path / "keys", {"berlin": host})
    made = x509.load_pem_x509_certificate((tmp_path / "keys" / "berlin.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [host]
