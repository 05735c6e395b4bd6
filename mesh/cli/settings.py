"""Flags and settings of every command that talks to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from mesh import Client
from mesh.config import ClientConfig, Config, load, seconds_problem
from mesh.tls import tls_config


def _check_seconds(type_: Any, value: float | None) -> None:
    problem = seconds_problem(value)
    if problem:
        raise ValueError(f"It {problem}.")


Seconds = Annotated[float, Parameter(validator=_check_seconds)]
Count = Annotated[int | None, Parameter(validator=Number(gt=0))]


Timeout = Annotated[float | None, Parameter(help="Seconds to wait for answers.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class BrokerFlags:
    """Which broker a command talks to, and how. The TLS flags are for tls+tcp:// and wss:// addresses."""

    url: str | None = None
    "The broker to talk to."
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
    config: str | None = None
    "Read this TOML file instead of looking for one."

    def loaded(self, flags: Mapping[str, Any]) -> Config:
        """The configuration, these flags first, and others of the command; those not given are None."""
        ours = {f"client.{name}": value or None for name, value in asdict(self).items()}
        del ours["client.config"]
        return load({**ours, "client.url": self.url, **flags}, path=self.config).config

    def settings(self, timeout: float | None = None) -> ClientConfig:
        """The client's part of the configuration."""
        return self.loaded({"client.timeout_s": timeout}).client


NO_FLAGS: Final = BrokerFlags()


def connected(settings: ClientConfig, outbox: str | None = None) -> Client:
    """A client of the broker that the settings name; entering it connects, or fails within the timeout. With
    an outbox it connects in the background."""
    tls = tls_config(
        ca=settings.tls_ca,
        cert=settings.tls_cert,
        key=settings.tls_key,
        server_name=settings.tls_server_name,
        insecure=settings.tls_insecure,
    )
    return Client(settings.url, tls=tls, connect_timeout=settings.timeout_s, outbox=outbox)
