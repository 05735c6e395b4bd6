"""Requests as the site reads them, and its answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

TEXT: Final = "text/plain; charset=utf-8"
SAFE: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Headers of every answer: a broker's figures must not get into a cache, a frame, or another site's page."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``headers`` have names in lower case. ``local``: it came from this host."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    local: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. ``stream``: more follows the body for as long as the connection lives."""

    status: HTTPStatus
    body: bytes = b""
    type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    stream: bool = False


def sentence(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    """An answer of one line."""
    return Response(status, f"{text}\n".encode(), headers=headers)
