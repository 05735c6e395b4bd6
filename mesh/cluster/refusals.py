"""Whom a broker did not admit as a broker: counted by reason, and told to operators, each once."""

from __future__ import annotations

import logging
from typing import Final

from protocols import Pipe
from protocols.wire.handshake import ProtocolNumber

log = logging.getLogger("mesh")

WARNINGS_MAX: Final = 256
"""Warnings in a run; a sentence may have the stranger's words in it, so it must not choose how many."""


class Refusals:
    """See the module. Warnings are told apart by host: a refused broker dials for ever, from other ports."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Connections from others that were not admitted, and links lost for a broken rule, by reason."""
        self._warned: dict[tuple[str, str], None] = {}

    def count(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def warn_of_broker(self, bus: Pipe, sentence: str) -> None:
        """A broker was refused; its operators look for the reason on both sides."""
        if self._is_new(bus, sentence):
            host = _host(bus)
            log.warning("a broker at %s was refused: %s (said once, then only counted)", host, sentence)

    def warn_of_stranger(self, pipe: Pipe) -> None:
        """Somebody's own SP socket came to an address of brokers."""
        protocol = ProtocolNumber(pipe.peer).name
        if self._is_new(pipe, protocol):
            log.warning(
                "a %s socket at %s is no broker and was hung up on; stock clients use REQ, PUSH, PUB or SUB"
                " (said once, then only counted)",
                protocol,
                pipe.remote_address,
            )

    def _is_new(self, pipe: Pipe, what: str) -> bool:
        key = (_host(pipe), what)
        if key in self._warned or len(self._warned) >= WARNINGS_MAX:
            return False
        self._warned[key] = None
        return True


def _host(pipe: Pipe) -> str:
    return pipe.remote_address.rpartition(":")[0]
