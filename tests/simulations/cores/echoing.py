"""A core that only records its calls, on two places and the wires between them."""

from __future__ import annotations

from simulations.cores import Field, Options, Striking
from simulations.cores.core import Message
from simulations.kernel.scheduler import SECOND


class Echo:
    """Records its calls, answers questions, and counts ticks, one a second."""

    def __init__(self, field: Field) -> None:
        self.heard: list[list[tuple[float, Message]]] = [[], []]
        self.lost_at: list[list[float]] = [[], []]
        self.ticks: list[list[float]] = [[], []]
        self.field = field

    def begin(self, place: int, now_ns: int) -> None:
        self.heard[place], self.lost_at[place], self.ticks[place] = [], [], []
        self.field.wake(place, now_ns + SECOND)

    def receive(self, wire: int, message: Message, now_ns: int) -> Message | None:
        self.heard[self.field.wires.targets[wire]].append((now_ns / SECOND, message))
        return ("answer", message[1]) if message[0] == "question" else None

    def view(self, place: int) -> dict[str, str]:
        return {}

    def tick(self, place: int, now_ns: int) -> None:
        self.ticks[place].append(now_ns / SECOND)
        self.field.wake(place, now_ns + SECOND)

    def lost(self, wire: int, now_ns: int) -> None:
        self.lost_at[self.field.wires.source(wire)].append(now_ns / SECOND)


ONE, OTHER = 0, 1
THERE, BACK = 0, 1
"""The wires between them."""


def pair(options: Options | None = None) -> tuple[Field, Echo, Striking]:
    field = Field(7, options)
    for name in ("one", "other"):
        field.add(name)
    field.wires.connect(ONE, OTHER)
    field.core = echo = Echo(field)
    field.start(ONE)
    field.start(OTHER)
    return field, echo, Striking(field)
