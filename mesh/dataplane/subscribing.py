"""Subscriptions of clients: their bounds, and how they are added and removed. Pure.

Starting and ending a large subscription are long work. Its patterns arrive in parts (PATTERNS, then
SUBSCRIBE) and are added in parts, one in each loop turn, so that gossip rounds and other clients run in
between. A topic that matches an added part is delivered from then on; SUBSCRIBED follows the last part. A
subscription that ends is hidden at once and gets nothing more. Its patterns are removed in parts too.

**Bounds.** The patterns of a session are bounded, including those that it has only asked for; so are those of
the broker. Only a few of them may have many stars (`mesh.dataplane.starred`). Patterns that wait for their
SUBSCRIBE or to be added are bounded for all sessions together (`WAITING_MAX`). A subscription that is added
at once does not wait, so this bound does not apply to it. Parts are dropped if no other frame of the
subscription follows within `GAP_S`, or if SUBSCRIBE has not come `WHOLE_S` after the first. If there is no
room, parts that began `TURN_S` ago make room for others, the oldest first. A subscription beyond a bound is
refused. A client that does not understand a single refusal loses its session. Patterns that are being removed
still count for the broker: a subscription that would fit without them waits until they are removed.

**Rights.** A client may subscribe to what its principal is allowed. A responder also needs the right to
subscribe. A subscription without the right is refused like one beyond a bound, and ends when a reload removes
the right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mesh.access.door import AboveLimit, NotAllowed
from mesh.dataplane.counters import Tally
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.members import Member
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.ports import Pipe, Turn
from mesh.dataplane.requests import Requests
from mesh.dataplane.sessions import ClientSubscription, LocalTaker, Parts, Session
from mesh.dataplane.starred import StarredPatterns
from mesh.errors import PeerError, SessionError, TopicError
from mesh.topics import check_pattern, is_starred
from mesh.topics.routing import Router
from mesh.wire.capabilities import SUBSCRIBE_REFUSED
from mesh.wire.session_frames import SUBSCRIPTIONS_MAX, Kind, Role, encode

SENTENCE_MAX: Final = 250
"""Maximum characters of a refusal."""
PATTERNS_AT_ONCE: Final = 512
"""Patterns that are added or removed in one loop turn, some 4 ms; more take several turns."""
WAITING_MAX: Final = 1 << 18
"""Patterns of all sessions that wait for their SUBSCRIBE or to be added."""
GAP_S: Final = 10.0
"""How long parts of a subscription wait for the next part or for their SUBSCRIBE."""
WHOLE_S: Final = 60.0
"""How long the first part waits for SUBSCRIBE, whatever else arrives. That suffices for the maximum of 8 MB
at 140 KB/s."""
TURN_S: Final = 10.0
"""Parts older than this make room for others if needed."""

Refuse = Callable[[Pipe, bytes, PeerError | TopicError, float], None]
"""Called when the client behind a pipe and a backtrace broke a rule."""


class Subscribing:
    """See the module."""

    def __init__(
        self,
        name: str,
        options: ExchangeOptions,
        turn: Turn,
        router: Router[LocalTaker, Member],
        interest: LocalInterest,
        requests: Requests,
        tally: Tally,
        refuse: Refuse,
    ) -> None:
        self._name = name
        self._options = options
        self._turn = turn
        self._router = router
        self._interest = interest
        self._requests = requests
        self._tally = tally
        self._refuse = refuse
        self._starred = StarredPatterns(name, options)
        self._waiting = 0
        """Patterns that wait; see `WAITING_MAX`."""
        self._incomplete: dict[Parts, None] = {}
        """Parts without their SUBSCRIBE, oldest first."""
        self._removing = 0
        """Number of jobs that remove patterns."""

    # --- coming

    def keep_part(self, session: Session, number: int, patterns: list[str], now: float) -> None:
        """PATTERNS: some patterns of a later SUBSCRIBE. Raises `SessionError` amid the parts of another
        subscription."""
        parts = self._parts_of(session, number)
        if parts is None:
            parts = session.parts = Parts(number, now)
        parts.heard_at = now
        parts.count += len(patterns)
        if not parts.refusal:
            refusal = self._above_session(session, parts.count) or self._above_waiting(len(patterns), now)
            parts.refusal = parts.refusal or refusal  # these parts may have made room themselves
        if parts.refusal:
            self._forget_kept(parts)
        elif patterns:
            self._incomplete[parts] = None
            self._waiting += len(patterns)
            parts.kept += patterns

    def expire_parts(self, now: float) -> None:
        """Drop parts whose SUBSCRIBE does not come. If it comes later, it is refused."""
        for parts in list(self._incomplete):
            if now - parts.heard_at > GAP_S:
                self._take_back(parts, f"nothing followed them within {GAP_S:g} s")
            elif now - parts.began_at > WHOLE_S:
                self._take_back(parts, f"they were not complete within {WHOLE_S:g} s")

    def _take_back(self, parts: Parts, why: str) -> None:
        self._forget_kept(parts)
        parts.refusal = (
            f"broker {self._name} dropped {parts.count} patterns of subscription {parts.number}, since {why};"
            " subscribe again"
        )

    def subscribe(
        self,
        session: Session,
        number: int,
        patterns: list[str],
        role: int,
        messages: int,
        size: int,
        now: float,
    ) -> None:
        """SUBSCRIBE, which may complete earlier parts. Raises `PeerError`, `TopicError`."""
        parts = self._parts_of(session, number) or Parts(number, now)
        wanted = list(dict.fromkeys(parts.kept + patterns))
        self._drop_parts(session)
        try:
            self._check(session, number, parts, patterns, messages, size)
            subscription = ClientSubscription(session, number, [], role, self._options, now)
            self._begin(subscription, wanted, now)
        except (AboveLimit, NotAllowed) as error:
            self._refuse_one(session, number, error)
            return
        subscription.granted(messages, size, now)
        session.subscriptions[number] = subscription
        session.standing.subscriptions += 1

    def _check(
        self, session: Session, number: int, parts: Parts, patterns: list[str], messages: int, size: int
    ) -> None:
        if number == 0 or number in session.subscriptions or number in session.work:
            raise SessionError(f"subscription number {number} is taken")
        count = parts.count + len(patterns)
        if not count or not messages or not size:
            raise SessionError("a subscription needs at least one pattern and a window above zero")
        if len(session.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise AboveLimit(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        refusal = (
            self._above_session(session, count) or parts.refusal or session.standing.refusal_of_subscription()
        )
        if refusal:
            raise AboveLimit(refusal)

    def _begin(self, subscription: ClientSubscription, patterns: list[str], now: float) -> None:
        """Add the subscription now, or begin to. Raises `TopicError`, `AboveLimit`, `NotAllowed` before any
        change."""
        session = subscription.session
        if subscription.role == Role.ANSWERS and any(pattern.startswith("$") for pattern in patterns):
            raise TopicError("only brokers answer on topics that begin with '$'")
        starred = [pattern for pattern in patterns if is_starred(pattern)]
        problem = self._starred.problem(session, starred)
        if problem:
            raise AboveLimit(problem)
        fits = self._fits(patterns)
        if not fits and not self._removing:
            raise self._above(patterns)
        at_once = fits and len(patterns) <= PATTERNS_AT_ONCE
        refusal = "" if at_once else self._above_waiting(len(patterns), now)
        if refusal:
            raise AboveLimit(refusal)
        if at_once and (refusal := _not_allowed(session, patterns, subscription.role)):
            raise NotAllowed(refusal)
        subscription.patterns = patterns
        if at_once:
            self._add(subscription, patterns)
            self._interest.confirm(subscription)
        else:
            self._waiting += len(patterns)
            self._turn.jobs.append(partial(self._add_part, subscription, deque(patterns)))
        session.patterns += len(patterns)
        subscription.starred = starred
        self._starred.add(session, starred)

    def _add_part(self, subscription: ClientSubscription, waiting: deque[str], now: float) -> bool:
        """Add one part of a large subscription. True while more remains."""
        session, number = subscription.session, subscription.number
        if session.closed or session.subscriptions.get(number) is not subscription:
            self._waiting -= len(waiting)
            return False  # it ended meanwhile, and all its patterns were removed
        part = [waiting[place] for place in range(min(PATTERNS_AT_ONCE, len(waiting)))]
        fits = self._fits(part)
        if not fits and self._removing:
            return True
        for _ in part:
            waiting.popleft()
        self._waiting -= len(part)
        try:
            not_allowed = _not_allowed(session, part, subscription.role)
            if fits and not not_allowed:
                self._add(subscription, part)
                if waiting:
                    return True
                self._interest.confirm(subscription)
            else:
                error = NotAllowed(not_allowed) if not_allowed else self._above(part)
                self._end_one(session, number, error, now)
        except (PeerError, TopicError) as broken:
            self._refuse(session.port.pipe, session.prefix, broken, now)
        self._waiting -= len(waiting)
        return False

    def _add(self, subscription: ClientSubscription, patterns: list[str]) -> None:
        """Add patterns. Raises `TopicError` before any change."""
        self._router.subscribe(patterns, subscription.role, subscription)
        self._interest.add(patterns, subscription.role)
        subscription.added += len(patterns)

    # --- bounds

    def _above_session(self, session: Session, count: int) -> str:
        """Why a session cannot have so many more patterns. Empty if it can."""
        most = self._options.session_patterns_max
        if session.patterns + count <= most:
            return ""
        return f"{session.patterns} patterns and {count} more are above the {most} that a session may have"

    def _above_waiting(self, count: int, now: float) -> str:
        """Why so many more patterns cannot wait. Empty if they can, perhaps because older parts made room."""
        if self._waiting + count > WAITING_MAX:
            self._make_room(count, now)
        if self._waiting + count <= WAITING_MAX:
            return ""
        return (
            f"more than {WAITING_MAX} patterns wait to be subscribed at broker {self._name}; subscribe again"
            " in a few seconds"
        )

    def _make_room(self, count: int, now: float) -> None:
        """Drop parts older than `TURN_S`, the oldest first, until so many more patterns can wait."""
        lacking = self._waiting + count - WAITING_MAX
        leaving: list[Parts] = []
        for parts in self._incomplete:
            if lacking <= 0 or now - parts.began_at < TURN_S:
                break
            leaving.append(parts)
            lacking -= len(parts.kept)
        for parts in leaving if lacking <= 0 else ():
            self._take_back(parts, f"others had no room and they were not complete after {TURN_S:g} s")

    def _fits(self, patterns: list[str]) -> bool:
        return self._interest.size_with(patterns) <= self._options.patterns_max

    def _above(self, patterns: list[str]) -> AboveLimit:
        return AboveLimit(
            f"with {len(patterns)} more patterns broker {self._name} would have more than the"
            f" {self._options.patterns_max} that its clients may want together"
        )

    def _end_one(self, session: Session, number: int, error: AboveLimit | NotAllowed, now: float) -> None:
        """End a subscription that had begun. Raises the error as `_refuse_one` does."""
        session.port.disown(session.subscriptions[number].under_way)
        self.end(session, [session.subscriptions.pop(number)], now)
        self._refuse_one(session, number, error)

    def _refuse_one(self, session: Session, number: int, error: AboveLimit | NotAllowed) -> None:
        """Refuse one subscription. Raises the error for a client that does not understand single refusals."""
        if not session.agreed.has(SUBSCRIBE_REFUSED):
            raise error
        self._tally.refuse(error.reason)
        session.send(encode(Kind.UNSUBSCRIBED, number, str(error)[:SENTENCE_MAX]))

    # --- parts

    @staticmethod
    def _parts_of(session: Session, number: int) -> Parts | None:
        parts = session.parts
        if parts is not None and parts.number != number:
            raise SessionError(
                f"frames of subscription {number} came amid the parts of subscription {parts.number}"
            )
        return parts

    def _drop_parts(self, session: Session) -> None:
        if session.parts is not None:
            self._forget_kept(session.parts)
            session.parts = None

    def _forget_kept(self, parts: Parts) -> None:
        self._incomplete.pop(parts, None)
        self._waiting -= len(parts.kept)
        parts.kept = []

    # --- going

    def end_what_is_not_allowed(self, session: Session, now: float) -> None:
        """The session's rights have changed."""
        for number, subscription in list(session.subscriptions.items()):
            if refusal := _not_allowed(session, subscription.patterns, subscription.role):
                try:
                    self._end_one(session, number, NotAllowed(refusal), now)
                except NotAllowed as error:
                    self._refuse(session.port.pipe, session.prefix, error, now)
                    return

    def unsubscribe(self, session: Session, number: int, now: float) -> None:
        """UNSUBSCRIBE. A missing subscription was refused or has ended."""
        if session.parts is not None and session.parts.number == number:
            self._drop_parts(session)
        subscription = session.subscriptions.pop(number, None)
        if subscription is not None:
            session.port.disown(subscription.under_way)
            self.end(session, [subscription], now)

    def end_all(self, session: Session, now: float) -> None:
        """The session has ended."""
        self._drop_parts(session)
        self.end(session, list(session.subscriptions.values()), now)
        session.subscriptions.clear()

    def end(self, session: Session, ended: Sequence[ClientSubscription], now: float) -> None:
        """Remove subscriptions that were already taken out of their session's table."""
        session.standing.subscriptions -= len(ended)
        for subscription in ended:
            session.patterns -= len(subscription.patterns)
            self._starred.remove(session, subscription.starred)
            del subscription.patterns[subscription.added :]
            self._interest.forget(subscription)
            self._tally.drop("subscriber_gone", subscription.close())
            self._tally.drop("slow_subscriber", subscription.dropped)
            self._requests.subscriber_gone(subscription, now)
        if sum(subscription.added for subscription in ended) <= PATTERNS_AT_ONCE:
            for subscription in ended:
                self._router.unsubscribe(subscription.patterns, subscription)
                self._interest.remove(subscription.patterns, subscription.role)
        else:
            self._router.hide(ended)
            self._removing += 1
            self._turn.jobs.append(partial(self._remove_part, deque(ended)))

    def _remove_part(self, ended: deque[ClientSubscription], now: float) -> bool:
        """Remove one part of many patterns. True while more remains."""
        left = PATTERNS_AT_ONCE
        while ended and left > 0:
            subscription = ended[0]
            patterns = subscription.patterns
            part = patterns[-left:]
            del patterns[-left:]
            left -= len(part)
            self._router.unsubscribe(part, subscription)
            self._interest.remove(part, subscription.role)
            if not patterns:
                self._router.release(subscription)
                ended.popleft()
        if not ended:
            self._removing -= 1
        return bool(ended)


def _not_allowed(session: Session, patterns: Sequence[str], role: int) -> str:
    """Why a session may not subscribe to these patterns, with the rule. Empty if it may. Raises
    `TopicError`."""
    rights = session.standing.rights
    if rights is None:
        return ""
    for pattern in map(check_pattern, patterns):
        refusal = rights.refusal_of_pattern("subscribe", pattern)
        if not refusal and role == Role.ANSWERS:
            refusal = rights.refusal_of_pattern("answer", pattern)
        if refusal:
            return refusal
    return ""
