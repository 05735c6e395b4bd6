"""Peerings over real sockets: discovery by joining any broker, duplicates, strangers, loss, return,
leaving."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import pytest

from mesh.cluster import refusals
from mesh.cluster.core import Send
from mesh.cluster.membership import MemberForgotten, NodeState
from mesh.cluster.overlay import Dial
from mesh.wire.capabilities import FIRST, Offer
from mesh.wire.link_frames import CHALLENGE_SIZE, Hello, LinkKind, decode, encode
from mesh.wire.session_frames import Kind
from protocols import Bus0, RawSocket, Respondent0, SocketOptions, Surveyor0
from protocols.pipe import CONTROL_MAX, INBOX_FULL
from protocols.wire.backtrace import END_BIT, encode_word
from tests.mesh.peers import Known, Peer, Peers, Who, is_whole, until, whole

pytestmark = pytest.mark.virtual


def has_pipes(peer: Peer, count: int) -> bool:
    """True if there are so many pipes of each kind, which is one for each link."""
    return [len(socket.pipes) for socket in peer.peering.sockets] == [count] * 3


async def test_five_brokers_that_join_one_find_each_other() -> None:
    async with Peers() as peers:
        mesh = await peers.mesh("a", "b", "c", "d", "e")
        for peer in mesh:
            assert sorted(name for _, name in peer.live) == sorted({"a", "b", "c", "d", "e"} - {peer.name})
            assert all(change[1:] == ("unknown", "alive", "joined") for change in peer.changes)
        await until(
            lambda: all({m for m, _, _ in p.answers} == {o.who.id for o in mesh if o is not p} for p in mesh),
            "answers of all to all",
        )


async def test_brokers_that_dial_each_other_at_once_keep_one_link_each() -> None:
    """No broker ends with two links to another, and both ends keep the same one."""
    async with Peers() as peers:
        first = await peers.peer("a")
        second = await peers.peer("b")
        urls = [first.url, second.url]
        for peer in (first, second):
            await peer.leave()
        again = await asyncio.gather(
            peers.peer("a", *urls, listen=urls[0]), peers.peer("b", *urls, listen=urls[1])
        )
        await whole(again)
        a, b = again
        await until(lambda: len(a.peering.sockets[0].pipes) == 1, "one Bus")
        await until(lambda: len(b.peering.sockets[0].pipes) == 1, "one Bus")
        assert a.peering.view.links()[0].dialed is not b.peering.view.links()[0].dialed
        assert [len(socket.pipes) for socket in a.peering.sockets] == [1, 1, 1]


async def test_five_that_all_join_all_at_once_end_with_one_link_a_pair(tmp_path: object) -> None:
    async with Peers() as peers:
        urls = [f"ipc://{tmp_path}/{name}" for name in "abcde"]
        mesh = await asyncio.gather(*(peers.peer(u[-1], *urls, listen=u, mesh_key=b"k") for u in urls))
        await whole(mesh)
        for peer in mesh:
            await until(partial(has_pipes, peer, 4), "one link each")
            dialed = {link.peer: link.dialed for link in peer.peering.view.links()}
            for other in mesh:
                theirs = {link.peer: link.dialed for link in other.peering.view.links()}
                assert other is peer or dialed[other.who.id] is not theirs[peer.who.id]


async def test_a_second_address_of_a_linked_broker_does_not_disturb_the_link() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        port = a.url.rpartition(":")[2]
        c = await peers.peer("c", a, f"tcp://localhost:{port}")
        await whole([a, b, c])
        links = [(peer, len(peer.ups), len(peer.downs)) for peer in (a, b, c)]
        c.peering.dialer.begin(Dial(f"tcp://localhost:{port}", 0))
        await until(lambda: c.peering.view.statistics().dial_failures.get("duplicate"), "one given up")
        rounds = c.peering.membership.round
        await until(lambda: c.peering.membership.round > rounds + 2, "two rounds")
        assert links == [(peer, len(peer.ups), len(peer.downs)) for peer in (a, b, c)]


async def test_a_new_broker_at_the_address_of_a_dead_one_is_left_in_peace() -> None:
    """Without a state folder a restarted broker has another id, and the old one stays dead."""
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        url = c.url
        await c.crash()
        await until(lambda: a.states()["c"] == b.states()["c"] == "dead", "c is dead for both")
        d = await peers.peer("d", a, listen=url)
        await whole([a, b, d])
        downs = [len(peer.downs) for peer in (a, b, d)]
        rounds = a.peering.membership.round
        await until(lambda: a.peering.membership.round > rounds + 20, "four times the pause for the dead")
        assert downs == [len(peer.downs) for peer in (a, b, d)]


@pytest.mark.parametrize("scheme", ["ipc", "inproc"])
async def test_links_work_over_every_transport(scheme: str, tmp_path: object) -> None:
    async with Peers() as peers:
        urls = [f"{scheme}://{tmp_path if scheme == 'ipc' else 'peering'}/{name}" for name in "abc"]
        first = await peers.peer("a", listen=urls[0])
        rest = [await peers.peer(name, first, listen=url) for name, url in zip("bc", urls[1:], strict=True)]
        await whole([first, *rest])


async def test_a_broker_that_vanishes_is_dead_for_the_others_and_alive_when_it_returns() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        await c.crash()
        await until(lambda: a.states()["c"] == b.states()["c"] == "dead", "c is dead for both")
        assert a.states()["b"] == "alive" and b.states()["a"] == "alive"
        again = await peers.peer("c", a, who=Who(c.who.id, c.who.boot + 1, c.who.incarnation + 1))
        await whole([a, b, again])
        assert ("c", "dead", "alive", "restarted") in a.changes
        assert ("c", "dead", "alive", "restarted") in b.changes


async def test_a_broker_that_lost_its_incarnation_learns_it_from_the_mesh() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c", who=None)
        who = c.who
        await c.crash()
        await until(lambda: a.states()["c"] == b.states()["c"] == "dead", "c is dead for both")
        again = await peers.peer("c", a, who=Who(who.id, who.boot + 1, 0))
        await whole([a, b, again])
        assert again.peering.incarnation > who.incarnation


async def test_a_lost_link_comes_back_without_a_death() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        for _ in range(3):
            a.ups[-1][1].close("cut by the test")
            await until(lambda: a.linked() == {b.who.id, c.who.id}, "the link is back")
        await whole([a, b, c])
        assert all(change[2] != "dead" for peer in (a, b, c) for change in peer.changes)


async def test_losing_one_heartbeat_connection_ends_the_whole_link_and_it_is_made_again() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        a.peering.sockets[1].pipes[0].close("cut by the test")
        await until(lambda: b.downs, "b lost the link as well")
        await whole([a, b])
        # On a busy machine both may have dialled, and the superfluous link is about to end.
        await until(lambda: [len(s.pipes) for s in b.peering.sockets] == [1, 1, 1], "one of each is left")


async def test_the_only_peer_lost_is_dead_after_three_rounds_and_found_again() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        url = b.url
        await b.crash()
        await until(lambda: a.states()["b"] == "dead", "b is dead")
        assert a.peering.state is NodeState.READY
        again = await peers.peer("b", who=Who(b.who.id, b.who.boot + 1, b.who.incarnation + 1), listen=url)
        await whole([a, again])  # a dials its dead from time to time


async def test_a_broker_that_loses_all_peers_is_isolated_and_reports_no_deaths() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        url = b.url
        await asyncio.gather(b.crash(), c.crash())
        await until(lambda: a.peering.state is NodeState.ISOLATED, "a is isolated")
        assert a.states() == {"a": "alive", "b": "alive", "c": "alive"}
        assert set(a.absent) == {"b", "c"}
        again = await peers.peer("b", who=Who(b.who.id, b.who.boot + 1, b.who.incarnation + 1), listen=url)
        await until(lambda: a.peering.state is NodeState.READY, "a is back")
        await until(lambda: a.linked() == {again.who.id}, "the link is back")


async def test_a_broker_that_leaves_is_left_and_not_dead() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        started = asyncio.get_running_loop().time()
        await c.leave()
        assert asyncio.get_running_loop().time() - started < 1.0
        await until(lambda: a.states()["c"] == b.states()["c"] == "left", "c left")
        assert all(change[2] not in ("dead", "suspect") for peer in (a, b) for change in peer.changes)
        assert sorted(name for _, name in a.live) == ["b"]
        assert c.node_states[-1] is NodeState.LEAVING


async def test_all_brokers_may_leave_at_once() -> None:
    async with Peers() as peers:
        mesh = await peers.mesh("a", "b", "c")
        async with asyncio.timeout(3):
            await asyncio.gather(*(peer.leave() for peer in mesh))
        assert all(change[2] != "dead" for peer in mesh for change in peer.changes)


async def test_peers_of_an_earlier_run_are_found_without_join() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        who = Who(3, 4, 1, peers=[Known("tcp://127.0.0.1:1"), Known(b.url)])
        c = await peers.peer("c", who=who)
        await whole([a, b, c])


async def test_a_broker_told_to_join_itself_continues() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        url = b.url
        await b.leave()
        again = await peers.peer("b", a, url, listen=url)
        await whole([a, again])
        assert again.peering.view.statistics().dial_failures["self"] == 1


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ({"mesh_key": b"one"}, {"mesh_key": b"two"}, "key"),
        ({"mesh_key": b"one"}, {}, "key"),
        ({}, {"mesh_key": b"one"}, "key"),
        ({"mesh": "red"}, {"mesh": "blue"}, "mesh"),
    ],
)
async def test_brokers_of_another_mesh_or_key_are_refused_and_counted(
    mine: dict[str, Any], theirs: dict[str, Any], reason: str
) -> None:
    async with Peers() as peers:
        a = await peers.peer("a", **mine)
        b = await peers.peer("b", a, **theirs)
        await until(lambda: a.peering.view.statistics().refused.get(reason, 0), f"refused for its {reason}")
        await until(lambda: b.peering.view.statistics().dial_failures.get(reason, 0) >= 1, "told why")
        assert a.states() == {"a": "alive"} and b.states() == {"b": "alive"}
        assert not a.ups and not b.ups and not a.surveys


async def test_a_refused_broker_is_logged_once_for_all_its_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning named its host without the port."""
    async with Peers() as peers:
        a = await peers.peer("a", mesh_key=b"one")
        await peers.peer("b", a, mesh_key=b"two")
        await until(lambda: a.peering.view.statistics().refused.get("key", 0) >= 3, "refused three times")
    (said,) = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert re.search(r"a broker at tcp://127\.0\.0\.1:\d+ was refused: ", said)


