"""The network between simulated hosts, at the level at which a kernel gives it to asyncio: TCP streams.

**What a stream does.** Bytes of one direction arrive in order, after a latency drawn from the link's own
random stream. The sender may be `WINDOW_BYTES` ahead of what the receiver's program has read; beyond that its
transport's buffer fills.

**What a cut does.** It loses packets silently, in one direction or both. TCP notices at the next packet and
sends it again after 0.2, 0.4, 0.8 ... seconds, so bytes held back by a cut arrive up to one such step after
the cut has healed, and after `GIVE_UP_S` without an answer the sender's connection ends with ETIMEDOUT. A
lost acknowledgement starts the same ladder: with only the way back cut, data still arrive, until the window
is full. A host without power is a cut in all directions.

**What ends do.** A closed socket sends FIN behind its data, or RST if it leaves bytes unread; the sockets of
a killed process send RST; those of a host that lost power send nothing, and answer RST once the host is back
and hears of them. A connection needs three packets; a lost SYN is sent again after 1, 3, 7 ... seconds, up to
ETIMEDOUT after 127.

A host has one address (10.0.0.n), which exists only here; 127.0.0.1 is the host itself.
"""

from __future__ import annotations

import errno
import random
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from simulations.history import History
from simulations.scheduler import MILLISECOND, SECOND, Scheduler, nanoseconds

WINDOW_BYTES: Final = 256 * 1024
GIVE_UP_S: Final = 924.6
"""Linux: fifteen retransmissions (tcp_retries2)."""
RTO_FIRST_NS: Final = 200 * MILLISECOND
RTO_MAX_NS: Final = 120 * SECOND
SYN_TIMES_S: Final = (0, 1, 3, 7, 15, 31, 63, 127)
"""When SYNs are sent; at the last instant the kernel gives up instead."""
BACKLOG: Final = 100
PORT_FIRST: Final = 32768
LOOPBACK: Final = "127.0.0.1"
WILDCARD: Final = "0.0.0.0"

Address = tuple[str, int] | str
"""(host, port), or the path of a unix socket."""


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """One direction between two hosts. ``loss`` is the chance that a packet must be sent again."""

    latency_s: float = 0.0003
    jitter_s: float = 0.0002
    """Added evenly between 0 and this."""
    bandwidth_bytes_s: float | None = None
    loss: float = 0.0

    def __post_init__(self) -> None:
        if self.latency_s < 0 or self.jitter_s < 0 or not 0 <= self.loss < 1:
            raise ValueError(f"a link needs latency and jitter >= 0 and loss in [0, 1), got {self}")
        if self.bandwidth_bytes_s is not None and self.bandwidth_bytes_s <= 0:
            raise ValueError(f"a link's bandwidth must be above 0, got {self.bandwidth_bytes_s}")


LAN: Final = LinkQuality()
WITHIN_HOST: Final = LinkQuality(latency_s=0.00003, jitter_s=0.00001)


class Owner(Protocol):
    """The process that holds sockets; compared by identity when it dies."""

    @property
    def name(self) -> str: ...

    @property
    def alive(self) -> bool: ...


class SocketUser(Protocol):
    """A transport, told by its kernel half that something may be done."""

    def readable(self) -> None:
        """Bytes, the end of the stream or an error wait to be read."""

    def writable(self) -> None:
        """There is room for bytes again, or an error."""


