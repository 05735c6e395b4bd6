"""A direct discrete-event runner for pure cores: who may be reached from where, and what is due when.

There is no event loop, no transport and no byte here. A core is handed messages and the time, and returns
messages; the field carries them. So one message costs a few microseconds, and ten thousand brokers fit into
one process. What is kept of the network is what a core can notice:

* **Latency**: drawn for each message from the sender's own random stream; one direction of a pair stays in
  order, as a TCP stream does.
* **A cut** holds messages back as TCP does: they are tried again after 0.2, 0.4, 0.8 ... seconds, and go on
  in order once both directions pass. **Loss** is the same as a delay.
* **A killed** process is silence, and its peers are told (`Core.lost`) after a latency, which is the RST; a
  host without **power** is silence only. A **paused** process finds at its end what came meanwhile.

What is left out: bandwidth, windows, the time code takes, clocks that differ, disks, clients, data. A kind of
fault that needs one of these is refused by name.

Two heaps, since a thousand timers that are far off would slow down the few messages on their way. Messages go
before timers of the same instant. The history holds a line for each change, fault and second; the second's
line has a checksum over all messages so far, so equal hashes mean equal runs down to the last message.
"""

from __future__ import annotations

import gc
import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

from simulations import faults
from simulations.faults import Fault
from simulations.history import History
from simulations.scheduler import MILLISECOND, SECOND, nanoseconds

RTO_FIRST_NS: Final = 200 * MILLISECOND
RTO_MAX_NS: Final = 120 * SECOND
MASK: Final = (1 << 61) - 1

Message = tuple[Any, ...]


class PlaceState(StrEnum):
    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Options:
    """What all links are like at first."""

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


@dataclass(frozen=True, slots=True)
class Change:
    """A broker saw another one come into another state."""

    at_s: float
    observer: str
    subject: str
    from_state: str
    to_state: str
    reason: str


class Core(Protocol):
    """One life of one broker. Its messages are tuples, and nobody changes them."""

    due_ns: int
    """When to call `tick`."""

    def receive(self, wire: Wire, message: Message, now_ns: int) -> Message | None:
        """A message came by this wire; what is returned goes back at once."""

    def tick(self, now_ns: int) -> None: ...

    sparse: ClassVar[bool]
    """Whether `view` leaves out those who are alive."""

    def view(self) -> dict[str, str]:
        """Whom it holds for what, by name."""

    def lost(self, wire: Wire, now_ns: int) -> None:
        """The process at the other end of this wire died, and its kernel said so."""


class Wire:
    """One direction between two places; ``back`` is the other."""

    __slots__ = (
        "back",
        "cuts",
        "extra_ns",
        "held",
        "last_ns",
        "loss",
        "mark",
        "number",
        "rto_ns",
        "source",
        "target",
        "troubled",
    )

    back: Wire

    def __init__(self, source: Place, target: Place, number: int) -> None:
        self.source = source
        self.target = target
        self.number = number
        self.last_ns = 0
        self.cuts = 0
        self.loss: tuple[float, ...] = ()
        self.extra_ns: tuple[int, ...] = ()
        self.held: list[Message] = []
        """Not yet across: a cut came between."""
        self.rto_ns = 0
        self.mark = 0
        """A number that the core at the target may write on it, so that it needs no table by peers."""
        self.troubled = False
        """Any of the above: what goes by here is not simply on its way."""

    def judge(self) -> None:
        """After a change of what it suffers."""
        self.troubled = bool(self.cuts or self.loss or self.extra_ns or self.held)


class Place:
    """Where a broker lives, once or again."""

    __slots__ = (
        "core",
        "lives",
        "make",
        "missed_timer",
        "name",
        "number",
        "pile",
        "powered",
        "random",
        "running",
        "state",
        "wires",
    )

    def __init__(self, name: str, number: int, rng: random.Random) -> None:
        self.name = name
        self.number = number
        self.random = rng.random
        self.make: Callable[[Place], Core]
        self.core: Core | None = None
        self.lives = 0
        self.running = False
        self.state = PlaceState.DOWN
        self.powered = True
        self.wires: dict[int, Wire] = {}
        """To the others, by their numbers."""
        self.pile: list[tuple[Wire, Message]] = []
        self.missed_timer = False


