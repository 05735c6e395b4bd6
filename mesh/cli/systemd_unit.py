"""The systemd unit of one broker, from its configuration. Pure.

The broker runs as a user that exists only while it runs (``DynamicUser``), unless one is named. It may write
to its own folders and to nothing else. Each choice that an operator may want to change has its reason in the
unit itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from mesh.config.sections import BrokerConfig

STATE_ROOT: Final = "/var/lib"
LOG_ROOT: Final = "/var/log"
FOLDER: Final = "mangrove"
STOP_S: Final = 20
"""How much longer than its clients a broker may take to leave: goodbyes, last commits of its journal."""
WATCHDOG_S: Final = 30
PRIVILEGED_BELOW: Final = 1024
HOMES: Final = ("/home/", "/root/", "/run/user/")

PROTECTION: Final = """\
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077
"""


@dataclass(frozen=True, slots=True)
class Service:
    """The ingredients of a unit.

    Args:
        program: the command that runs `mesh`, each word by itself; the first is an absolute path.
        config_file: the configuration that the broker reads, an absolute path; None: it looks for one.
        user: the account it runs as; None: one that systemd makes.
        group: a further group it is in, such as one that may read its certificate's key.
    """

    program: tuple[str, ...]
    config_file: str | None = None
    user: str | None = None
    group: str | None = None


def unit(service: Service, config: BrokerConfig) -> str:
    """The text of a unit that runs a broker with this configuration."""
    command = [*service.program, "broker"]
    if service.config_file is not None:
        command += ["--config", service.config_file]
    folders, flags, writable = _folders(config)
    account, key_flags = _account(service, config)
    words = [quoted(word) for word in command] + flags + key_flags
    lines = [
        "[Unit]",
        "Description=Mangrove message broker",
        "Wants=network-online.target",
        "After=network-online.target",
        "# A broker that cannot start now may do so later: never give up.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "# Ready means joined. A broker with addresses to join waits for another one as long as it takes;",
        "# `systemctl status` says for whom.",
        "Type=notify",
        "TimeoutStartSec=infinity",
        f"ExecStart={' '.join(words)}",
        "ExecReload=kill -HUP $MAINPID",
        "# After `mesh drain` the broker stays down. 64 and 78: a flag or the configuration is wrong.",
        "Restart=on-failure",
        "RestartSec=1",
        "RestartPreventExitStatus=64 78",
        "# An event loop that stands still for so long is ended, and the journal gets its traceback.",
        f"WatchdogSec={WATCHDOG_S}",
        "Environment=PYTHONFAULTHANDLER=1",
        f"# Clients have drain_s = {config.drain_s:g} to go to other brokers; then it leaves.",
        f"TimeoutStopSec={int(config.drain_s + 0.999) + STOP_S}",
        "LimitNOFILE=65536",
        "",
        *account,
        *folders,
        "",
        *_writable(service, writable),
        *_capabilities(config),
        *PROTECTION.splitlines(),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """A word of a command line as systemd reads it: quoted where it must be, without its specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if not word or escaped != word or any(mark in word for mark in " \t';") else word


def _path(path: str) -> str:
    """A path in a list of paths, where ``$`` means itself."""
    return quoted(path).replace("$$", "$")


def _folders(config: BrokerConfig) -> tuple[list[str], list[str], list[str]]:
    """Lines for the folders that systemd makes, flags of the broker, and other folders that it writes to."""
    lines, flags, writable = [], [], []
    state = _below(config.state_dir, STATE_ROOT)
    if config.state_dir is None:
        lines.append(f"StateDirectory={FOLDER}")
        flags.append("--state-dir ${STATE_DIRECTORY}")
    elif state is not None:
        lines.append(f"StateDirectory={_path(state)}")
    else:
        writable.append(config.state_dir)
    logs = _below(config.log_dir, LOG_ROOT)
    if logs is not None:
        lines.append(f"LogsDirectory={_path(logs)}")
    elif config.log_dir is not None:
        writable.append(config.log_dir)
    return (
        [*lines, *(["StateDirectoryMode=0700"] if state or config.state_dir is None else [])],
        flags,
        writable,
    )


def _below(path: str | None, root: str) -> str | None:
    """The rest of a path below a folder; None if it lies elsewhere."""
    if path is None:
        return None
    rest = os.path.relpath(os.path.normpath(path), root)
    return None if rest == "." or rest.startswith("..") or not os.path.isabs(path) else rest


def _account(service: Service, config: BrokerConfig) -> tuple[list[str], list[str]]:
    """Lines about the account, and the flags that follow from it."""
    lines, flags = [], []
    if service.user is not None:
        lines.append(f"User={service.user}")
    else:
        lines += ["# An account that exists while the broker runs.", "DynamicUser=yes"]
        if config.mesh_key_file is not None:
            lines += [
                "# The key's file may be root's alone: systemd hands it over.",
                f"LoadCredential=mesh-key:{_path(os.path.abspath(config.mesh_key_file))}",
            ]
            flags.append("--mesh-key-file ${CREDENTIALS_DIRECTORY}/mesh-key")
    secrets = [path for path in (config.tls_key or config.tls_cert, _password(config)) if path is not None]
    if secrets:
        names = " and ".join(secrets)
        lines.append(f"# It must be able to read {names}; see --group and --user of mesh config systemd.")
    if service.group is not None:
        lines.append(f"SupplementaryGroups={service.group}")
    return lines, flags


def _password(config: BrokerConfig) -> str | None:
    return config.http_readers if "/" in config.http_readers else None


def _writable(service: Service, folders: list[str]) -> list[str]:
    """Lines about the parts of the home folders and the disk that it sees."""
    seen = [*service.program[:1], *([service.config_file] if service.config_file else []), *folders]
    at_home = [path for path in seen if f"{path}/".startswith(HOMES)]
    lines = [f"ProtectHome={'read-only' if at_home else 'yes'}"]
    if folders:
        lines += [
            "# These exist, and belong to the broker's account.",
            f"ReadWritePaths={' '.join(map(_path, folders))}",
        ]
    return lines


def _capabilities(config: BrokerConfig) -> list[str]:
    """No capabilities, except for ports that need one."""
    served = (*config.listen, *config.listen_peers, *config.listen_clients)
    http = (f"http://{config.http}",) if config.http is not None and not config.http.isdecimal() else ()
    ports = [_port(url) for url in (*served, *http)]
    if config.http is not None and config.http.isdecimal():
        ports.append(int(config.http))
    if any(0 < port < PRIVILEGED_BELOW for port in ports):
        needed = "CAP_NET_BIND_SERVICE"
        return [f"AmbientCapabilities={needed}", f"CapabilityBoundingSet={needed}"]
    return ["CapabilityBoundingSet="]


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 0
    except ValueError:  # a path that looks like one
        return 0
