"""Expiry dates of certificates, read from their bytes, since Python's ``ssl`` gives them for peers only.

The path to the date in X.509 (RFC 5280 section 4.1): Certificate, tbsCertificate, validity, notAfter.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from protocols import TlsConfig

LOOK_EVERY_S: Final = 10.0
BEGINS: Final = "-----BEGIN CERTIFICATE-----"
ENDS: Final = "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY: Final = 3
"""Elements before it: serial number, signature algorithm, issuer."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """One of our certificates: the address that shows it, and its expiry."""

    url: str
    expires: datetime

    def entry(self) -> dict[str, str]:
        """The entry in the status."""
        return {"url": self.url, "expires": self.expires.isoformat().replace("+00:00", "Z")}


class CertificateDates:
    """The first certificate of each TLS address; files are read again every `LOOK_EVERY_S`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._configs: list[tuple[str, TlsConfig]] = []
        self._found: tuple[Expiry, ...] = ()
        self._until = float("-inf")

    def watch(self, url: str, tls: TlsConfig) -> None:
        self._configs.append((url, tls))
        self._until = float("-inf")

    def __call__(self) -> tuple[Expiry, ...]:
        """Certificates that cannot be read are left out; the listener reports them."""
        now = self._clock()
        if now >= self._until:
            self._until = now + LOOK_EVERY_S
            dates = [(url, _expiry_of(tls)) for url, tls in self._configs]
            self._found = tuple(Expiry(url, expires) for url, expires in dates if expires is not None)
        return self._found


def _expiry_of(tls: TlsConfig) -> datetime | None:
    text = tls.cert
    if tls.cert_file is not None:
        try:
            with open(tls.cert_file, encoding="ascii", errors="replace") as file:
                text = file.read(1 << 20)
        except OSError:
            return None
    return None if text is None else expires(text)


def expires(pem: str) -> datetime | None:
    """The expiry of the first certificate in a PEM text. None if none can be read."""
    _, begin, rest = pem.partition(BEGINS)
    body, end, _ = rest.partition(ENDS)
    if not end:
        return None
    try:
        certificate = ssl.PEM_cert_to_DER_cert(begin + body + end)
        to_be_signed = _open(_open(certificate))
        if to_be_signed[0] == _VERSION:
            to_be_signed = _after(to_be_signed)
        for _ in range(_BEFORE_VALIDITY):
            to_be_signed = _after(to_be_signed)
        return _time(_after(_open(to_be_signed)))
    except (ValueError, IndexError):
        return None


def _head(data: bytes) -> tuple[int, int]:
    """Start and end of the first element's content."""
    size, begin = data[1], 2
    if size & 0x80:
        count = size & 0x7F
        begin += count
        size = int.from_bytes(data[2:begin], "big")
    if begin + size > len(data):
        raise ValueError("an element is longer than what holds it")
    return begin, begin + size


def _open(data: bytes) -> bytes:
    """The content of the sequence that the data begins with."""
    if data[0] != _SEQUENCE:
        raise ValueError(f"element {data[0]:#x} is not a sequence")
    begin, end = _head(data)
    return data[begin:end]


def _after(data: bytes) -> bytes:
    """The data behind the first element."""
    return data[_head(data)[1] :]


def _time(data: bytes) -> datetime:
    begin, end = _head(data)
    text = data[begin:end].decode("ascii")
    if data[0] == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    elif data[0] != _GENERALIZED_TIME:
        raise ValueError(f"element {data[0]:#x} is not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