async def test_brokers_with_one_mesh_key_are_linked() -> None:
    async with Peers() as peers:
        await peers.mesh("a", "b", "c", mesh_key=b"the same")


def greeting(**changes: object) -> Hello:
    fields = {
        "mesh": "test",
        "id": 77,
        "boot": 78,
        "incarnation": 1,
        "name": "stranger",
        "host": "",
        "peer_url": "",
        "client_url": "",
        "epoch": 1,
        "challenge": bytes(CHALLENGE_SIZE),
        **changes,
    }
    return Hello(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"garbage", "malformed"),
        (b"", "malformed"),
        (b"\x92\x20\x01", "malformed"),
        (bytes(5000), "malformed"),
        (greeting(offer=Offer.of(8, 9, [])).encode(), "version"),
        (greeting(id=0).encode(), "malformed"),
        (greeting(name="n" * 65).encode(), "malformed"),
        (encode(LinkKind.MEMBERS, 0, []), "unexpected"),
        (encode(LinkKind.PROOF, b""), "unexpected"),
        (encode(Kind.BYE), "malformed"),
    ],
)
async def test_a_bad_greeting_costs_the_connection_and_is_counted(frame: bytes, reason: str) -> None:
    async with Peers() as peers, Bus0() as stranger:
        a, b = await peers.mesh("a", "b")
        stranger.dial(a.url)
        await stranger.wait_for_peers(1, timeout=5)
        await stranger.send(frame)
        await until(lambda: a.peering.view.statistics().refused.get(reason), f"counted as {reason}")
        assert is_whole([a, b])


