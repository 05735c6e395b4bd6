"""What can go wrong in a mesh, as types.

```
MeshError
  ConfigError           an option, flag, variable or configuration file is wrong (also a ValueError)
  ListenError           a broker cannot listen where it was told to; says who is there if it knows
  TopicError            a topic or pattern breaks the grammar (also a ValueError)
  NotAccepted           certainly not accepted: nothing was routed, publishing again cannot duplicate
    HeldElsewhere       another broker is the home of a durable subscription
    OtherPatterns       a durable subscription of that name has other patterns
    NotReady            `publish_soon` has no room for the message now
  Unknown               perhaps accepted: the answer was lost; publishing again may duplicate
  BatchFailed           some messages of a batch were not accepted, or perhaps
  NoResponders          nobody who answers subscribes to the topic
  MeshTimeout           a deadline passed (also a builtin TimeoutError)
  Disconnected          there is no connection to a broker
  Detached              work on a durable subscription was ended: it was removed, or its journal failed
  PeerError             a peer broke a rule; it costs that peer its connection, never reaches other users
    SessionError        a session frame is malformed or not allowed now
    BlockError          a block is malformed
    LinkError           a frame between two brokers is malformed or not allowed now
    CreditExceeded      a peer sent at zero credit
  StorageError          the disk, or the queue in front of it, failed
    Locked              another process or broker holds the lock
    StoreFull           the disk has no room for more stored messages; what is stored can be worked off
    JournalError        the journal of durable subscriptions cannot be used
      JournalForeign    it is another mesh's or another program's file
        AnothersJournal it is another broker's
      JournalNewer      a newer version wrote it
      JournalReadOnly   it cannot be written
      JournalDamaged    what it holds is damaged; it was set aside under another name
      JournalFailed     the disk failed under it: it takes nothing until it is opened again
    OutboxError         the outbox of a client cannot be used
      OutboxForeign     it is another program's file
      OutboxNewer       a newer version wrote it
      OutboxReadOnly    it cannot be written
      OutboxDamaged     what it holds is damaged; it was set aside under another name
      OutboxFailed      the disk failed under it: it takes nothing until it is opened again
```

Every message is one sentence: what is wrong, with the numbers, and what to do where that is not obvious.
"""

from __future__ import annotations

from collections.abc import Mapping


class MeshError(Exception):
    """Root of everything `mesh` raises on its own account."""


class ConfigError(MeshError, ValueError):
    """An option has a value that cannot be used."""


class ListenError(MeshError):
    """A broker cannot listen at an address."""


class TopicError(MeshError, ValueError):
    """A topic or a pattern breaks the grammar of design section 4."""

    reason: str = "bad_topic"


class NotAccepted(MeshError):
    """The broker certainly did not take the messages."""


class HeldElsewhere(NotAccepted):
    """The home of a durable subscription is another broker; ``url`` is where it serves clients, empty if that
    is not known."""

    def __init__(self, sentence: str, url: str) -> None:
        super().__init__(sentence)
        self.url = url


class OtherPatterns(NotAccepted):
    """A durable subscription of that name has other patterns."""


class NotReady(NotAccepted):
    """As many messages are pending as there may be, or the broker gives no credit now: wait for
    ``ready()``."""


class Unknown(MeshError):
    """The messages may or may not have been taken; the answer was lost."""


class BatchFailed(MeshError):
    """Some messages of a batch did not succeed; the others did.

    ``errors`` has `NotAccepted` or `Unknown` for each of them, by its place in the batch, from 0.
    """

    def __init__(self, sentence: str, errors: Mapping[int, MeshError]) -> None:
        super().__init__(sentence)
        self.errors = errors

    @property
    def not_accepted(self) -> int:
        """How many certainly were not accepted: they may be published again."""
        return sum(isinstance(error, NotAccepted) for error in self.errors.values())

    @property
    def unknown(self) -> int:
        """How many may have been accepted."""
        return len(self.errors) - self.not_accepted


class NoResponders(MeshError):
    """Nobody who answers subscribes to the topic."""


class MeshTimeout(MeshError, TimeoutError):
    """A deadline passed."""


class Disconnected(MeshError):
    """There is no connection to a broker."""


class Detached(MeshError):
    """The broker has ended this client's work on a durable subscription."""


class PeerError(MeshError):
    """A peer broke a rule; it loses its connection and is counted.

    ``reason`` is the word that the status counts it by and the peer is told (``docs/reference/status.md``).
    """

    reason: str = "broken_rule"


class SessionError(PeerError):
    """A session frame is malformed, or not allowed in this state."""

    reason = "bad_session_frame"


class BlockError(PeerError):
    """A block is malformed."""

    reason = "bad_block"


class LinkError(PeerError):
    """A frame between two brokers is malformed, or not allowed in this state."""

    reason = "malformed"


class CreditExceeded(PeerError):
    """A peer sent although its credit was used up."""

    reason = "beyond_credit"


class StorageError(MeshError):
    """Storage refused or failed a job."""


class Locked(StorageError):
    """Somebody else holds the lock; ``holder_pid`` is theirs, 0 if unknown."""

    def __init__(
        self, path: str, holder_pid: int, advice: str = "give this broker another name or state folder"
    ) -> None:
        holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(f"{path} is in use by {holder}; {advice}")
        self.path = path
        self.holder_pid = holder_pid


class StoreFull(StorageError):
    """There is no room for more stored messages, on the disk or in an outbox; working them off makes room."""


class JournalError(StorageError):
    """The journal of durable subscriptions cannot be used."""


class JournalForeign(JournalError):
    """The file is another broker's, another mesh's or another program's."""


class AnothersJournal(JournalForeign):
    """The journal is another broker's."""


class JournalNewer(JournalError):
    """A newer version wrote the journal."""


class JournalReadOnly(JournalError):
    """The journal cannot be written."""


class JournalDamaged(JournalError):
    """The journal is damaged and was set aside; ``aside`` is where it lies now."""

    def __init__(self, sentence: str, aside: str) -> None:
        super().__init__(sentence)
        self.aside = aside


class JournalFailed(JournalError):
    """The disk failed under the journal, which takes nothing until it is opened again."""


class OutboxError(StorageError):
    """The outbox of a client cannot be used."""


class OutboxForeign(OutboxError):
    """The file is another program's."""


class OutboxNewer(OutboxError):
    """A newer version wrote the outbox."""


class OutboxReadOnly(OutboxError):
    """The outbox cannot be written."""


class OutboxDamaged(OutboxError):
    """The outbox is damaged and was set aside; ``aside`` is where it lies now."""

    def __init__(self, sentence: str, aside: str) -> None:
        super().__init__(sentence)
        self.aside = aside


class OutboxFailed(OutboxError):
    """The disk failed under the outbox, which takes nothing until it is opened again."""
