"""Hosts that are network namespaces: each has one interface, and all are attached to one bridge.

* A **cut** removes a host's cable from the bridge: its packets are lost and it hears nothing. Its interface
  stays up and all hosts know each other's hardware addresses, so that nothing is refused at once.
* **Losses** are drawn where packets arrive (nft), so that the sender's kernel learns nothing of them.
* A **narrow line** is a token bucket (tc's tbf) at both ends of a host's cable.

Kernels without netem are common, so nothing here delays packets: `tests.differential.delaying` does.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

PACKAGES: Final = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
BURST_BYTES: Final = 16 * 1024
_numbers: Final = itertools.count(1)


class Unavailable(Exception):
    """Namespaces are impossible here, or the fault is."""


def run(*command: str, words: str = "") -> None:
    done = subprocess.run(command, input=words, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")


class Hosts:
    """``names`` in order have the addresses 10.77.0.1, 10.77.0.2 ..."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._prefix = f"mangrove-{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._prefix}-hub"

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def inside(self, name: str, *command: str) -> list[str]:
        """The command that runs this one on that host."""
        return ["ip", "netns", "exec", self.namespace(name), *command]

    # --- faults of a host

    def cut(self, *names: str) -> None:
        self._plug(names, "nomaster")

    def part(self, *names: str) -> None:
        """Move some hosts to a separate bridge: they reach each other, and no others."""
        self._plug(names, "master island")

    def join(self, *names: str) -> None:
        """Move them back to the common bridge."""
        self._plug(names, "master bridge")

    def _plug(self, names: Iterable[str], where: str) -> None:
        """Move all at once, as far as possible."""
        lines = "".join(f"link set {self._cable(name)} {where}\n" for name in names)
        run("ip", "-n", self._hub, "-batch", "-", words=lines)

    def lose(self, name: str, share: float) -> None:
        """Lose so many of the packets from and to a host."""
        chain = "{ type filter hook input priority 0; }"
        drawn = f"numgen random mod 1000 < {round(1000 * share)} drop"
        for other in self.names:
            whose = 'iifname "eth0" ' + ("" if other == name else f"ip saddr {self.address(name)} ")
            there = self.inside(other, "nft")
            run(*there, "add table ip losses")
            run(*there, f"add chain ip losses arriving {chain}")
            run(*there, f"add rule ip losses arriving {whose}{drawn}")

    def lose_nothing(self) -> None:
        for name in self.names:
            run(*self.inside(name, "nft", "delete table ip losses"))

    def narrow(self, name: str, bytes_s: float, queue_bytes: int) -> None:
        """Let a host's line carry so much each way and no more."""
        bucket = ("tbf", "rate", f"{round(8 * bytes_s)}bit", "burst", str(BURST_BYTES))
        for there, device in ((self.namespace(name), "eth0"), (self._hub, self._cable(name))):
            run("tc", "-n", there, "qdisc", "add", "dev", device, "root", *bucket, "limit", str(queue_bytes))

    def send_syns_as_before(self, name: str) -> None:
        """Retry after 1, 3, 7 ... seconds, like all kernels before 6.5, and not each second at first."""
        if os.path.exists("/proc/sys/net/ipv4/tcp_syn_linear_timeouts"):
            run(*self.inside(name, "sysctl", "-qw", "net.ipv4.tcp_syn_linear_timeouts=0"))

    # --- the hosts themselves

    def build(self) -> None:
        run("ip", "netns", "add", self._hub)
        for bridge in ("bridge", "island"):
            run("ip", "-n", self._hub, "link", "add", bridge, "type", "bridge")
            run("ip", "-n", self._hub, "link", "set", bridge, "up")
        for name in self.names:
            self._add(name)
        for name in self.names:
            for other in self.names:
                if other != name:
                    known = (self.address(other), "lladdr", self._hardware(other), "dev", "eth0")
                    run("ip", "-n", self.namespace(name), "neigh", "replace", *known, "nud", "permanent")

    def _add(self, name: str) -> None:
        there, cable = self.namespace(name), self._cable(name)
        run("ip", "netns", "add", there)
        peer = ("peer", "name", "eth0", "netns", there, "address", self._hardware(name))
        run("ip", "link", "add", cable, "netns", self._hub, "type", "veth", *peer)
        run("ip", "-n", there, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        run("ip", "-n", there, "link", "set", "lo", "up")
        run("ip", "-n", there, "link", "set", "eth0", "up")
        run("ip", "-n", self._hub, "link", "set", cable, "up")
        self.join(name)

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self.names.index(name) + 1:02x}"

    def _cable(self, name: str) -> str:
        return f"v{self.names.index(name) + 1}"

    def remove(self) -> None:
        for there in (*map(self.namespace, self.names), self._hub):
            subprocess.run(["ip", "netns", "delete", there], capture_output=True, timeout=20)


@contextmanager
def hosts(names: list[str]) -> Iterator[Hosts]:
    """Raises `Unavailable` with the reason."""
    for tool, package in PACKAGES.items():
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is missing; install {package}")
    found = Hosts(names)
    try:
        found.build()
        yield found
    finally:
        found.remove()
