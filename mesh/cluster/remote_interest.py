"""The interest of all brokers: the own one with its versions, those announced by others, and the barrier.

A broker's interest maps patterns to roles (0 listens, 1 answers too). Versions count from 1 (nothing wanted)
within one boot, and each change makes one or more. A new link is sent the whole interest in parts and then
changes, each relative to the version sent before. The receiver acknowledges the version that it holds. It
asks for the whole interest if a change does not fit what it holds, or if it lags behind the version in the
other's surveys for `LAG_S`.

**Cost.** A change costs by its own size here and at every receiver, whatever is wanted already. Long work is
cut: no sent frame has more than `SENT_MAX` patterns, and `pending` returns one frame at a time, so that its
caller can do other work in between. Received interest is reported as differences (`Change`), part by part.

**The barrier.** A subscription is known when every live broker has acknowledged a version that includes it
(`mesh.cluster.barriers`).

**Absent** are live members whose interest is not held, or that have no link. Messages published here now may
miss subscribers there, and receipts name these members. The same holds for members that this broker was told
about but has not heard from (`mesh.cluster.joining`).

Pure. Patterns are checked against the grammar when they come from a peer, and not again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesh.cluster.barriers import BARRIER_S, BarrierDone, Barriers
from mesh.cluster.full_mesh import ought_to_link
from mesh.errors import LinkError, TopicError
from mesh.topics import check_pattern
from mesh.wire.link_frames import LinkKind, encode

REMOTE_PATTERNS_MAX: Final = 65_536
"""Patterns that one broker may want in total; version 1 has the same bound. Its own limits stay below it
(`mesh.limits`)."""
FIRST_VERSION: Final = 1
SENT_MAX: Final = 512
"""Patterns in one sent frame, some 3 ms of work for the receiver. A receiver must accept `PATTERNS_MAX`."""
JOURNAL_MAX: Final = 65_536
"""Changed patterns kept for links that have not been sent them. A link further behind is sent the whole."""
LAG_S: Final = 0.5
"""For so long a broker's announced version may be ahead of its frames of interest."""

Pattern = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a member's interest. ``complete``: its whole interest is held now."""

    added: Sequence[Pattern]
    """New patterns, and those with a new role."""
    removed: Sequence[str]
    complete: bool


class _Remote:
    """The interest of one member, as announced in one of its boots."""

    __slots__ = ("boot", "frames", "held", "lag", "parts", "patterns", "version", "wanted")

    def __init__(self, boot: int, patterns: dict[str, int]) -> None:
        self.boot = boot
        self.version = 0
        self.held = False
        self.patterns = patterns
        """While a whole arrives in parts: the patterns from before, and the parts."""
        self.parts: dict[str, None] | None = None
        self.wanted = False  # the whole was requested and has not come yet
        self.frames = 0  # number received
        # frames received when it was first seen to lag, and the time
        self.lag: tuple[int, float] | None = None


