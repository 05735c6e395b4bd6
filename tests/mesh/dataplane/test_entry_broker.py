"""Level stored at the broker that a publisher is connected to.

Nothing is acknowledged unless a home has kept it, and nothing is refused that a home may have.
"""

from __future__ import annotations

import pytest

from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.stored import ORPHANED_S
from mesh.dataplane.stored_replies import REASONS_MAX
from mesh.errors import PeerError
from mesh.wire import blocks
from mesh.wire.blocks import STORED
from mesh.wire.durable_frames import KEEP, Durable, Kept
from mesh.wire.session_frames import data_head, encode
from tests.mesh.dataplane.neighbourhood import FakeMesh
from tests.mesh.dataplane.storing import FakeHome, StoredClient, made, removed
from tests.mesh.dataplane.test_conservation import Ledger


def whole(client: StoredClient) -> bool:
    """True if all credit is back."""
    window = client.window
    return bool(
        window.messages_left + window.owed_messages == window.messages
        and window.bytes_left + window.owed_bytes == window.bytes
    )


# --- acknowledged


@pytest.mark.parametrize("home", [1, 2], ids=["the broker itself", "another broker"])
def test_a_block_is_acknowledged_with_its_home_once_that_has_kept_it(home: int) -> None:
    mesh = FakeMesh(2)
    made(mesh, home, "mail", "t")
    keeper = FakeHome(mesh, home, prompt=False)
    client = StoredClient(mesh)
    first = client.publish("t", b"a", b"b")
    assert client.acked == [] and not whole(client)
    keeper.answer()
    client.read()
    assert client.acked == [([[first, first + 1]], [], [f"node{home}"])]
    assert keeper.has(client.source, first) and whole(client)
    assert mesh.nodes[1].exchange.statistics().storing == 0


def test_a_block_is_acknowledged_when_the_last_of_its_homes_has_kept_it() -> None:
    mesh = FakeMesh(3)
    homes = [FakeHome(mesh, node, prompt=False) for node in (1, 2, 3)]
    for home in homes:
        made(mesh, home.id, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    for home in homes:
        assert client.acked == [] and not whole(client)
        home.answer()
        client.read()
    assert client.acked == [([[1, 1]], [], ["node1", "node2", "node3"])] and whole(client)


def test_blocks_that_homes_kept_in_one_turn_share_one_acknowledgement() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    for _ in range(50):
        client.publish("t", b"a")
    for _ in range(50):
        home.answer()
    client.read()
    assert client.acked == [([[1, 50]], [], ["node2"])]


def test_live_subscribers_get_a_block_at_once_and_those_at_its_home_get_one_copy() -> None:
    mesh = FakeMesh(3)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "#")
    readers = [mesh.client(node) for node in (1, 2, 3)]
    feeds = [reader.subscribe("t") for reader in readers]
    ledger = Ledger(mesh, 1)
    client = StoredClient(mesh)
    client.publish("t", b"a")
    for reader, feed in zip(readers, feeds, strict=True):
        assert reader.take(feed) == [("t", b"a")]
    assert [mesh.nodes[1].exchange.link_statistics(node).msgs_out for node in (2, 3)] == [1, 1]
    assert client.acked == []
    home.answer()
    client.read()
    assert client.acked
    ledger.check()


def test_a_receipt_names_the_brokers_absent_at_the_first_delivery_even_after_a_retry() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    mesh.nodes[1].exchange.set_absent(["away"])
    first = client.publish("t", b"a")
    mesh.nodes[1].exchange.set_absent([])
    home.answer()
    client.read()
    client.send(first, again=True)
    assert client.acked == [([[1, 1]], ["away"], ["node2"])] * 2


