"""Gathers the evidence of a run from its world, which it observes and never changes.

About once a simulated second it looks into the running brokers (a `Sample` of `View`s). At the end it takes
the event logs from the virtual disks, the faults as they were done, the lives of all processes and the bytes
of all connections.

It also records each broker's monotonic clock together with the true time; these readings give the rows their
times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mesh.broker.broker import Broker
from mesh.broker.identity import format_id
from mesh.cluster.membership import State
from simulations.evidence import logs, truth
from simulations.evidence.evidence import (
    FLUSH_S,
    Dialled,
    Evidence,
    Life,
    Stream,
)
from simulations.evidence.journals import journals_of
from simulations.evidence.ledger import Ledger
from simulations.evidence.logs import Row
from simulations.evidence.looks import Looks
from simulations.evidence.outboxes import outboxes_of
from simulations.evidence.view import Patterns, View
from simulations.kernel.file_content import FileContent
from simulations.kernel.network import Address, Half
from simulations.scenario import Scenario
from simulations.world import Process, World

SPOIL_FILES: Final = ("torn_file", "flipped_bits", "lost_files")
POWER_LOSSES: Final = ("power_off", "move")
STOP_DISKS: Final = ("disk_fault", "slow_disk", "lying_disk", "full_disk")
HERE: Final = ("slow_subscriber", "subscriber_gone")
"""Reasons for which a broker drops messages for its own subscribers."""
DEEP_EVERY_S: Final = 10.0
"""Seconds between expensive counts: tasks and timers."""


class Recorder:
    """Gathers the evidence of a run as it progresses."""

    def __init__(self, world: World, scenario: Scenario, ledger: Ledger) -> None:
        self._world = world
        self._scenario = scenario
        self._ledger = ledger
        self._looks = Looks()
        self._first_seen: dict[tuple[str, int], float] = {}
        self._identities: dict[tuple[str, int], tuple[int, int]] = {}
        self._clocks: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
        self._halves: dict[Half, list[float]] = {}
        """All ends of connections, and when each was seen first and last."""
        self._patterns: dict[Patterns, Patterns] = {}
        self._dials: list[Dialled] = []
        self._deep_at_s = 0.0
        world.network.on_attempt = self._attempted

    def sample(self, *, deep: bool = False) -> None:
        """Look at all brokers now; ``deep`` includes the expensive counts."""
        world = self._world
        now_s = world.now_s
        latest = self._looks.latest
        if latest is not None and latest.at_s == now_s and not deep:
            return
        deep = deep or now_s >= self._deep_at_s
        if deep:
            self._deep_at_s = now_s + DEEP_EVERY_S
        sockets: dict[str, int] = {}
        for half in world.network.halves:
            seen = self._halves.setdefault(half, [now_s, now_s])
            if not half.ended:
                seen[1] = now_s
                sockets[half.owner.name] = sockets.get(half.owner.name, 0) + 1
        views = []
        for node in world.nodes.values():
            process = node.process
            if process is None or not process.alive:
                continue
            key = (node.name, process.life)
            self._first_seen.setdefault(key, now_s)
            if isinstance(process.exposed, Broker):
                view = self._view(process, process.exposed, deep, sockets.get(node.name, 0))
                views.append(view)
                self._identities[key] = (view.id, view.boot)
                clock = self._clocks.setdefault(key, ([], []))
                clock[0].append(process.loop.time())
                clock[1].append(now_s)
        self._looks.add(now_s, views)

    def _view(self, process: Process, broker: Broker, deep: bool, sockets: int) -> View:
        seen = broker.inspect()
        counted, exchange, interest, sent = seen.peering, seen.exchange, seen.interest, seen.frames_out
        addresses, void_s, losses = seen.addresses, seen.last_void_round, seen.link_losses
        sizes = {
            "members": counted.members,
            "strangers": counted.strangers,
            "barriers": interest.barriers,
            "questions": exchange.questions,
            "seen": exchange.publishers,
            "queued": exchange.queued,
            "sockets": sockets,
        }
        if deep:
            sizes["tasks"] = len(asyncio.all_tasks(process.loop))
            sizes["timers"] = process.loop.timers
        held = {peer: (each.version, self._shared(each.patterns)) for peer, each in interest.held.items()}
        return View(
            name=process.name,
            life=process.life,
            id=seen.id,
            boot=seen.boot,
            state=seen.state,
            table=seen.records,
            links=seen.linked,
            join=addresses.join,
            known=addresses.known,
            digest=seen.digest,
            interest=self._shared(interest.own),
            interest_version=interest.version,
            held=held,
            counters={
                "rounds": counted.rounds,
                "late_rounds": counted.void_rounds["late"],
                "silent_rounds": counted.void_rounds["silent"],
                "refutations": counted.refutations,
                "refused_records": counted.refused_records,
                "syncs": counted.syncs,
                "late_answers": counted.late_answers,
                "refused": sum(seen.refused.values()),
                "control_out": sent.control,
                "bus_out": sent.bus,
                "dropped": sum(exchange.drops.get(reason, 0) for reason in HERE),
                "unresolved": exchange.unresolved - sum(loss.unresolved for loss in losses.values()),
            },
            losses=losses,
            sizes=sizes,
            void_at=void_s,
            paused=process.loop.paused,
        )

    def _attempted(self, by: str, whither: Address) -> None:
        """Keep only dials to brokers that left, by the dialler's table at the last look.

        A run has thousands of others, and no check asks for them.
        """
        latest = self._looks.latest
        view = latest.views.get(by) if latest is not None else None
        if view is None or isinstance(whither, str):
            return
        url = f"tcp://{whither[0]}:{whither[1]}"
        if any(record.state is State.LEFT and record.peer_url == url for record in view.table[1:]):
            self._dials.append(Dialled(self._world.now_s, by, url))

    def _shared(self, patterns: Iterable[tuple[str, int]]) -> Patterns:
        """Sort the items and share one object for all equal ones: they hardly ever change."""
        ordered = tuple(sorted(patterns))
        return self._patterns.setdefault(ordered, ordered)

    def finish(self, phases: dict[str, float]) -> Evidence:
        """The run is over: take the logs from the disks, and count the rest."""
        world = self._world
        files = truth.log_contents(world)
        lives = self._lives(logs.log_changes(files))
        return Evidence(
            scenario=self._scenario,
            rows=self._logs(files, lives),
            faults=list(world.ongoing.spans),
            lives=lives,
            ledger=self._ledger,
            samples=self._looks,
            dials=self._dials,
            phases=phases,
            failures=[str(failure) for failure in world.failures],
            escapes=list(world.fence.escapes),
            streams=[_stream(half) for half in self._halves],
            sessions=self._sessions(),
            journals=journals_of(world),
            outboxes=outboxes_of(world),
            hashes=[("this run", world.history.digest)],
        )

    def _sessions(self) -> dict[tuple[str, int], list[tuple[float, float]]]:
        subscribers = {(each.subscriber, each.life): None for each in self._ledger.subscriptions}
        subscribers |= {(each.worker, each.life): None for each in self._ledger.attached}
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for half, (first_s, last_s) in self._halves.items():
            owner = half.owner
            key = (owner.name, owner.life if isinstance(owner, Process) else 0)
            if key in subscribers:
                other_s = self._halves.get(half.peer, (first_s, last_s))[1]
                found.setdefault(key, []).append((first_s, min(last_s, other_s)))
        return {key: sorted(times) for key, times in found.items()}

    def _lives(self, rows: Iterable[Row]) -> list[Life]:
        """A broker's life begins when its log says so: before that, it can be held to nothing."""
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
        """True if its log was damaged on the disk at any time, or the disk did not work when it was
        killed.
        """
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

    def _logs(self, files: Mapping[str, FileContent], lives: Iterable[Life]) -> logs.Logs:
        """The rows of the logs. In a log with flipped bits, a line that looks like a row may be wrong."""
        brokers = {
            (format_id(life.id), format_id(life.boot)): life
            for life in lives
            if life.id is not None and life.boot is not None
        }
        clocks = {
            writer: clock
            for writer, life in brokers.items()
            if (clock := self._clocks.get((life.name, life.number))) is not None
        }
        flipped = any(
            span.fault.kind == "flipped_bits" and span.fault.text("files", "state") == "log"
            for span in self._world.ongoing.spans
        )
        sound = {writer for writer, life in brokers.items() if not life.log_lost}
        return logs.Logs(files, clocks, sound if flipped else None)

    def _true_s(self, key: tuple[str, int], row: Row) -> float:
        clock = self._clocks.get(key)
        return float(row["at_s"]) if clock is None else logs.true_s(clock, row)


def _stream(half: Half) -> Stream:
    """The stream from this end to the other."""
    peer = half.peer
    return Stream(
        name=f"{half.number} from {half.host.name} to {peer.host.name}",
        sent=half.sent_bytes,
        received=peer.received_bytes,
        waiting=half.waiting,
        cut_short=(
            half.vanished
            or half.error is not None
            or peer.vanished
            or peer.error is not None
            or (peer.closed and not peer.eof)
        ),
    )