async def test_tokens_are_good_for_one_admission_and_kept_no_longer() -> None:
    async with Peers() as peers, Bus0(options=SocketOptions(recv_timeout_s=10)) as stranger:
        a, b = await peers.mesh("a", "b")
        assert a.peering.link_manager._tokens == b.peering.link_manager._tokens == {}, "both links are up"
        stranger.dial(a.url)
        await stranger.wait_for_peers(1, timeout=5)
        await stranger.send(greeting(offer=FIRST).encode())
        assert (await stranger.recv())[1] == LinkKind.HELLO
        await stranger.send(encode(LinkKind.PROOF, b""))
        token = decode(await stranger.recv())[2]
        assert list(a.peering.link_manager._tokens) == [token]
        await stranger.aclose()
        await until(lambda: not a.peering.link_manager._tokens, "the token went with its connection")
        before = a.peering.view.statistics().refused.get("token", 0)
        async with RawSocket(Respondent0) as late:
            pipe = await late.dial_once(a.url)
            pipe.send(encode_word(END_BIT) + encode(LinkKind.BIND, token))
            await until(lambda: a.peering.view.statistics().refused.get("token", 0) > before, "it is refused")
        assert is_whole([a, b])


async def test_a_stranger_cannot_choose_how_much_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence contains the stranger's mesh, which may be different each time."""
    monkeypatch.setattr(refusals, "WARNINGS_MAX", 5)
    async with Peers() as peers, RawSocket(Bus0) as stranger:
        a = await peers.peer("a")
        for number in range(12):
            pipe = await stranger.dial_once(a.url)
            pipe.send(greeting(mesh=f"mesh {number}").encode())
            await until(lambda: pipe.closed, "refused")  # noqa: B023
        assert a.peering.view.statistics().refused == {"mesh": 12}
    said = [record for record in caplog.records if "was refused" in record.getMessage()]
    assert len(said) == 5