def test_a_home_is_told_the_lowest_number_that_its_publisher_waits_for() -> None:
    mesh = FakeMesh(2)
    homes = [FakeHome(mesh, node) for node in (1, 2)]
    for home in homes:
        made(mesh, home.id, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a", b"b", b"c")
    client.publish("t", b"d", behind=2)
    # farther than the field can hold: the earlier statement stands
    client.publish("t", b"e", behind=0xFFFFFFFF)
    client.publish("t", b"f", behind=0)
    for home in homes:
        assert home.lowest == [1, 2, 2, 6]


def test_a_publisher_cannot_wait_for_numbers_below_zero() -> None:
    mesh = FakeMesh(1)
    client = StoredClient(mesh)
    client.publish("t", b"a", behind=2)
    assert client.errors == ["a block that begins with 1 says that its publisher waits for -1"]


# --- refused


def test_a_message_without_a_durable_subscription_is_refused_and_not_delivered() -> None:
    mesh = FakeMesh(2)
    reader = mesh.client(2)
    feed = reader.subscribe("t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    assert (
        client.refused == [([[1, 1]], "nobody keeps t; make a durable subscription that matches it")]
        and client.acked == []
    )
    assert reader.take(feed) == [] and whole(client)


def test_refusals_of_many_topics_share_few_frames() -> None:
    """A frame for each of thousands of topics would be more control frames than a peer may leave unread."""
    mesh = FakeMesh(1)
    client = StoredClient(mesh)
    client.say(*(client.frames(client.seal(f"t.{number}", b"a"))[0] for number in range(100)))
    assert len(client.refused) <= REASONS_MAX + 1
    assert sum(last - first + 1 for ranges, _ in client.refused for first, last in ranges) == 100


@pytest.mark.parametrize("how", ["unlinked", "of an old version", "never linked"])
def test_a_home_that_cannot_be_asked_refuses_by_name(how: str) -> None:
    mesh = FakeMesh(2)
    made(mesh, 2, "mail", "t")
    made(mesh, 3, "mail", "never")
    if how == "unlinked":
        mesh.unlink(1, 2)
    elif how == "of an old version":
        mesh.unlink(1, 2)
        mesh.durable = False
        mesh.link(1, 2)
    client = StoredClient(mesh)
    client.publish("never" if how == "never linked" else "t", b"a")
    away, topic = ("node3", "never") if how == "never linked" else ("node2", "t")
    what_to_do = f"if it will not come back: mesh queue forget {away}"
    said = f"there is no link to {away}, where {topic} is kept; {what_to_do}"
    assert client.refused == [([[1, 1]], said)]


def test_a_member_with_unknown_subscriptions_causes_a_refusal_that_names_it() -> None:
    mesh = FakeMesh(2)
    FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    mesh.nodes[1].exchange.set_unknown_homes(["node9"])
    client.publish("t", b"a")
    assert client.refused == [([[1, 1]], "broker node1 does not know yet what is kept at node9")]
    mesh.nodes[1].exchange.set_unknown_homes([])
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_a_broker_without_storage_refuses_blocks_for_subscriptions_attributed_to_it() -> None:
    mesh = FakeMesh(2)
    made(mesh, 1, "mail", "own")
    made(mesh, 2, "mail", "other")
    client = StoredClient(mesh)
    client.publish("own", b"a")
    client.publish("other", b"a")
    assert [sentence for _, sentence in client.refused] == [
        "broker node1 keeps no messages",
        "home node2: it keeps no messages",
    ]


@pytest.mark.parametrize("home", [1, 2])
def test_the_sentence_of_a_refusing_home_reaches_the_publisher(home: int) -> None:
    """The sentence carries the home's name. The publisher knew only the name of its own broker, and was not
    told where to make room."""
    mesh = FakeMesh(2)
    made(mesh, home, "mail", "t")
    keeper = FakeHome(mesh, home, prompt=False)
    client = StoredClient(mesh)
    client.publish("t", b"a", b"b")
    keeper.answer(how="full")
    client.read()
    whose = "home node2: " if home == 2 else ""
    assert client.refused == [([[1, 2]], f"{whose}the disk of node{home} is full")] and whole(client)
    client.send(1, again=True)
    keeper.answer()
    client.read()
    assert client.acked == [([[1, 2]], [], [f"node{home}"])] and whole(client)


def test_a_block_is_refused_only_when_certainly_no_home_has_it() -> None:
    """One home refused, and the other had not answered: it kept the block later, and the publisher was told
    that nobody has it."""
    mesh = FakeMesh(3)
    full, other = FakeHome(mesh, 2, prompt=False), FakeHome(mesh, 3, prompt=False)
    for home in (full, other):
        made(mesh, home.id, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    full.answer(how="full")
    client.read()
    assert client.refused == []
    other.answer()
    client.turn(0.5)
    assert client.refused == [] and client.acked == []
    assert client.pending == [(1, 1, ["node3"], ["node2"])]
    client.turn(6.0)
    full.answer()  # it was offered again, since it can no longer be refused
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2", "node3"])] and whole(client)


def test_a_refusal_does_not_count_while_another_copy_is_on_its_way() -> None:
    """A copy was offered again after 5 s. The home refused the first, and had room for the second."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.turn(6.0)
    assert home.agains == [False, True]
    home.answer(how="full")
    client.read()
    assert client.refused == []
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_no_other_home_is_asked_when_this_broker_cannot_keep_a_block() -> None:
    mesh = FakeMesh(2)
    own, other = FakeHome(mesh, 1, prompt=False), FakeHome(mesh, 2)
    for home in (other, own):
        made(mesh, home.id, "mail", "t")
    keep = own.keep

    def refuse(*given: object) -> None:
        keep(*given)  # type: ignore[arg-type]
        own.answer(how="full")

    own.keep = refuse  # type: ignore[method-assign, assignment]
    client = StoredClient(mesh)
    client.publish("t", b"a")
    assert client.refused == [([[1, 1]], "the disk of node1 is full")]
    assert not other.has(client.source, 1) and whole(client)


# --- in doubt


def test_a_publisher_learns_which_homes_kept_a_slow_block_and_each_change() -> None:
    mesh = FakeMesh(3)
    homes = [FakeHome(mesh, node, prompt=False) for node in (2, 3)]
    for home in homes:
        made(mesh, home.id, "mail", "t")
    client = StoredClient(mesh)
    for _ in range(3):
        client.publish("t", b"a")
    assert client.pending == []
    client.turn(1.0)
    assert client.pending == [(1, 3, [], ["node2", "node3"])], "one frame for neighbours"
    homes[0].answer(1)
    client.turn(0.5)
    assert client.pending[1:] == [(2, 2, ["node2"], ["node3"])]
    client.turn(3.0)
    assert len(client.pending) == 2, "nothing changed"


def test_a_home_with_a_failed_journal_is_named_at_once_and_asked_again() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    home.answer(how="fail written")
    client.turn(0.5)
    assert client.pending == [(1, 1, [], ["node2"])]
    client.turn(5.5)
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and client.refused == []


def test_a_past_block_is_reported_as_such_and_neither_acknowledged_nor_refused() -> None:
    """An outbox that had lost its record of freed messages on disk sent a block again forever, and everything
    behind it was blocked."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    home.say(Kept.PAST)
    client.turn(100.0)
    assert client.acked == client.refused == [] and home.asked == []
    assert client.past == [(1, 1, ["node2"])]
    assert whole(client) and mesh.nodes[1].exchange.statistics().storing == 0


def test_a_block_that_follows_a_refused_one_of_its_topic_is_refused_after_the_link_is_back() -> None:
    """Later messages of an outbox were stored before those that a link had missed."""
    mesh = FakeMesh(2)
    FakeHome(mesh, 2)
    made(mesh, 2, "mail", "#")
    client = StoredClient(mesh)
    mesh.unlink(1, 2)
    first, second, third, other = (client.seal(topic, b"x") for topic in ("t", "t", "t", "u"))
    client.send(first)
    mesh.link(1, 2)
    client.turn(1.0)
    client.send(second, follows=True)
    client.send(other)
    client.read()
    reasons = {number: reason for ranges, reason in client.refused for number, _ in ranges}
    assert "there is no link" in reasons[first]
    assert reasons[second] == "an earlier message on t was refused"
    assert [ranges for ranges, *_ in client.acked] == [[[other, other]]]
    for number, follows in ((first, False), (second, True), (third, True)):
        client.send(number, again=True, follows=follows)
    client.read()
    assert [ranges for ranges, *_ in client.acked[1:]] == [[[each, each]] for each in (first, second, third)]
    assert not client.errors


def test_a_block_that_is_past_at_one_home_is_past_once_all_others_keep_it() -> None:
    mesh = FakeMesh(3)
    past, home = (FakeHome(mesh, node, prompt=False) for node in (2, 3))
    made(mesh, 2, "mail", "t")
    made(mesh, 3, "log", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    past.say(Kept.PAST)
    home.say(Kept.REFUSED, "the disk is full")
    client.turn(0.5)
    assert client.past == client.refused == [] and client.pending == [(1, 1, [], ["node2", "node3"])]
    client.turn(6.0)
    home.answer()
    client.read()
    assert client.past == [(1, 1, ["node2"])] and client.acked == [] and whole(client)


def test_a_conflict_is_refused_if_no_home_has_kept_it() -> None:
    mesh = FakeMesh(3)
    homes = [FakeHome(mesh, node, prompt=False) for node in (2, 3)]
    for home in homes:
        made(mesh, home.id, "mail", "t" if home.id == 2 else "#")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.publish("t", b"b")
    for home in homes:
        home.say(Kept.CONFLICT)
    homes[0].say(Kept.CONFLICT)
    homes[1].answer()
    client.turn(60.0)
    assert client.refused == [([[1, 1]], "conflict: other messages came under these numbers")]
    assert client.acked == [] and client.pending == [(2, 2, ["node3"], ["node2"])]
    assert homes[0].asked == []


# --- retries


def test_a_retry_shares_the_outcome_of_its_first_copy_in_flight() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    reader = mesh.client(1)
    feed = reader.subscribe("t")
    client = StoredClient(mesh)
    client.publish("t", b"a", b"b")
    client.send(1, again=True)
    assert len(home.asked) == 1 and reader.take(feed) == [("t", b"a"), ("t", b"b")]
    home.answer()
    client.read()
    assert client.acked == [([[1, 2]], [], ["node2"])] and whole(client)
    assert mesh.nodes[1].exchange.statistics().drops == {"duplicate": 2}


def test_a_retry_in_another_session_moves_the_block_there() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a", b"b")
    client.turn(1.0)
    client.lose()
    client.connect(1)
    client.send(1, again=True)
    assert len(home.asked) == 1 and not whole(client)
    client.turn(1.0)
    assert client.pending == [(1, 2, [], ["node2"])], "the new session has not heard yet"
    home.answer()
    client.read()
    assert client.acked == [([[1, 2]], [], ["node2"])] and whole(client)


def test_a_retry_of_an_acknowledged_block_is_acknowledged_again_while_its_home_is_away() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.lose()
    mesh.unlink(1, 2)
    client.connect(1)
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)
    assert len(home.agains) == 1


def test_a_retry_through_another_broker_is_one_block_at_its_home_and_to_live_subscribers() -> None:
    mesh = FakeMesh(3)
    home = FakeHome(mesh, 3, prompt=False)
    made(mesh, 3, "mail", "t")
    reader = mesh.client(3)
    feed = reader.subscribe("t")
    client = StoredClient(mesh, 1)
    client.publish("t", b"a")
    client.lose()
    client.connect(2)
    client.send(1, again=True)
    assert len(home.asked) == 2
    home.answer()
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node3"])]
    assert reader.take(feed) == [("t", b"a")] and len(home.disk) == 1


@pytest.mark.parametrize("when", ["under way", "acknowledged"])
def test_other_messages_under_the_same_numbers_are_a_conflict(when: str) -> None:
    """An outbox that was copied must not be told that its own messages are stored."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=when == "acknowledged")
    made(mesh, 2, "mail", "t")
    client, copy = StoredClient(mesh), StoredClient(mesh)
    copy.pipe, client.pipe = client.pipe, copy.pipe
    copy = StoredClient(mesh)
    client.publish("t", b"a")
    copy.publish("t", b"b")
    assert copy.refused == [([[1, 1]], "conflict: other messages came under these numbers")]
    assert copy.acked == [] and whole(copy)
    if home.asked:
        home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_a_retry_while_the_broker_leaves_is_not_refused_if_a_home_may_have_it() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    mesh.nodes[1].exchange.leave("enough", mesh.now)
    client.send(1, again=True)
    client.publish("t", b"b")
    assert client.refused == [([[2, 2]], "enough")]
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)


def test_blocks_of_an_ended_session_stay_pending_for_a_minute() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.publish("t", b"b")
    client.lose()
    home.answer()
    mesh.turn(1.0)
    assert mesh.nodes[1].exchange.statistics().storing == 1
    mesh.turn(ORPHANED_S)
    statistics = mesh.nodes[1].exchange.statistics()
    assert statistics.storing == 0 and statistics.drops == {"stored_given_up": 1}
    client.connect(1)
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])], "it was kept when nobody listened"


def test_blocks_of_ended_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh.dataplane.stored.ORPHANS_BYTES_MAX", 50_000)
    mesh = FakeMesh(2)
    FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    for _ in range(20):
        client.publish("t", bytes(4000))
    client.lose()
    statistics = mesh.nodes[1].exchange.statistics()
    assert statistics.storing == 9 and statistics.drops == {"stored_given_up": 11}


# --- links


def test_a_new_link_is_offered_unkept_blocks_in_order_before_new_ones() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    ledger = Ledger(mesh, 1)
    client = StoredClient(mesh)
    mesh.slow.add((1, 2))
    for number in range(400):
        client.publish("t", b"%d" % number)
    mesh.unlink(1, 2)
    mesh.slow.clear()
    mesh.link(1, 2)
    client.publish("t", b"new")
    while home.asked:
        home.answer()
    client.read()
    assert [first for _, first in home.disk] == list(range(1, 402))
    assert client.acked == [([[1, 401]], [], ["node2"])] and whole(client)
    ledger.check()


def test_blocks_in_the_backlog_of_an_ended_link_keep_their_credit_and_use_the_next_link() -> None:
    mesh = FakeMesh(2, ExchangeOptions(link_messages=4))
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    ledger = Ledger(mesh, 1)
    client = StoredClient(mesh)
    mesh.held.add((1, 2))
    for _ in range(10):
        client.publish("t", b"a", b"b")
    mesh.unlink(1, 2)
    client.read()
    assert client.credit == 0
    mesh.held.clear()
    mesh.link(1, 2)
    for _ in range(10):
        while home.asked:
            home.answer()
        client.turn(0.5)
    assert sum(last - first + 1 for ranges, _, _ in client.acked for first, last in ranges) == 20
    assert whole(client)
    ledger.check()


def test_an_answer_that_a_link_lost_is_requested_again() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    mesh.slow.add((2, 1))
    home.answer()
    mesh.unlink(1, 2)
    mesh.slow.clear()
    mesh.link(1, 2)
    mesh.pump()
    assert home.agains == [False, True]
    home.answer(how="full")  # it is there already
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_a_home_that_does_not_answer_is_asked_again_with_growing_pauses() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    asked = []
    for second in range(1, 300):
        client.turn(1.0)
        if len(home.asked) > len(asked) + 1:
            asked.append(second)
    assert asked == [5, 15, 35, 75, 135, 195, 255]


def test_all_that_a_home_has_not_answered_is_offered_again_at_once() -> None:
    """Only the first of them was, but the pauses of the others grew as well."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    for body in (b"a", b"b", b"c"):
        client.publish("t", body)
    client.turn(9.0)
    assert home.agains == [False] * 3 + [True] * 3


def test_a_link_that_is_behind_is_not_given_more_copies() -> None:
    mesh = FakeMesh(2, ExchangeOptions(link_messages=1))
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    mesh.slow.add((1, 2))
    client.publish("t", b"a")
    client.publish("t", b"b")
    client.turn(9.0)
    assert mesh.nodes[1].exchange.statistics().queued == 1
    mesh.slow.clear()
    client.turn(0.5)
    assert len(home.asked) == 2


def test_a_home_with_a_removed_subscription_no_longer_counts() -> None:
    mesh = FakeMesh(3)
    homes = [FakeHome(mesh, node, prompt=False) for node in (2, 3)]
    for home in homes:
        made(mesh, home.id, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.publish("t", b"b")
    homes[1].answer()
    removed(mesh, 2, "mail")
    client.read()
    assert client.acked == [([[1, 1]], [], ["node3"])]
    homes[1].say(Kept.UNWANTED)
    client.read()
    assert client.refused == [
        ([[2, 2]], "nobody keeps t; make a durable subscription that matches it")
    ] and whole(client)


def test_another_subscription_that_wants_the_topic_keeps_a_home_in_count() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    made(mesh, 2, "more", "#")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    removed(mesh, 2, "mail")
    client.read()
    assert client.refused == []
    home.answer()
    client.read()
    assert client.acked


# --- large bodies


def test_a_large_body_is_acknowledged_with_its_last_piece_and_its_pieces_give_credit_back_before() -> None:
    mesh = FakeMesh(3, ExchangeOptions(session_bytes=140_000))
    homes = [FakeHome(mesh, node, prompt=False) for node in (1, 3)]
    for home in homes:
        made(mesh, home.id, "mail", "t")
    reader = mesh.client(3)
    feed = reader.subscribe("t")
    client = StoredClient(mesh)
    for frame in client.frames(client.seal("t", bytes(300_000))):
        assert client.acked == [] and client.window.bytes_left > 0
        client.say(frame)
        assert len(homes[0].asked) == len(homes[1].asked) == 1
        for home in homes:
            home.answer()
        client.read()
    assert client.acked == [([[1, 1]], [], ["node1", "node3"])] and whole(client)
    assert [len(body) for _, body in reader.take(feed)] == [300_000]


def test_pieces_that_come_again_by_a_new_link_reach_live_subscribers_at_the_home_once() -> None:
    """Each piece that came twice ended the body for them."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    reader = mesh.client(2)
    feed = reader.subscribe("t")
    client = StoredClient(mesh)
    frames = client.frames(client.seal("t", bytes(300_000)))
    client.say(*frames[:3])
    home.answer()
    mesh.unlink(1, 2)
    home.asked.clear()
    mesh.link(1, 2)
    client.say(*frames[3:])
    while home.asked:
        home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)
    assert [len(body) for _, body in reader.take(feed)] == [300_000]


def test_a_large_body_with_a_refused_piece_is_refused_once_and_as_a_whole() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    frames = client.frames(client.seal("t", bytes(300_000)))
    client.say(*frames[:3])
    home.answer()
    home.answer(how="full")
    client.read()
    client.say(*frames[3:])
    assert client.refused[0] == ([[1, 1]], "home node2: the disk of node2 is full")
    assert len(home.asked) == 1, "no piece is asked for after that"
    assert whole(client) and client.acked == []


def test_a_large_body_that_was_refused_is_stored_when_it_comes_again_in_the_session() -> None:
    """Its pieces were refused for as long as the session lasted: the broker mistook them for the rest of the
    refused copy. So a client that sent a body again after a lost session, while the home was away, got
    Unknown although the home was back."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    mesh.unlink(1, 2)
    first = client.publish("t", bytes(300_000))
    (reason,) = {reason for _, reason in client.refused[:1]}
    assert "there is no link to node2" in reason and not home.disk
    mesh.link(1, 2)
    client.send(first, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])] and home.has(client.source, first)
    assert whole(client)


# --- what peers may say


def test_frames_of_level_stored_break_the_rule_on_a_link_without_the_capability() -> None:
    mesh = FakeMesh(2)
    mesh.unlink(1, 2)
    mesh.durable = False
    mesh.link(1, 2)
    block = blocks.seal(b"t", [b"a"], publisher=9, boot=9, sequence=1, level=STORED)
    for frame in (
        encode(Durable.KEPT, []),
        encode(Durable.LOWEST, 1, 1, 1),
        data_head(0, KEEP, 0, 1, len(block)) + block,
    ):
        with pytest.raises(PeerError):
            mesh.nodes[1].exchange.peer_frames(2, [frame], mesh.now)


@pytest.mark.parametrize("level", [0, 1])
def test_only_blocks_of_level_stored_are_kept(level: int) -> None:
    mesh = FakeMesh(2)
    block = blocks.seal(b"t", [b"a"], publisher=9, boot=9, sequence=1, level=level)
    with pytest.raises(PeerError):
        mesh.nodes[1].exchange.peer_frames(2, [data_head(0, KEEP, 0, 1, len(block)) + block], mesh.now)


def test_a_broken_block_of_another_broker_is_not_kept() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 1)
    block = blocks.seal(b"t", [b"a", b"bb"], publisher=9, boot=9, sequence=1, level=STORED)[:-1]
    with pytest.raises(PeerError):
        mesh.nodes[1].exchange.peer_frames(2, [data_head(0, KEEP, 0, 1, len(block)) + block], mesh.now)
    assert home.agains == []


