"""Values as TOML, and a configuration file as a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mesh.access.principals import KEYS, Principal
from mesh.config.sections import options


def as_toml(value: Any) -> str:
    """One value in TOML. TOML has no ``None``: an empty comment stands for it."""
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


PRINCIPAL: Final = (
    "# A principal: its proofs, any of which will do, and its rights. You may add more. The name",
    "# anonymous is for clients that prove nothing. See docs/guides/access.md.",
    "# [principals.sensors]",
    '# certificates = ["sensor-1.example.org"]',
    f'# keys = ["ed25519:{"A" * 43}="]',
    f'# tokens = ["sha256:{"0" * 64}"]',
    '# publish = ["telemetry.#"]',
    '# subscribe = ["commands.sensors.#"]',
    '# ask = ["$sys.status"]',
    "# answer = []",
    '# deny_publish = ["telemetry.internal.#"]',
    "# deny_subscribe = []",
    "# deny_ask = []",
    "# deny_answer = []",
    "# connections_max = 100",
    "# rate_max = 1000",
    "# message_bytes_max = 65536",
    "# subscriptions_max = 10",
    "# window_max = 4096",
)


def as_section(principal: Principal) -> list[str]:
    """The lines of a principal's section."""
    values = ((key, getattr(principal, key)) for key in KEYS)
    return [
        f"[principals.{principal.name}]",
        *(f"{key} = {as_toml(value)}" for key, value in values if value not in ((), None)),
    ]


def template() -> str:
    """A configuration file with every key, commented out and explained."""
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
    return "\n".join([*out, "", *PRINCIPAL]) + "\n"
