"""What a run leaves for judging: the brokers' own words, what really happened, and what they looked like.

`Evidence` is plain data, so a history can be written by hand, altered, or kept. The `Recorder` gathers it
from a world: it looks into the running brokers about once a simulated second (a `Sample` of `View`s, read
and never changed), and at the end takes the event logs from the virtual disks, the faults as they were done,
the lives of all processes and the bytes of all connections.

Times are seconds since the run began, by the true clock. The rows of an event log are timed by their writer's
monotonic clock, which the recorder has seen beside the true one; their wall clocks may have been stepped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mesh.broker import Broker
from mesh.identity import format_id
from mesh.membership import MemberRecord
from simulations.evidence import truth
from simulations.evidence.ledger import Ledger
from simulations.faults.ongoing import Span
from simulations.scenario import Scenario

if TYPE_CHECKING:
    from protocols.socket import Socket
    from simulations.kernel.network import Half
    from simulations.world import Process, World

SPOIL_FILES: Final = ("torn_file", "flipped_bits", "lost_files")
POWER_LOSSES: Final = ("power_off", "move")
STOP_DISKS: Final = ("disk_fault", "slow_disk", "lying_disk")
FLUSH_S: Final = 2.0
"""What was written last reaches the file within about a second."""
DEEP_EVERY_S: Final = 10.0
"""How often what takes long to count is counted: tasks and timers."""

VIEW_STATES: Final = ("alive", "suspect")
"""Of members that count as living."""
PHASES: Final = {"safety": ("safety_s", "healed_s"), "quiet": ("quiet_from_s", "quiet_until_s")}
"""Beginning and end of those that checks ask for by name."""

Row = Mapping[str, Any]
Patterns = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a process."""

    name: str
    number: int
    host: str
    started_s: float
    ended_s: float | None = None
    how: str = ""
    """``left`` (it said goodbye), ``killed``, ``power_off`` (what it had not synced is gone); empty while it
    lives. A client that ended is said to be killed, however it did."""
    id: int | None = None
    """Of its broker, where it is one that got so far."""
    boot: int | None = None
    log_lost: bool = False
    """Some of its log is gone or damaged: it cannot be asked what it noticed."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """One attempt of a process at a connection over TCP."""

    at_s: float
    by: str
    url: str


@dataclass(frozen=True, slots=True)
class View:
    """One running broker at one instant."""

    name: str
    life: int
    id: int
    boot: int
    state: str
    """joining, ready, isolated, leaving."""
    table: tuple[MemberRecord, ...]
    """Its record of itself, then those of the others."""
    links: tuple[int, ...] = ()
    """To whom one is up."""
    join: tuple[str, ...] = ()
    """The URLs it was told to join by."""
    known: tuple[str, ...] = ()
    """The URLs of an earlier run that it has not met yet."""
    digest: bytes = b""
    interest: Patterns = ()
    interest_version: int = 1
    held: Mapping[int, tuple[int, Patterns]] = field(default_factory=dict)
    """What it holds of the others' interest: version and patterns; version 0 is nothing."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Since its boot: rounds, late_rounds, silent_rounds, refutations, refused_records, syncs, late_answers,
    refused (connections and sessions), control_out (frames of surveys and answers), bus_out (of all else that
    goes over links), and copies (of data received) once there is a broadcast tree."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Now: members, strangers, barriers, questions, seen, queued, sockets, and in a deep sample tasks,
    timers."""
    void_at: float | None = None
    """When it last voided a round, on its own monotonic clock."""
    paused: bool = False
    health: int | None = None
    """Its local health (rule R10), once there is such a thing."""
    eager: tuple[int, ...] | None = None
    """Its tree neighbours, once there is a broadcast tree."""

    @property
    def me(self) -> MemberRecord:
        return self.table[0]

    @property
    def states(self) -> dict[int, str]:
        """Of all members, by id."""
        return {record.id: str(record.state) for record in self.table}

    @property
    def in_view(self) -> list[int]:
        """Whom it counts as living: alive or suspect."""
        return [record.id for record in self.table if record.in_view]

    def record(self, id: int) -> MemberRecord | None:
        return next((record for record in self.table if record.id == id), None)


@dataclass(frozen=True, slots=True)
class Sample:
    """All running brokers at one instant, by name."""

    at_s: float
    views: Mapping[str, View]


@dataclass(frozen=True, slots=True)
class Stream:
    """One direction of one connection at the end of the run; ``sent`` and ``received`` are bytes."""

    name: str
    sent: int
    received: int
    waiting: int = 0
    """Packets on their way still, or held back by a cut."""
    cut_short: bool = False
    """One side forgot the connection, or was told that it broke: what was on its way is lost."""


@dataclass
class Evidence:
    """All that a run left. See the module."""

    scenario: Scenario
    rows: list[Row] = field(default_factory=list)
    """Of all brokers' event logs by time, with ``at_s``."""
    faults: list[Span] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    samples: list[Sample] = field(default_factory=list)
    dials: list[Dialled] = field(default_factory=list)
    """Of all processes, in order."""
    phases: dict[str, float] = field(default_factory=dict)
    """When each began; see `simulations.runs.playing`."""
    failures: list[str] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    hashes: list[tuple[str, str]] = field(default_factory=list)
    """The history's hash, and those of repetitions, each with a word on where it was made."""

    @property
    def period_s(self) -> float:
        return self.scenario.period_s

    @property
    def deadline_s(self) -> float:
        return self.scenario.deadline_s

    @property
    def end_s(self) -> float:
        """The last moment that anything is known of."""
        known = [self.phases.get("end_s", 0.0), *(sample.at_s for sample in self.samples[-1:])]
        return max([*known, *(float(row["at_s"]) for row in self.rows[-1:])])

    # --- who is who

    @cached_property
    def brokers(self) -> dict[str, list[Life]]:
        """All lives of every broker that was ever started, by name."""
        found: dict[str, list[Life]] = {}
        for life in self.lives:
            if life.id is not None:
                found.setdefault(life.name, []).append(life)
        return found

    def had_several(self) -> bool:
        return len(self.brokers) > 1

    @cached_property
    def shared_ids(self) -> dict[int, None]:
        """Ids that two brokers of different names had, as a copied state folder brings about."""
        names: dict[int, dict[str, None]] = {}
        for life in self.lives:
            if life.id is not None:
                names.setdefault(life.id, {})[life.name] = None
        return {id: None for id, holders in names.items() if len(holders) > 1}

    def has_twin(self, name: str) -> bool:
        """Another broker had the same id: it answers in its name, and the others let go of one of them."""
        return any(life.id in self.shared_ids for life in self.brokers[name])

    def twin_between(self, name: str, id: int | None, from_s: float, until_s: float) -> bool:
        """`has_twin`, in that time."""
        return any(
            life.id == id and life.name != name
            for life in self.lives
            if life.started_s <= until_s and (life.ended_s is None or life.ended_s >= from_s)
        )

    def holders(self, id: int, at_s: float) -> list[str]:
        """Who is up under that id at that time."""
        return [
            life.name
            for life in self.lives
            if life.id == id and life.started_s <= at_s and (life.ended_s is None or life.ended_s > at_s)
        ]

    @cached_property
    def names(self) -> dict[int, str]:
        """Of brokers by id."""
        found = {record.id: record.name for sample in self.samples[-1:] for record in _records(sample)}
        return found | {life.id: life.name for life in self.lives if life.id is not None}

    def name_of(self, id: int) -> str:
        return self.names.get(id, format_id(id))

    def writer(self, row: Row) -> str:
        """The name of the broker that wrote a row."""
        return self._writers.get((row["node"], row["boot"])) or self.name_of(int(row["node"], 16))

    @cached_property
    def _writers(self) -> dict[tuple[str, str], str]:
        return {
            (format_id(life.id), format_id(life.boot)): life.name
            for life in self.lives
            if life.id is not None and life.boot is not None
        }

    @cached_property
    def _hosts(self) -> dict[str, str]:
        return {life.name: life.host for life in self.lives}

    def host_of(self, name: str) -> str:
        return self._hosts.get(name, name)

    # --- the rows

    @cached_property
    def member_rows(self) -> list[Row]:
        """A member changed its state in the writer's eyes; the writer's own leave is not among them."""
        return [row for row in self.rows if row["kind"] == "mem" and row["node"] != row["subject"]]

    @cached_property
    def deaths(self) -> list[Row]:
        return [row for row in self.member_rows if row["to_state"] == "dead"]

    @cached_property
    def by_writer(self) -> dict[tuple[str, str], list[Row]]:
        """All rows of each life that wrote any, by (node, boot), in the order of writing."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            found.setdefault((row["node"], row["boot"]), []).append(row)
        for rows in found.values():
            rows.sort(key=lambda row: int(row["seq"]))
        return found

    # --- time

    def phase(self, name: str) -> tuple[float, float]:
        """One of `PHASES`; one that never came or never ended is as wide as the run."""
        since, until = PHASES[name]
        return self.phases.get(since, 0.0), self.phases.get(until, self.end_s)

    def samples_between(self, from_s: float, until_s: float) -> list[Sample]:
        return [sample for sample in self.samples if from_s <= sample.at_s <= until_s]

    def looks(self) -> Iterator[tuple[Sample, View]]:
        """At each broker at each moment."""
        for sample in self.samples:
            for view in sample.views.values():
                yield sample, view

    @property
    def rest(self) -> list[Sample]:
        """Of the time in which the mesh should be whole and nothing is done to it, before all leave."""
        held_s = self.phases.get("held_s")
        if held_s is None:
            return []
        return self.samples_between(held_s, self.phases.get("drained_s", self.phases.get("end_s", held_s)))

    def was_whole(self) -> bool:
        """Otherwise `converged` says so, and there was no time of rest to be judged."""
        return bool(self.rest)

    @property
    def last(self) -> Mapping[str, View]:
        """What the brokers looked like before everybody left, whether the mesh ever was whole or not."""
        until_s = self.phases.get("drained_s", self.end_s)
        seen = [sample for sample in self.samples if sample.at_s <= until_s]
        return seen[-1].views if seen else {}

    def up(self, name: str, from_s: float, until_s: float) -> Life | None:
        """The life of a broker that lasted from the one time to the other."""
        for life in self.brokers.get(name, ()):
            if life.started_s <= from_s and (life.ended_s is None or life.ended_s >= until_s):
                return life
        return None


def _records(sample: Sample) -> Iterable[MemberRecord]:
    for view in sample.views.values():
        yield from view.table


class Recorder:
    """Gathers the evidence of a run while it goes on."""

    def __init__(self, world: World, scenario: Scenario, ledger: Ledger) -> None:
        self._world = world
        self._scenario = scenario
        self._ledger = ledger
        self._samples: list[Sample] = []
        self._first_seen: dict[tuple[str, int], float] = {}
        self._identities: dict[tuple[str, int], tuple[int, int]] = {}
        self._clocks: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
        self._halves: dict[Half, None] = {}
        self._patterns: dict[Patterns, Patterns] = {}
        self._deep_at_s = 0.0

    def sample(self, *, deep: bool = False) -> None:
        """Look at all brokers now; ``deep`` also counts what takes long to count."""
        world = self._world
        now_s = world.now_s
        if self._samples and self._samples[-1].at_s == now_s and not deep:
            return
        deep = deep or now_s >= self._deep_at_s
        if deep:
            self._deep_at_s = now_s + DEEP_EVERY_S
        sockets: dict[str, int] = {}
        for half in world.network.halves:
            self._halves[half] = None
            if not half.ended:
                sockets[half.owner.name] = sockets.get(half.owner.name, 0) + 1
        views = {}
        for node in world.nodes.values():
            process = node.process
            if process is None or not process.alive:
                continue
            key = (node.name, process.life)
            self._first_seen.setdefault(key, now_s)
            if isinstance(process.exposed, Broker):
                view = self._view(process, process.exposed, deep, sockets.get(node.name, 0))
                views[node.name] = view
                self._identities[key] = (view.id, view.boot)
                clock = self._clocks.setdefault(key, ([], []))
                clock[0].append(process.loop.time())
                clock[1].append(now_s)
        self._samples.append(Sample(now_s, views))

    def _view(self, process: Process, broker: Broker, deep: bool, sockets: int) -> View:
        node = broker._running
        peering, exchange = node.peering, node.exchange
        membership, interest, linking = peering.membership, peering.interest, peering.linking
        counted = membership.statistics()
        links = tuple(peering._links)
        sizes = {
            "members": counted.members,
            "strangers": linking.strangers,
            "barriers": len(interest._barriers),
            "questions": len(exchange._asking._questions),
            "seen": len(exchange._seen),
            "queued": sum(peer.outlet.queued_messages for peer in exchange._peers.values() if peer.outlet),
            "sockets": sockets,
        }
        if deep:
            sizes["tasks"] = len(asyncio.all_tasks(process.loop))
            sizes["timers"] = process.loop.timers
        void_until = membership._void_until
        return View(
            name=process.name,
            life=process.life,
            id=node.identity.id,
            boot=node.identity.boot,
            state=str(peering.state),
            table=tuple(membership.records()),
            links=links,
            join=tuple(peering.overlay._join),
            known=tuple(peering.overlay._known),
            digest=membership.digest,
            interest=self._shared(interest.own),
            interest_version=interest.version,
            held={
                peer: (interest.held_version(peer), self._shared(interest.patterns(peer))) for peer in links
            },
            counters={
                "rounds": counted.rounds,
                "late_rounds": counted.late_rounds,
                "silent_rounds": counted.silent_rounds,
                "refutations": counted.refutations,
                "refused_records": counted.refused_records,
                "syncs": counted.syncs,
                "late_answers": peering.rounds.late_answers,
                "refused": sum(node.report._refused(exchange._tally.refused).values()),
                "control_out": _frames_out(linking.surveyor) + _frames_out(linking.respondent),
                "bus_out": _frames_out(linking.bus),
            },
            sizes=sizes,
            void_at=(
                void_until - membership.options.period_s
                if counted.late_rounds + counted.silent_rounds
                else None
            ),
            paused=process.loop.paused,
        )

    def _shared(self, patterns: Iterable[tuple[str, int]]) -> Patterns:
        """In one order, and one object for all that are equal: they hardly ever change."""
        ordered = tuple(sorted(patterns))
        return self._patterns.setdefault(ordered, ordered)

    def finish(self, phases: dict[str, float]) -> Evidence:
        """Everything is over: take the logs from the disks, and count up the rest."""
        world = self._world
        rows = truth.log_rows(truth.log_files(world))
        lives = self._lives(rows)
        return Evidence(
            scenario=self._scenario,
            rows=self._timed(rows, lives),
            faults=list(world.ongoing.spans),
            lives=lives,
            ledger=self._ledger,
            samples=self._samples,
            dials=[
                Dialled(at_ns / 1e9, by, f"tcp://{whither[0]}:{whither[1]}")
                for at_ns, by, whither in world.network.attempts
                if not isinstance(whither, str)
            ],
            phases=phases,
            failures=[str(failure) for failure in world.failures],
            escapes=list(world.fence.escapes),
            streams=[_stream(half) for half in self._halves],
            hashes=[("this run", world.history.digest)],
        )

    def _lives(self, rows: Iterable[Row]) -> list[Life]:
        """A broker's life begins when it says so in its log: nothing can be asked of it before."""
        starts: dict[tuple[str, int], Row] = {}
        goodbyes: dict[tuple[str, str], None] = {}
        for row in rows:
            if row.get("kind") == "meta" and row.get("op") == "start":
                starts[row.get("host", ""), row.get("pid", 0)] = row
            elif row.get("kind") == "mem" and row.get("to_state") == "left":
                if row.get("node") == row.get("subject"):
                    goodbyes[row["node"], row["boot"]] = None
        end_s = self._world.now_s
        found = []
        for process in self._world.processes:
            key = (process.name, process.life)
            wrote = starts.get((process.host.name, process.pid))
            identity = self._identities.get(key)
            started_s = self._first_seen.get(key, end_s if process.ended_s is None else process.ended_s)
            if wrote is not None:
                identity = (int(wrote["node"], 16), int(wrote["boot"], 16))
                started_s = min(started_s, self._true_s(key, wrote))
            ended_s = None if process.ended_s == end_s else process.ended_s
            left = identity is not None and (format_id(identity[0]), format_id(identity[1])) in goodbyes
            how = "" if ended_s is None else "left" if left else self._how_killed(process)
            id, boot = identity or (None, None)
            life = Life(process.name, process.life, process.host.name, started_s, ended_s, how, id, boot)
            found.append(replace(life, log_lost=self._spoilt(life)))
        return found

    def _how_killed(self, process: Process) -> str:
        for span in self._world.ongoing.spans:
            if span.fault.kind == "power_off" and span.start_s == process.ended_s:
                if process.host.name in span.fault.a:
                    return "power_off"
        return "killed"

    def _spoilt(self, life: Life) -> bool:
        """Its log was struck on the disk, if only later, or the disk did not work when it was killed."""
        for span in self._world.ongoing.spans:
            if life.host not in span.fault.a:
                continue
            struck = span.fault.kind in SPOIL_FILES and span.fault.text("files", "state") == "log"
            if (struck or span.fault.kind in POWER_LOSSES) and span.start_s >= life.started_s:
                return True
            if span.fault.kind in STOP_DISKS and life.how == "killed" and life.ended_s is not None:
                if span.start_s <= life.ended_s <= (span.end_s or self._world.now_s) + FLUSH_S:
                    return True
        return False

    # --- the time of rows

    def _timed(self, rows: list[dict[str, Any]], lives: Iterable[Life]) -> list[Row]:
        """Rows by true time, where their writer's clocks were compared with it."""
        brokers = {
            (format_id(life.id), format_id(life.boot)): life
            for life in lives
            if life.id is not None and life.boot is not None
        }
        flipped = any(
            span.fault.kind == "flipped_bits" and span.fault.text("files", "state") == "log"
            for span in self._world.ongoing.spans
        )
        if flipped:  # what looks like a row may say anything
            sound = {key for key, life in brokers.items() if not life.log_lost}
            rows = [row for row in rows if (row.get("node"), row.get("boot")) in sound]
        for row in rows:
            life = brokers.get((row["node"], row["boot"]))
            if life is not None:
                row["at_s"] = self._true_s((life.name, life.number), row)
        return sorted(rows, key=lambda row: (row["at_s"], row["node"], row["boot"], row["seq"]))

    def _true_s(self, key: tuple[str, int], row: Row) -> float:
        """Between two comparisons a clock goes evenly, and outside of them nearly as the true one."""
        clock = self._clocks.get(key)
        if clock is None:
            return float(row["at_s"])
        local, true = clock
        here = float(row["mono_ns"]) / 1e9
        after = bisect_left(local, here)
        if 0 < after < len(local):
            share = (here - local[after - 1]) / (local[after] - local[after - 1])
            return true[after - 1] + share * (true[after] - true[after - 1])
        near = min(after, len(local) - 1)
        return true[near] + here - local[near]


def _frames_out(socket: Socket) -> int:
    """Of all its pipes, those that are gone included."""
    return socket._departed.counters.frames_out + sum(pipe._frames_out for pipe in socket._pipes.values())


def _stream(half: Half) -> Stream:
    """From this end to the other."""
    peer = half.peer
    return Stream(
        name=f"{half.number} from {half.host.name} to {peer.host.name}",
        sent=half.sent_bytes,
        received=peer.received_bytes,
        waiting=half._next_number - half._delivered,
        cut_short=(
            half.vanished
            or half.error is not None
            or peer.vanished
            or peer.error is not None
            or (peer.closed and not peer.eof)
        ),
    )
