"""The decisions of one broker about the others: a pure core, driven by a shell that has the links.

`mesh.cluster.membership` decides which brokers are in the mesh, `mesh.cluster.overlay` which to dial,
`mesh.cluster.joining` when this broker knows enough to route, and `mesh.cluster.news` what to tell each link.
This module joins them:

* all of them learn when a link comes up or goes down;
* a change of a member's state updates the overlay's targets and becomes news for the links;
* a joining broker is ready once it has heard everything that `joining` waits for, and has a link to every
  live member that it should have one to (`mesh.cluster.full_mesh`). Only the shell knows whether their
  interest has arrived as well, so it calls `settle`;
* after each input, due dials are made, from `begin` until this broker leaves;
* there is one deadline for everything: `next_deadline`, `tick`.

Inputs carry ``now``. Outputs are orders, which the shell executes one after the other. Executing one may
cause the next input (a dropped link is a link that is down). `mesh.cluster.peering` executes them with
sockets, `simulations.cores.meshed` with tuples on a simulated network.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeAlias

from mesh.cluster.full_mesh import neighbours_of
from mesh.cluster.joining import Joining
from mesh.cluster.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberMoved,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeChanged,
    NodeState,
    Redial,
    SelfChanged,
    Survey,
    Tell,
    TellAll,
)
from mesh.cluster.news import News
from mesh.cluster.overlay import Dial, Overlay, OverlayOptions


class KnownPeerLike(Protocol):
    """A peer of an earlier run."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Send:
    """Send these records to one linked member."""

    member: int
    records: tuple[MemberRecord, ...]
    reply: bool = False
    """The receiver sends its own table back."""
    last: bool = False
    """Send behind everything queued. The receiver may close the connection afterwards."""


@dataclass(frozen=True, slots=True)
class JoiningChanged:
    """`Joining.unheard` or `Joining.is_complete` may have changed. Call `ClusterCore.settle`."""


@dataclass(frozen=True, slots=True)
class MayRoute:
    """Published messages no longer have to wait. Ordered once, if this broker held them at its start."""


Order: TypeAlias = (
    Survey
    | Send
    | Dial
    | DropLink
    | MemberChanged
    | MemberForgotten
    | SelfChanged
    | NodeChanged
    | JoiningChanged
    | MayRoute
)


