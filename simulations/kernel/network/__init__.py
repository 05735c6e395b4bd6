"""The network between simulated hosts, at the level at which a kernel offers it to asyncio: TCP streams.

`hosts` has machines and their listeners, `links` the network between two of them, `tcp` the two ends of a
connection, `handshake` how it is made, `network` all of it together.
"""

from simulations.kernel.network.handshake import Attempt, Dialling
from simulations.kernel.network.hosts import LOOPBACK, WILDCARD, Address, Host, Listener, Owner
from simulations.kernel.network.links import LAN, WITHIN_HOST, Bursts, Link, LinkQuality
from simulations.kernel.network.network import Network
from simulations.kernel.network.tcp import READ_MAX, WINDOW_BYTES, Half, SocketUser

__all__ = [
    "LAN",
    "LOOPBACK",
    "READ_MAX",
    "WILDCARD",
    "WINDOW_BYTES",
    "WITHIN_HOST",
    "Address",
    "Attempt",
    "Bursts",
    "Dialling",
    "Half",
    "Host",
    "Link",
    "LinkQuality",
    "Listener",
    "Network",
    "Owner",
    "SocketUser",
]