def test_unexpected_and_late_answers_of_homes_change_nothing() -> None:
    mesh = FakeMesh(3)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    kept = [[*client.source, 1, 1, 0, 0, ""], [*client.source, 5, 5, 0, 0, ""], [1, 2, 3, 3, 9, 4, "no"]]
    mesh.nodes[1].exchange.peer_frames(3, [encode(Durable.KEPT, kept)], mesh.now)
    client.read()
    assert client.acked == [] and client.refused == [], "node 3 is no home of it"
    home.answer()
    for _ in range(3):
        mesh.nodes[1].exchange.peer_frames(2, [encode(Durable.KEPT, kept)], mesh.now)
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)


def test_a_program_cannot_publish_at_level_stored_without_a_client() -> None:
    mesh = FakeMesh(1)
    with pytest.raises(ValueError, match="level stored is for clients"):
        mesh.nodes[1].exchange.publish("t", [b"a"], "stored", mesh.now)


# --- while the interest of others is not known


def test_a_block_that_waits_behind_the_gate_is_stored_when_it_opens() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    exchange = mesh.nodes[1].exchange
    exchange.gate.close()
    client = StoredClient(mesh)
    client.publish("t", b"a")
    made(mesh, 2, "mail", "t")
    assert home.agains == [] and client.refused == []
    exchange.open_gate(mesh.now)
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)