async def test_an_admitted_peer_that_breaks_a_rule_loses_its_link() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")

        def refused() -> int:
            return a.peering.view.statistics().refused.get("malformed", 0)

        for number, frame in enumerate(
            (
                b"\x91\x3f",
                b"x",
                encode(LinkKind.TOKEN, b"", bytes(16)),
                encode(LinkKind.INTEREST, 9, 0, 1, [["not a pattern!", 0]]),
                encode(LinkKind.INTEREST_HELD, 99),
                encode(LinkKind.INTEREST, 9, 0, 1, [["news.#", 0]], a.who.id),  # in another's name
                encode(LinkKind.INTEREST_CHANGE, 1, 2, [["news.#", 0]], [], 12345),
            ),
            start=1,
        ):
            b.ups[-1][1].send(frame)
            await until(lambda: refused() >= number, "counted")  # noqa: B023
            assert refused() == number
            await whole([a, b])


async def test_a_peer_may_give_up_a_link_that_is_up_here_already() -> None:
    """Its REFUSED crossed our READY: it has a better link. That is not a broken rule."""
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        b.ups[-1][1].send(encode(LinkKind.REFUSED, "duplicate", "there is a better link"))
        await until(lambda: a.downs, "a ended the link")
        assert a.downs == [(b.who.id, "duplicate")]
        assert not a.peering.view.statistics().refused
        await whole([a, b])


async def test_a_link_with_a_dead_bus_is_made_again_although_its_heartbeats_pass() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        b.ups[-1][1].pause(INBOX_FULL)
        a.set_interest([("news.*", 0)])
        await until(lambda: b.interests.get(a.who.id) == [("news.*", 0)], "it went by another link")
        await whole([a, b])
        assert "nothing came on its data connection in 3 rounds" in {
            reason for _, reason in a.downs + b.downs
        }
        assert not any(change[2] == "dead" for change in (*a.changes, *b.changes))


