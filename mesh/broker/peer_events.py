"""Handles reports of the broker's peering: writes rows of the event log and warnings, and informs the
exchange, the identity and the durable file.

`mesh.cluster.peering` decides and calls. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mesh.broker.durable_file import DurableFile
from mesh.broker.event_log import EventLog
from mesh.broker.identity import Identity, format_id, peers_worth_keeping
from mesh.broker.log_rows import link_fields, member_fields
from mesh.broker.notices import Notices
from mesh.cluster.durable_interest import HomeChanged
from mesh.cluster.membership import MemberRecord
from mesh.cluster.peering import Peering
from mesh.cluster.remote_interest import Change
from mesh.dataplane.exchange import Exchange
from mesh.errors import PeerError
from mesh.eventlog.rows import LinkRow, MemRow
from mesh.logs import log
from mesh.wire.capabilities import DURABLE, MARK, RECEIVED, Agreed
from protocols import Pipe


class PeerEvents:
    """The hooks of peering; `mesh.cluster.peering.PeeringHooks` documents each.

    ``peering`` is set before it starts, ``leaving`` once the broker leaves. ``settled`` is called when the
    broker may no longer be joining.
    """

    peering: Peering

    def __init__(
        self,
        exchange: Exchange,
        identity: Identity,
        durable_file: DurableFile,
        event_log: EventLog,
        notices: Notices,
        *,
        settled: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.leaving = False
        self._exchange = exchange
        self._identity = identity
        self._earlier_peers = identity.peers
        self._durable_file = durable_file
        self._log = event_log
        self._notices = notices
        self._settled = settled
        self._clock = clock
        self._left = False

    # --- members

    def member_changed(self, record: MemberRecord, from_state: str, reason: str, via: int) -> None:
        fields = member_fields(
            subject=record.id,
            name=record.name,
            boot=record.boot,
            incarnation=record.incarnation,
            from_state=str(from_state),
            to_state=str(record.state),
            reason=reason,
            via=via,
        )
        self._log.write(MemRow, fields)
        if record.id != self._identity.id:
            self._notices.member(record.name, str(from_state), str(record.state), reason)

    def self_changed(self, record: MemberRecord) -> None:
        self._log.rows.incarnation = record.incarnation
        if record.state == "left" and not self._left:
            self._left = True
            self.member_changed(record, "alive", "leaves", self._identity.id)
        self._remember()

    def live_changed(self, live: list[tuple[int, str]]) -> None:
        self._exchange.members_changed(live)
        self.tell_addresses()
        self._remember()

    def tell_addresses(self) -> None:
        """Tell clients the addresses of the other live brokers."""
        self._exchange.set_addresses(self.peering.client_urls())

    def _remember(self) -> None:
        """Save what the next start needs: this broker's incarnation and its peers' addresses."""
        if self.leaving:
            return  # peers leave one by one; the earlier ones are worth remembering
        peering = self.peering
        records = [member.record for member in peering.view.members() if not member.is_self]
        peers = peers_worth_keeping(records, self._earlier_peers, own_url=peering.url)
        self._identity.remember(peering.incarnation, peers)

    def state_changed(self, state: str) -> None:
        log.info("broker %s is %s", self._exchange.name, state)
        self._settled()
        self._notices.state(str(state))

    def may_route(self) -> None:
        self._exchange.open_gate(self._clock())

    # --- links

    def link_up(self, member: int, boot: int, name: str, pipe: Pipe, rtt_s: float, agreed: Agreed) -> None:
        self._log.write(LinkRow, link_fields(peer=member, dialed=pipe.dialed, up=True, reason="admitted"))
        self._notices.link_up(format_id(self._identity.id), format_id(member), name)
        self._exchange.peer_up(
            member,
            name,
            pipe,
            rtt_s,
            self._clock(),
            boot=boot,
            counts=agreed.has(RECEIVED),
            durable=agreed.has(DURABLE),
            marks=agreed.has(MARK),
        )

    def link_down(self, member: int, reason: str, dialed: bool) -> None:
        self._log.write(LinkRow, link_fields(peer=member, dialed=dialed, up=False, reason=reason))
        if not self.leaving:
            record = self.peering.membership.record(member)
            self._notices.link_lost(format_id(member) if record is None else record.name, reason)
        self._exchange.peer_down(member, self._clock())

    def link_frames(self, member: int, frames: list[bytes]) -> None:
        try:
            self._exchange.peer_frames(member, frames, self._clock())
        except PeerError as error:
            self.peering.drop_link(member, str(error))

    def link_writable(self, pipe: Pipe) -> None:
        self._exchange.pipe_writable(pipe, self._clock())

    # --- interest

    def interest_changed(self, member: int, change: Change) -> None:
        self._exchange.change_peer_interest(member, change.added, change.removed, known=change.complete)

    def absent_changed(self, names: Sequence[str]) -> None:
        self._exchange.set_absent(names)

    def separation_over(self) -> None:
        self._notices.separation_over()
        self._exchange.interrupted(self._clock())

    def barrier_reached(self, version: int, unreached: Sequence[str]) -> None:
        self._exchange.barrier_reached(version, unreached)

    # --- durable subscriptions

    def home_changed(self, change: HomeChanged) -> None:
        self._exchange.home_changed(change.home, change.name, change.client_url, change.added, change.removed)

    def unknown_homes_changed(self, names: Sequence[str]) -> None:
        self._exchange.set_unknown_homes(names)

    def durable_unsaved(self) -> None:
        self._durable_file.changed(self.peering.durable)

    def durable_reached(self, version: int, unreached: Sequence[str]) -> None:
        home = self._exchange.home
        if home is not None:
            home.barrier_reached(version, unreached)

    # --- rounds

    def heard_survey(self, member: int, round: int, now: float) -> None:
        self._log.heard(True, member, round, None, now)

    def heard_answer(self, member: int, round: int, rtt_s: float, now: float) -> None:
        self._log.heard(False, member, round, rtt_s, now)
        self._exchange.peer_rtt(member, rtt_s)
