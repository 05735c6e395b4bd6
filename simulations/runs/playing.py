"""Plays a scenario in a world of the real brokers and clients, and reports the outcome.

The phases are those of `simulations.scenario`. Each broker except the first joins one of the two before it,
so that discovery has work to do. Clients run as separate processes on their broker's host. All random choices
come from streams named after the seed, so that scenario, seed and size determine the run.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from simulations import faults, programs
from simulations.evidence import Evidence, Recorder, truth
from simulations.evidence.ledger import Ledger, Outcome, Said
from simulations.evidence.measuring import TOLD, Measures, Measuring
from simulations.faults import KINDS, Fault
from simulations.invariants import Verdict, judge
from simulations.kernel.scheduler import nanoseconds
from simulations.runs.operating import Operator
from simulations.runs.wholeness import POLL_S, START_S, is_whole, wait_whole_for_good
from simulations.scenario import Scenario, TooManyBrokers
from simulations.scenarios.selecting import homes, resolve
from simulations.world import Deadlock, World

BROKERS_MAX: Final = 128
"""The most brokers: links grow with the square of their number, and all of them run in this one process."""
SETTLE_S: Final = 5.0
"""Seconds in which clients find their brokers again after a fault."""
DRAIN_S: Final = 5.0
"""Seconds in which the last publications arrive."""
LEAVE_S: Final = 15.0
CUTS: Final = ("partition", "cut_one_way", "isolate")
"""Simple kinds of links that let nothing through."""
GOES_ON: Final = "goes_on"
ENDS_WHEN_ASKED: Final = "ends_when_asked"
OF_THE_RUN: Final = (GOES_ON, ENDS_WHEN_ASKED)
"""Violations without a check: the run itself did not go on."""
HEALING_S: Final = 5.0
"""A fault within so many seconds after the end of another meets a healing mesh."""
TOPICS: Final = ("news.uk", "news.fr.paris", "sensor.1.temperature", "sensor.2.temperature", "orders")
SLOWER: Final = 10.0
"""The factor by which slow workers take longer."""
PATTERNS: Final = (("#",), ("news.#",), ("sensor.*.temperature",), ("orders", "news.uk"))

Say = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """A run, in terms that are equal whenever scenario, seed, size and code are equal."""

    scenario: Scenario
    """The scenario as it was played: all names and numbers concrete, and of the played size."""
    seed: int
    size: str
    history_hash: str
    virtual_s: float
    phases: tuple[tuple[str, float], ...]
    """When each phase began, by name; a phase that never came is missing."""
    whole_in_s: float | None
    """From the heal to a mesh that is whole; None if it never was."""
    verdicts: tuple[Verdict, ...]
    counts: dict[str, int]
    faults: tuple[str, ...]
    """The faults as they were done, with their times."""
    coverage: dict[str, dict[str, int]]
    """How often a kind of fault met a mesh in a state."""
    measures: Measures

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that found a violation."""
        return tuple(verdict.check for verdict in self.verdicts if not verdict.ok)

    @property
    def ours(self) -> str:
        """The figures that the scenario compares with a paper's; empty if there are none."""
        found = {each.check: f"{each.check}: {each.looked_at}" for each in self.verdicts}
        found |= {name: self.measures.told(name) for name in TOLD}
        return "; ".join(found[name] for name in self.scenario.compared_names if name in found)

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "seed": self.seed,
            "size": self.size,
            "nodes": self.scenario.brokers,
            "ok": self.ok,
            "history_hash": self.history_hash,
            "virtual_s": round(self.virtual_s, 6),
            "phases": {name: round(at_s, 6) for name, at_s in self.phases},
            "whole_in_s": None if self.whole_in_s is None else round(self.whole_in_s, 6),
            "checks": [verdict.as_json() for verdict in self.verdicts],
            "counts": self.counts,
            "faults": list(self.faults),
            "coverage": self.coverage,
            "measures": self.measures.as_json(),
            "theirs": self.scenario.paper,
            "ours": self.ours,
        }


