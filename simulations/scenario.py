"""A scenario as data: its brokers and clients, its faults with their times, and its expectations.

A scenario is written before its seed is known. A fault may name its targets in words ("2 of brokers"), and a
number may be a span, so one scenario is a family of runs. `simulations.scenarios.selecting.resolve` makes the
member of a seed, in which every name and number is concrete. That is a `Scenario` as well, so a run can be
written to a file, cut short and played again.

**The phases of a run.** Brokers start and find each other; clients start, and ``warm_s`` pass. In the *safety
phase* the faults come at their times, counted from its beginning, and only invariants of all times are
checked. Then everything is healed, and within ``bound_s`` the mesh must be whole (the *liveness bound*). In
the *quiet time* after that, everything published must arrive. At last everybody leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from simulations.faults import Fault
from simulations.kernel.network import LAN, LinkQuality

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
"""With its seed it names a mesh, whose name has at most 64 characters."""
AFTERMATH_S: Final = 5.0
"""How long the safety phase goes on after its last fault, unless the scenario says otherwise."""
SPAN: Final = ":most"
"""A number ``x`` of a fault with a further parameter ``x:most`` is drawn from between the two."""
REPEATS_MAX: Final = 10_000
HORIZON_S: Final = 10_000_000.0
"""The longest time, which is 115 days: a longer one is a mistake."""
BROKERS_MOST: Final = 100_000
"""More than the cores can handle; the runner decides how many are played at full fidelity."""
CLIENTS_MOST: Final = 10_000
BODY_MOST: Final = 10_000_000
BATCH_MOST: Final = 10_000
NUMBER_MOST: Final = 9_999
PAUSE_LEAST_S: Final = 0.000_001
PERIOD_LEAST_S: Final = 0.001
"""The shortest interval: a run with shorter ones would not end."""

CLIENTS: Final = (
    *("publishers", "subscribers", "askers", "answerers"),
    *("stock_publishers", "stock_subscribers", "workers"),
)
"""Fields of `Workload` that are numbers of clients."""
SHARES: Final = (
    *("sent_share", "stored_share", "outbox_share", "headers_share", "large_share", "request_share"),
    *("retry_share", "fail_share", "drop_share", "poison_share"),
)
"""Fields of `Workload` from 0 to 1."""
WINDOW_MOST: Final = 100_000
TRANSPORTS: Final = ("tcp", "ws")

Value = float | str | tuple[str, ...]


class ScenarioError(ValueError):
    """The error in a scenario, as a sentence, and its place: ``("fault", 2, "at_s")`` is in the third
    fault.
    """

    def __init__(self, sentence: str, *where: str | int) -> None:
        super().__init__(sentence)
        self.where = where


class TooManyBrokers(ValueError):
    """A mesh has more brokers than the runner supports."""


def _within(least: float, most: float, name: str, value: float, *where: str) -> None:
    if not value >= least:
        raise ScenarioError(f"{name} is {value:g}; it must be at least {least:g}", *where, name)
    if value > most:
        raise ScenarioError(f"{name} is {value:.15g}; it must be at most {most:.15g}", *where, name)


def _above_0(most: float, name: str, value: float, *where: str) -> None:
    if not value > 0:
        raise ScenarioError(f"{name} is {value:g}; it must be above 0", *where, name)
    _within(0, most, name, value, *where)


@dataclass(frozen=True, slots=True)
class Workload:
    """The clients, spread over the brokers, each on its broker's host."""

    publishers: int = 3
    subscribers: int = 4
    pause_s: float = 0.05
    """From one publication of a publisher to its next, on average."""
    askers: int = 0
    """Clients that ask surveys, one after the other."""
    answerers: int = 0
    """Clients that answer them."""
    ask_pause_s: float = 0.5
    """From the result of an asker's survey to its next, on average."""
    ask_timeout_s: float = 1.0
    """How long an asker waits for answers."""
    size_max: int = 400
    """Bytes of the largest body, about."""
    sent_share: float = 0.0
    """The share of publishing calls at level sent instead of accepted."""
    batch_max: int = 1
    """Messages of one call, at most."""
    headers_share: float = 0.0
    """The share of messages with headers, among those published alone."""
    large_share: float = 0.0
    """The share of messages of ``large_size``, among those published alone."""
    large_size: int = 200_000
    """Bytes of a large body, which travels in pieces."""
    request_share: float = 0.0
    """The share of askers' questions that are requests instead of surveys."""
    stock_publishers: int = 0
    """Plain sockets that publish: REQ, PUSH and PUB in turn."""
    stock_subscribers: int = 0
    """Plain SUB sockets."""
    transport: str = "tcp"
    """The transport by which clients, except plain sockets, reach their brokers."""
    durable_subscriptions: int = 0
    """Durable subscriptions. Each has workers in turn, and its home is where the first of them attaches."""
    workers: int = 0
    """Clients that work on durable subscriptions."""
    slow_workers: int = 0
    """How many of them, the first ones, take ten times as long."""
    work_s: float = 0.005
    """How long a worker takes for a message, on average."""
    work_window: int = 16
    """The most messages that a worker has unsettled."""
    stored_share: float = 0.0
    """The share of publishing calls at level stored, among those not at level sent."""
    outbox_share: float = 0.0
    """The share of publishing calls at level outbox, among those not at level sent. Publishers then have
    outboxes.
    """
    retry_share: float = 0.0
    """The share of a worker's messages that it asks to get again."""
    fail_share: float = 0.0
    """The share of a worker's messages that end its loop by an exception."""
    drop_share: float = 0.0
    """The share of a worker's messages that it drops."""
    poison_share: float = 0.0
    """The share of all messages that nobody can process."""

    def __post_init__(self) -> None:
        for name in CLIENTS:
            _within(0, CLIENTS_MOST, name, getattr(self, name), "workload")
        for name in SHARES:
            _within(0, 1, name, getattr(self, name), "workload")
        _within(0, CLIENTS_MOST, "durable_subscriptions", self.durable_subscriptions, "workload")
        _within(0, self.workers, "slow_workers", self.slow_workers, "workload")
        _within(1, WINDOW_MOST, "work_window", self.work_window, "workload")
        if (self.workers > 0) != (self.durable_subscriptions > 0):
            raise ScenarioError(
                f"workers is {self.workers} and durable_subscriptions is {self.durable_subscriptions}; both "
                "must be 0 or neither",
                "workload",
                "workers",
            )
        _within(1, BATCH_MOST, "batch_max", self.batch_max, "workload")
        _within(1, BODY_MOST, "large_size", self.large_size, "workload")
        if self.transport not in TRANSPORTS:
            known = " or ".join(TRANSPORTS)
            raise ScenarioError(
                f"transport is {self.transport!r}; it must be {known}", "workload", "transport"
            )
        for name in ("pause_s", "ask_pause_s", "ask_timeout_s", "work_s"):
            _within(PAUSE_LEAST_S, HORIZON_S, name, getattr(self, name), "workload")
        _within(1, BODY_MOST, "size_max", self.size_max, "workload")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A check of `simulations.invariants` by its name, with its parameters in the order of their names."""

    check: str
    parameters: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.check, *(f"{name}={_shown(value)}" for name, value in self.parameters)])


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. Raises `ScenarioError` if it is impossible."""

    name: str
    summary: str = ""
    number: int | None = None
    """Its number among those of `docs/reference/scenarios.md`."""
    paper: str = ""
    """A paper's result for this case, to be printed beside ours."""
    compared: str = ""
    """Our figures to be printed beside that: names of measures, and of checks that it expects."""
    known_failure: str = ""
    """The known deviation from the expectations, if today's membership cannot meet them."""
    waiting_for: str = ""
    """The feature that is missing to play this at its full size."""
    brokers: int = 5
    """They are called broker-1, broker-2 ..., each on a host of the same name."""
    spares: int = 0
    """Further brokers, numbered after them, which only a fault starts."""
    period_s: float = 1.0
    """The period of the brokers' heartbeats."""
    deadline_s: float = 0.5
    """The deadline of the answers to them."""
    start_gap_s: float = 0.2
    """From the start of one broker to the next one's."""
    contacts: int = 1
    """The number of earlier brokers that a broker joins."""
    warm_s: float = 3.0
    """From the start of the clients to the safety phase."""
    safety_s: float | None = None
    """How long the safety phase is; if None, until 5 seconds after the last fault."""
    bound_s: float = 30.0
    """Within this after the heal the mesh must be whole."""
    quiet_s: float = 10.0
    """How long everything published must arrive, afterwards."""
    chunked: int = 0
    """1: every read ends at a random boundary."""
    permuted: int = 0
    """1: sockets that are ready in one turn of an event loop are served in a random order."""
    network: LinkQuality = LAN
    """The latency of all links, in each direction."""
    workload: Workload = Workload()
    picks: tuple[tuple[str, str], ...] = ()
    """Names for what the seed chooses, and how it does."""
    faults: tuple[Fault, ...] = ()
    expect: tuple[Expectation, ...] = ()
    """Expectations beyond the invariants of every run."""
    full: tuple[tuple[str, Any], ...] = ()
    """The differences of the full size: values by the path of their keys, as in ``workload.publishers``."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ScenarioError(
                f"name {self.name!r} must be 1 to 48 of the characters a-z 0-9 -, and not begin with -",
                "name",
            )
        if self.number is not None:
            _within(1, NUMBER_MOST, "number", self.number)
        _within(1, BROKERS_MOST, "brokers", self.brokers)
        _within(0, BROKERS_MOST, "spares", self.spares)
        _within(1, BROKERS_MOST, "contacts", self.contacts)
        for name in ("start_gap_s", "warm_s", "quiet_s"):
            _within(0, HORIZON_S, name, getattr(self, name))
        for name in ("period_s", "deadline_s"):
            _within(PERIOD_LEAST_S, HORIZON_S, name, getattr(self, name))
        _above_0(HORIZON_S, "bound_s", self.bound_s)
        for name in ("chunked", "permuted"):
            _within(0, 1, name, getattr(self, name))
        if self.deadline_s > self.period_s:
            raise ScenarioError(
                f"deadline_s is {self.deadline_s:g}; it must be at most period_s, which is {self.period_s:g}",
                "deadline_s",
            )
        if not self.quiet_s and self.workload.publishers and self.workload.subscribers:
            raise ScenarioError(
                "quiet_s is 0, in which nothing can be published that must arrive; it must be above 0, or "
                "there must be no publishers",
                "quiet_s",
            )
        self._check_times()
        self.at_size("full")

    def _check_times(self) -> None:
        for index, fault in enumerate(self.faults):
            until_s = last_end_s(fault)
            if not until_s <= HORIZON_S:
                blamed = "at_s" if last_begin_s(fault) > HORIZON_S else "for_s"
                sentence = f"{fault.kind} may last until {until_s:g} s; it must be over by {HORIZON_S:.15g} s"
                raise ScenarioError(sentence, "fault", index, blamed)
        if self.safety_s is None:
            return
        _within(0, HORIZON_S + AFTERMATH_S, "safety_s", self.safety_s)
        for index, fault in enumerate(self.faults):
            begins_s = last_begin_s(fault)
            if begins_s > self.safety_s:
                raise ScenarioError(
                    f"{fault.kind} may begin at {begins_s:g} s, after the end of the safety phase at "
                    f"{self.safety_s:g} s",
                    "fault",
                    index,
                    "at_s",
                )

    @property
    def safety_length_s(self) -> float:
        """From the first moment of the safety phase to its last."""
        if self.safety_s is not None:
            return self.safety_s
        return max(map(last_end_s, self.faults)) + AFTERMATH_S if self.faults else 0.0

    @property
    def compared_names(self) -> list[str]:
        return [name for each in self.compared.split(",") if (name := each.strip())]

    @property
    def broker_names(self) -> list[str]:
        """The brokers that are started."""
        return [f"broker-{number}" for number in range(1, self.brokers + 1)]

    @property
    def spare_names(self) -> list[str]:
        return [f"broker-{self.brokers + number}" for number in range(1, self.spares + 1)]

    @property
    def publisher_names(self) -> list[str]:
        return [f"pub-{number}" for number in range(1, self.workload.publishers + 1)]

    @property
    def subscriber_names(self) -> list[str]:
        return [f"sub-{number}" for number in range(1, self.workload.subscribers + 1)]

    @property
    def asker_names(self) -> list[str]:
        return [f"ask-{number}" for number in range(1, self.workload.askers + 1)]

    @property
    def answerer_names(self) -> list[str]:
        return [f"answer-{number}" for number in range(1, self.workload.answerers + 1)]

    @property
    def stock_publisher_names(self) -> list[str]:
        return [f"stock-pub-{number}" for number in range(1, self.workload.stock_publishers + 1)]

    @property
    def stock_subscriber_names(self) -> list[str]:
        return [f"stock-sub-{number}" for number in range(1, self.workload.stock_subscribers + 1)]

    @property
    def worker_names(self) -> list[str]:
        return [f"worker-{number}" for number in range(1, self.workload.workers + 1)]

    @property
    def queue_names(self) -> list[str]:
        """The names of the durable subscriptions."""
        return [f"queue-{number}" for number in range(1, self.workload.durable_subscriptions + 1)]

    def at_size(self, size: str) -> Scenario:
        """The scenario at its ``ci`` or ``full`` size, which then is its only one.

        Raises:
            ScenarioError: the full size differs in an unknown field, or in an impossible way.
        """
        if not self.full:
            return self
        if size != "full":
            return replace(self, full=()) if size == "ci" else _refuse_size(size)
        changed: dict[str, Any] = {"full": ()}
        for path, value in self.full:
            changed[path.partition(".")[0]] = self._changed(changed, path, value)
        try:
            return replace(self, **changed)
        except ScenarioError as error:
            raise ScenarioError(f"at the full size {error}", "full") from None

    def _changed(self, changed: Mapping[str, Any], path: str, value: Any) -> Any:
        name, _, below = path.partition(".")
        if name in TABLES and below in {each.name for each in fields(TABLES[name])}:
            try:
                return replace(changed.get(name, getattr(self, name)), **{below: value})
            except ValueError as error:
                raise ScenarioError(f"at the full size {error}", "full", name, below) from None
        if below or name not in RESIZABLE:
            raise ScenarioError(
                f"the full size cannot differ in {path!r}; it can in {', '.join(RESIZABLE)} and in "
                f"the fields of {' and '.join(TABLES)}",
                "full",
                *path.split("."),
            )
        return value


RESIZABLE: Final = (
    "brokers",
    "spares",
    "period_s",
    "deadline_s",
    "start_gap_s",
    "warm_s",
    "safety_s",
    "bound_s",
    "quiet_s",
)
TABLES: Final[dict[str, Any]] = {"network": LinkQuality, "workload": Workload}


def last_begin_s(fault: Fault) -> float:
    """When it may begin at the latest, with all its spans and repeats."""
    repeats = fault.number("repeat", 1) - 1
    return fault.number(f"at_s{SPAN}", fault.at_s) + repeats * fault.number("repeat_s", 0)


def last_end_s(fault: Fault) -> float:
    """When it may be over at the latest; a fault that stays until it is healed does not count as lasting."""
    return last_begin_s(fault) + fault.number(f"for_s{SPAN}", fault.for_s or 0.0)


def _refuse_size(size: str) -> Scenario:
    raise ValueError(f"there is no size {size!r} of a scenario; there are ci and full")


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else f"{value:g}"
