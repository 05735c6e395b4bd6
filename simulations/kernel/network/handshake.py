"""The making of a connection: SYN, SYN-ACK, and the ACK that lets the server's program see it.

A SYN that is lost, or that finds the backlog full, is sent again after 1, 3, 7 ... seconds, up to ETIMEDOUT
after 127. On a link, a fault may also choose the answer (`Dialling`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from simulations.kernel.network.hosts import LOOPBACK, Address, Host, Listener, Owner
from simulations.kernel.scheduler import SECOND

if TYPE_CHECKING:
    from simulations.kernel.network.links import Link
    from simulations.kernel.network.network import Network
    from simulations.kernel.network.tcp import Half

SYN_TIMES_S: Final = (0, 1, 3, 7, 15, 31, 63, 127)
"""When SYNs are sent; at the last instant the kernel gives up instead."""


class Dialling(StrEnum):
    """A fault's treatment of a SYN."""

    REFUSED = "refused"
    DROPPED = "dropped"
    UNHEARD = "unheard"
    """Answered by the kernel, and never taken by the program."""


class Attempt:
    """A connection being made."""

    def __init__(
        self,
        network: Network,
        host: Host,
        owner: Owner,
        destination: Address,
        done: Callable[[Half | None, OSError | None], None],
    ) -> None:
        self._network = network
        self._host = host
        self._owner = owner
        self._destination = destination
        self._done = done
        self._over = False
        self._unheard = False
        self._address: Address
        if isinstance(destination, str):
            self._address = ""
        else:
            own = LOOPBACK if destination[0] == LOOPBACK else host.address
            self._address = (own, host.free_port())
        self._send_syn(0)

    def cancel(self) -> None:
        self._over = True

    @property
    def _unwanted(self) -> bool:
        return self._over or not self._owner.alive

    def _send_syn(self, number: int) -> None:
        if self._unwanted:
            return
        if number == len(SYN_TIMES_S) - 1:
            error = TimeoutError(errno.ETIMEDOUT, f"connecting to {self._destination} was never answered")
            self._finish(None, error)
            return
        wait_s = SYN_TIMES_S[number + 1] - SYN_TIMES_S[number]
        self._network.scheduler.after(wait_s * SECOND, self._send_syn, number + 1)
        target = self._target()
        if target is not None:
            there = self._network.link(self._host, target)
            there.post(self._syn_arrived, there)

    def _target(self) -> Host | None:
        """The present owner of the address."""
        if isinstance(self._destination, str):
            return self._host
        return self._network.host_at(self._host, self._destination[0])

    def _syn_arrived(self, there: Link) -> None:
        if self._unwanted or not there.up or self._target() is not there.target:
            return
        fate = there.dialling[-1] if there.dialling else None
        listener = there.target.listener_at(self._destination)
        if fate == Dialling.DROPPED:
            return
        if listener is None or not listener.listening or fate == Dialling.REFUSED:
            if isinstance(self._destination, str) and not self._destination_exists(there.target):
                error: OSError = FileNotFoundError(errno.ENOENT, f"no unix socket at {self._destination}")
            else:
                error = ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {self._destination}")
            self._answer(there, None, error)
        elif listener.waiting < listener.backlog:
            self._unheard = fate == Dialling.UNHEARD
            self._answer(there, listener, None)

    def _destination_exists(self, host: Host) -> bool:
        """True if the destination exists; an abstract name always does."""
        assert isinstance(self._destination, str)
        return self._destination.startswith("\0") or self._destination in host.unix

    def _answer(self, there: Link, listener: Listener | None, error: OSError | None) -> None:
        back = self._network.link(there.target, self._host)
        back.post(self._answered, back, listener, error)

    def _answered(self, back: Link, listener: Listener | None, error: OSError | None) -> None:
        if self._unwanted or not back.up:
            return
        if listener is None:
            self._finish(None, error)
        else:
            ends = (self._host, self._owner, self._address, listener, self._destination)
            self._finish(self._network.join(*ends, unheard=self._unheard))

    def _finish(self, half: Half | None, error: OSError | None = None) -> None:
        if not self._over:
            self._over = True
            self._done(half, error)
