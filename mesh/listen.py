"""Where a broker listens, whom an address serves, and of whom it wants a certificate.

Two roles dial a broker: ``peers``, the other brokers, and ``clients``, ours and stock sockets alike. One
address serves both unless it is told otherwise; a firewall between the two wants an address for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from mesh.errors import ConfigError
from protocols import TlsConfig, check_url
from protocols.errors import AddressError

DialerRole = Literal["peers", "clients"]
ROLES: Final[tuple[DialerRole, ...]] = get_args(DialerRole)
SECURE_SCHEMES: Final = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")


def is_secure(url: str) -> bool:
    """True if what is said at this URL is said inside TLS."""
    return url.partition("://")[0] in SECURE_SCHEMES


@dataclass(frozen=True, slots=True)
class Listen:
    """One address of a broker.

    Raises `ConfigError` for what cannot be.
    """

    url: str
    serves: tuple[DialerRole, ...] = ROLES
    """Whom; a dialer of the other role is refused with a reason."""
    tls: TlsConfig | None = None
    """For a TLS address: its certificate and authorities, where they are not the broker's."""
    require_certificate: tuple[DialerRole, ...] | None = None
    """Who must show a certificate that an authority of ``tls`` has signed. Default: peers, where ``tls``
    names authorities; nobody where it does not."""

    def __post_init__(self) -> None:
        try:
            check_url(self.url)
        except AddressError as error:
            raise ConfigError(str(error)) from error
        for what, roles in (("serves", self.serves), ("require_certificate", self.require_certificate or ())):
            for role in roles:
                if role not in ROLES:
                    raise ConfigError(f"{self.url}: {what} has {role!r}; the roles are peers and clients")
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
        """Who of those it serves must show a certificate, given the TLS it has or inherits."""
        wanted = self.require_certificate
        if wanted is None and tls.has_authority:
            wanted = ("peers",)
        return tuple(role for role in self.serves if role in (wanted or ()))


def as_listen(where: str | Listen) -> Listen:
    return Listen(where) if isinstance(where, str) else where
