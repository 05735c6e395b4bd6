"""A direct discrete-event runner for pure cores: it carries their messages and keeps their timers.

It has no event loop, no transport and no bytes. A core is given messages and the time, and returns messages;
the field carries them. So one message costs about a microsecond, and hundreds of brokers fit into one
process. It models the properties of the network that a core can notice:

* **Latency** is drawn for each message; one direction of a connection stays in order, as in a TCP stream.
* **A cut** holds messages back as TCP does: they are retried on its ladder (`wait_ns`), and go on in order
  once both directions pass. **Loss** works in the same way, drawn for each try. A **clog** only makes them
  wait.
* **A killed** process is silent, and its peers are told (`Core.lost`) after a latency, as by its kernel. A
  host without **power** is only silent. A **paused** process handles at the end of the pause what arrived
  meanwhile.

It leaves out bandwidth, windows, the time code takes, clocks that differ, disks, clients and data.

With many places the cost of a message is the memory it touches. So places and wires are numbers, their state
is in arrays, and one random stream serves all links. Timers are in a calendar; the few messages under way are
in a separate heap. Messages go before timers of the same instant.

The history holds a line for each change, fault and second. The second's line has a checksum over all messages
so far, so equal hashes mean equal runs down to the last message.
"""

from __future__ import annotations

import gc
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from simulations.cores.calendar import Calendar
from simulations.cores.core import Change, Core, Message
from simulations.cores.wires import Wires
from simulations.kernel.history import History
from simulations.kernel.network.links import wait_ns
from simulations.kernel.scheduler import SECOND, nanoseconds

NEVER_NS: Final = 1 << 62
CHANGES_MAX: Final = 1_000_000
"""The number of changes that are kept, which take 200 MB; further ones are only counted and hashed."""
_push: Final = heapq.heappush
MASK: Final = (1 << 61) - 1


class PlaceState(StrEnum):
    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Options:
    """The initial properties of all links."""

    latency_s: float = 0.0003
    jitter_s: float = 0.0002
    period_s: float = 1.0
    deadline_s: float = 0.5

    def __post_init__(self) -> None:
        if self.latency_s < 0 or self.jitter_s < 0:
            raise ValueError(f"links need latency and jitter of at least 0 s, got {self}")
        if not 0 < self.deadline_s < self.period_s:
            raise ValueError(
                f"a deadline must be above 0 s and below the period of {self.period_s:g} s,"
                f" got {self.deadline_s:g}"
            )