def play(
    scenario: Scenario,
    *,
    seed: int,
    size: str = "ci",
    out: str | None = None,
    say: Say | None = None,
    keep_history: bool = False,
) -> Result:
    """Play a scenario.

    ``say`` gets the virtual time and the events, and an empty text every second. The event logs and the truth
    go to the folder ``out``.

    Raises:
        ValueError: the scenario cannot be played; the message says why.
        OSError: ``out`` cannot be written.
    """
    return Play(scenario, seed=seed, size=size, out=out, say=say, keep_history=keep_history).run()


class Play:
    """One run, whose world and evidence can be inspected afterwards. For its parameters see `play`."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int,
        size: str = "ci",
        out: str | None = None,
        say: Say | None = None,
        keep_history: bool = False,
        log_heartbeats: str = "each",
    ) -> None:
        self.scenario = resolve(scenario.at_size(size), seed)
        if self.scenario.brokers + self.scenario.spares > BROKERS_MAX:
            waits = f", and waits for {scenario.waiting_for}" if scenario.waiting_for else ""
            raise TooManyBrokers(
                f"{scenario.name} has {self.scenario.brokers + self.scenario.spares} brokers; a full mesh of "
                f"more than {BROKERS_MAX} takes too long{waits}; --fidelity cores plays up to 500"
            )
        if out is not None:
            _check_writable(out)
        self.seed = seed
        self.size = size
        self.out = out
        self._log_heartbeats = log_heartbeats
        self.name = f"{scenario.name}-{seed}"
        """The mesh's name, which is the run's in its logs: two runs below one folder must look different."""
        self.world = World(
            seed,
            quality=self.scenario.network,
            chunked=bool(self.scenario.chunked),
            permuted=bool(self.scenario.permuted),
            keep_history=keep_history,
            keep_failures=True,
        )
        self.ledger = Ledger()
        self._brokers = (*self.scenario.broker_names, *self.scenario.spare_names)
        self.phases: dict[str, float] = {}
        self.verdicts: list[Verdict] = []
        self.coverage = Coverage(self)
        self.evidence: Evidence | None = None
        self._recorder = Recorder(self.world, self.scenario, self.ledger)
        self._homes = homes(self.scenario, seed)
        self._whole_in_s: float | None = None
        self._logs: truth.LogWriter | None = None
        self._tell = say or (lambda now_s, text: None)

    # --- a run

    def run(self) -> Result:
        """Raises `OSError` if the logs cannot be written."""
        if self.out is not None:
            self._logs = truth.LogWriter(self.world, self.out, run=self.name, scenario=self.scenario.name)
        with self.world as world:
            world.on_second = self._second_passed
            try:
                self._phases()
            except (Deadlock, TimeoutError) as error:
                self._violated(GOES_ON, "the scenario", str(error))
            self._enter("end_s")
        # Only now: the silent failures of tasks are known after the world has been taken apart.
        self.evidence = evidence = self._recorder.finish(dict(self.phases))
        broken = bool(self.verdicts)
        measuring = Measuring(self.world.ongoing.spans, self._brokers)
        verdicts = judge(evidence, self.scenario.expect, also=[measuring])
        # A missing phase is not reported beside the violation that prevented it.
        self.verdicts += [verdict for verdict in verdicts if not (broken and verdict.empty)]
        if self._logs is not None:
            self._logs.finish()
        return self._result(measuring)

    def _phases(self) -> None:
        self._start_brokers()
        self._wait_whole()
        self._enter("clients_s")
        self._start_clients()
        self._enter("warm_s")
        self.world.run_for(self.scenario.warm_s)
        self._enter("safety_s")
        self._safety_phase()
        self._heal()
        self._quiet_time()
        self._leave()

    def _start_brokers(self) -> None:
        scenario, world = self.scenario, self.world
        for index, name in enumerate(self._brokers):
            known = scenario.broker_names[max(0, index - 2) : index] or scenario.broker_names[:index]
            draw = random.Random(f"{self.seed}:join:{name}")
            contacts = draw.sample(known, min(scenario.contacts, len(known)))
            main = programs.broker(
                self.name,
                [world.network.hosts[contact].address for contact in contacts],
                period_s=scenario.period_s,
                deadline_s=scenario.deadline_s,
                transport=scenario.workload.transport,
                log_heartbeats=self._log_heartbeats,
            )
            world.add_node(name, main)
            if index < scenario.brokers:
                self._do("start", [name])
                world.run_for(scenario.start_gap_s)
        if scenario.brokers > 1:
            # The founder of a mesh knows nobody. If it loses its state, it needs an address to return by.
            world.node("broker-1").settings.join = (world.network.hosts["broker-2"].address,)

    def _start_clients(self) -> None:
        """Return when all subscriptions have passed their barrier, and all workers are attached."""
        scenario, workload = self.scenario, self.scenario.workload
        subscribers = scenario.subscriber_names
        for number, name in enumerate(subscribers):
            main = programs.subscriber(self.ledger, PATTERNS[number % len(PATTERNS)], workload.transport)
            self.world.add_node(name, main, host=self._homes[name]).start()
        for name in scenario.answerer_names:
            self.world.add_node(name, programs.answerer, host=self._homes[name]).start()
        for name in scenario.stock_subscriber_names:
            self.world.add_node(name, programs.stock_subscriber(self.ledger), host=self._homes[name]).start()
        self._start_workers()
        listening = (*subscribers, *scenario.answerer_names, *scenario.stock_subscriber_names)
        listening = (*listening, *scenario.worker_names)
        self._wait_exposed(listening, "a subscription of every subscriber")
        habits = programs.Habits(
            workload.pause_s,
            workload.size_max,
            workload.sent_share,
            workload.batch_max,
            workload.headers_share,
            workload.large_share,
            workload.large_size,
            workload.stored_share,
            workload.outbox_share,
        )
        for name in scenario.publisher_names:
            main = programs.publisher(self.ledger, TOPICS, habits, workload.transport)
            self.world.add_node(name, main, host=self._homes[name]).start()
        for name in scenario.asker_names:
            main = programs.asker(
                self.ledger,
                workload.ask_pause_s,
                workload.ask_timeout_s,
                workload.request_share,
                workload.transport,
            )
            self.world.add_node(name, main, host=self._homes[name]).start()
        for number, name in enumerate(scenario.stock_publisher_names):
            main = programs.stock_publisher(self.ledger, TOPICS, workload.pause_s, number, workload.size_max)
            self.world.add_node(name, main, host=self._homes[name]).start()

    def _start_workers(self) -> None:
        """The first worker of each durable subscription makes it: two at once would make it at two homes."""
        scenario, workload = self.scenario, self.scenario.workload
        queues = scenario.queue_names
        for number, name in enumerate(scenario.worker_names):
            habits = programs.WorkHabits(
                workload.work_s * (SLOWER if number < workload.slow_workers else 1),
                workload.work_window,
                workload.retry_share,
                workload.fail_share,
                workload.drop_share,
                workload.poison_share,
            )
            which = number % len(queues)
            patterns = PATTERNS[which % len(PATTERNS)]
            main = programs.worker(self.ledger, queues[which], patterns, habits, workload.transport)
            node = self.world.add_node(name, main, host=self._homes[name])
            if number == len(queues):
                self._wait_exposed(scenario.worker_names[: len(queues)], "a home of every subscription")
            node.start()

    def _wait_exposed(self, names: Sequence[str], what: str) -> None:
        self.world.run_until(
            lambda: all(self.world.node(name).exposed is not None for name in names),
            timeout_s=START_S,
            what=what,
            poll_s=POLL_S,
        )

    def _safety_phase(self) -> None:
        world = self.world
        for fault in self.scenario.faults:
            strikes = replace(fault, at_s=world.now_s + fault.at_s)
            world.scheduler.at(nanoseconds(strikes.at_s), self._strike, strikes)
        world.run_for(self.scenario.safety_length_s)

    def _strike(self, fault: Fault) -> None:
        struck = faults.possible(self.world, fault)
        if struck is None:
            self._say(f"{_told(fault)}: passed over, since it cannot be done now")
            return
        self.coverage.met(struck)
        self._say(_told(struck))
        faults.apply(self.world, struck)

    def _heal(self) -> None:
        """End the lasting faults, start what is down, and wait until the mesh is whole, within the bound."""
        self._enter("healed_s")
        if self.scenario.faults:
            self._say("heal")
            self.world.heal()
            operator = self._operator()
            if operator is not None:
                operator.replace_lost_folders()
                operator.restart_failed_homes()
                operator.restart_failed_outboxes(self.scenario.publisher_names)
            whole_s = self._wait_whole_for_good()
            if operator is not None:
                operator.forget_lost_homes()
        else:
            whole_s = self.world.now_s if self._is_whole() else None
        if whole_s is not None:
            self.phases["whole_s"] = whole_s
            self._whole_in_s = round(whole_s - self.phases["healed_s"], 6)
            self._enter("held_s")
        if self.scenario.faults:
            settled_s = (self.world.now_s if whole_s is None else whole_s) + SETTLE_S
            self.world.run_for(max(0.0, settled_s - self.world.now_s))

    def _operator(self) -> Operator | None:
        """The operator of the homes, if there are any."""
        workload = self.scenario.workload
        if not workload.durable_subscriptions:
            return None
        queues = self.scenario.queue_names
        return Operator(self.world, self.ledger, self._brokers, queues, workload.transport, self._say)

    def _quiet_time(self) -> None:
        """A time without faults: everything published in it must arrive everywhere."""
        self._enter("quiet_from_s")
        self._say(f"quiet for {self.scenario.quiet_s:g} s")
        self.world.run_for(self.scenario.quiet_s)
        self._enter("quiet_until_s")
        scenario = self.scenario
        self._stop([*scenario.publisher_names, *scenario.asker_names, *scenario.stock_publisher_names])
        self.world.run_for(DRAIN_S)
        self._end_subscriptions()
        self._enter("drained_s")

    def _leave(self) -> None:
        """Everybody is asked to end, and must."""
        scenario = self.scenario
        self._stop(
            [
                *(*scenario.subscriber_names, *scenario.answerer_names),
                *(*scenario.stock_subscriber_names, *scenario.worker_names),
            ]
        )
        for name in self._brokers:
            if self.world.node(name).running:
                self._do("stop", [name])
                self.world.run_for(self.scenario.start_gap_s)
        self._wait_down(self._brokers)

    # --- parts of it

    def _do(self, kind: str, a: Sequence[str]) -> None:
        self.world.inject(kind, a)
        self._say(f"{kind.replace('_', ' ')} {' '.join(a)}")

    def _enter(self, phase: str) -> None:
        self.phases[phase] = self.world.now_s
        self._recorder.sample(deep=True)

    def _second_passed(self, now_s: float) -> None:
        self._recorder.sample()
        if self._logs is not None:
            self._logs.write()
        self._tell(now_s, "")

    def _say(self, text: str) -> None:
        self._tell(self.world.now_s, text)

    def _wait_whole(self) -> None:
        try:
            seconds = self.world.run_until(self._is_whole, timeout_s=START_S, what="start", poll_s=POLL_S)
        except TimeoutError:
            self._say(f"start: not whole within {START_S:g} s")
        else:
            self._say(f"start: whole in {seconds:.2f} s")

    def _wait_whole_for_good(self) -> float | None:
        healed_s = self.world.now_s
        whole_s = wait_whole_for_good(self.world, self._brokers, self.scenario)
        if whole_s is None:
            self._say(f"heal: not whole within {self.scenario.bound_s:g} s")
        else:
            self._say(f"heal: whole in {whole_s - healed_s:.2f} s")
        return whole_s

    def _is_whole(self) -> bool:
        return is_whole(self.world, self._brokers)

    def _end_subscriptions(self) -> None:
        """A subscriber that was killed could not record the end of its subscription."""
        ended_s = {(each.name, each.life): each.ended_s for each in self.world.processes}
        for subscription in self.ledger.subscriptions:
            end_s = ended_s[subscription.subscriber, subscription.life]
            if end_s is not None:
                subscription.until_s = min(subscription.until_s, end_s)

    def _stop(self, names: Iterable[str]) -> None:
        stopped = [name for name in names if self.world.node(name).running]
        for name in stopped:
            self.world.node(name).stop()
        self._wait_down(stopped)

    def _wait_down(self, names: Sequence[str]) -> None:
        def down() -> bool:
            return not any(self.world.node(name).running for name in names)

        try:
            self.world.run_until(
                down, timeout_s=LEAVE_S, what="the end of " + ", ".join(names), poll_s=POLL_S
            )
        except TimeoutError as error:
            waiting = ", ".join(name for name in names if self.world.node(name).running)
            self._violated(ENDS_WHEN_ASKED, waiting, f"{error}: {self.world.waiting()}")

    def _violated(self, check: str, looked_at: str, violation: str) -> None:
        """One of `OF_THE_RUN`."""
        self.verdicts.append(Verdict(check, looked_at, (violation,)))

    def _work_counts(self) -> dict[str, int]:
        """The fate of messages at level stored, in runs that have any."""
        ledger = self.ledger
        if self.evidence is None or not self.scenario.workload.durable_subscriptions:
            return {}
        journals = self.evidence.journals
        return {
            "stored": ledger.count(Outcome.STORED),
            "in_outboxes": ledger.count(Outcome.OUTBOX),
            "worked": sum(job.said is Said.DONE for job in ledger.jobs),
            "redelivered": sum(job.redelivered for job in ledger.jobs),
            "waiting": sum(len(found) for each in journals for found in each.waiting.values()),
            "dead_letters": sum(len(found) for each in journals for found in each.dead.values()),
        }

    def _result(self, measuring: Measuring) -> Result:
        world, ledger = self.world, self.ledger
        return Result(
            scenario=self.scenario,
            seed=self.seed,
            size=self.size,
            history_hash=world.history.digest,
            virtual_s=world.now_s,
            phases=tuple(self.phases.items()),
            whole_in_s=self._whole_in_s,
            verdicts=tuple(self.verdicts),
            counts={
                "events": world.scheduler.events,
                "turns": world.history.counts["turn"],
                "arrivals": world.history.counts["data"],
                "connections": world.network.connections,
                "published": len(ledger.publications),
                "accepted": ledger.count(Outcome.ACCEPTED),
                "refused": ledger.count(Outcome.REFUSED),
                "unknown": ledger.count(Outcome.UNKNOWN),
                "sent": ledger.count(Outcome.SENT),
                **self._work_counts(),
                "delivered": len(ledger.receipts),
                "asked": len(ledger.questions),
                "answered": sum(len(question.answers) for question in ledger.questions),
                "log_rows": measuring.rows,
            },
            faults=tuple(f"{at_s:.3f} {fault}" for at_s, fault in world.faults),
            coverage=self.coverage.counts,
            measures=measuring.measures(self._whole_in_s),
        )


class Coverage:
    """Counts which kinds of fault met the mesh, or the struck part of it, in which states."""

    def __init__(self, play: Play) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self._play = play

    def met(self, fault: Fault) -> None:
        """The fault is about to be done."""
        counts = self.counts.setdefault(fault.kind, {})
        for state in dict.fromkeys(self._states(fault)):
            counts[state] = counts.get(state, 0) + 1

    def _states(self, fault: Fault) -> Iterable[str]:
        yield "under load" if self._play.scenario.workload.publishers else "idle"
        yield from self._states_of_struck(fault)
        world = self._play.world
        if world.network.cuts:
            yield "partitioned"
        for span in world.ongoing.spans:
            kind = KINDS[span.fault.kind]
            if not kind.lasting:
                continue
            if span.end_s is None and kind.of != "links":
                yield "struck"
            elif span.end_s is None and kind.begin is not None and kind.name not in CUTS:
                yield "impaired"
            elif span.end_s is not None and world.now_s - span.end_s <= HEALING_S:
                yield "healing"

    def _states_of_struck(self, fault: Fault) -> Iterable[str]:
        for name in (*fault.a, *fault.b):
            node = self._play.world.nodes.get(name)
            if node is None or not name.startswith("broker-"):
                continue
            if not node.alive:
                yield "down"
            elif node.process is not None and node.process.stopping.is_set():
                yield "leaving"
            elif node.exposed is None or node.exposed.statistics()["state"] == "joining":
                yield "joining"


def _told(fault: Fault) -> str:
    between = f" from {' '.join(fault.b)}" if fault.b else ""
    value = "" if fault.value is None else f" {fault.value:g}"
    lasting = f" for {fault.for_s:g} s" if fault.for_s is not None else ""
    return f"{fault.kind.replace('_', ' ')} {' '.join(fault.a)}{between}{value}{lasting}".rstrip()


def _check_writable(folder: str) -> None:
    """Report an unwritable folder before the run instead of after it."""
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
