"""Flags and settings of every command that talks to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from mesh import Client
from mesh.clients.calls import KEEPALIVE_S
from mesh.clients.finding import default_place
from mesh.config import ClientConfig, Config, load, seconds_problem
from mesh.errors import Disconnected
from mesh.listen import separate_urls
from mesh.logs import log
from mesh.tls import tls_config
from protocols import ConnectionRefused


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

    url: list[str] | None = None
    "The broker to talk to; may be repeated: any of them, and another when that is gone."
    tls_ca: str | None = None
    "PEM file with the authorities trusted; default: the system's."
    tls_cert: str | None = None
    "PEM file with a certificate to show to brokers that ask for one."
    tls_key: str | None = None
    "PEM file with its private key; default: in the certificate's file."
    tls_server_name: str | None = None
    "Name the broker's certificate has; default: the URL's host."
    key_file: str | None = None
    "File with the private key by which the broker knows this client."
    token_file: str | None = None
    "The same, with a token."
    tls_insecure: bool = False
    "Trust any certificate: no protection from impostors."
    config: str | None = None
    "Read this TOML file instead of looking for one."
    context: str | None = None
    "Name of the context to use, see mesh context; default: MANGROVE_CONTEXT, or the one in use."

    def loaded(self, flags: Mapping[str, Any]) -> Config:
        """The configuration, with these flags and others of the command first; flags not given are None."""
        ours = {f"client.{name}": value or None for name, value in asdict(self).items()}
        del ours["client.config"], ours["client.context"]
        url = None if self.url is None else ",".join(self.url)
        return load({**ours, "client.url": url, **flags}, path=self.config, context=self.context or "").config

    def settings(self, timeout: float | None = None) -> ClientConfig:
        """The client's part of the configuration."""
        return self.loaded({"client.timeout_s": timeout}).client


NO_FLAGS: Final = BrokerFlags()
RETRY_S: Final = 0.1
"""Pause between two attempts while nothing listens."""
TOLD_S: Final = 5.0
"""Seconds of retrying after which a warning says so."""


WATCHING_KEEPALIVE_S: Final = 1.0
"""Keepalive of a watching client, which leaves a broker that is silent for three times as long."""


@asynccontextmanager
async def connected(
    settings: ClientConfig, outbox: str | None = None, *, watching: bool = False
) -> AsyncIterator[Client]:
    """A client of the broker that the settings name. While nothing listens there, it retries until their
    timeout, since a broker may be starting. With an outbox it connects in the background. A ``watching``
    client that loses its broker goes on with any other broker that it knows.

    Raises:
        Disconnected: there was no session in that time, or another program listens there.
    """
    client = await _opened(settings, outbox, watching)
    try:
        yield client
    finally:
        await client.aclose()


async def _opened(settings: ClientConfig, outbox: str | None, watching: bool) -> Client:
    tls = tls_config(
        ca=settings.tls_ca,
        cert=settings.tls_cert,
        key=settings.tls_key,
        server_name=settings.tls_server_name,
        insecure=settings.tls_insecure,
    )
    given = separate_urls(settings.url or "")
    url = given if len(given) > 1 else settings.url
    if watching:
        url = given or default_place().urls
    keepalive_s = WATCHING_KEEPALIVE_S if watching else KEEPALIVE_S
    clock = asyncio.get_running_loop().time
    deadline = clock() + settings.timeout_s
    left_s = settings.timeout_s
    told = False
    while True:
        client = Client(
            url,
            tls=tls,
            key=settings.key_file,
            token_file=settings.token_file,
            keepalive_s=keepalive_s,
            connect_timeout=left_s,
            outbox=outbox,
        )
        try:
            await client.open()
        except Disconnected as error:
            left_s = deadline - clock() - RETRY_S
            if not isinstance(error.__cause__, ConnectionRefused):
                raise
            if left_s <= 0:
                given_up = f"{error}; gave up after {settings.timeout_s:g} s"
                raise Disconnected(given_up) from error.__cause__
            if not told and settings.timeout_s - left_s > TOLD_S:
                told = True
                log.warning("%s; retrying for %.0f more seconds", error, left_s)
        else:
            return client
        await asyncio.sleep(RETRY_S)