class Field:
    """All places and the time.

    Add places, connect them, choose the core that plays them, start them, and let time pass by `run_for`.
    Places and wires are numbers from 0.
    """

    core: Core

    def __init__(self, seed: int, options: Options | None = None, *, keep_history: bool = False) -> None:
        self.seed = seed
        self.options = options or Options()
        self.now_ns = 0
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        """The numbers of the places, by name."""
        self.wires = Wires()
        self.states: list[PlaceState] = []
        self.lives: list[int] = []
        """How often each place has been started."""
        self.messages = 0
        """The number of messages that have arrived."""
        self.changes: list[Change] = []
        """The first `CHANGES_MAX` changes."""
        self.counts: Counter[str] = Counter()
        """The number of all changes, by the new state."""
        self.dead: dict[str, None] = {}
        """Members that any broker ever saw dead."""
        self.history = History(keep=keep_history)
        self.on_second: Callable[[float], None] | None = None
        self._latency_ns = nanoseconds(self.options.latency_s)
        self._jitter_ns = nanoseconds(self.options.jitter_s)
        self._random = random.Random(f"{seed}:net").random
        self._under_way: list[tuple[int, int, int, Message]] = []
        """A heap: the arrival time, a serial number, the wire, the message."""
        self._timers = Calendar()
        """The time, the function to call, and its argument."""
        self._powered: list[bool] = []
        self._due_ns: list[int] = []
        """When the core wants to be called, by place."""
        self._piles: dict[int, list[tuple[int, Message | None]]] = {}
        """Messages to paused places; None is a reset."""
        self._serial = 0
        self._checksum = 0
        self._next_second_ns = SECOND

    # --- building

    def add(self, name: str) -> int:
        """Add a place for a broker; return its number."""
        if name in self.numbers:
            raise ValueError(f"there is a place {name} already")
        place = self.numbers[name] = len(self.names)
        self.names.append(name)
        self.wires.add_place()
        self.states.append(PlaceState.DOWN)
        self.lives.append(0)
        self._powered.append(True)
        self._due_ns.append(NEVER_NS)
        return place

    # --- time

    @property
    def now_s(self) -> float:
        return self.now_ns / SECOND

    def run_for(self, seconds: float) -> None:
        """Let so much time pass. The garbage collector is off: no cycles become garbage here."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            end_ns = self.now_ns + nanoseconds(seconds)
            while self.now_ns < end_ns:
                stop_ns = min(end_ns, self._next_second_ns)
                self._run_to(stop_ns)
                self.now_ns = stop_ns
                if stop_ns == self._next_second_ns:
                    self._second_passed()
        finally:
            if enabled:
                gc.enable()

    def _second_passed(self) -> None:
        self._next_second_ns += SECOND
        self.history.record(self.now_ns, "field", "second", f"{self.messages}|{self._checksum:x}")
        if self.on_second is not None:
            self.on_second(self.now_s)

    def _run_to(self, end_ns: int) -> None:
        timers = self._timers
        while True:
            last_ns = min(end_ns, timers.last_ns())
            self._deliver(last_ns)
            if timers.open and timers.open[-1][0] <= last_ns:
                self._next_timer()
            elif last_ns == end_ns:
                return
            else:
                timers.turn()

    def _deliver(self, end_ns: int) -> None:
        """Deliver all messages until then, each after the timers that are due before it."""
        under_way, timers, pop = self._under_way, self._timers.open, heapq.heappop
        special, receive, send = self.wires.special, self.core.receive, self.send
        while under_way:
            at_ns = under_way[0][0]
            if at_ns > end_ns:
                return
            if timers and timers[-1][0] < at_ns:
                self._next_timer()
                continue
            at_ns, _, wire, message = pop(under_way)
            self.now_ns = at_ns
            if special[wire]:
                self._arrive_in_trouble(wire, message)
                continue
            self.messages += 1
            self._checksum = (self._checksum * 1_000_003 ^ at_ns ^ wire) & MASK
            reply = receive(wire, message, at_ns)
            if reply is not None:
                send(wire ^ 1, reply)

    def _next_timer(self) -> None:
        self.now_ns, action, argument = self._timers.open.pop()
        action(argument)

    def after(self, delay_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        """Call the function then; it must check whether it is still needed."""
        self._timers.put((self.now_ns + delay_ns, action, argument))

    def next_serial(self) -> int:
        """A number that is unique in a run."""
        self._serial += 1
        return self._serial

    # --- messages

    def send(self, wire: int, message: Message) -> None:
        """Send a message. A place that does not run sends nothing, because its core is not called."""
        wires = self.wires
        if wires.special[wire]:
            self._launch(wire, message)
            return
        at_ns = self.now_ns + self._latency_ns + int(self._jitter_ns * self._random())
        last_ns = wires.last_ns[wire]
        if at_ns < last_ns:
            at_ns = last_ns
        wires.last_ns[wire] = at_ns
        self._serial = serial = self._serial + 1
        _push(self._under_way, (at_ns, serial, wire, message))

    def _launch(self, wire: int, message: Message) -> None:
        at_ns = max(self.wires.last_ns[wire], self.now_ns + self._takes_ns(wire))
        self.wires.last_ns[wire] = at_ns
        _push(self._under_way, (at_ns, self.next_serial(), wire, message))

    def _takes_ns(self, wire: int) -> int:
        extra_ns = sum(self.wires.trouble(wire).extra_ns)
        return self._latency_ns + int(self._jitter_ns * self._random()) + extra_ns

    def _loses(self, wire: int) -> bool:
        return any(self._random() < share for share in self.wires.trouble(wire).loss)

    def _arrive_in_trouble(self, wire: int, message: Message) -> None:
        place, trouble = self.wires.targets[wire], self.wires.trouble(wire)
        if trouble.clogs or trouble.clogged:
            trouble.clogged.append(message)
        elif trouble.cuts or trouble.held or self._loses(wire):
            if self.states[self.wires.source(wire)] is not PlaceState.DOWN:
                self._hold(wire, message)
        elif self.states[place] is PlaceState.PAUSED:
            self._piles[place].append((wire, message))
        elif self.states[place] is PlaceState.RUNNING:
            self._hand_over(wire, message)
        elif self._powered[place]:
            self._reset(wire)

    def _hold(self, wire: int, message: Message) -> None:
        """Hold a message that was lost or follows a lost one; it goes on in its turn."""
        trouble = self.wires.suffer(wire)
        trouble.held.append(message)
        if len(trouble.held) == 1:
            trouble.tries = 0
            self.wires.judge(wire)
            self.after(wait_ns(0), self._try_again, (wire, trouble.held))

    def _try_again(self, what: tuple[int, list[Message]]) -> None:
        wire, held = what
        wires = self.wires
        trouble = wires.trouble(wire)
        if trouble.held is not held:
            return  # it belongs to a connection that no longer exists
        if (
            trouble.cuts
            or wires.trouble(wire ^ 1).cuts
            or not self._powered[wires.targets[wire]]
            or self._loses(wire)
        ):
            trouble.tries += 1
            self.after(wait_ns(trouble.tries), self._try_again, what)
        else:
            self.after(self._takes_ns(wire), self._get_across, what)

    def _get_across(self, what: tuple[int, list[Message]]) -> None:
        """Deliver the retried message, and those that waited behind it, unless there is a new cut."""
        wire, held = what
        trouble = self.wires.trouble(wire)
        if trouble.held is not held:
            return
        if trouble.cuts:
            self._try_again(what)
            return
        self.wires.suffer(wire).held = []
        self._arrive_now(wire, held)

    def renew(self, wire: int) -> None:
        """Begin a new connection with its own retry ladder.

        The messages that the old one held are forgotten. Its next retry, which may be minutes away, delays
        nothing.
        """
        self.wires.last_ns[wire] = 0
        trouble = self.wires.trouble(wire)
        if trouble.held or trouble.clogged:
            trouble.held, trouble.clogged = [], []
            self.wires.judge(wire)

    def unclog(self, wire: int) -> None:
        """Release the messages that waited at the wire's end."""
        trouble = self.wires.suffer(wire)
        waiting, trouble.clogged = trouble.clogged, []
        self._arrive_now(wire, waiting)

    def _arrive_now(self, wire: int, messages: list[Message]) -> None:
        """Deliver it before everything that is under way on this wire."""
        self.wires.judge(wire)
        for message in messages:
            _push(self._under_way, (self.now_ns, self.next_serial(), wire, message))

    def _hand_over(self, wire: int, message: Message) -> None:
        self.messages += 1
        self._checksum = (self._checksum * 1_000_003 ^ self.now_ns ^ wire) & MASK
        reply = self.core.receive(wire, message, self.now_ns)
        if reply is not None:
            self.send(wire ^ 1, reply)

    def _reset(self, wire: int) -> None:
        """Nobody runs there any more, and the kernel there says so."""
        back = wire ^ 1
        if not self.wires.trouble(back).cuts:
            life = self.lives[self.wires.targets[back]]
            self.after(self._latency_ns, self._told_lost, (back, life))

    def _told_lost(self, what: tuple[int, int]) -> None:
        """The kernel reports that the other end of this wire's pair is gone."""
        wire, life = what
        place = self.wires.targets[wire]
        if self.lives[place] != life or self.wires.trouble(wire).cuts:
            return
        if self.states[place] is PlaceState.RUNNING:
            self.core.lost(wire ^ 1, self.now_ns)
        elif self.states[place] is PlaceState.PAUSED:
            self._piles[place].append((wire, None))

    # --- timers of cores

    def wake(self, place: int, at_ns: int) -> None:
        """Call the core of this place then, instead of at the time set before."""
        at_ns = max(at_ns, self.now_ns)
        if at_ns != self._due_ns[place]:
            self._due_ns[place] = at_ns
            if at_ns < NEVER_NS:
                self._timers.put((at_ns, self._tick, place))

    def _tick(self, place: int) -> None:
        # Skip it if it belongs to an earlier life or was postponed. A paused place is called when it runs
        # again.
        if self._due_ns[place] == self.now_ns and self.states[place] is PlaceState.RUNNING:
            self._due_ns[place] = NEVER_NS
            self.core.tick(place, self.now_ns)

    # --- what cores report

    def changed(self, observer: int, subject: str, from_state: str, to_state: str, reason: str) -> None:
        """A broker sees another one in a new state."""
        name = self.names[observer]
        self.counts[to_state] += 1
        if to_state == "dead":
            self.dead[subject] = None
        if len(self.changes) < CHANGES_MAX:
            self.changes.append(Change(self.now_s, name, subject, from_state, to_state, reason))
        self.history.record(self.now_ns, name, "change", f"{subject}|{from_state}|{to_state}")

    # --- life and death

    def start(self, place: int) -> None:
        if self.states[place] is not PlaceState.DOWN:
            raise ValueError(f"broker {self.names[place]} is {self.states[place]} already")
        self.lives[place] += 1
        self._powered[place] = True
        self._comes(place, PlaceState.RUNNING)
        self.core.begin(place, self.now_ns)

    def kill(self, place: int, *, power: bool = True) -> None:
        """Stop everything of the place; if it still has power, its kernel tells the others."""
        self._comes(place, PlaceState.DOWN)
        self._powered[place] = power
        self._piles.pop(place, None)
        self._due_ns[place] = NEVER_NS
        for other, wire in self.wires.of[place].items():
            self.renew(wire)
            if power and not self.wires.trouble(wire).cuts and self.states[other] is not PlaceState.DOWN:
                self.after(self._latency_ns, self._told_lost, (wire, self.lives[other]))

    def pause(self, place: int) -> None:
        if self.states[place] is PlaceState.RUNNING:
            self._comes(place, PlaceState.PAUSED)
            self._piles[place] = []

    def resume(self, place: int) -> None:
        """Handle what arrived during the pause, then call the core if it missed its time."""
        if self.states[place] is not PlaceState.PAUSED:
            return
        self._comes(place, PlaceState.RUNNING)
        for wire, message in self._piles.pop(place):
            if message is None:
                self.core.lost(wire ^ 1, self.now_ns)
            else:
                self._hand_over(wire, message)
        if self._due_ns[place] <= self.now_ns:
            self._due_ns[place] = NEVER_NS
            self.wake(place, self.now_ns)

    def _comes(self, place: int, state: PlaceState) -> None:
        self.states[place] = state
        self.wires.runs(place, state is PlaceState.RUNNING)

    def where(self, names: Iterable[str]) -> list[int]:
        """The numbers of places."""
        return [self.numbers[name] for name in names]
