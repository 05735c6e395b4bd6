"""The door of one broker: it tells which principal a client is, admits it, and counts what it holds. Pure.

* `Origin` describes a connection before the client says anything.
* `Door.unproven` identifies a client that names no proof: by its certificate, or as anonymous.
* `Door.claim` and `Door.proven` identify a client that proves its identity: the first before the challenge,
  the second with the answer to it.
* `Standing` holds the rights and counts of a principal at this broker, over all its sessions. A `Guest` is
  one session or connection.

A reload (`Door.set_policy`) changes standings in place, so that the rights of sessions that exist change with
it. `Door.is_valid` is False for a guest whose proof no longer makes it the same principal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from mesh.access import keys, proofs
from mesh.access.attempts import Attempts
from mesh.access.principals import ANONYMOUS, CERTIFIED, GIVEN, Policy, Principal, everything
from mesh.access.rate import Bucket, Paced
from mesh.access.rights import Rights
from mesh.errors import SessionError

REMOTE_ANONYMOUS: Final = (
    "this broker serves no anonymous clients of other hosts: prove who you are with a key, a token or a"
    " certificate, or have its operator set anonymous = 'everywhere' (mesh broker --anonymous everywhere)"
)
NOBODY_ANONYMOUS: Final = (
    "this broker serves no anonymous clients, since its setting anonymous is 'nowhere': prove who you are"
    " with a key, a token or a certificate"
)


class NotAllowed(SessionError):
    """A client may not come in, or may not do what it asks for."""

    reason = "not_allowed"


class WrongProof(SessionError):
    """The proof of a client is wrong. The answer is delayed by ``held_s``, so that each guess costs time."""

    reason = "wrong_proof"

    def __init__(self, sentence: str, held_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.held_s = held_s


class AboveLimit(SessionError):
    """A claim is above a limit."""

    reason = "above_limit"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a client's connection."""

    names: tuple[str, ...] | None = None
    """The names in its certificate, which a trusted authority has signed; None if it showed none."""
    near: bool = True
    """True if it comes from this machine."""
    host: str = ""
    must_prove: bool = False
    """True if its address demands a proof."""
    url: str = ""


class Standing:
    """The rights and the counts of one principal at this broker."""

    __slots__ = ("bucket", "connections", "name", "principal", "rights", "subscriptions")

    def __init__(self, principal: Principal) -> None:
        self.name = principal.name
        self.principal = principal
        self.rights: Rights | None = None
        """None if it may do everything, so that nothing needs to be looked up."""
        self.connections = 0
        self.subscriptions = 0
        self.bucket: Bucket | None = None

    @property
    def told_name(self) -> str:
        """The name in WELCOME, to which publisher ids are bound; empty for an anonymous client."""
        return "" if self.name == ANONYMOUS else self.name

    def become(self, principal: Principal, now: float) -> None:
        """Take over the current configuration."""
        self.principal = principal
        free = principal.may_do_everything and principal.message_bytes_max is None
        self.rights = None if free else Rights(principal)
        waiting = {} if self.bucket is None else self.bucket.waiting
        if principal.rate_max is None:
            self.bucket = None
        elif self.bucket is None or self.bucket.rate != principal.rate_max:
            self.bucket = Bucket(principal.rate_max, now)
            self.bucket.waiting = waiting
            return
        else:
            return
        for paced in waiting:
            paced.grant()

    def window(self, most: int) -> int:
        """Most messages in flight from one client; at most ``most``."""
        principal = self.principal
        bounds = [most]
        if principal.window_max is not None:
            bounds.append(principal.window_max)
        if principal.rate_max is not None:
            bounds.append(max(1, int(principal.rate_max)))
        return min(bounds)

    def work_window(self, most: int) -> int:
        """Most unsettled messages of one consumer of a durable subscription; at most ``most``."""
        window = self.principal.window_max
        return most if window is None else min(most, window)

    def keeps_back(self, paced: Paced, messages: int, /) -> bool:
        """True if a publisher has to wait for this credit; otherwise the messages count as given."""
        bucket = self.bucket
        if bucket is None or bucket.take(messages):
            return False
        bucket.waiting[paced] = None
        return True

    def refusal_of_subscription(self) -> str:
        """Why it may have no more subscriptions; empty if it may."""
        most = self.principal.subscriptions_max
        if most is None or self.subscriptions < most:
            return ""
        return (
            f"principal {self.name!r} has {self.subscriptions} subscriptions at this broker, and"
            f" principals.{self.name}.subscriptions_max is {most}"
        )


class Guest(NamedTuple):
    """One client, and the proof by which it is its principal."""

    standing: Standing
    method: str
    """``key``, ``token``, ``certificate``, or empty."""
    proof: object


class Claim(NamedTuple):
    """The identity that a client says it can prove."""

    method: str
    identity: bytes
    """The public key, or the id of the token."""
    host: str


