"""Who is in the mesh, by whose word: the membership machine of one broker.

**States.** A member is ALIVE, SUSPECT, DEAD or LEFT, and every broker holds one `MemberRecord` of each.
Records are merged by (incarnation, rank) with ALIVE < SUSPECT < DEAD < LEFT, so the order in which news
arrives does not matter and repeating it does nothing::

                    one round missed            three in a row
    (nothing) --> ALIVE -----------> SUSPECT ------------------> DEAD
                    ^ ^                 |                          |
                    | +-- refutation ---+                          |
                    +---- refutation or return (greater incarnation)
    any state --> LEFT, by the member's own word

Only a member raises its own incarnation. It does so when it hears anything about itself that is not what it
says itself (**refutation**): that is how a broker which was paused, or cut off, comes back with the boot it
had. A broker that was started again comes back with another boot.

**Rounds.** Every period all linked members are surveyed at once and judged at one instant, the deadline:

* who answered is not judged; who was asked, or has lost its link, and did not answer has *missed*;
* one miss makes a SUSPECT, three in a row a DEAD. A refutation that comes by way of others clears the count:
  one bad link between two brokers kills neither, the link alone is dropped and dialled again;
* who is known by **hearsay** (no link, and what is known of it came by way of others) is unjudged for
  `UNJUDGED_ROUNDS_MAX` rounds from its last word on: time to be linked, or to be vouched for again. Only
  then does it miss rounds like anybody, and if nobody can pass its refutation on, it is dead. So no record
  stays whose member nobody can find. A round without an answer says nothing of hearsay, unless this broker
  has no peers at all;
* a round is **void** if this broker's own timers were more than half a deadline late (it was paused or
  starved), or if none of its two or more peers answered (it is the one cut off). A void round judges nobody
  and asks to dial again at once; members without a link are then unjudged until they answer once (or for
  `UNJUDGED_ROUNDS_MAX` rounds, so that a member which died just then is found). After three silent rounds in
  a row the broker is ISOLATED: its peers are unreachable, not dead.

**Lies.** What others say of a member is believed up to `INCARNATION_STEP_MAX` above the member's own last
word to this broker (0 if it never spoke to it), and its own word is believed as it is. A member refutes twice
as far. So whatever is believed can be refuted by whom it is about, even if its last incarnations were not
saved, and no chain of lies takes a record out of its member's reach.

**News** goes to all linked members except the one it came from. It can be lost with a link, so surveys and
answers carry `digest`, a fingerprint of all living members; two digests that differ for half a period cause
both tables to be exchanged. The dead are remembered for a day, so that a stale record cannot raise them and
so that both sides of a healed partition know whom to look for. A member first heard of as dead or gone is not
recorded at all: its death was counted by those who knew it.

Pure: inputs carry ``now``, outputs are lists of instructions for the shell (`mesh.peering`). Ties are
resolved by the order of calls; nothing iterates over a set.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

INCARNATION_MAX: Final = 1 << 62
INCARNATION_STEP_MAX: Final = 1 << 32
"""How far above a member's own word others may speak of it: honest brokers raise it by one at a time."""
UNJUDGED_ROUNDS_MAX: Final = 10
EMPTY_DIGEST: Final = bytes(8)

_DIGESTED: Final = struct.Struct("<QQB")


class State(StrEnum):
    """Of a member; `UNKNOWN` is only ever the state before the first record."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"


RANKS: Final = {State.ALIVE: 0, State.SUSPECT: 1, State.DEAD: 2, State.LEFT: 3}
STATES: Final = (State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT)
"""By rank."""


class NodeState(StrEnum):
    """Of this broker."""

    JOINING = "joining"
    READY = "ready"
    ISOLATED = "isolated"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What brokers tell each other about one of them."""

    id: int
    incarnation: int
    state: State
    boot: int
    name: str
    host: str
    peer_url: str
    client_url: str

    @property
    def key(self) -> tuple[int, int, int, str, str, str, str]:
        """Of two records about one member the greater key wins. Incarnation and rank decide; the rest makes
        the order total, so that merging stays order-free even where a peer tells lies."""
        return (
            self.incarnation,
            RANKS[self.state],
            self.boot,
            self.name,
            self.host,
            self.peer_url,
            self.client_url,
        )

    @property
    def in_view(self) -> bool:
        """Counts as a living member: suspects do until they are dead."""
        return self.state in _IN_VIEW


_IN_VIEW: Final = (State.ALIVE, State.SUSPECT)  # every record is asked in every round


def merge(left: MemberRecord, right: MemberRecord) -> MemberRecord:
    """The one of two records about one member that stands."""
    return right if _outweighs(right, left) else left


def _outweighs(new: MemberRecord, old: MemberRecord) -> bool:
    """Whether the key of one is greater. Most of what is heard is known already, so keys are made last."""
    if new is old:
        return False
    if new.incarnation != old.incarnation:
        return new.incarnation > old.incarnation
    if new.state is not old.state:
        return RANKS[new.state] > RANKS[old.state]
    return new.key > old.key


# --- instructions


@dataclass(frozen=True, slots=True)
class Survey:
    """Begin a round: ask these members now; their answers count until the deadline."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Send these records to all linked members but one (0: to all)."""

    records: tuple[MemberRecord, ...]
    except_member: int = 0


@dataclass(frozen=True, slots=True)
class TellAll:
    """Send the whole table to one member; with ``reply`` it sends its own back."""

    member: int
    reply: bool


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member came into another state, or began a new run. ``via`` told it, or is this broker itself."""

    record: MemberRecord
    from_state: State
    reason: str
    via: int


@dataclass(frozen=True, slots=True)
class MemberMoved:
    """A member says something new of itself (an address), its state and run being what they were."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class MemberForgotten:
    """Who was dead or had left is remembered no longer: a day has passed, or the table is full."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class SelfChanged:
    """This broker speaks of itself differently from now on."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class DropLink:
    """Close the link to a member (what is queued is still written)."""

    member: int
    reason: str


@dataclass(frozen=True, slots=True)
class Redial:
    """Dial all living members without a link at once, whoever's turn it is."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """This broker came into another state."""

    from_state: NodeState
    state: NodeState


Instruction: TypeAlias = (
    Survey
    | Tell
    | TellAll
    | MemberChanged
    | MemberMoved
    | MemberForgotten
    | SelfChanged
    | DropLink
    | Redial
    | NodeChanged
)


# --- the machine


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Times are seconds."""

    period_s: float = 1.0
    """From one round to the next."""
    deadline_s: float = 0.5
    """Within which an answer counts."""
    misses_max: int = 3
    """Rounds missed in a row that make a member dead, a link worthless and this broker isolated."""
    members_max: int = 1024
    """Records held; beyond them the oldest tombstone goes, and without one a stranger is not taken in."""
    tombstone_s: float = 86400.0


@dataclass(frozen=True, slots=True)
class MembershipStatistics:
    """Cumulative, but ``members``, which is now."""

    rounds: int
    late_rounds: int
    """Void because this broker was late."""
    silent_rounds: int
    """Void because none of several peers answered."""
    refutations: int
    refused_records: int
    """Records beyond a bound: an incarnation out of reach, or a table that is full."""
    syncs: int
    """Tables exchanged because digests differed."""
    members: int


class _Member:
    """What this broker knows of another, beyond the record that all share."""

    __slots__ = (
        "differs_since",
        "judged",
        "link_misses",
        "linked",
        "misses",
        "own_incarnation",
        "record",
        "seen_linked",
        "since",
        "unjudged_rounds",
        "voided",
    )

    def __init__(self, record: MemberRecord, since: float) -> None:
        self.record = record
        self.since = since
        self.linked = False
        self.seen_linked = False  # in this broker's run
        self.own_incarnation = 0  # the greatest that it said itself, on its link
        self.judged = False
        self.voided = False  # unjudged by a void round, until it answers
        self.unjudged_rounds = 0
        self.misses = 0  # rounds in a row, cleared by a refutation
        self.link_misses = 0  # rounds in a row on this very link
        self.differs_since: tuple[bytes, bytes, float] | None = None


