"""The shared parts of several patterns: displacing queues, rotation, inboxes that stop reading."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import PipeRefused
from protocols.options import SocketOptions
from protocols.patterns.base import (
    HEAVY_BYTES_MAX,
    LIGHT_MAX,
    ORPHANS_MAX,
    Intake,
    LossyInbox,
    Pattern,
    QueueLane,
    Rotation,
)
from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber
from protocols.patterns.star import Star
from tests.support.link import Plug


def plugs(count: int, limit: int = 4) -> list[Plug]:
    return [Plug(Puller(SocketOptions(), random.Random(1)), id, limit=limit) for id in range(1, count + 1)]


def test_displace_keeps_the_newest_and_says_how_many_went() -> None:
    (plug,) = plugs(1)
    assert plug.pipe.displace([b"1", b"2", b"3"]) == 0
    assert plug.pipe.displace([b"4", b"5", b"6"]) == 2
    assert plug.take() == [b"3", b"4", b"5", b"6"]


def test_displace_on_a_closed_pipe_drops_everything() -> None:
    (plug,) = plugs(1)
    plug.lose()
    assert plug.pipe.displace([b"1", b"2"]) == 2
    assert plug.pipe.queued == 0


def test_send_all_queues_all_or_none_and_requests_a_notice_of_room() -> None:
    (plug,) = plugs(1)
    assert plug.pipe.send_all([b"1", b"2", b"3"])
    assert not plug.pipe.send_all([b"4", b"5"])
    assert plug.pipe.refused == 2
    assert plug.take() == [b"1", b"2", b"3"]
    assert plug.pipe.send_all([b"4", b"5"])


@given(st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=9)), st.integers(1, 5), st.booleans())
def test_a_lossy_inbox_is_bounded_and_counts_its_drops(
    runs: list[list[bytes]], limit: int, prefer_new: bool
) -> None:
    lossy = LossyInbox(limit, prefer_new=prefer_new)
    dropped = 0
    kept: list[bytes] = []
    for run in runs:
        dropped += lossy.add(ANYBODY, list(run))
        kept = (kept + run)[-limit:] if prefer_new else (kept + run)[:limit]
    assert list(lossy.inbox) == kept
    assert dropped + len(kept) == sum(map(len, runs))


@pytest.mark.parametrize("prefer_new", [True, False])
def test_large_bodies_fill_a_lossy_inbox_by_their_bytes(prefer_new: bool) -> None:
    lossy = LossyInbox(1024, prefer_new=prefer_new)
    bodies = [bytes([number]) * (1 << 20) for number in range(40)]
    dropped = [lossy.add(ANYBODY, [body]) for body in bodies[:20]]
    assert dropped == [0] * 16 + [1] * 4
    assert list(lossy.inbox) == (bodies[4:20] if prefer_new else bodies[:16])
    assert lossy.add(ANYBODY, [b"light"]) == 0
    for _ in range(10):
        lossy.inbox.popleft()  # a reader, which tells nobody
    assert [lossy.add(ANYBODY, [body]) for body in bodies[20:32]] == [0] * 10 + [1] * 2
    lossy.inbox.clear()
    assert lossy.add(ANYBODY, [bytes(HEAVY_BYTES_MAX + 1)]) == 0
    assert lossy.add(ANYBODY, [bytes(HEAVY_BYTES_MAX + 1)]) == 1
    assert len(lossy.inbox) == 1


def test_rotation_gives_each_frame_to_the_pipe_that_waited_longest() -> None:
    rotation = Rotation()
    ends = plugs(3)
    for end in ends:
        rotation.add(end.pipe)
    for number in range(6):
        assert rotation.send(b"%d" % number) is ends[number % 3].pipe
    assert [end.take() for end in ends] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


def test_rotation_passes_over_full_pipes_until_they_have_room() -> None:
    rotation = Rotation()
    ends = plugs(2, limit=1)
    for end in ends:
        rotation.add(end.pipe)
    assert rotation.send(b"0") is ends[0].pipe
    assert rotation.send(b"1") is ends[1].pipe
    assert rotation.send(b"2") is None
    ends[1].take()
    rotation.add(ends[1].pipe)
    assert rotation.send(b"2") is ends[1].pipe


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_is_dealt_in_slices_and_says_how_much_found_room(count: int) -> None:
    rotation = Rotation()
    ends = plugs(count, limit=4)
    for end in ends:
        rotation.add(end.pipe)
    frames = [b"%d" % number for number in range(20)]
    assert rotation.deal(frames) == 4 * count
    taken = [end.take() for end in ends]
    assert sorted(frame for frames in taken for frame in frames) == sorted(frames[: 4 * count])
    assert all(frames == sorted(frames, key=int) for frames in taken)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(0, 9), max_size=6))
def test_dealing_loses_nothing_and_repeats_nothing(limits: list[int], batches: list[int]) -> None:
    rotation = Rotation()
    ends = [
        Plug(Puller(SocketOptions(), random.Random(1)), id, limit=limit) for id, limit in enumerate(limits, 1)
    ]
    for end in ends:
        rotation.add(end.pipe)
    given_out: list[bytes] = []
    number = 0
    for size in batches:
        batch = [b"%d" % (number + place) for place in range(size)]
        number += size
        taken = rotation.deal(batch)
        assert 0 <= taken <= size
        given_out += batch[:taken]
    heard = [frame for end in ends for frame in end.take()]
    assert sorted(heard) == sorted(given_out)


def test_a_full_intake_stops_reading_and_reads_on_when_empty() -> None:
    (plug,) = plugs(1)
    intake: Intake[bytes] = Intake(3)
    intake.add(plug.pipe, [b"1", b"2"], 1)
    assert not plug.connection.paused
    intake.add(plug.pipe, [b"3", b"4"], 1)
    assert plug.connection.paused
    intake.inbox.clear()
    intake.resume()
    assert not plug.connection.paused


def test_large_frames_fill_an_intake_by_their_bytes() -> None:
    (plug,) = plugs(1)
    intake: Intake[bytes] = Intake(1000)
    for _ in range(2):
        for _ in range(15):
            intake.add(plug.pipe, [b"stands for a megabyte"], 1 << 20)
        assert not plug.connection.paused
        intake.add(plug.pipe, [b"stands for a megabyte"], 1 << 20)
        assert plug.connection.paused
        intake.inbox.clear()
        intake.resume()
        assert not plug.connection.paused


@pytest.mark.parametrize("large", [0, 1])
def test_no_peer_starves_at_an_inbox_that_is_never_empty(large: int) -> None:
    """One pusher filled it, another sends a message for each that is read."""
    filler, steady = plugs(2)
    intake: Intake[bytes] = Intake(100)
    intake.add(filler.pipe, [b"a"] * 100, 1)
    assert filler.connection.paused
    if large:
        intake.add(steady.pipe, [b"stands for a megabyte"], 1 << 20)
    for _ in range(50):
        intake.take()
    intake.add(steady.pipe, [b"b"], 1)
    assert not filler.connection.paused and not steady.connection.paused
    assert len(intake.inbox) == 51 + large


def test_peers_that_filled_an_inbox_and_left_are_forgotten_once_it_has_room() -> None:
    """Otherwise a busy inbox, which is never found empty, would one day admit nobody."""
    (steady,) = plugs(1)
    intake: Intake[bytes] = Intake(100)
    for number in range(ORPHANS_MAX):
        filler = Plug(Puller(SocketOptions(), random.Random(1)), number + 2)
        intake.add(filler.pipe, [b"a"] * 100, 1)
        intake.discard(filler.pipe)
    with pytest.raises(PipeRefused, match="filled the inbox and left"):
        intake.admit()
    while len(intake.inbox) > 1:
        intake.take()
    intake.add(steady.pipe, [b"b"], 1)
    intake.admit()


def test_a_pattern_without_contexts_refuses_them() -> None:
    with pytest.raises(Exception, match="push0 sockets have no contexts"):
        Pusher(SocketOptions(), random.Random(1)).open_lane()


@pytest.mark.parametrize("kind", [Pair, PairWithHops, Bus, Star, Publisher, Subscriber, Pusher, Puller])
def test_a_pattern_receives_from_peers_before_a_shell_uses_its_lane(kind: type[Pattern]) -> None:
    """Each is a pattern and a lane at once, and both must be initialised."""
    pattern = kind(SocketOptions(), random.Random(1))
    plug = Plug(pattern)
    if isinstance(pattern, Subscriber):
        pattern.lane.subscribe(b"")
    plug.say(bytes(4) + b"a body")
    pattern.pipe_writable(plug.pipe, 1.0)
    assert isinstance(pattern.lane, QueueLane)
    heard = kind not in (Publisher, Pusher)
    assert len(pattern.lane.inbox) == heard
    assert (sum(pattern.drops.values()) == 0) == heard


# --- pipes that weigh


MEGABYTE = bytes(1 << 20)
ANYBODY = Plug(Puller(SocketOptions(), random.Random(1))).pipe


BLANKS = {size: bytes(size) for size in (1, LIGHT_MAX, 3 << 20, 9 << 20)}


def weighed(limit: int = 1024) -> Plug:
    return Plug(Puller(SocketOptions(), random.Random(1)), limit=limit, weighed=True)


def test_large_frames_fill_a_queue_by_their_bytes() -> None:
    plug = weighed()
    assert [plug.pipe.send(MEGABYTE) for _ in range(17)] == [True] * 16 + [False]
    assert plug.pipe.send(b"light")
    assert plug.pipe.refused == 1
    assert len(plug.take()) == 17
    assert plug.pipe.send(MEGABYTE)


def test_one_frame_of_any_size_is_accepted() -> None:
    plug = weighed()
    assert plug.pipe.send_now(bytes(HEAVY_BYTES_MAX + 1))
    assert not plug.pipe.send_now(bytes(LIGHT_MAX + 1))
    assert plug.pipe.send_now(bytes(LIGHT_MAX))


def test_a_batch_with_large_frames_is_taken_as_far_as_they_fit() -> None:
    plug = weighed()
    assert plug.pipe.send_many([MEGABYTE] * 15 + [b"light"] + [MEGABYTE] * 4) == 17
    assert plug.pipe.refused == 3
    assert plug.pipe.send_many([]) == 0


def test_all_or_none_of_a_batch_with_large_frames_is_taken() -> None:
    plug = weighed(limit=40)
    assert plug.pipe.send_all([MEGABYTE] * 10)
    assert not plug.pipe.send_all([MEGABYTE] * 7)
    assert plug.pipe.send_all([MEGABYTE] * 6)
    assert plug.pipe.send_all([b"light"] * 24)
    assert not plug.pipe.send_all([b"light"])
    assert (plug.pipe.queued, plug.pipe.refused) == (40, 8)
    plug.take()
    assert plug.pipe.send_all([MEGABYTE] * 20)  # more than ever fits beside others, but alone


def test_displacing_keeps_the_newest_within_the_bytes() -> None:
    plug = weighed()
    assert plug.pipe.displace([b"old"]) == 0
    assert plug.pipe.displace([MEGABYTE] * 20) == 5
    assert plug.pipe.displace([b"light"]) == 0
    assert plug.pipe.displace([bytes(HEAVY_BYTES_MAX + 1)]) == 17
    assert plug.pipe.queued == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "send_now", "send_many", "send_all", "displace", "take"]),
            st.lists(st.sampled_from(list(BLANKS)), min_size=1, max_size=4),
        ),
        max_size=25,
    )
)
def test_the_weight_of_a_queue_is_right_and_bounded_for_every_way_of_queueing(
    steps: list[tuple[str, list[int]]],
) -> None:
    plug = weighed(limit=6)
    pipe = plug.pipe
    one_batch = False  # all or none: a batch is taken whole where no other large frame is
    for what, sizes in steps:
        frames = [BLANKS[size] for size in sizes]
        before = pipe.queued
        if what == "take":
            plug.take()
            one_batch = False
        elif what == "send":
            assert pipe.send(frames[0]) == (pipe.queued > before)
        elif what == "send_now":
            assert pipe.send_now(frames[0]) == (pipe.queued > before)
        elif what == "send_all":
            taken = pipe.send_all(frames)
            one_batch = one_batch or taken
            assert pipe.queued == before + (len(frames) if taken else 0)
        elif what == "send_many":
            assert pipe.send_many(frames) == pipe.queued - before
        else:
            dropped = pipe.displace(frames)
            assert pipe.queued == before + len(frames) - dropped
        heavy = [size for size in map(len, pipe._output) if size > LIGHT_MAX]
        assert pipe._heavy_bytes == sum(heavy)
        assert sum(heavy) <= HEAVY_BYTES_MAX or len(heavy) == 1 or one_batch
        assert pipe.queued <= 6
