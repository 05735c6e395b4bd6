"""Configuration: one TOML file, environment variables, flags; each value remembers where it came from.

Precedence is flag > environment > file > default. One file is read, the first of these that exists:

1. ``--config FILE``, or ``MANGROVE_CONFIG``
2. ``./mangrove.toml``
3. ``$XDG_CONFIG_HOME/mangrove/config.toml`` (``~/.config`` where that is not set)
4. ``/etc/mangrove/config.toml``

The dataclasses below are the whole truth: the template of ``mesh config init``, the table in
``docs/reference/configuration.md``, the names of the variables and the checks are derived from their fields.
A key that is not a field is an error, with its line: a misspelt option that is ignored costs a night.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from mesh.errors import ConfigError, TopicError
from mesh.listen import ROLES
from mesh.spelling import nearest
from mesh.topics import check_pattern
from protocols import AddressError, check_dialable, check_url

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
NOBODY: Final = "nobody"
TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
SECONDS_MAX: Final = 30 * 86_400.0
"""Timers and the milliseconds on the wire (32 bits) hold a little more."""

AMOUNT_MAX: Final = 1e9
COUNT_MAX: Final = 1 << 40
"""Largest limit of a count or of bytes."""


class FlagError(ConfigError):
    """A flag of the command line has a value that cannot be used."""


def _option(default: Any, env: str, help: str, check: Callable[[Any], str | None] | None = None) -> Any:
    return field(default=default, metadata={"env": env, "help": help, "check": check})


def seconds_problem(value: Any) -> str | None:
    """What is wrong with a number of seconds, if anything is."""
    if value is None or 0 < value <= SECONDS_MAX:
        return None
    return f"must be above zero and at most {SECONDS_MAX:.0f} (30 days), not {value:g}"


def _amount(value: Any) -> str | None:
    if value is None or 0 < value <= AMOUNT_MAX:
        return None
    return f"must be above zero and at most {AMOUNT_MAX:.0f}, not {value:g}"


def _count(value: Any) -> str | None:
    return None if 0 < value <= COUNT_MAX else f"must be from 1 to {COUNT_MAX}, not {value}"


def _name(value: Any) -> str | None:
    if value is None or NAME.fullmatch(value):
        return None
    return "must be 1 to 64 of the characters A-Z a-z 0-9 _ -"


def _address(value: Any, check: Callable[[str], str] = check_dialable) -> str | None:
    """To dial, unless ``check`` is another."""
    try:
        if value is not None:
            check(value)
            if value.startswith("inproc:"):
                return f"has {value!r}, which reaches only the program itself; use tcp:// or ipc://"
    except AddressError as error:
        return f"has a bad address: {error}"
    return None


def _served(values: Any) -> str | None:
    return next((problem for value in values if (problem := _address(value, check_url))), None)


def _dialled(values: Any) -> str | None:
    return next((problem for value in values if (problem := _address(value))), None)


def _patterns(values: Any) -> str | None:
    for value in values:
        try:
            check_pattern(value)
        except TopicError as error:
            return f"has a bad pattern: {error}"
    return None


def _roles(values: Any) -> str | None:
    allowed = (*ROLES, NOBODY)
    wrong = [value for value in values if value not in allowed]
    if wrong:
        return f"has {wrong[0]!r}; there are {', '.join(allowed)}"
    if NOBODY in values and len(values) > 1:
        return "has nobody and somebody; choose"
    return None


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """``[broker]``: what ``mesh broker`` runs with.

    Each field is a parameter of `mesh.Broker`; ``mesh_key_file`` stands for its content, ``mesh_key``.
    """

    name: str | None = _option(
        None,
        "MANGROVE_NAME",
        "what this broker is called in logs and on screens; default: from its id",
        _name,
    )
    listen: tuple[str, ...] = _option(
        (),
        "MANGROVE_LISTEN",
        "addresses to serve; default: an ipc socket and tcp://127.0.0.1:7770",
        _served,
    )
    listen_peers: tuple[str, ...] = _option(
        (), "MANGROVE_LISTEN_PEERS", "addresses that serve other brokers only", _served
    )
    listen_clients: tuple[str, ...] = _option(
        (), "MANGROVE_LISTEN_CLIENTS", "addresses that serve clients only", _served
    )
    join: tuple[str, ...] = _option(
        (), "MANGROVE_JOIN", "addresses of brokers to join; any one of a mesh is enough", _dialled
    )
    mesh: str = _option(
        "mangrove", "MANGROVE_MESH", "name of the mesh; brokers of another mesh are refused", _name
    )
    mesh_key_file: str | None = _option(
        None, "MANGROVE_MESH_KEY_FILE", "file whose content every broker of the mesh must know"
    )
    tls_cert: str | None = _option(
        None, "MANGROVE_TLS_CERT", "PEM file with this broker's certificate, for tls+tcp:// and wss://"
    )
    tls_key: str | None = _option(
        None, "MANGROVE_TLS_KEY", "PEM file with its private key; default: it is in the certificate's file"
    )
    tls_ca: str | None = _option(
        None, "MANGROVE_TLS_CA", "PEM file with the authorities whose certificates are trusted"
    )
    tls_server_name: str | None = _option(
        None,
        "MANGROVE_TLS_SERVER_NAME",
        "name that the other brokers' certificates have; default: the host in each one's address",
    )
    tls_require: tuple[str, ...] = _option(
        (),
        "MANGROVE_TLS_REQUIRE",
        "who must show a certificate: peers, clients or nobody; default: peers, where tls_ca is given",
        _roles,
    )
    state_dir: str | None = _option(
        None, "MANGROVE_STATE_DIR", "folder where id, incarnation and known peers outlive a restart"
    )
    log_dir: str | None = _option(
        None, "MANGROVE_LOG_DIR", "folder for the event log that `mesh analyze` reads"
    )
    advertise: str | None = _option(
        None, "MANGROVE_ADVERTISE", "address others are told, where it is not the one listened on", _address
    )
    export: tuple[str, ...] = _option(
        ("#",), "MANGROVE_EXPORT", "patterns that stock SUB sockets on this broker may see", _patterns
    )
    period_s: float = _option(
        1.0, "MANGROVE_PERIOD_S", "seconds from one heartbeat to the next", seconds_problem
    )
    deadline_s: float = _option(
        0.5, "MANGROVE_DEADLINE_S", "seconds within which a heartbeat must be answered", seconds_problem
    )
    stats_s: float = _option(
        5.0, "MANGROVE_STATS_S", "seconds between stats rows in the log", seconds_problem
    )
    log_keep_days: float | None = _option(
        None,
        "MANGROVE_LOG_KEEP_DAYS",
        "days after which this broker's files in the log folder are removed; default: never",
        _amount,
    )
    log_keep_mb: float | None = _option(
        None,
        "MANGROVE_LOG_KEEP_MB",
        "megabytes of this broker's files that the log folder keeps, the newest; default: all",
        _amount,
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """``[limits]``: what clients may claim of a broker. What is beyond is refused with a sentence, or
    dropped and counted.

    Each field is one of `mesh.dataplane.options.ExchangeOptions`.
    """

    unwritten_bytes_max: int = _option(
        16777216,
        "MANGROVE_UNWRITTEN_BYTES_MAX",
        "bytes ready to be written to one client; beyond them its messages wait",
        _count,
    )
    stock_unwritten_bytes_max: int = _option(
        16777216,
        "MANGROVE_STOCK_UNWRITTEN_BYTES_MAX",
        "the same for a stock SUB socket, whose newest messages are dropped then",
        _count,
    )
    waiting_bytes_max: int = _option(
        67108864,
        "MANGROVE_WAITING_BYTES_MAX",
        "bytes that wait for a client that stopped; beyond them the oldest are dropped",
        _count,
    )
    answer_bytes_max: int = _option(
        16777216,
        "MANGROVE_ANSWER_BYTES_MAX",
        "bytes of answers that a client may leave unread before it loses its connection",
        _count,
    )
    session_patterns_max: int = _option(
        32768,
        "MANGROVE_SESSION_PATTERNS_MAX",
        "patterns of one client; one more subscription is refused",
        _count,
    )
    patterns_max: int = _option(
        65536,
        "MANGROVE_PATTERNS_MAX",
        "different patterns of all clients of this broker; one more subscription is refused",
        _count,
    )
    questions_max: int = _option(
        4096,
        "MANGROVE_QUESTIONS_MAX",
        "requests and surveys of one client without a result; one more is refused",
        _count,
    )
    question_bytes_max: int = _option(
        16777216,
        "MANGROVE_QUESTION_BYTES_MAX",
        "bytes in the bodies of these; one more request is refused",
        _count,
    )
    publishers_max: int = _option(
        16384,
        "MANGROVE_PUBLISHERS_MAX",
        "publishers whose messages are checked for repetition; the one idle longest is forgotten",
        _count,
    )
    route_cache_bytes_max: int = _option(
        67108864,
        "MANGROVE_ROUTE_CACHE_BYTES_MAX",
        "memory of cached routes",
        _count,
    )


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """``[client]``: what commands that talk to a running broker use."""

    url: str | None = _option(
        None,
        "MANGROVE_URL",
        "broker to talk to; default: the local ipc socket, then tcp://127.0.0.1:7770",
        _address,
    )
    tls_ca: str | None = _option(
        None, "MANGROVE_CLIENT_TLS_CA", "PEM file with the authorities trusted; default: the system's"
    )
    tls_cert: str | None = _option(
        None, "MANGROVE_CLIENT_TLS_CERT", "PEM file with a certificate to show to brokers that ask for one"
    )
    tls_key: str | None = _option(
        None, "MANGROVE_CLIENT_TLS_KEY", "PEM file with its private key; default: in the certificate's file"
    )
    tls_server_name: str | None = _option(
        None, "MANGROVE_CLIENT_TLS_SERVER_NAME", "name the broker's certificate has; default: the URL's host"
    )
    tls_insecure: bool = _option(
        False, "MANGROVE_CLIENT_TLS_INSECURE", "trust any certificate: no protection from impostors"
    )
    timeout_s: float = _option(
        5.0, "MANGROVE_TIMEOUT_S", "seconds to wait for a broker's answer", seconds_problem
    )


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """``[console]``: `mesh top`."""

    interval_s: float = _option(
        1.0, "MANGROVE_INTERVAL_S", "seconds between two looks at the mesh", seconds_problem
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All sections."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)


SECTIONS: Final[Mapping[str, type]] = {
    "broker": BrokerConfig,
    "limits": LimitsConfig,
    "client": ClientConfig,
    "console": ConsoleConfig,
}
OTHER_VARIABLES: Final = (
    "MANGROVE_CONFIG",
    "MANGROVE_DEBUG",
    "MANGROVE_MESH_KEY",
    "MANGROVE_REQUIRE_INTEROP",
)


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


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and, by ``section.key``, where each value came from."""

    config: Config
    origins: dict[str, str]
    path: str | None
    unknown_variables: tuple[str, ...]


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
    """Every option there is, in the order of the template."""
    for section, type_ in SECTIONS.items():
        hints = get_type_hints(type_)
        for item in fields(type_):
            yield _described(section, item, str(hints[item.name]).replace("<class '", "").replace("'>", ""))


