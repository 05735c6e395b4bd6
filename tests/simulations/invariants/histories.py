"""A correct history, written by hand: of three brokers the third is killed and comes back, then all leave.

Times are seconds. It has everything that the checks read. So a test takes it, spoils one thing, and sees
which check complains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mesh.broker.identity import format_id
from mesh.cluster.membership import MemberRecord, State
from simulations.evidence import Evidence, Life, Sample, Stream, View
from simulations.evidence.ledger import Answered, Ledger, Outcome, Question, Receipt, Subscribed
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants import CHECKS, Verdict
from simulations.scenario import Expectation, Scenario, Workload

ONE, TWO, THREE = "broker-1", "broker-2", "broker-3"
IDS = {ONE: 1, TWO: 2, THREE: 3}
BOOTS = {ONE: 11, TWO: 12, THREE: 13}
SECOND_BOOT = 23
KILLED_S, BACK_S = 4.0, 11.0
CUT_S, MENDED_S = 13.0, 13.4
PHASES = {
    "started_s": 0.5,
    "warm_s": 1.0,
    "safety_s": 3.0,
    "healed_s": 15.0,
    "whole_s": 15.2,
    "held_s": 15.5,
    "quiet_from_s": 16.0,
    "quiet_until_s": 20.0,
    "drained_s": 22.0,
    "end_s": 32.0,
}
PATTERNS = (("#", 0),)
COUNTED = (
    *("rounds", "late_rounds", "silent_rounds", "refutations", "refused_records", "syncs", "late_answers"),
    *("refused", "control_out", "bus_out", "dropped", "unresolved"),
)


class Log:
    """Rows of several brokers, each numbered by its writer."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._seqs: dict[tuple[str, int], int] = {}

    def write(
        self, writer: str, at_s: float, kind: str, *, boot: int | None = None, inc: int = 1, **fields: Any
    ) -> None:
        boot = boot or BOOTS[writer]
        seq = self._seqs[writer, boot] = self._seqs.get((writer, boot), 0) + 1
        head = {
            "kind": kind,
            "at_s": at_s,
            "mono_ns": round(at_s * 1e9),
            "node": format_id(IDS[writer]),
            "boot": format_id(boot),
            "inc": inc,
            "seq": seq,
        }
        self.rows.append({**head, **fields})

    def number(self) -> None:
        """Number the rows again, by their times, like a broker."""
        self._seqs.clear()
        for row in sorted(self.rows, key=lambda row: float(row["at_s"])):
            key = (row["node"], int(row["boot"], 16))
            row["seq"] = self._seqs[key] = self._seqs.get(key, 0) + 1

    def start(self, name: str, at_s: float, **more: Any) -> None:
        self.write(name, at_s, "meta", op="start", name=name, host=name, pid=int(at_s * 10), **more)

    def member(
        self,
        name: str,
        at_s: float,
        subject: str,
        states: str,
        *,
        sub_inc: int = 1,
        sub_boot: int = 0,
        via: str = "",
        **more: Any,
    ) -> None:
        """``states`` is "alive>dead"; ``via`` is the writer itself by default."""
        before, _, after = states.partition(">")
        self.write(
            name,
            at_s,
            "mem",
            subject=format_id(IDS[subject]),
            subject_name=subject,
            subject_boot=format_id(sub_boot or BOOTS[subject]),
            subject_inc=sub_inc,
            from_state=before,
            to_state=after,
            reason="by hand",
            via=format_id(IDS[via or name]),
            **more,
        )

    def link(self, name: str, at_s: float, peer: str, state: str, **more: Any) -> None:
        self.write(
            name, at_s, "link", peer=format_id(IDS[peer]), dir="out", state=state, reason="by hand", **more
        )

    def survey(self, name: str, at_s: float, peer: str, round: int, **more: Any) -> None:
        """``peer`` asked it."""
        self.write(
            name,
            at_s,
            "hb",
            msg="survey",
            src=format_id(IDS[peer]),
            dst=format_id(IDS[name]),
            hb_seq=round,
            rtt_us=None,
            **more,
        )

    def answer(self, name: str, at_s: float, peer: str, round: int, rtt_us: int = 800, **more: Any) -> None:
        self.write(
            name,
            at_s,
            "hb",
            msg="answer",
            src=format_id(IDS[peer]),
            dst=format_id(IDS[name]),
            hb_seq=round,
            rtt_us=rtt_us,
            **more,
        )


