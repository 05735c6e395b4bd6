"""One machine, driven by hand."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from mesh.cluster.membership import (
    STATES,
    Instruction,
    MemberRecord,
    Membership,
    MembershipOptions,
    State,
    Survey,
)


def record(id: int, incarnation: int = 1, state: State = State.ALIVE, boot: int = 7) -> MemberRecord:
    return MemberRecord(id, incarnation, state, boot, f"n{id}", "host", f"tcp://{id}:1", f"tcp://{id}:1")


RECORDS = st.builds(record, st.just(5), st.integers(0, 3), st.sampled_from(STATES), st.integers(1, 2))
"""Records that may be reported about one member."""


class Driven:
    """One machine with a clock. ``out`` has the instructions of the last input."""

    def __init__(self, *peers: int, members_max: int = 1024) -> None:
        self.now = 0.0
        options = MembershipOptions(members_max=members_max)
        self.machine = Membership(record(1), options=options, rng=random.Random(1), now=0.0)
        self.out: list[Instruction] = []
        for peer in peers:
            self.link(peer)

    def link(self, peer: int) -> list[Instruction]:
        self.out = self.machine.link_up(record(peer), self.now)
        return self.out

    def unlink(self, peer: int) -> list[Instruction]:
        self.out = self.machine.link_down(peer, self.now)
        return self.out

    def to_round(self, *, late_s: float = 0.0) -> Survey:
        """Advance to the start of the next round, which is this late."""
        for _ in range(10):
            self.now = self.machine.next_deadline() + late_s
            for instruction in self.machine.tick(self.now):
                if isinstance(instruction, Survey):
                    return instruction
        raise AssertionError("no round began")

    def round(self, *answering: int, late_s: float = 0.0) -> list[Instruction]:
        """A whole round up to its judgement, in which these members answer."""
        survey = self.to_round()
        out: list[Instruction] = []
        self.now += 0.001
        for peer in answering:
            out += self.machine.answered(peer, survey.round, self.now)
        self.now = self.machine.next_deadline() + late_s
        self.out = out + self.machine.tick(self.now)
        return self.out

    def state(self, peer: int) -> State:
        known = self.machine.record(peer)
        return State.UNKNOWN if known is None else known.state
