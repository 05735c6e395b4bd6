"""The answers for blocks to keep are true, whatever the disk does and however often a block comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.dataplane import keeping
from mesh.errors import StorageError
from mesh.wire import blocks
from mesh.wire.durable_frames import Durable, Kept
from tests.mesh.dataplane.homes import World

KEPT = [(Kept.KEPT, "")]
BODY = bytes(range(256)) * 800


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.client().attach("mail", "jobs.#", window=1)
    return world


def pieces(sequence: int, body: bytes = BODY) -> list[bytes]:
    return blocks.seal_pieces(b"jobs.big", body, publisher=5, boot=3, sequence=sequence, level=blocks.STORED)


def kinds(said: list[tuple[Kept, str]]) -> list[Kept]:
    return [kept for kept, _ in said]


def test_the_blocks_of_one_turn_share_a_commit(world: World) -> None:
    before = world.journal.commits
    said = [world.keep(b"%d" % number, pump=False) for number in range(5)]
    world.pump()
    assert said == [KEPT] * 5 and world.journal.commits == before + 1


def test_a_turn_with_much_in_it_is_several_submissions(world: World) -> None:
    """A submission is part of one commit, and a commit of everything in one read would take long."""
    size, count = 60_000, 2 * keeping.TOGETHER_BYTES_MAX // 60_000
    for number in range(count):
        world.keep(bytes(size), first=number + 1, pump=False)
    world.turn()
    assert len(world.journal.jobs) == 2
    world.pump()
    assert len(world.rows()) == count


def test_a_retry_during_the_commit_shares_its_outcome(world: World) -> None:
    said = [world.keep(b"one", first=1, pump=False) for _ in range(3)]
    world.turn()
    assert len(world.journal.jobs) == 1
    said += [world.keep(b"one", first=1, pump=False)]
    world.turn()
    assert len(world.journal.jobs) == 1
    world.pump()
    assert said == [KEPT] * 4 and len(world.rows()) == 1


def test_a_retry_that_shares_a_commit_that_fails_is_not_acknowledged(world: World) -> None:
    said = [world.keep(b"one", first=1, pump=False) for _ in range(2)]
    world.journal.failing = True
    world.pump()
    assert [kinds(each) for each in said] == [[Kept.DOUBT]] * 2


def test_other_messages_under_the_same_numbers_are_a_conflict_also_during_the_commit(world: World) -> None:
    said = [world.keep(b"one", first=1, pump=False), world.keep(b"two", first=1, pump=False)]
    world.pump()
    assert said == [KEPT, [(Kept.CONFLICT, "")]]
    assert world.keep(b"three", first=1) == [(Kept.CONFLICT, "")]


def test_a_block_below_its_publishers_lowest_number_is_past(world: World) -> None:
    assert world.keep(b"five", first=5, lowest=5) == KEPT
    assert world.keep(b"four", first=4) == [(Kept.PAST, "")]


def test_a_full_disk_refuses_new_blocks_and_recognises_kept_ones(world: World) -> None:
    """It also refused a retry of a block on disk: its publisher was told that certainly nobody has it."""
    large = pieces(50)
    assert world.keep(b"one", first=1) == KEPT
    assert world.keep_block(large[0], 50, 1) == [(Kept.PART, "")]
    world.journal.full = True
    said = [world.keep(b"one", first=1, pump=False), world.keep(b"two", first=2, pump=False)]
    said += [world.keep(b"other", first=1, pump=False), world.keep_block(large[0], 50, 1, pump=False)]
    world.pump()
    assert [kinds(each) for each in said] == [[Kept.KEPT], [Kept.REFUSED], [Kept.CONFLICT], [Kept.PART]]
    assert said[1][0][1] == "the disk is full"
    world.journal.full = False
    assert world.keep(b"two", first=2) == KEPT


def test_a_full_disk_that_cannot_be_read_leaves_the_block_in_doubt(world: World) -> None:
    world.journal.full = world.journal.unreadable = True
    assert kinds(world.keep(b"one", first=1)) == [Kept.DOUBT]
    assert kinds(world.keep(b"one", first=1)) == [Kept.DOUBT], "an earlier copy may be there"


@pytest.mark.parametrize("written", [True, False])
def test_blocks_of_a_failed_commit_are_in_doubt_until_a_restart_and_all_others_refused(
    world: World, written: bool
) -> None:
    world.journal.failing, world.journal.kept = True, written
    assert world.keep(b"one", first=1) == [(Kept.DOUBT, "the disk failed")]
    for _ in range(3):
        assert kinds(world.keep(b"one", first=1)) == [Kept.DOUBT]
    assert world.keep(b"two", first=2) == [(Kept.REFUSED, "the disk failed")]
    assert kinds(world.keep(b"three", first=3, again=True)) == [Kept.DOUBT], "an earlier run may have it"
    assert world.failures == ["the disk failed"], "operators are told once"

    world = world.restart()
    assert len(world.rows()) == written
    assert world.keep(b"one", first=1) == KEPT
    assert len(world.rows()) == 1


def test_blocks_that_wait_for_a_failed_journal_are_never_acknowledged(world: World) -> None:
    first = world.keep(b"one", first=1, pump=False)
    world.turn()
    second = world.keep(b"two", first=2, pump=False)
    world.journal.failing = True
    world.journal.step()
    third = world.keep(b"three", first=3, pump=False)
    world.pump()
    assert [kinds(first), kinds(second)] == [[Kept.DOUBT], [Kept.REFUSED]]
    assert kinds(third) == [Kept.REFUSED]


def test_blocks_beyond_the_limit_of_waiting_bytes_are_refused_with_a_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(entries: object, told: object) -> None:
        raise StorageError("70000000 bytes of blocks wait for the journal; the disk does not keep up")

    with monkeypatch.context() as patch:
        patch.setattr(world.journal, "submit", submit)
        ((kept, sentence),) = world.keep(b"one", first=1)
        assert kept is Kept.REFUSED and "does not keep up" in sentence
        status = world.home.journal_status()
        assert status.refused == 1 and world.home.notices(0.0) == [], "the disk has room"
    assert world.keep(b"one", first=1) == KEPT
    with monkeypatch.context() as patch:
        patch.setattr(world.journal, "submit", submit)
        assert world.keep(b"one", first=1, again=True) == KEPT, "it was refused, as a new block"
        assert kinds(world.keep(b"other", first=1)) == [Kept.CONFLICT]


def test_a_retry_that_a_failed_journal_was_not_given_is_in_doubt(world: World) -> None:
    """It was refused, though an earlier copy of it was kept."""
    assert world.keep(b"one", first=1) == KEPT
    world.keep(b"two", first=2, pump=False)
    world.turn()
    retry = world.keep(b"one", first=1, again=True, pump=False)
    shared = [world.keep(b"three", first=3, again=again, pump=False) for again in (False, True)]
    new = world.keep(b"four", first=4, pump=False)
    world.journal.failing = True
    world.journal.step()
    world.pump()
    assert kinds(retry) == [Kept.DOUBT] and kinds(new) == [Kept.REFUSED]
    assert [kinds(each) for each in shared] == [[Kept.DOUBT]] * 2


def test_a_large_body_is_kept_with_its_last_piece_in_any_order(world: World) -> None:
    parts = pieces(9)
    said = [world.keep_block(part, 9, 1, offset=n) for n, part in reversed(list(enumerate(parts)))]
    assert said == [[(Kept.PART, "")]] * (len(parts) - 1) + [KEPT]
    (row,) = world.rows()
    assert len(row.parts) == len(parts)


def test_a_piece_that_cannot_be_read_is_refused_and_harms_no_other(world: World) -> None:
    """It made the commit fail for every block in it."""
    broken = pieces(9)[0][:80]
    said = [world.keep_block(broken, 9, 1, pump=False), world.keep(b"one", first=1, pump=False)]
    world.pump()
    assert [kinds(each) for each in said] == [[Kept.REFUSED], [Kept.KEPT]]


def test_a_subscription_removed_during_the_commit_keeps_nothing(world: World) -> None:
    gone: list[str] = []
    world.home.remove("mail", gone.append)
    assert world.keep(b"one", first=1) == [(Kept.UNWANTED, "")]
    assert gone == [""] and world.keep(b"one", first=1) == [(Kept.UNWANTED, "")]


def test_ten_thousand_subscriptions_to_other_topics_do_not_slow_a_block(tmp_path: Path) -> None:
    world = World(tmp_path)
    worker = world.client()
    worker.attach("mail", "jobs.#")
    for number in range(2, 1_002):
        worker.tell(Durable.ATTACH, number, f"other{number}", [f"other.{number}.*"], 1, 1)
    world.pump()
    trie = world.home._durables._trie
    world.keep(b"one")
    steps = trie.steps
    for _ in range(1000):
        world.keep(b"two", pump=False)
    world.pump()
    assert trie.steps == steps, "a known topic is not looked up again"
    assert sum(durable.queue is not None for durable in world.home._durables.by_id.values()) == 1_001
    assert len(worker.work) == 16


def test_the_cache_of_topics_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh.dataplane.durables.CACHE_BYTES_MAX", 5_000)
    for number in range(500):
        assert world.home._durables.wanting(b"jobs.%d" % number)
        assert len(world.home._durables._wanting) < 26
