"""How NNG represents `SocketOptions` and `TlsConfig`, and which options it lacks."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from protocols.errors import AddressInUse, NotSupported, TlsConfigError
from protocols.nng.binding import pynng
from protocols.options import SocketOptions
from protocols.tls import TlsConfig

QUEUE_MAX: Final = 8192
TTL_MAX: Final = 15
TLS_SCHEMES: Final = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")


def check_options(options: SocketOptions) -> None:
    """Raise the error of `Socket` for options that NNG cannot honour."""
    for name in ("send_queue", "recv_queue"):
        value = getattr(options, name)
        if not 1 <= value <= QUEUE_MAX:
            raise ValueError(f"{name} is {value}; NNG's queues hold 1 to {QUEUE_MAX} messages")
    if not 1 <= options.ttl <= TTL_MAX:
        raise ValueError(f"ttl is {options.ttl}; NNG allows 1 to {TTL_MAX} hops")
    for name in ("keepalive_s", "ipc_owner", "ipc_group"):
        if getattr(options, name) is not None:
            raise NotSupported(f"pynng has no option for {name}; leave it out")
    if options.ws_origins or options.ws_hosts:
        raise NotSupported("NNG asks no web page where it comes from; leave ws_origins and ws_hosts out")


def configure(socket: Any, options: SocketOptions) -> None:
    """Set the options on NNG's socket. It refuses those of other patterns, which is correct."""
    settings: tuple[tuple[str, Any], ...] = (
        ("send_buffer_size", options.send_queue),
        ("recv_buffer_size", options.recv_queue),
        ("recv_max_size", options.recv_size_max),
        ("reconnect_time_min", milliseconds(options.reconnect_min_s)),
        ("reconnect_time_max", milliseconds(options.reconnect_max_s)),
        ("ttl_max", options.ttl),
        ("tcp_nodelay", options.nodelay),
        ("tcp_keepalive", options.keepalive),
    )
    if isinstance(socket, pynng.Req0):
        settings += (("resend_time", milliseconds(options.resend_s or 0.0)),)
    if isinstance(socket, pynng.Surveyor0):
        settings += (("survey_time", milliseconds(options.survey_s)),)
    for name, value in settings:
        try:
            setattr(socket, name, value)
        except pynng.NotSupported:
            continue
    pynng.nng.IntOption("ipc:permissions").__set__(socket, options.ipc_permissions)
    if isinstance(socket, pynng.Sub0):
        pynng.nng.BooleanOption("sub:prefnew").__set__(socket, options.prefer_new)


def milliseconds(seconds: float) -> int:
    """Convert to NNG's unit. A value above zero never becomes zero, which has a special meaning."""
    return 0 if seconds <= 0 else max(round(seconds * 1000), 1)


def spare_files(url: str) -> None:
    """Raise `AddressInUse` for an ordinary file at an ipc path, since NNG would remove it."""
    scheme, _, path = url.partition("://")
    if scheme not in ("ipc", "unix"):
        return
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return  # the path is free, or NNG will report the problem
    if not stat.S_ISSOCK(mode):
        raise AddressInUse(
            f"{url}: something that is not a socket is there; move it away or use another path"
        )


def tls_config(tls: TlsConfig, url: str, *, server: bool) -> Any:
    """Convert a `TlsConfig` to NNG's form. Raises `TlsConfigError`, `NotSupported`."""
    if (tls.version_min, tls.version_max) != ("1.2", "1.3"):
        raise NotSupported("pynng cannot choose TLS versions; leave version_min and version_max out")
    verify = tls.verify or ("none" if server else "required")
    modes = {
        "none": pynng.TLSConfig.AUTH_MODE_NONE,
        "optional": pynng.TLSConfig.AUTH_MODE_OPTIONAL if server else pynng.TLSConfig.AUTH_MODE_REQUIRED,
        "required": pynng.TLSConfig.AUTH_MODE_REQUIRED,
    }
    if server and not tls.has_certificate:
        raise TlsConfigError(f"{url}: a TLS listener needs a certificate; give cert_file and key_file")
    if verify != "none" and not tls.has_authority:
        raise TlsConfigError(f"{url}: NNG trusts nobody by itself; give ca_file, or verify='none'")
    certificate = pem(tls.cert, tls.cert_file)
    try:
        config = pynng.TLSConfig(
            pynng.TLSConfig.MODE_SERVER if server else pynng.TLSConfig.MODE_CLIENT,
            server_name=None if server else tls.server_name or host_of(url),
            ca_string=pem(tls.ca, tls.ca_file),
            own_cert_string=certificate,
            own_key_string=pem(tls.key, tls.key_file) or certificate,
            passwd=tls.key_password,
        )
        config.set_auth_mode(modes[verify])  # 0 is a mode too, which the constructor would ignore
    except pynng.NNGException as error:
        raise TlsConfigError(f"{url}: NNG cannot use these certificates or keys: {error}") from error
    return config


def pem(text: str | None, file: str | None) -> str | None:
    if file is None:
        return text
    try:
        text = Path(file).read_text("ascii")
    except OSError as error:
        raise TlsConfigError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise TlsConfigError(f"{file} is not PEM") from error
    if not text:
        raise TlsConfigError(f"{file} is empty")
    return text


def host_of(url: str) -> str:
    """The name that the listener's certificate must have."""
    return urlsplit(url).hostname or ""
