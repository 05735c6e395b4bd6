"""Messages that `Delivery.retry` brings back, ordered by due time."""

from __future__ import annotations

from mesh.clients.messages import Delivery, Redelivery
from mesh.clients.redeliveries import Redeliveries


def delivery(body: bytes) -> Delivery:
    return Redelivery.of(Delivery("t", body, None, None))  # type: ignore[arg-type]


def test_messages_come_back_in_the_order_of_their_due_times() -> None:
    again = Redeliveries()
    late, soon, same = delivery(b"late"), delivery(b"soon"), delivery(b"same")
    again.add(late, 3.0)
    again.add(soon, 1.0)
    again.add(same, 1.0)
    assert again.due_at == 1.0 and again.take(0.999) is None
    assert again.take(1.0) is soon and again.take(1.0) is same, "first retried, first back"
    assert again.take(1.0) is None and again.due_at == 3.0
    assert again.take(9.0) is late and again.due_at is None and again.take(9.0) is None

    again.add(late, 1.0)
    again.clear()
    assert again.due_at is None and again.take(2.0) is None
