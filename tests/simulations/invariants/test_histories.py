"""Every check holds on a right history, and fires when its subject is spoilt by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mesh.identity import format_id
from mesh.membership import State
from simulations.evidence import Evidence, Life, Stream
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants import ALL, CHECKS, judge
from simulations.ledger import Answered, Outcome, Receipt
from simulations.scenario import Scenario, Workload
from tests.simulations.invariants.histories import (
    BACK_S,
    SECOND_BOOT,
    Log,
    expectation,
    judged,
    record,
    right_history,
    with_view,
    with_views,
)

ONE, TWO, THREE = "broker-1", "broker-2", "broker-3"
AGAIN = {"boot": SECOND_BOOT, "inc": 3}


def row_of(evidence: Evidence, **fields: Any) -> dict[str, Any]:
    """The first row with these fields."""
    for row in evidence.rows:
        if all(row.get(name) == value for name, value in fields.items()):
            return dict(row)
    raise AssertionError(f"no row has {fields}")


def without(evidence: Evidence, **fields: Any) -> None:
    """Take a row out."""
    evidence.rows.remove(row_of(evidence, **fields))


# --- right


def test_a_right_history_passes_every_check_that_is_asked_of_every_run() -> None:
    verdicts = judge(right_history())
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    asked = {check.name for check in ALL if check.default}
    assert {verdict.check for verdict in verdicts} == asked - {"foreign_input_is_harmless"}
    assert all(verdict.count > 0 for verdict in verdicts)


@pytest.mark.parametrize("check", [check.name for check in ALL])
def test_a_check_that_has_nothing_to_look_at_fails_when_it_is_asked_for(check: str) -> None:
    nothing = Evidence(Scenario("nothing"))
    verdict = CHECKS[check].judge(nothing)
    assert not verdict.ok and verdict.count == 0
    assert expectation(check).check in [
        each.check for each in judge(nothing, [expectation(check)]) if not each.ok
    ]


def test_a_check_of_every_run_whose_subject_did_not_occur_is_silent_unless_it_is_asked_for() -> None:
    evidence = right_history()
    evidence.lives = [replace(life, ended_s=None, how="") for life in evidence.lives]
    assert "leaves_are_seen" not in [verdict.check for verdict in judge(evidence)]
    asked = judge(evidence, [expectation("leaves_are_seen")])
    assert asked[-1].violations == ("there is no leave seen by another to look at",)


def test_a_mesh_with_clients_must_have_delivered_something() -> None:
    evidence = right_history()
    evidence.ledger.receipts.clear()
    failed = [verdict.check for verdict in judge(evidence) if not verdict.ok]
    assert failed == ["at_most_once", "in_order", "genuine", "complete"]
    evidence.scenario = replace(evidence.scenario, workload=Workload(publishers=0))
    assert all(verdict.ok for verdict in judge(evidence))


def test_a_mesh_that_was_never_whole_is_told_once() -> None:
    evidence = right_history()
    del evidence.phases["held_s"]
    assert [verdict.check for verdict in judge(evidence) if not verdict.ok] == ["converged"]


def test_an_expectation_takes_the_place_of_the_check_that_is_asked_of_every_run() -> None:
    verdicts = judge(right_history(), [expectation("M7", within_s=1.0)])
    assert [verdict.check for verdict in verdicts].count("detected") == 1
    assert not verdicts[-1].ok and verdicts[-1].check == "detected"


# --- spoilt


def _dead_at_rest(evidence: Evidence) -> None:
    with_view(evidence, 18.0, ONE, table=(record(ONE), record(TWO, State.DEAD), record(THREE, incarnation=3)))


def _absent_at_rest(evidence: Evidence) -> None:
    for index, sample in enumerate(evidence.samples):
        if sample.at_s == 18.0:
            views = {name: view for name, view in sample.views.items() if name != TWO}
            evidence.samples[index] = replace(sample, views=views)


def _never_started(evidence: Evidence) -> None:
    evidence.scenario = replace(evidence.scenario, brokers=4)


def _never_whole(evidence: Evidence) -> None:
    del evidence.phases["held_s"]
    with_view(evidence, 16.0, THREE, table=(record(THREE),))


def _two_digests(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, digest=b"something else")


def _older_record(evidence: Evidence) -> None:
    table = (record(ONE), record(TWO), record(THREE, State.ALIVE))
    with_view(evidence, 14.0, ONE, table=table)


def _older_row(log: Log) -> None:
    log.member(ONE, 12.0, THREE, "alive>dead", sub_inc=2)


def _foreign_incarnation(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, table=(record(ONE), record(TWO, incarnation=2)))


def _dead_to_itself(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, table=(record(ONE, State.DEAD),))


def _suspects_without_answer(evidence: Evidence) -> None:
    accused = record(THREE, State.SUSPECT, 3, SECOND_BOOT)
    for at_s in (25.0, 26.0):
        with_view(evidence, at_s, TWO, table=(record(TWO), accused))


def _not_noticed(evidence: Evidence) -> None:
    without(evidence, node=format_id(1), to_state="dead")


def _noticed_late(evidence: Evidence) -> None:
    for index, row in enumerate(evidence.rows):
        if row.get("to_state") == "dead" and row["node"] == format_id(1):
            evidence.rows[index] = {**row, "at_s": 10.5}


def _false_death(log: Log) -> None:
    log.member(ONE, 22.0, TWO, "alive>dead")


def _false_death_heard(log: Log) -> None:
    log.member(ONE, 22.0, TWO, "alive>dead", via=THREE)


def _void_accusation(log: Log) -> None:
    log.member(ONE, 9.5, TWO, "alive>suspect")


def _void_instant(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, void_at=5.1)


def _rumoured_leave(log: Log) -> None:
    log.member(ONE, 12.0, TWO, "alive>left", via=THREE)


def _redialled(log: Log) -> None:
    log.link(TWO, 26.0, ONE, "up")


def _leave_unseen(evidence: Evidence) -> None:
    without(evidence, node=format_id(2), to_state="left", subject=format_id(1))


def _leave_taken_for_death(log: Log) -> None:
    log.member(TWO, 25.0, ONE, "left>dead")


def _returned_without_incarnation(evidence: Evidence) -> None:
    for sample in list(evidence.rest):
        table = (record(ONE), record(TWO), record(THREE, boot=SECOND_BOOT))
        with_view(evidence, sample.at_s, ONE, table=table)


def _returned_as_two(evidence: Evidence) -> None:
    for sample in list(evidence.rest):
        table = (
            record(ONE),
            record(TWO),
            record(THREE, State.ALIVE, 3, SECOND_BOOT),
            replace(record(THREE), id=9),
        )
        with_view(evidence, sample.at_s, ONE, table=table)


def _welcomed_twice(log: Log) -> None:
    log.member(ONE, 11.4, THREE, "alive>alive", sub_inc=3, sub_boot=13)
    log.member(ONE, 11.6, THREE, "alive>alive", sub_inc=4, sub_boot=SECOND_BOOT)


def _one_link_too_many(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, links=(2, 3, 4))


def _one_ended_link(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, links=(3,))


def _apart(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, links=())
        with_view(evidence, at_s, TWO, links=(3,))
        with_view(evidence, at_s, THREE, links=(2,))


def _chatter(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, counters={"control_out": 1000})


def _too_many_members(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, sizes={"members": 4})


def _something_waits(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, sizes={"members": 3, "questions": 2})


def _raised_from_the_dead(log: Log) -> None:
    log.member(ONE, 8.0, THREE, "dead>alive", sub_inc=1)
    log.member(ONE, 8.5, THREE, "alive>dead", sub_inc=1)


def _forgotten_dead(log: Log) -> None:
    log.member(ONE, 8.0, THREE, "unknown>alive", sub_inc=2)


def _broken_chain(log: Log) -> None:
    log.member(ONE, 23.0, TWO, "suspect>alive")


def _joined_twice(log: Log) -> None:
    log.member(ONE, 23.0, TWO, "unknown>alive")


def _twice(evidence: Evidence) -> None:
    first = evidence.ledger.receipts[0]
    evidence.ledger.receipts.append(replace(first, at_s=9.0))


def _swapped(evidence: Evidence) -> None:
    receipts = evidence.ledger.receipts
    orders = [index for index, each in enumerate(receipts) if each.topic == "orders"]
    receipts[orders[0]], receipts[orders[1]] = receipts[orders[1]], receipts[orders[0]]


def _receipt(**changes: Any) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        evidence.ledger.receipts[0] = replace(evidence.ledger.receipts[0], **changes)

    return spoil


def _in_quiet(evidence: Evidence) -> Receipt:
    return next(each for each in evidence.ledger.receipts if each.at_s > 17)


def _lost(evidence: Evidence) -> None:
    evidence.ledger.receipts.remove(_in_quiet(evidence))


def _slow(evidence: Evidence) -> None:
    receipt = _in_quiet(evidence)
    evidence.ledger.receipts[evidence.ledger.receipts.index(receipt)] = replace(
        receipt, at_s=receipt.at_s + 7
    )


def _not_accepted(evidence: Evidence) -> None:
    evidence.ledger.publications[_in_quiet(evidence).body].outcome = Outcome.UNKNOWN


def _no_quiet_time(evidence: Evidence) -> None:
    del evidence.phases["quiet_from_s"]


def _interest_missed(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, held={2: (2, (("#", 0), ("x", 0))), 3: (2, (("#", 0),))})


def _interest_behind(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, held={2: (1, (("#", 0),)), 3: (2, (("#", 0),))})


def _answer_twice(log: Log) -> None:
    log.answer(ONE, 10.7, TWO, 10)


def _answer_late(log: Log) -> None:
    log.answer(ONE, 2.9, THREE, 2, rtt_us=900_000)


def _survey(**changes: Any) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        for name, value in changes.items():
            setattr(evidence.ledger.questions[0], name, value)

    return spoil


def _failed(evidence: Evidence) -> None:
    evidence.failures.append("at 1.000000 s broker-1: main ended by an exception: ValueError: no")


def _escaped(evidence: Evidence) -> None:
    evidence.escapes += ["time.time was called"] * 2


def _leak(what: str) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        sizes = {"sockets": 6, "tasks": 5, "timers": 9}
        with_view(evidence, 22.0, ONE, sizes={**sizes, what: 30})

    return spoil


def _stream(sent: int, received: int) -> Callable[[Evidence], None]:
    return lambda evidence: evidence.streams.append(Stream("2> from broker-1 to broker-3", sent, received))


EVIDENCE_SPOILT: list[tuple[str, Callable[[Evidence], None], str]] = [
    ("converged", _dead_at_rest, "broker-1 does not see broker-2 alive at 18.0 s"),
    ("converged", _absent_at_rest, "broker-2 is not up at 18.0 s"),
    ("converged", _absent_at_rest, "broker-1 sees broker-2 alive at 18.0 s, which is not"),
    ("converged", _never_started, "broker-4 is not up"),
    ("converged", _never_whole, "broker-3 does not see"),
    ("one_digest", _two_digests, "at 18.0 s the digests differ"),
    (
        "records_only_grow",
        _older_record,
        "broker-1 held broker-3 as alive of incarnation 3 at 13.0 s and as alive",
    ),
    ("only_owners_raise", _foreign_incarnation, "broker-1 holds incarnation 2 of broker-2 at 12.0 s"),
    ("answers_accusations", _dead_to_itself, "broker-1 holds itself dead at 12.0 s"),
    ("answers_accusations", _suspects_without_answer, "broker-3 left it unanswered that broker-2"),
    ("detected", _not_noticed, "broker-1 did not call broker-3 dead within 4.5 s"),
    ("detected", _noticed_late, "but only after 6.50 s"),
    (
        "void_rounds_accuse_nobody",
        _void_instant,
        "broker-1 called broker-3 suspect at 5.100 s, in a round that was void",
    ),
    ("leaves_are_seen", _leave_unseen, "broker-2 holds broker-1 alive 2 s after it left at 24.000 s"),
    (
        "restarts_are_one_member",
        _returned_without_incarnation,
        "broker-1 holds incarnation 1 of broker-3, which had 1",
    ),
    (
        "restarts_are_one_member",
        _returned_as_two,
        "broker-1 holds alive of incarnation 3, alive of incarnation 1 of",
    ),
    ("degree", _one_link_too_many, "broker-1 has 3 links at 12.0 s, more than 2"),
    ("degree", _one_ended_link, "broker-1 has 1 links, fewer than 2"),
    ("degree", _one_ended_link, "broker-2 has a link to broker-1, which has none to it"),
    ("connected", _apart, "no way of links leads from broker-1 to broker-2, broker-3 at 18.0 s"),
    ("no_storm", _chatter, "broker-1 said"),
    ("memory_bounded", _too_many_members, "broker-1 holds 4 members at 12.0 s, more than 3"),
    ("memory_bounded", _something_waits, "broker-1 still holds 2 questions after all is well"),
    ("at_most_once", _twice, "and again at 9.000 s"),
    ("in_order", _swapped, "sub-1 got number 0 of pub-1 on orders after number 2"),
    ("genuine", _receipt(body=b"pub-1/1/0/fillex"), "nobody published"),
    ("genuine", _receipt(body=b""), "nobody published"),
    ("genuine", _receipt(topic="news.uk"), "published on orders"),
    ("genuine", _receipt(at_s=0.5), "before it was published"),
    ("genuine", _receipt(subscriber="sub-2"), "had not subscribed"),
    ("genuine", _receipt(life=7), "had not subscribed"),
    ("complete", _lost, "never got number"),
    ("complete", _slow, "only 7.00 s later"),
    ("complete", _not_accepted, "is unknown in a time without faults"),
    ("complete", _no_quiet_time, "there was no quiet time"),
    ("interest_known", _interest_missed, "broker-1 does not hold what broker-2 wants at 18.0 s"),
    ("interest_known", _interest_behind, "broker-1 does not hold what broker-2 wants at 22.0 s"),
    ("answers_count_once", _survey(answers=[Answered("x", "question 1", 5.1)] * 2), "question 1 twice"),
    (
        "answers_count_once",
        _survey(answers=[Answered("x", "question 0", 5.1)]),
        "which was one to question 0",
    ),
    ("answers_count_once", _survey(answers=[Answered("x", "question 1", 6.1)]), "after the survey was over"),
    ("surveys_return", _survey(ended_s=6.2), "returned after 1.200 s; it had 1 s"),
    ("surveys_return", _survey(ended_s=None), "returned never"),
    ("sound", _failed, "main ended by an exception: ValueError: no"),
    ("sound", _escaped, "time.time was called"),
    ("no_leaks", _leak("sockets"), "broker-1 has 30 sockets at rest, and had 6"),
    ("no_leaks", _leak("tasks"), "30 tasks"),
    ("no_leaks", _leak("timers"), "30 timers"),
    ("repeatable", lambda evidence: evidence.hashes.append(("a third", "abd")), "a third has history abd"),
    ("bytes_conserved", _stream(10, 12), "12 bytes came of 10 that were sent"),
    ("bytes_conserved", _stream(10, 8), "2 of 10 bytes vanished, though it did not break"),
]


@pytest.mark.parametrize(("check", "spoil", "sentence"), EVIDENCE_SPOILT)
def test_a_check_finds_what_was_spoilt(check: str, spoil: Callable[[Evidence], None], sentence: str) -> None:
    assert judged(right_history(), check).ok
    evidence = right_history()
    spoil(evidence)
    violations = judged(evidence, check).violations
    assert any(sentence in violation for violation in violations), violations


LOG_SPOILT: list[tuple[str, Callable[[Log], None], str]] = [
    ("records_only_grow", _older_row, "broker-1 went from alive of incarnation 3 of broker-3 back to dead"),
    (
        "no_false_deaths",
        _false_death,
        "broker-1 called broker-2 dead at 22.000 s (by hand), to which nothing was done",
    ),
    ("no_false_deaths", _false_death_heard, "broker-1 called broker-2 dead at 22.000 s"),
    ("void_rounds_accuse_nobody", _void_accusation, "broker-1 called broker-2 suspect at 9.500 s"),
    (
        "left_by_own_word",
        _rumoured_leave,
        "broker-1 holds that broker-2 left at 12.000 s, which never said so",
    ),
    ("left_by_own_word", _redialled, "broker-2 dialled broker-1 at 26.000 s, which had left"),
    ("leaves_are_seen", _leave_taken_for_death, "broker-2 called broker-1 dead, which left at 24.000 s"),
    ("restarts_are_one_member", _welcomed_twice, "broker-1 welcomed broker-3 2 times in one run of it"),
    ("no_resurrection", _raised_from_the_dead, "incarnation 1 raised it at 8.000 s"),
    ("no_resurrection", _forgotten_dead, "had forgotten it 0.9 s later"),
    ("changes_follow", _broken_chain, "broker-2 went from suspect to alive at 23.000 s, when it was alive"),
    ("changes_follow", _joined_twice, "told twice that broker-2 joined"),
    ("answers_count_once", _answer_twice, "the answer of broker-2 to round 10 of broker-1 was counted twice"),
    ("answers_count_once", _answer_late, "was counted after 0.900 s"),
]


@pytest.mark.parametrize(("check", "spoil", "sentence"), LOG_SPOILT)
def test_a_check_finds_what_is_wrong_in_a_log(
    check: str, spoil: Callable[[Log], None], sentence: str
) -> None:
    def sorted_by_time(log: Log) -> None:
        """Written in the order of their times, as a broker does."""
        spoil(log)
        numbers: dict[tuple[str, str], int] = {}
        for row in sorted(log.rows, key=lambda row: float(row["at_s"])):
            key = (row["node"], row["boot"])
            row["seq"] = numbers[key] = numbers.get(key, 0) + 1

    violations = judged(right_history(sorted_by_time), check).violations
    assert any(sentence in violation for violation in violations), violations


# --- excuses


def test_a_death_is_excused_by_what_was_done_to_the_dead_or_between_the_two() -> None:
    evidence = right_history(_false_death)
    evidence.faults.append(Span(Fault(20, "partition", (ONE,), (TWO,)), 20.0, 21.0))
    assert judged(evidence, "no_false_deaths").ok
    evidence.faults[-1] = Span(Fault(20, "partition", (ONE,), (THREE,)), 20.0, 21.0)
    assert not judged(evidence, "no_false_deaths").ok
    evidence.faults[-1] = Span(Fault(20, "pause", (TWO,)), 20.0, 25.0)
    assert judged(evidence, "no_false_deaths").ok


@pytest.mark.parametrize(
    "mild",
    [
        Span(Fault(20, "pause", (TWO,)), 20.0, 22.0),
        Span(Fault(20, "lossy_link", (ONE,), (TWO,), value=0.1), 20.0, 22.0),
        Span(Fault(20, "slow_link", (ONE,), (TWO,), value=0.05), 20.0, 22.0),
    ],
)
def test_what_is_mild_excuses_no_death(mild: Span) -> None:
    evidence = right_history(_false_death)
    evidence.faults.append(mild)
    assert not judged(evidence, "no_false_deaths").ok


def test_the_death_of_an_id_that_nobody_has_any_more_is_true() -> None:
    """A broker that lost its state came back under another id, and the old one is called dead late."""
    evidence = right_history(_false_death)
    evidence.lives = [replace(life, id=22) if life.name == TWO else life for life in evidence.lives]
    assert judged(evidence, "no_false_deaths").ok


def test_who_is_left_alone_need_not_call_the_others_dead() -> None:
    def unnoticed() -> Evidence:
        evidence = right_history()
        without(evidence, node=format_id(1), to_state="dead")
        without(evidence, node=format_id(2), to_state="dead")
        return evidence

    assert len(judged(unnoticed(), "detected").violations) == 2
    evidence = unnoticed()
    evidence.lives.append(Life("broker-4", 1, "broker-4", 0.1, 3.0, "killed", 4, 14))
    evidence.lives.append(Life("broker-5", 1, "broker-5", 0.1, 3.0, "killed", 5, 15))
    assert judged(evidence, "detected").empty


def test_an_incarnation_that_somebody_lied_about_is_no_raise() -> None:
    evidence = right_history()
    _foreign_incarnation(evidence)
    evidence.faults.append(Span(Fault(11.5, "huge_incarnation", (TWO,)), 11.5))
    assert judged(evidence, "only_owners_raise").ok
    evidence.faults[-1] = Span(Fault(11.5, "huge_incarnation", (THREE,)), 11.5)
    assert not judged(evidence, "only_owners_raise").ok


def test_who_was_harmed_itself_may_err_where_only_the_healthy_are_asked() -> None:
    evidence = right_history(_false_death)
    evidence.faults.append(Span(Fault(20, "partition", (ONE,), (THREE,)), 20.0, 21.0))
    assert judged(evidence, "no_false_deaths", observers="healthy").ok


def test_who_was_away_or_cut_off_itself_need_not_notice() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    evidence.faults.append(Span(Fault(3, "pause", (ONE,)), 3.0, 7.0))
    assert judged(evidence, "detected", whom=(THREE,)).ok
    evidence.faults[-1] = Span(Fault(3, "partition", (ONE,), (THREE,)), 3.0, 7.0)
    assert not judged(evidence, "detected").ok  # it reaches all who are left
    evidence.faults[-1] = Span(Fault(3, "partition", (ONE,), (TWO,)), 3.0, 7.0)
    assert judged(evidence, "detected").empty


def test_who_never_had_a_link_to_the_lost_one_need_not_notice() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    for at_s in (1.0, 2.0, 3.0, 4.0):
        with_view(evidence, at_s, ONE, links=(2,))
    assert judged(evidence, "detected").ok


def test_a_broker_whose_log_was_lost_is_asked_by_what_was_seen_of_it() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    evidence.lives = [replace(life, log_lost=True) if life.name == ONE else life for life in evidence.lives]
    assert judged(evidence, "detected").ok
    for sample in evidence.samples_between(5.0, 11.0):
        with_view(evidence, sample.at_s, ONE, table=(record(ONE), record(TWO), record(THREE)))
    assert "broker-1 did not call broker-3 dead within 4.5 s" in judged(evidence, "detected").violations[0]


def test_an_outage_that_is_too_short_is_none_to_look_at() -> None:
    evidence = right_history()
    assert "no death noticed to look at" in judged(evidence, "detected", within_s=8.0).violations[0]


def test_a_subscriber_that_did_not_stand_throughout_is_owed_nothing() -> None:
    evidence = right_history()
    evidence.ledger.subscriptions[0].until_s = 17.0
    evidence.ledger.receipts = [each for each in evidence.ledger.receipts if each.subscriber == "sub-2"]
    assert judged(evidence, "complete").ok


def test_another_life_of_a_subscriber_may_get_a_body_again() -> None:
    evidence = right_history()
    first = evidence.ledger.receipts[0]
    evidence.ledger.receipts.append(replace(first, life=2, at_s=9.0))
    assert judged(evidence, "at_most_once").ok


def test_a_gap_in_a_log_breaks_no_chain() -> None:
    """A disk that failed cost rows."""

    def spoil(log: Log) -> None:
        _broken_chain(log)
        log.rows[-1]["seq"] += 1

    assert judged(right_history(spoil), "changes_follow").ok


def test_one_moment_in_which_news_is_on_its_way_is_no_difference() -> None:
    evidence = right_history()
    with_view(evidence, 18.0, ONE, digest=b"something else", links=(3,), held={3: (2, (("#", 0),))})
    for check in ("one_digest", "degree", "interest_known", "connected"):
        assert judged(evidence, check).ok, check
    with_view(evidence, 22.0, ONE, digest=b"something else")
    assert not judged(evidence, "one_digest").ok  # the last moment has no next


def test_what_a_broken_connection_lost_and_what_is_on_its_way_has_not_vanished() -> None:
    evidence = right_history()
    evidence.streams += [Stream("2>", 10, 8, cut_short=True), Stream("3>", 10, 8, waiting=1)]
    assert judged(evidence, "bytes_conserved").ok


# --- M14


def twins() -> Evidence:
    evidence = right_history()
    evidence.lives.append(Life("twin", 1, "twin", 5.0, None, "", 2, 99))
    for sample in list(evidence.samples):
        if TWO in sample.views and sample.at_s >= 5:
            sample.views["twin"] = replace(sample.views[TWO], name="twin", boot=99)  # type: ignore[index]
    return evidence


def test_two_brokers_with_one_id_are_found_after_the_bound() -> None:
    violations = judged(twins(), "one_of_each_id", within_s=10.0).violations
    assert "broker-2 and twin are both 0000000000000002 for more than 10 s since 5.0 s" in violations[0]
    assert judged(twins(), "one_of_each_id").ok  # within the 30 s of a scenario


# --- M15


def test_a_partition_after_which_two_do_not_see_each_other_is_found() -> None:
    assert judged(right_history(), "healed", within_s=3.0).ok
    evidence = right_history()
    with_view(evidence, 17.0, ONE, table=(record(ONE), record(TWO), record(THREE, State.DEAD, 3)))
    violations = judged(evidence, "healed", within_s=3.0).violations
    assert "broker-1 does not see broker-3 3 s after the partition ended at 13.4 s" in violations[0]


# --- dormant: what is not there yet


def test_what_is_dormant_is_not_asked_of_every_run() -> None:
    assert [check.id for check in ALL if check.dormant] == ["M9", "M18", "M19", "D5"]
    assert not any(check.default for check in ALL if check.dormant)


def witnessed(**changes: Any) -> Evidence:
    def spoil(log: Log) -> None:
        log.write(TWO, 5.0, "help", asker=format_id(1), subject=format_id(3), round=5, verdict="nack")
        suspicion = {"witnesses": [format_id(2)], "round": 5, **changes}
        log.member(ONE, 12.0, THREE, "alive>suspect", sub_inc=3, sub_boot=SECOND_BOOT, **suspicion)

    return right_history(spoil)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"witnesses": []}, "without a witness"),
        ({"witnesses": [format_id(1)]}, "without a witness"),
        ({"witnesses": [format_id(3)]}, "by the word of broker-3, which never said so in round 5"),
        ({"round": 6}, "which never said so in round 6"),
    ],
)
def test_a_suspicion_needs_a_witness_that_really_said_so(changes: dict[str, Any], sentence: str) -> None:
    assert judged(witnessed(), "suspicions_have_witnesses").ok
    assert sentence in judged(witnessed(**changes), "suspicions_have_witnesses").violations[0]


def test_local_health_keeps_its_bounds_and_recovers() -> None:
    evidence = right_history()
    with_views(evidence, (ONE, TWO, THREE), health=0)
    with_view(evidence, 12.0, ONE, health=4)
    assert judged(evidence, "local_health").ok
    with_view(evidence, 13.0, ONE, health=5)
    with_view(evidence, 22.0, TWO, health=1)
    assert judged(evidence, "local_health").violations == (
        "the local health of broker-1 is 5 at 13.0 s",
        "the local health of broker-2 is still 1 after all is well",
    )


def flapping(times: int, held_until_s: float | None = None) -> Evidence:
    def spoil(log: Log) -> None:
        for number in range(times - 1):
            at_s = 12 + 2 * number
            if held_until_s is not None and number == 2:
                log.write(
                    ONE, at_s - 1, "hold", subject=format_id(3), subject_name=THREE, until_s=held_until_s
                )
            log.member(ONE, at_s, THREE, "alive>dead", sub_inc=3 + number, sub_boot=SECOND_BOOT)
            log.member(ONE, at_s + 1, THREE, "dead>alive", sub_inc=4 + number, sub_boot=SECOND_BOOT)

    return right_history(spoil)


def test_a_member_that_flaps_without_being_held_down_is_found() -> None:
    assert judged(flapping(3), "flaps_bounded").ok
    assert "broker-1 called broker-3 dead 4 times" in judged(flapping(4), "flaps_bounded").violations[0]
    assert judged(flapping(4, held_until_s=16.0), "flaps_bounded").ok
    assert not judged(flapping(4, held_until_s=99.0), "flaps_bounded").ok


def with_tree(edges: dict[str, tuple[int, ...]], copies: int) -> Evidence:
    evidence = right_history()
    for name, eager in edges.items():
        with_views(evidence, (name,), eager=eager)
    with_view(evidence, 22.0, ONE, counters={"copies": copies})
    return evidence


def test_a_tree_is_connected_without_rings_and_sends_little_twice() -> None:
    chain = {ONE: (2,), TWO: (1, 3), THREE: (2,)}
    assert judged(with_tree(chain, 0), "tree").ok
    assert "2 pieces" in judged(with_tree({ONE: (), TWO: (3,), THREE: (2,)}, 0), "tree").violations[0]
    ring = {ONE: (2, 3), TWO: (1, 3), THREE: (1, 2)}
    assert "3 eager edges among 3 brokers" in judged(with_tree(ring, 0), "tree").violations[0]
    assert "payloads came" in judged(with_tree(chain, 99), "tree").violations[0]


def test_merging_by_the_order_of_arrival_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from simulations.invariants import records

    monkeypatch.setattr(records, "merge", lambda left, right: right)
    assert "by the order in which" in judged(right_history(), "merge_is_order_free").violations[0]


def test_the_return_of_a_broker_is_timed_by_its_start() -> None:
    verdict = judged(right_history(), "back_within", whom=(THREE,), within_s=1.0)
    assert verdict.ok and "the last after 0.20 s" in verdict.looked_at
    assert BACK_S in [life.started_s for life in right_history().lives]
