"""``mesh broker``: from flags, environment and file to a broker's options. `mesh.cli.serving` runs it."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import fields
from typing import Any, Final, Literal

from mesh import config as configuration
from mesh.cli.exits import ExitCode
from mesh.cli.service_manager import ServiceManager
from mesh.cli.serving import serve
from mesh.errors import ConfigError
from mesh.limits import Limits
from mesh.listen import ROLES, DialerRole, Listen, is_secure
from mesh.logs import log_to
from mesh.spelling import nearest
from mesh.tls import check_files, tls_config

COMPOSED: Final = (
    "listen",
    "listen_peers",
    "listen_clients",
    "mesh_key_file",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "tls_server_name",
    "tls_require",
    "http",
    "http_readers",
    "http_hosts",
    "log_format",
    "log_level",
    "require_proof",
)
"""Keys of the configuration that become other parameters of `Broker`."""


def broker(
    *,
    name: str | None = None,
    listen: list[str] | None = None,
    listen_peers: list[str] | None = None,
    listen_clients: list[str] | None = None,
    join: list[str] | None = None,
    mesh: str | None = None,
    mesh_key_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_ca: str | None = None,
    tls_server_name: str | None = None,
    tls_require: list[str] | None = None,
    anonymous: str | None = None,
    require_proof: list[str] | None = None,
    advertise: str | None = None,
    export: list[str] | None = None,
    state_dir: str | None = None,
    log_dir: str | None = None,
    period: float | None = None,
    deadline: float | None = None,
    stats: float | None = None,
    log_heartbeats: Literal["each", "summary"] | None = None,
    drain: float | None = None,
    log_keep_days: float | None = None,
    log_keep_mb: float | None = None,
    http: str | None = None,
    http_readers: str | None = None,
    http_hosts: list[str] | None = None,
    limit: list[str] | None = None,
    ports_file: str | None = None,
    config: str | None = None,
    log_format: str | None = None,
    log_level: str | None = None,
    verbose: bool = False,
) -> int:
    """Run a broker until SIGTERM or SIGINT; a second one ends it at once. SIGHUP reloads its configuration.

    Parameters
    ----------
    name
        What this broker is called in logs and on screens.
    listen
        An address to serve, tcp://host:port, tls+tcp://host:port, ws://host:port/path or ipc:///path; may be
        repeated. Port 0 takes a free one.
    listen_peers
        The same, for other brokers only.
    listen_clients
        The same, for clients only.
    join
        Address of a broker to join; may be repeated. Any one of a mesh is enough.
    mesh
        Name of the mesh; brokers of another mesh are refused.
    mesh_key_file
        File whose content every broker of the mesh must know (or MANGROVE_MESH_KEY).
    tls_cert
        PEM file with this broker's certificate, for tls+tcp:// and wss:// addresses, served and dialled. A
        file that changes is read again for new connections.
    tls_key
        PEM file with its private key; default: it is in the certificate's file.
    tls_ca
        PEM file with the authorities whose certificates are trusted.
    tls_server_name
        Name that the other brokers' certificates have; default: the host in each one's address.
    tls_require
        Who must show a certificate at a TLS address: peers, clients or nobody; may be repeated. Default:
        peers, where --tls-ca is given.
    anonymous
        Where clients without a proof may come from: nowhere, loopback or everywhere. Default: loopback.
    require_proof
        An address, of those listened on, where clients must prove who they are; may be repeated.
    advertise
        Address others are told, where it is not the one listened on (NAT, containers).
    export
        Pattern that stock SUB sockets on this broker may see; may be repeated.
    state_dir
        Folder where id, incarnation and known peers outlive a restart.
    log_dir
        Folder for the event log that `mesh analyze` reads.
    period
        Seconds from one heartbeat to the next.
    deadline
        Seconds within which a heartbeat must be answered.
    stats
        Seconds between stats rows in the log.
    log_heartbeats
        Rows of heartbeats in the log: each; or summary, one for each peer and 16 periods. Default: each.
    drain
        Seconds that clients have to go to other brokers when this one leaves; 0: none. Default: 10.
    log_keep_days
        Days after which this broker's files in the log folder are removed; default: never.
    log_keep_mb
        Megabytes of this broker's files that the log folder keeps, the newest; default: all.
    http
        Where to serve health, metrics, status and a page of the mesh: host:port; a port alone is one of
        127.0.0.1.
    http_readers
        Who may read more there than health: local (this host), anybody, or the path of a file with the
        password that is asked of everybody. Default: local.
    http_hosts
        A name by which browsers may call it, besides addresses and this host's own name; may be repeated.
    limit
        NAME=NUMBER: what clients may claim, as in the section [limits] of the configuration; may be repeated.
    ports_file
        Write the addresses really bound to this file, as JSON, once it listens.
    config
        Read this TOML file instead of looking for one.
    log_format
        How the log on standard error is written: text, or json, an object a line. Default: text.
    log_level
        The least that the log tells: debug, info, warning or error. Default: warning.
    verbose
        The same as --log-level info.
    """
    flags = {
        "name": name,
        "listen": listen,
        "listen_peers": listen_peers,
        "listen_clients": listen_clients,
        "join": join,
        "mesh": mesh,
        "mesh_key_file": mesh_key_file,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_ca": tls_ca,
        "tls_server_name": tls_server_name,
        "tls_require": tls_require,
        "anonymous": anonymous,
        "require_proof": require_proof,
        "advertise": advertise,
        "export": export,
        "state_dir": state_dir,
        "log_dir": log_dir,
        "period_s": period,
        "deadline_s": deadline,
        "stats_s": stats,
        "log_heartbeats": log_heartbeats,
        "drain_s": drain,
        "log_keep_days": log_keep_days,
        "log_keep_mb": log_keep_mb,
        "http": http,
        "http_readers": http_readers,
        "http_hosts": http_hosts,
        "log_format": log_format,
        "log_level": log_level or ("info" if verbose else None),
    }
    overrides = {f"broker.{key}": value for key, value in flags.items()} | limit_flags(limit or [])

    def options() -> dict[str, Any]:
        return broker_options(configuration.load(overrides, path=config).config)

    wanted = options()
    chosen = configuration.load(overrides, path=config).config.broker
    lines = log_to(sys.stderr, level=chosen.log_level, form=chosen.log_format)
    manager = ServiceManager.of(os.environ, os.getpid())
    asyncio.run(serve(wanted, reload=options, ports_file=ports_file, lines=lines, manager=manager))
    return ExitCode.OK


def limit_flags(given: list[str]) -> dict[str, int]:
    """Limits by ``limits.key``. Raises `FlagError` for what is no NAME=NUMBER of a limit."""
    known = [item.name for item in fields(Limits)]
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not value.strip().isdecimal():
            raise configuration.FlagError(f"--limit {item!r} is not NAME=NUMBER")
        if name not in known:
            raise configuration.FlagError(f"--limit {name}: there is no such limit{nearest(name, known)}")
        found[f"limits.{name}"] = int(value)
    return found


def broker_options(everything: configuration.Config) -> dict[str, Any]:
    """The parameters of `Broker` that a configuration amounts to. Raises `ConfigError`, also for certificates
    that cannot be used."""
    config = everything.broker
    same = {
        option.key: getattr(config, option.key)
        for option in configuration.options()
        if option.section == "broker" and option.key not in COMPOSED
    }
    tls = tls_config(
        ca=config.tls_ca, cert=config.tls_cert, key=config.tls_key, server_name=config.tls_server_name
    )
    listen = listens(config)
    if tls is not None:
        check_files(tls, serves=any(is_secure(each.url) for each in listen))
    return {
        **same,
        "listen": listen,
        "tls": tls,
        "mesh_key": configuration.mesh_key(config),
        "limits": everything.limits,
        "http": configuration.http_listen(config),
        "principals": everything.principals,
    }


def listens(config: configuration.BrokerConfig) -> list[Listen]:
    """Every address with the roles that it serves; empty for the defaults of `Broker`.

    A role that must show a certificate must do so at each TLS address that serves it. Raises `ConfigError` if
    no TLS address serves such a role.
    """
    by_roles: tuple[tuple[tuple[str, ...], tuple[DialerRole, ...]], ...] = (
        (config.listen, ROLES),
        (config.listen_peers, ("peers",)),
        (config.listen_clients, ("clients",)),
    )
    secured = {role for urls, serves in by_roles for role in serves if any(map(is_secure, urls))}
    for role in ROLES:
        if role in config.tls_require and role not in secured:
            raise ConfigError(
                f"tls_require names {role}, but no TLS address serves them; "
                f"add --listen-{role} tls+tcp://... or leave {role} out"
            )
    for url in config.require_proof:
        if url not in (*config.listen, *config.listen_clients):
            raise ConfigError(
                f"require_proof names {url}, where no clients are served; it takes an address of listen"
            )
    return [
        Listen(
            url,
            serves,
            require_certificate=_required(config, serves) if is_secure(url) else None,
            require_proof=url in config.require_proof,
        )
        for urls, serves in by_roles
        for url in urls
    ]


def _required(
    config: configuration.BrokerConfig, serves: tuple[DialerRole, ...]
) -> tuple[DialerRole, ...] | None:
    if not config.tls_require:
        return None
    return tuple(role for role in serves if role in config.tls_require)
