"""A mesh over mutual TLS as an operator runs it: processes, PEM files, and replaced files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh import BlockingClient, Client, Disconnected
from protocols import TlsConfig
from tests.mesh.loopback import eventually
from tests.support.certificates import LOCAL, Authority, alice, authority, config, stranger
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

ANYWHERE = "tls+tcp://127.0.0.1:0"
TRUSTING = config()
ALICE = config(alice())


class SecureBroker:
    """``mesh broker`` with certificates in its folder and its log in a file."""

    def __init__(self, folder: Path, name: str, trust: Authority | None = None) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.trust = trust or authority()
        self.certify(self.trust)
        self.ca = self.trust.write(self.folder)
        self.ports: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def certify(self, by: Authority) -> None:
        """Put a new certificate and key where the old ones are."""
        self.cert, self.key = by.sign(*LOCAL, common_name=self.name).write(self.folder, "broker")

    async def start(self, *arguments: str, listen: tuple[str, ...] = ("--listen", ANYWHERE)) -> str:
        """Run until ready; returns its URL for brokers."""
        command = [sys.executable, "-m", "mesh", "broker", "--name", self.name, *listen]
        command += ["--ports-file", "ports.json", "--period", "0.3", "--deadline", "0.2", *arguments]
        command += ["--tls-cert", self.cert, "--tls-key", self.key, "--tls-ca", self.ca]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MANGROVE_")}
        with open(self.folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                ends_with_tests(command), cwd=self.folder, env=environment, stderr=log
            )
        ports = self.folder / "ports.json"
        await eventually(lambda: ports.exists() or self._process.poll() is not None, "it is ready")  # type: ignore
        assert ports.exists(), self.log()
        self.ports = json.loads(ports.read_text())
        url: str = self.ports["url"]
        return url

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def end(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        await eventually(lambda: process.poll() is not None, f"{self.name} ends")
        assert process.returncode == 0 and "Traceback" not in self.log(), self.log()


@asynccontextmanager
async def brokers(folder: Path, *names: str) -> AsyncIterator[list[SecureBroker]]:
    running = [SecureBroker(folder, name) for name in names]
    try:
        yield running
    finally:
        for broker in running:
            await broker.end()


async def status(url: str, tls: TlsConfig = TRUSTING) -> dict[str, Any]:
    async with Client(url, tls=tls) as client:
        return await client.status()


async def wait_until_linked(url: str, *names: str) -> None:
    """Wait until the broker at ``url`` has a link to each of them."""
    async with asyncio.timeout(20):
        while True:
            members = (await status(url))["members"]
            if {member["name"] for member in members if member["link"] is not None} == set(names):
                return
            await asyncio.sleep(0.05)


async def test_three_brokers_link_over_mutual_tls_and_clients_publish_over_tls(tmp_path: Path) -> None:
    async with brokers(tmp_path, "alpha", "bravo", "charlie") as (alpha, bravo, charlie):
        seed = await alpha.start()
        assert seed.startswith("tls+tcp://127.0.0.1:")
        others = [await bravo.start("--join", seed), await charlie.start("--join", seed)]
        await wait_until_linked(seed, "bravo", "charlie")
        await wait_until_linked(others[0], "alpha", "charlie")
        async with (
            Client(others[0], tls=TRUSTING) as reader,
            Client(others[1], tls=ALICE) as writer,
            reader.subscribe("news.#") as news,
        ):
            assert news.unreached == ()
            receipt = await writer.publish("news.tls", b"over three links")
            assert (receipt.level, receipt.absent) == ("accepted", ())
            assert (await anext(news)).body == b"over three links"

            def publish() -> None:
                with BlockingClient(seed, tls=TRUSTING) as blocking:
                    blocking.publish("news.blocking", b"b" * 300_000)

            await asyncio.to_thread(publish)
            assert (await anext(news)).body == b"b" * 300_000
        found = await status(seed)
        assert found["refused"] == {}
        assert all("refused" not in broker.log() for broker in (alpha, bravo, charlie))


async def test_a_broker_of_another_authority_stays_out_and_both_logs_say_why(tmp_path: Path) -> None:
    async with brokers(tmp_path, "alpha", "bravo") as (alpha, bravo):
        seed = await alpha.start()
        await bravo.start("--join", seed)
        await wait_until_linked(seed, "bravo")
        eve = SecureBroker(tmp_path, "eve", stranger())
        # She trusts the mesh, so that her own certificate is the one refused ...
        eve.ca = authority().write(eve.folder, "theirs")
        await eve.start("--join", seed)
        mallory = SecureBroker(tmp_path, "mallory", stranger())
        await mallory.start("--join", seed)  # ... and he does not, and refuses the mesh's
        try:
            await eventually(lambda: "not signed by an authority trusted here" in alpha.log(), "alpha says")
            await eventually(lambda: "does not trust who signed our certificate" in eve.log(), "eve hears")
            await eventually(lambda: "not signed by an authority trusted here" in mallory.log(), "he says")
            assert f"no link to {seed}" in eve.log() and f"no link to {seed}" in mallory.log()
            found = await status(seed)
            assert found["refused"]["tls_untrusted_certificate"] >= 1
            assert found["refused"]["tls_our_certificate_refused"] >= 1
            assert {member["name"] for member in found["members"]} == {"alpha", "bravo"}
            said = len(re.findall(r"refused tls\+tcp://\S+ the certificate of the client", alpha.log()))
            assert said == 1, "once, then only counted"
        finally:
            await eve.end()
            await mallory.end()


async def test_brokers_may_share_one_certificate_that_names_the_mesh(tmp_path: Path) -> None:
    shared = authority().sign("mesh.internal")
    async with brokers(tmp_path, "alpha", "bravo") as (alpha, bravo):
        for broker in (alpha, bravo):
            shared.write(broker.folder, "broker")
        named = ("--tls-server-name", "mesh.internal")
        seed = await alpha.start(*named)
        await bravo.start("--join", seed, *named)
        await eventually_linked(seed, config(server_name="mesh.internal"), "bravo")
        with pytest.raises(Disconnected, match="is not for 127.0.0.1"):
            await status(seed)


async def test_certificates_are_replaced_while_the_mesh_runs(tmp_path: Path) -> None:
    """The new ones are from another authority, which shows the effect: a peer that trusts only the old one is
    refused from then on."""
    async with brokers(tmp_path, "alpha", "bravo", "charlie") as (alpha, bravo, charlie):
        seed = await alpha.start()
        await bravo.start("--join", seed)
        await wait_until_linked(seed, "bravo")
        boots = {member["name"]: member["boot"] for member in (await status(seed))["members"]}
        async with Client(seed, tls=TRUSTING) as old, old.subscribe("news.#") as news:
            (tmp_path / "alpha" / "broker.cert.pem").write_text("half a certif")
            await eventually(lambda: looked(seed, alpha, "holds no certificate"), "alpha says so")
            alpha.certify(stranger())
            Path(alpha.ca).write_text(authority().pem + stranger().pem)
            both = TlsConfig(ca=authority().pem + stranger().pem)

            async def replaced() -> bool:
                try:
                    await status(seed, TRUSTING)
                except Disconnected as error:
                    assert "not signed by an authority trusted here" in str(error)
                    return True
                return False

            async with asyncio.timeout(20):
                while not await replaced():
                    await asyncio.sleep(0.1)
            found = await status(seed, both)
            assert {member["name"]: member["boot"] for member in found["members"]} == boots
            assert [member["link"] is not None for member in found["members"] if not member.get("self")] == [
                True
            ]
            await old.publish("news.still", b"the old connection lives on")
            assert (await anext(news)).body == b"the old connection lives on"
        charlie.trust = stranger()
        charlie.certify(stranger())
        Path(charlie.ca).write_text(authority().pem + stranger().pem)
        await charlie.start("--join", seed)
        await eventually_linked(seed, both, "charlie")


def looked(url: str, broker: SecureBroker, sentence: str) -> bool:
    """Files are checked when somebody connects, so the test connects."""
    probe = subprocess.run(
        [sys.executable, "-c", CONNECT, url.rpartition(":")[2]], capture_output=True, timeout=20
    )
    assert probe.returncode == 0, probe.stderr
    return sentence in broker.log()


CONNECT = """
import socket, ssl, sys
context = ssl._create_unverified_context()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as plain, context.wrap_socket(plain): pass
"""


async def eventually_linked(url: str, tls: TlsConfig, name: str) -> None:
    async with asyncio.timeout(20):
        while True:
            members = (await status(url, tls))["members"]
            if any(member["name"] == name and member["link"] is not None for member in members):
                return
            await asyncio.sleep(0.05)


async def test_commands_talk_to_a_broker_over_tls(tmp_path: Path) -> None:
    async with brokers(tmp_path, "alpha") as (alpha,):
        listen = ("--listen-peers", ANYWHERE, "--listen-clients", ANYWHERE, "--tls-require", "clients")
        await alpha.start(listen=listen)
        url = alpha.ports["client_url"]
        cert, key = alice().write(tmp_path, "alice")
        ca = authority().write(tmp_path)

        def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("MANGROVE_")}
            return subprocess.run(
                [sys.executable, "-m", "mesh", *arguments],
                env={**environment, "MANGROVE_URL": url, **variables},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=240,
            )

        trusted = ("--tls-ca", ca, "--tls-cert", cert, "--tls-key", key)
        sent = await asyncio.to_thread(run, "pub", "news.uk", "hello", *trusted)
        assert (sent.returncode, sent.stdout.split()[0]) == (0, "accepted"), sent.stderr
        variables = {f"MANGROVE_CLIENT_TLS_{k}": v for k, v in (("CA", ca), ("CERT", cert), ("KEY", key))}
        seen = await asyncio.to_thread(lambda: run("status", "--json", **variables))
        assert json.loads(seen.stdout)["name"] == "alpha", seen.stderr
        (tmp_path / "mangrove.toml").write_text(
            f'[client]\ntls_cert = "{cert}"\ntls_key = "{key}"\ntls_insecure = true\n'
        )
        insecure = await asyncio.to_thread(run, "status", "--json")
        assert json.loads(insecure.stdout)["name"] == "alpha", insecure.stderr
        (tmp_path / "mangrove.toml").unlink()
        for flags, sentence in (
            (("--tls-ca", ca), "the peer asks for a certificate and this end has none"),
            ((), "is not signed by an authority trusted here"),
            ((*trusted, "--tls-server-name", "other.example"), "is not for other.example"),
        ):
            refused = await asyncio.to_thread(run, "pub", "news.uk", "hello", *flags)
            assert refused.returncode == 69
            assert sentence in refused.stderr and refused.stderr.count("\n") == 1
