"""Messages that this broker publishes: its own, and those of stock clients, which have no session.

They get numbers of the broker's own sequence, are sealed here and delivered at once. Nobody retries them, so
they are not checked for copies and never have level stored. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.dataplane.counters import Tally
from mesh.dataplane.intake import Intake
from mesh.dataplane.members import Member
from mesh.dataplane.sessions import LocalTaker
from mesh.errors import NotAccepted
from mesh.topics import check_topic
from mesh.topics.routing import Router
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt
from mesh.wire.session_opening import verified


class OwnMessages:
    """See the module; ``id`` and ``boot`` are the publisher's."""

    def __init__(
        self,
        id: int,
        boot: int,
        name: str,
        router: Router[LocalTaker, Member],
        intake: Intake,
        tally: Tally,
    ) -> None:
        self._publisher = verified(id)
        self._boot = boot
        self._name = name
        self._router = router
        self._intake = intake
        self._tally = tally
        self._sequence = 0

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> Receipt:
        """Deliver messages to everybody who wants them.

        Raises `TopicError`, `NotAccepted` while the broker leaves, and ValueError for a body above the limit.
        """
        encoded = check_topic(topic)
        number = blocks.LEVELS.index(level)
        if number > blocks.ACCEPTED:
            raise ValueError(f"level {level} is for clients: only they send a message again until it is kept")
        for body in bodies:
            if len(body) > blocks.BODY_MAX:
                raise ValueError(f"a body of {len(body)} bytes is above the limit of {blocks.BODY_MAX}")
        intake = self._intake
        if intake.refusing:
            if not number:  # its publisher waits for no answer
                self._tally.drop(intake.refused_as, len(bodies))
            raise NotAccepted(f"not accepted: {intake.refusing}")
        first = self._sequence + 1
        route = self._router.route(encoded)
        for start, stop in blocks.split(bodies) if bodies else ():
            for block, count in self._seal(encoded, bodies[start:stop], number):
                intake.hand_out(route.everybody, block, count, 0, 0, None, now)
        self._tally.published += len(bodies)
        return Receipt(level, self._name, first, len(bodies), intake.absent)

    def _seal(self, topic: bytes, bodies: Sequence[bytes], level: int) -> list[tuple[bytes, int]]:
        sequence = self._sequence + 1
        self._sequence += len(bodies)
        if len(bodies) == 1 and len(bodies[0]) > blocks.SPLIT:
            pieces = blocks.seal_pieces(
                topic, bodies[0], publisher=self._publisher, boot=self._boot, sequence=sequence, level=level
            )
            return [(piece, 1) for piece in pieces]
        block = blocks.seal(
            topic, bodies, publisher=self._publisher, boot=self._boot, sequence=sequence, level=level
        )
        return [(block, len(bodies))]
