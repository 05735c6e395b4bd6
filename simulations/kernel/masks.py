"""The masks and nonces of WebSocket, drawn from the run's seed.

wsproto takes them from the system's randomness. No end of a connection looks at them, but the bytes on the
wire hold them, and the history has a checksum of those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from wsproto import frame_protocol, utilities

MODULES: Final[tuple[Any, ...]] = (frame_protocol, utilities)
"""Modules that use `os` for this only."""


@contextmanager
def drawn_masks(rng: random.Random) -> Iterator[None]:
    """In this context, wsproto draws from ``rng``."""
    before = [module.os for module in MODULES]
    for module in MODULES:
        module.os = SimpleNamespace(urandom=rng.randbytes)
    try:
        yield
    finally:
        for module, usual in zip(MODULES, before, strict=True):
            module.os = usual
