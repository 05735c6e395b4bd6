"""TCP as programs see it: order, back-pressure, ends, cuts, crashes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from simulations.kernel.network import WINDOW_BYTES, Host, LinkQuality, Network
from simulations.kernel.scheduler import Scheduler
from simulations.world import Process, World
from tests.simulations.echoing import PORT, BufferedRecorder, Echo, Recorder, dial, serve, wait_exposed


def pair(world: World, server: Callable[[], Any] = Echo, **options: Any) -> tuple[Any, Recorder]:
    """A server and a client that are connected: the server's protocol and the client's."""
    world.add_node("server", serve(server)).start()
    world.run_for(0.1)
    world.add_node("client", dial("server")).start()
    wait_exposed(world, "client")
    world.run_for(0.1)
    return world.node("server").exposed[0], world.node("client").exposed


def test_bytes_arrive_in_order_in_both_directions_and_ends_are_reported_once() -> None:
    with World(1) as world:
        server, client = pair(world)
        for number in range(100):
            client.transport.write(b"%d," % number)
        world.run_for(1)
        assert client.data == b"".join(b"%d," % number for number in range(100)) == server.data
        assert client.transport.get_extra_info("peername") == ("10.0.0.1", PORT)
        assert client.transport.get_extra_info("socket") is None
        assert server.transport.get_extra_info("peername") == client.transport.get_extra_info("sockname")
        client.transport.close()
        world.run_for(1)
        assert server.events == ["made", "eof", "lost"]
        assert client.events == ["made", "lost"]
        assert server.error is None and client.error is None
        assert not world.failures


def test_chunked_reads_end_anywhere_and_lose_nothing() -> None:
    with World(1, chunked=True) as world:
        server, client = pair(world)
        client.transport.write(bytes(range(256)) * 100)
        world.run_for(1)
        assert client.data == bytes(range(256)) * 100
        assert len(server.chunks) > 5


def test_buffered_protocols_get_bytes_up_to_the_size_of_their_buffer() -> None:
    with World(1) as world:
        server, client = pair(world, BufferedRecorder)
        client.transport.write(b"a" * 95)
        client.transport.write_eof()
        world.run_for(1)
        assert server.data == b"a" * 95
        assert server.lost


def test_half_closed_connections_still_carry_the_other_direction() -> None:
    with World(1) as world:
        server, client = pair(world, lambda: Recorder(keep_open=True))
        client.transport.write(b"question")
        client.transport.write_eof()
        world.run_for(1)
        assert server.events == ["made", "eof"]
        server.transport.write(b"answer")
        server.transport.close()
        world.run_for(1)
        assert client.data == b"answer"
        assert client.events == ["made", "eof", "lost"]
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")


def test_a_reader_that_pauses_stops_the_writer_and_close_still_delivers_everything() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        server.transport.pause_reading()
        total = 0
        while "pause" not in client.events:
            client.transport.write(b"x" * 10_000)
            total += 10_000
        assert total > WINDOW_BYTES
        assert client.transport.get_write_buffer_size() == total - WINDOW_BYTES
        world.run_for(5)
        assert server.data == b""
        client.transport.close()
        server.transport.resume_reading()
        world.run_for(5)
        assert len(server.data) == total
        assert client.events == ["made", "pause", "resume", "lost"]
        assert server.events[-1] == "lost"


def test_abort_discards_the_buffer_but_not_the_bytes_in_the_kernel() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        server.transport.pause_reading()
        client.transport.write(b"x" * (WINDOW_BYTES + 1000))
        client.transport.abort()
        world.run_for(1)
        server.transport.resume_reading()
        world.run_for(1)
        assert len(server.data) == WINDOW_BYTES
        assert server.events == ["made", "eof", "lost"]


def test_closing_with_unread_bytes_resets_the_peer() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        server.transport.pause_reading()
        client.transport.write(b"unread")
        world.run_for(1)
        server.transport.close()
        world.run_for(1)
        assert isinstance(client.error, ConnectionResetError)


def test_a_protocol_that_raises_loses_its_connection_and_is_reported() -> None:
    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError("broken protocol")

    with World(1, keep_failures=True) as world:
        server, client = pair(world, Broken)
        client.transport.write(b"x")
        world.run_for(1)
        assert isinstance(server.error, ZeroDivisionError)
        assert "broken protocol" in str(world.failures[0])


# --- connecting and listening


def test_dialling_without_a_listener_is_refused() -> None:
    with World(1) as world:
        world.network.add_host("server")
        world.add_node("client", dial("server")).start()
        wait_exposed(world, "client")
        assert isinstance(world.node("client").exposed, ConnectionRefusedError)
        assert world.now_s < 0.1


def test_dialling_into_a_black_hole_times_out_as_late_as_linux_does() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo)).start()
        world.run_for(0.1)
        client = world.add_node("client", dial("server"))
        world.inject("partition", ["server"])
        client.start()
        wait_exposed(world, "client")
        assert isinstance(world.node("client").exposed, TimeoutError)
        assert world.now_s == pytest.approx(127.1, abs=0.1)


def test_a_lost_syn_is_sent_again() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo)).start()
        world.run_for(0.1)
        world.add_node("client", dial("server"))
        world.inject("cut_one_way", ["server"], ["client"])
        world.node("client").start()
        world.run_for(1.5)
        assert world.node("client").exposed is None
        world.inject("heal")
        wait_exposed(world, "client")
        assert isinstance(world.node("client").exposed, Recorder)
        assert world.now_s == pytest.approx(3.1, abs=0.05)
        assert len(world.node("server").exposed) == 1  # the half made by the first SYN was never accepted


def test_unknown_names_and_bad_ports_are_name_errors() -> None:
    with World(1) as world:
        world.add_node("client", dial("nowhere")).start()
        wait_exposed(world, "client")
        assert "no host is called 'nowhere'" in str(world.node("client").exposed)


def test_ports_are_taken_freed_and_given_per_host() -> None:
    seen: dict[str, Any] = {}

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        first = await loop.create_server(Echo, "127.0.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        with pytest.raises(OSError) as taken:
            await loop.create_server(Echo, None, port)
        assert taken.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError) as foreign:
            await loop.create_server(Echo, "10.0.0.200", 1)
        assert foreign.value.errno == errno.EADDRNOTAVAIL
        first.close()
        await first.wait_closed()
        again = await loop.create_server(Echo, process.address, port)
        assert again.is_serving()
        again.close()
        seen["done"] = True

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert not world.failures
        assert seen


def test_loopback_reaches_only_the_host_itself() -> None:
    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "127.0.0.1", PORT)
        transport, protocol = await loop.create_connection(Recorder, "localhost", PORT)
        transport.write(b"hello")
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, process.address, PORT)
        await asyncio.sleep(0.1)
        assert protocol.data == b"hello"
        transport.close()
        server.close()
        await server.wait_closed()

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert not world.failures


def test_unix_sockets_belong_to_a_host_and_stay_behind_when_their_server_is_killed() -> None:
    async def server(process: Process) -> None:
        await process.loop.create_unix_server(Echo, "/run/mesh.sock")
        process.exposed = True
        await process.stopping.wait()

    async def client(process: Process) -> None:
        try:
            transport, protocol = await process.loop.create_unix_connection(Recorder, "/run/mesh.sock")
            transport.write(b"hello")
            await asyncio.sleep(0.1)
            process.exposed = bytes(protocol.data)
            transport.close()
        except OSError as error:
            process.exposed = error
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", server, host="one").start()
        wait_exposed(world, "server")
        world.add_node("near", client, host="one").start()
        world.add_node("far", client, host="two").start()
        wait_exposed(world, "near", "far")
        assert world.node("near").exposed == b"hello"
        assert isinstance(world.node("far").exposed, FileNotFoundError)
        world.inject("crash", ["server", "near"])
        world.inject("start", ["near"])
        wait_exposed(world, "near")
        assert isinstance(world.node("near").exposed, ConnectionRefusedError)
        world.inject("start", ["server"])
        wait_exposed(world, "server")


def test_a_paused_server_accepts_in_its_kernel_up_to_the_backlog() -> None:
    async def server(process: Process) -> None:
        made: list[Recorder] = []
        process.exposed = made

        def make() -> Recorder:
            made.append(Recorder())
            return made[-1]

        await process.loop.create_server(make, None, PORT, backlog=2)
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", server).start()
        world.run_for(0.1)
        world.inject("pause", ["server"])
        for name in ("one", "two", "three"):
            world.add_node(name, dial("server")).start()
            world.run_for(0.5)
        assert [world.node(name).exposed is not None for name in ("one", "two", "three")] == [
            True,
            True,
            False,
        ]
        assert world.node("server").process.exposed == []
        world.inject("resume", ["server"])
        world.run_for(10)
        assert world.node("three").exposed is not None
        assert len(world.node("server").exposed) == 3


def test_connecting_can_be_cancelled_and_leaves_nothing_behind() -> None:
    async def main(process: Process) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.00055):  # while the packets are in flight
                await process.loop.create_connection(Recorder, "server", PORT)
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", serve(Recorder)).start()
        world.run_for(0.1)
        world.add_node("client", main).start()
        world.run_for(5)
        assert not world.failures
        assert all(recorder.events[-1] == "lost" for recorder in world.node("server").exposed)


def test_a_server_that_closes_waits_for_its_connections() -> None:
    async def main(process: Process) -> None:
        server = await process.loop.create_server(Echo, None, PORT)
        transport, _ = await process.loop.create_connection(Recorder, "127.0.0.1", PORT)
        await asyncio.sleep(0.1)
        server.close()
        waiting = asyncio.create_task(server.wait_closed())
        await asyncio.sleep(1)
        assert not waiting.done()
        transport.close()
        await asyncio.wait_for(waiting, 1)

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(5)
        assert not world.failures


# --- faults


def test_bytes_held_by_a_partition_arrive_with_a_later_retransmission() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("partition", ["server"], ["client"])
        client.transport.write(b"held")
        world.run_for(30)
        assert server.data == b"" and server.events == ["made"] and client.events == ["made"]
        world.inject("heal")
        healed = world.now_s
        world.run_until(lambda: client.data == b"held", timeout_s=60)
        # The first retransmission after the heal: at 0.2 * 2^8 seconds after the first loss.
        assert world.now_s - healed == pytest.approx(51.2 - 30.0, abs=0.1)
        client.transport.write(b"and more")
        world.run_for(0.1)
        assert client.data == b"heldand more"


def test_earlier_and_later_bytes_keep_their_order_over_a_cut() -> None:
    with World(5) as world:
        server, client = pair(world)
        expected = b""
        for number in range(200):
            if number % 20 == 5:
                world.inject("partition", ["server"], ["client"])
            if number % 20 == 15:
                world.inject("heal")
            client.transport.write(b"%d," % number)
            expected += b"%d," % number
            world.run_for(0.0001 * (number % 7))
        world.inject("heal")
        world.run_for(5)
        assert server.data == client.data == expected


def test_a_partition_that_lasts_ends_in_a_time_out_of_the_side_that_wrote() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("partition", ["server"])
        client.transport.write(b"lost")
        world.run_for(1200)
        assert isinstance(client.error, TimeoutError)
        assert server.events == ["made"]  # half open: it has nothing to send, so it notices nothing
        world.inject("heal")
        server.transport.write(b"hello?")
        world.run_for(1)
        assert isinstance(server.error, ConnectionResetError)


def test_a_cut_of_the_way_back_lets_data_through_and_no_answers() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("cut_one_way", ["server"], ["client"])
        client.transport.write(b"heard")
        world.run_for(10)
        assert server.data == b"heard"
        assert client.data == b""
        world.inject("heal")
        world.run_for(20)
        assert client.data == b"heard"


def test_overlapping_cuts_add_up() -> None:
    network = Network(Scheduler(), 1)
    one, other = network.add_host("one"), network.add_host("other")
    network.cut(["one"], ["other"])
    network.cut(["one"], ["other"])
    network.uncut(["one"], ["other"])
    assert not network.link(one, other).up and network.link(other, one).up
    network.uncut(["one"], ["other"])
    assert network.link(one, other).up


def test_a_killed_process_leaves_its_sockets_to_its_kernel_which_closes_them() -> None:
    with World(1) as world:
        server, client = pair(world)
        server.transport.write(b"last words")
        world.inject("crash", ["server"])
        world.run_for(0.1)
        assert client.data == b"last words" and client.events == ["made", "eof", "lost"]
        assert client.error is None
        assert server.events == ["made"]
        world.inject("start", ["server"])
        wait_exposed(world, "server")
        assert not world.failures


def test_a_process_killed_with_unread_bytes_resets_its_peers_after_its_written_bytes() -> None:
    for seed in range(10):
        with World(seed) as world:
            server, client = pair(world)
            server.transport.pause_reading()
            client.transport.write(b"never read")
            world.run_for(0.1)
            server.transport.write(b"last words")
            world.inject("crash", ["server"])
            world.run_for(0.1)
            assert client.data == b"last words"
            assert isinstance(client.error, ConnectionResetError)


def test_buffered_bytes_go_before_the_requested_end() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        server.transport.pause_reading()
        client.transport.write(b"x" * 3 * WINDOW_BYTES)
        client.transport.write_eof()
        client.transport.close()
        world.run_for(1)
        server.transport.resume_reading()
        world.run_for(5)
        assert len(server.data) == 3 * WINDOW_BYTES and server.events == ["made", "eof", "lost"]


def test_sending_to_a_host_that_has_moved_gets_no_answer() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.network.readdress("server")
        client.transport.write(b"lost")
        world.run_for(60)
        assert client.events == ["made"] and client.error is None
        world.run_for(1200)
        assert isinstance(client.error, TimeoutError)


def test_dialling_an_abandoned_address_gets_no_answer() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo)).start()
        world.run_for(1)
        address = world.network.hosts["server"].address
        client = world.add_node("client", dial(address))
        world.inject("partition", ["server"])
        client.start()
        world.run_for(0.5)
        world.network.readdress("server")
        world.inject("heal")
        world.run_for(60)
        assert client.exposed is None
        world.run_for(100)
        assert isinstance(client.exposed, TimeoutError)


def test_a_server_closes_the_connection_when_its_protocol_cannot_be_made() -> None:
    def broken() -> Echo:
        raise ValueError("no protocol today")

    with World(1, keep_failures=True) as world:
        world.add_node("server", serve(broken)).start()
        world.run_for(0.1)
        world.add_node("client", dial("server")).start()
        world.run_for(1)
        assert world.node("client").exposed.events == ["made", "eof", "lost"]
        assert "no protocol today" in str(world.failures[0])


def test_a_process_killed_behind_a_cut_is_half_open_until_its_kernel_is_heard() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("partition", ["server"])
        world.inject("crash", ["server"])
        world.run_for(50)
        assert client.events == ["made"]
        world.inject("heal")
        world.run_for(2)
        assert client.events == ["made", "eof", "lost"]


def test_a_host_without_power_is_silent_and_answers_reset_when_it_is_back() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("power_off", ["server"])
        client.transport.write(b"anybody there?")
        world.run_for(5)
        assert client.events == ["made"]
        world.inject("start", ["server"])
        world.run_for(10)
        assert isinstance(client.error, ConnectionResetError)


def test_a_paused_process_still_receives_into_its_kernel_until_the_window_is_full() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("pause", ["server"])
        client.transport.write(b"x" * 1_000_000)
        world.run_for(2000)  # no time-out: its kernel acknowledges what it takes
        assert client.events == ["made", "pause"]
        world.inject("resume", ["server"])
        world.run_for(5)
        assert len(server.data) == 1_000_000
        assert client.events == ["made", "pause", "resume"]


def test_slow_links_add_delay_and_narrow_ones_limit_bandwidth() -> None:
    def seconds(prepare: Callable[[World], None], size: int = 1000) -> float:
        with World(1) as world:
            _, client = pair(world)
            prepare(world)
            client.transport.write(b"x" * size)
            return world.run_until(lambda: len(client.data) == size, timeout_s=200, poll_s=0.001)

    usual = seconds(lambda world: None)
    assert usual < 0.003
    slow = seconds(lambda world: world.inject("slow_link", ["server"], ["client"], 0.1))
    assert slow == pytest.approx(0.2, abs=0.01)
    narrow = LinkQuality(bandwidth_bytes_s=10_000)
    assert seconds(
        lambda world: world.network.set_quality("client", "server", narrow), 50_000
    ) == pytest.approx(5, abs=0.1)


def test_addresses_are_one_a_host_and_names_resolve() -> None:
    network = Network(Scheduler(), 1)
    hosts: list[Host] = [network.add_host(f"host-{number}") for number in range(300)]
    assert hosts[0].address == "10.0.0.1" and hosts[299].address == "10.0.1.44"
    assert len({host.address for host in hosts}) == 300
    assert network.resolve("host-7") == "10.0.0.8"
    assert network.resolve("192.0.2.1") == "192.0.2.1"
    assert network.resolve("192.0.2") is None
    with pytest.raises(ValueError, match="already"):
        network.add_host("host-1")


def test_asyncio_streams_work_on_simulated_transports() -> None:
    async def server(process: Process) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(handle, None, PORT):
            await process.stopping.wait()

    async def client(process: Process) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        for number in range(3):
            writer.write(b"line %d\n" % number)
            assert await reader.readline() == b"LINE %d\n" % number
        writer.close()
        await writer.wait_closed()
        process.exposed = "done"
        await process.stopping.wait()

    with World(1, chunked=True) as world:
        world.add_node("server", server).start()
        world.run_for(0.1)
        world.add_node("client", client).start()
        wait_exposed(world, "client")
        assert not world.failures