class InterestTable:
    """The interest of all members, which are ids."""

    def __init__(self, me: int, barrier_s: float = BARRIER_S) -> None:
        self._me = me
        self.version = FIRST_VERSION
        self._own: dict[str, int] = {}
        self._barriers = Barriers(barrier_s)
        self._remote: dict[int, _Remote] = {}
        self._live: dict[int, str] = {}
        self._linked: dict[int, _Sent] = {}
        self._journal: deque[tuple[int, dict[str, int | None]]] = deque()
        """Versions with the changes of each. None: not wanted any more."""
        self._journaled = 0
        self._encoded: tuple[tuple[int, int, tuple[int, ...]], int, bytes] = ((0, 0, ()), 0, b"")

    # --- the own interest

    @property
    def own(self) -> list[Pattern]:
        """The present own interest."""
        return list(self._own.items())

    def change_own(self, added: Iterable[Pattern], removed: Iterable[str] = ()) -> int:
        """Also want the ``added`` patterns, which are new or have a new role, and no longer the ``removed``
        ones. Returns the version that includes the change: the present one if there is none."""
        own = self._own
        changes: dict[str, int | None] = {}
        for pattern in removed:
            if own.pop(pattern, None) is not None:
                changes[pattern] = None
        for pattern, role in added:
            if own.get(pattern) != role:
                own[pattern] = changes[pattern] = role
        if len(changes) <= SENT_MAX:
            self._record(changes)
        else:
            items = list(changes.items())
            for start in range(0, len(items), SENT_MAX):
                self._record(dict(items[start : start + SENT_MAX]))
        return self.version

    def _record(self, changes: dict[str, int | None]) -> None:
        if not changes:
            return
        self.version += 1
        if self._linked:
            self._journal.append((self.version, changes))
            self._journaled += len(changes)
            while self._journaled > JOURNAL_MAX:
                self._forget_change()

    def wait(self, version: int, now: float) -> BarrierDone | None:
        """Wait until all know a version. Returns the result if they already do; otherwise `acknowledged`,
        `members` or `tick` does."""
        return self._barriers.wait(version, now)

    def pending(self, member: int) -> bytes | None:
        """The next frame that brings a linked member closer to the present interest. None if it has all of
        it."""
        sent = self._linked.get(member)
        if sent is None:
            return None
        if sent.version == 0 and sent.parts is None:
            sent.begin(list(self._own.items()), self.version)
        if sent.parts is not None:
            return sent.next_part()
        if sent.version == self.version:
            return None
        frame = self._change(sent)
        if frame is None:  # it is too far behind
            sent.version = 0
            return self.pending(member)
        self._forget_sent()
        return frame

    def behind(self) -> list[int]:
        """Linked members that have not been sent the present version."""
        return [member for member, sent in self._linked.items() if sent.version != self.version]

    def _change(self, sent: _Sent) -> bytes | None:
        """The changes since the version sent that fit into one frame. Most members are at the same version
        and get the same frame."""
        base = sent.version
        if self._encoded[0] != (base, self.version, sent.owner):
            changes: dict[str, int | None] = {}
            version = base
            for number, each in self._journal:
                if number <= base:
                    continue
                if number != version + 1 or (changes and len(changes) + len(each) > SENT_MAX):
                    break
                changes.update(each)
                version = number
            if version == base:
                return None
            added = [[pattern, role] for pattern, role in changes.items() if role is not None]
            removed = [pattern for pattern, role in changes.items() if role is None]
            frame = encode(LinkKind.INTEREST_CHANGE, base, version, added, removed, *sent.owner)
            self._encoded = (base, self.version, sent.owner), version, frame
        _, sent.version, frame = self._encoded
        return frame

    def _forget_sent(self) -> None:
        """Forget the oldest changes, which all linked members have been sent."""
        oldest = min((sent.floor for sent in self._linked.values()), default=self.version)
        while self._journal and self._journal[0][0] <= oldest:
            self._forget_change()

    def _forget_change(self) -> None:
        _, changes = self._journal.popleft()
        self._journaled -= len(changes)

    # --- members and links

    def members(self, live: Mapping[int, str]) -> list[BarrierDone]:
        """Members that are alive or suspect, with their names, without this broker. All others are
        forgotten."""
        self._live = dict(live)
        for member in list(self._remote):
            if member not in live and member not in self._linked:
                del self._remote[member]
                self._barriers.forget(member)
        return self._barriers.members(live)

    def set_unheard(self, names: Iterable[str], *, wait: bool) -> list[BarrierDone]:
        """Members that this broker was told about but has not heard from. Barriers and `absent` name them.
        With ``wait``, barriers wait for them too, since they may know of others."""
        return self._barriers.set_unheard(names, wait=wait)

    def link_up(self, member: int, boot: int, *, names_owner: bool = True) -> None:
        """A link is admitted, perhaps in place of another. `pending` returns the whole interest for it.

        ``names_owner``: the other side has the capability `INTEREST_OWNER`.
        """
        remote = self._remote.get(member)
        if member not in self._live:
            # The data plane forgot its interest with the link that this one replaces, so all of it is a
            # change.
            remote = None
        if remote is None or remote.boot != boot:
            # The earlier run's interest is removed once the whole interest of this run has arrived.
            self._remote[member] = _Remote(boot, {} if remote is None else remote.patterns)
            self._barriers.forget(member)
        else:
            remote.parts = None
            remote.wanted = False
        self._linked[member] = _Sent((self._me,) if names_owner else ())

    def link_down(self, member: int) -> None:
        """The link has ended. The member's interest is kept while it is live."""
        self._linked.pop(member, None)
        self._forget_sent()
        if member not in self._live:
            self._remote.pop(member, None)
            self._barriers.forget(member)

    def absent(self) -> tuple[str, ...]:
        """Names of the members that a publish here may miss now."""
        missing = [name for member, name in self._live.items() if self._is_missed(member)]
        return (*self._barriers.unheard, *missing)

    def is_held(self) -> bool:
        """True if every live member that should have a link has acknowledged this broker's interest on it."""
        sent = [self._linked.get(member) for member in self._live if ought_to_link(self._me, member)]
        return all(each is not None and each.held for each in sent)

    def _is_missed(self, member: int) -> bool:
        remote = self._remote.get(member)
        if remote is None or not remote.held:
            return True
        return member not in self._linked and ought_to_link(self._me, member)

    # --- frames from members

    def acknowledged(self, member: int, version: int) -> list[BarrierDone]:
        """A member holds a version of this broker's interest. Raises `LinkError` for one that never
        existed."""
        if version > self.version:
            raise LinkError(f"the peer holds interest version {version}, this broker is at {self.version}")
        sent = self._linked.get(member)
        if sent is not None:
            sent.held = True
        return self._barriers.acknowledged(member, version)

    def wanted(self, member: int) -> None:
        """A member asks for the whole interest; `pending` returns it."""
        sent = self._linked.get(member)
        if sent is not None:
            sent.version, sent.parts = 0, None

    def whole_received(
        self, member: int, version: int, part: int, last: bool, patterns: list[Pattern]
    ) -> Change | None:
        """Take a part of a member's whole interest. None if an earlier part is missing. Raises
        `LinkError`."""
        remote = self._remote[member]
        remote.frames += 1
        if part == 0:
            remote.parts = {}
        parts = remote.parts
        if parts is None:
            return None  # its first part was lost with an earlier link
        parts.update(dict.fromkeys([pattern for pattern, _ in _checked(patterns)]))
        _check_count(len(parts))
        held = remote.patterns
        added = [(pattern, role) for pattern, role in patterns if held.get(pattern) != role]
        held.update(added)
        if not last:
            return Change(added, (), False)
        removed = [pattern for pattern in held if pattern not in parts] if len(held) > len(parts) else []
        for pattern in removed:
            del held[pattern]
        remote.parts = None
        remote.version, remote.held, remote.wanted = version, True, False
        return Change(added, removed, True)

    def change_received(
        self, member: int, base: int, version: int, added: list[Pattern], removed: list[str]
    ) -> Change | None:
        """Take a difference. None if it does not fit what is held and the whole must be requested. Raises
        `LinkError`."""
        remote = self._remote[member]
        remote.frames += 1
        if not remote.held or remote.version != base:
            return None
        held = remote.patterns
        gone = [pattern for pattern in removed if held.pop(pattern, None) is not None]
        new = [(pattern, role) for pattern, role in _checked(added) if held.get(pattern) != role]
        held.update(new)
        _check_count(len(held))
        remote.version = version
        return Change(new, gone, True)

    def heard_version(self, member: int, version: int, now: float) -> bool:
        """Take the version that a member names in its surveys. True, once, if the whole must be requested."""
        remote = self._remote.get(member)
        if remote is None or member not in self._linked or remote.wanted:
            return False
        if remote.held and remote.version >= version:
            remote.lag = None
            return False
        if remote.lag is None or remote.lag[0] != remote.frames:
            remote.lag = (remote.frames, now)
        if now - remote.lag[1] < LAG_S:
            return False
        return self.ask(member)

    def ask(self, member: int) -> bool:
        """Note that the whole of a member's interest is requested. False if it was requested already."""
        remote = self._remote[member]
        asked, remote.wanted = remote.wanted, True
        return not asked

    def patterns(self, member: int) -> list[Pattern]:
        """The interest of a member."""
        remote = self._remote.get(member)
        return [] if remote is None else list(remote.patterns.items())

    def held_version(self, member: int) -> int:
        """The version held of a member's interest, 0 if none."""
        remote = self._remote.get(member)
        return remote.version if remote is not None and remote.held else 0

    @property
    def barriers(self) -> int:
        """Number of versions that somebody waits for."""
        return len(self._barriers)

    # --- the barrier

    def tick(self, now: float) -> list[BarrierDone]:
        """Barriers whose time is over."""
        return self._barriers.tick(now)

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        return self._barriers.next_deadline()


