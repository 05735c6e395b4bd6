"""Values as TOML, and a configuration file to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mesh.config.sections import options


def as_toml(value: Any) -> str:
    """One value in TOML; ``None`` has no spelling there and is an empty comment's business."""
    if isinstance(value, tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


EXAMPLES: Final[Mapping[str, str]] = {
    "broker.name": '"alpha"',
    "broker.listen": '["tcp://127.0.0.1:7770"]',
    "broker.listen_peers": '["tls+tcp://10.0.0.1:7771"]',
    "broker.listen_clients": '["tcp://127.0.0.1:7770"]',
    "broker.tls_cert": '"/etc/mangrove/broker.pem"',
    "broker.tls_key": '"/etc/mangrove/broker.key"',
    "broker.tls_ca": '"/etc/mangrove/ca.pem"',
    "broker.tls_server_name": '"mesh.example.org"',
    "broker.tls_require": '["peers"]',
    "client.tls_ca": '"/etc/mangrove/ca.pem"',
    "client.tls_cert": '"/etc/mangrove/client.pem"',
    "client.tls_key": '"/etc/mangrove/client.key"',
    "client.tls_server_name": '"broker.example.org"',
    "broker.join": '["tcp://10.0.0.7:7770"]',
    "broker.mesh_key_file": '"/etc/mangrove/key"',
    "broker.state_dir": '"/var/lib/mangrove"',
    "broker.log_dir": '"/var/log/mangrove"',
    "broker.log_keep_days": "30.0",
    "broker.log_keep_mb": "1000.0",
    "broker.http": '"127.0.0.1:9770"',
    "broker.http_hosts": '["mesh.example.org"]',
    "broker.advertise": '"tcp://203.0.113.7:7770"',
    "client.url": '"tcp://127.0.0.1:7770"',
}


def template() -> str:
    """A configuration file with every key in it, commented out and explained."""
    out = [
        "# Mangrove. Flags and MANGROVE_* variables win over this file; see docs/reference/configuration.md."
    ]
    section = ""
    for option in options():
        if option.section != section:
            section = option.section
            out += ["", f"[{section}]"]
        example = EXAMPLES.get(option.name) or as_toml(option.default)
        out += [f"# {option.help}", f"# {option.key} = {example}"]
    return "\n".join(out) + "\n"
