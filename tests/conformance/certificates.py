"""Certificates for the suite, made once a session."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme

from protocols.tls import TlsConfig

NAME = "localhost"


@dataclass(frozen=True, slots=True)
class Certificates:
    """One authority, a certificate of its for `NAME`, and files of both."""

    ca_file: str
    cert_file: str
    key_file: str
    both_file: str

    @classmethod
    def issue(cls, folder: Path) -> Certificates:
        authority = trustme.CA()
        issued = authority.issue_cert(NAME, "127.0.0.1")
        names = ("ca", "cert", "key", "both")
        ca, cert, key, both = (folder / f"{name}.pem" for name in names)
        authority.cert_pem.write_to_path(ca)
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        issued.private_key_and_cert_chain_pem.write_to_path(both)
        return cls(str(ca), str(cert), str(key), str(both))

    def ours(self) -> TlsConfig:
        """For listeners and dialers."""
        return TlsConfig(
            cert_file=self.cert_file, key_file=self.key_file, ca_file=self.ca_file, server_name=NAME
        )

    def dialer(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = False
        return context
