"""From flags to a job: the socket that ``mesh cat`` opens, its addresses, and its use.

Flags that contradict each other end here, with one sentence and before anything is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal

from mesh.cli.cat_flags import Addresses, Certificates, Other, Printing, Protocols, Sending, misuse
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.formats import FORMATS, Format
from mesh.listen import is_secure
from protocols.options import SocketOptions
from protocols.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class SocketKind:
    """The abilities of a protocol, and the name of its socket in both engines."""

    socket: str
    sends: Literal["never", "must", "may"]
    prints: bool = True
    answers: bool = False


KINDS: Final = {
    "push": SocketKind("Push0", "must", prints=False),
    "pull": SocketKind("Pull0", "never"),
    "pub": SocketKind("Pub0", "must", prints=False),
    "sub": SocketKind("Sub0", "never"),
    "req": SocketKind("Req0", "must"),
    "rep": SocketKind("Rep0", "may", answers=True),
    "surveyor": SocketKind("Surveyor0", "must"),
    "respondent": SocketKind("Respondent0", "may", answers=True),
    "bus": SocketKind("Bus0", "may"),
    "pair": SocketKind("Pair0", "may"),
    "pair1": SocketKind("Pair1", "may"),
    "star": SocketKind("Star0", "may"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A checked and complete job; ``count`` None is forever or once, see `Cat`."""

    kind: SocketKind
    dial: list[str]
    listen: list[str]
    body: bytes | None
    delay_s: float
    interval_s: float | None
    peers: int
    count: int | None
    show: Format
    topics: list[str]
    options: SocketOptions
    engine: str
    background: bool
    verbose: bool


def plan(
    protocols_: Protocols,
    addresses: Addresses,
    sending: Sending,
    printing: Printing,
    certificates: Certificates,
    other: Other,
) -> Job:
    """The job of these flags. Raises `CommandFailed` with the reason why it cannot be done."""
    name = chosen_protocol(protocols_)
    kind = KINDS[name]
    dial, listen = addresses.to_dial(), addresses.to_listen()
    if not dial and not listen:
        raise misuse("say where: --dial URL or --listen URL, such as tcp://127.0.0.1:7000")
    check_fits(name, kind, sending, printing)
    check_certificate(listen, certificates)
    options = SocketOptions(
        recv_size_max=printing.recv_maxsz,
        send_timeout_s=sending.send_timeout,
        recv_timeout_s=printing.recv_timeout,
    )
    if certificates.given():
        options = with_tls(options, certificates, listens=bool(listen))
    return Job(
        kind=kind,
        dial=dial,
        listen=listen,
        body=body_of(sending),
        delay_s=sending.delay or 0.0,
        interval_s=sending.interval,
        peers=sending.peers,
        count=other.count or None,  # 0 is no limit in nngcat
        show=FORMATS[printing.chosen() or "ascii"],
        topics=printing.subscribe or [""],
        options=options,
        engine=other.engine,
        background=other.background,
        verbose=other.verbose,
    )


def chosen_protocol(flags: Protocols) -> str:
    given = [each.name for each in fields(flags) if getattr(flags, each.name)]
    if not given:
        raise misuse("say which protocol: one of " + ", ".join(f"--{name}" for name in KINDS))
    if len(given) > 1:
        raise misuse("give one protocol, not " + " and ".join(f"--{name}" for name in given))
    return given[0]


def check_fits(name: str, kind: SocketKind, sending: Sending, printing: Printing) -> None:
    """Refuse flags that the protocol has no use for."""
    has_data = sending.data is not None or sending.file is not None
    if sending.data is not None and sending.file is not None:
        raise misuse("give --data or --file, not both")
    if kind.sends == "never" and has_data:
        raise misuse(f"--{name} only receives; leave out --data and --file")
    if kind.sends == "must" and not has_data:
        raise misuse(f"say what --{name} sends: --data TEXT or --file PATH")
    if sending.interval is not None and (kind.answers or not has_data):
        raise misuse(f"--interval is for what sends by itself; --{name} does not here")
    if not kind.prints and printing.chosen() is not None:
        raise misuse(f"--{name} only sends; leave out the format")
    if printing.subscribe and name != "sub":
        raise misuse(f"--subscribe is for --sub, not for --{name}")


def body_of(sending: Sending) -> bytes | None:
    if sending.data is not None:
        return sending.data.encode("utf-8", "surrogateescape")
    if sending.file is None:
        return None
    try:
        return sys.stdin.buffer.read() if sending.file == "-" else Path(sending.file).read_bytes()
    except IsADirectoryError:
        raise CommandFailed(ExitCode.NO_INPUT, f"--file {sending.file} is a folder; name a file") from None


def check_certificate(listen: Iterable[str], certificates: Certificates) -> None:
    """Refuse a listener with TLS and without a certificate."""
    for url in listen:
        if is_secure(url) and certificates.cert is None:
            raise misuse(f"{url} needs a certificate and its key: --cert PEM, and --key PEM if it is apart")


def with_tls(options: SocketOptions, certificates: Certificates, *, listens: bool) -> SocketOptions:
    """Options with TLS. A listener with ``--cacert`` demands a certificate, like macat's."""
    demands = listens and certificates.cacert is not None
    tls = TlsConfig(
        cert_file=certificates.cert,
        key_file=certificates.key,
        ca_file=certificates.cacert,
        verify="none" if certificates.insecure else "required" if demands else None,
    )
    for file in tls.files:
        with open(file):  # a dialer would retry forever; a misspelt name is reported at once
            pass
    return replace(options, tls=tls)
