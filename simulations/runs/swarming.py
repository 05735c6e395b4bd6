"""Many seeds, each a different scenario (`simulations.scenarios.generating`), over several processes.

A seed that computes for longer than `SEED_MAX_S` is stuck, which is a finding as well, and so is an exception
that escapes the simulator. The number of processes does not change the seeds or their outcomes, only the
order of the reports.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import random
import re
import shlex
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from simulations.faults import KINDS
from simulations.runs.playing import Result, play
from simulations.runs.rate import Rate
from simulations.runs.replaying import failing
from simulations.scenario import Scenario
from simulations.scenarios.generating import generate

SEED_MAX_S: Final = 120.0
"""Seconds of processor time; a seed usually takes one. Real time would depend on the machine."""
AHEAD: Final = 2
"""The number of seeds that wait for each process, so that it never waits for one."""
FRESH: Final = (10**9, 10**10)
"""The range of a swarm's random first seed, so that hardly any seed was ever played before."""
DRAWN: Final = re.compile(r"(stored-)?swarm-(\d+)")
"""The name of a seed's scenario, by which it can be played."""

Played = Callable[[int], "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a seed."""

    seed: int
    wall_s: float
    virtual_s: float = 0.0
    history_hash: str = ""
    failed: tuple[str, ...] = ()
    violation: str = ""
    """The first violation of the first check that failed."""
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    result: Result | None = None
    """For a run that failed: the data of its file."""
    broke: str = ""
    """How the simulator itself failed."""
    stored: bool = False
    """True if its scenario has durable subscriptions."""

    @property
    def ok(self) -> bool:
        return not self.failed and not self.broke

    @property
    def replay_command(self) -> str:
        stored = "stored-" if self.stored else ""
        return f"mesh simulate {stored}swarm-{self.seed} --seed {self.seed}"

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "ok": self.ok,
            "history_hash": self.history_hash,
            "failed": list(self.failed),
            "violation": self.violation,
            "broke": self.broke,
            "replay": self.replay_command,
        }


@dataclass(slots=True)
class Report:
    """The outcomes of all seeds so far."""

    wanted: int
    """How many seeds were to be played."""
    first: int
    """The first seed."""
    fresh: bool = False
    """True if they were drawn for this swarm: then the rate holds for all seeds."""
    kept: dict[int, str] = field(default_factory=dict)
    """The files of failures, by their seeds."""
    outcomes: list[Outcome] = field(default_factory=list)
    coverage: dict[str, Counter[str]] = field(default_factory=dict)
    """How often a kind of fault met a mesh in a state."""
    wall_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        for kind, states in outcome.coverage.items():
            self.coverage.setdefault(kind, Counter()).update(states)

    @property
    def failures(self) -> list[Outcome]:
        """The failures in the order of their seeds."""
        return sorted((each for each in self.outcomes if not each.ok), key=lambda each: each.seed)

    @property
    def rate(self) -> Rate:
        """The rate of failures among the played seeds."""
        return Rate(len(self.failures), len(self.outcomes))

    @property
    def by_check(self) -> dict[str, int]:
        """The number of seeds in which each check failed, the most frequent first."""
        counts = Counter(check for each in self.failures for check in each.failed)
        counts["(broke)"] = sum(1 for each in self.failures if each.broke)
        return {check: count for check, count in counts.most_common() if count}

    @property
    def unmet(self) -> list[str]:
        """Kinds of faults that never struck."""
        return sorted(kind for kind in KINDS if kind not in self.coverage)

    def replay_command(self, outcome: Outcome) -> str:
        path = self.kept.get(outcome.seed)
        return outcome.replay_command if path is None else f"mesh simulate replay {shlex.quote(path)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": len(self.outcomes),
            "seeds_wanted": self.wanted,
            "first": self.first,
            "fresh": self.fresh,
            "failure_rate": self.rate.as_json(),
            "failures": [each.as_json() | {"replay": self.replay_command(each)} for each in self.failures],
            "failed_checks": self.by_check,
            "unmet": self.unmet,
            "coverage": {kind: dict(sorted(self.coverage[kind].items())) for kind in sorted(self.coverage)},
            "virtual_s": round(sum(each.virtual_s for each in self.outcomes), 3),
            "wall_s": round(self.wall_s, 3),
        }


