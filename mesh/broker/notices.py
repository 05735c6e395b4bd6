"""Warnings for operators: deaths, lost links, open addresses, duplicate names, isolation and dropped
messages.

All are warnings, including the end of each trouble, since a log at its usual level must show that too. At
most `BURST` of a kind are written at once, and then one in `PAUSE_S`: a mesh that falls apart must not fill a
disk. Warnings left out are counted; the next one of the kind reports them. Names in the lines come from
others; the logger escapes them (`mesh.logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mesh.dataplane.counters import NO_LOSS
from mesh.logs import log
from protocols.pipe import CLOSED_BY_PEER

BURST: Final = 10
PAUSE_S: Final = 6.0
"""Ten a minute in the long run."""
OVER_S: Final = 30.0
"""A kind of warning that has not occurred for so long has ended."""
UNTOLD: Final = frozenset({*NO_LOSS, "leaving"})
"""Drop reasons without a warning: nobody lost a message, or its sender was told."""
ORDERLY: Final = frozenset({"left", "duplicate", "replaced"})
"""Reasons for a link's end that are no trouble."""
BACK_S: Final = 1.0
"""A link that its other end closed and that is up again within this time was replaced there."""

ADVICE: Final[Mapping[str, str]] = {
    "slow_subscriber": "a client does not keep up: let it read faster, or share its work",
    "slow_stock_subscriber": "a stock SUB socket does not keep up: let it read faster, or export less",
    "slow_link": "another broker does not keep up: check the network to it and its load",
    "subscriber_gone": "a client left before it had read its waiting messages",
    "link_down": "check the network to the broker whose link ended",
    "link_lost": "check the network to the broker whose link ended",
    "no_link": "check the network to the brokers without a link",
    "unfinished_body": "too many large bodies for stock SUB sockets came at once",
    "bad_topic": "a stock publisher sends messages without a valid topic",
}
"""Advice for the most frequent reason."""
ADVICE_ELSE: Final = "docs/reference/status.md explains the reasons"

NAMESAKES_MAX: Final = 256
"""Brokers already warned about. Beyond them the oldest is forgotten and may be reported again."""


class RateLimit:
    """A bucket of `BURST` lines that is refilled by one every `PAUSE_S`."""

    def __init__(self, now: float) -> None:
        self.left_out = 0
        self._lines = float(BURST)
        self._at = now

    def take(self, now: float) -> bool:
        """True if one more line may be written now. Otherwise it is counted in ``left_out``."""
        self._lines = min(float(BURST), self._lines + (now - self._at) / PAUSE_S)
        self._at = now
        if self._lines < 1.0:
            self.left_out += 1
            return False
        self._lines -= 1.0
        return True

    def is_over(self, now: float) -> bool:
        """True if lines were left out, and none has come for a while."""
        return self.left_out > 0 and now - self._at >= OVER_S


