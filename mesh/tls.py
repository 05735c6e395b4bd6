"""TLS from the files that the configuration and the command line name."""

from __future__ import annotations

from mesh.errors import ConfigError
from protocols import TlsConfig, TlsConfigError
from protocols.transports.certificates import client_context, server_context


def tls_config(
    *,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    server_name: str | None = None,
    insecure: bool = False,
) -> TlsConfig | None:
    """TLS with these PEM files. None if none is named. The files are read when an endpoint opens.

    Args:
        insecure: accept any certificate of the other side.

    Raises:
        ConfigError: they contradict each other.
    """
    if not (ca or cert or key or server_name or insecure):
        return None
    try:
        return TlsConfig(
            cert_file=cert,
            key_file=key,
            ca_file=ca,
            server_name=server_name,
            verify="none" if insecure else None,
        )
    except TlsConfigError as error:
        raise ConfigError(str(error)) from error


def check_files(tls: TlsConfig, *, serves: bool) -> None:
    """Read the files as an endpoint would. ``serves``: a listener uses them too.

    Raises:
        ConfigError: one is missing or invalid.
    """
    try:
        client_context(tls)
        if serves:
            server_context(tls)
    except TlsConfigError as error:
        raise ConfigError(str(error)) from error