async def test_a_broker_at_a_join_url_is_believed_only_after_its_proof() -> None:
    async with Peers() as peers, Bus0(options=SocketOptions(recv_timeout_s=10)) as fake:
        listener = await fake.listen("tcp://127.0.0.1:0")
        a = await peers.peer("a", listener.url, mesh_key=b"right")
        hello = await fake.recv()
        met: list[tuple[str, int]] = []
        a.peering.overlay.met = lambda url, id: met.append((url, id))  # type: ignore[method-assign]
        await fake.send(greeting().encode())
        proof = await fake.recv()
        assert (hello[1], proof[1]) == (LinkKind.HELLO, LinkKind.PROOF)
        await fake.send(encode(LinkKind.TOKEN, bytes(32), bytes(16)))
        refusal = await fake.recv()
        assert refusal[1] == LinkKind.REFUSED
        assert met == []


async def test_a_peer_that_reads_nothing_loses_its_link_in_the_middle_of_news_for_all() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        deaf = a.peering.link_manager.up[b.who.id]
        for _ in range(CONTROL_MAX):
            deaf.bus.send_control(encode(LinkKind.MEMBERS, 0, []))
        news = (a.peering.membership.me,)
        a.peering._execute([Send(member, news) for member in a.peering.view.linked])
        await until(lambda: a.downs, "the link is given up")
        assert a.downs[0] == (b.who.id, f"{CONTROL_MAX} control frames unread")
        await whole([a, b, c])
        assert {member for member, _ in a.downs} == {b.who.id}


async def test_members_that_the_table_forgets_are_forgotten_by_all_parts() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        await b.crash()
        await until(lambda: a.states()["b"] == "dead", "b is dead for a")
        await until(lambda: a.peering.dialer.failures.get("unreachable"), "a dial of b failed")
        (gone,) = [view.record for view in a.peering.view.members() if view.record.name == "b"]
        assert a.peering.link_manager._epochs and a.peering.overlay._records and a.peering.dialer._complained
        a.peering._act([MemberForgotten(gone)])
        kept = a.peering.link_manager._epochs, a.peering.overlay._records, a.peering.dialer._complained
        assert kept == ({}, {}, {})


async def test_a_silent_connection_is_closed_at_the_deadline() -> None:
    """Before that it gets no frame: neither surveys nor news."""
    async with (
        Peers() as peers,
        Bus0(options=SocketOptions(recv_timeout_s=10)) as silent,
        Surveyor0() as second,
    ):
        a, b = await peers.mesh("a", "b")
        silent.dial(a.url)
        second.dial(a.url)
        await until(lambda: a.peering.view.statistics().strangers == 2, "both are there")
        await until(lambda: a.peering.view.statistics().refused.get("deadline", 0) >= 2, "closed in time")
        assert is_whole([a, b])
        refusals = [await silent.recv()]
        assert refusals[0][1] == LinkKind.REFUSED


async def test_a_heartbeat_connection_with_a_wrong_token_is_closed() -> None:
    async with Peers() as peers, RawSocket(Surveyor0) as stranger:
        a, b = await peers.mesh("a", "b")
        pipe = await stranger.dial_once(a.url)
        stranger.send_to(pipe, [encode_word(END_BIT) + encode(LinkKind.BIND, bytes(16))])
        await until(lambda: pipe.closed, "hung up")
        assert a.peering.view.statistics().refused["token"] == 1
        assert is_whole([a, b])


@pytest.mark.parametrize(
    "frame", [b"", b"x", b"\x80\x00\x00\x01", b"\x80\x00\x00\x01garbage", b"\x80\x00\x00\x01\x91\x24"]
)
@pytest.mark.parametrize("socket", [1, 2])
async def test_garbage_on_a_heartbeat_connection_costs_the_link_only(socket: int, frame: bytes) -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        theirs = b.peering.view.links()[0]
        link = b.peering.link_manager.up[a.who.id]
        pipe = (link.surveyor, link.respondent)[socket - 1]
        assert pipe is not None and theirs
        pipe.send(frame)
        await until(lambda: a.downs, "a dropped the link")
        assert {member for member, _ in a.downs} == {b.who.id}
        await whole([a, b, c])