class Host:
    """A machine: an address, ports, unix socket paths, power."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.powered = True
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.unix: dict[str, Listener | None] = {}
        """None: the file is there, nobody listens any more."""
        self._port = PORT_FIRST

    def free_port(self) -> int:
        """A port nobody listens on; they are given in turn."""
        while True:
            self._port = PORT_FIRST if self._port >= 60999 else self._port + 1
            if not any(port == self._port for _, port in self.listeners):
                return self._port

    def bind(self, listener: Listener, address: str, port: int) -> tuple[str, int]:
        """Take an address; port 0 is any free one. Raises OSError as bind(2) does."""
        if address not in (self.address, LOOPBACK, WILDCARD):
            raise OSError(
                errno.EADDRNOTAVAIL, f"{address} is not an address of host {self.name} ({self.address})"
            )
        port = port or self.free_port()
        for held_address, held_port in self.listeners:
            if held_port == port and (held_address == address or WILDCARD in (address, held_address)):
                raise OSError(errno.EADDRINUSE, f"address {(address, port)} is in use on host {self.name}")
        self.listeners[address, port] = listener
        return address, port

    def listener_at(self, destination: Address) -> Listener | None:
        if isinstance(destination, str):
            return self.unix.get(destination)
        return self.listeners.get(destination) or self.listeners.get((WILDCARD, destination[1]))


class Listener:
    """A listening socket. ``accept`` is called with the server's half when the third packet has arrived."""

    def __init__(
        self, host: Host, owner: Owner, accept: Callable[[Half], None], backlog: int = BACKLOG
    ) -> None:
        self.host = host
        self.owner = owner
        self.accept = accept
        self.backlog = backlog
        self.waiting = 0
        """Connections the program has not taken yet."""
        self.listening = False
        self.address: Address = ""

    def bind(self, address: str, port: int) -> None:
        self.address = self.host.bind(self, address, port)

    def bind_unix(self, path: str) -> None:
        if self.host.unix.get(path) is not None:
            raise OSError(errno.EADDRINUSE, f"{path} is in use on host {self.host.name}")
        self.host.unix[path] = self
        self.address = path

    def close(self) -> None:
        self.listening = False
        if isinstance(self.address, str):
            if self.host.unix.get(self.address) is self:
                self.host.unix[self.address] = None
        elif self.host.listeners.get(self.address) is self:
            del self.host.listeners[self.address]


