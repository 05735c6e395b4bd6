"""A block is kept once, however often and by whatever path it comes, while its publisher may retry it."""

from __future__ import annotations

from pathlib import Path

from mesh.journal.duplicates import FORGET_MAX, SILENT_US
from mesh.journal.journal import Journal
from mesh.journal.records import Done, Store, Verdict
from tests.mesh.journal.journals import NOW_US, bodies, done, opened, sealed, store, subscribed

DAY_US = 24 * 3600 * 1_000_000


def verdict(journal: Journal, entry: Store, now_us: int = NOW_US) -> Verdict:
    return done(journal, entry, now_us=now_us)[0].verdict


def came(journal: Journal) -> int:
    (found,) = journal._db.execute("select count(*) from came").fetchall()
    return int(found[0])


def test_a_retry_is_a_duplicate_within_a_commit_after_a_restart_and_after_settlement(
    tmp_path: Path,
) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    one, two = done(journal, store(1, mail, count=3), store(1, mail, count=3))
    assert (one.verdict, two.verdict) == (Verdict.STORED, Verdict.DUPLICATE)
    journal.close()
    journal = opened(tmp_path)
    assert verdict(journal, store(1, mail, count=3)) is Verdict.DUPLICATE
    done(journal, Done(mail, one.row))
    assert verdict(journal, store(1, mail, count=3)) is Verdict.DUPLICATE
    assert bodies(journal, mail) == []
    journal.close()


def test_other_messages_under_the_same_numbers_are_a_conflict(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(10, mail, count=5))
    for wrong in (
        store(10, mail, count=5, body=b"other"),
        store(10, mail, count=4),
        store(10, mail, count=6),
        store(8, mail, count=3),
        store(14, mail, count=1),
        store(12, mail, count=1),
        store(5, mail, count=50),
    ):
        assert verdict(journal, wrong) is Verdict.CONFLICT
    assert verdict(journal, store(9, mail)) is Verdict.STORED
    assert verdict(journal, store(15, mail)) is Verdict.STORED
    journal.close()


