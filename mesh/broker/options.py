"""The options of a broker, checked before anything is opened."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mesh.errors import ConfigError
from mesh.limits import Limits
from mesh.listen import Listen, is_secure
from mesh.topics import check_pattern
from protocols import TlsConfig, check_url
from protocols.errors import AddressError


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The parameters of `Broker`, checked."""

    name: str | None
    listen: tuple[Listen, ...]
    join: tuple[str, ...]
    mesh: str
    mesh_key: bytes | None
    tls: TlsConfig | None
    state_dir: str | None
    log_dir: str | None
    advertise: str | None
    export: tuple[str, ...]
    period_s: float
    deadline_s: float
    stats_s: float
    log_keep_days: float | None
    log_keep_mb: float | None
    limits: Limits

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("mesh", self.mesh)):
            if value is not None and not is_name(value):
                raise ConfigError(f"{what} {value!r} must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
        for url in (*self.join, *((self.advertise,) if self.advertise else ())):
            try:
                check_url(url)
            except AddressError as error:
                raise ConfigError(str(error)) from error
        for listen in self.listen:
            self._check_certificates(listen)
        for pattern in self.export:
            check_pattern(pattern)
        for what, seconds in (("period_s", self.period_s), ("stats_s", self.stats_s)):
            if not 0 < seconds < math.inf:
                raise ConfigError(f"{what} is {seconds}; it must be above zero and finite")
        for what, amount in (("log_keep_days", self.log_keep_days), ("log_keep_mb", self.log_keep_mb)):
            if amount is not None and not 0 < amount < math.inf:
                raise ConfigError(f"{what} is {amount}; it must be above zero and finite, or None")
        if not 0 < self.deadline_s <= self.period_s:
            raise ConfigError(
                f"deadline_s is {self.deadline_s}; it must be above zero and at most period_s={self.period_s}"
            )
        if self.mesh_key is not None and not self.mesh_key:
            raise ConfigError("mesh_key is empty; give it some secret bytes or leave it out")

    def _check_certificates(self, listen: Listen) -> None:
        if not is_secure(listen.url):
            return
        tls = listen.tls or self.tls
        if tls is None or not tls.has_certificate:
            raise ConfigError(
                f"{listen.url} needs a certificate: --tls-cert and --tls-key, "
                "or tls=TlsConfig(...) in a program"
            )
        if listen.certificates_of(tls) and not tls.has_authority:
            raise ConfigError(
                f"{listen.url} wants certificates but trusts no authority: name it with --tls-ca"
            )


def is_name(text: str) -> bool:
    """True for a name that a broker or a mesh may have: it becomes part of file names and rows."""
    return 0 < len(text) <= 64 and text.isascii() and text.replace("-", "_").replace("_", "a").isalnum()