class Half:
    """One end of a connection as its kernel knows it: what has arrived, what is on its way to the peer."""

    __slots__ = (
        "_acknowledged",
        "_arrived",
        "_blocked",
        "_consumed",
        "_delivered",
        "_last_arrival_ns",
        "_lost",
        "_network",
        "_next_number",
        "_received",
        "_rto_ns",
        "_sent",
        "_stalled_since_ns",
        "address",
        "closed",
        "eof",
        "error",
        "host",
        "number",
        "owner",
        "peer",
        "peer_address",
        "received_bytes",
        "sent_bytes",
        "user",
        "vanished",
    )

    def __init__(
        self, network: Network, host: Host, owner: Owner, number: str, address: Address, peer_address: Address
    ) -> None:
        self.host = host
        self.owner = owner
        self.number = number
        self.address = address
        self.peer_address = peer_address
        self.peer: Half | None = None
        self.user: SocketUser | None = None
        self.eof = False
        """The peer's FIN has arrived."""
        self.error: OSError | None = None
        self.closed = False
        self.vanished = False
        """Process or host died: the kernel knows nothing of this connection any more."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self._network = network
        self._received: deque[bytes] = deque()
        self._consumed = 0  # of what the peer sent, by our program
        self._sent = 0
        self._acknowledged = 0  # of what we sent, read by the peer's program as far as we have heard
        self._blocked = False
        self._last_arrival_ns = 0
        self._next_number = 0
        self._lost: dict[int, tuple[str, bytes]] = {}  # to be sent again
        self._arrived: dict[int, tuple[str, bytes]] = {}  # at the peer, but not yet in their turn
        self._delivered = 0
        self._stalled_since_ns: int | None = None
        self._rto_ns = RTO_FIRST_NS

    # --- what a transport calls

    @property
    def pending(self) -> int:
        """Bytes that have arrived and were not read."""
        return self.received_bytes - self._consumed

    @property
    def ended(self) -> bool:
        """No program will hear of this half again."""
        return self.closed or self.vanished

    @property
    def has_news(self) -> bool:
        """A read would return something: bytes, the end or an error."""
        return self.error is not None or self.pending > 0 or self.eof

    def send(self, data: bytes) -> int:
        """Put as many leading bytes as the window has room for on the wire; returns how many."""
        if self.error is not None:
            raise self.error
        if self.vanished:
            return len(data)
        room = WINDOW_BYTES - (self._sent - self._acknowledged)
        taken = min(room, len(data))
        if taken < len(data):
            self._blocked = True
        if taken <= 0:
            return 0
        part = bytes(data) if taken == len(data) else bytes(data[:taken])
        self._sent += taken
        self.sent_bytes += taken
        self._transmit("data", part)
        return taken

    def read(self, size: int) -> bytes:
        """Up to so many of the bytes that have arrived."""
        parts: list[bytes] = []
        left = size
        while left and self._received:
            part = self._received.popleft()
            if len(part) > left:
                self._received.appendleft(part[left:])
                part = part[:left]
            left -= len(part)
            parts.append(part)
        self._consumed += size - left
        self._tell_window()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def shut_down(self) -> None:
        """Nothing more will be sent: FIN follows the data."""
        if self.error is None:
            self._transmit("fin", b"")

    def close(self, *, sent_fin: bool = False) -> None:
        """The program closed the socket: FIN follows what was sent, or RST if bytes were left unread."""
        if self.closed or self.vanished:
            return
        self.closed = True
        self.user = None
        if self.error is not None:
            return
        if self.pending:
            self.reset()
        elif not sent_fin:
            self._transmit("fin", b"")

    def reset(self) -> None:
        """Forget the connection and tell the peer by RST, which may be lost."""
        self.vanish()
        if self.peer is not None:
            self._network.send_reset(self, self.peer)

    def vanish(self) -> None:
        """Forget the connection; the peer learns nothing now."""
        self.vanished = True
        self.user = None
        self._lost.clear()
        self._received.clear()
        self._stalled_since_ns = None

    # --- the wire

    def _transmit(self, kind: str, data: bytes) -> None:
        """A new packet, numbered, so that the peer takes it in its turn whatever became of the others."""
        self._next_number += 1
        self._launch(self._next_number, kind, data)

    def _launch(self, number: int, kind: str, data: bytes) -> None:
        network = self._network
        assert self.peer is not None
        lost = not network.passes(self.host, self.peer.host)
        arrival_ns = max(network.arrival_ns(self.host, self.peer.host, len(data)), self._last_arrival_ns)
        self._last_arrival_ns = arrival_ns
        network.scheduler.at(arrival_ns, self._arrive, number, kind, data, lost)

    def _arrive(self, number: int, kind: str, data: bytes, lost: bool) -> None:
        network, peer = self._network, self.peer
        assert peer is not None
        if lost or not network.passes(self.host, peer.host):
            if not self.vanished:
                self._lost[number] = (kind, data)
                self._stall()
            return
        self._arrived[number] = (kind, data)
        while self._delivered + 1 in self._arrived:
            self._delivered += 1
            kind, data = self._arrived.pop(self._delivered)
            if network.history is not None:
                key = f"{self.number}|{len(data)}|{zlib.crc32(data):08x}"
                network.history.record(network.scheduler.now_ns, peer.host.name, kind, key)
            peer._incoming(kind, data)
        if not network.passes(peer.host, self.host):
            self._stall()

    def _incoming(self, kind: str, data: bytes) -> None:
        if self.vanished or (self.closed and kind == "data"):
            if self.peer is not None:
                self._network.send_reset(self, self.peer)
            return
        if self.closed:
            return
        if kind == "data":
            self._received.append(data)
            self.received_bytes += len(data)
        elif kind == "fin":
            self.eof = True
        elif kind == "open":
            self._network.accepted(self)
            return
        if self.user is not None:
            self.user.readable()

    def _tell_window(self) -> None:
        """The peer hears how far we have read, unless the way there is cut."""
        peer = self.peer
        if peer is None or peer.vanished:
            return
        if not self._network.passes(self.host, peer.host):
            peer._stall()
            return
        peer._acknowledged = self._consumed
        if peer._blocked:
            delay_ns = self._network.delay_ns(self.host, peer.host)
            self._network.scheduler.after(delay_ns, peer._window_opened)

    def _window_opened(self) -> None:
        if self._blocked and not self.vanished:
            self._blocked = False
            if self.user is not None:
                self.user.writable()

    # --- loss: the ladder of retransmissions

    def _stall(self) -> None:
        if self._stalled_since_ns is None and not self.vanished:
            self._stalled_since_ns = self._network.scheduler.now_ns
            self._rto_ns = RTO_FIRST_NS
            self._network.scheduler.after(self._rto_ns, self._send_again, self._stalled_since_ns)

    def _send_again(self, stalled_since_ns: int) -> None:
        if self._stalled_since_ns != stalled_since_ns or self.vanished or self.error is not None:
            return
        network, peer = self._network, self.peer
        assert peer is not None
        there = network.passes(self.host, peer.host)
        back = network.passes(peer.host, self.host)
        if there and self._lost:
            lost, self._lost = self._lost, {}
            for number in sorted(lost):
                self._launch(number, *lost[number])
        if there and back:
            self._stalled_since_ns = None
            self._acknowledged = peer._consumed
            self._window_opened()
        elif network.scheduler.now_ns - stalled_since_ns >= network.give_up_ns:
            self.fail(TimeoutError(errno.ETIMEDOUT, "the peer acknowledged nothing for too long"))
        else:
            self._rto_ns = min(2 * self._rto_ns, RTO_MAX_NS)
            network.scheduler.after(self._rto_ns, self._send_again, stalled_since_ns)

    def fail(self, error: OSError) -> None:
        """The kernel ended the connection; the program learns of it at its next read or write."""
        if self.error is not None or self.vanished:
            return
        self.error = error
        self._lost.clear()
        self._consumed = self.received_bytes
        self._received.clear()
        self._stalled_since_ns = None
        if self.user is not None:
            self.user.readable()
        if self._blocked and self.user is not None:
            self.user.writable()


class Attempt:
    """A connection being made: SYN, SYN-ACK, and the ACK that lets the server's program see it."""

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
        local = destination if isinstance(destination, str) else destination[0]
        self._target = host if isinstance(destination, str) else network.host_at(host, local)
        self._address: Address = (
            "" if isinstance(destination, str) else (_source(host, local), host.free_port())
        )
        self._send_syn(0)

    def cancel(self) -> None:
        self._over = True

    @property
    def _unwanted(self) -> bool:
        return self._over or not self._owner.alive

    def _send_syn(self, number: int) -> None:
        network, target = self._network, self._target
        if self._unwanted:
            return
        if number == len(SYN_TIMES_S) - 1:
            error = TimeoutError(errno.ETIMEDOUT, f"connecting to {self._destination} was never answered")
            self._finish(None, error)
            return
        wait_s = SYN_TIMES_S[number + 1] - SYN_TIMES_S[number]
        network.scheduler.after(wait_s * SECOND, self._send_syn, number + 1)
        if target is not None and network.passes(self._host, target):
            network.scheduler.after(network.delay_ns(self._host, target), self._syn_arrived)

    def _syn_arrived(self) -> None:
        network, target = self._network, self._target
        assert target is not None
        if self._unwanted or not network.passes(self._host, target):
            return
        listener = target.listener_at(self._destination)
        if listener is None or not listener.listening:
            if isinstance(self._destination, str) and self._destination not in target.unix:
                error: OSError = FileNotFoundError(errno.ENOENT, f"no unix socket at {self._destination}")
            else:
                error = ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {self._destination}")
            self._answer(None, error)
        elif listener.waiting < listener.backlog:
            self._answer(listener, None)

    def _answer(self, listener: Listener | None, error: OSError | None) -> None:
        assert self._target is not None
        if self._network.passes(self._target, self._host):
            delay_ns = self._network.delay_ns(self._target, self._host)
            self._network.scheduler.after(delay_ns, self._answered, listener, error)

    def _answered(self, listener: Listener | None, error: OSError | None) -> None:
        assert self._target is not None
        if self._unwanted or not self._network.passes(self._target, self._host):
            return
        if listener is None:
            self._finish(None, error)
        else:
            self._finish(
                self._network.join(self._host, self._owner, self._address, listener, self._destination)
            )

    def _finish(self, half: Half | None, error: OSError | None = None) -> None:
        if not self._over:
            self._over = True
            self._done(half, error)


