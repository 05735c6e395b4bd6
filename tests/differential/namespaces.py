"""Hosts that are network namespaces: each has one interface, and all hang at one bridge.

A cut takes a host's cable out of the bridge: what it sends is lost and it hears nothing, while its interface
stays up and all hosts know each other's hardware addresses, so that nothing is refused at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Unavailable(Exception):
    """There can be no namespaces here."""


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=10)
    if done.returncode != 0:
        raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """``names`` in order have the addresses 10.77.0.1, 10.77.0.2 ..."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._prefix = f"mangrove-{os.getpid()}"
        self._hub = f"{self._prefix}-hub"

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self.names.index(name) + 1:02x}"

    def _cable(self, name: str) -> str:
        return f"v{self.names.index(name) + 1}"

    def build(self) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._hub, "link", "set", "bridge", "up")
        for name in self.names:
            self._add(name)
        for name in self.names:
            for other in self.names:
                if other != name:
                    known = (self.address(other), "lladdr", self._hardware(other), "dev", "eth0")
                    ip("-n", self.namespace(name), "neigh", "replace", *known, "nud", "permanent")

    def _add(self, name: str) -> None:
        there, cable = self.namespace(name), self._cable(name)
        ip("netns", "add", there)
        peer = ("peer", "name", "eth0", "netns", there, "address", self._hardware(name))
        ip("link", "add", cable, "netns", self._hub, "type", "veth", *peer)
        ip("-n", there, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        ip("-n", there, "link", "set", "lo", "up")
        ip("-n", there, "link", "set", "eth0", "up")
        ip("-n", self._hub, "link", "set", cable, "up")
        self.join(name)

    def cut(self, name: str) -> None:
        ip("-n", self._hub, "link", "set", self._cable(name), "nomaster")

    def join(self, name: str) -> None:
        ip("-n", self._hub, "link", "set", self._cable(name), "master", "bridge")

    def remove(self) -> None:
        for there in (*map(self.namespace, self.names), self._hub):
            subprocess.run(["ip", "netns", "delete", there], capture_output=True, timeout=10)


@contextmanager
def hosts(names: list[str]) -> Iterator[Hosts]:
    """Raises `Unavailable` with the reason."""
    if shutil.which("ip") is None:
        raise Unavailable("iproute2 is not installed")
    found = Hosts(names)
    try:
        found.build()
        yield found
    finally:
        found.remove()