def test_publishers_and_their_boots_are_distinguished(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    highest = (1 << 64) - 1
    for publisher, boot in ((1, 1), (1, 2), (2, 1), (highest, highest), (1 << 63, 0)):
        assert verdict(journal, store(1, mail, publisher=publisher, boot=boot)) is Verdict.STORED
        assert verdict(journal, store(1, mail, publisher=publisher, boot=boot)) is Verdict.DUPLICATE
    journal.close()


def test_numbers_below_the_publishers_lowest_are_forgotten_and_refused_as_past(tmp_path: Path) -> None:
    """A copy that another broker still had came after its numbers were forgotten, and was kept twice."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    for number in range(1, 101):
        done(journal, store(number, mail, lowest=max(1, number - 10)))
    assert came(journal) == 11
    assert verdict(journal, store(95, mail)) is Verdict.DUPLICATE
    assert verdict(journal, store(5, mail)) is Verdict.PAST
    journal.close()
    journal = opened(tmp_path)
    assert verdict(journal, store(5, mail)) is Verdict.PAST
    assert len(bodies(journal, mail)) == 100
    journal.close()


def test_a_block_that_begins_below_the_lowest_number_is_always_past(tmp_path: Path) -> None:
    """The verdict depended on whether the commit that raised the mark had already forgotten the numbers."""
    for in_one_commit in (True, False):
        folder = tmp_path / str(in_one_commit)
        folder.mkdir()
        journal = opened(folder)
        mail = subscribed(journal)
        done(journal, store(18, mail, count=2))
        entries = [store(30, mail, lowest=20), store(19, mail, count=3)]
        batches = [entries] if in_one_commit else [[entry] for entry in entries]
        answers = [answer for batch in batches for answer in journal.commit(batch, NOW_US)]
        assert [answer.verdict for answer in answers] == [Verdict.STORED, Verdict.PAST]
        journal.close()


def test_a_publisher_cannot_give_up_the_block_that_it_sends(tmp_path: Path) -> None:
    """A ``lowest`` above a block's own numbers would forget the block with its commit."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    assert verdict(journal, store(5, mail, lowest=1 << 62)) is Verdict.STORED
    assert verdict(journal, store(5, mail)) is Verdict.DUPLICATE
    assert verdict(journal, store(6, mail)) is Verdict.STORED
    journal.close()


def test_a_claimed_publisher_makes_blocks_fail_and_never_vanish(tmp_path: Path) -> None:
    """Another client's block with high numbers made the real publisher's first block a duplicate:
    acknowledged, and lost."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    forged = store(1 << 40, mail, lowest=1 << 40)
    assert verdict(journal, forged) is Verdict.STORED
    assert verdict(journal, store(1, mail)) is Verdict.PAST
    assert verdict(journal, store(1 << 40, mail, body=b"real")) is Verdict.CONFLICT
    journal.close()


def test_one_commit_forgets_a_bounded_number_of_blocks(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *(store(number, mail) for number in range(1, 1001)))
    left = came(journal)
    for number in range(1001, 1010):
        done(journal, store(number, mail, lowest=number))
        assert left - came(journal) <= FORGET_MAX
        left = came(journal)
    assert left == 1
    assert verdict(journal, store(500, mail)) is Verdict.PAST
    journal.close()


def test_a_publisher_silent_for_seven_days_is_forgotten_in_bounded_steps(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    for publisher in range(1, 21):
        done(journal, *(store(number, mail, publisher=publisher) for number in range(1, 301)))
    later = NOW_US + SILENT_US - 1
    for day in range(1, 21):
        done(journal, store(400, mail, publisher=7), now_us=min(NOW_US + day * DAY_US, later))
    assert came(journal) == 20 * 300 + 1
    steps = 0
    left = came(journal)
    while came(journal) > 301:
        done(journal, now_us=later + 1)
        assert left - came(journal) <= FORGET_MAX
        left = came(journal)
        steps += 1
        assert steps < 100
    assert verdict(journal, store(1, mail, publisher=7), later + 1) is Verdict.DUPLICATE
    assert verdict(journal, store(1, mail, publisher=8), later + 1) is Verdict.STORED
    journal.close()


def test_a_clock_that_leaps_forward_forgets_no_publisher(tmp_path: Path) -> None:
    """The retry of a live publisher was stored a second time."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail, publisher=7))
    wrong = NOW_US + 400 * DAY_US
    for number in range(1, 12):
        done(journal, store(number, mail, publisher=8), now_us=wrong + number)
    assert verdict(journal, store(1, mail, publisher=7), wrong + 20) is Verdict.DUPLICATE
    for number in range(12, 30):  # it goes back and forth
        done(journal, store(number, mail, publisher=8), now_us=(NOW_US, wrong)[number % 6 == 0] + number)
    assert verdict(journal, store(1, mail, publisher=7), NOW_US) is Verdict.DUPLICATE
    journal.close()


def test_the_time_in_which_a_home_was_away_is_no_silence_of_its_publishers(tmp_path: Path) -> None:
    """A home that was away for a week forgot all who waited for it."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail, publisher=7))
    journal.close()
    journal = opened(tmp_path)
    back = NOW_US + 30 * DAY_US
    for number in range(1, 12):
        done(journal, store(number, mail, publisher=8), now_us=back + number)
    assert verdict(journal, store(1, mail, publisher=7), back + 20) is Verdict.DUPLICATE
    journal.close()


def test_silence_is_measured_across_restarts(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail, publisher=7))
    for hour in range(1, 24 * 8):
        done(journal, store(hour, mail, publisher=8), now_us=NOW_US + hour * DAY_US // 24)
        if hour % 5 == 0:
            journal.close()
            journal = opened(tmp_path)
    assert verdict(journal, store(1, mail, publisher=7), NOW_US + 8 * DAY_US) is Verdict.STORED
    journal.close()


def test_a_clock_that_goes_back_forgets_no_publisher(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail))
    for _ in range(10):
        done(journal, now_us=1)
    assert verdict(journal, store(1, mail), 1) is Verdict.DUPLICATE
    assert sealed(1) == store(1, mail).block
    journal.close()