class Network:
    """All hosts and what lies between them."""

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
        self.hosts: dict[str, Host] = {}
        self.give_up_ns = nanoseconds(GIVE_UP_S)
        self.connections = 0
        self._seed = seed
        self._default = quality
        self._quality: dict[tuple[str, str], LinkQuality] = {}
        self._rng: dict[tuple[str, str], random.Random] = {}
        self._line_free_ns: dict[tuple[str, str], int] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._by_address: dict[str, Host] = {}
        self._halves: dict[Half, None] = {}
        self._opening: dict[Half, Listener] = {}

    # --- hosts and names

    def add_host(self, name: str) -> Host:
        if name in self.hosts:
            raise ValueError(f"there is a host {name} already")
        number = len(self.hosts) + 1
        host = Host(name, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
        self.hosts[name] = self._by_address[host.address] = host
        return host

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

    # --- the state of the links

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Lose every packet from one of the sources to one of the targets; cuts add up."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                if source != target:
                    self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def mend(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Take one `cut` of the same hosts back."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                count = self._cuts.pop((source, target), 0)
                if count > 1:
                    self._cuts[source, target] = count - 1

    def mend_all(self) -> None:
        self._cuts.clear()

    @property
    def cuts(self) -> list[tuple[str, str]]:
        """The directions, source and target, in which all is lost now."""
        return list(self._cuts)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def set_quality(self, source: str, target: str, quality: LinkQuality | None) -> None:
        """Change one direction from now on; None is the default again."""
        if quality is None:
            self._quality.pop((source, target), None)
        else:
            self._quality[source, target] = quality

    def passes(self, source: Host, target: Host) -> bool:
        """A packet sent now would not be lost to a cut or a dead host."""
        return source.powered and target.powered and (source.name, target.name) not in self._cuts

    def delay_ns(self, source: Host, target: Host) -> int:
        """How long a small packet sent now takes; drawn anew each time from the link's own random stream."""
        quality, rng = self._link(source, target)
        delay_ns = nanoseconds(quality.latency_s + quality.jitter_s * rng.random())
        if quality.loss:
            rto_ns = RTO_FIRST_NS
            while rng.random() < quality.loss:
                delay_ns += rto_ns
                rto_ns = min(2 * rto_ns, RTO_MAX_NS)
        return delay_ns

    def arrival_ns(self, source: Host, target: Host, size: int) -> int:
        """When so many bytes sent now have arrived, behind what the line carries already."""
        quality, _ = self._link(source, target)
        leaves_ns = self.scheduler.now_ns
        if quality.bandwidth_bytes_s is not None:
            pair = (source.name, target.name)
            leaves_ns = max(leaves_ns, self._line_free_ns.get(pair, 0))
            leaves_ns += nanoseconds(size / quality.bandwidth_bytes_s)
            self._line_free_ns[pair] = leaves_ns
        return leaves_ns + self.delay_ns(source, target)

    def _link(self, source: Host, target: Host) -> tuple[LinkQuality, random.Random]:
        pair = (source.name, target.name)
        rng = self._rng.get(pair)
        if rng is None:
            rng = self._rng[pair] = random.Random(f"{self._seed}:net:{source.name}>{target.name}")
        default = WITHIN_HOST if source is target else self._default
        return self._quality.get(pair, default), rng

    # --- connections

    def connect(
        self,
        host: Host,
        owner: Owner,
        destination: Address,
        done: Callable[[Half | None, OSError | None], None],
    ) -> Attempt:
        """Begin to connect; ``done`` is told once, unless the attempt is cancelled."""
        return Attempt(self, host, owner, destination, done)

    def join(
        self, host: Host, owner: Owner, address: Address, listener: Listener, destination: Address
    ) -> Half:
        """The SYN-ACK has arrived: make both halves and send the ACK, behind which data may follow."""
        self.connections += 1
        if not self.connections % 256:
            self._forget_ended()
        number = str(self.connections)
        near = Half(self, host, owner, number + ">", address, destination)
        far = Half(self, listener.host, listener.owner, number + "<", destination, address)
        near.peer, far.peer = far, near
        self._halves[near] = self._halves[far] = None
        self._opening[far] = listener
        near._transmit("open", b"")
        return near

    def accepted(self, half: Half) -> None:
        """The ACK has arrived: the server's program may take the connection."""
        listener = self._opening.pop(half, None)
        if listener is None or not listener.listening:
            half.reset()
            return
        listener.waiting += 1
        listener.accept(half)

    def send_reset(self, source: Half, target: Half) -> None:
        """An RST on its way; unlike data it is not sent again when it is lost."""
        if self.passes(source.host, target.host):
            delay_ns = self.delay_ns(source.host, target.host)
            self.scheduler.after(delay_ns, self._reset_arrived, source, target)

    def _reset_arrived(self, source: Half, target: Half) -> None:
        if self.passes(source.host, target.host) and not target.vanished and target.error is None:
            if self.history is not None:
                self.history.record(self.scheduler.now_ns, target.host.name, "rst", source.number)
            target.fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    # --- ends of processes and hosts

    def kill_sockets(self, owner: Owner) -> None:
        """The process died: its ports are free, its peers are told by RST."""
        self._drop(
            lambda half: (
                half.owner is owner and not half.closed
            ),  # the kernel goes on with those already closed
            lambda listener: listener.owner is owner,
            Half.reset,
        )

    def close_sockets(self, owner: Owner) -> None:
        """The process ended by itself: what it left open its kernel closes."""
        self._drop(
            lambda half: half.owner is owner and not half.closed,
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
            listeners = [*host.listeners.values(), *host.unix.values()]
            for listener in listeners:
                if listener is not None and our_listener(listener):
                    listener.close()
        for half in [half for half in self._halves if ours(half)]:
            if not half.vanished:
                end(half)
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._halves = {
            half: None for half in self._halves if not (half.ended and half.peer and half.peer.ended)
        }


def _source(host: Host, destination: str) -> str:
    return LOOPBACK if destination == LOOPBACK else host.address
