"""The peers of one socket: their ids, their number, and the counters of those that left."""

from __future__ import annotations

import random

import pytest

from protocols.errors import PipeRefused
from protocols.options import SocketOptions
from protocols.patterns.pair import Pair
from protocols.patterns.pipeline import Pusher
from protocols.pipe import Pipe
from protocols.roster import PIPE_ID_MAX, Roster
from tests.support.link import SilentConnection


class Owner:
    """A core, as far as pipes know it."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.closing = False
        self.detached: list[bool] = []

    def attach(self, weighed: bool = True) -> Pipe:
        pipe = self.roster.new_pipe(SilentConnection(0x51), self, url="u://x", dialed=True, weighed=weighed)
        self.roster.attach(pipe, 0.0)
        return pipe

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.detached.append(self.roster.detach(pipe, 0.0, closing=self.closing))

    def pipe_gone(self, pipe: Pipe) -> None: ...


def owner(**options: int) -> Owner:
    made = SocketOptions(linger_s=7.0, send_queue=3, **options)  # type: ignore[arg-type]
    return Owner(Roster(Pusher(made, random.Random(1))))


def test_ids_count_up_from_a_random_start_wrap_and_skip_those_in_use() -> None:
    one = owner()
    assert one.roster.last_pipe_id == random.Random(1).getrandbits(31)
    assert PIPE_ID_MAX == (1 << 31) - 1, "the highest bit of a word ends a backtrace"
    one.roster.last_pipe_id = PIPE_ID_MAX - 1
    assert [one.attach().id for _ in range(3)] == [PIPE_ID_MAX, 1, 2]
    one.roster.last_pipe_id = PIPE_ID_MAX - 1
    assert one.attach().id == 3
    assert list(one.roster.pipes) == [PIPE_ID_MAX, 1, 2, 3]


def test_a_pipe_has_the_options_of_its_socket() -> None:
    pipe = owner().attach()
    assert (pipe.linger_s, pipe.url, pipe.dialed) == (7.0, "u://x", True)
    assert [pipe.send(b"x") for _ in range(4)] == [True, True, True, False]
    large = bytes(9 << 20)
    weighed, not_weighed = owner().attach(), owner().attach(weighed=False)
    assert [weighed.send(large) for _ in range(2)] == [True, False]
    assert [not_weighed.send(large) for _ in range(2)] == [True, True]


def test_one_peer_too_many_is_refused_with_the_option() -> None:
    one = owner(peers_max=2)
    first, _ = one.attach(), one.attach()
    with pytest.raises(PipeRefused, match=r"the limit of 2 peers is reached \(peers_max\)") as refused:
        one.attach()
    assert refused.value.reason == "too many peers"
    first.close("it leaves")
    assert one.attach().id in one.roster.pipes


def test_a_refused_pipe_is_not_counted() -> None:
    one = Owner(Roster(Pair(SocketOptions(), random.Random(1))))
    one.attach()
    with pytest.raises(PipeRefused):
        one.attach()
    assert one.roster.statistics().attached == len(one.roster.pipes) == 1


def test_the_pattern_is_told_of_peers_that_left() -> None:
    for leave in ("detach", "undo"):
        one = Owner(Roster(Pair(SocketOptions(), random.Random(1))))
        partner = one.attach()
        if leave == "detach":
            partner.close("it leaves")
        else:
            one.roster.undo_attach(partner, 0.0)
        assert one.attach().id != partner.id, "there is room for another partner"


@pytest.mark.parametrize("closing", [False, True])
def test_a_departed_peer_is_counted_and_its_queue_is_lost_unless_the_socket_closes(closing: bool) -> None:
    one = owner()
    one.closing = closing
    stays, leaves = one.attach(), one.attach()
    stays.send(b"waits")
    leaves.send(b"is lost")
    leaves.bytes_in, stays.bytes_in = 10, 20
    leaves.connection_lost("it went", "closed by peer")
    assert one.detached == [True] and list(one.roster.pipes) == [stays.id]
    assert not one.roster.detach(leaves, 0.0, closing=False)
    said = one.roster.statistics()
    assert (said.protocol, said.peers, said.attached, said.detached, said.queued) == ("push0", 1, 2, 1, 1)
    assert said.bytes_in == 30
    assert said.drops == ({} if closing else {"peer lost": 1})
    assert said.closed == {"closed by peer": 1}
    assert [each.id for each in said.recently_closed] == [leaves.id]


def test_an_attachment_can_be_undone_once() -> None:
    one = owner()
    pipe = one.attach()
    for _ in range(2):
        one.roster.undo_attach(pipe, 0.0)
        assert one.roster.statistics().attached == 0 and not one.roster.pipes