def right_log() -> Log:
    log = Log()
    for number, name in enumerate(IDS):
        log.start(name, 0.1 + number / 10)
    for name in IDS:
        for other in IDS:
            if other != name:
                log.member(name, 0.5, other, "unknown>alive", via=other)
                log.link(name, 0.5, other, "up")
    for second in range(1, 22):
        for name in ("broker-1", "broker-2"):
            other = "broker-2" if name == "broker-1" else "broker-1"
            log.survey(other, second + 0.5996, name, second)
            log.answer(name, second + 0.6, other, second)
    for name in ("broker-1", "broker-2"):
        log.link(name, KILLED_S + 0.01, "broker-3", "down")
        log.member(name, 5.1, "broker-3", "alive>suspect")
        log.member(name, 7.1, "broker-3", "suspect>dead")
        log.member(
            name, BACK_S + 0.2, "broker-3", "dead>alive", sub_inc=3, sub_boot=SECOND_BOOT, via="broker-3"
        )
    log.start("broker-3", BACK_S, boot=SECOND_BOOT, inc=3)
    for other in ("broker-1", "broker-2"):
        log.member("broker-3", BACK_S + 0.2, other, "unknown>alive", boot=SECOND_BOOT, inc=3, via=other)
    log.member("broker-1", 24.0, "broker-1", "alive>left")
    log.member("broker-2", 24.1, "broker-1", "alive>left", via="broker-1")
    log.member("broker-3", 24.1, "broker-1", "alive>left", boot=SECOND_BOOT, inc=3, via="broker-1")
    log.member("broker-2", 28.0, "broker-2", "alive>left")
    log.member("broker-3", 28.1, "broker-2", "alive>left", boot=SECOND_BOOT, inc=3, via="broker-2")
    log.member("broker-3", 31.0, "broker-3", "alive>left", boot=SECOND_BOOT, inc=3)
    log.number()
    return log


def record(name: str, state: State = State.ALIVE, incarnation: int = 1, boot: int = 0) -> MemberRecord:
    return MemberRecord(IDS[name], incarnation, state, boot or BOOTS[name], name, name, "", "")


def _own(name: str, at_s: float) -> MemberRecord | None:
    """A broker's record of itself; None while it is down."""
    if name == "broker-3" and KILLED_S <= at_s:
        return record(name, incarnation=3, boot=SECOND_BOOT) if BACK_S < at_s < 31 else None
    return record(name) if at_s < {"broker-1": 24, "broker-2": 28, "broker-3": 31}[name] else None


def _others(rows: list[dict[str, Any]], name: str, boot: int, at_s: float) -> list[MemberRecord]:
    """Its view of the others, by its log."""
    found: dict[int, MemberRecord] = {}
    for row in rows:
        mine = (row["node"], row["boot"]) == (format_id(IDS[name]), format_id(boot))
        if mine and row["kind"] == "mem" and row["at_s"] <= at_s and row["subject"] != row["node"]:
            state = State(row["to_state"])
            found[int(row["subject"], 16)] = record(
                row["subject_name"], state, row["subject_inc"], int(row["subject_boot"], 16)
            )
    return list(found.values())


def _sample(rows: list[dict[str, Any]], at_s: float) -> Sample:
    up = {name: me for name in IDS if (me := _own(name, at_s)) is not None}
    views = {}
    for name, me in up.items():
        others = _others(rows, name, me.boot, at_s)
        linked = tuple(each.id for each in up.values() if each.id != me.id)
        views[name] = View(
            name=name,
            life=2 if me.boot == SECOND_BOOT else 1,
            id=me.id,
            boot=me.boot,
            state="ready",
            table=(me, *others),
            links=linked,
            digest=b"all of us",
            interest=PATTERNS,
            interest_version=2,
            held={id: (2, PATTERNS) for id in linked},
            counters={
                **dict.fromkeys(COUNTED, 0),
                "rounds": int(at_s),
                "control_out": int(4 * at_s),
                "bus_out": int(at_s),
            },
            sizes={"members": 3, "strangers": 0, "barriers": 0, "questions": 0, "seen": 1, "queued": 0}
            | {"sockets": 6, "tasks": 5, "timers": 9},
            void_at=9.5 if at_s > 9.5 else None,
        )
    return Sample(at_s, views)


def right_ledger() -> Ledger:
    """Every body reaches both that want it, once and in order."""
    ledger = Ledger()
    ledger.subscriptions += [
        Subscribed("sub-1", 1, ("#",), 2.0, until_s=22.0),
        Subscribed("sub-2", 1, ("news.*",), 2.0, until_s=22.0),
        Subscribed("late", 1, ("#",), 18.5, until_s=22.0),
    ]
    for number in range(36):
        topic = "news.uk" if number % 2 else "orders"
        at_s = 2.1 + number / 2
        entry = ledger.publish("pub-1", 1, number, topic, "filler", at_s)
        entry.outcome = Outcome.ACCEPTED
        for subscription in ledger.subscriptions:
            if subscription.since_s < at_s and (subscription.subscriber != "sub-2" or number % 2):
                ledger.receipts.append(Receipt(subscription.subscriber, 1, topic, entry.body, at_s + 0.002))
    question = Question("asker", 1, "question 1", 5.0, 1.0, ended_s=6.0)
    question.answers.append(Answered("sub-1", "question 1", 5.5))
    ledger.questions.append(question)
    return ledger