def test_a_retry_of_a_block_behind_a_full_gate_moves_the_block_to_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The retry was refused, and the message was stored later."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    exchange = mesh.nodes[1].exchange
    exchange.gate.close()
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.lose()
    monkeypatch.setattr("mesh.dataplane.gate.COUNT_MAX", 1)
    client.connect(1)
    client.send(1, again=True)
    client.publish("t", b"b")
    assert [ranges for ranges, _ in client.refused] == [[[2, 2]]]
    exchange.open_gate(mesh.now)
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)
    assert len(home.agains) == 1


def test_a_retry_of_a_block_in_flight_is_not_refused_by_a_full_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    exchange = mesh.nodes[1].exchange
    client = StoredClient(mesh)
    client.publish("t", b"a")
    exchange.gate.close()
    monkeypatch.setattr("mesh.dataplane.gate.COUNT_MAX", 0)
    client.send(1, again=True)
    assert client.refused == []
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])] and whole(client)


def test_a_block_behind_the_gate_is_stored_although_its_session_ended() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    exchange = mesh.nodes[1].exchange
    exchange.gate.close()
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.lose()
    exchange.open_gate(mesh.now)
    mesh.pump()
    home.answer()
    mesh.pump()
    client.connect(1)
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])] and len(home.agains) == 1