def _described(section: str, item: Field[Any], hint: str) -> Option:
    meta = item.metadata
    return Option(section, item.name, KINDS[hint], item.default, meta["env"], meta["help"], meta["check"])


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Where a configuration file may be, nearest first."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "~"), ".config")
    return ["mangrove.toml", os.path.join(home, "mangrove", "config.toml"), "/etc/mangrove/config.toml"]


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Merge flags, environment, file and defaults.

    Args:
        overrides: flags by ``section.key``; ``None`` and empty lists mean "not given".
        path: the file to read, instead of looking for one.

    Raises:
        ConfigError: names the file and line, the variable or the flag, and what is wrong with it.
    """
    environ = os.environ if environ is None else environ
    path = path or environ.get("MANGROVE_CONFIG") or None
    if path is None:
        path = next((place for place in candidates(environ) if Path(place).is_file()), None)
    from_file = parse(_read(path), path) if path is not None else {}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for option in options():
        values[option.name], origins[option.name] = _resolve(
            option, overrides or {}, environ, from_file, path
        )
    _check_heartbeat(values, origins)
    config = Config(
        *(
            type_(**{item.name: values[f"{section}.{item.name}"] for item in fields(type_)})
            for section, type_ in SECTIONS.items()
        )
    )
    known = {option.env for option in options()} | set(OTHER_VARIABLES)
    unknown = tuple(name for name in sorted(environ) if name.startswith("MANGROVE_") and name not in known)
    return Loaded(config, origins, path, unknown)


def _check_heartbeat(values: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Answers of one round must be over before the next begins."""
    period, deadline = "broker.period_s", "broker.deadline_s"
    if values[deadline] <= values[period]:
        return
    blamed = period if origins[deadline] == "default" else deadline
    source = origins[blamed].removeprefix("flag ").removeprefix("environment ")
    by_flag = any(origins[name].startswith("flag ") for name in (period, deadline))
    raise (FlagError if by_flag else ConfigError)(
        f"{source}: {deadline} is {values[deadline]:g} ({origins[deadline]}) and must be at most {period}, "
        f"which is {values[period]:g} ({origins[period]})"
    )


