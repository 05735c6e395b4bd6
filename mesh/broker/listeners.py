"""A broker's addresses: each has one shared listener, with every socket that a dialer may want behind it.

The protocol number in a dialer's first eight bytes selects the socket: those of the brokers
(`mesh.cluster.peering`), the clients' REP (sessions and stock requests), or the counterpart of a stock
subscriber or publisher. Other protocols are refused and counted. The number also identifies the dialer's
role, so `Listeners.admit` decides whether this address serves that role and whether it needs a certificate.
An address that cannot be bound ends the start with one sentence, which names the broker that listens there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mesh.access.door import Origin
from mesh.broker.certificate_dates import CertificateDates
from mesh.broker.origins import address_of, certificate_names, is_near
from mesh.cluster.own_address import is_loopback
from mesh.environment import DEFAULT_TCP_URL, default_ipc_url, runtime_folder
from mesh.errors import ConfigError, ListenError
from mesh.listen import DialerRole, Listen, is_secure
from protocols import (
    Pipe,
    PipeRefused,
    PipeView,
    Req0,
    SharedListener,
    Socket,
    SocketOptions,
    TlsConfig,
    TlsConfigError,
)
from protocols.errors import AddressError, AddressInUse, SPError
from protocols.transports.certificates import server_context

PROBE_TIMEOUT_S: Final = 0.5
GATHER_FROM: Final = 16
"""Refusals held back from which on new connections are read in groups."""
GATHER_S: Final = 0.1
"""How long a group is waited for, and with it each new client and broker meanwhile."""
ON_THIS_HOST: Final = ("ipc", "unix", "abstract", "inproc")


def default_urls(name: str | None) -> tuple[str, ...]:
    """The default addresses of a broker: loopback, and an ipc socket of this user.

    Raises `ListenError` if the folder for the socket belongs to another user.
    """
    folder = runtime_folder()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        owner = os.stat(folder).st_uid
    except OSError as error:
        raise ListenError(
            f"cannot make {folder} for the ipc socket: {error.strerror}; name an address"
        ) from error
    if owner != os.getuid():
        raise ListenError(f"{folder} belongs to another user (uid {owner}); remove it or name an address")
    return DEFAULT_TCP_URL, default_ipc_url(name)


def beyond_loopback(url: str) -> bool:
    """True for addresses that other hosts may reach."""
    return url.partition("://")[0] not in ON_THIS_HOST and not is_loopback(url)


class Listeners:
    """The listeners of one broker, not open yet.

    Args:
        options: of the connections they accept.
        tls: used by TLS addresses that have none of their own.
        clock: monotonic, in seconds.
    """

    def __init__(self, options: SocketOptions, tls: TlsConfig | None, clock: Callable[[], float]) -> None:
        self.certificate_dates = CertificateDates(clock)
        self._options = options
        self._tls = tls
        self._listeners: dict[str, BoundListener] = {}
        self._turned_away: dict[str, int] = {}
        self._gather_s = 0.0

    @property
    def urls(self) -> list[str]:
        """All addresses, as bound, in the order in which they were given."""
        return list(self._listeners)

    def urls_for(self, role: DialerRole) -> list[str]:
        """The addresses that serve a role."""
        return [url for url, bound in self._listeners.items() if role in bound.listen.serves]

    def open_to(self, role: DialerRole) -> list[str]:
        """Addresses that other hosts may reach and that require no certificate or other proof from this
        role."""
        return [
            url
            for url in self.urls_for(role)
            if beyond_loopback(url)
            and role not in self._listeners[url].certificates
            and not (role == "clients" and self._listeners[url].listen.require_proof)
        ]

    def admit(self, role: DialerRole, pipe: Pipe | PipeView) -> None:
        """Raises `PipeRefused` for a dialer at the wrong address, or without a required certificate."""
        if pipe.dialed:
            return
        bound = self._listeners.get(pipe.url)
        if bound is None:
            raise PipeRefused("this broker is starting")
        if role not in bound.listen.serves:
            other = self.urls_for(role)
            hint = f"; {role} are served at {', '.join(other)}" if other else ""
            raise PipeRefused(f"{pipe.url} does not serve {role}{hint}", reason="role")
        if role in bound.certificates and pipe.identity is None:
            raise PipeRefused(
                f"{pipe.url} wants a certificate of {role}; none was shown", reason="certificate"
            )

    def origin_of(self, pipe: Pipe | PipeView) -> Origin:
        """The origin of a client's connection."""
        bound = self._listeners.get(pipe.url)
        return Origin(
            names=certificate_names(pipe.identity),
            near=is_near(pipe),
            host=address_of(pipe.remote_address),
            must_prove=bound is not None and bound.listen.require_proof,
            url=pipe.url,
        )

    async def open(self, listens: Sequence[Listen], sockets: Sequence[Socket]) -> None:
        """Listen on all addresses, for all sockets. Raises `ListenError` and then leaves none open."""
        for listen in listens:
            url = listen.url
            tls = listen.tls or self._tls
            certificates = listen.certificates_of(tls) if tls is not None and is_secure(url) else ()
            options = replace(self._options, tls=_verifying(tls, certificates, listen.serves))
            listener = SharedListener(url, options=options)
            for socket in sockets:
                await socket.listen(listener)
            try:
                await listener.start()
            except AddressInUse as error:
                ours = any(bound.listen.url == url for bound in self._listeners.values())
                await self.aclose()
                if ours:
                    raise ListenError(f"cannot listen on {url} twice; name it once") from error
                raise ListenError(f"cannot listen on {url}: {await who_listens(url)}") from error
            except (AddressError, OSError) as error:
                await self.aclose()
                raise ListenError(f"cannot listen on {url}: {_without(str(error), url)}") from error
            self._listeners[listener.url] = BoundListener(listen, listener, certificates)
            if tls is not None and is_secure(url):
                self.certificate_dates.watch(listener.url, tls)

    def gather(self, refusals_held: int) -> None:
        """Read new connections in groups while many wrong proofs arrive. A hundred a second then cost about a
        third less, since most of the cost is waking up; nobody is kept out."""
        interval_s = GATHER_S if refusals_held >= GATHER_FROM else 0.0
        if interval_s != self._gather_s:
            self._gather_s = interval_s
            for bound in self._listeners.values():
                bound.listener.gather(interval_s)

    def count_refused(self, reason: str) -> None:
        """Count a connection that was accepted only to be told why it is refused."""
        self._turned_away[reason] = self._turned_away.get(reason, 0) + 1

    def refused(self) -> dict[str, int]:
        """Connections that were refused, by reason, over all listeners."""
        totals = dict(self._turned_away)
        for bound in self._listeners.values():
            statistics = bound.listener.statistics()
            for reason, count in (*statistics.refused.items(), *statistics.broken.items()):
                totals[reason] = totals.get(reason, 0) + count
        return totals

    def check_certificates(self) -> int:
        """Read the certificates of all TLS addresses as the next connection will. Returns how many there are.

        Raises `ConfigError` for files that cannot be used. The listeners then keep the former ones.
        """
        count = 0
        for url, bound in self._listeners.items():
            tls = bound.listen.tls or self._tls
            if tls is None or not is_secure(url):
                continue
            try:
                server_context(_verifying(tls, bound.certificates, bound.listen.serves) or tls)
            except TlsConfigError as error:
                raise ConfigError(f"{url}: {error}") from error
            count += 1
        return count

    async def aclose(self) -> None:
        for bound in self._listeners.values():
            await bound.listener.aclose()