class ClusterCore:
    """See the module.

    Args:
        me: this broker's first record.
        join: URLs of brokers to join.
        known: the peers of an earlier run.
    """

    def __init__(
        self,
        me: MemberRecord,
        *,
        options: MembershipOptions,
        join: Sequence[str],
        known: Sequence[KnownPeerLike] = (),
        rng: random.Random,
        now: float,
    ) -> None:
        urls = [peer.url for peer in known]
        self.membership = Membership(me, options=options, join=bool(join or urls), rng=rng, now=now)
        self.joining = Joining(join, [(peer.id, peer.name) for peer in known], options.period_s)
        self.overlay = Overlay(
            me.id, join=join, known=urls, options=OverlayOptions.of(options.period_s), rng=rng, now=now
        )
        self._news = News()
        self._holds = self.joining.holds
        self._begun = False

    # --- time

    def begin(self, peer_url: str, client_url: str, now: float) -> list[Order]:
        """This broker listens at these addresses from now on. Call this once, before any link."""
        self.membership.begin(peer_url, client_url, now)
        self.joining.begin(now)
        self._begun = True
        out: list[Order] = [JoiningChanged()]
        self._dial(now, out)
        return out

    def next_deadline(self) -> float:
        """The time of the next call of `tick`. Not valid before `begin` or after `leave`."""
        return min(self._news.due, self._machines_due()) if self._is_active else inf

    @property
    def _is_active(self) -> bool:
        return self._begun and self.membership.node_state is not NodeState.LEAVING

    def _machines_due(self) -> float:
        return min(
            self.membership.next_deadline(), self.overlay.next_deadline(), self.joining.next_deadline()
        )

    def tick(self, now: float, late_s: float = 0.0) -> list[Order]:
        """Do the work that is due. ``late_s``: how late the shell's timer fired."""
        out: list[Order] = [Send(member, records) for member, records in self._news.take(now)]
        if not self._is_active or now < self._machines_due():
            # only news, which may be due many times a period and does not tell how late this broker is
            return out
        self.overlay.pace.ticked(late_s)
        self._resolve(self.membership.tick(now), now, out)
        if self.joining.tick(now):
            self._resolve(self.membership.joined(), now, out)
            out.append(JoiningChanged())
        if not self.joining.holds:
            self._release(out)
        self._dial(now, out)
        return out

    # --- links

    def link_up(self, record: MemberRecord, dial: Dial | None, now: float) -> list[Order]:
        """A link is admitted, perhaps in place of another. ``record`` is the member's own record. ``dial``
        made the link; None if the other side dialled."""
        self._news.link_up(record.id)
        self.overlay.link_up(record.id, dial, now)
        self.joining.linked(record.id, now)
        return self.act(self.membership.link_up(record, now), now)

    def link_down(self, member: int, now: float) -> list[Order]:
        """The link of a member has ended and no other took its place."""
        self._news.link_down(member)
        self.overlay.link_down(member, now)
        return self._and_dial(self.membership.link_down(member, now), now)

    def dial_failed(self, dial: Dial, now: float) -> list[Order]:
        """A dial made no link, or none with the expected member."""
        self.overlay.dial_failed(dial.url, dial.member, now)
        self.joining.keep(self.overlay.join_urls(), now)
        return self._and_dial([], now)

    # --- records from members

    def heard(self, records: Sequence[MemberRecord], via: int, now: float) -> list[Order]:
        """Records that a linked member sent."""
        out = self.act(self.membership.heard(records, via, now), now)
        if self.joining.table_heard(via, [record.id for record in records]):
            out.append(JoiningChanged())
        return out

    def asked_for_table(self, member: int) -> list[Order]:
        """A linked member sent its table and wants this broker's."""
        out: list[Order] = []
        self._tell_all(TellAll(member, reply=False), out)
        return out

    # --- this broker

    def settle(self, now: float, *, interest_held: bool = True) -> list[Order]:
        """Become ready if nothing is missing that a joining broker waits for.

        ``interest_held``: the interest of every live member is known. A shell without interest need not wait
        for it.
        """
        membership = self.membership
        if membership.node_state is not NodeState.JOINING or not interest_held or self.unlinked():
            return []
        if not self.joining.is_complete(membership.live_ids()):
            return []
        return self.act(membership.joined(), now)

    def unlinked(self) -> list[int]:
        """Live members that should have a link but have none."""
        membership, linked = self.membership, self._news.links
        wanted = neighbours_of(membership.me.id, membership.live_ids())
        return [id for id in wanted if id not in linked]

    def leave(self, now: float) -> list[Order]:
        """Say goodbye. From then on nobody is surveyed, dialled or told anything else."""
        self._news.drop()
        return self.act(self.membership.leave(), now)

    # --- instructions of membership

    def act(self, instructions: Iterable[Instruction], now: float) -> list[Order]:
        """Orders for the instructions of `membership`, which a shell may also call directly."""
        return self._and_dial(instructions, now) if instructions else []

    def _and_dial(self, instructions: Iterable[Instruction], now: float) -> list[Order]:
        out: list[Order] = []
        self._resolve(instructions, now, out)
        self._dial(now, out)
        return out

    def _resolve(self, instructions: Iterable[Instruction], now: float, out: list[Order]) -> None:
        overlay = self.overlay
        for instruction in instructions:
            match instruction:
                case Tell(records, except_member):
                    self._tell(records, except_member, now, out)
                case TellAll():
                    self._tell_all(instruction, out)
                case MemberMoved(record):
                    overlay.member_changed(record, now)
                case Redial():
                    overlay.redial(now)
                case MemberChanged(record):
                    overlay.member_changed(record, now)
                    out.append(instruction)
                case MemberForgotten(record):
                    overlay.forget(record.id)
                    out.append(instruction)
                case NodeChanged():
                    out.append(instruction)
                    self._release(out)
                case _:
                    out.append(instruction)

    def _tell(
        self, records: tuple[MemberRecord, ...], except_member: int, now: float, out: list[Order]
    ) -> None:
        if self.membership.node_state is NodeState.LEAVING:
            out += [Send(member, records, last=True) for member in self._news.links]
        else:
            self._news.tell(records, except_member, now)

    def _tell_all(self, wanted: TellAll, out: list[Order]) -> None:
        if self._news.told_all(wanted.member):
            out.append(Send(wanted.member, tuple(self.membership.records()), wanted.reply))

    def _release(self, out: list[Order]) -> None:
        if self._holds:
            self._holds = False
            self.joining.release()
            out.append(MayRoute())

    def _dial(self, now: float, out: list[Order]) -> None:
        if self._is_active:
            out += self.overlay.tick(now)
