"""The options of a broker, checked before anything is opened."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesh.access import Anonymity, Policy, Principal
from mesh.access.keys import check_available
from mesh.errors import ConfigError
from mesh.limits import MESH_KEY_MIN, Limits, export_problem
from mesh.listen import HttpListen, Listen, is_secure
from mesh.topics import check_pattern
from mesh.wire.fields import shown
from protocols import TlsConfig, check_dialable
from protocols.errors import AddressError

LOG_HEARTBEATS: Final = ("each", "summary")


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
    log_heartbeats: str
    drain_s: float
    log_keep_days: float | None
    log_keep_mb: float | None
    limits: Limits
    principals: tuple[Principal, ...]
    anonymous: Anonymity
    http: HttpListen | None = None

    @property
    def policy(self) -> Policy:
        """The known principals, and where anonymous clients may come from."""
        return Policy(self.principals, self.anonymous)

    def __post_init__(self) -> None:
        self._check_types()
        for what, value in (("name", self.name), ("mesh", self.mesh)):
            if value is not None and not is_name(value):
                raise ConfigError(f"{what} {value!r} must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
        _ = self.policy  # raises
        if any(principal.keys for principal in self.principals):
            check_available()
        for url in (*self.join, *((self.advertise,) if self.advertise else ())):
            try:
                check_dialable(url)
            except AddressError as error:
                raise ConfigError(str(error)) from error
        for listen in self.listen:
            self._check_certificates(listen)
        for pattern in self.export:
            check_pattern(pattern)
        if problem := export_problem(self.export):
            raise ConfigError(f"export {problem}")
        for what, seconds in (("period_s", self.period_s), ("stats_s", self.stats_s)):
            if not 0 < seconds < math.inf:
                raise ConfigError(f"{what} is {seconds}; it must be above zero and finite")
        if self.log_heartbeats not in LOG_HEARTBEATS:
            raise ConfigError(f"log_heartbeats is {shown(self.log_heartbeats)}; it takes 'each' or 'summary'")
        if not 0 <= self.drain_s < math.inf:
            raise ConfigError(f"drain_s is {self.drain_s}; it must be zero or above and finite")
        for what, amount in (("log_keep_days", self.log_keep_days), ("log_keep_mb", self.log_keep_mb)):
            if amount is not None and not 0 < amount < math.inf:
                raise ConfigError(f"{what} is {amount}; it must be above zero and finite, or None")
        if not 0 < self.deadline_s <= self.period_s:
            raise ConfigError(
                f"deadline_s is {self.deadline_s}; it must be above zero and at most period_s={self.period_s}"
            )
        if self.mesh_key is not None and not self.mesh_key:
            raise ConfigError("mesh_key is empty; give it some secret bytes or leave it out")
        if self.mesh_key is not None and len(self.mesh_key) < MESH_KEY_MIN:
            raise ConfigError(f"mesh_key has {len(self.mesh_key)} bytes; use at least {MESH_KEY_MIN}")

    def _check_types(self) -> None:
        for what, value, kinds, words in (
            ("name", self.name, (str, type(None)), "a str or None"),
            ("mesh", self.mesh, str, "a str"),
            ("tls", self.tls, (TlsConfig, type(None)), "a TlsConfig or None"),
            ("advertise", self.advertise, (str, type(None)), "an address or None"),
            ("period_s", self.period_s, (int, float), "a number of seconds"),
            ("deadline_s", self.deadline_s, (int, float), "a number of seconds"),
            ("stats_s", self.stats_s, (int, float), "a number of seconds"),
            ("drain_s", self.drain_s, (int, float), "a number of seconds"),
            ("log_keep_days", self.log_keep_days, (int, float, type(None)), "a number of days or None"),
            ("log_keep_mb", self.log_keep_mb, (int, float, type(None)), "a number of megabytes or None"),
            ("limits", self.limits, Limits, "a Limits or None"),
            ("http", self.http, (HttpListen, type(None)), "an address, an HttpListen or None"),
        ):
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise _not_taken(what, value, words)

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


def summary_period_s(options: BrokerOptions) -> float | None:
    """The period of the windows in which heartbeats are combined. None: each has a row in the log."""
    return options.period_s if options.log_heartbeats == "summary" else None


def each_of(what: str, value: Any, kinds: type | tuple[type, ...], words: str) -> tuple[Any, ...]:
    """The values of an option that takes one or several. Raises `ConfigError` for anything else."""
    if isinstance(value, kinds):
        return (value,)
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray | Mapping):
        raise _not_taken(what, value, f"{words}, or a list of these")
    values = tuple(value)
    for item in values:
        if not isinstance(item, kinds):
            raise _not_taken(what, item, f"{words}, or a list of these", has=True)
    return values


def key_of(value: Any) -> bytes | None:
    """A mesh key as bytes. Raises `ConfigError`, which does not show the key."""
    if value is not None and not isinstance(value, str | bytes):
        raise ConfigError(f"mesh_key is of type {type(value).__name__}; it takes bytes, a str or None")
    return value.encode() if isinstance(value, str) else value


def folder_of(what: str, value: Any) -> str | None:
    """The path of a folder as text. Raises `ConfigError`."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if path is not None and not (isinstance(path, str) and path):
        raise _not_taken(what, value, "the path of a folder, or None")
    return path


def _not_taken(what: str, value: Any, words: str, *, has: bool = False) -> ConfigError:
    return ConfigError(f"{what} {'has' if has else 'is'} {shown(value)}; it takes {words}")


def is_name(text: str) -> bool:
    """True for a valid name of a broker or a mesh, which becomes part of file names and rows."""
    return 0 < len(text) <= 64 and text.isascii() and text.replace("-", "_").replace("_", "a").isalnum()
