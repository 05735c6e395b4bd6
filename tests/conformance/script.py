"""A peer that sends exactly the bytes that the test gives it, over every transport that has bytes.

On plain streams and inside TLS these are the 8-byte header and frames with their lengths; on WebSocket, the
HTTP upgrade and masked binary frames. It checks nothing and waits for nothing by itself.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import struct
from urllib.parse import urlsplit

from protocols import ProtocolNumber
from protocols.wire.handshake import PEER_OF

TIMEOUT_S = 10.0
WS_NAMES = {number: number.name.lower().removesuffix("0") for number in ProtocolNumber}
BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10


def header(number: int) -> bytes:
    return struct.pack(">4sHH", b"\x00SP\x00", number, 0)


def masked(payload: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    repeated = mask * (len(payload) // 4 + 1)
    size = len(payload)
    return (int.from_bytes(payload) ^ int.from_bytes(repeated[:size])).to_bytes(size)


def ws_frame(
    payload: bytes, opcode: int = BINARY, *, fin: bool = True, rsv: int = 0, mask: bool = True
) -> bytes:
    """A WebSocket frame as a client sends it (or, unmasked, should not)."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    size, bit = len(payload), 0x80 if mask else 0
    if size < 126:
        head = struct.pack(">BB", first, bit | size)
    elif size < 65536:
        head = struct.pack(">BBH", first, bit | 126, size)
    else:
        head = struct.pack(">BBQ", first, bit | 127, size)
    return head + (b"\x01\x02\x03\x04" + masked(payload) if mask else payload)


def ws_request(
    url: str, token: str, *, version: str = "13", path: str = "", host: str = "", extra: str = ""
) -> bytes:
    """The upgrade request of a client that looks for ``token``."""
    parts = urlsplit(url)
    protocol = f"Sec-WebSocket-Protocol: {token}\r\n" if token else ""
    return (
        f"GET {path or parts.path or '/'} HTTP/1.1\r\nHost: {host or parts.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
        f"Sec-WebSocket-Version: {version}\r\n{protocol}{extra}\r\n"
    ).encode()


def ws_token(own: int) -> str:
    """The token that a client with this protocol number asks for: its server's name."""
    return f"{WS_NAMES[PEER_OF[own]]}.sp.nanomsg.org"


class Script:
    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.url = url
        self.scheme = url.partition("://")[0]
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, url: str, context: ssl.SSLContext | None = None) -> Script:
        parts = urlsplit(url)
        if parts.scheme == "ipc":
            streams = await asyncio.open_unix_connection(url.removeprefix("ipc://"))
        elif parts.scheme == "abstract":
            streams = await asyncio.open_unix_connection("\0" + url.removeprefix("abstract://"))
        else:
            streams = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        return cls(url, *streams)

    @property
    def web(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def lead(self) -> bytes:
        return b"\x01" if self.scheme in ("ipc", "abstract") else b""

    # --- saying

    async def greet(self, number: int) -> int:
        """Shake hands as ``number``; return the other's number."""
        if self.web:
            await self.write(ws_request(self.url, ws_token(number)))
            head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
            assert head.startswith(b"HTTP/1.1 101 "), head
            assert f"{ws_token(number)}\r\n".encode() in head, head
            return int(PEER_OF[number])
        await self.write(header(number))
        return await self.read_header()

    async def read_header(self) -> int:
        answer = await asyncio.wait_for(self.reader.readexactly(8), TIMEOUT_S)
        number = int.from_bytes(answer[4:6])
        assert answer == header(number), answer
        return number

    async def write(self, data: bytes) -> None:
        """Write the bytes unchanged. The other end may have closed the connection already."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def send(self, *payloads: bytes) -> None:
        """Whole SP payloads."""
        await self.write(b"".join(map(self.framed, payloads)))

    def framed(self, payload: bytes) -> bytes:
        if self.web:
            return ws_frame(payload)
        return self.lead + struct.pack(">Q", len(payload)) + payload

    # --- hearing

    async def recv(self) -> bytes:
        """The next SP payload."""
        async with asyncio.timeout(TIMEOUT_S):
            if self.web:
                return await self._recv_web()
            lead = await self.reader.readexactly(len(self.lead))
            assert lead == self.lead
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
            return await self.reader.readexactly(size)

    async def _recv_web(self) -> bytes:
        parts = []
        while True:
            opcode, fin, payload = await self.read_ws()
            assert opcode in (BINARY, 0), opcode
            parts.append(payload)
            if fin:
                return b"".join(parts)

    async def read_ws(self) -> tuple[int, bool, bytes]:
        """One WebSocket frame: opcode, FIN, payload."""
        first, second = await self.reader.readexactly(2)
        assert not second & 0x80, "a server does not mask"
        size = second
        if size >= 126:
            wide = 2 if size == 126 else 8
            size = int.from_bytes(await self.reader.readexactly(wide))
        return first & 0x0F, bool(first & 0x80), await self.reader.readexactly(size)

    async def read_all(self) -> bytes:
        """Everything until the other end closes or resets."""
        parts = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while part := await self.reader.read(65536):
                    parts.append(part)
        except (ConnectionError, ssl.SSLError):
            pass
        return b"".join(parts)

    async def aclose(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass
