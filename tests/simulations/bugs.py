"""Bugs that are put into production brokers on purpose, for the checks to find.

Each is a function that takes a `pytest.MonkeyPatch` and breaks one thing with it. `EVERYWHERE` are those that
break a mesh of any size and shape; `tests.simulations.sensitivity` counts how many seeds find each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pytest

from mesh.broker.event_log import EventLog
from mesh.broker.inspection import Inspection
from mesh.broker.peer_events import PeerEvents
from mesh.cluster.link import Link
from mesh.cluster.link_dialer import LinkDialer
from mesh.cluster.links import LinkManager
from mesh.cluster.membership import (
    Instruction,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeState,
    State,
    Tell,
    belief,
)
from mesh.cluster.membership.belief import Belief
from mesh.cluster.membership.judgement import Judgement
from mesh.cluster.membership.own_record import OwnRecord
from mesh.cluster.membership.roster import Member, Roster
from mesh.cluster.overlay import Dial, Overlay
from mesh.cluster.remote_interest import InterestTable
from mesh.dataplane import intake, members
from mesh.dataplane.deduplication import Publisher
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.intake import Intake
from mesh.dataplane.outlets import Outlet
from mesh.wire import member_record

PutIn = Callable[[pytest.MonkeyPatch], None]


def each_round(act: Callable[[Judgement, float, list[Instruction]], None]) -> PutIn:
    """A bug that appears with every round from the tenth on."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        begin_round = Judgement._begin_round

        def broken(self: Judgement, now: float, out: list[Instruction]) -> None:
            begin_round(self, now, out)
            if self.round >= 10:
                act(self, now, out)

        patch.setattr(Judgement, "_begin_round", broken)

    return put_in


def about(name: str, act: Callable[[Judgement, Member, float, list[Instruction]], None]) -> PutIn:
    """A bug in the others' view of one broker."""

    def act_on_it(self: Judgement, now: float, out: list[Instruction]) -> None:
        for member in list(self._roster.members.values()):
            if member.record.name == name:
                act(self, member, now, out)

    return each_round(act_on_it)


def instead(owner: Any, name: str, replacement: Any) -> PutIn:
    return lambda patch: patch.setattr(owner, name, replacement)


def both(*bugs: PutIn) -> PutIn:
    def put_in(patch: pytest.MonkeyPatch) -> None:
        for bug in bugs:
            bug(patch)

    return put_in


# --- members