# --- when something fails


@pytest.mark.parametrize("who", ["a live subscriber", "the home"])
def test_a_block_that_cannot_be_handed_out_returns_its_credit_and_its_retry_is_new(who: str) -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 1)
    made(mesh, 1, "mail", "t")
    reader = mesh.client(1)
    feed = reader.subscribe("t")
    client = StoredClient(mesh)
    exchange = mesh.nodes[1].exchange
    (subscription,) = (
        each for session in exchange._sessions.all() for each in session.subscriptions.values()
    )
    encode_of, keep = subscription.encode, home.keep

    def fails(*given: object) -> None:
        raise MemoryError("no room")

    if who == "the home":
        home.keep = fails  # type: ignore[method-assign]
    else:
        subscription.encode = fails
    with pytest.raises(MemoryError):
        client.publish("t", b"a")
    subscription.encode, home.keep = encode_of, keep  # type: ignore[method-assign]
    assert whole(client) and exchange.statistics().storing == 0
    client.lose()
    client.connect(1)
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node1"])]
    assert reader.take(feed) == [("t", b"a")]


def test_a_late_answer_does_not_acknowledge_other_messages_under_abandoned_numbers() -> None:
    """The home answers for the first messages, and its answer has only their numbers."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.lose()
    mesh.turn(ORPHANED_S + 1.0)
    copy = StoredClient(mesh)
    copy.publish("t", b"b")
    while home.asked:
        home.answer()
    copy.read()
    assert copy.acked == []
    assert copy.refused == [([[1, 1]], "conflict: other messages came under these numbers")]
    copy.lose()
    client.connect(1)
    client.send(1, again=True)
    home.answer()
    client.read()
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_the_time_of_an_orphaned_block_begins_anew_when_its_publisher_is_back() -> None:
    """It had a session again, but what it had left was forgotten a minute after the first session."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.publish("t", b"a")
    client.lose()
    mesh.turn(ORPHANED_S / 2)
    client.connect(1)
    client.turn(ORPHANED_S)
    assert mesh.nodes[1].exchange.statistics().storing == 1
    home.answer()
    client.read()
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])]


