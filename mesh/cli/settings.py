"""What every command that talks to a broker starts from."""

from __future__ import annotations

from mesh.config import ClientConfig, load


def client_settings(url: str | None, timeout: float | None, path: str | None) -> ClientConfig:
    """The client's part of the configuration, flags first."""
    return load({"client.url": url, "client.timeout_s": timeout}, path=path).config.client