async def test_a_subscriber_that_is_still_joining_waits_for_the_mesh() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        url = a.url
        await a.leave()
        late = await peers.peer("c", url)
        version = late.set_interest([("x", 0)])
        await asyncio.sleep(0)
        assert not late.barriers and late.peering.state is NodeState.JOINING
        again = await peers.peer("a", b, listen=url)
        await until(lambda: late.barriers == [(version, ())], "the barrier, with nobody missing")
        await whole([again, b, late])
        assert again.interests[late.who.id] == b.interests[late.who.id] == [("x", 0)]


async def test_interest_reaches_all_brokers_before_the_barrier_ends() -> None:
    async with Peers() as peers:
        a, b, c = await peers.mesh("a", "b", "c")
        version = a.set_interest([("news.#", 0), ("ask", 1)])
        await until(lambda: (version, ()) in a.barriers, "the barrier")
        for peer in (b, c):
            assert sorted(peer.interests[a.who.id]) == [("ask", 1), ("news.#", 0)]
        later = a.set_interest([("ask", 0)])
        await until(lambda: (later, ()) in a.barriers, "the barrier")
        assert b.interests[a.who.id] == c.interests[a.who.id] == [("ask", 0)]
        d = await peers.peer("d", b)
        await whole([a, b, c, d])
        assert d.interests[a.who.id] == [("ask", 0)]


async def test_many_changes_of_interest_are_few_frames_and_none_is_lost() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        before = b.ups[-1][1].statistics().frames_in
        for count in range(1, 301):
            version = a.set_interest([(f"t{number}", 0) for number in range(count)])
        await until(lambda: a.barriers and a.barriers[-1] == (version, ()), "the barrier")
        assert len(b.interests[a.who.id]) == 300
        assert b.ups[-1][1].statistics().frames_in - before < 30


async def test_a_great_interest_travels_in_parts() -> None:
    async with Peers() as peers:
        a = await peers.peer("a")
        a.set_interest([(f"topic.number.{number}", 0) for number in range(20_000)])
        b = await peers.peer("b", a)
        await whole([a, b])
        assert len(b.interests[a.who.id]) == 20_000


async def test_session_frames_pass_unopened_and_in_order() -> None:
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        frames = [encode(Kind.PING, number) for number in range(1, 1001)]
        assert a.peering.sockets[0].send_to(a.ups[-1][1], frames)
        await until(lambda: len(b.frames) == 1000, "all are there")
        assert b.frames == [(a.who.id, frame) for frame in frames]


async def test_a_wildcard_bind_advertises_the_address_of_its_first_link() -> None:
    async with Peers() as peers:
        a = await peers.peer("a", listen="tcp://:0")
        port = a.listener.url.rpartition(":")[2]
        assert a.url == f"tcp://127.0.0.1:{port}" and not a.peering.membership.me.peer_url
        b = await peers.peer("b", a, listen="tcp://:0")
        await whole([a, b])
        assert a.url == a.peering.membership.me.peer_url == f"tcp://127.0.0.1:{port}"
        c = await peers.peer("c", b.url)
        await whole([a, b, c])


async def test_idle_frames_are_surveys_and_answers_only() -> None:
    """An idle link's Bus carries nothing."""
    async with Peers() as peers:
        a, b = await peers.mesh("a", "b")
        rounds = a.peering.membership.round
        await until(lambda: a.peering.membership.round >= rounds + 2, "two rounds")
        before = a.ups[-1][1].statistics()
        await until(lambda: a.peering.membership.round >= rounds + 6, "four more rounds")
        after = a.ups[-1][1].statistics()
        assert (before.frames_in, before.frames_out) == (after.frames_in, after.frames_out)
        assert is_whole([a, b])
