"""The addresses of a broker: the roles that each serves, and the roles that must show it a certificate.

Two roles dial a broker: ``peers``, the other brokers, and ``clients``, native or stock. An address serves
both by default. If a firewall separates them, each role gets its own address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from mesh.errors import ConfigError
from protocols import TlsConfig, check_url
from protocols.errors import AddressError

DialerRole = Literal["peers", "clients"]
ROLES: Final[tuple[DialerRole, ...]] = get_args(DialerRole)
SECURE_SCHEMES: Final = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")


_BETWEEN_URLS: Final = re.compile(r",\s*(?=[a-z0-9+]+://|$)")
"""The path of an ipc address may contain commas."""


def separate_urls(text: str) -> tuple[str, ...]:
    """The addresses in a comma-separated list, as variables and files contain it."""
    return tuple(part.strip() for part in _BETWEEN_URLS.split(text) if part.strip())


def is_secure(url: str) -> bool:
    """True for a URL whose connections are encrypted by TLS."""
    return url.partition("://")[0] in SECURE_SCHEMES


@dataclass(frozen=True, slots=True)
class Listen:
    """One address of a broker. Raises `ConfigError` for values that contradict each other."""

    url: str
    serves: tuple[DialerRole, ...] = ROLES
    """Roles that it serves; a dialer of the other role is refused with a reason."""
    tls: TlsConfig | None = None
    """For a TLS address: its certificate and authorities, if they differ from the broker's."""
    require_certificate: tuple[DialerRole, ...] | None = None
    """Roles that must show a certificate signed by an authority of ``tls``. Default: peers if ``tls`` names
    authorities, otherwise none."""
    require_proof: bool = False
    """True if clients must prove their identity with a key, a token or a certificate."""

    def __post_init__(self) -> None:
        try:
            check_url(self.url)
        except (AddressError, TypeError) as error:
            raise ConfigError(str(error)) from error
        if not isinstance(self.tls, TlsConfig | None):
            raise ConfigError(
                f"{self.url}: tls is of type {type(self.tls).__name__}; it takes a TlsConfig or None"
            )
        for what, roles in (("serves", self.serves), ("require_certificate", self.require_certificate or ())):
            if not isinstance(roles, tuple | list):
                raise ConfigError(f"{self.url}: {what} is {roles!r}; it takes a tuple such as ('peers',)")
            for role in roles:
                if role not in ROLES:
                    raise ConfigError(f"{self.url}: {what} has {role!r}; the roles are peers and clients")
        if not isinstance(self.require_proof, bool):
            raise ConfigError(f"{self.url}: require_proof is {self.require_proof!r}; it takes True or False")
        if self.require_proof and "clients" not in self.serves:
            raise ConfigError(f"{self.url} does not serve clients, so it cannot ask them for a proof")
        if not self.serves:
            raise ConfigError(f"{self.url} serves nobody; the roles are peers and clients")
        for role in self.require_certificate or ():
            if role not in self.serves:
                raise ConfigError(
                    f"{self.url} does not serve {role}, so it cannot ask them for a certificate"
                )
        if not is_secure(self.url) and (self.tls is not None or self.require_certificate):
            raise ConfigError(
                f"{self.url} has no TLS, so it has no certificates; listen on tls+tcp:// or wss://"
            )

    def certificates_of(self, tls: TlsConfig) -> tuple[DialerRole, ...]:
        """Roles that it serves and that must show a certificate, given its own or inherited TLS."""
        wanted = self.require_certificate
        if wanted is None and tls.has_authority:
            wanted = ("peers",)
        return tuple(role for role in self.serves if role in (wanted or ()))


def as_listen(where: str | Listen) -> Listen:
    return Listen(where) if isinstance(where, str) else where


LOCAL: Final = "local"
ANYBODY: Final = "anybody"


@dataclass(frozen=True, slots=True)
class HttpListen:
    """The HTTP address of a broker, and its access rules. Raises `ConfigError`."""

    address: str
    """``host:port``. A port alone means 127.0.0.1; ``:port`` means every interface."""
    password: str | None = field(default=None, repr=False)
    """Required of everybody who reads more than the broker's health."""
    anybody: bool = False
    """Without a password: whether other hosts may read more than the broker's health."""
    hosts: tuple[str, ...] = ()
    """Names that browsers may use for it, besides addresses, ``localhost`` and this host's own name."""

    def __post_init__(self) -> None:
        problem = http_address_problem(self.address)
        if problem:
            raise ConfigError(f"http {problem}")
        if self.password is not None and not self.password:
            raise ConfigError("the password of http is empty; give it some characters or leave it out")
        if self.password is not None and self.anybody:
            raise ConfigError("http asks for a password or lets anybody read; choose")

    @property
    def target(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.address}" if self.address.isdecimal() else self.address


def http_address_problem(address: object) -> str | None:
    """The error in an HTTP address, or None."""
    if not isinstance(address, str):
        return f"is {address!r}; it takes an address such as 127.0.0.1:9770"
    target = f"127.0.0.1:{address}" if address.isdecimal() else address
    try:
        check_url(f"tcp://{target}")
    except AddressError as error:
        sentence = str(error).removeprefix(f"tcp://{target}").removeprefix(":").strip()
        return f"{address!r}: {sentence.replace('tcp://', '')}"
    return None


def as_http(where: str | HttpListen | None) -> HttpListen | None:
    return HttpListen(where) if isinstance(where, str) else where
