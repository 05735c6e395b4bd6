"""Two sites over TLS: each site has a broker, and the link between them is encrypted and proven both ways.

    python two_sites.py certificates keys berlin=127.0.0.1 oslo=127.0.0.1
    python two_sites.py site berlin --keys keys --listen tls+tcp://127.0.0.1:7771
    python two_sites.py site oslo --keys keys --listen tls+tcp://127.0.0.1:7772 \\
        --join tls+tcp://127.0.0.1:7771

Each site says `alive` now and then, and shows what the other one says. Programs of its host connect to a
plain address that no other host can reach (--local). Nobody joins at the other address without a
certificate of the authority. Of the folder `keys` each site needs ca.pem and its own NAME.pem.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import ipaddress
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mesh import Broker, Client, Listen, MeshError
from protocols import TlsConfig

VALID = datetime.timedelta(days=365)
EVERY_S = 5.0


def make_certificates(folder: Path, sites: dict[str, str]) -> None:
    """An authority (ca.pem) and, for each site, its key and certificate in one file. The authority's own key
    is thrown away: for another site make all of them again."""
    folder.mkdir(mode=0o700, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "two sites")])
    root = certificate(issuer, issuer, authority.public_key(), authority, ca=True)
    (folder / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    for site, host in sites.items():
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
        made = certificate(subject, issuer, key.public_key(), authority, host=host)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with open(
            os.open(folder / f"{site}.pem", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(secret + made.public_bytes(serialization.Encoding.PEM))


def certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
    host: str | None = None,
) -> x509.Certificate:
    """Signed by the authority, for as long as `VALID`; ``host`` is the name or address that others dial."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if host is not None:
        name: x509.GeneralName
        try:
            name = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return builder.sign(authority, hashes.SHA256())


def site_broker(name: str, keys: Path, listen: str, join: list[str], local: str) -> Broker:
    """The broker of one site: other sites by TLS with a certificate, this host's clients without."""
    return Broker(
        name=name,
        listen=[
            Listen(listen, serves=("peers",), require_certificate=("peers",)),
            Listen(local, serves=("clients",)),
        ],
        join=join,
        tls=TlsConfig(ca_file=str(keys / "ca.pem"), cert_file=str(keys / f"{name}.pem")),
    )


async def say_and_show(client: Client, name: str, every_s: float = EVERY_S) -> None:
    """Say that this site lives, and show what others say, until cancelled."""
    async with client.subscribe("sites.*") as heard:
        print(f"subscribed: {name}", flush=True)
        saying = asyncio.create_task(say(client, name, every_s))
        try:
            async for message in heard:
                site = message.topic.removeprefix("sites.")
                if site != name:
                    print(f"{site}: {message.body.decode(errors='replace')}", flush=True)
        finally:
            saying.cancel()


async def say(client: Client, name: str, every_s: float) -> None:
    while True:
        with suppress(MeshError):  # the next one says the same
            await client.publish(f"sites.{name}", b"alive")
        await asyncio.sleep(every_s)


async def run_site(arguments: argparse.Namespace) -> None:
    """Until SIGTERM or Ctrl-C; the broker says goodbye to the other site then."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    site = site_broker(arguments.name, arguments.keys, arguments.listen, arguments.join, arguments.local)
    async with site as broker, Client(broker.statistics()["client_url"]) as client:
        task = asyncio.create_task(say_and_show(client, arguments.name))
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        for each in (task, waiting):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await task


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two sites over TLS.")
    commands = parser.add_subparsers(dest="do", required=True)
    making = commands.add_parser("certificates")
    making.add_argument("folder", type=Path)
    making.add_argument("sites", nargs="+", metavar="NAME=HOST")
    running = commands.add_parser("site")
    running.add_argument("name")
    running.add_argument("--keys", type=Path, required=True)
    running.add_argument("--listen", required=True, help="where other sites connect: tls+tcp://...")
    running.add_argument("--join", action="append", default=[], help="another site")
    running.add_argument("--local", default="tcp://127.0.0.1:0", help="for programs of this host")
    given = parser.parse_args()
    try:
        if given.do == "certificates":
            make_certificates(given.folder, dict(pair.split("=", 1) for pair in given.sites))
        else:
            asyncio.run(run_site(given))
    except (MeshError, OSError, ValueError) as error:
        sys.exit(f"two_sites: {error}")