class Door:
    """Identifies and admits the clients of a broker. ``token`` draws unguessable bytes."""

    def __init__(self, policy: Policy, token: Callable[[int], bytes] = bytes, now: float = 0.0) -> None:
        self.nonce = token
        self._standings: dict[str, Standing] = {}
        self._attempts = Attempts()
        self.set_policy(policy, now)

    def set_policy(self, policy: Policy, now: float) -> None:
        """Use these principals from now on."""
        self.policy = policy
        configured = {principal.name: principal for principal in policy.principals}
        for name in GIVEN:
            configured.setdefault(name, everything(name))
        self._configured = configured
        for name, standing in self._standings.items():
            if name in configured:
                standing.become(configured[name], now)
        self._by_certificate: dict[str, str] = {}
        self._by_key: dict[bytes, str] = {}
        self._by_token: dict[bytes, tuple[bytes, str]] = {}
        for principal in policy.principals:
            self._by_certificate |= dict.fromkeys(principal.certificates, principal.name)
            self._by_key |= {proofs.read_key(text): principal.name for text in principal.keys}
            for text in principal.tokens:
                stored = proofs.read_token(text)
                self._by_token[proofs.token_id(stored)] = stored, principal.name
        self._now = now

    # --- identification

    def unproven(self, origin: Origin) -> Guest:
        """The guest for a client without a proof in HELLO, or for a stock socket. Raises `NotAllowed`."""
        if origin.names is not None:
            return Guest(self._standing(self._name_by(origin.names)), "certificate", origin.names)
        if origin.must_prove:
            raise NotAllowed(
                f"{origin.url} serves no anonymous clients: prove who you are with a key, a token or a"
                " certificate"
            )
        refusal = self._refusal_of_anonymous(origin.near)
        if refusal:
            raise NotAllowed(refusal)
        return Guest(self._standing(ANONYMOUS), "", origin.near)

    def claim(self, method: str, identity: bytes, origin: Origin, now: float) -> Claim:
        """Check a claim before the challenge. Raises `WrongProof` for one that nobody can prove, or not
        now."""
        if method not in proofs.METHODS:
            raise WrongProof(f"a client offers a proof of kind {method[:16]!r}; there are key and token")
        known = self._owner(method, identity) is not None
        claim = Claim(method, identity if known else b"", origin.host)
        if not known:
            self._attempts.failed(claim, now)
            raise WrongProof(f"no principal of this broker has this {method}", self._attempts.pause_s(claim))
        if not self._attempts.takes(claim, now):
            sentence = f"too many proofs for this {method} come from this address, and were wrong; try again"
            raise WrongProof(sentence, self._attempts.pause_s(claim))
        return claim

    def proven(self, claim: Claim, about: bytes, proof: bytes, now: float) -> Guest:
        """Check the answer to the challenge. Raises `WrongProof`."""
        method, identity, _ = claim
        name = self._owner(method, identity)  # a reload may have changed the owner since
        if method == proofs.KEY:
            right = keys.check_signature(identity, about, proof)
        else:
            right = identity in self._by_token and proofs.check_token(
                self._by_token[identity][0], about, proof
            )
        if name is None or not right:
            self._attempts.failed(claim, now)
            sentence = f"the proof does not belong to the {method} that HELLO names"
            raise WrongProof(sentence, self._attempts.pause_s(claim))
        self._attempts.succeeded(claim)
        return Guest(self._standing(name), method, identity)

    def is_valid(self, guest: Guest) -> bool:
        """True if its proof still makes it the principal that it was."""
        standing, method, proof = guest
        match method:
            case "":
                return not self._refusal_of_anonymous(bool(proof))
            case "certificate":
                assert isinstance(proof, tuple)
                return self._name_by(proof) == standing.name
        assert isinstance(proof, bytes)
        return self._owner(method, proof) == standing.name

    def _owner(self, method: str, identity: bytes) -> str | None:
        if method == proofs.KEY:
            return self._by_key.get(identity)
        found = self._by_token.get(identity)
        return None if found is None else found[1]

    def _name_by(self, names: tuple[str, ...]) -> str:
        return next((self._by_certificate[name] for name in names if name in self._by_certificate), CERTIFIED)

    def _refusal_of_anonymous(self, near: bool) -> str:
        match self.policy.anonymous:
            case "nowhere":
                return NOBODY_ANONYMOUS
            case "loopback" if not near:
                return REMOTE_ANONYMOUS
        return ""

    def _standing(self, name: str) -> Standing:
        standing = self._standings.get(name)
        if standing is None:
            standing = self._standings[name] = Standing(self._configured[name])
            standing.become(self._configured[name], self._now)
        return standing

    # --- coming and going

    @staticmethod
    def check_room(guest: Guest) -> None:
        """Raises `AboveLimit` if its principal may have no further connection."""
        standing = guest.standing
        most = standing.principal.connections_max
        if most is not None and standing.connections >= most:
            raise AboveLimit(
                f"principal {standing.name!r} has {standing.connections} connections to this broker, and"
                f" principals.{standing.name}.connections_max is {most}"
            )

    def enter(self, guest: Guest) -> None:
        """Count a new connection. Raises `AboveLimit`."""
        self.check_room(guest)
        guest.standing.connections += 1

    @staticmethod
    def leave(guest: Guest) -> None:
        guest.standing.connections -= 1

    def tick(self, now: float) -> float:
        """Grant credit that was kept back; returns when to call again."""
        self._now = now
        due = inf
        for standing in self._standings.values():
            if standing.bucket is not None:
                due = min(due, standing.bucket.tick(now))
        return due
