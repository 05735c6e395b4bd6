"""The chain of hashes: it does not depend on how often it is read, and differs where runs differ."""

from __future__ import annotations

import hashlib

from simulations.kernel.history import CHECKPOINT_LINES, History, first_difference


def filled(lines: int, *, keep: bool = False, asked_every: int = 0, other_from: int | None = None) -> History:
    history = History(keep=keep)
    for number in range(lines):
        other = other_from is not None and number >= other_from
        history.record(number, "broker-1", "turn", "x" if other else "y")
        if asked_every and not number % asked_every:
            assert history.digest and history.lines == number + 1
    return history


def test_the_digest_is_the_hash_of_all_lines() -> None:
    history = filled(2500)
    text = "".join(f'[{number},"broker-1","turn","y"],' for number in range(2500))
    assert history.digest == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert history.lines == 2500 and history.counts == {"turn": 2500}


def test_reading_the_digest_during_a_run_changes_neither_it_nor_the_checkpoints() -> None:
    plain, asked = filled(3 * CHECKPOINT_LINES + 7), filled(3 * CHECKPOINT_LINES + 7, asked_every=13)
    assert asked.digest == plain.digest
    assert asked.checkpoints == plain.checkpoints and len(plain.checkpoints) == 3
    assert plain.checkpoints[1] == filled(2 * CHECKPOINT_LINES).digest


def test_kept_lines_are_all_of_them_at_any_time() -> None:
    history = filled(1234, keep=True)
    assert history.kept is not None and len(history.kept) == 1234
    history.record(5000, "world", "fault", "crash broker-1")
    assert history.kept[-1] == "5000|world|fault|crash broker-1\n"
    assert filled(3).kept is None


def test_a_line_that_is_noted_is_one_that_is_recorded() -> None:
    recorded, noted = History(keep=True), History(keep=True)
    for number in range(CHECKPOINT_LINES + 5):
        recorded.record(number, "broker-1", "data", "7>", 90)
        noted.note((number, "broker-1", "data", "7>", 90))
    assert noted.lines == recorded.lines == CHECKPOINT_LINES + 5
    assert noted.digest == recorded.digest and noted.checkpoints == recorded.checkpoints
    assert noted.kept == recorded.kept and recorded.kept is not None
    assert recorded.kept[1] == "1|broker-1|data|7>|90\n"


def test_two_runs_diverge_where_they_differ() -> None:
    lines = 2 * CHECKPOINT_LINES + 500
    assert first_difference(filled(lines), filled(lines)) is None
    assert first_difference(filled(lines), filled(lines, other_from=1500)) == "between lines 1001 and 2000"
    found = first_difference(filled(lines, keep=True), filled(lines, keep=True, other_from=1500))
    assert found == "line 1501: '1500|broker-1|turn|y' against '1500|broker-1|turn|x'"
