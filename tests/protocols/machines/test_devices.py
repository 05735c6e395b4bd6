"""A device between pushers and pullers, and one between those that ask and those that answer.

A message that reached a device has left it, waits in it or is counted. A waiting message has no room
anywhere. A peer that is not read has a waiting message. And with a device on the way every request is
answered once all is well, as without.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.raw import Raw
from protocols.patterns.relay import Relay
from protocols.wire.handshake import ProtocolNumber

from .test_asking import ReqRepMachine
from .test_queues import Pulling, Pushing
from .world import MACHINE, QUEUE, RUN_MAX, Clock, Node, Wire, options, rng

ANY = st.integers(0, 5)
DEEDS = ("write", "write", "carry", "carry", "carry", "read", "cut", "join", "join", "hold")


class OfDevice(Node):
    """One of a device's sockets; its ledger is the device's."""

    def __init__(self, protocol: ProtocolNumber, clock: Clock) -> None:
        raw = Raw(protocol, options(), rng(), None)
        super().__init__(raw, clock, limit=QUEUE, weighed=False)
        self.raw = raw

    def check(self) -> None:
        self.check_pipes()

    def gone_out(self) -> int:
        return self._gone_out + sum(self._cable(pipe).frames_out for pipe in self.pipes.values())


class ForwardingMachine(RuleBasedStateMachine):
    """Two pushers, a device, two pullers."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.pushers = [Pushing(Pusher(options(), rng()), self.clock, limit=QUEUE) for _ in range(2)]
        self.pullers = [Pulling(Puller(options(), rng()), self.clock, limit=QUEUE) for _ in range(2)]
        self.front = OfDevice(ProtocolNumber.PULL0, self.clock)
        self.back = OfDevice(ProtocolNumber.PUSH0, self.clock)
        self.ends = 0
        self.relay = Relay(self.front.raw, self.back.raw, self.count_end)
        self.wires: list[Wire] = []
        self.number = 0
        self.heard: list[bytes] = []

    def count_end(self) -> None:
        self.ends += 1

    @initialize()
    def begin(self) -> None:
        for which in (0, 1):
            self.join(which)

    def join(self, which: int) -> None:
        if which % 2:
            self.wires.append(Wire(self.back, self.pullers[which // 2 % 2], "out"))
        else:
            self.wires.append(Wire(self.pushers[which // 2 % 2], self.front, "in"))

    @rule(deeds=st.lists(st.tuples(st.sampled_from(DEEDS), ANY), min_size=3, max_size=15))
    def happen(self, deeds: list[tuple[str, int]]) -> None:
        for deed, which in deeds:
            alive = [wire for wire in self.wires if wire.alive]
            if deed == "join":
                self.join(which)
            elif deed == "write":
                self.write(self.pushers[which % 2])
            elif deed == "read":
                self.read(self.pullers[which % 2])
            elif alive:
                self.disturb(deed, alive[which % len(alive)])
            self.check()

    def write(self, pusher: Pushing) -> None:
        for _ in range(RUN_MAX):
            self.number += 1
            pusher.put(b"%08d" % self.number)

    def read(self, puller: Pulling) -> None:
        while (body := puller.lane.take()) is not None:
            puller.read += 1
            self.heard.append(body)

    def disturb(self, deed: str, wire: Wire) -> None:
        if deed == "cut":
            wire.cut()
        elif deed == "hold":
            wire.ends[0].held = not wire.ends[0].held
        else:
            wire.ends[0].flush()
            wire.carry(0, RUN_MAX)

    @invariant()
    def check(self) -> None:
        for wire in self.wires:
            wire.tell_ends()
        for node in (*self.pushers, *self.pullers, self.front, self.back):
            node.check()
        forward = self.relay.forward
        assert forward is not None
        flow = forward.statistics()
        if self.ends:
            assert flow.waiting == 0
            return  # new messages now wait in the raw socket's own inboxes
        queued = sum(pipe.queued for pipe in self.back.pipes.values())
        accounted = self.back.gone_out() + queued + flow.waiting + sum(flow.drops.values())
        assert self.front.arrived == accounted + sum(self.back.pattern.drops.values())
        assert not self.front.pattern.drops
        if flow.waiting:
            assert all(pipe.full for pipe in self.back.pipes.values()), "frames wait beside a pipe with room"
        for pipe in self.front.pipes.values():
            assert flow.waiting or not self.front._cable(pipe).paused, "a peer is not read, and nothing waits"
        assert len(self.heard) == len(set(self.heard)), "a message went to two pullers"

    @rule()
    def all_goes_through_once_all_is_well(self) -> None:
        for which in (0, 1):
            self.join(which)
        for wire in self.wires:
            for cable in wire.ends:
                cable.held = False
        for _ in range(60):
            for wire in self.wires:
                if wire.alive:
                    self.disturb("carry", wire)
            for puller in self.pullers:
                self.read(puller)
        self.check()
        flow = self.relay.forward.statistics() if self.relay.forward else None
        assert self.ends or (flow is not None and flow.waiting == 0)
        assert all(pipe.queued == 0 for pipe in self.back.pipes.values())

    @rule(rarely=st.integers(0, 9))
    def end(self, rarely: int) -> None:
        if rarely == 0 and not self.ends and self.number > 30:
            self.relay.end()
            assert self.ends == 1
            self.relay.end()
            assert self.ends == 1, "it ended twice"
            assert not any(self.front._cable(pipe).paused for pipe in self.front.pipes.values())


class AskingThroughDeviceMachine(ReqRepMachine):
    """As without a device: the same steps, with one on the way."""

    an_answer_waits_for_room = None  # its repliers answer a device, whose queues are under test here

    def join(self, which: int) -> None:
        if not hasattr(self, "front"):
            self.front = OfDevice(ProtocolNumber.REP0, self.clock)
            self.back = OfDevice(ProtocolNumber.REQ0, self.clock)
            self.relay = Relay(self.front.raw, self.back.raw, lambda: None)
            self.join(1)
        if which % 2:
            self.wires.append(Wire(self.back, self.answerers[which // 2 % 2], "inside"))
        else:
            self.wires.append(Wire(self.asker, self.front, "outside"))

    def make_well(self) -> None:
        super().make_well()
        for which, node in enumerate((self.front, self.back)):
            if not node.pipes:
                self.join(which)

    def check_asker(self) -> None:
        super().check_asker()
        self.front.check()
        self.back.check()
        for flow in (self.relay.forward, self.relay.backward):
            assert flow is not None
        assert self.relay.forward is not None
        if self.relay.forward.waiting:
            assert all(pipe.full for pipe in self.back.pipes.values()), "requests wait beside room"


@pytest.mark.parametrize("machine", [ForwardingMachine, AskingThroughDeviceMachine])
def test_a_device_loses_nothing_silently(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=MACHINE)
