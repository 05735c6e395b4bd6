"""The checks find failures, leaks, lost bytes and the effects of strangers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesh.broker.identity import format_id
from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life, Stream
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    SECOND_BOOT,
    THREE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    log_spoilt,
    record,
    right_history,
    spoilt,
    with_view,
    with_views,
)


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


def _foreign(spoil: Callable[[Log], None] = lambda log: None, kind: str = "garbage") -> Evidence:
    """Bytes from a stranger, or a lie about it, came to broker-2 and were counted."""
    evidence = history(spoil)
    evidence.faults = [Span(Fault(21.5, kind, (TWO,)), 21.5)]
    for at_s in range(22, 26):
        with_view(evidence, float(at_s), TWO, counters={"control_out": 4 * at_s, "refused": 1})
    return evidence


def _uncounted() -> Evidence:
    evidence = history()
    evidence.faults = _foreign().faults
    return evidence


def _lost_a_link(log: Log) -> None:
    log.link(TWO, 21.7, THREE, "down")


def _changed_a_table(log: Log) -> None:
    log.member(TWO, 21.8, THREE, "alive>dead", sub_inc=3, sub_boot=SECOND_BOOT, via=THREE)


def _believed(evidence: Evidence) -> None:
    with_view(evidence, 24.0, THREE, table=(record(THREE, incarnation=3), record(TWO, State.DEAD)))


SPOILT: list[Spoilt] = [
    spoilt("sound", _failed, "main ended by an exception: ValueError: no"),
    spoilt("sound", _escaped, "time.time was called"),
    spoilt("no_leaks", _leak("sockets"), "broker-1 has 30 sockets at rest, and had 6"),
    spoilt("no_leaks", _leak("tasks"), "30 tasks"),
    spoilt("no_leaks", _leak("timers"), "30 timers"),
    spoilt(
        "repeatable", lambda evidence: evidence.hashes.append(("a third", "abd")), "a third has history abd"
    ),
    spoilt("bytes_conserved", _stream(10, 12), "12 bytes arrived, but 10 were sent"),
    spoilt("bytes_conserved", _stream(10, 8), "2 of 10 bytes vanished, though it did not break"),
    Spoilt("foreign_input_is_harmless", _foreign, _uncounted, "was not counted"),
    log_spoilt("foreign_input_is_harmless", _lost_a_link, "the link to broker-3 went down", right=_foreign),
    log_spoilt("foreign_input_is_harmless", _changed_a_table, "broker-3 became dead", right=_foreign),
    spoilt(
        "foreign_input_is_harmless",
        _believed,
        "forged_dead about broker-2 at 21.500 s: broker-3 holds it dead later",
        right=lambda: _foreign(kind="forged_dead"),
    ),
]


def test_the_holdings_of_a_broker_may_grow_with_its_links() -> None:
    """Counted with itself, a broker that was linked to one was allowed too little beside two."""
    evidence = history()
    (before,) = [each for each in evidence.samples if each.at_s == 3.0]
    for name in IDS:
        view = before.views[name]
        with_view(evidence, 3.0, name, table=view.table[:2], sizes={**view.sizes, "sockets": 3})
    for sockets, right in ((10, True), (11, False)):
        with_views(evidence, (ONE,), sizes={**before.views[ONE].sizes, "sockets": sockets})
        with_view(evidence, 3.0, ONE, sizes={**before.views[ONE].sizes, "sockets": 3})
        assert judged(evidence, "no_leaks").ok is right


@pytest.mark.parametrize(
    ("linked_to", "one_knows", "excused"),
    [(None, True, True), (ONE, False, True), (ONE, True, False), (TWO, False, False)],
)
def test_a_broker_without_a_link_to_knowers_of_a_member_need_not_know_it_after_a_lie(
    linked_to: str | None, one_knows: bool, excused: bool
) -> None:
    """Swarm seed 5295754817: broker-5 was told to join broker-4, which was down, and had met nobody."""
    evidence = history()
    evidence.faults = [Span(Fault(18.5, "forged_dead", (TWO,)), 18.5)]
    links = (IDS[linked_to],) if linked_to else ()
    with_view(evidence, 21.0, THREE, table=(record(THREE, incarnation=3),), links=links)
    if not one_knows:
        with_view(evidence, 21.0, ONE, table=(record(ONE), record(THREE, incarnation=3)), links=(IDS[THREE],))
    assert judged(evidence, "foreign_input_is_harmless").ok is excused


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_bytes_lost_with_a_connection_or_in_flight_have_not_vanished() -> None:
    evidence = right_history()
    evidence.streams += [Stream("2>", 10, 8, cut_short=True), Stream("3>", 10, 8, waiting=1)]
    assert judged(evidence, "bytes_conserved").ok


def test_foreign_bytes_need_not_be_counted_if_the_scenario_says_so() -> None:
    assert judged(_uncounted(), "foreign_input_is_harmless", counted=0).ok


@pytest.mark.parametrize(("life", "counted"), [(1, True), (2, False)])
def test_counts_of_an_earlier_life_are_not_subtracted(life: int, counted: bool) -> None:
    """Swarm seed 4766188793: broker-1 had refused four connections before its restart, and four after it."""
    evidence = _foreign()
    evidence.lives = [replace(each, number=2) if each.name == TWO else each for each in evidence.lives]
    for sample in list(evidence.samples):
        if TWO in sample.views:
            number = 2 if sample.at_s >= 22 else life
            with_view(evidence, sample.at_s, TWO, life=number, counters={"refused": 1})
    assert judged(evidence, "foreign_input_is_harmless").ok is counted


@pytest.mark.parametrize(("started_s", "excused"), [(21.498, True), (20.5, False)])
def test_bytes_that_came_before_any_look_saw_the_broker_need_not_be_counted(
    started_s: float, excused: bool
) -> None:
    """Swarm seed 2269265714: a stranger dialled 2 ms after broker-2 had started, and nobody listened yet."""
    evidence = _uncounted()
    evidence.lives = [
        replace(each, started_s=started_s) if each.name == TWO else each for each in evidence.lives
    ]
    assert judged(evidence, "foreign_input_is_harmless").ok is excused


def _foreign_beside(fault: Fault, *, until_s: float | None = None) -> Evidence:
    """Broker-2 loses its link to broker-3 right after garbage came, and another fault struck before."""
    evidence = _foreign(_lost_a_link)
    evidence.faults.append(Span(fault, fault.at_s, until_s))
    return evidence


@pytest.mark.parametrize(
    ("fault", "until_s", "excused"),
    [
        (Fault(19.0, "reset", (THREE,)), None, True),
        (Fault(19.0, "reset", (TWO,)), None, True),
        (Fault(14.0, "reset", (THREE,)), None, False),
        (Fault(10.0, "isolate", (THREE,)), 15.0, True),
        (Fault(9.0, "partition", (ONE,), (THREE,)), 12.0, False),
        (Fault(20.0, "slow_process", (THREE,), value=50.0), 23.0, True),
        (Fault(20.0, "slow_process", (ONE,), value=50.0), 23.0, False),
        (Fault(20.0, "forged_dead", (THREE,), (ONE,)), None, True),
        (Fault(20.0, "replayed_news", (ONE,), value=1.0), None, True),
        (Fault(20.0, "clock_step", (THREE,), value=100.0), 23.0, False),
    ],
    ids=str,
)
def test_only_faults_of_one_of_the_two_excuse_a_lost_link(
    fault: Fault, until_s: float | None, excused: bool
) -> None:
    assert judged(_foreign_beside(fault, until_s=until_s), "foreign_input_is_harmless").ok is excused


def _accused_elsewhere(log: Log) -> None:
    """Broker-1 accuses broker-3; broker-2 learns of it and then of the refutation."""
    third = {"sub_inc": 3, "sub_boot": SECOND_BOOT}
    log.member(ONE, 21.6, THREE, "alive>suspect", **third)
    log.member(TWO, 21.7, THREE, "alive>suspect", via=ONE, **third)
    log.member(TWO, 21.8, THREE, "suspect>alive", via=THREE, **third | {"sub_inc": 4})


def _unwritten(log: Log) -> None:
    """The same, but no log has the first accuser."""
    _accused_elsewhere(log)
    del log.rows[-3]


def _accused_here(log: Log) -> None:
    log.member(TWO, 21.7, THREE, "alive>suspect", sub_inc=3, sub_boot=SECOND_BOOT)


def _accused_here_first(log: Log) -> None:
    """Broker-1 does so, too, and later."""
    _accused_here(log)
    log.member(ONE, 21.8, THREE, "alive>suspect", sub_inc=3, sub_boot=SECOND_BOOT)


@pytest.mark.parametrize(
    ("a", "until_s", "right"),
    [(ONE, 22.0, True), (THREE, 22.0, True), ("broker-9", 22.0, False), (ONE, 11.0, False)],
)
def test_a_suspicion_over_a_mildly_lossy_link_has_a_cause(a: str, until_s: float, right: bool) -> None:
    """Swarm seed 3238971863 with durable subscriptions: of two losses of a survey one round is missed."""
    evidence = _foreign(_accused_elsewhere)
    evidence.faults.append(Span(Fault(10.0, "lossy_link", (a,), value=0.08), 10.0, until_s))
    assert judged(evidence, "foreign_input_is_harmless").ok is right


def _accused_by_another_first(log: Log) -> None:
    """And broker-1 does so, too, and later."""
    third = {"sub_inc": 3, "sub_boot": SECOND_BOOT}
    log.member(THREE, 21.55, THREE, "alive>suspect", **third)
    log.rows[-1]["node"] = log.rows[-1]["via"] = format_id(4)
    _accused_elsewhere(log)


@pytest.mark.parametrize(
    ("spoil", "from_s", "until_s", "wrong"),
    [
        (_accused_elsewhere, 20.0, None, 0),
        (_accused_elsewhere, 15.0, 16.2, 0),
        (_accused_elsewhere, 15.0, 16.0, 2),
        (_accused_elsewhere, 21.5, None, 0),
        (_accused_elsewhere, 21.65, None, 2),
        (_accused_here, 20.0, None, 1),
        (_accused_here_first, 20.0, None, 1),
        (_accused_by_another_first, 20.0, None, 2),
        (_unwritten, 20.0, None, 2),
        (_unwritten, 20.0, 22.0, 0),
        (_unwritten, 20.0, 21.6, 0),
        (_unwritten, 20.0, 24.0, 2),
        (_unwritten, 15.0, 16.3, 0),
        (_unwritten, 15.0, 16.1, 2),
    ],
)
def test_a_forwarded_suspicion_has_the_causes_of_its_first_source(
    spoil: Callable[[Log], None], from_s: float, until_s: float | None, wrong: int
) -> None:
    """Swarm seed 731504038: one of two brokers with one id missed answers, since the others had dropped it,
    and suspected them. Here another has the id of broker-1 for that time, and is killed then.
    """
    evidence = _foreign(spoil)
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed" if until_s else "", IDS[ONE], 99))
    assert len(judged(evidence, "foreign_input_is_harmless").violations) == wrong


@pytest.mark.parametrize(("boot", "right"), [(SECOND_BOOT, True), (77, False)])
def test_two_running_brokers_may_link_while_a_stranger_sends(boot: int, right: bool) -> None:
    """Swarm seed 1796000011 with durable subscriptions: two halves found each other six seconds after they
    had started. Just then a stranger spoke another version. No stranger is a broker that nobody started.
    """

    def met(log: Log) -> None:
        log.link(THREE, 21.7, TWO, "up")
        log.member(TWO, 21.8, THREE, "unknown>alive", sub_inc=3, sub_boot=boot, via=THREE)

    assert judged(_foreign(met, "wrong_version"), "foreign_input_is_harmless").ok is right


def test_foreign_input_is_judged_during_faults_of_other_brokers() -> None:
    evidence = _foreign()
    evidence.faults.append(Span(Fault(21.0, "pause", (ONE,)), 21.0, 25.0))
    assert judged(evidence, "foreign_input_is_harmless").count == 1


def test_a_broker_that_ends_meanwhile_is_not_judged_for_foreign_input() -> None:
    evidence = _foreign()
    evidence.faults.append(Span(Fault(22.0, "stop", (TWO,)), 22.0))
    assert judged(evidence, "foreign_input_is_harmless").empty