def test_unfinished_large_bodies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pieces are at the home, and their credit is back: nothing else bounds them."""
    monkeypatch.setattr("mesh.dataplane.stored.BODIES_MAX", 5)
    mesh = FakeMesh(2)
    FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    for _ in range(20):
        client.say(client.frames(client.seal("t", bytes(200_000)))[0])
    assert mesh.nodes[1].exchange.statistics().storing == 5 and whole(client)
    client.turn(0.5)
    assert mesh.nodes[1].exchange.statistics().drops == {"stored_given_up": 15}
    client.send(1, again=True)
    assert client.acked == [([[1, 1]], [], ["node2"])], "its pieces make a forgotten one known again"


@pytest.mark.parametrize("first", [(1 << 62) - 1, 1 << 62, (1 << 63) - 4])
def test_the_greatest_numbers_that_a_client_may_use_cost_no_link(first: int) -> None:
    """KEPT and LOWEST accepted numbers below 2^62, but a client's block may have greater ones: each broker
    that was told of one dropped the link."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.next = first
    client.publish("t", b"a", b"b", b"c", behind=0)
    assert client.acked == [([[first, first + 2]], [], ["node2"])] and home.lowest == [first]


def test_a_publisher_with_the_greatest_numbers_learns_of_its_pending_blocks() -> None:
    mesh = FakeMesh(2)
    FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    client.next = 1 << 62
    client.publish("t", b"a", behind=0)
    client.turn(1.0)
    assert client.pending == [(1 << 62, 1 << 62, [], ["node2"])]


