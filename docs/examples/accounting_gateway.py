"""A gateway for RADIUS accounting (RFC 2866): a device is answered once its record is stored, and not before.

    RADIUS_SECRET=s3cret python accounting_gateway.py --listen 0.0.0.0:1813

Devices send over UDP and repeat themselves until they are answered. So if the record cannot be stored, the
gateway says nothing, and the device keeps the record. A repetition of what is stored is answered again.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import logging
import os
import signal
import struct
import sys
from functools import partial
from typing import Any

from mesh import Client, MeshError, Pending

TOPIC, QUEUE = "radius.accounting", "accounting"
REQUEST, RESPONSE, PROXY_STATE = 4, 5, 33
HEADER = struct.Struct("!BBH16s")
"""Code, identifier, length, authenticator."""
ANSWERED_MAX = 100_000
"""Answers that are remembered; a repetition of an older record is stored again, under the same key."""
STORE_S = 30.0


def is_request(packet: bytes, secret: bytes) -> bool:
    """Whether this is an Accounting-Request by somebody who knows the secret (RFC 2866, section 3)."""
    if len(packet) < HEADER.size:
        return False
    code, _, length, authenticator = HEADER.unpack_from(packet)
    if code != REQUEST or not HEADER.size <= length <= min(len(packet), 4095):
        return False
    signed = packet[:4] + bytes(16) + packet[HEADER.size : length] + secret
    return hmac.compare_digest(hashlib.md5(signed).digest(), authenticator)


def answer_to(packet: bytes, secret: bytes) -> bytes:
    """The Accounting-Response: Proxy-State attributes go back as they came."""
    _, identifier, length, authenticator = HEADER.unpack_from(packet)
    attributes, at = b"", HEADER.size
    while at + 2 <= length and 2 <= packet[at + 1] <= length - at:
        size = packet[at + 1]
        attributes += packet[at : at + size] if packet[at] == PROXY_STATE else b""
        at += size
    head = struct.pack("!BBH", RESPONSE, identifier, HEADER.size + len(attributes))
    return head + hashlib.md5(head + authenticator + attributes + secret).digest() + attributes


class Gateway(asyncio.DatagramProtocol):
    def __init__(self, client: Client, secret: bytes) -> None:
        self.counts = {"stored": 0, "repeated": 0, "discarded": 0, "not stored": 0}
        self._client, self._secret = client, secret
        self._under_way: set[str] = set()
        self._answered: dict[str, None] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, packet: bytes, sender: tuple[str, int]) -> None:
        if not is_request(packet, self._secret):
            self.counts["discarded"] += 1  # in silence, as the RFC has it
            return
        key = f"{sender[0]}-{packet[4:20].hex()}"  # the authenticator covers the whole record
        if key in self._answered:
            self.counts["repeated"] += 1
            self._answer(packet, sender)
        elif key not in self._under_way:
            try:
                pending = self._client.publish_soon(TOPIC, packet, level="stored", key=key, timeout=STORE_S)
            except MeshError as error:  # no broker is there, or too much is under way
                self._not_stored(sender, error)
            else:
                self._under_way.add(key)
                pending.on_done(partial(self._done, key, packet, sender))

    def _done(self, key: str, packet: bytes, sender: tuple[str, int], pending: Pending) -> None:
        self._under_way.discard(key)
        if (error := pending.exception()) is not None:
            self._not_stored(sender, error)
            return
        self.counts["stored"] += 1
        self._answered[key] = None
        if len(self._answered) > ANSWERED_MAX:
            del self._answered[next(iter(self._answered))]
        self._answer(packet, sender)

    def _not_stored(self, sender: tuple[str, int], error: BaseException) -> None:
        """The device still has it, and sends it again."""
        self.counts["not stored"] += 1
        logging.warning("%s is not answered: %s", sender[0], error)

    def _answer(self, packet: bytes, sender: tuple[str, int]) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(answer_to(packet, self._secret), sender)


async def main(url: str | None, host: str, port: int, secret: bytes) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Client(url) as client:
        async with client.subscribe("radius.#", durable=QUEUE):
            pass  # it is there now, so that there is a home for the records
        transport, _ = await loop.create_datagram_endpoint(lambda: Gateway(client, secret), (host, port))
        logging.info("ready at %s:%d", *transport.get_extra_info("sockname")[:2])
        await ended.wait()
        transport.close()  # the devices still have what is under way


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Answer RADIUS accounting once it is stored.")
    parser.add_argument("--listen", default="127.0.0.1:1813", metavar="HOST:PORT")
    parser.add_argument("--url", help="the broker; by default the local one")
    given = parser.parse_args()
    address, _, number = given.listen.rpartition(":")
    try:
        asyncio.run(main(given.url, address, int(number), os.environ["RADIUS_SECRET"].encode()))
    except KeyError:
        sys.exit("accounting_gateway: put the secret that the devices share into RADIUS_SECRET")
    except (MeshError, OSError) as error:
        sys.exit(f"accounting_gateway: {error}")
