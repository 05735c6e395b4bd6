"""How long a call of either client waits, and how it ends. Pure.

`Client` waits with coroutines and `BlockingClient` with threads; their calls take the same arguments and end
in the same way. A call returns a value or raises one of three kinds of error:

* `NotAccepted`: nothing was published, and trying again cannot duplicate a message.
* `Unknown`: the message may have been published.
* `MeshTimeout`: the call only waited for something, and it did not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.errors import MeshError, MeshTimeout, NotAccepted, Unknown
from mesh.printable import listed
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt

CONNECT_TIMEOUT_S: Final = 5.0
KEEPALIVE_S: Final = 5.0
"""A side that is silent for three times as long is gone."""
PUBLISH_TIMEOUT_S: Final = 10.0
SUBSCRIBE_TIMEOUT_S: Final = 10.0
"""A broker answers after 5 s at most, and names the brokers that it did not reach."""
REQUEST_TIMEOUT_S: Final = 5.0
SURVEY_DEADLINE_S: Final = 1.0
GRACE_S: Final = 1.0
"""How much longer than the broker this side waits for an answer, so that the broker's own timeout arrives
first."""
LINGER_S: Final = 1.0
"""How long closing waits until gathered messages are sent and the broker has read them."""

NO_OUTBOX: Final = "level 'outbox' needs a client that has one, as Client(outbox='PATH')"
ANSWERS_DURABLY: Final = "a durable subscription gets no requests: answers and durable exclude each other"

GATHERED: Final = Receipt("sent", "", 0)
"""The receipt of any single message of level sent, which has no number."""


def joined(receipts: Sequence[Receipt], level: str, broker: str) -> Receipt:
    """One receipt for a call that published to several topics; its ``seq`` is that of the first message."""
    if len(receipts) == 1:
        return receipts[0]
    first = min((receipt.seq for receipt in receipts), default=0)
    absent = tuple(dict.fromkeys(name for receipt in receipts for name in receipt.absent))
    homes = tuple(dict.fromkeys(name for receipt in receipts for name in receipt.homes))
    return Receipt(level, broker, first, sum(receipt.count for receipt in receipts), absent, homes)


def no_credit(number: int, limit_s: float, why: str) -> MeshError:
    """The error if no credit came in time: the message was not taken."""
    kind = MeshTimeout if number == blocks.SENT else NotAccepted
    return kind(f"no credit to publish in {limit_s:g} s: {why}")


def unacknowledged(taken_back: bool, limit_s: float, why: str) -> MeshError:
    """The error if no acknowledgement came in time. Its kind depends on whether the message was taken
    back."""
    if taken_back:
        return NotAccepted(f"the message could not be sent in {limit_s:g} s: {why}")
    return Unknown(f"no acknowledgement in {limit_s:g} s: {why}")


def unflushed(limit_s: float, why: str) -> MeshTimeout:
    """The error if gathered messages could not be handed to the connection in time."""
    return MeshTimeout(f"messages could not be sent in {limit_s:g} s: {why}")


def unattached(name: str, why: str) -> MeshTimeout:
    """The error if no broker gave a durable subscription in time."""
    return MeshTimeout(f"no broker gave work of {name} in {SUBSCRIBE_TIMEOUT_S:g} s: {why}")


def unconfirmed(patterns: Sequence[str], why: str) -> MeshTimeout:
    """The error if the barrier of a subscription was not passed in time."""
    return MeshTimeout(
        f"no broker confirmed the subscription to {listed(patterns)} in {SUBSCRIBE_TIMEOUT_S:g} s: {why}"
    )