def test_a_body_in_more_pieces_than_it_needs_costs_the_session() -> None:
    """A home remembers each piece until the body is complete, and searches all of them for each: 100 000 tiny
    pieces of one body stopped its journal for minutes."""
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    named = {"publisher": client.source[0], "boot": client.boot, "sequence": 1, "level": STORED}
    piece = blocks.seal_pieces(b"t", bytes(2 * blocks.SPLIT), **named)[1]
    *front, _, sequence, publisher, boot = blocks.HEAD.unpack_from(piece)
    head = blocks.HEAD.pack(*front, 1, sequence, publisher, boot)
    client.sealed[1] = [head + piece[blocks.HEAD_SIZE : -blocks.SPLIT] + b"x"]
    client.send(1)
    (sentence,) = client.errors
    assert "a piece of 1 bytes at 65024 of a body of 130048 bytes" in sentence and not home.disk


def test_a_client_without_credit_abandons_numbers_and_gets_their_credit_back() -> None:
    mesh = FakeMesh(2)
    home = FakeHome(mesh, 2, prompt=False)
    made(mesh, 2, "mail", "t")
    client = StoredClient(mesh)
    for _ in range(3):
        client.publish("t", b"a", b"b")
    client.say(encode(Durable.LOWEST, *client.source, 5))
    assert not whole(client) and mesh.nodes[1].exchange.statistics().storing == 1
    client.say(encode(Durable.LOWEST, *client.source, 7))
    assert whole(client) and mesh.nodes[1].exchange.statistics().drops == {"stored_given_up": 6}
    for _ in range(3):
        home.answer()
    client.read()
    assert client.acked == [] == client.errors
    client.say(encode(Durable.LOWEST, client.source[0], client.boot + 1, 7))
    assert "another publisher" in client.errors[0]
