"""Sockets alone, between processes over TCP loopback, beside pynng and pyzmq."""

from mesh.bench.sockets.works import TARGETS, cases

__all__ = ["TARGETS", "cases"]
