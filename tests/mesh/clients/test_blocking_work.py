"""Durable subscriptions of a `BlockingClient`, with homes that the test plays, in virtual time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesh.broker.broker import Broker
from mesh.clients.blocking_client import BlockingClient
from mesh.clients.blocking_work import BlockingWork
from mesh.clients.jobs import Job
from mesh.clients.resending import BODY_S
from mesh.errors import Detached, Disconnected, HeldElsewhere, MeshTimeout, OtherPatterns, Unknown
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import Kind, encode
from tests.mesh.clients.blocking_programs import until
from tests.mesh.clients.homes import Home, forgets_pieces
from tests.mesh.clients.simulated_homes import Homes, client, homes

__all__ = ["client", "homes"]

HERE = "tcp://h:1"


def home_of(homes: Homes, url: str = HERE) -> Home:
    found = homes.at[url].node.exchange.home  # type: ignore[attr-defined]
    assert isinstance(found, Home)
    return found


def take(count: int, work: BlockingWork) -> list[Job]:
    got = []
    for _ in range(count):
        job = work.receive(10.0)
        assert job is not None
        got.append(job)
    return got


def test_a_subscription_is_attached_settled_and_left(homes: Homes, client: BlockingClient) -> None:
    home = home_of(homes)
    home.unreached = ["slow"]
    with client.subscribe("jobs.#", durable="mail", window=7, window_bytes=99) as work:
        assert home.attached == [[work._feed.number, "mail", ["jobs.#"], 7, 99]]
        assert (work.name, work.patterns, work.home, work.unreached) == ("mail", ("jobs.#",), HERE, ("slow",))
        home.publish(b"1", b"2", b"3")
        one, two, three = take(3, work)
        assert one.done() and two.drop("broken")
        assert work.receive(0.0) is None
    homes.at[HERE].carry()
    assert home.left == 1 and home.dead == [(b"2", "broken")] and not home.queue.snapshot().consumers
    assert not three.done() and work.late == 1 and work.receive(1.0) is None and not list(work)


def test_messages_settled_in_a_row_share_one_frame(homes: Homes, client: BlockingClient) -> None:
    """A program that takes the next message at once reports many in one frame, without holding any up."""
    home = home_of(homes)
    with client.subscribe("jobs.#", durable="mail") as work:
        home.publish(*[b"x"] * 40)
        for job in take(40, work):
            job.done()
        homes.at[HERE].carry()
        assert not home.left
        home.publish(*[b"x"] * 40)
        for _ in range(40):
            (job,) = take(1, work)
            job.done()
        homes.at[HERE].carry()
        assert not home.left and len(home.done) < 60
        home.publish(b"a", b"b")
        take(2, work)[0].done()
        homes.at[HERE].carry()
        assert home.left == 1, "nothing else lies here: said at once"


def test_gathered_settlements_are_sent_before_a_wait_and_at_the_close(
    homes: Homes, client: BlockingClient
) -> None:
    home = home_of(homes)
    with client.subscribe("jobs.#", durable="mail") as work:
        home.publish(b"1", b"2", b"3")
        one, two = take(2, work)
        one.done()
        two.done()
        homes.at[HERE].carry()
        assert home.left == 2, "there is more to take, and no time has passed"
    homes.at[HERE].carry()
    assert home.left == 1


def test_batches_are_done_in_one_call(homes: Homes, client: BlockingClient) -> None:
    home = home_of(homes)
    with client.subscribe("jobs.#", durable="mail", window=1000) as work:
        home.publish(*[b"x"] * 600)
        home.publish(b"y", topic="jobs.b")
        count = 0
        for batch in work.batches():
            count += len(batch)
            assert batch.done()
            if count == 601:
                break
        homes.at[HERE].carry()
        assert not home.left and len(home.settling) <= 2


def test_an_exception_retries_the_message_in_hand(homes: Homes, client: BlockingClient) -> None:
    home = home_of(homes)
    for error, kinds in (
        (ZeroDivisionError, [Durable.RETRY, Durable.DETACH]),
        (KeyboardInterrupt, [Durable.DETACH]),
    ):
        home.publish(b"1", b"2")
        home.settling.clear()
        with pytest.raises(error), client.subscribe("jobs.#", durable="mail") as work:
            take(1, work)
            raise error
        homes.at[HERE].carry()
        assert [kind for kind, *_ in home.settling] == kinds


def test_a_lost_session_is_made_anew_and_its_messages_come_again(
    homes: Homes, client: BlockingClient
) -> None:
    home = home_of(homes)
    with client.subscribe("jobs.#", durable="mail") as work:
        home.publish(b"1", b"2", b"3")
        one, _ = take(2, work)
        homes.at[HERE].cut(read=True, answered=True)
        client._session.catch_up()
        assert work.receive(0.0) is None, "what was left of the lost session is not handed out"
        assert not one.done() and (work.late, work.interrupted) == (1, 1)
        again = []
        for _ in range(3):  # messages in flight when their consumer died come one by one
            again += take(1, work)
            assert again[-1].redelivered and again[-1].done()
        assert {job.body for job in again} == {b"1", b"2", b"3"}
        homes.at[HERE].carry()
        assert not home.left


def test_a_client_follows_to_the_home_and_finds_it_again(homes: Homes, client: BlockingClient) -> None:
    entry, home = home_of(homes), homes.add("tcp://h:2")
    entry.detach = ("held_elsewhere", "elsewhere", "tcp://h:2")
    with client.subscribe("jobs.#", durable="mail") as work:
        assert (work.home, client.broker) == ("tcp://h:2", HERE)
        home.publish(b"1")
        take(1, work)
        entry.detach = ("held_elsewhere", "the home is away", "")
        del homes.at["tcp://h:2"].wires[0]
        broker = homes.at.pop("tcp://h:2")
        broker.away = "refused"
        home.pipe_detached(home.pipes[0], "gone")
        work._at._wire.broken = True  # type: ignore[union-attr]
        assert work.receive(5.0) is None
        assert 5 < len(entry.attached) < 20
        homes.add("tcp://h:3", home)
        entry.detach = ("held_elsewhere", "elsewhere", "tcp://h:3")
        (again,) = take(1, work)
        assert again.redelivered and again.done() and work.interrupted == 1
        homes.at["tcp://h:3"].carry()
        assert not home.left
    assert not home.pipes, "its own connection is closed"


def test_closing_the_client_closes_its_work_elsewhere(homes: Homes) -> None:
    entry, home = home_of(homes), homes.add("tcp://h:2")
    entry.detach = ("held_elsewhere", "elsewhere", "tcp://h:2")
    client = BlockingClient(HERE)
    client.open()
    work = client.subscribe(durable="mail")
    home.publish(b"1")
    take(1, work)[0].done()
    client.close()
    assert not home.pipes and not home.left and work.receive(None) is None
    work.close()


def test_closing_the_client_sends_its_settlements(homes: Homes) -> None:
    home = home_of(homes)
    client = BlockingClient(HERE)
    client.open()
    work = client.subscribe(durable="mail")
    home.publish(b"1", b"2", b"3")
    for job in take(2, work):
        job.done()
    client.close()
    assert home.left == 1


def test_refusals_are_raised_by_subscribe(homes: Homes, client: BlockingClient) -> None:
    home = home_of(homes)
    for answer, kind, sentence in (
        (("other_patterns", "so it is", ""), OtherPatterns, "broker tcp://h:1: so it is"),
        (("held_elsewhere", "the home is away", ""), HeldElsewhere, "the home is away"),
        (("held_elsewhere", "x", "tcp://h:9"), Disconnected, "the home of mail cannot be reached: no broker"),
        (("held_elsewhere", "x", "no url"), Disconnected, "the home of mail cannot be reached"),
    ):
        home.detach = answer
        with pytest.raises(kind, match=sentence):
            client.subscribe("x", durable="mail")
    home.detach, home.silent = None, True
    began = homes.now
    with pytest.raises(MeshTimeout, match="no broker gave work of mail in 10 s: connected to tcp://h:1"):
        client.subscribe("x", durable="mail")
    assert homes.now - began < 11.0
    with pytest.raises(ValueError, match="exclude each other"):
        client.subscribe("x", durable="mail", answers=True)  # type: ignore[call-overload]


def test_a_subscription_that_is_removed_ends_iteration_with_a_sentence(
    homes: Homes, client: BlockingClient
) -> None:
    home = home_of(homes)
    work = client.subscribe("x", durable="mail")
    home.send(encode(Durable.DETACHED, work._feed.number, "removed", "mail was removed", ""))
    for _ in range(2):
        with pytest.raises(Detached, match="mail was removed"):
            work.receive(None)
    work.close()


def test_stored_messages_are_consumed(homes: Homes, client: BlockingClient) -> None:
    with client.subscribe("jobs.#", durable="mail") as work:
        receipt = client.publish("jobs.a", b"1", level="stored")
        assert (receipt.level, receipt.homes) == ("stored", (HERE,))
        take(1, work)[0].done()


def test_a_slow_large_body_is_sent_again_within_the_call(homes: Homes, client: BlockingClient) -> None:
    came = forgets_pieces(home_of(homes))
    began = homes.now
    receipt = client.publish("jobs.a", bytes(200_000), level="stored")
    assert receipt.homes == (HERE,) and came == [*came[:4]] * 2
    assert homes.now - began == pytest.approx(BODY_S, abs=0.1)


def test_a_second_copy_that_is_refused_is_sent_again_within_the_call(
    homes: Homes, client: BlockingClient
) -> None:
    home = home_of(homes)
    refusals = [3]
    received = home._received

    def refuse_some(pipe: object, prefix: bytes, frame: bytes) -> None:
        if frame[5] == Kind.DATA and refusals[0] == 3:
            homes.at[HERE].cut(read=False, answered=False)  # the first copy, whose ACK is lost
        elif frame[5] == Kind.DATA and refusals[0]:
            pipe.send_many([prefix + encode(Kind.REFUSED, [[1, 1]], "no link to the home")])  # type: ignore[attr-defined]
        else:
            received(pipe, prefix, frame)
            return
        refusals[0] -= 1

    home._received = refuse_some  # type: ignore[method-assign]
    assert client.publish("jobs.a", b"1", level="stored").homes == (HERE,)
    assert refusals == [0]
    home._received = lambda pipe, prefix, frame: (  # type: ignore[method-assign]
        pipe.send_many([prefix + encode(Durable.PENDING, 2, 2, ["h1"], ["h2"])])
        if frame[5] == Kind.DATA
        else received(pipe, prefix, frame)
    )
    with pytest.raises(Unknown, match="no acknowledgement in 1 s: kept by h1, not yet by h2; connected"):
        client.publish("jobs.a", b"2", level="stored", timeout=1.0)


# --- threads and processes, by real sockets and a real journal


@pytest.mark.process
def test_threads_share_a_subscription_and_each_message_goes_to_one_of_them(tmp_path: Path) -> None:
    with served(tmp_path) as url, BlockingClient(url) as client:
        with client.subscribe("jobs.#", durable="mail", window=16) as work:
            client.publish_many("jobs.a", [b"%d" % number for number in range(2000)], level="stored")
            got: list[int] = []

            def take_all() -> None:
                for job in work:
                    got.append(int(job.body))
                    assert job.done()

            threads = [threading.Thread(target=take_all) for _ in range(4)]
            for thread in threads:
                thread.start()
            until(lambda: len(got) >= 2000)
            work.close()
            for thread in threads:
                thread.join(120)
            assert sorted(got) == list(range(2000)), "each came once"
        with client.subscribe(durable="mail") as work:
            assert work.receive(0.5) is None and work.waiting == 0


@pytest.mark.process
def test_a_child_takes_and_settles_nothing_of_its_parents_work(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from mesh.clients.blocking_client import BlockingClient\n"
        "from mesh.errors import Disconnected\n"
        "mesh = BlockingClient(sys.argv[1]); mesh.open(); work = mesh.subscribe('f', durable='mail')\n"
        "mesh.publish_many('f', [b'1', b'2', b'3'], level='stored')\n"
        "one = work.receive(30.0)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    assert mesh.publish('f', b'4', level='stored').homes == ('home',)\n"
        "    for call in (lambda: work.receive(1.0), one.done):\n"
        "        try: call()\n"
        "        except Disconnected: continue\n"
        "        os._exit(1)\n"
        "    work.close(); mesh.close(); os._exit(7)\n"
        "assert os.waitpid(child, 0)[1] >> 8 == 7\n"
        "assert one.done()\n"
        "assert [work.receive(30.0).body for _ in range(3)] == [b'2', b'3', b'4']\n"
        "work.close(); mesh.close()\n"
    )
    with served(tmp_path) as url:
        subprocess.run([sys.executable, "-c", code, url], check=True, timeout=240)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A broker that is a home, on a thread with a loop of its own."""
    url: list[str] = []
    ready, end, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with Broker(name="home", listen="tcp://127.0.0.1:0", state_dir=folder) as broker:
            url.append(broker.url)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(120)
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(120)
        loop.close()
