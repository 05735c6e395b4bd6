"""Which topics of a session a block of was refused, so that what follows it is refused as well. Pure.

An outbox sends many blocks of a topic before it hears of the first. If one is refused, for want of a link to
its home, and the link comes back, those behind it would be stored before it. So its publisher says of a block
whether it *follows* another of its topic that is not answered yet. One that follows is refused from the first
refusal on, until a block comes that follows none: then the publisher knows.

Topics of a session are `TOPICS_MAX` at most; beyond them the oldest is forgotten, and may lose its order.
"""

from __future__ import annotations

from typing import Final

from mesh.dataplane.sessions import Session

TOPICS_MAX: Final = 1024


class RefusedTopics:
    """See the module."""

    def __init__(self) -> None:
        self._topics: dict[Session, dict[bytes, None]] = {}

    def refused(self, session: Session, topic: bytes) -> None:
        """A block of this topic was refused."""
        if not session.closed:
            topics = self._topics.setdefault(session, {})
            topics[topic] = None
            if len(topics) > TOPICS_MAX:
                del topics[next(iter(topics))]

    def begin(self, session: Session, topic: bytes) -> None:
        """A block came that follows none."""
        topics = self._topics.get(session)
        if topics is not None:
            topics.pop(topic, None)
            if not topics:
                del self._topics[session]

    def holds(self, session: Session, topic: bytes) -> bool:
        """Whether a block that follows another is to be refused."""
        return topic in self._topics.get(session, ())

    def session_over(self, session: Session) -> None:
        self._topics.pop(session, None)
