"""Connections that are reset, cut short, dead, refused, unheard, split, lumped; and slow readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulations.kernel.network import WINDOW_BYTES
from simulations.world import World
from tests.simulations.echoing import Echo, Recorder, dial, serve, wait_exposed


def pair(world: World, factory: Callable[[], Any] = Echo) -> tuple[Any, Recorder]:
    world.add_node("server", serve(factory)).start()
    world.run_for(0.1)
    return connect(world, "client")


def connect(world: World, name: str, host: str | None = None) -> tuple[Any, Recorder]:
    world.add_node(name, dial("server"), host=host).start()
    wait_exposed(world, name)
    world.run_for(0.1)
    return world.node("server").exposed[-1], world.node(name).exposed


def dialled(world: World, name: str, *, within_s: float = 300.0) -> Any:
    """The outcome for a new client of the server, and how long it took."""
    start_s = world.now_s
    world.add_node(name, dial("server"), host="client").start()
    world.run_until(lambda: world.node(name).exposed is not None, timeout_s=within_s)
    return world.node(name).exposed, world.now_s - start_s


# --- open connections


def test_a_reset_ends_both_ends_of_open_connections_and_no_later_one() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("reset", ["client"], ["server"])
        world.run_for(0.01)
        assert isinstance(client.error, ConnectionResetError)
        assert isinstance(server.error, ConnectionResetError)
        found, _ = dialled(world, "again")
        world.run_for(1)
        assert found.events == ["made"]


def test_a_reset_of_one_end_leaves_the_other_half_open_until_it_writes() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("reset", ["client"], ["server"], ways="there")
        world.run_for(100)
        assert isinstance(server.error, ConnectionResetError)
        assert client.events == ["made"]
        client.transport.write(b"anybody there?")
        world.run_for(1)
        assert isinstance(client.error, ConnectionResetError)


def test_a_reset_affects_its_share_chosen_by_the_seed() -> None:
    def survivors(seed: int) -> list[int]:
        with World(seed) as world:
            clients = [pair(world)[1]] + [connect(world, f"c-{n}", "client")[1] for n in range(29)]
            world.inject("reset", ["client"], ["server"], share=0.5)
            world.run_for(1)
            return [number for number, client in enumerate(clients) if client.events == ["made"]]

    assert 8 <= len(survivors(1)) <= 22
    assert survivors(1) == survivors(1) != survivors(2)


def test_a_fault_of_the_first_connection_of_two_hosts_leaves_the_others_alone() -> None:
    with World(1) as world:
        _, first = pair(world)
        _, second = connect(world, "second", "client")
        _, elsewhere = connect(world, "elsewhere")
        world.inject("half_open", ["server"], which="first")
        for each in (first, second, elsewhere):
            each.transport.write(b"hello")
        world.run_for(5)
        assert [bytes(each.data) for each in (first, second, elsewhere)] == [b"", b"hello", b""]
        world.inject("reset", ["server"], ["client"], which="first")
        world.inject("heal")
        world.inject("reset", ["server"], ["client"], which="first")
        world.run_for(10)
        assert isinstance(first.error, ConnectionResetError)
        assert second.events == elsewhere.events == ["made"]


def test_a_reset_during_a_cut_is_lost() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("partition", ["server"])
        world.inject("reset", ["client"], ["server"])
        world.run_for(1)
        assert client.events == ["made"]


def test_a_reset_storm_resets_random_pairs_at_about_its_rate_until_it_ends() -> None:
    with World(1) as world:
        for name in ("one", "two", "three"):
            world.add_node(name, serve(Echo))
        world.inject("reset_storm", value=2, for_s=100)
        world.run_for(200)
        struck = [(at_s, fault.a[0], fault.b[0]) for at_s, fault in world.faults if fault.kind == "reset"]
        assert len(struck) == pytest.approx(200, rel=0.25)
        assert max(at_s for at_s, _, _ in struck) <= 100
        assert len({(one, other) for _, one, other in struck}) == 6


def test_cut_short_ends_the_stream_in_the_middle_of_a_write() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        client.transport.write(b"whole")
        world.inject("cut_short", ["client"], ["server"])
        world.run_for(0.1)
        assert server.data == b"whole" and server.events == ["made"]
        client.transport.write(b"0123456789")
        client.transport.write(b"and more")
        world.run_for(0.1)
        assert server.data == b"whole01234"
        assert sorted((half.sent_bytes, half.peer.received_bytes) for half in world.network.halves) == [
            (0, 0),
            (10, 10),
        ]
        assert server.events == ["made", "eof", "lost"] and server.error is None
        assert isinstance(client.error, ConnectionResetError)
        assert not world.failures


def test_cut_short_is_over_when_it_ends_before_anything_was_written() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("cut_short", ["client"], ["server"], for_s=1)
        world.run_for(2)
        client.transport.write(b"0123456789")
        world.run_for(1)
        assert server.data == b"0123456789"
        assert server.events == ["made"]


def test_half_open_connections_carry_nothing_while_new_ones_work_and_later_continue() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("half_open", ["client"], ["server"])
        client.transport.write(b"old")
        found, took_s = dialled(world, "new")
        found.transport.write(b"new")
        world.run_for(5)
        assert took_s < 0.1 and found.data == b"new"
        assert client.data == b"" and server.data == b""
        assert client.events == server.events == ["made"]
        world.heal()
        world.run_for(10)
        assert client.data == b"old"


def test_a_half_open_connection_times_out_at_the_end_that_wrote() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("half_open", ["client"], ["server"])
        client.transport.write(b"old")
        world.run_for(1300)
        assert isinstance(client.error, TimeoutError)
        assert server.events == ["made"]


def test_half_open_one_way_lets_the_other_through() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("half_open", ["client"], ["server"], ways="there", for_s=1)
        client.transport.write(b"there")
        server.transport.write(b"back")
        world.run_for(0.9)
        assert client.data == b"back" and server.data == b""
        world.run_for(2)
        assert server.data == b"there"


def test_a_host_that_is_lost_and_back_leaves_its_peer_half_open_until_reset() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("power_off", ["server"])
        world.run_for(5)
        world.inject("start", ["server"])
        world.run_for(100)
        assert client.events == ["made"]
        client.transport.write(b"hello?")
        world.run_for(1)
        assert isinstance(client.error, ConnectionResetError)


# --- new connections


def test_refused_connections_end_at_once_and_open_ones_live() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("refuse", [], ["server"], for_s=10)
        found, took_s = dialled(world, "one")
        assert isinstance(found, ConnectionRefusedError) and took_s < 0.05
        client.transport.write(b"still here")
        world.run_for(10)
        assert client.data == b"still here"
        found, _ = dialled(world, "other")
        assert isinstance(found, Recorder)


def test_a_refusal_has_a_direction_and_does_not_affect_the_host_itself() -> None:
    with World(1) as world:
        pair(world)
        world.inject("refuse", ["server"], ["client"])
        found, _ = dialled(world, "one")
        assert isinstance(found, Recorder)
        world.inject("refuse", [], ["server"])
        world.add_node("near", dial("server"), host="server").start()
        wait_exposed(world, "near")
        assert isinstance(world.node("near").exposed, Recorder)


def test_a_black_hole_swallows_dials_until_they_time_out_and_open_connections_live() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("black_hole", ["client"], ["server"])
        found, took_s = dialled(world, "one")
        assert isinstance(found, TimeoutError) and took_s == pytest.approx(127, abs=0.1)
        client.transport.write(b"still here")
        world.run_for(1)
        assert client.data == b"still here"


def test_a_dial_into_a_black_hole_that_ends_gets_through_at_the_next_syn() -> None:
    with World(1) as world:
        pair(world)
        world.inject("black_hole", ["client"], ["server"], for_s=2)
        found, took_s = dialled(world, "one")
        assert isinstance(found, Recorder) and took_s == pytest.approx(3, abs=0.1)


def test_silently_accepted_connections_are_made_take_a_window_and_are_reset_in_the_end() -> None:
    with World(1) as world:
        pair(world)
        world.inject("silent_accept", ["client"], ["server"], for_s=50)
        found, took_s = dialled(world, "one")
        assert isinstance(found, Recorder) and took_s < 0.1
        found.transport.write(b"x" * (WINDOW_BYTES + 1000))
        world.run_for(40)
        assert found.events == ["made"] and found.transport.get_write_buffer_size() == 1000
        assert len(world.node("server").exposed) == 1  # the program has seen the first client only
        world.run_for(15)
        assert isinstance(found.error, ConnectionResetError)
        found, _ = dialled(world, "two")
        assert len(world.node("server").exposed) == 2


# --- pieces


def test_a_byte_split_link_is_read_a_byte_at_a_time_and_loses_nothing() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("byte_split", ["client"], ["server"], for_s=1)
        client.transport.write(bytes(range(200)))
        world.run_for(2)
        assert server.data == bytes(range(200)) and server.chunks == [1] * 200
        client.transport.write(b"whole")
        world.run_for(1)
        assert server.chunks[200:] == [5]


def test_pieces_have_the_smallest_requested_size() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("byte_split", ["client"], ["server"], 7)
        world.inject("byte_split", ["client"], ["server"], 3, for_s=1, ways="there")
        client.transport.write(b"x" * 10)
        world.run_for(2)
        client.transport.write(b"x" * 10)
        world.run_for(1)
        assert server.chunks == [3, 3, 3, 1, 7, 3]


def test_a_coalescing_link_lets_many_writes_arrive_as_one() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)

        def chunks(count: int) -> list[int]:
            before = len(server.chunks)
            for _ in range(count):
                client.transport.write(b"x" * 10)
                world.run_for(0.01)
            world.run_for(1)
            return server.chunks[before:]

        assert chunks(20) == [10] * 20
        world.inject("coalesce", ["client"], ["server"], 0.1, for_s=5)
        lumps = chunks(20)
        assert len(lumps) <= 4 and sum(lumps) == 200
        world.run_for(5)
        assert chunks(20) == [10] * 20


# --- slow programs


def test_a_reader_that_reads_nothing_stops_the_writer_when_its_window_is_full() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("slow_reader", ["server"])
        client.transport.write(b"x" * 1_000_000)
        world.run_for(2000)  # no time-out: the kernel acknowledges
        assert server.data == b"" and client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() == 1_000_000 - WINDOW_BYTES
        world.heal()
        world.run_for(5)
        assert len(server.data) == 1_000_000
        assert client.events == ["made", "pause", "resume"]


def test_a_slow_reader_reads_at_its_rate_on_new_connections_too_and_writes_as_ever() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("slow_reader", ["server"], value=10_000, for_s=10)
        late_server, late_client = connect(world, "late")
        for each in (client, late_client):
            each.transport.write(b"x" * 200_000)
        server.transport.write(b"unhindered")
        world.run_for(4)
        assert client.data == b"unhindered"
        assert len(server.data) == pytest.approx(40_000, rel=0.05)
        assert len(late_server.data) == pytest.approx(40_000, rel=0.05)
        assert max(server.chunks) <= 500
        world.run_for(6.5)
        assert len(server.data) == len(late_server.data) == 200_000


def test_a_slow_reader_reads_the_end_of_the_stream_only_after_the_bytes_before_it() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("slow_reader", ["server"], value=1000)
        client.transport.write(b"x" * 2000)
        client.transport.close()
        world.run_for(1)
        assert server.events == ["made"]
        world.run_for(2)
        assert len(server.data) == 2000 and server.events == ["made", "eof", "lost"]


def test_a_process_with_blocked_io_reads_writes_and_accepts_nothing_until_unblocked() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.network.block_io("server")
        client.transport.write(b"question")
        server.transport.write(b"answer")
        world.add_node("late", dial("server")).start()
        world.run_for(5)
        assert server.data == b"" and client.data == b""
        assert isinstance(world.node("late").exposed, Recorder)  # by its kernel
        assert len(world.node("server").exposed) == 1
        world.network.unblock_io("server")
        world.run_for(1)
        assert server.data == b"question" and client.data == b"answer"
        assert len(world.node("server").exposed) == 2


def test_a_process_with_blocked_io_learns_of_a_reset_only_when_unblocked() -> None:
    with World(1) as world:
        server, _ = pair(world, Recorder)
        world.network.block_io("server")
        world.inject("reset", ["client"], ["server"])
        world.run_for(1)
        server.transport.write(b"anybody there?")
        world.run_for(1)
        assert server.events == ["made"]
        world.network.unblock_io("server")
        world.run_for(1)
        assert isinstance(server.error, ConnectionResetError)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("refuse", lambda link: len(link.dialling)),
        ("byte_split", lambda link: len(link.portions)),
        ("slow_link", lambda link: len(link._added)),
        ("clog", lambda link: len(link.clogs)),
    ],
)
def test_an_omitted_side_is_all_hosts_that_existed_when_the_fault_began(
    kind: str, found: Callable[[Any], float]
) -> None:
    """Another fault that strikes a host which came later is not reversed."""
    with World(1) as world:
        one, two = (world.network.add_host(name) for name in ("one", "two"))
        world.inject(kind, ["one"], for_s=5)
        usual, late = world.network.link(one, two), world.network.link(one, world.network.add_host("late"))
        before = found(late)
        world.inject(kind, ["one"], ["late"])
        assert found(late) > before
        struck = found(late)
        world.run_for(6)
        assert found(late) == struck and found(usual) == before


def test_the_end_of_one_cut_short_leaves_another_in_effect() -> None:
    with World(1) as world:
        server, client = pair(world)
        world.inject("cut_short", ["client"], ["server"])
        world.inject("cut_short", ["client"], for_s=1)
        world.run_for(2)
        client.transport.write(b"all of this")
        world.run_for(1)
        assert bytes(server.data) == b"all o"
