"""A mesh in a world: brokers on hosts of their own, clients beside them, and what a scenario does and asks.

Brokers are called broker-1, broker-2 ... on hosts of the same names; each joins by one of the two before it,
so that discovery has work to do. The clients of a broker run on its host as processes of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mesh.broker import Broker
from mesh.topics import matches
from simulations import checkers, programs, truth
from simulations.checkers import Outage, Verdict
from simulations.ledger import Ledger
from simulations.world import Main, Node, World

CONVERGENCE_S: Final = 30.0
"""Within this a mesh must be whole again after the last fault."""
START_GAP_S: Final = 0.2
NOTICE_S: Final = 6.0
"""Three rounds missed in a row make a death: two to three periods after the last answer, and a deadline."""
DRAIN_S: Final = 5.0
LEAVE_S: Final = 15.0
TOPICS: Final = ("news.uk", "news.fr.paris", "sensor.1.temperature", "sensor.2.temperature", "orders")
PATTERNS: Final = (("#",), ("news.#",), ("sensor.*.temperature",), ("orders", "news.uk"))


@dataclass
class Federation:
    """What a scenario is given."""

    world: World
    name: str
    """The mesh's name, which is the run's in its logs: two runs below one folder must not look like one."""
    size: int
    rng: random.Random
    """The scenario's own random stream: whom it strikes, and when."""
    say: Callable[[str], None]
    """Tells whoever watches what is being done."""
    ledger: Ledger = field(default_factory=Ledger)
    verdicts: list[Verdict] = field(default_factory=list)
    harmed: dict[str, None] = field(default_factory=dict)
    """Brokers that something was done to."""
    outages: list[Outage] = field(default_factory=list)
    converged_in_s: list[float] = field(default_factory=list)

    # --- building

    @property
    def brokers(self) -> list[str]:
        return [f"broker-{number}" for number in range(1, self.size + 1)]

    def start_brokers(self) -> None:
        """One after the other; each is told of one broker, the second of the first."""
        for index, name in enumerate(self.brokers):
            known = (
                self.world.network.hosts[self.rng.choice(self.brokers[max(0, index - 2) : index])]
                if index
                else None
            )
            self.world.add_node(name, programs.broker(self.name, [known.address] if known else []))
            self.do("start", [name])
            self.world.run_for(START_GAP_S)

    def start_clients(self, *, publishers: int = 3, subscribers: int = 4, pause_s: float = 0.05) -> None:
        """Spread over the brokers; returns when all subscriptions have passed their barrier."""
        homes = self.rng.sample(self.brokers, len(self.brokers))
        for number in range(subscribers):
            main = programs.subscriber(self.ledger, PATTERNS[number % len(PATTERNS)])
            self._start_client(f"sub-{number + 1}", main, homes[number % len(homes)])
        self.world.run_until(
            lambda: all(
                self.world.node(f"sub-{number + 1}").exposed is not None for number in range(subscribers)
            ),
            timeout_s=CONVERGENCE_S,
            what="a subscription of every subscriber",
        )
        for number in range(publishers):
            main = programs.publisher(self.ledger, TOPICS, pause_s)
            self._start_client(f"pub-{number + 1}", main, homes[-1 - number % len(homes)])

    def _start_client(self, name: str, main: Main, host: str) -> None:
        self.world.add_node(name, main, host=host).start()

    # --- doing

    def do(self, kind: str, a: Iterable[str] = (), b: Iterable[str] = (), value: float = 0.0) -> None:
        """A fault, now, said aloud."""
        a, b = tuple(a), tuple(b)
        if kind != "start":
            struck = a or (self.brokers if kind == "partition" else ())
            self.harmed.update(dict.fromkeys(name for name in (*struck, *b) if name in self.brokers))
            if kind == "partition" and not b:
                self.harmed.update(dict.fromkeys(self.brokers))
        if kind in ("crash", "power_off", "pause"):
            log_lost = kind == "power_off"
            self.outages += [
                Outage(name, self.world.now_s, log_lost=log_lost) for name in a if name in self.brokers
            ]
        if kind in ("start", "resume"):
            self.outages = [
                replace(each, until_s=self.world.now_s)
                if each.broker in a and each.until_s > self.world.now_s
                else each
                for each in self.outages
            ]
        self.world.inject(kind, a, b, value)
        self.say(f"{kind.replace('_', ' ')} {' '.join(a)}{' from ' + ' '.join(b) if b else ''}".rstrip())

    def let_pass(self, seconds: float) -> None:
        self.world.run_for(seconds)

    # --- asking

    def live(self) -> dict[str, str]:
        """The ids of the brokers that are up, by name."""
        return {name: broker.id for name, broker in self._running().items()}

    def views(self) -> dict[str, dict[str, str]]:
        """Every live broker's table: member id to state."""
        return {
            name: {row["id"]: row["state"] for row in broker.members()}
            for name, broker in self._running().items()
        }

    def _running(self) -> dict[str, Broker]:
        nodes: list[Node] = [self.world.node(name) for name in self.brokers if name in self.world.nodes]
        return {node.name: node.exposed for node in nodes if node.running and node.exposed is not None}

    def all_up(self) -> bool:
        return len(self._running()) == self.size

    def wait_whole(self, what: str) -> None:
        """Let time pass until every broker is up and sees all others alive; else note how they differ."""

        def whole() -> bool:
            return self.all_up() and checkers.converged(self.views(), self.live()).ok

        try:
            seconds = self.world.run_until(whole, timeout_s=CONVERGENCE_S, what=what, poll_s=0.05)
        except TimeoutError:
            self.check_converged()
            return
        self.converged_in_s.append(seconds)
        self.say(f"{what}: converged in {seconds:.2f} s")

    # --- judging

    def check_converged(self) -> None:
        """Now every broker must be up and see exactly the live ones alive."""
        down = [name for name in self.brokers if name not in self._running()]
        verdict = checkers.converged(self.views(), self.live())
        wrong = (*(f"{name} is not up" for name in down), *verdict.violations)
        self.verdicts.append(Verdict(verdict.check, verdict.looked_at, wrong))

    def quiet_time(self, seconds: float) -> None:
        """A time without faults: what is published in it must arrive everywhere."""
        since_s = self.world.now_s
        self.say(f"quiet for {seconds:g} s")
        self.let_pass(seconds)
        until_s = self.world.now_s
        self._stop(name for name in self.world.nodes if name.startswith("pub-"))
        self.let_pass(DRAIN_S)
        self._end_subscriptions()
        self.verdicts.append(checkers.complete(self.ledger, matches, since_s=since_s, until_s=until_s))

    def _end_subscriptions(self) -> None:
        """A subscriber that was killed could not note the end of its subscription."""
        ended_s = {(each.name, each.life): each.ended_s for each in self.world.processes}
        for subscription in self.ledger.subscriptions:
            end_s = ended_s[subscription.subscriber, subscription.life]
            if end_s is not None:
                subscription.until_s = min(subscription.until_s, end_s)

    def end(self) -> None:
        """Judge the mesh as it stands, then stop everything gracefully and judge the rest."""
        self.check_converged()
        self._stop(name for name in self.world.nodes if name.startswith("sub-"))
        unharmed = [name for name in self.brokers if name not in self.harmed]
        for name in self.brokers:
            if self.world.node(name).running:
                self.do("stop", [name])
                self.world.run_for(START_GAP_S)
        self._wait_down(self.brokers)
        rows = truth.log_rows(truth.log_files(self.world))
        self.verdicts += [
            checkers.at_most_once(self.ledger),
            checkers.genuine(self.ledger, matches),
            checkers.in_order(self.ledger),
            checkers.no_false_deaths(rows, unharmed),
        ]
        if self.outages:
            self.verdicts.append(checkers.deaths_noticed(rows, self.outages, within_s=NOTICE_S))

    def _stop(self, names: Iterable[str]) -> None:
        stopped = [name for name in names if self.world.node(name).running]
        for name in stopped:
            self.world.node(name).stop()
        self._wait_down(stopped)

    def _wait_down(self, names: Sequence[str]) -> None:
        def down() -> bool:
            return not any(self.world.node(name).running for name in names)

        try:
            self.world.run_until(down, timeout_s=LEAVE_S, what="the end of " + ", ".join(names))
        except TimeoutError as error:
            waiting = ", ".join(name for name in names if self.world.node(name).running)
            self.verdicts.append(Verdict("ends_when_asked", waiting, (f"{error}: {self.world.waiting()}",)))