def right_history(spoil: Callable[[Log], None] | None = None) -> Evidence:
    """``spoil`` changes the event log, and with it the brokers' views."""
    log = right_log()
    if spoil is not None:
        spoil(log)
    rows = sorted(log.rows, key=lambda row: (row["at_s"], row["node"], row["seq"]))
    return Evidence(
        scenario=Scenario("by-hand", brokers=3, workload=Workload(publishers=1, subscribers=3)),
        rows=list(rows),
        faults=[
            Span(Fault(KILLED_S, "crash", ("broker-3",)), KILLED_S),
            Span(Fault(CUT_S, "partition", ("broker-1",), ("broker-3",)), CUT_S, MENDED_S),
        ],
        lives=[
            Life("broker-1", 1, "broker-1", 0.1, 24.2, "left", 1, 11),
            Life("broker-2", 1, "broker-2", 0.2, 28.2, "left", 2, 12),
            Life("broker-3", 1, "broker-3", 0.3, KILLED_S, "killed", 3, 13),
            Life("sub-1", 1, "broker-1", 1.0, 22.0),
            Life("sub-2", 1, "broker-2", 1.0, 22.0),
            Life("late", 1, "broker-2", 18.0, 22.0),
            Life("pub-1", 1, "broker-2", 1.0, 22.0),
            Life("broker-3", 2, "broker-3", BACK_S, 31.2, "left", 3, SECOND_BOOT),
        ],
        ledger=right_ledger(),
        samples=[_sample(rows, float(second)) for second in range(1, 32)],
        phases=dict(PHASES),
        streams=[
            Stream("1> from broker-1 to broker-2", 100, 100),
            Stream("1< from broker-2 to broker-1", 50, 50),
        ],
        hashes=[("this run", "abc"), ("another process", "abc")],
    )


def history(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    """Correct except for the changes of ``spoil`` to the log, which is written in the order of its times."""

    def spoilt(log: Log) -> None:
        spoil(log)
        log.number()

    return right_history(spoilt)


def judged(evidence: Evidence, check: str, **parameters: Any) -> Verdict:
    return CHECKS[check].judge(evidence, **parameters)


def with_view(evidence: Evidence, at_s: float, name: str, **changes: Any) -> None:
    """Change a broker's view at one moment."""
    for index, sample in enumerate(evidence.samples):
        if sample.at_s == at_s:
            views: Mapping[str, View] = {**sample.views, name: replace(sample.views[name], **changes)}
            evidence.samples[index] = Sample(at_s, views)
            return
    raise AssertionError(f"there is no sample at {at_s}")


def with_views(evidence: Evidence, names: tuple[str, ...], **changes: Any) -> None:
    """Change it at all moments."""
    for sample in list(evidence.samples):
        for name in names:
            if name in sample.views:
                with_view(evidence, sample.at_s, name, **changes)


def expectation(check: str, **parameters: Any) -> Expectation:
    return Expectation(check, tuple(sorted(parameters.items())))


def row_of(evidence: Evidence, **fields: Any) -> dict[str, Any]:
    """The first row with these fields."""
    for row in evidence.rows:
        if all(row.get(name) == value for name, value in fields.items()):
            return dict(row)
    raise AssertionError(f"no row has {fields}")


def without(evidence: Evidence, **fields: Any) -> None:
    """Take a row out."""
    evidence.rows.remove(row_of(evidence, **fields))


def cut(
    evidence: Evidence, from_s: float, until_s: float, *, a: str = ONE, b: tuple[str, ...] = (TWO,)
) -> None:
    evidence.faults.append(Span(Fault(from_s, "partition", (a,), b), from_s, until_s))


def slower(evidence: Evidence, subscriber: str, seconds: float) -> None:
    """Delay deliveries to it, from the safety phase on."""
    evidence.ledger.receipts = [
        replace(each, at_s=each.at_s + seconds) if each.subscriber == subscriber and each.at_s > 3 else each
        for each in evidence.ledger.receipts
    ]


def false_death(log: Log) -> None:
    log.member(ONE, 22.0, TWO, "alive>dead")


def refused(verdict: Verdict, sentence: str) -> None:
    assert any(sentence in violation for violation in verdict.violations), verdict.violations


# --- cases for every check


@dataclass(frozen=True)
class Spoilt:
    """A correct history and a spoilt one, which a check must pass and refuse."""

    check: str
    right: Callable[[], Evidence]
    wrong: Callable[[], Evidence]
    sentence: str
    """A part of the violation."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.check}-{self.sentence}"

    def must_be_found(self) -> None:
        verdict = judged(self.right(), self.check, **self.parameters)
        assert verdict.ok, verdict.violations
        refused(judged(self.wrong(), self.check, **self.parameters), self.sentence)


def spoilt(
    check: str,
    spoil: Callable[[Evidence], None],
    sentence: str,
    *,
    right: Callable[[], Evidence] = history,
    **parameters: Any,
) -> Spoilt:
    """``spoil`` changes the evidence."""

    def wrong() -> Evidence:
        evidence = right()
        spoil(evidence)
        return evidence

    return Spoilt(check, right, wrong, sentence, parameters)


def log_spoilt(
    check: str,
    spoil: Callable[[Log], None],
    sentence: str,
    *,
    right: Callable[[Callable[[Log], None]], Evidence] = history,
    **parameters: Any,
) -> Spoilt:
    """``spoil`` changes the event log, and with it the brokers' views."""
    return Spoilt(check, lambda: right(lambda log: None), lambda: right(spoil), sentence, parameters)
