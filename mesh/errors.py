"""The error types of a mesh.

```
MeshError
  ConfigError           an option, flag, variable or configuration file is wrong (also a ValueError)
  ListenError           a broker cannot listen at an address; names the broker there if it knows it
  TopicError            a topic or pattern breaks the grammar (also a ValueError)
  NotAccepted           certainly not accepted: nothing was routed, publishing again cannot duplicate
    HeldElsewhere       another broker is the home of a durable subscription
    OtherPatterns       a durable subscription of that name has other patterns
    NotReady            `publish_soon` has no room for the message now
  Unknown               perhaps accepted: the answer was lost; publishing again may duplicate
  BatchFailed           some messages of a batch were not, or perhaps not, accepted
  NoResponders          the topic has no subscriber that answers
  MeshTimeout           a deadline passed (also a builtin TimeoutError)
  Disconnected          there is no connection to a broker
  Detached              work on a durable subscription was ended: it was removed, or its journal failed
  PeerError             a peer broke a rule; it loses its connection, and other users see no error
    SessionError        a session frame is malformed or not allowed now
    BlockError          a block is malformed
    LinkError           a frame between two brokers is malformed or not allowed now
    CreditExceeded      a peer sent at zero credit
  StorageError          the disk, or the queue in front of it, failed
    Locked              another process or broker holds the lock
    StoreFull           the disk has no room for more stored messages; consuming them makes room
    JournalError        the journal of durable subscriptions cannot be used
      JournalForeign    the file belongs to another mesh or program
        AnothersJournal it belongs to another broker
      JournalNewer      a newer version wrote it
      JournalReadOnly   it cannot be written
      JournalDamaged    it is damaged and was set aside under another name
      JournalFailed     the disk failed: it accepts nothing until it is opened again
    OutboxError         the outbox of a client cannot be used
      OutboxForeign     the file belongs to another program
      OutboxNewer       a newer version wrote it
      OutboxReadOnly    it cannot be written
      OutboxDamaged     it is damaged and was set aside under another name
      OutboxFailed      the disk failed: it accepts nothing until it is opened again
```

Every message is one sentence: the problem, with numbers, and what to do if that is not obvious.
"""

from __future__ import annotations

from collections.abc import Mapping


class MeshError(Exception):
    """Base class of all errors that `mesh` itself raises."""


class ConfigError(MeshError, ValueError):
    """An option has a value that cannot be used."""


class ListenError(MeshError):
    """A broker cannot listen at an address."""


class TopicError(MeshError, ValueError):
    """A topic or a pattern breaks the grammar of design section 4."""

    reason: str = "bad_topic"


class NotAccepted(MeshError):
    """The broker certainly did not accept the messages."""


class HeldElsewhere(NotAccepted):
    """The home of a durable subscription is another broker. ``url`` is its address for clients, empty if not
    known."""

    def __init__(self, sentence: str, url: str) -> None:
        super().__init__(sentence)
        self.url = url


class OtherPatterns(NotAccepted):
    """A durable subscription of that name has other patterns."""


class NotReady(NotAccepted):
    """Too many messages are pending, or the broker gives no credit now: wait for ``ready()``."""


class Unknown(MeshError):
    """The messages may or may not have been accepted; the answer was lost."""


class BatchFailed(MeshError):
    """Some messages of a batch did not succeed; the others did.

    ``errors`` has a `NotAccepted` or `Unknown` for each of them, by its index in the batch, from 0.
    """

    def __init__(self, sentence: str, errors: Mapping[int, MeshError]) -> None:
        super().__init__(sentence)
        self.errors = errors

    @property
    def not_accepted(self) -> int:
        """Number of messages that were certainly not accepted. They may be published again."""
        return sum(isinstance(error, NotAccepted) for error in self.errors.values())

    @property
    def unknown(self) -> int:
        """Number of messages that may have been accepted."""
        return len(self.errors) - self.not_accepted


class NoResponders(MeshError):
    """The topic has no subscriber that answers."""


class MeshTimeout(MeshError, TimeoutError):
    """A deadline passed."""


class Disconnected(MeshError):
    """There is no connection to a broker."""


class Detached(MeshError):
    """The broker has ended this client's work on a durable subscription."""


class PeerError(MeshError):
    """A peer broke a rule. It loses its connection and is counted.

    ``reason`` is the word that the status counts it by and that the peer is told
    (``docs/reference/status.md``).
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
    """Another process holds the lock. ``holder_pid`` is its id, 0 if unknown."""

    def __init__(
        self, path: str, holder_pid: int, advice: str = "give this broker another name or state folder"
    ) -> None:
        holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(f"{path} is in use by {holder}; {advice}")
        self.path = path
        self.holder_pid = holder_pid


class StoreFull(StorageError):
    """The disk or an outbox has no room for more stored messages. Consuming them makes room."""


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
    """The journal is damaged and was set aside. ``aside`` is its path now."""

    def __init__(self, sentence: str, aside: str) -> None:
        super().__init__(sentence)
        self.aside = aside


class JournalFailed(JournalError):
    """The disk failed under the journal, which accepts nothing until it is opened again."""


class OutboxError(StorageError):
    """The outbox of a client cannot be used."""


class OutboxForeign(OutboxError):
    """The file is another program's."""


class OutboxNewer(OutboxError):
    """A newer version wrote the outbox."""


class OutboxReadOnly(OutboxError):
    """The outbox cannot be written."""


class OutboxDamaged(OutboxError):
    """The outbox is damaged and was set aside. ``aside`` is its path now."""

    def __init__(self, sentence: str, aside: str) -> None:
        super().__init__(sentence)
        self.aside = aside


class OutboxFailed(OutboxError):
    """The disk failed under the outbox, which accepts nothing until it is opened again."""
