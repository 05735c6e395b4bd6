"""pynng, or one sentence about where to get it."""

from __future__ import annotations

try:
    import pynng
except ImportError as missing:
    raise ImportError("the engine over NNG needs pynng: pip install '.[nng]' in a checkout") from missing

__all__ = ["pynng"]