class Membership:
    """The machine; see the module. ``join`` says that this broker was told of others to find."""

    def __init__(
        self,
        me: MemberRecord,
        *,
        options: MembershipOptions | None = None,
        join: bool = False,
        rng: random.Random,
        now: float,
    ) -> None:
        self.options = options or MembershipOptions()
        self.me = me
        self.node_state = NodeState.JOINING if join else NodeState.READY
        self.round = 0
        self._since = now
        self._members: dict[int, _Member] = {}
        self._asked: dict[int, None] = {}
        self._answered: dict[int, None] = {}
        self._waiting = False
        self._deadline = now
        # Rounds of brokers started together should not fall into one instant.
        self._next_round = now + self.options.period_s * rng.random()
        self._began_late = False
        self._void_until = now
        self._silent_in_row = 0
        self._refute_due: float | None = None
        self._refuted_at = now - self.options.period_s
        self._fingerprints = 0  # of all living members, together
        self._toggle(me)
        self._late_rounds = 0
        self._silent_rounds = 0
        self._refutations = 0
        self._refused_records = 0
        self._syncs = 0

    # --- what others read

    @property
    def digest(self) -> bytes:
        """Eight bytes over id, incarnation and state of all living members; equal tables have equal ones."""
        return self._fingerprints.to_bytes(8, "little")

    def record(self, id: int) -> MemberRecord | None:
        """What this broker holds of a member."""
        if id == self.me.id:
            return self.me
        member = self._members.get(id)
        return None if member is None else member.record

    def records(self) -> list[MemberRecord]:
        """All of them, this broker first."""
        return [self.me, *(member.record for member in self._members.values())]

    def others(self) -> list[tuple[MemberRecord, float]]:
        """All other members and since when they are in their state."""
        return [(member.record, member.since) for member in self._members.values()]

    def since(self, id: int) -> float:
        """When a member came into its state."""
        return self._since if id == self.me.id else self._members[id].since

    def live(self) -> list[MemberRecord]:
        """Other members that are alive or suspect."""
        return [member.record for member in self._members.values() if member.record.in_view]

    def answers(self, id: int) -> bool:
        """Whether a member answered the last round on the link that it has."""
        member = self._members.get(id)
        return member is not None and member.linked and member.link_misses == 0

    def statistics(self) -> MembershipStatistics:
        return MembershipStatistics(
            rounds=self.round,
            late_rounds=self._late_rounds,
            silent_rounds=self._silent_rounds,
            refutations=self._refutations,
            refused_records=self._refused_records,
            syncs=self._syncs,
            members=len(self._members) + 1,
        )

    def next_deadline(self) -> float:
        """When to call `tick`."""
        if self.node_state is NodeState.LEAVING:
            return float("inf")
        due = self._next_round
        if self._waiting:
            due = min(due, self._deadline)
        if self._refute_due is not None:
            due = min(due, self._refute_due)
        return due

    # --- time

    def begin(self, peer_url: str, client_url: str, now: float) -> None:
        """This broker listens from now on; to be called once, before any link."""
        self.me = replace(self.me, peer_url=peer_url, client_url=client_url)
        self._next_round += now - self._since
        self._since = now

    def tick(self, now: float) -> list[Instruction]:
        """Do what is due: judge a round, begin the next, refute."""
        out: list[Instruction] = []
        if self.node_state is NodeState.LEAVING:
            return out
        if self._refute_due is not None and now >= self._refute_due:
            self._refute(now, out)
        if self._waiting and now >= self._deadline:
            self._judge(now, out)
        if now >= self._next_round:
            self._begin_round(now, out)
        return out

    def _begin_round(self, now: float, out: list[Instruction]) -> None:
        options = self.options
        late_s = now - self._next_round
        self._began_late = late_s > options.deadline_s / 2
        self._next_round = now + options.period_s if self._began_late else self._next_round + options.period_s
        self.round += 1
        self._asked = {id: None for id, member in self._members.items() if member.linked}
        self._answered = {}
        self._waiting = True
        self._deadline = now + options.deadline_s
        out.append(Survey(self.round, tuple(self._asked)))

    def answered(self, id: int, round: int, now: float) -> list[Instruction]:
        """A member answered a round; returns nothing if that round is over (then it does not count)."""
        out: list[Instruction] = []
        member = self._members.get(id)
        if not self._waiting or round != self.round or member is None or id not in self._asked:
            return out
        if now > self._deadline and not self._was_late(now):
            return out
        self._answered[id] = None
        member.judged, member.voided, member.unjudged_rounds = True, False, 0
        member.misses = member.link_misses = 0
        if self.node_state is NodeState.ISOLATED:
            self._silent_in_row = 0
            self._become(NodeState.READY, out)
        return out

    def is_open(self, round: int) -> bool:
        """Whether an answer to this round would still count."""
        return self._waiting and round == self.round

    def _was_late(self, now: float) -> bool:
        return self._began_late or now - self._deadline > self.options.deadline_s / 2

    def _judge(self, now: float, out: list[Instruction]) -> None:
        """The deadline of a round: void it or judge whoever did not answer."""
        self._waiting = False
        late = self._was_late(now)
        present = [m for m in self._members.values() if m.record.in_view]
        peers = [m for m in present if m.seen_linked]
        silent = not late and not self._answered and len(peers) >= 2
        if late:
            self._late_rounds += 1
        elif silent:
            self._silent_rounds += 1
            self._silent_in_row += 1
        else:
            self._silent_in_row = 0
        if not late:
            self._judge_links(out)
        if late or silent:
            self._void(now, out)
        else:
            for member in present if self._answered or not peers else peers:
                self._judge_member(member, now, out)
        if self._silent_in_row >= self.options.misses_max and self.node_state is NodeState.READY:
            self._become(NodeState.ISOLATED, out)
        self._bury(now, out)

    def _judge_links(self, out: list[Instruction]) -> None:
        """A link that brings no answers is worth nothing, whatever its member is: TCP would wait for minutes
        before it said so."""
        for id in self._asked:
            member = self._members.get(id)
            if member is None or not member.linked or id in self._answered:
                continue
            member.link_misses += 1
            if member.link_misses >= self.options.misses_max:
                out.append(DropLink(id, f"no answer in {member.link_misses} rounds"))

    def _judge_member(self, member: _Member, now: float, out: list[Instruction]) -> None:
        record = member.record
        if record.id in self._answered or (member.linked and record.id not in self._asked):
            return  # answered, or linked since the round began
        if not member.judged:
            member.unjudged_rounds += 1
            member.judged = member.unjudged_rounds >= UNJUDGED_ROUNDS_MAX
            return
        member.misses += 1
        if member.misses >= self.options.misses_max:
            self._accuse(member, State.DEAD, f"missed {member.misses} rounds", now, out)
            if member.linked:
                out.append(DropLink(record.id, "dead"))
        elif record.state is State.ALIVE:
            self._accuse(member, State.SUSPECT, "missed a round", now, out)

    def _accuse(self, member: _Member, state: State, reason: str, now: float, out: list[Instruction]) -> None:
        record = replace(member.record, state=state)
        self._replace(member, record, reason, self.me.id, now, out)
        out.append(Tell((record,)))

    def _void(self, now: float, out: list[Instruction]) -> None:
        self._void_until = now + self.options.period_s
        for member in self._members.values():
            if not member.linked:
                self._unjudge(member)
        out.append(Redial())

    def _unjudge(self, member: _Member) -> None:
        member.judged, member.voided = False, True
        member.unjudged_rounds = member.misses = 0

    def _bury(self, now: float, out: list[Instruction]) -> None:
        """Forget tombstones of a day ago; let go of links to those who left and did not hang up."""
        for id, member in list(self._members.items()):
            if member.record.in_view:
                continue
            if member.linked and member.record.state is State.LEFT:
                out.append(DropLink(id, "left"))
            elif not member.linked and now - member.since > self.options.tombstone_s:
                self._forget(member, out)

    def _forget(self, member: _Member, out: list[Instruction]) -> None:
        del self._members[member.record.id]
        self._toggle(member.record)
        out.append(MemberForgotten(member.record))

    # --- links

    def link_up(self, record: MemberRecord, now: float) -> list[Instruction]:
        """A link is admitted; ``record`` is what the member says of itself (ALIVE, by its HELLO).

        Also when it replaces an earlier link. If this broker holds something else of the member (that it is
        dead, for one), the table that is sent makes the member refute it.
        """
        out: list[Instruction] = []
        self._take(record, record.id, now, out)
        member = self._members.get(record.id)
        if member is None:
            out.append(DropLink(record.id, f"the table of {self.options.members_max} members is full"))
            return out
        member.linked = member.seen_linked = True
        member.link_misses = 0
        self._asked.pop(record.id, None)  # this round asked the link before
        if not member.voided:
            member.judged = True
        out.append(TellAll(record.id, reply=False))
        return out

    def link_down(self, id: int, now: float) -> list[Instruction]:
        """The link of a member is gone and no other took its place."""
        out: list[Instruction] = []
        member = self._members.get(id)
        if member is not None:
            member.linked = False
            member.differs_since = None
            if now < self._void_until:
                self._unjudge(member)  # lost while this broker was not itself, seen only now
                out.append(Redial())
        return out

    def joined(self) -> list[Instruction]:
        """The shell has heard of all it was told of: this broker is READY."""
        out: list[Instruction] = []
        if self.node_state is NodeState.JOINING:
            self._become(NodeState.READY, out)
        return out

    # --- news

    def heard(self, records: Iterable[MemberRecord], via: int, now: float) -> list[Instruction]:
        """Records that a linked member sent."""
        out: list[Instruction] = []
        for record in records:
            if record.id == self.me.id:
                self._hear_of_self(record, now, out)
            else:
                self._take(record, via, now, out)
        return out

    def heard_digest(self, id: int, digest: bytes, now: float) -> list[Instruction]:
        """The digest in a member's survey or answer. News is on its way for some milliseconds after every
        change, so only a difference that stays is worth an exchange of tables."""
        out: list[Instruction] = []
        member = self._members.get(id)
        if member is None:
            return out
        own = self.digest
        if digest == own:
            member.differs_since = None
        elif member.differs_since is None or member.differs_since[:2] != (digest, own):
            member.differs_since = (digest, own, now)
        elif now - member.differs_since[2] >= self.options.period_s / 2:
            member.differs_since = None
            self._syncs += 1
            out.append(TellAll(id, reply=True))
        return out

    def _hear_of_self(self, record: MemberRecord, now: float, out: list[Instruction]) -> None:
        mine = self.me
        if record.incarnation < mine.incarnation or record == mine:
            return
        if mine.state is State.LEFT and record.key < mine.key:
            return  # said before this broker left, which stands against it everywhere
        if record.incarnation > min(mine.incarnation + 2 * INCARNATION_STEP_MAX, INCARNATION_MAX - 2):
            self._refused_records += 1
            return
        self._set_self(replace(mine, incarnation=record.incarnation + 1), out)
        self._refutations += 1
        if now - self._refuted_at >= self.options.period_s / 2:
            self._refute(now, out)
        elif self._refute_due is None:
            self._refute_due = self._refuted_at + self.options.period_s / 2

    def _refute(self, now: float, out: list[Instruction]) -> None:
        self._refuted_at = now
        self._refute_due = None
        out.append(Tell((self.me,)))

    def _take(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        member = self._members.get(record.id)
        if member is None:
            self._take_in(record, via, now, out)
            return
        if via == record.id:
            member.own_incarnation = max(member.own_incarnation, record.incarnation)
        if not _outweighs(record, member.record):
            return
        if record.incarnation > member.own_incarnation + INCARNATION_STEP_MAX:
            self._refused_records += 1
            return
        reason = self._reason(member.record, record)
        self._replace(member, record, reason, via, now, out)
        out.append(Tell((record,), via))
        if not member.linked:
            return
        if record.state is State.LEFT and via == record.id:
            out.append(DropLink(record.id, "left"))
        elif record.state is State.DEAD and member.link_misses:
            out.append(DropLink(record.id, "dead"))

    def _take_in(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """A member never heard of."""
        if not record.in_view:
            return
        by_itself = via == record.id
        believed = by_itself or record.incarnation <= INCARNATION_STEP_MAX
        if not believed or record.incarnation >= INCARNATION_MAX or not self._make_room(out):
            self._refused_records += 1
            return
        member = _Member(record, now)
        member.own_incarnation = record.incarnation if by_itself else 0
        self._members[record.id] = member
        self._toggle(record)
        out.append(MemberChanged(record, State.UNKNOWN, "joined", via))
        out.append(Tell((record,), via))

    def _make_room(self, out: list[Instruction]) -> bool:
        if len(self._members) + 1 < self.options.members_max:
            return True
        buried = [m for m in self._members.values() if not m.record.in_view and not m.linked]
        if not buried:
            return False
        self._forget(min(buried, key=lambda member: (member.since, member.record.id)), out)
        return True

    def _reason(self, before: MemberRecord, after: MemberRecord) -> str:
        if after.state is State.LEFT:
            return "left"
        if after.state is not State.ALIVE:
            return "reported"
        if after.boot != before.boot:
            return "restarted"
        return "returned" if before.state is State.LEFT else "refuted"

    def _replace(
        self,
        member: _Member,
        record: MemberRecord,
        reason: str,
        via: int,
        now: float,
        out: list[Instruction],
    ) -> None:
        before = member.record
        member.record = record
        self._toggle(before)
        self._toggle(record)
        if record.state is State.ALIVE:
            member.misses = 0  # it lives, though perhaps not for us: see the module on bad links
            if not member.linked:  # who told us has it by way of a link: see the module on hearsay
                member.judged, member.unjudged_rounds = False, 0
        if record.state is not before.state or record.boot != before.boot:
            member.since = now
            out.append(MemberChanged(record, before.state, reason, via))
        elif record.peer_url != before.peer_url:
            out.append(MemberMoved(record))

    # --- this broker

    def set_urls(self, peer_url: str, client_url: str) -> list[Instruction]:
        """This broker is to be found elsewhere, or knows only now where."""
        out: list[Instruction] = []
        if (peer_url, client_url) != (self.me.peer_url, self.me.client_url):
            incarnation = self.me.incarnation + 1
            record = replace(self.me, incarnation=incarnation, peer_url=peer_url, client_url=client_url)
            self._set_self(record, out)
            out.append(Tell((self.me,)))
        return out

    def leave(self) -> list[Instruction]:
        """Say goodbye; from then on nothing is judged and nobody surveyed."""
        out: list[Instruction] = []
        self._set_self(replace(self.me, state=State.LEFT), out)
        self._become(NodeState.LEAVING, out)
        self._waiting = False
        out.append(Tell((self.me,)))
        return out

    def _set_self(self, record: MemberRecord, out: list[Instruction]) -> None:
        self._toggle(self.me)
        self._toggle(record)
        self.me = record
        out.append(SelfChanged(record))

    def _toggle(self, record: MemberRecord) -> None:
        """Into the digest, or out of it again. n members join in n changes, so no change walks over them."""
        if record.in_view:
            self._fingerprints ^= _fingerprint(record)

    def _become(self, state: NodeState, out: list[Instruction]) -> None:
        out.append(NodeChanged(self.node_state, state))
        self.node_state = state


def _fingerprint(record: MemberRecord) -> int:
    """Eight well-mixed bytes of what a merge decides by; XOR of them does not depend on the order."""
    packed = _DIGESTED.pack(record.id, record.incarnation, RANKS[record.state])
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