class Notices:
    """The warnings of one broker, whose name is in each of them. ``clock`` is monotonic, in seconds."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._limits: dict[str, RateLimit] = {}
        self._namesakes: dict[str, None] = {}
        """Ids of other brokers with this name that were already reported."""
        self._closed_links: dict[str, tuple[float, str]] = {}
        """Brokers that closed their link to this one: when, and the reason. Not reported yet."""
        self._isolated = False
        self._drops: Mapping[str, int] = {}

    def open_addresses(
        self,
        clients: Sequence[str],
        peers: Sequence[str],
        *,
        has_key: bool,
        anonymous: str,
        knows_principals: bool,
    ) -> None:
        """Report at the start whether addresses that other hosts may reach and that require no proof serve
        strangers. Only brokers are asked for a mesh key, so it does not close an address to clients."""
        if clients and anonymous != "everywhere" and not knows_principals:
            log.warning(
                "broker %s refuses clients of other hosts at %s, since none can prove its identity; give them"
                " keys, tokens or certificates, or set anonymous = 'everywhere' (mesh broker --anonymous"
                " everywhere) to let anybody publish and read",
                self._name,
                ", ".join(clients),
            )
        if clients and anonymous == "everywhere":
            log.warning(
                "broker %s serves clients of other hosts at %s without a certificate, so anybody who reaches"
                " it may publish and read%s: its setting anonymous is 'everywhere'; give clients keys, tokens"
                " or certificates, or keep strangers off the port",
                self._name,
                ", ".join(clients),
                " (only brokers are asked for the mesh key)" if has_key else "",
            )
        if peers and not has_key:
            log.warning(
                "broker %s lets brokers of other hosts join at %s without key or certificate, so anybody who"
                " reaches it may join, publish and read; set a mesh key or require certificates of peers",
                self._name,
                ", ".join(peers),
            )

    def member(self, name: str, from_state: str, to_state: str, reason: str) -> None:
        """Another broker changed its state."""
        if to_state == "dead":
            self._warn(
                "deaths",
                "%s is dead: %s; if nobody stopped it, check its process, host and network",
                name,
                reason,
            )
        elif from_state == "dead" and to_state == "alive":
            self._warn("deaths", "%s, which was dead, is alive again", name)

    def link_up(self, own_id: str, id: str, name: str) -> None:
        """There is a link to another broker. One with this broker's name is reported once: status and logs
        show two brokers as one, and clients cannot distinguish them by name."""
        self._closed_links.pop(name, None)
        if name != self._name or id in self._namesakes:
            return
        if len(self._namesakes) >= NAMESAKES_MAX:
            del self._namesakes[next(iter(self._namesakes))]
        self._namesakes[id] = None
        self._warn(
            "names",
            "another broker of this mesh has the same name: the id of this one is %s, of the other %s; give"
            " each its own name",
            own_id,
            id,
        )

    def link_lost(self, name: str, reason: str) -> None:
        """The link to another broker has ended. When two brokers dial each other at once, one of them
        replaces a link, and the other only sees that it was closed: `tick` reports it if it stays away."""
        if reason.endswith(CLOSED_BY_PEER):
            self._closed_links[name] = self._clock(), reason
        elif reason not in ORDERLY:
            self._warn_of_link(name, reason)

    def _warn_of_link(self, name: str, reason: str) -> None:
        self._warn(
            "lost links", "the link to %s is lost: %s; it is made again if both are alive", name, reason
        )

    def state(self, state: str) -> None:
        """This broker itself changed its state."""
        if state == "isolated":
            self._isolated = True
            self._warn("isolation", "no other broker answers; this broker is isolated: check its network")
        elif self._isolated and state == "ready":
            self._isolated = False
            self._warn("isolation", "other brokers answer again; this broker is no longer isolated")

    def separation_over(self) -> None:
        """Brokers that lived on apart from this one are back."""
        self._warn(
            "separations",
            "brokers that were cut off from this one are back; its subscribers may have missed messages",
        )

    def queue(self, name: str, kind: str, about: Mapping[str, Any]) -> None:
        """Trouble with a durable subscription, see `mesh.dataplane.queue_watch`. Without a name: with the
        journal of all of them, see `mesh.dataplane.room_watch`."""
        over = about.get("state") == "over"
        match kind:
            case "filling" if over:
                self._warn(
                    "filling disks", "the journal has room again: %.0f %% is taken", 100 * about["share"]
                )
            case "filling":
                self._warn(
                    "filling disks",
                    "the journal has taken %.0f %% of its room, %d bytes are left; make room, or drain %s",
                    100 * about["share"],
                    about["usable"],
                    ", ".join(about["queues"]) or "what waits",
                )
            case "full" if over:
                self._warn("full disks", "durable subscription %r stores messages again", name)
            case "full":
                self._warn("full disks", "no room on the disk for messages of durable subscription %r", name)
            case "stale" if over:
                self._warn("stale consumers", "work on durable subscription %r continues", name)
            case "stale" if not about["consumers"]:
                self._warn(
                    "stale consumers",
                    "%d messages of durable subscription %r wait, and nobody has settled any for %g s",
                    about["waiting"],
                    name,
                    about["for_s"],
                )
            case "stale":
                self._warn(
                    "stale consumers",
                    "consumers of durable subscription %r hold %d messages and settled none for %g s: %s",
                    name,
                    about["held"],
                    about["for_s"],
                    ", ".join(about["consumers"]),
                )
            case "damaged":
                self._warn(
                    "damage",
                    "the journal is damaged in %d blocks of durable subscription %r, which stay there and are"
                    " not delivered (rows %s): %s",
                    about["damaged"],
                    name,
                    ", ".join(map(str, about["rows"])) + ", ..." * (about["damaged"] > len(about["rows"])),
                    about["reason"],
                )
            case "poison":
                self._warn(
                    "dead letters",
                    "%d messages of durable subscription %r became dead letters, the last one because %s",
                    about["dead"],
                    name,
                    about["reason"],
                )

    def drops(self, drops: Mapping[str, int], interval_s: float) -> None:
        """Messages dropped since the start, by reason. Call this once an interval."""
        before, self._drops = self._drops, dict(drops)
        grown = {
            reason: count - before.get(reason, 0) for reason, count in drops.items() if reason not in UNTOLD
        }
        told = ", ".join(f"{reason} {count}" for reason, count in grown.items() if count > 0)
        if told:
            most = max(grown, key=grown.__getitem__)
            self._warn(
                "drops",
                "messages dropped within %g s, by reason: %s; %s",
                interval_s,
                told,
                ADVICE.get(most, ADVICE_ELSE),
            )

    def _warn(self, kind: str, sentence: str, *words: object) -> None:
        now = self._clock()
        limit = self._limits.get(kind)
        if limit is None:
            limit = self._limits[kind] = RateLimit(now)
        if not limit.take(now):
            return
        if limit.left_out:
            sentence += f" ({_left_out(limit.left_out, kind)} before this one)"
            limit.left_out = 0
        self._write(kind, sentence, *words)

    def tick(self) -> None:
        """Report links that stay away, and how many warnings were left out of kinds that have ended. Call
        this now and then."""
        now = self._clock()
        for name, (at, reason) in list(self._closed_links.items()):
            if now - at >= BACK_S:
                del self._closed_links[name]
                self._warn_of_link(name, reason)
        for kind, limit in self._limits.items():
            if limit.is_over(now):
                left_out, limit.left_out = limit.left_out, 0
                self._write(kind, f"{_left_out(left_out, kind)}; there are none now")

    def _write(self, kind: str, sentence: str, *words: object) -> None:
        about = {"broker": self._name, "kind": kind}
        log.warning("broker %s: " + sentence, self._name, *words, extra=about)


def _left_out(count: int, kind: str) -> str:
    if count == 1:
        return f"1 more warning of {kind} was left out"
    return f"{count} more warnings of {kind} were left out"
