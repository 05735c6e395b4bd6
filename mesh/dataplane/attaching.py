"""Attaching consumers to durable subscriptions: ATTACH, from the request to its answer. Pure.

A subscription that does not exist here is made. It is written into the journal, announced to the other
brokers, and confirmed once every live one has it on disk or time has run out. Several clients may ask
meanwhile; each gets its own answer. If a client has left by then, its subscription stays without consumers.
The dead letters of an existing subscription are made for a client that asks before there are any.

Before it makes one, this broker must know what other brokers keep. Otherwise a broker that joins would make a
second subscription of a name that it does not know yet. So a client that asks too early waits (`UNSURE_S` at
most). Then it is told that the home is not known.

Programs that start at several brokers at the same time may make one name at each. A home that learns of
another before it has announced its own removes its own. Otherwise each knows the others at the end of its
barrier, and no program has been confirmed yet. While the subscriptions keep nothing, the home with the lowest
id keeps its own, and the others remove theirs. If that is too late, as after a partition, all stay.

A client needs the right to subscribe to all patterns of the subscription. That also applies to attaching to
an existing one and to its dead letters.

A request that cannot be granted is refused by DETACHED with one sentence; the client puts this broker's name
before it. The session goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, NamedTuple, Protocol

from mesh.dataplane.durables import Durable, Durables
from mesh.dataplane.home_journal import HomeJournal
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.sessions import Session
from mesh.dataplane.workers import Attachment, Workers
from mesh.errors import SessionError
from mesh.journal import records
from mesh.journal.port import Result
from mesh.topics import check_pattern
from mesh.wire import durable_frames as frames
from mesh.wire.capabilities import PROOF
from mesh.wire.session_frames import SUBSCRIPTIONS_MAX, encode

UNSURE_S: Final = 8.0
"""A client waits for `mesh.clients.calls.SUBSCRIBE_TIMEOUT_S`. The refusal must reach it before that."""


class Telling(Protocol):
    """Tells other brokers what is kept here."""

    def durable_changed(self, added: dict[str, tuple[str, ...]], removed: list[str]) -> int:
        """This home now also has the ``added`` durable subscriptions, with their patterns, and no longer the
        ``removed`` ones.

        Returns the version of its table. The version only grows; it stays the same if nothing changes.
        `Home.barrier_reached` is called in a later turn, once every live broker has that version on disk or
        time has run out since this call.
        """


Elsewhere = Callable[[str], tuple[str, str] | None]
"""The name and the client URL of another broker that is home to a durable subscription. None if there is
none."""


class _Making:
    """A subscription that is being written, and the attachments that wait for it."""

    __slots__ = ("attachments", "patterns")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self.attachments: list[Attachment] = []


class _Undecided(NamedTuple):
    """A request that came before it was known what others keep, and the time until which it waits."""

    name: str
    patterns: tuple[str, ...]
    until: float


class Attaching:
    """See the module."""

    def __init__(
        self,
        durables: Durables,
        journal: HomeJournal,
        workers: Workers,
        hooks: Telling,
        options: ExchangeOptions,
    ) -> None:
        self._durables = durables
        self._journal = journal
        self._workers = workers
        self._hooks = hooks
        self._options = options
        self._making: dict[str, _Making] = {}
        self._unconfirmed: dict[Attachment, int] = {}
        """Attachments that wait for the barrier of this version. Versions ascend."""
        self._known = -1
        """The version of the table that every live broker, without exception, had on disk in this run."""
        self._count = 0
        """Attachments of all sessions, including waiting ones."""
        self._undecided: dict[Attachment, _Undecided] = {}
        """Ordered by the end of their time."""
        self.elsewhere: Elsewhere = lambda name: None
        self.senior: Elsewhere = lambda name: None
        """The linked home with the lowest id, below this broker's, that has the same name."""
        self.is_empty: Callable[[Durable], bool] = lambda durable: False
        """True if nothing was kept for a subscription, and nothing is about to be."""
        self.unsure: Callable[[], str] = lambda: ""
        """Why it is not known what other brokers keep. Empty if it is known."""
        self.leaving = ""

    # --- ATTACH

    def attach(
        self,
        session: Session,
        number: int,
        name: str,
        patterns: list[str],
        messages: int,
        size: int,
        now: float,
    ) -> None:
        """Attach a session. Raises `SessionError`, `TopicError`."""
        if number == 0 or number in session.subscriptions or number in session.work:
            raise SessionError(f"subscription number {number} is taken")
        if not messages or not size:
            raise SessionError("attaching to a durable subscription needs a window above zero")
        wanted = tuple(sorted({check_pattern(pattern) for pattern in patterns}))
        options = self._options
        attachment = Attachment(
            self._workers,
            session,
            number,
            session.standing.work_window(min(messages, options.work_window_max)),
            min(size, options.work_bytes_max),
        )
        above = session.standing.refusal_of_subscription()
        session.work[number] = attachment
        self._count += 1
        session.standing.subscriptions += 1
        if above:
            self.detached(attachment, "limit", above)
            return
        self._answer(attachment, _Undecided(name, wanted, now + UNSURE_S), now)

    def decide(self, now: float) -> None:
        """Answer requests that no longer wait for what others keep, or whose time is over."""
        for attachment, asked in list(self._undecided.items()):
            if now < asked.until and self.unsure():
                return
            del self._undecided[attachment]
            self._answer(attachment, asked, now)

    @property
    def undecided(self) -> bool:
        return bool(self._undecided)

    @property
    def next_due(self) -> float:
        """The latest time for the next call of `decide`."""
        return next((asked.until for asked in self._undecided.values()), inf)

    def _answer(self, attachment: Attachment, asked: _Undecided, now: float) -> None:
        refusal = self._begin(attachment, asked, now)
        if refusal is not None:
            self.detached(attachment, *refusal)

    def _begin(
        self, attachment: Attachment, asked: _Undecided, now: float
    ) -> tuple[str, str] | tuple[str, str, str] | None:
        """Attach it, or begin to. Otherwise returns why not: reason, sentence, URL."""
        name, patterns, until = asked
        if self.leaving:
            return "leaving", self.leaving
        if problem := frames.name_problem(name):
            return "bad_name", f"the name of a durable subscription {problem}"
        if self._journal.failure:
            return "failed", f"it stores nothing: {self._journal.failure}"
        if self._count > self._options.consumers_max:
            return "limit", f"it has {self._count - 1} consumers, the most that consumers_max allows"
        if len(attachment.session.work) > SUBSCRIPTIONS_MAX:
            return "limit", f"a session works on at most {SUBSCRIPTIONS_MAX} durable subscriptions"
        durable, making = self._durables.by_name.get(name), self._making.get(name)
        known = durable or making
        if refusal := self._not_allowed(attachment.session, name, patterns):
            return "not_allowed", refusal
        if known is not None:
            if patterns and patterns != known.patterns:
                return "other_patterns", (
                    f"durable subscription {name!r} has other patterns: {', '.join(known.patterns) or 'none'}"
                    "; attach with these or with none"
                )
            if durable is not None:
                self._found(attachment, durable)
            elif making is not None:
                making.attachments.append(attachment)
            return None
        found = self.elsewhere(name)
        if found is None and not patterns and name.startswith(frames.DEAD_PREFIX):
            if name.removeprefix(frames.DEAD_PREFIX) in self._durables.by_name:
                return self._make(attachment, name, ())
            found = self.elsewhere(name.removeprefix(frames.DEAD_PREFIX))
        if found is not None:
            return _held_elsewhere(name, *found)
        if unsure := self.unsure():
            if now >= until:
                return "held_elsewhere", f"durable subscription {name!r} may live elsewhere: {unsure}", ""
            self._undecided[attachment] = asked
            return None
        if not patterns:
            return "unknown", f"there is no durable subscription {name!r}; give patterns to make it"
        return self._make(attachment, name, patterns)

    def _make(self, attachment: Attachment, name: str, patterns: tuple[str, ...]) -> tuple[str, str] | None:
        if self._journal.refusing:
            return "no_state", f"durable subscription {name!r} cannot be made here: {self._journal.refusing}"
        if patterns and name.startswith("$"):
            return "bad_name", f"names that begin with '$' are the mesh's own, such as {name!r}"
        for pattern in patterns:
            if pattern.startswith("$"):
                return (
                    "bad_name",
                    f"{pattern!r} begins with '$': such topics are the mesh's own and not stored",
                )
        if problem := self._durables.above_limit(name, patterns):
            return "limit", f"durable subscription {name!r} is not made: {problem}"
        making = self._making[name] = _Making(patterns)
        making.attachments.append(attachment)
        self._journal.when_open(partial(self._write, name))
        return None

    def _not_allowed(self, session: Session, name: str, patterns: tuple[str, ...]) -> str:
        """Why a client may not work on this subscription, with the rule. Empty if it may, or if there is no
        such subscription here."""
        rights = session.standing.rights
        if rights is None:
            return ""
        known = self._durables.by_name.get(name) or self._making.get(name)
        if name.startswith(frames.DEAD_PREFIX):
            of = self._durables.by_name.get(name.removeprefix(frames.DEAD_PREFIX))
            patterns = of.patterns if of is not None else ("#",) if known is not None else ()
        elif known is not None:
            patterns = known.patterns
        refusals = (rights.refusal_of_pattern("subscribe", pattern) for pattern in patterns)
        return next(filter(None, refusals), "")

    # --- making one

    def _write(self, name: str, problem: Exception | None, now: float) -> None:
        making = self._making[name]
        if problem is not None:
            self._not_made(name, problem)
        else:
            self._journal.submit([records.Subscribe(name, making.patterns)], partial(self._written, name))

    def _written(self, name: str, result: Result, now: float) -> None:
        if isinstance(result, Exception):
            self._not_made(name, result)
            return
        making = self._making.pop(name)
        id = result[0].subscription
        durable = self._durables.by_id.get(id)  # perhaps there since the first dead letter
        if durable is None:
            elsewhere = self.elsewhere(name)
            if elsewhere is not None:  # another home made it meanwhile
                self._journal.submit([records.Unsubscribe(id)], lambda result, now: None)
                for attachment in making.attachments:
                    if not attachment.over:
                        self.detached(attachment, *_held_elsewhere(name, *elsewhere))
                return
            durable = self.add(records.Kept(id, name, making.patterns, 0, 0, 0, 0))
        for attachment in making.attachments:
            if not attachment.over:
                self._found(attachment, durable)

    def _not_made(self, name: str, problem: Exception) -> None:
        making = self._making.pop(name)
        for attachment in making.attachments:
            if not attachment.over:
                self.detached(
                    attachment, "failed", f"durable subscription {name!r} could not be made: {problem}"
                )

    def add(self, kept: records.Kept) -> Durable:
        """Add a subscription that was just written to disk here."""
        durable = self._durables.add(kept)
        durable.version = self._hooks.durable_changed({kept.name: kept.patterns}, [])
        return durable

    # --- the barrier

    def _found(self, attachment: Attachment, durable: Durable) -> None:
        attachment.durable = durable
        if durable.version <= self._known:
            self._confirm(attachment, durable, [])
        else:
            self._unconfirmed[attachment] = self._hooks.durable_changed({}, [])

    def reached(self, version: int, unreached: list[str]) -> None:
        """Every live broker, except those named, has the table on disk up to ``version``."""
        if not unreached:
            self._known = max(self._known, version)
        unconfirmed = self._unconfirmed
        while unconfirmed:
            attachment, waits_for = next(iter(unconfirmed.items()))
            if waits_for > version:
                return
            durable = attachment.durable
            assert durable is not None
            senior = None if durable.confirmed else self.senior(durable.name)
            if senior is not None and self.is_empty(durable):
                self._yield_to(*senior, durable)
            else:
                del unconfirmed[attachment]
                self._confirm(attachment, durable, unreached)

    def _yield_to(self, broker: str, url: str, durable: Durable) -> None:
        """Another home has the name and keeps it. Nothing is kept here from now on, and waiting clients go
        there."""
        self._durables.remove(durable)
        self._workers.forget(durable)
        self._journal.submit([records.Unsubscribe(durable.id)], partial(self._yielded, durable))
        for attachment in [waiting for waiting in self._unconfirmed if waiting.durable is durable]:
            self.detached(attachment, *_held_elsewhere(durable.name, broker, url))

    def _yielded(self, durable: Durable, result: Result, now: float) -> None:
        if not isinstance(result, Exception):
            self._hooks.durable_changed({}, [durable.name])
        elif durable.name not in self._durables.by_name:
            self.add(records.Kept(durable.id, durable.name, durable.patterns, 0, 0, 0, 0))

    def _confirm(self, attachment: Attachment, durable: Durable, unreached: list[str]) -> None:
        durable.confirmed = True
        waiting = max(0, durable.waiting)
        attachment.session.send(
            encode(frames.Durable.ATTACHED, attachment.number, waiting, unreached[: frames.NAMES_MAX])
        )
        self._workers.begin(attachment, durable)

    # --- the end

    def detach(self, session: Session, number: int, now: float) -> None:
        """DETACH. A missing attachment was refused or has ended."""
        attachment = session.work.pop(number, None)
        if attachment is not None:
            self._end(attachment, now, died=False)

    def session_over(self, session: Session, now: float, *, died: bool) -> None:
        """The session has ended. ``died``: without saying goodbye."""
        attachments, session.work = session.work, {}
        for attachment in attachments.values():
            self._end(attachment, now, died=died)

    def end_what_is_not_allowed(self, session: Session, now: float) -> None:
        """The session's rights have changed."""
        for attachment in list(session.work.values()):
            durable = attachment.durable
            refusal = "" if durable is None else self._not_allowed(session, durable.name, ())
            if refusal:
                self._workers.end(attachment, now, died=False)
                self.detached(attachment, "not_allowed", refusal)

    def detach_all(self, reason: str, sentence: str, now: float) -> None:
        """Detach all consumers."""
        for durable in self._durables.by_name.values():
            self.detach_from(durable, reason, sentence, now)
        for attachment in [*self._unconfirmed, *self._undecided]:
            self.detached(attachment, reason, sentence)

    def detach_from(self, durable: Durable, reason: str, sentence: str, now: float) -> None:
        """Detach all consumers of one subscription."""
        attachments = list(durable.attachments.values())
        attachments += [waiting for waiting in self._unconfirmed if waiting.durable is durable]
        for attachment in attachments:
            self._workers.end(attachment, now, died=False)
            self.detached(attachment, reason, sentence)

    def detached(self, attachment: Attachment, reason: str, sentence: str, url: str = "") -> None:
        """Tell a client that its attachment was refused or has ended."""
        session, number = attachment.session, attachment.number
        session.work.pop(number, None)
        self._is_over(attachment)
        if reason == "not_allowed" and not session.agreed.has(PROOF):
            reason = "limit"  # the client does not know the other reason
        said = sentence[: frames.SENTENCE_MAX]
        session.send(encode(frames.Durable.DETACHED, number, reason, said, url[: frames.URL_MAX]))

    def _end(self, attachment: Attachment, now: float, *, died: bool) -> None:
        self._is_over(attachment)
        self._workers.end(attachment, now, died=died)

    def _is_over(self, attachment: Attachment) -> None:
        self._count -= 1
        attachment.session.standing.subscriptions -= 1
        attachment.over = True
        self._unconfirmed.pop(attachment, None)
        self._undecided.pop(attachment, None)


def _held_elsewhere(name: str, broker: str, url: str) -> tuple[str, str, str]:
    return "held_elsewhere", f"durable subscription {name!r} has its home at broker {broker}", url