def _resolve(
    option: Option,
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    from_file: Mapping[str, tuple[Any, int]],
    path: str | None,
) -> tuple[Any, str]:
    given = overrides.get(option.name)
    if given is not None and given != () and given != []:
        flag = "--" + option.key.removesuffix("_s").replace("_", "-")
        return _checked(option, _from_python(given), flag), f"flag {flag}"
    text = environ.get(option.env)
    if text:
        return _checked(option, _from_text(option, text), option.env), f"environment {option.env}"
    if option.name in from_file:
        value, line = from_file[option.name]
        return value, f"{path}:{line}"
    return option.default, "default"


def _from_python(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _from_text(option: Option, text: str) -> Any:
    if option.kind == "list of strings":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if option.kind == "number":
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{option.env} is {text!r}, which is not a number") from None
    if option.kind == "integer":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{option.env} is {text!r}, which is not an integer") from None
    if option.kind == "boolean":
        if text.lower() not in TRUTH:
            raise ConfigError(f"{option.env} is {text!r}; it must be true or false")
        return TRUTH[text.lower()]
    return text


def _checked(option: Option, value: Any, source: str) -> Any:
    problem = option.check(value) if option.check is not None else None
    if problem:
        raise (FlagError if source.startswith("--") else ConfigError)(f"{source}: {option.name} {problem}")
    return value


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def parse(text: str, path: str = "<text>") -> dict[str, tuple[Any, int]]:
    """The values of a TOML file by ``section.key``, each with its line.

    Raises:
        ConfigError: broken TOML, an unknown section or key (with its line), a wrong type or value.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_lower_first(str(error))}") from None
    known = {option.name: option for option in options()}
    found: dict[str, tuple[Any, int]] = {}
    for section, table in document.items():
        if section not in SECTIONS or not isinstance(table, dict):
            line = line_of(text, (section,))
            sections = ", ".join(f"[{name}]" for name in SECTIONS)
            raise ConfigError(f"{path}:{line}: unknown section or key {section!r}; there are {sections}")
        for key, value in table.items():
            line = line_of(text, (section, key))
            option = known.get(f"{section}.{key}")
            if option is None:
                hint = nearest(key, [item.key for item in known.values() if item.section == section])
                raise ConfigError(f"{path}:{line}: unknown key {key!r} in [{section}]{hint}")
            found[option.name] = (
                _checked(option, _typed(option, value, f"{path}:{line}"), f"{path}:{line}"),
                line,
            )
    return found


def _typed(option: Option, value: Any, source: str) -> Any:
    if option.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if option.kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if option.kind == "boolean" and isinstance(value, bool):
        return value
    if option.kind == "string" and isinstance(value, str):
        return value
    if option.kind == "list of strings" and isinstance(value, list):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return tuple(items)
    article = "an" if option.kind == "integer" else "a"
    raise ConfigError(f"{source}: {option.name} must be {article} {option.kind}")


def line_of(text: str, key: tuple[str, ...]) -> int:
    """The line on which a key's assignment begins; 1 if it cannot be told.

    ``tomllib`` keeps no positions. The first prefix of the file that parses and holds the key ends with its
    assignment, which begins after the longest shorter prefix that parses: values may span lines.
    """
    lines = text.splitlines()
    parsed_until = 0
    for count in range(1, len(lines) + 1):
        try:
            node: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        for part in key:
            node = node.get(part) if isinstance(node, dict) else None
        if node is not None:
            return parsed_until + 1
        parsed_until = count
    return 1


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def mesh_key(config: BrokerConfig, environ: Mapping[str, str] | None = None) -> bytes | None:
    """The key of the mesh, from ``MANGROVE_MESH_KEY`` or the key file, white space around it removed.

    Raises:
        ConfigError: the file cannot be read, or there is no key in it.
    """
    environ = os.environ if environ is None else environ
    key = environ.get("MANGROVE_MESH_KEY", "").strip().encode()
    source = "MANGROVE_MESH_KEY"
    if not key and config.mesh_key_file is not None:
        source = config.mesh_key_file
        try:
            key = Path(source).expanduser().read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"{source}: the mesh key cannot be read: {error.strerror}") from None
        except RuntimeError:  # neither HOME nor the user database says where it is
            raise ConfigError(f"{source}: this user has no home folder; write the whole path") from None
        if not key:
            raise ConfigError(f"{source}: the mesh key file is empty")
    if key and len(key) < 8:
        raise ConfigError(f"{source}: the mesh key has {len(key)} bytes; use at least 8")
    return key or None


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
