"""The two ends of a TCP connection, as their kernels know them.

**Streams.** Bytes of one direction arrive in order, after the delays of `simulations.kernel.network.links`.
The sender may be `WINDOW_BYTES` ahead of what the receiver's program has read; beyond that its transport's
buffer fills.

**Cuts** lose packets silently, in one direction or both. TCP notices at the next packet and retransmits it
0.2, 0.4, 0.8, 1.6 ... seconds later. So bytes held back by a cut arrive up to one such step after the cut has
healed. After `GIVE_UP_S` without an answer the sender's connection ends with ETIMEDOUT. A lost
acknowledgement starts the same ladder: with only the way back cut, data still arrive, until the window is
full. A host without power is a cut in all directions.

**Ends.** A closed socket sends FIN after its data, or RST if it leaves bytes unread. The kernel does the same
for a process that is killed. The sockets of a host that lost power send nothing, and answer RST once the host
is back and gets their packets. An RST does not overtake data, and data that arrived before it is still read.

**Faults of ends.** One may be deaf (nothing passes on this connection, though packets pass between the
hosts), may have its next bytes cut short by FIN, and its program may be slow to read (`Pace`).
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappush
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

from simulations.kernel.network.hosts import Address, Host, Owner
from simulations.kernel.network.links import Link, wait_ns
from simulations.kernel.scheduler import nanoseconds

if TYPE_CHECKING:
    from simulations.kernel.network.network import Network

WINDOW_BYTES: Final = 256 * 1024
READ_MAX: Final = 256 * 1024
GIVE_UP_S: Final = 924.6
"""Linux: fifteen retransmissions (tcp_retries2)."""
RESENDS_MAX: Final = 15
SLOW_READ_S: Final = 0.05
"""A slow program reads the allowance of so many seconds at once."""


class SocketUser(Protocol):
    """A transport; its kernel half tells it that it may act."""

    def arrived(self) -> None:
        """Bytes came in, just now."""

    def readable(self) -> None:
        """Bytes, the end of the stream or an error can be read."""

    def writable(self) -> None:
        """There is room for bytes again, or an error."""


@dataclass(slots=True, eq=False)
class Pace:
    """How fast a program takes bytes from one socket; ``bytes_s`` 0 is not at all. A ``stopped`` one writes
    nothing either.
    """

    bytes_s: float
    stopped: bool = False
    next_read_ns: int = 0
    waking: bool = False


class Half:
    """One end of a connection as its kernel knows it: the bytes that have arrived, and those on their way to
    the peer.
    """

    __slots__ = (
        "_acknowledged",
        "_arrived",
        "_blocked",
        "_cut_off",
        "_deaf",
        "_delivered",
        "_ended",
        "_last_arrival_ns",
        "_lost",
        "_network",
        "_next_number",
        "_received",
        "_stalled_since_ns",
        "_touched",
        "_tries",
        "address",
        "closed",
        "consumed",
        "cut_short",
        "eof",
        "error",
        "host",
        "link",
        "number",
        "owner",
        "pace",
        "peer",
        "peer_address",
        "received_bytes",
        "sent_bytes",
        "user",
        "vanished",
    )

    link: Link
    """The link to the peer."""
    peer: Half

    def __init__(
        self, network: Network, host: Host, owner: Owner, number: str, address: Address, peer_address: Address
    ) -> None:
        self.host = host
        self.owner = owner
        self.number = number
        self.address = address
        self.peer_address = peer_address
        self.user: SocketUser | None = None
        self.eof = False
        """The peer's FIN has arrived."""
        self.error: OSError | None = None
        self.closed = False
        self.vanished = False
        """Process or host died: the kernel has forgotten this connection."""
        self.pace: Pace | None = None
        """How fast the program reads, if not as fast as it can."""
        self.cut_short = False
        """Half of the next bytes are sent, then the stream ends."""
        self.received_bytes = 0
        self.consumed = 0
        """How many of them our program has read."""
        self.sent_bytes = 0
        self._touched = False  # one of the above was ever set, so `send` must check which
        self._network = network
        self._received: deque[bytes] = deque()
        self._acknowledged = 0  # bytes of ours that the peer's program has read, as far as we know
        self._blocked = False
        self._cut_off = False
        self._ended = False  # FIN is on its way
        self._deaf: list[object] = []
        self._last_arrival_ns = 0
        self._next_number = 0
        self._lost: dict[int, tuple[str, bytes]] = {}  # to be sent again
        self._arrived: dict[int, tuple[str, bytes]] = {}  # at the peer, but not yet in their turn
        self._delivered = 0
        self._stalled_since_ns: int | None = None
        self._tries = 0  # since it stalled

    # --- called by a transport

    @property
    def pending(self) -> int:
        """Bytes that have arrived and were not read."""
        return self.received_bytes - self.consumed

    @property
    def ended(self) -> bool:
        """No program will hear of this half again."""
        return self.closed or self.vanished

    @property
    def has_news(self) -> bool:
        """A read would return something: bytes, the end or an error."""
        if self.pace is not None and not self._may_read(self.pace):
            unread = self.received_bytes > self.consumed
            return self.error is not None and not self.pace.stopped and not unread
        if self.error is not None:
            return True
        return self.received_bytes > self.consumed or self.eof

    @property
    def waiting(self) -> int:
        """Packets to this end that are on their way, or held back by a cut."""
        return self._next_number - self._delivered

    @property
    def portion(self) -> int:
        """The most bytes that one read returns."""
        size = self.received_bytes - self.consumed
        if size > READ_MAX:
            size = READ_MAX
        if portions := self.peer.link.portions:
            size = min(size, *portions)
        if self.pace is not None:
            size = min(size, max(1, int(self.pace.bytes_s * SLOW_READ_S)))
        return size

    def send(self, data: bytes) -> int:
        """Put as many leading bytes on the wire as the window has room for; return how many."""
        taken = len(data)
        if self._touched:
            if self.pace is not None and self.pace.stopped:
                self._blocked = True
                return 0
            if self.error is not None:
                raise self.error
            if self.vanished or self._cut_off:
                return taken
            if self.cut_short and taken > 1:
                return self._send_cut_short(data)
        room = WINDOW_BYTES - self.sent_bytes + self._acknowledged
        if taken > room:
            taken = max(room, 0)
            self._blocked = True
            if not taken:
                return 0
            data = data[:taken]
        self.sent_bytes += taken
        link = self.link
        if not link.smooth:
            self._transmit("data", data)
            return taken
        # The work of `_launch` without the calls: nearly all packets come this way.
        number = self._next_number = self._next_number + 1
        scheduler, random = link.scheduler, link.random
        arrival_ns = scheduler.now_ns + link.latency_ns + int(link.jitter_ns * random())
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        else:
            self._last_arrival_ns = arrival_ns
        # And the work of `Scheduler.at`: nothing arrives before now.
        scheduler.serial = serial = scheduler.serial + 1
        heappush(scheduler.heap, (arrival_ns, serial, _arrive, (self, number, "data", data)))
        return taken

    def read(self, size: int) -> bytes:
        """Return up to so many of the arrived bytes, at most what one read may return (`portion`)."""
        received, peer = self._received, self.peer
        if len(received) == 1 and self.pace is None and len(received[0]) <= size and self.link.smooth:
            if not peer.link.portions and not peer._blocked:  # the usual case, without a call
                data = received.popleft()
                peer._acknowledged = self.consumed = self.consumed + len(data)
                return data
        data = self._gather(min(size, self.portion))
        self.consumed += len(data)
        if self.pace is not None and self.pace.bytes_s:
            wait_ns = nanoseconds(len(data) / self.pace.bytes_s)
            self.pace.next_read_ns = self._network.scheduler.now_ns + wait_ns
        self._tell_window()
        return data

    def _gather(self, size: int) -> bytes:
        parts: list[bytes] = []
        left = size
        while left and self._received:
            part = self._received.popleft()
            if len(part) > left:
                self._received.appendleft(part[left:])
                part = part[:left]
            left -= len(part)
            parts.append(part)
        return b"".join(parts)

    def shut_down(self) -> None:
        """Nothing more will be sent: FIN follows the data."""
        if self.error is None and not self._cut_off and not self._ended:
            self._ended = True
            self._transmit("fin", b"")

    def close(self) -> None:
        """The program closed the socket: FIN follows its data, or RST if bytes were left unread."""
        if self.closed or self.vanished:
            return
        self.closed = True
        self.user = None
        if self.error is not None:
            return
        if self.pending:
            self.reset()
        else:
            self.shut_down()

    def reset(self) -> None:
        """Forget the connection and tell the peer by RST, which may be lost."""
        self.vanish()
        self._network.send_reset(self, self.peer, self._last_arrival_ns)

    def vanish(self) -> None:
        """Forget the connection; the peer learns nothing now."""
        self.vanished = self._touched = True
        self.user = None
        self._lost.clear()
        self._received.clear()
        self._stalled_since_ns = None

    def fail(self, error: OSError) -> None:
        """The kernel ended the connection; the program learns of it when it has read the earlier bytes, or at
        its next write.
        """
        if self.error is not None or self.vanished:
            return
        self.error, self._touched = error, True
        self._lost.clear()
        self._stalled_since_ns = None
        if self.user is not None:
            self.user.readable()
        if self._blocked and self.user is not None:
            self.user.writable()

    # --- faults

    def deafen(self, by: object) -> None:
        """Let nothing pass from here to the peer any more; this adds up."""
        self._deaf.append(by)
        self.link = self._network.dead_link(self.host, self.peer.host)

    def undeafen(self, by: object) -> None:
        """Remove one `deafen` by the same fault, if there is one."""
        if by in self._deaf:
            self._deaf.remove(by)
            if not self._deaf:
                self.link = self._network.link(self.host, self.peer.host)

    def cut_next(self) -> None:
        """Send half of the next bytes, and then end the stream."""
        self.cut_short = self._touched = True

    def set_pace(self, pace: Pace | None) -> None:
        """Change how fast the program reads, and whether it writes."""
        self.pace = pace
        self._touched = self._touched or pace is not None
        if self.user is not None:
            self.user.readable()
            if self._blocked and (pace is None or not pace.stopped):
                self.user.writable()

    def _may_read(self, pace: Pace) -> bool:
        """True if the program may read now; otherwise it is called again when it may."""
        if not pace.bytes_s or pace.stopped:
            return False
        scheduler = self._network.scheduler
        if scheduler.now_ns >= pace.next_read_ns:
            return True
        if not pace.waking:
            pace.waking = True
            scheduler.at(pace.next_read_ns, self._wake, pace)
        return False

    def _wake(self, pace: Pace) -> None:
        pace.waking = False
        if self.pace is pace and self.user is not None:
            self.user.readable()

    def _send_cut_short(self, data: bytes) -> int:
        """As if a device between the two had died: half of it, FIN to the peer, RST to us."""
        self.cut_short = False
        self._cut_off = True
        part = data[: len(data) // 2]
        self.sent_bytes += len(part)
        self._transmit("data", part)
        self._transmit("fin", b"")
        self.peer.link.post(self.fail, ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        return len(data)

    # --- the wire

    def _transmit(self, kind: str, data: bytes) -> None:
        """Send a new packet, numbered, so that the peer takes it in its turn whatever happens to the
        others.
        """
        self._next_number += 1
        self._launch(self._next_number, kind, data)

    def _launch(self, number: int, kind: str, data: bytes, resends: int = 0) -> None:
        link = self.link
        if link.clogs:
            link.held.append(partial(self._launch, number, kind, data, resends))
            return
        arrival_ns = link.arrival_ns(len(data))
        if arrival_ns is None or not link.up:
            self._lose(number, kind, data)
            return
        if link.lossy and link.loses():
            link.scheduler.after(wait_ns(resends), self._resend, number, kind, data, resends + 1)
            return
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        else:
            self._last_arrival_ns = arrival_ns
        link.scheduler.at(arrival_ns, self._arrive, number, kind, data)

    def _resend(self, number: int, kind: str, data: bytes, resends: int) -> None:
        """A single packet was lost; later ones arrive and wait."""
        if self.vanished or self.error is not None:
            return
        if resends > RESENDS_MAX:
            self.fail(TimeoutError(errno.ETIMEDOUT, "the peer acknowledged nothing for too long"))
        else:
            self._launch(number, kind, data, resends)

    def _arrive(self, number: int, kind: str, data: bytes) -> None:
        """A packet is at the peer. If its turn has come, deliver it and those that waited for it.

        The reader is told last, since it may run at once.
        """
        if not self.link.up:
            self._lose(number, kind, data)
            return
        if not self.peer.link.up:
            self._stall()
        if number != self._delivered + 1:
            self._arrived[number] = (kind, data)
            return
        network, peer, arrived = self._network, self.peer, self._arrived
        note = network.note  # reading an attribute is faster than calling it
        while True:
            self._delivered = number
            size = len(data)
            note((network.scheduler.now_ns, peer.host.name, kind, self.number, size, crc32(data)))
            if kind == "data" and not peer.closed and not peer.vanished:
                peer._received.append(data)
                peer.received_bytes += size
                user = peer.user
                if user is not None:
                    user.arrived()
            else:
                peer._incoming(kind)
            number += 1
            if number not in arrived:
                return
            kind, data = arrived.pop(number)

    def _incoming(self, kind: str) -> None:
        """Handle anything but data that a program may read."""
        if self.vanished or (self.closed and kind == "data"):
            self._network.send_reset(self, self.peer)
        elif self.closed:
            pass
        elif kind == "open":
            self._network.accepted(self)
        elif kind == "fin":
            self.eof = True
            if self.user is not None:
                self.user.readable()

    def _tell_window(self) -> None:
        """Tell the peer how far we have read, unless the way there is cut."""
        peer, link = self.peer, self.link
        if peer.vanished:
            return
        if link.clogs:
            link.held.append(self._tell_window)
        elif not link.up:
            peer._stall()
        else:
            peer._acknowledged = self.consumed
            if not peer._blocked:
                return
            if link.lossy and link.loses():
                peer._stall()
            else:
                link.scheduler.after(link.delay_ns(), peer._window_opened)

    def _window_opened(self) -> None:
        if self._blocked and not self.vanished:
            self._blocked = False
            if self.user is not None:
                self.user.writable()

    # --- loss: the ladder of retransmissions

    def _lose(self, number: int, kind: str, data: bytes) -> None:
        if not self.vanished:
            self._lost[number] = (kind, data)
            self._stall()

    def _stall(self) -> None:
        if self._stalled_since_ns is None and not self.vanished:
            self._stalled_since_ns = self._network.scheduler.now_ns
            self._tries = 0
            self._network.scheduler.after(wait_ns(0), self._send_again, self._stalled_since_ns)

    def _send_again(self, stalled_since_ns: int) -> None:
        if self._stalled_since_ns != stalled_since_ns or self.vanished or self.error is not None:
            return
        network = self._network
        there, back = self.link.up, self.peer.link.up
        if there and back:
            self._stalled_since_ns = None
            self._acknowledged = self.peer.consumed
            self._window_opened()
        elif network.scheduler.now_ns - stalled_since_ns >= network.give_up_ns:
            self.fail(TimeoutError(errno.ETIMEDOUT, "the peer acknowledged nothing for too long"))
            return
        else:
            self._tries += 1
            network.scheduler.after(wait_ns(self._tries), self._send_again, stalled_since_ns)
        if there and self._lost:
            lost, self._lost = self._lost, {}
            for number in sorted(lost):
                self._launch(number, *lost[number])


_arrive: Final[Callable[[Half, int, str, bytes], None]] = Half._arrive
"""Not bound to a half: that would cost an object for each packet."""
