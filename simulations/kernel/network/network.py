"""All hosts, the links between them and the connections over those: the kernel's work for sockets."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from simulations.kernel.history import History, Line
from simulations.kernel.network.handshake import Attempt
from simulations.kernel.network.hosts import LOOPBACK, Address, Host, Listener, Owner
from simulations.kernel.network.links import LAN, WITHIN_HOST, Link, LinkQuality
from simulations.kernel.network.tcp import GIVE_UP_S, Half, Pace
from simulations.kernel.scheduler import Scheduler, nanoseconds

FORGET_EVERY: Final = 256
"""The number of new connections between two searches for finished ones."""


class Network:
    """All hosts and the links between them."""

    def __init__(
        self,
        scheduler: Scheduler,
        seed: object,
        *,
        history: History | None = None,
        quality: LinkQuality = LAN,
    ) -> None:
        self.scheduler = scheduler
        self.history = history
        self.note: Callable[[Line], object] = _forget if history is None else history.note
        """The record of arrivals."""
        self.hosts: dict[str, Host] = {}
        self.give_up_ns = nanoseconds(GIVE_UP_S)
        self.connections = 0
        self.on_attempt: Callable[[str, Address], object] | None = None
        """Called for every attempt at a connection when it begins: by which process, and to where."""
        self._seed = seed
        self._default = quality
        self._links: dict[tuple[str, str], Link] = {}
        self._dead_links: dict[tuple[str, str], Link] = {}
        self._by_address: dict[str, Host] = {}
        self._addresses = 0
        self._halves: dict[Half, None] = {}
        self._opening: dict[Half, Listener] = {}
        self._paces: dict[str, list[tuple[float, bool]]] = {}
        self._unaccepted: list[tuple[Half, Listener]] = []

    # --- hosts and names

    def add_host(self, name: str) -> Host:
        if name in self.hosts:
            raise ValueError(f"there is a host {name} already")
        host = Host(name, self._next_address())
        self.hosts[name] = self._by_address[host.address] = host
        return host

    def readdress(self, name: str) -> str:
        """Give a host another address, as after a move.

        Its connections disappear silently, and packets to the old address get no answer any more.
        """
        host = self.hosts[name]
        for half in self._halves:
            if half.host is host and not half.peer.ended:
                half.peer.deafen(self)
        self.lose_sockets(host)
        del self._by_address[host.address]
        host.address = self._next_address()
        self._by_address[host.address] = host
        return host.address

    def _next_address(self) -> str:
        self._addresses += 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def host_at(self, asking: Host, address: str) -> Host | None:
        return asking if address == LOOPBACK else self._by_address.get(address)

    def resolve(self, name: str) -> str | None:
        """The address of a host by name or address; an unknown numeric address is itself, as in DNS."""
        if name == "localhost":
            return LOOPBACK
        if name in self.hosts:
            return self.hosts[name].address
        try:
            socket.inet_aton(name)
        except OSError:
            return None
        return name if name.count(".") == 3 else None

    # --- links

    def link(self, source: Host, target: Host) -> Link:
        """One direction between two hosts, which may be the same."""
        pair = (source.name, target.name)
        link = self._links.get(pair)
        if link is None:
            rng = random.Random(f"{self._seed}:net:{source.name}>{target.name}")
            quality = WITHIN_HOST if source is target else self._default
            link = self._links[pair] = Link(self.scheduler, source, target, rng, quality)
        return link

    def dead_link(self, source: Host, target: Host) -> Link:
        """For connections of the two on which nothing passes, though packets pass between the hosts."""
        pair = (source.name, target.name)
        link = self._dead_links.get(pair)
        if link is None:
            link = self._dead_links[pair] = Link(self.scheduler, source, target, random.Random(0), LAN)
            link.cut()
        return link

    def directions(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[Link]:
        """The links from each of the sources to each of the targets that is another host."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                if source != target:
                    yield self.link(self.hosts[source], self.hosts[target])

    @property
    def cuts(self) -> list[tuple[str, str]]:
        """The directions, source and target, in which all packets are lost now."""
        return [pair for pair, link in self._links.items() if link.is_cut]

    def cut(self, sources: Iterable[str], targets: Iterable[str], by: object = None) -> None:
        """Lose every packet from one of the sources to one of the targets; cuts add up."""
        for link in self.directions(sources, targets):
            link.cut(by)

    def uncut(self, sources: Iterable[str], targets: Iterable[str], by: object = None) -> None:
        """Remove one `cut` by the same fault, wherever there is one."""
        for link in self.directions(sources, targets):
            link.uncut(by)

    def mend_all(self) -> None:
        for link in self._links.values():
            link.uncut_wholly()

    def is_cut(self, source: str, target: str) -> bool:
        link = self._links.get((source, target))
        return link is not None and link.is_cut

    def set_quality(self, source: str, target: str, quality: LinkQuality | None) -> None:
        """Change the properties of one direction from now on; None means the default."""
        self.link(self.hosts[source], self.hosts[target]).set_base(quality or self._default)

    # --- connections

    def connect(
        self,
        host: Host,
        owner: Owner,
        destination: Address,
        done: Callable[[Half | None, OSError | None], None],
    ) -> Attempt:
        """Begin to connect; ``done`` is called once, unless the attempt is cancelled."""
        if self.on_attempt is not None:
            self.on_attempt(owner.name, destination)
        return Attempt(self, host, owner, destination, done)

    def join(
        self,
        host: Host,
        owner: Owner,
        address: Address,
        listener: Listener,
        destination: Address,
        *,
        unheard: bool = False,
    ) -> Half:
        """The SYN-ACK has arrived: make both halves and send the ACK, which data may follow.

        ``unheard``: the server's program will never take the connection.
        """
        self.connections += 1
        if not self.connections % FORGET_EVERY:
            self._forget_ended()
        number = str(self.connections)
        near = Half(self, host, owner, number + ">", address, destination)
        far = Half(self, listener.host, listener.owner, number + "<", destination, address)
        near.peer, far.peer = far, near
        near.link = self.link(host, listener.host)
        far.link = self.link(listener.host, host)
        for half in (near, far):
            self._halves[half] = None
            half.set_pace(self._pace(half.owner.name))
        if unheard:
            near.link.unheard.append(far)
        else:
            self._opening[far] = listener
        near._transmit("open", b"")
        return near

    def accepted(self, half: Half) -> None:
        """The ACK has arrived: the server's program may take the connection."""
        listener = self._opening.pop(half, None)
        if listener is None:
            return  # nobody will take it
        if not listener.listening:
            half.reset()
            return
        listener.waiting += 1
        if half.pace is not None and half.pace.stopped:
            self._unaccepted.append((half, listener))
        else:
            listener.accept(half)

    @property
    def halves(self) -> list[Half]:
        """All ends of connections that may still get an event."""
        return list(self._halves)

    def between(self, some: Iterable[str], others: Iterable[str]) -> list[tuple[Half, Half]]:
        """The connections that are open between hosts: the ends at some of them and those at the others."""
        here, there = list(some), list(others)
        return [
            (half, half.peer)
            for half in self._halves
            if half.host.name in here
            and half.peer.host.name in there
            and half.host is not half.peer.host
            and not half.ended
            and not half.peer.ended
        ]

    def break_in_two(self, half: Half) -> None:
        """A device between the two ends tells this one, in the other's name, that the connection is over."""
        half.peer.link.post(self._reset_arrived, half.peer, half)

    def send_reset(self, source: Half, target: Half, behind_ns: int = 0) -> None:
        """An RST on its way, behind earlier data; unlike data it is not retransmitted when it is lost."""
        source.link.post(self._reset_arrived, source, target, behind_ns)

    def _reset_arrived(self, source: Half, target: Half, behind_ns: int = 0) -> None:
        if self.scheduler.now_ns < behind_ns:
            self.scheduler.at(behind_ns, self._reset_arrived, source, target)
            return
        if source.link.up and not target.vanished and target.error is None:
            self.note((self.scheduler.now_ns, target.host.name, "rst", source.number))
            target.fail(
                BrokenPipeError(errno.EPIPE, "broken pipe")
                if target.eof
                else ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            )

    # --- programs that do not keep up

    def slow_reader(self, process: str, bytes_s: float) -> None:
        """Let a process take no more than so many bytes a second from each of its sockets; 0 is none."""
        self._paces.setdefault(process, []).append((bytes_s, False))
        self._repace(process)

    def usual_reader(self, process: str, bytes_s: float) -> None:
        """Undo one `slow_reader`."""
        self._unpace(process, (bytes_s, False))

    def block_io(self, process: str) -> None:
        """Let a process read, write and accept nothing; its timers run on."""
        self._paces.setdefault(process, []).append((0.0, True))
        self._repace(process)

    def unblock_io(self, process: str) -> None:
        """Undo one `block_io`."""
        self._unpace(process, (0.0, True))

    def _unpace(self, process: str, pace: tuple[float, bool]) -> None:
        paces = self._paces.get(process, [])
        if pace in paces:
            paces.remove(pace)
            self._repace(process)

    def _pace(self, process: str) -> Pace | None:
        paces = self._paces.get(process)
        if not paces:
            return None
        return Pace(min(bytes_s for bytes_s, _ in paces), any(stopped for _, stopped in paces))

    def _repace(self, process: str) -> None:
        for half in self._halves:
            if half.owner.name == process and not half.ended:
                half.set_pace(self._pace(process))
        waiting, self._unaccepted = self._unaccepted, []
        for half, listener in waiting:
            if half.pace is not None and half.pace.stopped:
                self._unaccepted.append((half, listener))
            elif not half.ended:
                listener.accept(half)

    # --- ends of processes and hosts

    def close_sockets(self, owner: Owner) -> None:
        """The process ended, by itself or killed: its ports are free, and its kernel closes its sockets."""
        self._drop(
            lambda half: half.owner is owner and not half.closed,  # the kernel goes on with those
            lambda listener: listener.owner is owner,
            Half.close,
        )

    def lose_sockets(self, host: Host) -> None:
        """The host lost power: nobody is told."""
        self._drop(lambda half: half.host is host, lambda listener: listener.host is host, Half.vanish)
        host.unix.clear()

    def _drop(
        self,
        ours: Callable[[Half], bool],
        our_listener: Callable[[Listener], bool],
        end: Callable[[Half], Any],
    ) -> None:
        for host in self.hosts.values():
            listeners = [*host.listeners.values(), *(file.listener for file in host.unix.values())]
            for listener in listeners:
                if listener is not None and our_listener(listener):
                    listener.close()
        for half in [half for half in self._halves if ours(half)]:
            if not half.vanished:
                end(half)
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._halves = {half: None for half in self._halves if not (half.ended and half.peer.ended)}


def _forget(line: Line) -> None:
    """The record of a network without a history."""
