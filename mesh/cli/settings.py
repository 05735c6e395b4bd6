"""What every command that talks to a broker starts from."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from mesh import Client
from mesh.config import ClientConfig, load, seconds_problem


def _check_seconds(type_: Any, value: float | None) -> None:
    problem = seconds_problem(value)
    if problem:
        raise ValueError(f"It {problem}.")


Seconds = Annotated[float, Parameter(validator=_check_seconds)]
Count = Annotated[int | None, Parameter(validator=Number(gt=0))]


def client_settings(url: str | None, timeout: float | None, path: str | None) -> ClientConfig:
    """The client's part of the configuration, flags first."""
    return load({"client.url": url, "client.timeout_s": timeout}, path=path).config.client


def connected(settings: ClientConfig) -> Client:
    """A client of the broker that the settings name; entering it connects, or fails within the timeout."""
    return Client(settings.url, connect_timeout=settings.timeout_s)