class Field:
    """All places and the time. Add places and wires, start them, let time pass by `run_for`."""

    def __init__(self, seed: int, options: Options | None = None, *, keep_history: bool = False) -> None:
        self.seed = seed
        self.options = options or Options()
        self.now_ns = 0
        self.places: dict[str, Place] = {}
        self.messages = 0
        """How many have arrived."""
        self.changes: list[Change] = []
        self.history = History(keep=keep_history)
        self.on_second: Callable[[float], None] | None = None
        self._latency_ns = nanoseconds(self.options.latency_s)
        self._jitter_ns = nanoseconds(self.options.jitter_s)
        self._under_way: list[tuple[int, int, Wire, Message]] = []
        self._timers: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self._wires = 0
        self._checksum = 0
        self._lasting: list[Fault] = []
        self._next_second_ns = SECOND

    # --- building

    def add(self, name: str, make: Callable[[Place], Core]) -> Place:
        """A place for a broker, whose lives `make` makes."""
        if name in self.places:
            raise ValueError(f"there is a place {name} already")
        number = len(self.places) + 1
        place = Place(name, number, random.Random(f"{self.seed}:net:{name}"))
        place.make = make
        self.places[name] = place
        return place

    def connect(self, one: Place, other: Place) -> None:
        """A wire each way; nothing if there are."""
        if other.number in one.wires:
            return
        self._wires += 2
        there, back = Wire(one, other, self._wires - 1), Wire(other, one, self._wires)
        there.back, back.back = back, there
        one.wires[other.number], other.wires[one.number] = there, back

    # --- time

    @property
    def now_s(self) -> float:
        return self.now_ns / SECOND

    def run_for(self, seconds: float) -> None:
        """Let so much time pass. The garbage collector rests: nothing here is a cycle that dies."""
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
        under_way, timers, pop = self._under_way, self._timers, heapq.heappop
        send = self.send
        while True:
            timer_ns = timers[0][0] if timers else end_ns + 1
            if under_way and under_way[0][0] <= timer_ns:
                if under_way[0][0] > end_ns:
                    return
                now_ns, _, wire, message = pop(under_way)
                self.now_ns = now_ns
                place = wire.target
                if not place.running or wire.troubled:
                    self._arrive_in_trouble(wire, message)
                    continue
                self.messages += 1
                self._checksum = (self._checksum * 1_000_003 ^ now_ns ^ wire.number) & MASK
                reply = place.core.receive(wire, message, now_ns)  # type: ignore[union-attr]
                if reply is not None:
                    send(wire.back, reply)
            elif timer_ns <= end_ns:
                self.now_ns, _, action, arguments = pop(timers)
                action(*arguments)
            else:
                return

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call it then; it looks whether it is still wanted."""
        self._serial += 1
        heapq.heappush(self._timers, (self.now_ns + delay_ns, self._serial, action, arguments))

    def next_serial(self) -> int:
        """A number that is given once in a run."""
        self._serial += 1
        return self._serial

    # --- messages

    def send(self, wire: Wire, message: Message) -> None:
        """Put it on its way."""
        source = wire.source
        if not source.running:
            return
        if wire.troubled:
            self._send_in_trouble(wire, message)
            return
        at_ns = self.now_ns + self._latency_ns + int(self._jitter_ns * source.random())
        if at_ns < wire.last_ns:
            at_ns = wire.last_ns
        wire.last_ns = at_ns
        self._serial = serial = self._serial + 1
        heapq.heappush(self._under_way, (at_ns, serial, wire, message))

    def _send_in_trouble(self, wire: Wire, message: Message) -> None:
        if wire.cuts or wire.held:
            self._hold(wire, message)
        else:
            self._launch(wire, message)

    def _hold(self, wire: Wire, message: Message) -> None:
        wire.held.append(message)
        if len(wire.held) == 1:
            wire.rto_ns = RTO_FIRST_NS
            wire.judge()
            self.after(wire.rto_ns, self._try_again, wire, wire.held)

    def renew(self, wire: Wire) -> None:
        """A new connection begins with a ladder of its own; what an old one held is forgotten."""
        wire.held = []
        wire.judge()

    def _try_again(self, wire: Wire, held: list[Message]) -> None:
        if wire.held is not held:
            return  # of a connection that is no more
        if wire.cuts or wire.back.cuts or not wire.target.powered:
            wire.rto_ns = min(2 * wire.rto_ns, RTO_MAX_NS)
            self.after(wire.rto_ns, self._try_again, wire, held)
            return
        self.renew(wire)
        for message in held:
            self._launch(wire, message)

    def _launch(self, wire: Wire, message: Message) -> None:
        draw = wire.source.random
        at_ns = self.now_ns + self._latency_ns + int(self._jitter_ns * draw()) + sum(wire.extra_ns)
        for share in wire.loss:
            rto_ns = RTO_FIRST_NS
            while draw() < share:
                at_ns += rto_ns
                rto_ns = min(2 * rto_ns, RTO_MAX_NS)
        wire.last_ns = max(wire.last_ns, at_ns)
        self._serial += 1
        heapq.heappush(self._under_way, (wire.last_ns, self._serial, wire, message))

    def _arrive_in_trouble(self, wire: Wire, message: Message) -> None:
        place = wire.target
        if wire.cuts:
            if wire.source.state is not PlaceState.DOWN:
                self._hold(wire, message)
        elif place.state is PlaceState.PAUSED:
            place.pile.append((wire, message))
        elif place.running:
            self._hand_over(wire, message)
        elif place.powered:
            self._reset(wire)

    def _hand_over(self, wire: Wire, message: Message) -> None:
        core = wire.target.core
        assert core is not None
        self.messages += 1
        self._checksum = (self._checksum * 1_000_003 ^ self.now_ns ^ wire.number) & MASK
        reply = core.receive(wire, message, self.now_ns)
        if reply is not None:
            self.send(wire.back, reply)

    def _reset(self, wire: Wire) -> None:
        """Nobody is there any more, and the kernel there says so."""
        if not wire.back.cuts:
            self.after(self._latency_ns, self._told_lost, wire, wire.source.lives)

    def _told_lost(self, wire: Wire, life: int) -> None:
        source = wire.source
        if source.running and source.lives == life and source.core is not None and not wire.back.cuts:
            source.core.lost(wire, self.now_ns)
            self.rearm(source)

    # --- timers of cores

    def rearm(self, place: Place) -> None:
        """The core of this place is to be called when it wants to."""
        core = place.core
        assert core is not None
        self._serial += 1
        heapq.heappush(
            self._timers,
            (max(core.due_ns, self.now_ns), self._serial, self._tick, (place, core, core.due_ns)),
        )

    def _tick(self, place: Place, core: Core, due_ns: int) -> None:
        if place.core is not core or core.due_ns != due_ns:
            return  # of an earlier life, or put off since
        if not place.running:
            place.missed_timer = True
            return
        core.tick(self.now_ns)
        self.rearm(place)

    # --- what cores report

    def changed(self, observer: str, subject: str, from_state: str, to_state: str, reason: str) -> None:
        """A broker sees another one in another state."""
        self.changes.append(Change(self.now_s, observer, subject, from_state, to_state, reason))
        self.history.record(self.now_ns, observer, "change", f"{subject}|{from_state}|{to_state}")

    # --- life and death

    def start(self, place: Place) -> None:
        if place.state is not PlaceState.DOWN:
            raise ValueError(f"broker {place.name} is {place.state} already")
        place.lives += 1
        place.powered = place.running = True
        place.state = PlaceState.RUNNING
        place.core = place.make(place)
        self.rearm(place)

    def kill(self, place: Place, *, power: bool = True) -> None:
        """Nothing of it runs any more; with power left its kernel tells the others."""
        place.running = False
        place.state = PlaceState.DOWN
        place.core = None
        place.powered = power
        place.pile.clear()
        place.missed_timer = False
        for wire in place.wires.values():
            self.renew(wire)
            if power and not wire.cuts and wire.target.state is not PlaceState.DOWN:
                self.after(self._latency_ns, self._told_lost, wire.back, wire.target.lives)

    def pause(self, place: Place) -> None:
        if place.state is PlaceState.RUNNING:
            place.running = False
            place.state = PlaceState.PAUSED

    def resume(self, place: Place) -> None:
        if place.state is not PlaceState.PAUSED:
            return
        place.running = True
        place.state = PlaceState.RUNNING
        pile, place.pile = place.pile, []
        for wire, message in pile:
            self._hand_over(wire, message)
        if place.missed_timer:
            place.missed_timer = False
            self.rearm(place)

    # --- faults

    def check(self, plan: Iterable[Fault]) -> None:
        """Raises `ValueError` for a fault that has no meaning here, or names somebody who is not here."""
        for fault in plan:
            self._checked(fault)

    def schedule(self, plan: Iterable[Fault]) -> None:
        """Let them come at their times, which count from the beginning of the run."""
        for fault in plan:
            self._checked(fault)
            self.after(max(0, nanoseconds(fault.at_s) - self.now_ns), self.do, fault)

    def do(self, fault: Fault) -> None:
        """A fault, now.

        Raises:
            ValueError: it has no meaning here, or names somebody who is not here.
        """
        fault = self._checked(fault)
        self.history.record(self.now_ns, "field", "fault", str(fault))
        begin, end = KINDS[fault.kind]
        begin(self, fault)
        if end is not None:
            self._lasting.append(fault)
            if fault.for_s is not None:
                self.after(nanoseconds(fault.for_s), self._end, fault)

    def _checked(self, fault: Fault) -> Fault:
        """The fault with its kind's own number, if it has none."""
        if fault.kind not in KINDS:
            raise ValueError(
                f"the cores alone know no {fault.kind}; they know {', '.join(KINDS)}. Run it in full fidelity"
            )
        kind = faults.KINDS[fault.kind]
        kind.check(fault)
        for name in (*fault.a, *fault.b):
            if name not in self.places:
                raise ValueError(f"{fault.kind}: there is no broker {name!r} among {len(self.places)}")
        for name, _ in fault.more:
            if name != "ways":
                raise ValueError(f"{fault.kind}: {name} means nothing to the cores alone")
        return kind.filled(fault)

    def _end(self, fault: Fault) -> None:
        for index, each in enumerate(self._lasting):
            if each is fault:
                del self._lasting[index]
                end = KINDS[fault.kind][1]
                assert end is not None
                end(self, fault)
                return

    def heal(self, *, links_only: bool = False) -> None:
        """Undo all that lasts; then start who is down, unless only links are meant."""
        for fault in list(self._lasting):
            if not links_only or fault.kind in LINK_KINDS:
                self._end(fault)
        if not links_only:
            for place in self.places.values():
                if place.state is PlaceState.DOWN and place.lives:
                    self.start(place)

    def wires_between(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[Wire]:
        wanted = {self.places[name].number for name in targets}  # looked up only
        for name in sources:
            for number, wire in self.places[name].wires.items():
                if number in wanted:
                    yield wire


# --- the kinds of faults that mean something here; they do what those of the same names do in a world


def _sides(field: Field, fault: Fault) -> tuple[list[str], list[str]]:
    here, there = list(fault.a), list(fault.b)
    return (
        here or [name for name in field.places if name not in fault.b],
        there or [name for name in field.places if name not in fault.a],
    )


def _both_ways(field: Field, fault: Fault) -> Iterator[Wire]:
    here, there = _sides(field, fault)
    yield from field.wires_between(here, there)
    yield from field.wires_between(there, here)


def _there(field: Field, fault: Fault) -> Iterator[Wire]:
    yield from field.wires_between(*_sides(field, fault))


def _around(field: Field, fault: Fault) -> Iterator[Wire]:
    alone = (*fault.a, *fault.b)
    others = [name for name in field.places if name not in alone]
    for name in alone:
        yield from field.wires_between([name], field.places)
        yield from field.wires_between(others, [name])


Struck = Callable[[Field, Fault], Iterator[Wire]]
Act = Callable[[Field, Fault], None]


def _cutting(struck: Struck, by: int) -> Act:
    def act(field: Field, fault: Fault) -> None:
        for wire in struck(field, fault):
            wire.cuts += by
            wire.judge()

    return act


def _slow(field: Field, fault: Fault) -> None:
    for wire in _struck_links(field, fault):
        wire.extra_ns = (*wire.extra_ns, nanoseconds(fault.value))
        wire.judge()


def _slow_no_more(field: Field, fault: Fault) -> None:
    for wire in _struck_links(field, fault):
        extra_ns = list(wire.extra_ns)
        extra_ns.remove(nanoseconds(fault.value))
        wire.extra_ns = tuple(extra_ns)
        wire.judge()


def _lossy(field: Field, fault: Fault) -> None:
    for wire in _struck_links(field, fault):
        wire.loss = (*wire.loss, fault.value)
        wire.judge()


def _lossy_no_more(field: Field, fault: Fault) -> None:
    for wire in _struck_links(field, fault):
        loss = list(wire.loss)
        loss.remove(fault.value)
        wire.loss = tuple(loss)
        wire.judge()


def _struck_links(field: Field, fault: Fault) -> Iterator[Wire]:
    yield from (_there if fault.text("ways", "both") == "there" else _both_ways)(field, fault)


def _each(act: Callable[[Field, Place], None]) -> Act:
    def all_of_them(field: Field, fault: Fault) -> None:
        for name in fault.a:
            act(field, field.places[name])

    return all_of_them


def _start_if_down(field: Field, place: Place) -> None:
    if place.state is PlaceState.DOWN:
        field.start(place)


def _crash(field: Field, place: Place) -> None:
    if place.state is not PlaceState.DOWN:
        field.kill(place)


def _power_off(field: Field, place: Place) -> None:
    field.kill(place, power=False)


def _heal(field: Field, fault: Fault) -> None:
    field.heal(links_only=True)


KINDS: Final[dict[str, tuple[Act, Act | None]]] = {
    "partition": (_cutting(_both_ways, 1), _cutting(_both_ways, -1)),
    "cut_one_way": (_cutting(_there, 1), _cutting(_there, -1)),
    "isolate": (_cutting(_around, 1), _cutting(_around, -1)),
    "slow_link": (_slow, _slow_no_more),
    "lossy_link": (_lossy, _lossy_no_more),
    "heal": (_heal, None),
    "start": (_each(_start_if_down), None),
    "crash": (_each(_crash), _each(_start_if_down)),
    "power_off": (_each(_power_off), _each(_start_if_down)),
    "pause": (_each(Field.pause), _each(Field.resume)),
    "resume": (_each(Field.resume), None),
}
"""How each begins and how it ends."""
LINK_KINDS: Final = ("partition", "cut_one_way", "isolate", "slow_link", "lossy_link")
