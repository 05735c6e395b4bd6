"""Topics of which a block was refused in a session, so that the following blocks are refused too. Pure.

An outbox sends many blocks of a topic before it gets the first answer. Suppose one is refused because the
link to its home is down. If the link then comes back, later blocks would be stored before it. So the
publisher marks a block that *follows* an unanswered one of its topic. After a refusal, blocks that follow are
refused too, until one comes that follows none: then the publisher knows.

A session has at most `TOPICS_MAX` such topics. Beyond them the oldest is forgotten and may lose its order.
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
        """A block arrived that follows none."""
        topics = self._topics.get(session)
        if topics is not None:
            topics.pop(topic, None)
            if not topics:
                del self._topics[session]

    def holds(self, session: Session, topic: bytes) -> bool:
        """True if a block that follows another must be refused."""
        return topic in self._topics.get(session, ())

    def session_over(self, session: Session) -> None:
        self._topics.pop(session, None)