def fresh_seed() -> int:
    """A random first seed."""
    return random.SystemRandom().randrange(*FRESH)


def drawn(name: str) -> tuple[Scenario, int] | None:
    """The scenario that is called swarm-SEED or stored-swarm-SEED, and its seed; None for another name."""
    found = DRAWN.fullmatch(name)
    return (generate(int(found[2]), stored=bool(found[1])), int(found[2])) if found else None


def play_seed(seed: int, *, stored: bool = False) -> Outcome:
    """Play the scenario that a seed draws; ``stored``: with durable subscriptions."""
    began = time.perf_counter()
    try:
        with at_most(SEED_MAX_S):
            result = play(generate(seed, stored=stored), seed=seed)
    except Stuck:
        return Outcome(
            seed,
            time.perf_counter() - began,
            broke=f"it was not done after computing for {SEED_MAX_S:g} s",
            stored=stored,
        )
    except Exception as error:  # whatever it is, the other seeds must be played
        broke = f"{type(error).__name__}: {error}"
        return Outcome(seed, time.perf_counter() - began, broke=broke, stored=stored)
    first = failing(result.verdicts)
    return Outcome(
        seed,
        time.perf_counter() - began,
        result.virtual_s,
        result.history_hash,
        result.failed,
        first.violations[0] if first else "",
        result.coverage,
        None if result.ok else result,
        stored=stored,
    )


def swarm(
    first: int, seeds: int, *, jobs: int = 1, wall_max_s: float | None = None, played: Played = play_seed
) -> Generator[Outcome, None, None]:
    """The outcomes of the seeds ``first`` and following, as they come.

    After ``wall_max_s`` no further seed is begun, and none after a process was killed, which is an outcome of
    the seeds it was given. Closing the iterator ends the running plays.
    """
    began = time.perf_counter()
    wanted: Iterator[int] = iter(range(first, first + seeds))

    def in_time() -> bool:
        return wall_max_s is None or time.perf_counter() - began < wall_max_s

    if jobs == 1:
        for seed in wanted:
            if not in_time():
                return
            yield played(seed)
        return
    with _pool(jobs) as pool:
        running: dict[Future[Outcome], int] = {}
        while True:
            for seed in itertools.islice(wanted if in_time() else (), jobs * AHEAD - len(running)):
                try:
                    running[pool.submit(played, seed)] = seed
                except BrokenProcessPool:  # its seeds report that; it plays no more
                    wanted = iter(())
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield _outcome(done, running.pop(done))


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many processes. A caller that leaves early, as by Ctrl-C, does not wait for their work."""
    others = multiprocessing.active_children()
    # Spawned rather than forked: each begins as a fresh program does.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _serve)
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in others:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _outcome(done: Future[Outcome], seed: int) -> Outcome:
    try:
        return done.result()
    except BrokenProcessPool:
        return Outcome(seed, 0.0, broke="a process that played seeds was killed (out of memory?)")


def _serve() -> None:
    """The beginning of a worker process: it logs nothing, since only the outcome matters.

    SIGINT is the parent's, and the end of the parent ends it.
    """
    hush()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    """A killed parent tells nobody, and a process that waits for seeds would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_NOBODY: Final = logging.NullHandler()


def hush() -> None:
    """Drop the warnings of brokers, which are in trouble on purpose; a missing handler is no error."""
    for name in ("mesh", "protocols"):
        logging.getLogger(name).addHandler(_NOBODY)


class Stuck(KeyboardInterrupt):
    """Not done in time. Like an interrupt it passes through loops and tasks, which catch other exceptions."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Stuck` in the main thread if it computes for longer; a simulation waits for nothing real."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Stuck

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
