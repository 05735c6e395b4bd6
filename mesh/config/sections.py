"""The sections of the configuration: one dataclass each, with one field for each option.

Everything else is derived from these fields: the template of ``mesh config init``, the table in
``docs/reference/configuration.md``, the names of the variables, and the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, get_type_hints

from mesh.access import ANONYMITIES, Principal
from mesh.errors import TopicError
from mesh.limits import Limits, export_problem, option
from mesh.listen import ANYBODY, LOCAL, ROLES, http_address_problem, separate_urls
from mesh.logs import FORMS, LEVELS
from mesh.topics import check_pattern
from protocols import AddressError, check_dialable, check_url

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
NOBODY: Final = "nobody"
SECONDS_MAX: Final = 30 * 86_400.0
"""Timers and the 32-bit milliseconds on the wire hold a little more."""
AMOUNT_MAX: Final = 1e9


def seconds_problem(value: Any) -> str | None:
    """Why a number of seconds cannot be used; None if it can."""
    if value is None or 0 < value <= SECONDS_MAX:
        return None
    return f"must be above zero and at most {SECONDS_MAX:.0f} (30 days), not {value:g}"


def _amount(value: Any) -> str | None:
    if value is None or 0 < value <= AMOUNT_MAX:
        return None
    return f"must be above zero and at most {AMOUNT_MAX:.0f}, not {value:g}"


def _heartbeats(value: Any) -> str | None:
    return None if value in ("each", "summary") else f"must be each or summary, not {value!r}"


def _drain(value: Any) -> str | None:
    return None if value == 0 else seconds_problem(value)


def _name(value: Any) -> str | None:
    if value is None or NAME.fullmatch(value):
        return None
    return "must be 1 to 64 of the characters A-Z a-z 0-9 _ -"


def _address(value: Any, check: Callable[[str], str] = check_dialable) -> str | None:
    """Why an address cannot be dialled, or fails another ``check``; None if it can be used."""
    try:
        if value is not None:
            check(value)
            if value.startswith("inproc:"):
                return f"has {value!r}, which reaches only the program itself; use tcp:// or ipc://"
    except AddressError as error:
        return f"has a bad address: {error}"
    return None


def _brokers(value: Any) -> str | None:
    """Why one address or several cannot be dialled; None if they can."""
    if value is None:
        return None
    return next((problem for url in separate_urls(value) or (value,) if (problem := _address(url))), None)


def _served(values: Any) -> str | None:
    return next((problem for value in values if (problem := _address(value, check_url))), None)


def _dialled(values: Any) -> str | None:
    return next((problem for value in values if (problem := _address(value))), None)


def _export(values: Any) -> str | None:
    for value in values:
        try:
            check_pattern(value)
        except TopicError as error:
            return f"has a bad pattern: {error}"
    return export_problem(values)


def _anonymity(value: Any) -> str | None:
    return None if value in ANONYMITIES else f"is {value!r}; there are {', '.join(ANONYMITIES)}"


def _roles(values: Any) -> str | None:
    allowed = (*ROLES, NOBODY)
    wrong = [value for value in values if value not in allowed]
    if wrong:
        return f"has {wrong[0]!r}; there are {', '.join(allowed)}"
    if NOBODY in values and len(values) > 1:
        return "has nobody and another role; choose one"
    return None


def _one_of(words: Sequence[str]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value in words else f"is {value!r}; it takes {', '.join(words)}"

    return check


def _http(value: Any) -> str | None:
    problem = http_address_problem(value) if value is not None else None
    return f"has a bad address: {problem}" if problem else None


def _readers(value: Any) -> str | None:
    if value in (LOCAL, ANYBODY) or "/" in value:
        return None
    return f"is {value!r}; it takes {LOCAL}, {ANYBODY} or the path of a file, with a / in it"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """``[broker]``: the options of ``mesh broker``.

    Each field is a parameter of `mesh.Broker`; ``mesh_key_file`` stands for its content, ``mesh_key``.
    """

    name: str | None = option(
        None,
        "MANGROVE_NAME",
        "name of this broker in logs and on screens; default: derived from its id",
        _name,
    )
    listen: tuple[str, ...] = option(
        (),
        "MANGROVE_LISTEN",
        "addresses to serve; default: an ipc socket and tcp://127.0.0.1:7770",
        _served,
    )
    listen_peers: tuple[str, ...] = option(
        (), "MANGROVE_LISTEN_PEERS", "addresses for other brokers only", _served
    )
    listen_clients: tuple[str, ...] = option(
        (), "MANGROVE_LISTEN_CLIENTS", "addresses for clients only", _served
    )
    join: tuple[str, ...] = option(
        (), "MANGROVE_JOIN", "addresses of brokers to join; any one of a mesh is enough", _dialled
    )
    mesh: str = option(
        "mangrove", "MANGROVE_MESH", "name of the mesh; brokers of another mesh are refused", _name
    )
    mesh_key_file: str | None = option(
        None, "MANGROVE_MESH_KEY_FILE", "file with the key that every broker of the mesh must have"
    )
    tls_cert: str | None = option(
        None, "MANGROVE_TLS_CERT", "PEM file with this broker's certificate, for tls+tcp:// and wss://"
    )
    tls_key: str | None = option(
        None, "MANGROVE_TLS_KEY", "PEM file with its private key; default: the certificate's file"
    )
    tls_ca: str | None = option(
        None, "MANGROVE_TLS_CA", "PEM file with the authorities whose certificates are trusted"
    )
    tls_server_name: str | None = option(
        None,
        "MANGROVE_TLS_SERVER_NAME",
        "name in the other brokers' certificates; default: the host in each one's address",
    )
    tls_require: tuple[str, ...] = option(
        (),
        "MANGROVE_TLS_REQUIRE",
        "roles that must show a certificate: peers, clients or nobody; default: peers, if tls_ca is given",
        _roles,
    )
    state_dir: str | None = option(
        None, "MANGROVE_STATE_DIR", "folder that keeps id, incarnation and known peers over a restart"
    )
    log_dir: str | None = option(
        None, "MANGROVE_LOG_DIR", "folder for the event log that `mesh analyze` reads"
    )
    advertise: str | None = option(
        None,
        "MANGROVE_ADVERTISE",
        "address to tell other brokers, if it is not the one listened on",
        _address,
    )
    anonymous: str = option(
        "loopback",
        "MANGROVE_ANONYMOUS",
        "where clients without a proof may come from: nowhere, loopback or everywhere",
        _anonymity,
    )
    require_proof: tuple[str, ...] = option(
        (),
        "MANGROVE_REQUIRE_PROOF",
        "addresses among those listened on where clients must prove who they are",
        _served,
    )
    export: tuple[str, ...] = option(
        ("#",),
        "MANGROVE_EXPORT",
        "patterns that stock SUB sockets on this broker may see, at most 500",
        _export,
    )
    period_s: float = option(
        1.0, "MANGROVE_PERIOD_S", "seconds from one heartbeat to the next", seconds_problem
    )
    deadline_s: float = option(
        0.5, "MANGROVE_DEADLINE_S", "seconds within which a heartbeat must be answered", seconds_problem
    )
    stats_s: float = option(5.0, "MANGROVE_STATS_S", "seconds between stats rows in the log", seconds_problem)
    log_heartbeats: str = option(
        "each",
        "MANGROVE_LOG_HEARTBEATS",
        "rows of heartbeats in the log: each, or summary (one for each peer and 16 periods)",
        _heartbeats,
    )
    drain_s: float = option(
        10.0,
        "MANGROVE_DRAIN_S",
        "seconds for clients to move to other brokers when this one leaves; 0: none",
        _drain,
    )
    log_keep_days: float | None = option(
        None,
        "MANGROVE_LOG_KEEP_DAYS",
        "days after which this broker's files in the log folder are removed; default: never",
        _amount,
    )
    log_keep_mb: float | None = option(
        None,
        "MANGROVE_LOG_KEEP_MB",
        "megabytes of this broker's files that the log folder keeps, the newest; default: all",
        _amount,
    )
    log_format: str = option(
        "text",
        "MANGROVE_LOG_FORMAT",
        "format of the log of `mesh broker` on standard error: text, or json (one object a line)",
        _one_of(FORMS),
    )
    log_level: str = option(
        "warning",
        "MANGROVE_LOG_LEVEL",
        "lowest level of this log: debug, info, warning or error",
        _one_of(LEVELS),
    )
    http: str | None = option(
        None,
        "MANGROVE_HTTP",
        "address for health, metrics, status and a page of the mesh; default: none",
        _http,
    )
    http_readers: str = option(
        "local",
        "MANGROVE_HTTP_READERS",
        "who may read more there than health: local (this host), anybody, or the path of a file with a"
        " password that everybody needs",
        _readers,
    )
    http_hosts: tuple[str, ...] = option(
        (),
        "MANGROVE_HTTP_HOSTS",
        "names that browsers may use for it, besides addresses, localhost and this host's own name",
    )


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """``[client]``: the options of commands that talk to a running broker."""

    url: str | None = option(
        None,
        "MANGROVE_URL",
        "broker to talk to, or several, separated by commas: one of them, and another when that is gone; "
        "default: the local ipc socket, then tcp://127.0.0.1:7770",
        _brokers,
    )
    tls_ca: str | None = option(
        None, "MANGROVE_CLIENT_TLS_CA", "PEM file with the trusted authorities; default: the system's"
    )
    tls_cert: str | None = option(
        None, "MANGROVE_CLIENT_TLS_CERT", "PEM file with a certificate to show to brokers that ask for one"
    )
    tls_key: str | None = option(
        None, "MANGROVE_CLIENT_TLS_KEY", "PEM file with its private key; default: the certificate's file"
    )
    tls_server_name: str | None = option(
        None, "MANGROVE_CLIENT_TLS_SERVER_NAME", "name in the broker's certificate; default: the URL's host"
    )
    key_file: str | None = option(
        None, "MANGROVE_KEY_FILE", "file with the private key by which brokers know this client"
    )
    token_file: str | None = option(
        None, "MANGROVE_TOKEN_FILE", "file with the token by which brokers know this client"
    )
    tls_insecure: bool = option(
        False, "MANGROVE_CLIENT_TLS_INSECURE", "trust any certificate: no protection against impostors"
    )
    timeout_s: float = option(
        5.0, "MANGROVE_TIMEOUT_S", "seconds to wait for a broker's answer", seconds_problem
    )


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """``[console]``: the options of `mesh top`."""

    interval_s: float = option(
        1.0, "MANGROVE_INTERVAL_S", "seconds between two looks at the mesh", seconds_problem
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All sections of the configuration."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    limits: Limits = field(default_factory=Limits)
    client: ClientConfig = field(default_factory=ClientConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    principals: tuple[Principal, ...] = ()
    """The sections ``[principals.NAME]``."""


SECTIONS: Final[Mapping[str, type]] = {
    "broker": BrokerConfig,
    "limits": Limits,
    "client": ClientConfig,
    "console": ConsoleConfig,
}


@dataclass(frozen=True, slots=True)
class Option:
    """One key of one section, as documented."""

    section: str
    key: str
    kind: str
    default: Any
    env: str
    help: str
    check: Callable[[Any], str | None] | None

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


KINDS: Final = {
    "bool": "boolean",
    "str": "string",
    "str | None": "string",
    "float": "number",
    "float | None": "number",
    "int": "integer",
    "tuple[str, ...]": "list of strings",
}


def options() -> Iterator[Option]:
    """Yield every option, in the order of the template."""
    for section, type_ in SECTIONS.items():
        hints = get_type_hints(type_)
        for item in fields(type_):
            yield _described(section, item, str(hints[item.name]).replace("<class '", "").replace("'>", ""))


def _described(section: str, item: Field[Any], hint: str) -> Option:
    meta = item.metadata
    return Option(section, item.name, KINDS[hint], item.default, meta["env"], meta["help"], meta["check"])
