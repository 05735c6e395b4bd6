"""Checks find bugs: production brokers run with an injected bug, and the check of its subject fires."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mesh.clients.client import Client
from mesh.cluster.membership.judgement import Judgement
from mesh.dataplane.questions import Questions
from simulations import programs
from simulations.evidence import Recorder
from simulations.evidence.ledger import Answered, Ledger, Question
from simulations.faults import Fault
from simulations.invariants import ALL, judge
from simulations.kernel.network import tcp
from simulations.programs import clients
from simulations.runs.playing import Play
from simulations.scenario import Expectation, Scenario, Workload
from simulations.world import Main, Process, World
from tests.simulations import bugs
from tests.simulations.invariants import test_broken_homes
from tests.simulations.invariants.histories import expectation, history
from tests.simulations.scenarios import test_outboxes

ONE, TWO, THREE = "broker-1", "broker-2", "broker-3"
SMALL = Scenario(
    "small",
    brokers=3,
    warm_s=3.0,
    safety_s=15.0,
    bound_s=15.0,
    quiet_s=2.0,
    workload=Workload(publishers=1, subscribers=2, pause_s=0.1),
)
NOTHING: tuple[Fault, ...] = ()
CRASH = (Fault(1.0, "crash", (THREE,), for_s=8.0),)
PAUSE = (Fault(1.0, "pause", (THREE,), for_s=1.9),)
LONG_PAUSE = (Fault(1.0, "pause", (THREE,), for_s=4.0),)
SPLIT = (Fault(1.0, "partition", (ONE,), (), 8.0),)
RESET = (Fault(4.0, "reset", (ONE,)),)
LEAVE = (Fault(1.0, "stop", (THREE,), for_s=8.0),)
SLOW = (Fault(1.0, "slow_reader", ("sub-2",), for_s=12.0, value=1e5),)
GARBAGE = (Fault(12.0, "garbage", (ONE,), value=3),)


def play(*faults: Fault, expect: Iterable[Expectation] = (), **changes: Any) -> dict[str, tuple[str, ...]]:
    """The violations by check, of a run of three brokers."""
    scenario = replace(SMALL, faults=faults, expect=tuple(expect), **changes)
    result = Play(scenario, seed=1).run()
    return {verdict.check: verdict.violations for verdict in result.verdicts if not verdict.ok}


def test_views_written_by_hand_have_the_counters_of_recorded_ones() -> None:
    """A check cannot see in a run what nobody records."""
    run = Play(SMALL, seed=1)
    run.run()
    assert run.evidence is not None
    recorded = run.evidence.rest[-1].views[ONE]
    by_hand = history().rest[-1].views[ONE]
    assert sorted(recorded.counters) == sorted(by_hand.counters)
    assert sorted(recorded.sizes) == sorted(by_hand.sizes)


# --- members, links, logs


@dataclass(frozen=True)
class Proof:
    """With the bug the check finds something; without it the same run passes."""

    check: str
    sentence: str
    bug: bugs.PutIn
    faults: tuple[Fault, ...] = NOTHING
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.check}-{self.sentence}"

    @property
    def expected(self) -> Expectation:
        return expectation(self.check, **self.parameters)


ABOUT_TWO = {"whom": (TWO,)}
PROOFS = [
    Proof("converged", "broker-1 does not see broker-3 alive", bugs.ignore_the_third),
    Proof("one_digest", "the digests differ", bugs.like_no_other),
    Proof("records_only_grow", "broker-1 held broker-2 as alive of", bugs.about(TWO, bugs.lower)),
    Proof("only_owners_raise", "holds incarnation", bugs.about(TWO, bugs.raise_it)),
    Proof("merge_is_order_free", "by the order in which", bugs.last_come, CRASH),
    Proof("answers_accusations", "broker-3 left it unanswered", bugs.deaf, PAUSE),
    Proof("answers_accusations", "broker-3 holds itself suspect", bugs.believe_all, PAUSE),
    Proof("detected", "did not call broker-3 dead within 3.75 s", bugs.blind, CRASH),
    Proof("no_false_deaths", "called broker-2 dead", bugs.about(TWO, bugs.kill)),
    Proof("void_rounds_accuse_nobody", "in a round that was void", bugs.accuse_in_void_rounds, LONG_PAUSE),
    Proof(
        "deaf_accuse_nobody",
        "and heard nobody from",
        bugs.instead(Judgement, "_void", bugs.judge_unheard),
        SPLIT,
    ),
    Proof("deaf_know_it", "broker-1 is ready", bugs.never_isolated, SPLIT),
    Proof("dead_links_end", "still has its link to broker-1", bugs.keep_dead_links, SPLIT),
    Proof("left_by_own_word", "though it never said so", bugs.about(TWO, bugs.bid_farewell)),
    Proof("left_by_own_word", "dialled broker-3 at", bugs.dial_who_left, LEAVE),
    Proof("leaves_are_seen", "called broker-3 dead, though it left", bugs.leave_in_silence, LEAVE),
    Proof("restarts_are_one_member", "of broker-3, which was started again", bugs.begin_anew, CRASH),
    Proof("healed", "does not see broker-1", bugs.deaf, SPLIT, {"within_s": 10.0}),
    Proof("degree", "broker-1 has 0 links, fewer than 2", bugs.dial_for_a_while, RESET),
    Proof("connected", "no way of links leads from broker-1", bugs.dial_for_a_while, RESET),
    Proof("no_storm", "things a second", bugs.each_round(bugs.hurry)),
    Proof("memory_bounded", "members at", bugs.each_round(bugs.hoard)),
    Proof("no_resurrection", "had forgotten it", bugs.forget_the_dead, CRASH),
    Proof("changes_follow", "told twice that", bugs.tell_twice),
    Proof("at_most_once", "and again at", bugs.deliver_twice),
    Proof("complete", "never got number", bugs.lose_one_in(10)),
    Proof("conserved", "counted 0 as dropped for its subscribers", bugs.lose_one_in(10)),
    Proof("interest_known", "does not hold what", bugs.forget_a_pattern),
    Proof(
        "others_unaffected",
        "p99 of deliveries among the others is",
        bugs.delay_all,
        SLOW,
        {"whom": ("sub-2",)},
    ),
    Proof("answers_count_once", "was counted twice", bugs.count_twice),
    Proof("logs_are_whole", "has no row", bugs.drop_rows),
    Proof("logs_are_whole", "holds broker-3 suspect", bugs.tell_no_suspicion, CRASH),
    Proof("answers_are_traced", "heard no such question", bugs.misnumber),
    Proof("no_leaks", "timers at rest", bugs.each_round(bugs.leak_timers)),
    Proof("foreign_input_is_harmless", "was not counted", bugs.count_no_strangers, GARBAGE),
    Proof("delivery_delay", "the slowest of", bugs.delay_all, NOTHING, {"most_s": 0.1}),
    Proof("delivered_share", "less than 99.90%", bugs.lose_one_in(10), NOTHING, {"least": 0.999}),
    Proof("nobody_dead", "called broker-2 dead", bugs.about(TWO, bugs.kill), NOTHING, ABOUT_TWO),
    Proof("deaths_at_most", "called broker-2 dead", bugs.about(TWO, bugs.kill), NOTHING, {"most": 0}),
    Proof("suspicions_at_most", "suspicions in the run", bugs.about(TWO, bugs.suspect)),
    Proof(
        "accuses_nobody", "broker-1 called broker-2", bugs.about(TWO, bugs.kill), NOTHING, {"whom": (ONE,)}
    ),
    Proof("never_left", "records that broker-2 left", bugs.about(TWO, bugs.bid_farewell)),
    Proof("refuted", "held broker-3 suspect", bugs.deaf, PAUSE, {"whom": (THREE,), "within_s": 5.0}),
    Proof("isolated", "it was still ready", bugs.never_isolated, SPLIT, {"whom": (ONE,)}),
    Proof("back_within", "holds broker-1 dead 10 s after", bugs.deaf, SPLIT, {"whom": (ONE,)}),
    Proof("left_seen", "did not hear within 2 s", bugs.leave_in_silence, LEAVE, {"whom": (THREE,)}),
    Proof("members_within", "broker-1 sees 2 members", bugs.ignore_the_third),
    Proof(
        "view_sizes_at_most", "2 numbers of members were seen", bugs.ignore_the_third, NOTHING, {"most": 1}
    ),
    Proof("links_back_within", "broker-1 has no link to broker-2", bugs.dial_for_a_while, SPLIT),
    Proof("link_given_up", "was not given up", bugs.keep_dead_links, SPLIT, {"whom": (ONE, TWO)}),
    Proof(
        "counted",
        "refutations of broker-3 rose by 0",
        bugs.deaf,
        PAUSE,
        {"whom": (THREE,), "counter": "refutations"},
    ),
    Proof("greater_incarnation", "in incarnation 1 5 s after its start", bugs.begin_anew, CRASH),
]
ELSEWHERE = (
    "in_order",
    "genuine",
    "heartbeats_pass",
    "surveys_return",
    "sound",
    "repeatable",
    "bytes_conserved",
    "one_of_each_id",
)
"""Proven by the tests below, which break something other than a broker's code or need another kind of run."""


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_a_bug_is_found_by_the_check_of_its_subject(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    proof.bug(monkeypatch)
    violations = play(*proof.faults, expect=[proof.expected])
    assert proof.check in violations, violations
    assert any(proof.sentence in each for each in violations[proof.check]), violations[proof.check]


@pytest.mark.parametrize("faults", dict.fromkeys(proof.faults for proof in PROOFS), ids=str)
def test_the_runs_of_these_tests_pass_without_a_bug(faults: tuple[Fault, ...]) -> None:
    expected = [proof.expected for proof in PROOFS if proof.faults == faults]
    assert play(*faults, expect=expected) == {}


def test_every_check_with_a_subject_is_proven_on_brokers_with_a_bug() -> None:
    proven = {proof.check for proof in PROOFS} | set(ELSEWHERE)
    proven |= test_broken_homes.PROVEN | test_outboxes.PROVEN
    assert proven == {check.name for check in ALL}


def test_two_brokers_with_one_id_are_found_once_both_had_it_for_too_long() -> None:
    twins = Fault(1.0, "duplicate_id", (TWO,), for_s=6.0)
    for within_s, found in ((1.0, True), (8.0, False)):
        failed = play(twins, expect=[expectation("one_of_each_id", within_s=within_s)])
        assert ("one_of_each_id" in failed) is found


# --- messages


class Faulty:
    """Stands before a subscription and alters deliveries like a broken broker."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription
        self._count = 0
        self._again: list[Any] = []

    def __aiter__(self) -> Faulty:
        return self

    async def __anext__(self) -> Any:
        if self._again:
            return self._again.pop()
        delivery = await self._subscription.__anext__()
        self._count += 1
        if self._count == 10:
            self._again = [delivery]  # twice
        if self._count == 20:
            delivery.body += b"!"
        if self._count % 15 == 0:
            delivery = await self._subscription.__anext__()  # one is lost
        return delivery


def test_a_mesh_that_delivers_twice_alters_or_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = clients._read

    async def broken(process: Process, ledger: Ledger, subscription: Any) -> None:
        await read(process, ledger, Faulty(subscription))  # type: ignore[arg-type]

    monkeypatch.setattr(clients, "_read", broken)
    failed = play(workload=replace(SMALL.workload, publishers=2))
    assert {"at_most_once", "genuine", "complete"} <= set(failed)


def test_a_mesh_that_swaps_two_messages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = clients._read

    class Turned(Faulty):
        async def __anext__(self) -> Any:
            if self._again:
                return self._again.pop()
            first = await self._subscription.__anext__()
            second = await self._subscription.__anext__()
            self._again = [first]
            return second

    async def broken(process: Process, ledger: Ledger, subscription: Any) -> None:
        await read(process, ledger, Turned(subscription))  # type: ignore[arg-type]

    monkeypatch.setattr(clients, "_read", broken)
    assert "after number" in play()["in_order"][0]


def test_heartbeats_that_wait_behind_data_are_found() -> None:
    """Everything waits on so narrow a line, whatever the brokers do."""
    expected = expectation("heartbeats_pass")
    narrow = Fault(1.0, "narrow_link", ("broker-1",), (), 6.0, 4000.0)
    heavy = replace(SMALL.workload, publishers=2, pause_s=0.02)
    assert "heartbeats_pass" in play(narrow, expect=[expected], workload=heavy)
    assert "heartbeats_pass" not in play(*CRASH, expect=[expected])


# --- surveys of clients


def asker(ledger: Ledger) -> Main:
    async def main(process: Process) -> None:
        client = await programs.opened(process)
        try:
            for number in range(3):
                question = Question(
                    process.name, process.life, f"question {number}", process.world.now_s, 1.0
                )
                ledger.questions.append(question)
                async with asyncio.timeout(4):
                    result = await client.survey("who", question.name.encode(), deadline=question.timeout_s)
                question.ended_s = process.world.now_s
                question.answers += [
                    Answered(answer.responder, answer.body.decode(), question.ended_s)
                    for answer in result.answers
                ]
        except TimeoutError:
            pass  # the last question has no end
        finally:
            await client.aclose()

    return main


def responder(*, silent: bool = False) -> Main:
    async def main(process: Process) -> None:
        client = await programs.opened(process)
        try:
            async with client.subscribe("who", answers=True) as subscription:
                async for delivery in subscription:
                    if not silent:
                        delivery.done(delivery.body)
        finally:
            await client.aclose()

    return main


def surveyed() -> dict[str, tuple[str, ...]]:
    """The verdicts of a run in which a client asks two others, one of which never answers."""
    ledger = Ledger()
    with World(1) as world:
        recorder = Recorder(world, SMALL, ledger)
        for name in ("broker-1", "broker-2"):
            join = [world.network.hosts["broker-1"].address] if world.nodes else []
            world.add_node(name, programs.broker("surveys", join)).start()
        world.add_node("answers", responder(), host="broker-2").start()
        world.add_node("is-silent", responder(silent=True), host="broker-1").start()
        world.run_for(3)
        world.add_node("asks", asker(ledger), host="broker-1").start()
        world.run_for(9)
        recorder.sample()
    evidence = recorder.finish({"end_s": world.now_s})
    expected = [expectation("answers_count_once"), expectation("surveys_return")]
    return {verdict.check: verdict.violations for verdict in judge(evidence, expected)[-2:]}


def test_surveys_return_by_their_deadline_and_count_each_answer_once() -> None:
    assert surveyed() == {"answers_count_once": (), "surveys_return": ()}


def test_a_survey_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Questions, "expired", lambda self, now: [])
    assert "question 0 of asks returned never; it had 1 s" in surveyed()["surveys_return"]


def test_an_answer_that_counts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Client.survey

    async def twice(self: Client, topic: str, body: bytes, **options: Any) -> Any:
        result = await ask(self, topic, body, **options)
        result.answers += result.answers[:1]
        return result

    monkeypatch.setattr(Client, "survey", twice)
    assert "to question 0 twice" in surveyed()["answers_count_once"][0]


# --- programs and the simulator itself


def test_a_broker_that_dies_of_a_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    started = programs.broker

    def fragile(*arguments: Any, **options: Any) -> Any:
        main = started(*arguments, **options)

        async def dies(process: Process) -> None:
            if process.name == "broker-2":
                raise ZeroDivisionError("a bug")
            await main(process)

        return dies

    monkeypatch.setattr(programs, "broker", fragile)
    failed = play()
    assert "ZeroDivisionError: a bug" in failed["sound"][0]
    assert any("broker-2 is not up" in violation for violation in failed["converged"])


def streamed() -> tuple[str, ...]:
    """The violations of a run in which one process sends another a thousand bytes."""

    async def server(process: Process) -> None:
        async def drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(drain, process.address, 7000):
            await process.stopping.wait()

    async def client(process: Process) -> None:
        _, writer = await asyncio.open_connection("server", 7000)
        writer.write(bytes(1000))
        await process.stopping.wait()
        writer.close()

    with World(1) as world:
        recorder = Recorder(world, SMALL, Ledger())
        for name, main in (("server", server), ("client", client)):
            world.add_node(name, main).start()
            world.run_for(1)
        recorder.sample()
        world.node("client").stop()
        world.run_for(1)
    return judge(recorder.finish({}), [expectation("bytes_conserved")])[-1].violations


def test_a_network_that_loses_a_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert streamed() == ()
    arrive = tcp._arrive
    monkeypatch.setattr(
        tcp, "_arrive", lambda half, number, kind, data: arrive(half, number, kind, data[:-1])
    )
    assert "1 of 1000 bytes vanished, though it did not break" in streamed()[0]


def test_two_runs_of_different_seeds_are_not_taken_for_repetitions() -> None:
    runs = [Play(SMALL, seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.run()
    evidence = [run.evidence for run in runs if run.evidence is not None]
    same, other = evidence[0], evidence[2]
    same.hashes.append(("again", evidence[1].hashes[0][1]))
    assert judge(same, [expectation("repeatable")])[-1].ok
    same.hashes.append(("another seed", other.hashes[0][1]))
    assert not judge(same, [expectation("repeatable")])[-1].ok
