"""A certificate authority for one test run, and what it signs."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import trustme

from protocols import TlsConfig

LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate (with those above it) and its key, as PEM text."""

    cert: str
    key: str

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """Put both into files, each in one step; returns their paths."""
        paths = []
        for kind, text in (("cert", self.cert), ("key", self.key)):
            path = folder / f"{name}.{kind}.pem"
            (folder / "new").write_text(text)
            os.replace(folder / "new", path)
            paths.append(str(path))
        return paths[0], paths[1]


class Authority:
    """Signs certificates."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes().decode()

    def sign(self, *names: str, **details: Any) -> Signed:
        """For these names (hosts, addresses, mail addresses)."""
        leaf = self._ca.issue_cert(*names, **details)
        chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
        return Signed(chain.decode(), leaf.private_key_pem.bytes().decode())

    def expired(self, *names: str) -> Signed:
        """One whose time was over before this test was written."""
        start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        return self.sign(*names, not_before=start, not_after=start + datetime.timedelta(days=30))

    def write(self, folder: Path, name: str = "ca") -> str:
        path = folder / f"{name}.pem"
        path.write_text(self.pem)
        return str(path)


@cache
def authority() -> Authority:
    """The one that tests trust."""
    return Authority()


@cache
def stranger() -> Authority:
    """One that nobody was told to trust."""
    return Authority()


@cache
def local() -> Signed:
    """A server's certificate for this machine."""
    return authority().sign(*LOCAL)


@cache
def alice() -> Signed:
    """A client's."""
    return authority().sign("alice@example.com", common_name="alice")


def config(signed: Signed | None = None, trust: Authority | None = None, **more: Any) -> TlsConfig:
    """The TLS of an end: a certificate or none, and the trusted authority (default: `authority`)."""
    own = {} if signed is None else {"cert": signed.cert, "key": signed.key}
    return TlsConfig(**own, ca=(trust or authority()).pem, **more)
