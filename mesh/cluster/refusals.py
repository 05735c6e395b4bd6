"""Peers that were not admitted as brokers: counted by reason, and reported to operators once each.

The log says no more than is known. A program that sends what no broker sends is a stranger. A program that
sends nothing may be a broker whose loop is late.
"""

from __future__ import annotations

import logging
from typing import Final

from protocols import Pipe
from protocols.wire.handshake import ProtocolNumber

log = logging.getLogger("mesh")

WARNINGS_MAX: Final = 256
"""Maximum number of warnings in a run, and also of information lines. A sentence may contain a stranger's
words, so a stranger could cause any number of them."""
STOCK: Final = "stock clients use REQ, PUSH, PUB or SUB"


class Refusals:
    """Counts and logs refusals. One line is logged for each host: a refused broker keeps dialling, from other
    ports."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Refused connections, and links lost for a broken rule, by reason."""
        self._logged: dict[int, dict[tuple[str, str], None]] = {logging.INFO: {}, logging.WARNING: {}}

    def count(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def warn_of_broker(self, bus: Pipe, sentence: str) -> None:
        """A broker was refused. Operators look for the reason on both sides."""
        key = (_host(bus), sentence)
        self._log_once(logging.WARNING, key, "a broker at %s was refused: %s", bus.remote_address, sentence)

    def warn_of_stranger(self, pipe: Pipe) -> None:
        """An SP socket that is not a broker's connected to an address of brokers and sent what no broker
        sends."""
        protocol = ProtocolNumber(pipe.peer).name
        sentence = "a %s socket at %s is not a broker's and was disconnected; " + STOCK
        self._log_once(logging.WARNING, (_host(pipe), protocol), sentence, protocol, pipe.remote_address)

    def tell_of_late_broker(self, pipe: Pipe) -> None:
        """A survey connection sent a token that is no longer valid. Only brokers send tokens, and under load
        some come late, so this is not a warning."""
        sentence = "a %s socket of a broker at %s came after its admission had ended and was disconnected"
        protocol = ProtocolNumber(pipe.peer).name
        self._log_once(logging.INFO, (_host(pipe), protocol), sentence, protocol, pipe.remote_address)

    def tell_of_silent(self, pipe: Pipe, waited_s: float, *, known: bool) -> None:
        """A connection was silent for too long: a late broker, or another SP socket that waits for its peer.
        A warning unless it came from a ``known`` address, one of a member."""
        protocol = ProtocolNumber(pipe.peer).name
        self._log_once(
            logging.INFO if known else logging.WARNING,
            (_host(pipe), f"silent {protocol}"),
            "a %s socket at %s sent nothing for %.1f s and was disconnected: it is a late broker, or a"
            " program that is not a broker; " + STOCK,
            protocol,
            pipe.remote_address,
            waited_s,
        )

    def _log_once(self, level: int, key: tuple[str, str], sentence: str, *words: object) -> None:
        logged = self._logged[level]
        if key not in logged and len(logged) < WARNINGS_MAX:
            logged[key] = None
            log.log(level, sentence + " (said once, then only counted)", *words)


def _host(pipe: Pipe) -> str:
    return pipe.remote_address.rpartition(":")[0]
