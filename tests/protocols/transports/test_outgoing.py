"""Output goes to the transport a piece at a time, whole and in order, however large a message is."""

from __future__ import annotations

import asyncio
import socket

from hypothesis import given
from hypothesis import strategies as st

from protocols import Pair0
from protocols.transports.outgoing import PIECE, Outgoing
from protocols.transports.stream import StreamConnection
from protocols.wire.handshake import ProtocolNumber, encode_header

HELD_MAX = PIECE + 65536
"""A piece is added once the transport has little left, at most its high-water mark."""

sizes = st.lists(st.sampled_from([1, 2, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7]), max_size=5)


def drained(outgoing: Outgoing) -> list[bytes]:
    pieces = []
    while (piece := outgoing.next_piece()) is not None:
        pieces.append(bytes(piece))
    return pieces


@given(sizes)
def test_pieces_are_the_buffers_in_order_and_of_bounded_size(lengths: list[int]) -> None:
    buffers = [bytes([number]) * length for number, length in enumerate(lengths)]
    pieces = drained(Outgoing(b"", iter(buffers)))
    assert b"".join(pieces) == b"".join(buffers)
    assert all(len(piece) <= PIECE for piece in pieces)


def test_a_buffer_is_requested_only_after_the_previous_one_was_written() -> None:
    asked = []

    def made_on_demand(count: int = 3) -> object:
        for number in range(count):
            asked.append(number)
            yield bytes([number]) * (PIECE + 1)

    outgoing = Outgoing(b"first", iter(made_on_demand()))  # type: ignore[call-overload]
    assert outgoing.next_piece() == b"first" and asked == []
    outgoing.next_piece()
    assert outgoing.inside_buffer and asked == [0]
    outgoing.next_piece()
    assert not outgoing.inside_buffer and asked == [0]


def test_owed_replies_wait_for_the_end_of_the_present_buffer() -> None:
    first, second = b"1" * (PIECE + 1), b"2"
    outgoing = Outgoing(first, iter([second]))
    outgoing.next_piece()
    outgoing.owe(b"pong")
    assert drained(outgoing) == [b"1", b"pong", b"2"]


async def test_a_transport_is_never_given_a_large_message_whole() -> None:
    """asyncio's copies what the kernel does not take: 64 MiB were in memory three times."""
    body = bytes(range(256)) * (32 << 12)  # 32 MiB
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with Pair0() as pair:
            pair.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            loop = asyncio.get_running_loop()
            server.setblocking(False)
            peer, _ = await loop.sock_accept(server)
            with peer:
                await loop.sock_sendall(peer, encode_header(ProtocolNumber.PAIR0))
                await pair.wait_for_peers(1)
                await pair.send(body)
                await pair.send(b"behind it")
                await asyncio.sleep(0)
                connection = pair.pipes[0]._pipe.connection
                assert isinstance(connection, StreamConnection)
                transport = connection._transport
                assert transport is not None
                assert 0 < transport.get_write_buffer_size() <= HELD_MAX
                expected = encode_header(ProtocolNumber.PAIR0)
                for frame in (body, b"behind it"):
                    expected += len(frame).to_bytes(8, "big") + frame
                got = bytearray()
                while len(got) < len(expected):
                    got += await loop.sock_recv(peer, 1 << 20)
                    assert transport.get_write_buffer_size() <= HELD_MAX
                assert got == expected


async def test_a_close_waits_for_all_of_a_large_message() -> None:
    size = 32 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        loop = asyncio.get_running_loop()
        pair = Pair0()
        pair.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        peer, _ = await loop.sock_accept(server)
        with peer:
            await loop.sock_sendall(peer, encode_header(ProtocolNumber.PAIR0))
            await pair.wait_for_peers(1)
            await pair.send(bytes(size))
            closing = asyncio.create_task(pair.aclose())
            got = 0
            while chunk := await loop.sock_recv(peer, 1 << 20):
                got += len(chunk)
            assert got == 8 + 8 + size
        await closing
