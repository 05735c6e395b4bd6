"""A free port is free, and no stranger's by the time it is listened at."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.ports import free_port


def test_a_port_with_a_listener_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    with socket.create_server(("127.0.0.1", taken)):
        monkeypatch.setattr(ports, "PORTS", [taken, taken, taken, free])
        assert {free_port() for _ in range(20)} == {free}


def test_the_kernel_gives_these_ports_to_no_other_program() -> None:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.exists():
        pytest.skip("only Linux says which ports it gives")
    first, _ = map(int, setting.read_text().split())
    if first < 32_768:
        pytest.skip(f"this host gives ports from {first} on")
    assert ports.PORTS.stop <= first
