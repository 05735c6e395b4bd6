"""Flags and settings of every command that talks to a broker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from mesh import Client
from mesh.config import ClientConfig, load, seconds_problem
from mesh.tls import tls_config


def _check_seconds(type_: Any, value: float | None) -> None:
    problem = seconds_problem(value)
    if problem:
        raise ValueError(f"It {problem}.")


Seconds = Annotated[float, Parameter(validator=_check_seconds)]
Count = Annotated[int | None, Parameter(validator=Number(gt=0))]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class TlsFlags:
    """TLS of a command that talks to a broker, for tls+tcp:// and wss:// addresses."""

    tls_ca: str | None = None
    "PEM file with the authorities trusted; default: the system's."
    tls_cert: str | None = None
    "PEM file with a certificate to show to brokers that ask for one."
    tls_key: str | None = None
    "PEM file with its private key; default: in the certificate's file."
    tls_server_name: str | None = None
    "Name the broker's certificate has; default: the URL's host."
    tls_insecure: bool = False
    "Trust any certificate: no protection from impostors."


NO_TLS: Final = TlsFlags()


def client_flags(url: str | None, timeout: float | None, tls: TlsFlags) -> dict[str, Any]:
    """Flags as overrides of the configuration; those not given are None."""
    given = {f"client.{name}": value or None for name, value in asdict(tls).items()}
    return {"client.url": url, "client.timeout_s": timeout, **given}


def client_settings(url: str | None, timeout: float | None, tls: TlsFlags, path: str | None) -> ClientConfig:
    """The client's part of the configuration, flags first."""
    return load(client_flags(url, timeout, tls), path=path).config.client


def connected(settings: ClientConfig) -> Client:
    """A client of the broker that the settings name; entering it connects, or fails within the timeout."""
    tls = tls_config(
        ca=settings.tls_ca,
        cert=settings.tls_cert,
        key=settings.tls_key,
        server_name=settings.tls_server_name,
        insecure=settings.tls_insecure,
    )
    return Client(settings.url, tls=tls, connect_timeout=settings.timeout_s)
