"""The sum of what all parts of the data plane have counted. Pure.

Sessions, links and subscribers that ended have left their counters in the `Tally`. The counters of live ones
are added when somebody asks.
"""

from __future__ import annotations

from mesh.dataplane.counters import NO_LOSS, ExchangeStatistics, Tally
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.entry_broker import EntryBroker
from mesh.dataplane.foreign_subscribers import ForeignSubscribers
from mesh.dataplane.members import Members
from mesh.dataplane.ports import Port
from mesh.dataplane.requests import Requests
from mesh.dataplane.session_control import SessionControl


class Totals:
    """See the module."""

    def __init__(
        self,
        *,
        tally: Tally,
        sessions: SessionControl,
        subscribers: ForeignSubscribers,
        members: Members,
        requests: Requests,
        publishers: Publishers,
        entry: EntryBroker,
    ) -> None:
        self._tally = tally
        self._sessions = sessions
        self._subscribers = subscribers
        self._members = members
        self._requests = requests
        self._publishers = publishers
        self._entry = entry

    def traffic(self) -> tuple[int, int, int, int]:
        """Messages in and out, bytes in and out: the often requested part of `statistics`."""
        tally = self._tally
        messages_in, bytes_in = tally.messages_in, tally.bytes_in
        messages_out, bytes_out = tally.messages_out, tally.bytes_out
        for member in self._members.all():
            messages_in += member.messages_in
            bytes_in += member.bytes_in
            messages_out += member.messages_out
            bytes_out += member.bytes_out
        for session in self._sessions.all():
            messages_in += session.messages_in
            bytes_in += session.bytes_in
        for port in self._ports():
            messages_out += port.messages_out
            bytes_out += port.bytes_out
        for link in self._members.neighbours():
            messages_out += link.port.messages_out
            bytes_out += link.port.bytes_out
        return messages_in, messages_out, bytes_in, bytes_out

    def messages(self) -> tuple[int, int]:
        """Messages published by clients here and delivered to them. Cheap, like `traffic`."""
        unresolved = sum(client.unresolved for client in self._sessions.pipes.values())
        delivered = self._tally.delivered + sum(port.messages_out for port in self._ports()) - unresolved
        return self._tally.published, delivered

    def _ports(self) -> list[Port]:
        """Ports of clients and of subscribers of other protocols."""
        clients = [client.port for client in self._sessions.pipes.values()]
        return clients + [subscriber.port for subscriber in self._subscribers.by_pipe.values()]

    def statistics(self) -> ExchangeStatistics:
        """All counters. The cost grows with the number of subscriptions."""
        tally, requests = self._tally, self._requests
        sessions, takers = self._sessions.all(), self._subscribers.by_pipe.values()
        subscriptions = [sub for session in sessions for sub in session.subscriptions.values()]
        members, links = self._members.all(), self._members.neighbours()
        messages_in, messages_out, bytes_in, bytes_out = self.traffic()
        published, delivered = self.messages()
        unresolved = sum(client.unresolved for client in self._sessions.pipes.values())
        drops = self._drops(
            slow_subscriber=sum(subscription.dropped for subscription in subscriptions),
            slow_stock_subscriber=sum(taker.dropped for taker in takers),
            slow_link=sum(link.outlet.dropped for link in links),
        )
        return ExchangeStatistics(
            published=published,
            delivered=delivered,
            dropped=sum(count for reason, count in drops.items() if reason not in NO_LOSS),
            unwanted=tally.unwanted,
            msgs_in=messages_in,
            msgs_out=messages_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            sessions=len(sessions),
            subscriptions=len(subscriptions),
            drops=drops,
            refused=dict(tally.refused),
            taps=list(dict.fromkeys(" ".join(taker.patterns) for taker in takers if taker.patterns)),
            questions=requests.open_questions,
            publishers=len(self._publishers),
            storing=self._entry.storing,
            queued=sum(link.outlet.backlog.messages for link in links),
            unresolved=tally.unresolved
            + unresolved
            + sum(member.unresolved.at_most for member in members if member.unresolved),
        )

    def _drops(self, **of_takers: int) -> dict[str, int]:
        """Messages dropped, by reason."""
        drops, requests = dict(self._tally.drops), self._requests

        def add(reason: str, count: int) -> None:
            if count:
                drops[reason] = drops.get(reason, 0) + count

        add("answer_unknown", requests.unknown)
        add("not_asked", requests.not_asked)
        add("not_returned", requests.not_returned)
        add("publisher_forgotten", self._publishers.forgotten)
        for reason, count in of_takers.items():
            add(reason, count)
        for member in self._members.all():
            for reason, count in member.drops.items():
                add(reason, count)
        return drops
