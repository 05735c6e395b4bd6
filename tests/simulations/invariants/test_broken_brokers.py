"""Checks find bugs: production brokers run with one put in on purpose, and the check of its subject fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from mesh import membership
from mesh.asking import Questions
from mesh.client import Client
from mesh.dialling import Dialling
from mesh.interest import InterestTable
from mesh.membership import Instruction, MemberRecord, Membership, State, Tell
from mesh.node import Node
from mesh.overlay import Dial
from mesh.rounds import Rounds
from simulations import programs
from simulations.evidence import Recorder
from simulations.faults import Fault
from simulations.invariants import judge
from simulations.ledger import Answered, Ledger, Question
from simulations.network import Half
from simulations.playing import Play
from simulations.scenario import Scenario, Workload
from simulations.world import Main, Process, World
from tests.simulations.invariants.histories import expectation

SMALL = Scenario(
    "small",
    brokers=3,
    warm_s=1.0,
    bound_s=15.0,
    quiet_s=2.0,
    workload=Workload(publishers=0, subscribers=0),
)
TRAFFIC = Workload(publishers=1, subscribers=2, pause_s=0.1)
CRASH = Fault(1.0, "crash", ("broker-3",), for_s=8.0)
PAUSE = Fault(1.0, "pause", ("broker-3",), for_s=1.9)
LONG_PAUSE = Fault(1.0, "pause", ("broker-3",), for_s=4.0)
SPLIT = Fault(1.0, "partition", ("broker-1",), (), 8.0)
RESET = Fault(4.0, "reset", ("broker-1",))
LEAVE = Fault(1.0, "stop", ("broker-3",), for_s=8.0)


def play(*faults: Fault, expect: Iterable[str] = (), **changes: Any) -> dict[str, tuple[str, ...]]:
    """The violations by check, of a run of three brokers."""
    scenario = replace(SMALL, faults=faults, expect=tuple(map(expectation, expect)), **changes)
    result = Play(scenario, seed=1).run()
    return {verdict.check: verdict.violations for verdict in result.verdicts if not verdict.ok}


@pytest.mark.parametrize("faults", [(CRASH,), (PAUSE,), (LONG_PAUSE,), (SPLIT,), (LEAVE,), (RESET,)])
def test_without_a_bug_the_runs_of_these_tests_pass(faults: tuple[Fault, ...]) -> None:
    assert play(*faults, workload=TRAFFIC) == {}
    assert play(SPLIT, expect=["healed"]) == {}


# --- bugs


def each_round(
    act: Callable[[Membership, float, list[Instruction]], None],
) -> Callable[[pytest.MonkeyPatch], None]:
    """A bug that comes with every round from the tenth on."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        begin_round = Membership._begin_round

        def broken(self: Membership, now: float, out: list[Instruction]) -> None:
            begin_round(self, now, out)
            if self.round >= 10:
                act(self, now, out)

        patch.setattr(Membership, "_begin_round", broken)

    return put_in


def about(name: str, act: Callable[[Membership, membership._Member, float, list[Instruction]], None]) -> Any:
    """A bug in what the others hold of one broker."""

    def act_on_it(self: Membership, now: float, out: list[Instruction]) -> None:
        for member in list(self._members.values()):
            if member.record.name == name:
                act(self, member, now, out)

    return each_round(act_on_it)


def instead(owner: type, name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, replacement)