class _Sent:
    """How much of this broker's interest a linked member has been sent."""

    __slots__ = ("held", "owner", "part", "parts", "parts_version", "version")

    def __init__(self, owner: tuple[int, ...]) -> None:
        self.owner = owner
        self.held = False
        """The member acknowledged some version on this link."""
        self.version = 0
        """It was sent everything up to this version."""
        self.parts: list[Pattern] | None = None
        """The whole interest being sent, at `parts_version`. `part` is the number of the next part."""
        self.parts_version = 0
        self.part = 0

    @property
    def floor(self) -> int:
        """Changes up to this version need not be kept for it."""
        return self.version if self.parts is None else self.parts_version

    def begin(self, patterns: list[Pattern], version: int) -> None:
        self.parts, self.parts_version, self.part = patterns, version, 0

    def next_part(self) -> bytes:
        """The next part of the whole. The last one completes it."""
        parts = self.parts
        assert parts is not None, "a whole is being sent"
        start, number = self.part * SENT_MAX, self.part
        last = start + SENT_MAX >= len(parts)
        pairs = [[pattern, role] for pattern, role in parts[start : start + SENT_MAX]]
        self.part += 1
        if last:
            self.parts, self.version = None, self.parts_version
        return encode(LinkKind.INTEREST, self.parts_version, number, int(last), pairs, *self.owner)


def _check_count(patterns: int) -> None:
    if patterns > REMOTE_PATTERNS_MAX:
        raise LinkError(f"a broker's interest has more than {REMOTE_PATTERNS_MAX} patterns")


def _checked(patterns: list[Pattern]) -> list[Pattern]:
    for pattern, _ in patterns:
        try:
            check_pattern(pattern)
        except TopicError as error:
            raise LinkError(f"interest has an invalid pattern: {error}") from error
    return patterns