def ignore_the_third(patch: pytest.MonkeyPatch) -> None:
    take = Belief.take

    def deaf(self: Belief, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        if not (self._own.record.name == "broker-1" and record.name == "broker-3"):
            take(self, record, via, now, out)

    patch.setattr(Belief, "take", deaf)


def lower(self: Judgement, member: Member, now: float, out: list[Instruction]) -> None:
    member.record = replace(member.record, incarnation=member.record.incarnation - 1)


def raise_it(self: Judgement, member: Member, now: float, out: list[Instruction]) -> None:
    member.record = replace(member.record, incarnation=member.record.incarnation + 1)


def suspect(self: Judgement, member: Member, now: float, out: list[Instruction]) -> None:
    if member.record.state is State.ALIVE and self.round == 12:
        self._accuse(member, State.SUSPECT, "a bug", now, out)


def kill(self: Judgement, member: Member, now: float, out: list[Instruction]) -> None:
    if member.record.state is State.ALIVE and self.round == 12:
        self._accuse(member, State.DEAD, "a bug", now, out)


def bid_farewell(self: Judgement, member: Member, now: float, out: list[Instruction]) -> None:
    if self.round == 12:
        left = replace(member.record, state=State.LEFT)
        self._roster.replace(member, left, "a bug", self._own.record.id, now, out)


def _believe_it(self: OwnRecord, record: MemberRecord, now: float, out: list[Instruction]) -> None:
    if record.state is not State.LEFT:
        self.say(replace(self.record, state=record.state), out)


def accuse_in_void_rounds(patch: pytest.MonkeyPatch) -> None:
    void = Judgement._void

    def broken(self: Judgement, now: float, out: list[Instruction]) -> None:
        void(self, now, out)
        for member in list(self._roster.members.values()):
            if member.record.state is State.ALIVE:
                self._accuse(member, State.SUSPECT, "a bug", now, out)

    patch.setattr(Judgement, "_void", broken)


def leave_in_silence(patch: pytest.MonkeyPatch) -> None:
    leave = Membership.leave
    patch.setattr(
        Membership, "leave", lambda self: [each for each in leave(self) if not isinstance(each, Tell)]
    )


def begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Without the previous incarnation, and ignoring what others say of it."""
    begin = Membership.__init__

    def broken(self: Membership, me: MemberRecord, **options: Any) -> None:
        begin(self, replace(me, incarnation=1), **options)

    patch.setattr(Membership, "__init__", broken)
    deaf(patch)


def _forget_members_in_state(state: State) -> PutIn:
    def put_in(patch: pytest.MonkeyPatch) -> None:
        expire = Roster.expire

        def broken(self: Roster, now: float, out: list[Instruction]) -> None:
            for member in list(self.members.values()):
                if member.record.state is state and not member.linked:
                    self.forget(member, out)
            expire(self, now, out)

        patch.setattr(Roster, "expire", broken)

    return put_in


def like_no_other(patch: pytest.MonkeyPatch) -> None:
    """Equal tables have unequal digests."""
    begin = Roster.__init__
    numbers = count(1)

    def broken(self: Roster, options: MembershipOptions) -> None:
        begin(self, options)
        self._fingerprints = next(numbers)

    patch.setattr(Roster, "__init__", broken)


def judge_late(patch: pytest.MonkeyPatch) -> None:
    """Only every second deadline judges anybody."""
    judge = Judgement._judge_member

    def broken(self: Judgement, *given: Any) -> None:
        if self.round % 2:
            judge(self, *given)

    patch.setattr(Judgement, "_judge_member", broken)


def keep_suspecting(patch: pytest.MonkeyPatch) -> None:
    """A refutation of a suspicion is ignored."""
    take = Belief.take

    def broken(self: Belief, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        held = self._roster.members.get(record.id)
        if held is None or held.record.state is not State.SUSPECT or record.state is not State.ALIVE:
            take(self, record, via, now, out)

    patch.setattr(Belief, "take", broken)


def kill_after_one_miss(patch: pytest.MonkeyPatch) -> None:
    judge = Judgement._judge_member

    def broken(self: Judgement, member: Member, *given: Any) -> None:
        member.misses = max(member.misses, self.options.misses_max - 1)
        judge(self, member, *given)

    patch.setattr(Judgement, "_judge_member", broken)


def never_late(patch: pytest.MonkeyPatch) -> None:
    """A broker that was late itself still judges the others; one that heard nobody does not."""
    patch.setattr(Judgement, "_was_late", lambda self, now: False)


def judge_unheard(self: Judgement, now: float, out: list[Instruction]) -> None:
    """Instead of voiding a round: a broker that was late, or heard nobody, still judges the others."""
    for member in list(self._roster.members.values()):
        if member.record.in_view and member.record.id not in self._answered:
            self._judge_member(member, now, out)


def hurry(self: Judgement, now: float, out: list[Instruction]) -> None:
    self._next_round = now + 0.02


def hoard(self: Judgement, now: float, out: list[Instruction]) -> None:
    ghost = replace(self._own.record, id=self._own.record.id ^ self.round, name="a ghost", state=State.DEAD)
    self._roster.members[ghost.id] = Member(ghost, now)


blind: Final = instead(Judgement, "_judge_member", lambda *_: None)
deaf: Final = instead(OwnRecord, "hear", lambda *_: None)
believe_all: Final = instead(OwnRecord, "hear", _believe_it)
last_come: Final = both(
    instead(member_record, "outweighs", lambda new, old: True),
    instead(belief, "outweighs", lambda new, old: True),
)
forget_the_dead: Final = _forget_members_in_state(State.DEAD)
forget_members_that_left: Final = _forget_members_in_state(State.LEFT)


def never_isolated(patch: pytest.MonkeyPatch) -> None:
    become = OwnRecord.become

    def broken(self: OwnRecord, state: NodeState, out: list[Instruction]) -> None:
        if state is not NodeState.ISOLATED:
            become(self, state, out)

    patch.setattr(OwnRecord, "become", broken)


# --- links


def dial_for_a_while(patch: pytest.MonkeyPatch) -> None:
    """And later nobody is missed."""
    begin = LinkDialer.begin
    began: dict[LinkDialer, float] = {}

    def broken(self: LinkDialer, dial: Dial) -> None:
        now = asyncio.get_running_loop().time()
        if now - began.setdefault(self, now) < 3:
            begin(self, dial)

    patch.setattr(LinkDialer, "begin", broken)
    blind(patch)


def dial_who_left(patch: pytest.MonkeyPatch) -> None:
    """About once a second."""
    dials = Overlay.tick
    due: dict[Overlay, float] = {}

    def tick(self: Overlay, now: float) -> list[Dial]:
        if now < due.get(self, now):
            return dials(self, now)
        due[self] = now + 1.0
        left = [each for each in self._records.values() if each.state is State.LEFT and each.peer_url]
        return [*dials(self, now), *(Dial(each.peer_url, each.id) for each in left)]

    patch.setattr(Overlay, "tick", tick)


def never_redial(patch: pytest.MonkeyPatch) -> None:
    """A broker does not dial again a member that once had a link to it."""
    linked = Overlay.link_up
    dials = Overlay.tick
    met: dict[Overlay, dict[int, None]] = {}

    def link_up(self: Overlay, id: int, *given: Any) -> None:
        met.setdefault(self, {})[id] = None
        linked(self, id, *given)

    def tick(self: Overlay, now: float) -> list[Dial]:
        return [each for each in dials(self, now) if each.member not in met.get(self, {})]

    patch.setattr(Overlay, "link_up", link_up)
    patch.setattr(Overlay, "tick", tick)


def keep_dead_links(patch: pytest.MonkeyPatch) -> None:
    """A link ends by a goodbye, or when TCP gives up."""
    end = LinkManager.end

    def broken(self: LinkManager, link: Link, reason: str, **how: Any) -> None:
        if reason != "dead" and not reason.startswith(("no answer", "nothing came")):
            end(self, link, reason, **how)

    patch.setattr(LinkManager, "end", broken)


# --- messages


def _every(number: int, act: Callable[..., Any]) -> PutIn:
    """Every nth outgoing block is treated differently."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        offer = Outlet.offer
        numbers = count(1)

        def broken(self: Outlet, *given: Any) -> bool:
            if next(numbers) % number:
                return offer(self, *given)
            return bool(act(offer, self, *given))

        patch.setattr(Outlet, "offer", broken)

    return put_in


def _flipped(offer: Callable[..., bool], outlet: Outlet, block: Any, *given: Any) -> bool:
    return offer(outlet, bytes(block[:-1]) + bytes([block[-1] ^ 1]), *given)


def lose_one_in(number: int) -> PutIn:
    return _every(number, lambda offer, outlet, *given: True)


send_twice: Final = _every(100, lambda offer, outlet, *given: offer(outlet, *given) and offer(outlet, *given))
alter_some: Final = _every(100, _flipped)


def deliver_twice(patch: pytest.MonkeyPatch) -> None:
    """A block that came by another way is not recognised, and one block in a hundred comes by two."""

    def reserve(self: Publisher, sequence: int, count: int) -> bool:
        self._reserved[sequence] = sequence + count
        return True

    patch.setattr(Publisher, "reserve", reserve)
    patch.setattr("mesh.wire.blocks.Seen.add", lambda self, *given: True)  # the clients'
    send_twice(patch)


def lose_at_redial(patch: pytest.MonkeyPatch) -> None:
    """Blocks that waited for a link, or were in flight, when it was lost are dropped and not counted."""
    drop = members.Member.drop

    def broken(self: members.Member, reason: str, messages: int) -> None:
        if reason not in ("link_down", "link_lost"):
            drop(self, reason, messages)

    patch.setattr(members.Member, "drop", broken)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """A broker acknowledges a block on arrival and routes it half a second later."""
    hand_out = Intake.hand_out

    def broken(self: Intake, takers: Any, block: Any, count: int, hops: int, *given: Any) -> None:
        if hops:
            hand_out(self, takers, block, count, hops, *given)
            return
        loop = asyncio.get_running_loop()
        kept = bytes(block)
        loop.call_later(0.5, lambda: hand_out(self, takers, kept, count, hops, *given[:-1], loop.time()))

    patch.setattr(Intake, "hand_out", broken)


def acknowledge_one_less(patch: pytest.MonkeyPatch) -> None:
    """The range that acknowledges a block of several messages ends before the last of them."""
    merge = intake._merge

    def broken(ranges: list[list[int]], first: int, last: int) -> None:
        merge(ranges, first, max(first, last - 1))

    patch.setattr(intake, "_merge", broken)


def delay_all(patch: pytest.MonkeyPatch) -> None:
    """Frames over links wait for half a second, from the eighth second of data on."""
    received = Exchange.peer_frames
    began: dict[Exchange, float] = {}

    def broken(self: Exchange, member: int, frames: list[bytes], now: float) -> None:
        loop = asyncio.get_running_loop()
        if now - began.setdefault(self, now) < 8:
            received(self, member, frames, now)
        else:
            loop.call_later(0.5, lambda: received(self, member, frames, loop.time()))

    patch.setattr(Exchange, "peer_frames", broken)


def forget_a_pattern(patch: pytest.MonkeyPatch) -> None:
    received = InterestTable.whole_received

    def broken(self: InterestTable, member: int, *parts: Any) -> bool:
        whole = received(self, member, *parts)
        self._remote[member].patterns.clear()
        return whole

    patch.setattr(InterestTable, "whole_received", broken)


# --- logs


def tell_twice(patch: pytest.MonkeyPatch) -> None:
    told = PeerEvents.member_changed

    def broken(self: PeerEvents, *news: Any) -> None:
        told(self, *news)
        told(self, *news)

    patch.setattr(PeerEvents, "member_changed", broken)


def drop_rows(patch: pytest.MonkeyPatch) -> None:
    """One row in a hundred is numbered and never written to the log."""
    heard = EventLog.heard
    numbers = count(1)

    def broken(self: EventLog, *row: Any) -> None:
        if next(numbers) % 100:
            heard(self, *row)
        else:
            self.rows.seq += 1

    patch.setattr(EventLog, "heard", broken)


def tell_no_suspicion(patch: pytest.MonkeyPatch) -> None:
    """Changes to suspect are in no log."""
    told = PeerEvents.member_changed

    def broken(self: PeerEvents, record: MemberRecord, *news: Any) -> None:
        if record.state is not State.SUSPECT:
            told(self, record, *news)

    patch.setattr(PeerEvents, "member_changed", broken)


def count_twice(patch: pytest.MonkeyPatch) -> None:
    heard = PeerEvents.heard_answer

    def broken(self: PeerEvents, *answer: Any) -> None:
        heard(self, *answer)
        heard(self, *answer)

    patch.setattr(PeerEvents, "heard_answer", broken)


def misnumber(patch: pytest.MonkeyPatch) -> None:
    """One answer in a hundred is mistaken for one to the next round."""
    heard = PeerEvents.heard_answer
    numbers = count(1)

    def broken(self: PeerEvents, member: int, round: int, *when: float) -> None:
        heard(self, member, round if next(numbers) % 100 else round + 1, *when)

    patch.setattr(PeerEvents, "heard_answer", broken)


count_no_strangers: Final = instead(Inspection, "_refused", lambda *_: {})


# --- resources


def leak_timers(self: Judgement, now: float, out: list[Instruction]) -> None:
    for _ in range(5):
        asyncio.get_running_loop().call_later(1e6, print)


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that needs no broker of a certain name."""

    sentence: str
    put_in: PutIn


EVERYWHERE: Final[dict[str, Bug]] = {
    "blind": Bug("nobody is ever judged", blind),
    "late": Bug("only every second round judges", judge_late),
    "hasty": Bug("one missed round is a death", kill_after_one_miss),
    "late-judges": Bug("a late broker still judges the others", never_late),
    "self-righteous": Bug(
        "a broker that was late, or heard nobody, still judges the others",
        instead(Judgement, "_void", judge_unheard),
    ),
    "deaf": Bug("nobody answers an accusation", deaf),
    "grudging": Bug("a suspicion is never withdrawn", keep_suspecting),
    "forgets-dead": Bug("the dead are forgotten at once", forget_the_dead),
    "forgets-left": Bug("a member that left is forgotten at once", forget_members_that_left),
    "silent-leave": Bug("a member that leaves says no goodbye", leave_in_silence),
    "anew": Bug("a restarted broker begins with the first incarnation", begin_anew),
    "dials-left": Bug("a member that left is dialled again", dial_who_left),
    "never-redials": Bug("a member that was linked once is not dialled again", never_redial),
    "keeps-dead-links": Bug("a link that delivers nothing is kept", keep_dead_links),
    "loses": Bug("one block in a hundred is lost", lose_one_in(100)),
    "loses-few": Bug("one block in a thousand is lost", lose_one_in(1000)),
    "twice": Bug("one block in a hundred is delivered twice", deliver_twice),
    "alters": Bug("a bit of one block in a hundred is flipped", alter_some),
    "forgets-interest": Bug("the interest of others is forgotten when it is sent whole", forget_a_pattern),
    "drops-at-redial": Bug("messages in flight on a lost link are dropped without a counter", lose_at_redial),
    "early-ack": Bug("a block is acknowledged half a second before it is routed", acknowledge_early),
    "off-by-one": Bug("the last message of a batch is not acknowledged", acknowledge_one_less),
    "delays": Bug("frames over links wait for half a second", delay_all),
    "ignores-the-third": Bug("broker-1 takes no news of broker-3", ignore_the_third),
    "lowers": Bug("others record a lesser incarnation of broker-2 each round", about("broker-2", lower)),
    "raises": Bug("others record a greater incarnation of broker-2 each round", about("broker-2", raise_it)),
    "suspects": Bug("broker-2 is suspected once without a cause", about("broker-2", suspect)),
    "kills": Bug("broker-2 is declared dead once without a cause", about("broker-2", kill)),
    "bids-farewell": Bug("others record once that broker-2 left", about("broker-2", bid_farewell)),
    "believes-all": Bug("a broker believes what others say of it", believe_all),
    "void-accuses": Bug("a void round makes everybody a suspect", accuse_in_void_rounds),
    "like-no-other": Bug("equal tables have unequal digests", like_no_other),
    "last-come": Bug("the last news wins, whatever its incarnation", last_come),
    "hurries": Bug("a round begins every 20 ms", each_round(hurry)),
    "hoards": Bug("each round adds a member that nobody knows", each_round(hoard)),
    "never-isolated": Bug("a broker that hears nobody is not isolated", never_isolated),
    "dials-for-a-while": Bug("nobody is dialled after three seconds, nor judged", dial_for_a_while),
    "sends-twice": Bug("one block in a hundred is sent twice, and recognised", send_twice),
    "tells-twice": Bug("each change of a member is in the log twice", tell_twice),
    "counts-twice": Bug("each answer is in the log twice", count_twice),
    "counts-no-strangers": Bug("refused connections are not counted", count_no_strangers),
    "drops-rows": Bug("one row of a heartbeat in a hundred is missing from the logs", drop_rows),
    "hides-suspicions": Bug("changes to suspect are in no log", tell_no_suspicion),
    "misnumbers": Bug("one answer in a hundred is mistaken for one to the next round", misnumber),
    "leaks": Bug("five timers a round are never cancelled", each_round(leak_timers)),
}


@contextmanager
def with_bug(put_in: PutIn) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        put_in(patch)
        yield