def _ignore_the_third(patch: pytest.MonkeyPatch) -> None:
    take = Membership._take

    def deaf(self: Membership, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        if not (self.me.name == "broker-1" and record.name == "broker-3"):
            take(self, record, via, now, out)

    patch.setattr(Membership, "_take", deaf)


def _lower(self: Membership, member: membership._Member, now: float, out: list[Instruction]) -> None:
    member.record = replace(member.record, incarnation=member.record.incarnation - 1)


def _raise(self: Membership, member: membership._Member, now: float, out: list[Instruction]) -> None:
    member.record = replace(member.record, incarnation=member.record.incarnation + 1)


def _kill(self: Membership, member: membership._Member, now: float, out: list[Instruction]) -> None:
    if member.record.state is State.ALIVE and self.round == 12:
        self._accuse(member, State.DEAD, "a bug", now, out)


def _bid_farewell(self: Membership, member: membership._Member, now: float, out: list[Instruction]) -> None:
    if self.round == 12:
        self._replace(member, replace(member.record, state=State.LEFT), "a bug", self.me.id, now, out)


def _believe_it(self: Membership, record: MemberRecord, now: float, out: list[Instruction]) -> None:
    if record.state is not State.LEFT:
        self._set_self(replace(self.me, state=record.state), out)


def _accuse_in_void_rounds(patch: pytest.MonkeyPatch) -> None:
    void = Membership._void

    def broken(self: Membership, now: float, out: list[Instruction]) -> None:
        void(self, now, out)
        for member in list(self._members.values()):
            if member.record.state is State.ALIVE:
                self._accuse(member, State.SUSPECT, "a bug", now, out)

    patch.setattr(Membership, "_void", broken)


def _leave_in_silence(patch: pytest.MonkeyPatch) -> None:
    leave = Membership.leave
    patch.setattr(
        Membership, "leave", lambda self: [each for each in leave(self) if not isinstance(each, Tell)]
    )


def _dial_for_a_while(patch: pytest.MonkeyPatch) -> None:
    """And nobody is missed afterwards."""
    begin = Dialling.begin
    began: dict[Dialling, float] = {}

    def broken(self: Dialling, dial: Dial) -> None:
        now = asyncio.get_running_loop().time()
        if now - began.setdefault(self, now) < 3:
            begin(self, dial)

    patch.setattr(Dialling, "begin", broken)
    patch.setattr(Membership, "_judge_member", lambda *_: None)


def _begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Without the incarnation of before, and without listening to what others say of it."""
    begin = Membership.__init__

    def broken(self: Membership, me: MemberRecord, **options: Any) -> None:
        begin(self, replace(me, incarnation=1), **options)

    patch.setattr(Membership, "__init__", broken)
    patch.setattr(Membership, "_hear_of_self", lambda *_: None)


def _forget_the_dead(patch: pytest.MonkeyPatch) -> None:
    bury = Membership._bury

    def broken(self: Membership, now: float, out: list[Instruction]) -> None:
        for member in list(self._members.values()):
            if member.record.state is State.DEAD and not member.linked:
                self._forget(member, out)
        bury(self, now, out)

    patch.setattr(Membership, "_bury", broken)


def _tell_twice(patch: pytest.MonkeyPatch) -> None:
    told = Node.member_changed

    def broken(self: Node, *news: Any) -> None:
        told(self, *news)
        told(self, *news)

    patch.setattr(Node, "member_changed", broken)


def _hurry(self: Membership, now: float, out: list[Instruction]) -> None:
    self._next_round = now + 0.02


def _hoard(self: Membership, now: float, out: list[Instruction]) -> None:
    ghost = replace(self.me, id=self.me.id ^ self.round, name="a ghost", state=State.DEAD)
    self._members[ghost.id] = membership._Member(ghost, now)


def _leak_timers(self: Membership, now: float, out: list[Instruction]) -> None:
    for _ in range(5):
        asyncio.get_running_loop().call_later(1e6, print)


def _forget_a_pattern(patch: pytest.MonkeyPatch) -> None:
    received = InterestTable.whole_received

    def broken(self: InterestTable, member: int, *parts: Any) -> bool:
        whole = received(self, member, *parts)
        self._remote[member].patterns.clear()
        return whole

    patch.setattr(InterestTable, "whole_received", broken)


def _count_twice(patch: pytest.MonkeyPatch) -> None:
    answered = Rounds._answered

    def broken(self: Rounds, link: Any, round: int) -> None:
        answered(self, link, round)
        self._hooks.heard_answer(link.peer.id, round, link.rtt_s)

    patch.setattr(Rounds, "_answered", broken)


_DEAF = instead(Membership, "_hear_of_self", lambda *_: None)
_BLIND = instead(Membership, "_judge_member", lambda *_: None)
_LIKE_NO_OTHER = instead(Membership, "digest", property(lambda self: self.me.id.to_bytes(8)))
_BELIEVES_ALL = instead(Membership, "_hear_of_self", _believe_it)
_FIRST_COME = instead(MemberRecord, "key", property(lambda self: (0, self.id, 0, "", "", "", "")))

BUGS: list[tuple[str, str, Callable[[pytest.MonkeyPatch], None], tuple[Fault, ...]]] = [
    ("converged", "broker-1 does not see broker-3 alive", _ignore_the_third, ()),
    ("one_digest", "the digests differ", _LIKE_NO_OTHER, ()),
    ("records_only_grow", "broker-1 held broker-2 as alive of incarnation", about("broker-2", _lower), ()),
    ("only_owners_raise", "holds incarnation", about("broker-2", _raise), ()),
    ("merge_is_order_free", "by the order in which", _FIRST_COME, (CRASH,)),
    ("answers_accusations", "broker-3 left it unanswered", _DEAF, (PAUSE,)),
    ("answers_accusations", "broker-3 holds itself suspect", _BELIEVES_ALL, (PAUSE,)),
    ("detected", "did not call broker-3 dead within 4.5 s", _BLIND, (CRASH,)),
    ("no_false_deaths", "called broker-2 dead", about("broker-2", _kill), ()),
    ("void_rounds_accuse_nobody", "in a round that was void", _accuse_in_void_rounds, (LONG_PAUSE,)),
    ("left_by_own_word", "which never said so", about("broker-2", _bid_farewell), ()),
    ("leaves_are_seen", "called broker-3 dead, which left", _leave_in_silence, (LEAVE,)),
    ("restarts_are_one_member", "of broker-3, which was started again", _begin_anew, (CRASH,)),
    ("degree", "broker-1 has 0 links, fewer than 2", _dial_for_a_while, (RESET,)),
    ("connected", "no way of links leads from broker-1", _dial_for_a_while, (RESET,)),
    ("no_storm", "things a second", each_round(_hurry), ()),
    ("memory_bounded", "members at", each_round(_hoard), ()),
    ("no_resurrection", "had forgotten it", _forget_the_dead, (CRASH,)),
    ("changes_follow", "told twice that", _tell_twice, ()),
    ("answers_count_once", "was counted twice", _count_twice, ()),
    ("no_leaks", "timers at rest", each_round(_leak_timers), ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "sentence", "bug", "faults"), BUGS, ids=[f"{bug[0]}-{n}" for n, bug in enumerate(BUGS)]
)
def test_a_bug_is_found_by_the_check_of_its_subject(
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    sentence: str,
    bug: Callable[[pytest.MonkeyPatch], None],
    faults: tuple[Fault, ...],
) -> None:
    bug(monkeypatch)
    violations = play(*faults, safety_s=15.0)
    assert check in violations, violations
    assert any(sentence in violation for violation in violations[check]), violations[check]


def test_a_mesh_that_is_not_whole_again_after_a_split_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "_hear_of_self", lambda *_: None)
    assert "does not see broker-1" in play(SPLIT, expect=["healed"])["healed"][0]


# --- messages


class Faulty:
    """Stands before a subscription and does to deliveries what a broken broker would."""

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
        if self._count == 30:
            delivery = await self._subscription.__anext__()  # one is lost
        return delivery


def test_a_mesh_that_delivers_twice_alters_or_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = programs._read

    async def broken(process: Process, ledger: Ledger, subscription: Any) -> None:
        await read(process, ledger, Faulty(subscription))  # type: ignore[arg-type]

    monkeypatch.setattr(programs, "_read", broken)
    failed = play(workload=replace(TRAFFIC, publishers=2))
    assert {"at_most_once", "genuine", "complete"} <= set(failed)


def test_a_mesh_that_turns_two_messages_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = programs._read

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

    monkeypatch.setattr(programs, "_read", broken)
    assert "after number" in play(workload=TRAFFIC)["in_order"][0]


def test_a_broker_that_forgets_what_another_wants_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_a_pattern(monkeypatch)
    assert "does not hold what" in play(workload=TRAFFIC)["interest_known"][0]


def test_heartbeats_that_wait_behind_data_are_found() -> None:
    """Everything waits on so narrow a line, whatever the brokers do."""
    narrow = Fault(1.0, "narrow_link", ("broker-1",), (), 6.0, 4000.0)
    heavy = replace(TRAFFIC, publishers=2, pause_s=0.02)
    assert "heartbeats_pass" in play(narrow, expect=["heartbeats_pass"], workload=heavy)
    assert "heartbeats_pass" not in play(CRASH, expect=["heartbeats_pass"], workload=TRAFFIC)


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
    arrive = Half._deliver
    monkeypatch.setattr(Half, "_deliver", lambda self, kind, data: arrive(self, kind, data[:-1]))
    assert "1 of 1000 bytes vanished, though it did not break" in streamed()[0]


def test_two_runs_of_different_seeds_do_not_pass_for_repetitions() -> None:
    runs = [Play(SMALL, seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.run()
    evidence = [run.evidence for run in runs if run.evidence is not None]
    same, other = evidence[0], evidence[2]
    same.hashes.append(("again", evidence[1].hashes[0][1]))
    assert judge(same, [expectation("repeatable")])[-1].ok
    same.hashes.append(("another seed", other.hashes[0][1]))
    assert not judge(same, [expectation("repeatable")])[-1].ok
