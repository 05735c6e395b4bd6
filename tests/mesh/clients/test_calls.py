"""How both clients' calls end."""

from __future__ import annotations

from mesh.clients.calls import joined, no_credit, unacknowledged, unconfirmed
from mesh.errors import MeshTimeout, NotAccepted, Unknown
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt


def test_one_receipt_covers_all_topics() -> None:
    one = Receipt("accepted", "alpha", 7, 2, ("x",))
    assert joined([one], "accepted", "beta") is one
    other = Receipt("accepted", "alpha", 3, 5, ("y", "x"))
    assert joined([one, other], "accepted", "alpha") == Receipt("accepted", "alpha", 3, 7, ("x", "y"))
    assert joined([], "sent", "alpha") == Receipt("sent", "alpha", 0, 0)


def test_the_kind_of_error_says_whether_the_message_may_have_been_accepted() -> None:
    why = "connected to alpha"
    assert type(no_credit(blocks.SENT, 1.0, why)) is MeshTimeout
    assert type(no_credit(blocks.ACCEPTED, 1.0, why)) is NotAccepted
    assert type(unacknowledged(True, 1.0, why)) is NotAccepted
    error = unacknowledged(False, 0.25, why)
    assert type(error) is Unknown and str(error) == "no acknowledgement in 0.25 s: connected to alpha"
    assert "subscription to a, b.# in 10 s: connected" in str(unconfirmed(["a", "b.#"], why))


def test_errors_show_a_short_part_of_the_argument() -> None:
    error = unconfirmed([f"device.{number}.#" for number in range(80_000)], "connected to alpha")
    assert "device.4.# and 79995 more in 10 s: connected to alpha" in str(error) and len(str(error)) < 200
