"""The libraries measured beside ours, each set up to be as fast as it can be.

pyzmq runs without high-water marks and with blocking calls (its fastest way) unless a system's name says
``zmq.asyncio``. pynng runs with asyncio calls where ours do, and with blocking calls where those are usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.bench.measuring import missing

OURS: Final = "mangrove"
OURS_UVLOOP: Final = "mangrove, uvloop"
PYNNG: Final = "pynng"
PYNNG_ASYNCIO: Final = "pynng, asyncio"
PYZMQ: Final = "pyzmq"
ZMQ_ASYNCIO: Final = "zmq.asyncio"

LOOPBACK: Final = "tcp://127.0.0.1:0"
ZMQ_LOOPBACK: Final = "tcp://127.0.0.1"


@dataclass(frozen=True, slots=True)
class Peers:
    """The libraries that can run here."""

    pynng: bool
    zmq: bool
    uvloop: bool

    @classmethod
    def present(cls, skipped: dict[str, str]) -> Peers:
        """Look for them; the reason why one cannot run goes into ``skipped``."""
        found = {}
        for module, name in (("pynng", PYNNG), ("zmq", PYZMQ), ("uvloop", OURS_UVLOOP)):
            reason = missing(module)
            if reason is not None:
                skipped[name] = reason
            found[module] = reason is None
        return cls(**found)
