"""Peers that were not admitted as brokers: counted by reason, and told to operators once each.

The log says no more than is known. A program that sends what no broker sends is a stranger. One that sends
nothing may be a broker whose loop is late.
"""

from __future__ import annotations

import logging
from typing import Final

from protocols import Pipe
from protocols.wire.handshake import ProtocolNumber

log = logging.getLogger("mesh")

WARNINGS_MAX: Final = 256
"""Bound of the warnings in a run, and of the lines of information. A sentence may contain a stranger's words,
so a stranger could make any number of them."""
STOCK: Final = "stock clients use REQ, PUSH, PUB or SUB"


class Refusals:
    """See the module. A line is logged once a host: a refused broker goes on dialling, from other ports."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Connections from others that were not admitted, and links lost for a broken rule, by reason."""
        self._logged: dict[int, dict[tuple[str, str], None]] = {logging.INFO: {}, logging.WARNING: {}}

    def count(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def warn_of_broker(self, bus: Pipe, sentence: str) -> None:
        """A broker was refused; its operators look for the reason on both sides."""
        key = (_host(bus), sentence)
        self._log_once(logging.WARNING, key, "a broker at %s was refused: %s", bus.remote_address, sentence)

    def warn_of_stranger(self, pipe: Pipe) -> None:
        """Somebody's own SP socket came to an address of brokers, and sent what no broker sends."""
        protocol = ProtocolNumber(pipe.peer).name
        sentence = "a %s socket at %s is no broker and was hung up on; " + STOCK
        self._log_once(logging.WARNING, (_host(pipe), protocol), sentence, protocol, pipe.remote_address)

    def tell_of_late_broker(self, pipe: Pipe) -> None:
        """A survey connection brought a token that is not good any more. Only brokers send tokens, and under
        load some come late: no reason for a warning."""
        sentence = "a %s socket of a broker at %s came after its admission had ended and was hung up on"
        protocol = ProtocolNumber(pipe.peer).name
        self._log_once(logging.INFO, (_host(pipe), protocol), sentence, protocol, pipe.remote_address)

    def tell_of_silent(self, pipe: Pipe, waited_s: float, *, known: bool) -> None:
        """A connection said nothing in time: a late broker, or somebody's own SP socket that waits for others
        to speak. A warning unless it came from a ``known`` address, one of a member."""
        protocol = ProtocolNumber(pipe.peer).name
        self._log_once(
            logging.INFO if known else logging.WARNING,
            (_host(pipe), f"silent {protocol}"),
            "a %s socket at %s said nothing for %.1f s and was hung up on: it is a late broker, or a program"
            " that is no broker; " + STOCK,
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
