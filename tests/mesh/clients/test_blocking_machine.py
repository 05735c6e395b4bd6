"""A `BlockingClient` keeps its promises whatever happens to its connections, in the time of a `FakeMesh`.

A message published at accepted with a receipt reaches a subscriber once. One that was refused never does, and
one whose outcome is unknown does so at most once. One publisher's messages arrive in order. Each call ends in
time.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mesh import BlockingClient, Disconnected, MeshError, MeshTimeout, NotAccepted, Unknown
from mesh.clients import blocking_client
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.clients.calls import GRACE_S, LINGER_S
from mesh.clients.tickets import Ticket
from mesh.dataplane.options import ExchangeOptions
from mesh.wire.session_frames import Receipt
from tests.mesh.clients.simulated_connections import STEP_S, Broker, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh

SLACK_S = 0.011 + STEP_S
"""A dial gets at least 10 ms, and time goes in steps."""
TIMEOUTS = st.sampled_from([0.0, 0.3, 3.0])
SOON = st.sampled_from([0.0, 0.1, 1.0])
LASTS = st.sampled_from([0.2, 1.5, 6.0])


class Blocking(RuleBasedStateMachine):
    @initialize(window=st.sampled_from([2, 100]))
    def begin(self, window: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.mesh = FakeMesh(1, ExchangeOptions(session_messages=20))
        self.node = self.mesh.nodes[1]
        self.broker = Broker(self.mesh, self.node)
        simulate(self.patch, self.broker)
        self.node.exchange.respond("ask", lambda topic, body: body + b"!")
        self.reader = self.mesh.client(1, "reader")
        self.feed = self.reader.subscribe("#", window=4000)
        self.number = 0
        self.outcomes: dict[bytes, str] = {}
        self.client = BlockingClient("tcp://127.0.0.1:1", name="blocking")
        self.client.open()
        self.subscription: BlockingSubscription | None = self.client.subscribe("t", window=window)
        self.received: list[bytes] = []

    def call(self, limit_s: float, act: Any) -> Any:
        began = self.mesh.now
        try:
            return act()
        finally:
            took_s = self.mesh.now - began
            assert took_s <= limit_s + SLACK_S, f"it took {took_s:.2f} s of {limit_s:g} s"

    def bodies(self, count: int, size: int) -> list[bytes]:
        self.number += count
        return [b"%06d%s" % (number, bytes(size)) for number in range(self.number - count, self.number)]

    @rule(count=st.integers(1, 30), size=st.sampled_from([0, 100, 9000]), timeout=TIMEOUTS)
    def publish(self, count: int, size: int, timeout: float) -> None:
        bodies = self.bodies(count, size)
        try:
            self.call(timeout, lambda: self.client.publish_many("t", bodies, timeout=timeout))
        except NotAccepted:
            outcome = "refused"
        except Unknown:
            outcome = "unknown"
        else:
            outcome = "accepted"
        self.outcomes |= dict.fromkeys(bodies, outcome)

    @rule(timeout=TIMEOUTS)
    def publish_at_level_sent(self, timeout: float) -> None:
        (body,) = self.bodies(1, 10)
        outcome = "unknown"
        try:
            self.call(timeout, lambda: self.client.publish("t", body, level="sent", timeout=timeout))
        except MeshTimeout:
            outcome = "refused"
        except Unknown:
            pass
        self.outcomes[body] = outcome

    @rule()
    def publish_without_waiting(self) -> None:
        (body,) = self.bodies(1, 10)
        taken = self.call(0.0, lambda: self.client.publish_nowait("t", body))
        self.outcomes[body] = "unknown" if taken else "refused"

    @rule(timeout=TIMEOUTS)
    def flush(self, timeout: float) -> None:
        try:
            self.call(timeout, lambda: self.client.flush(timeout))
        except (MeshTimeout, Unknown):
            pass

    @rule(timeout=st.sampled_from([0.3, 3.0]))
    def request(self, timeout: float) -> None:
        try:
            answer = self.call(
                timeout + GRACE_S, lambda: self.client.request("ask", b"question", timeout=timeout)
            )
        except MeshError:
            return
        assert answer == b"question!"

    @precondition(lambda self: self.subscription is None)
    @rule(window=st.sampled_from([2, 100]))
    def subscribe(self, window: int) -> None:
        try:
            self.subscription = self.call(10.0, lambda: self.client.subscribe("t", window=window))
        except MeshTimeout:
            pass

    @precondition(lambda self: self.subscription is not None)
    @rule(timeout=TIMEOUTS, count=st.integers(1, 10))
    def receive(self, timeout: float, count: int) -> None:
        assert self.subscription is not None
        for _ in range(count):
            subscription = self.subscription
            delivery = self.call(timeout, lambda subscription=subscription: subscription.receive(timeout))
            if delivery is None:
                break
            self.received.append(bytes(delivery.body))

    @precondition(lambda self: self.subscription is not None)
    @rule()
    def unsubscribe(self) -> None:
        assert self.subscription is not None
        self.call(0.0, self.subscription.close)
        self.subscription = None

    @rule(in_s=SOON, read=st.booleans(), answered=st.booleans())
    def the_connection_breaks(self, in_s: float, read: bool, answered: bool) -> None:
        self.broker.plan(in_s, lambda: self.broker.cut(read=read, answered=answered))

    @rule(in_s=SOON, lasts_s=LASTS, how=st.sampled_from(["refused", "silent"]))
    def the_broker_is_away(self, in_s: float, lasts_s: float, how: str) -> None:
        def go() -> None:
            self.broker.away = how
            self.broker.cut(read=True, answered=False)
            self.broker.plan(lasts_s, lambda: setattr(self.broker, "away", ""))

        self.broker.plan(in_s, go)

    @rule(in_s=SOON, lasts_s=LASTS)
    def the_broker_stands_still(self, in_s: float, lasts_s: float) -> None:
        def stop() -> None:
            self.broker.reads = False
            self.broker.plan(lasts_s, lambda: setattr(self.broker, "reads", True))

        self.broker.plan(in_s, stop)

    @rule(seconds=st.sampled_from([0.1, 2.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.broker.pass_time(seconds)

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        try:
            self.finish()
        finally:
            self.patch.undo()

    def finish(self) -> None:
        self.broker.pass_time(20.0)
        (last,) = self.bodies(1, 0)
        self.call(10.0, lambda: self.client.publish("t", last))
        self.outcomes[last] = "accepted"
        self.call(LINGER_S, self.client.close)
        with pytest.raises(Disconnected):
            self.client.publish("t", b"after the end")
        came = [body for _, body in self.reader.take(self.feed)]
        assert came == sorted(came), "out of order"
        assert len(came) == len(set(came)), "twice"
        assert not [body for body in came if self.outcomes[body] == "refused"], "refused, and delivered"
        missing = {body for body, outcome in self.outcomes.items() if outcome == "accepted"} - set(came)
        assert not missing, "accepted, and lost"
        assert self.received == sorted(self.received) and len(set(self.received)) == len(self.received)
        assert set(self.received) <= set(came)


Blocking.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestBlocking = Blocking.TestCase


# --- the broker would report it if they did not


def refuses_messages_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blocking_client, "unacknowledged", lambda *given: NotAccepted("not in time"))


def does_not_wait_for_the_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    def forget(self: BlockingClient, *given: object) -> None:
        self._session.pump(lambda: True, None)
        self._session.conversation._unacked.clear()

    patch.setattr(BlockingClient, "_await_ticket", forget)
    patch.setattr(Ticket, "receipt", lambda self, *given: Receipt("accepted", "", 1))


def waits_a_second_longer(patch: pytest.MonkeyPatch) -> None:
    pump = BlockingSession.pump

    def patient(self: BlockingSession, until: Any, deadline: float | None, **how: Any) -> bool:
        return pump(self, until, None if deadline is None else deadline + 1, **how)

    patch.setattr(BlockingSession, "pump", patient)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (refuses_messages_in_flight, "refused, and delivered"),
        (does_not_wait_for_the_acknowledgement, "accepted, and lost"),
        (waits_a_second_longer, "it took"),
    ],
)
def test_a_client_that_breaks_its_word_is_noticed(
    monkeypatch: pytest.MonkeyPatch, fault: Any, sentence: str
) -> None:
    fault(monkeypatch)
    few = settings(
        max_examples=100,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError, match=sentence):
        run_state_machine_as_test(Blocking, settings=few)