@dataclass(frozen=True, slots=True)
class BoundListener:
    """One listener. ``certificates``: the roles that must show one."""

    listen: Listen
    listener: SharedListener
    certificates: tuple[DialerRole, ...]


def _verifying(
    tls: TlsConfig | None, certificates: tuple[DialerRole, ...], serves: tuple[DialerRole, ...]
) -> TlsConfig | None:
    """If every role must show a certificate, TLS itself refuses connections without one. If only one role
    must, `Listeners.admit` does, since the role is known only after the handshake. Clients are asked for a
    certificate wherever an authority is trusted, since it may prove their principal."""
    if tls is None or tls.verify is not None:
        return tls
    if certificates == serves:
        return replace(tls, verify="required")
    asks = certificates or (tls.has_authority and "clients" in serves)
    return replace(tls, verify="optional" if asks else "none")


def _without(sentence: str, url: str) -> str:
    """The transport's sentence without the address, which the surrounding sentence already names."""
    for opening in (f"cannot listen at {url}: ", f"{url} is "):
        if sentence.startswith(opening):
            return ("it is " if opening.endswith(" is ") else "") + sentence.removeprefix(opening)
    return sentence


async def who_listens(url: str) -> str:
    """The end of a sentence: it names the broker that uses an address."""
    status = await status_at(url)
    holder = "another program"
    if status is not None:
        holder = f"broker {status['name']} of mesh {status['mesh']} (process {status['pid']})"
    return f"{holder} listens there; stop it or choose another address"


async def status_at(
    url: str, tls: TlsConfig | None = None, timeout_s: float = PROBE_TIMEOUT_S
) -> dict[str, Any] | None:
    """The status of the broker at an address, requested as a stock client would. None without an answer."""
    try:
        async with Req0(options=SocketOptions(resend_s=None, tls=tls)) as socket:
            await socket.dial_once(url, timeout=timeout_s)
            await socket.send(b"$sys.status")
            status = json.loads(await socket.recv(timeout=timeout_s))
    except (SPError, OSError, ValueError):
        return None
    known = isinstance(status, dict) and all(key in status for key in ("name", "mesh", "pid"))
    return status if known else None
