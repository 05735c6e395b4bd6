"""Forwards syslog (RFC 5424 over UDP and TCP) to the mesh, from the disk of this host while the mesh is away.

    python syslog_forwarder.py --listen 127.0.0.1:5514 --outbox /var/spool/syslog.db
    logger --server 127.0.0.1 --port 5514 --rfc5424 --tcp --octet-count "the cellar is wet"

Messages are on this disk at once, and at their homes when these can be reached. They go as they came, on
topics such as `syslog.auth.warning`. While the outbox is full, TCP senders are held back. Datagrams are
dropped then, and counted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from mesh import Client, MeshError

FACILITIES = (
    "kern user mail daemon auth syslog lpr news uucp cron authpriv ftp ntp audit alert clock"
    " local0 local1 local2 local3 local4 local5 local6 local7"
).split()
SEVERITIES = "emerg alert crit err warning notice info debug".split()
PRIORITY = re.compile(rb"<(\d{1,3})>1 ")
GATHERED_MAX = 10_000
"""Messages in memory, on their way to the disk."""
SIZE_MAX = 64 * 1024
BATCH_MAX = 500
AGAIN_S, END_S = 1.0, 10.0
log = logging.getLogger("syslog_forwarder")


def topic_of(message: bytes) -> str:
    """By facility and severity; what is not RFC 5424 is forwarded all the same."""
    found = PRIORITY.match(message)
    facility, severity = divmod(int(found[1]) if found else 999, 8)
    return f"syslog.{FACILITIES[facility]}.{SEVERITIES[severity]}" if facility < 24 else "syslog.other"


async def messages_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Those of a TCP connection (RFC 6587): each has its length in front, or a line feed behind it."""
    while first := await reader.read(1):
        if first.isdigit():
            size = int(first + await reader.readuntil(b" "))
            if size > SIZE_MAX:
                raise ValueError(f"a message of {size} bytes; {SIZE_MAX} are allowed")
            yield await reader.readexactly(size)
        elif first not in b"\r\n":
            yield (first + await reader.readline()).rstrip(b"\r\n")


class Forwarder(asyncio.DatagramProtocol):
    def __init__(self, client: Client) -> None:
        self.dropped = 0
        """Datagrams for which there was no room."""
        self.gathered: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(GATHERED_MAX)
        self._client = client

    def datagram_received(self, message: bytes, sender: tuple[str, int]) -> None:
        try:
            self.gathered.put_nowait((topic_of(message), message))
        except asyncio.QueueFull:
            self.dropped += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One TCP connection, which is not read while there is no room."""
        try:
            async for message in messages_of(reader):
                await self.gathered.put((topic_of(message), message))
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            log.warning("a connection of %s ends: %s", writer.get_extra_info("peername"), error)
        finally:
            writer.close()

    async def forward(self) -> None:
        """Until cancelled; what gathered while the disk was busy goes to it together."""
        told = 0
        while True:
            batch = [await self.gathered.get()]
            while len(batch) < BATCH_MAX and not self.gathered.empty():
                batch.append(self.gathered.get_nowait())
            while True:
                try:
                    await self._client.publish_many(batch, level="outbox")
                except MeshError as error:  # full, perhaps. If it is not known: rather twice than never
                    log.warning("messages wait: %s", error)
                    await asyncio.sleep(AGAIN_S)
                else:
                    break
            for _ in batch:
                self.gathered.task_done()
            if self.dropped > told:
                log.warning("%d datagrams were dropped so far", told := self.dropped)


async def main(url: str | None, outbox: str, host: str, port: int) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Client(url, outbox=outbox) as client:  # needs no broker
        forwarder = Forwarder(client)
        forwarding = asyncio.create_task(forwarder.forward())
        udp, _ = await loop.create_datagram_endpoint(lambda: forwarder, (host, port))
        tcp = await asyncio.start_server(forwarder.serve, host, port, limit=SIZE_MAX)
        log.info("ready at %s:%d", host, port)
        await ended.wait()
        udp.close()
        tcp.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(forwarder.gathered.join(), END_S)
        forwarding.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Forward syslog to the mesh.")
    parser.add_argument("--listen", default="127.0.0.1:5514", metavar="HOST:PORT")
    parser.add_argument("--outbox", default="syslog.db", help="where messages wait for the mesh")
    parser.add_argument("--url", help="the broker; by default the local one")
    given = parser.parse_args()
    address, _, port = given.listen.rpartition(":")
    try:
        asyncio.run(main(given.url, given.outbox, address, int(port)))
    except (MeshError, OSError) as error:
        sys.exit(f"syslog_forwarder: {error}")
