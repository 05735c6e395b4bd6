"""Principals: the identities that clients can prove, with their rights and limits. Pure.

A principal has a name, proofs by which a client shows that it is this principal, rights and limits. A right
is an action and patterns:

* ``publish``: to topics;
* ``subscribe``: to patterns, also for a durable subscription;
* ``ask``: requests and surveys on topics, those of the mesh (``$sys.status``) included;
* ``answer``: requests and surveys on patterns; an answering client hears what is published there, and so
  needs ``subscribe``, too.

An action that no pattern allows is refused, and so is one that any ``deny_`` pattern matches: **deny wins**,
whatever the order or the detail of the patterns (`mesh.access.rights`).

Two names are reserved: `ANONYMOUS` for clients that prove nothing, and `CERTIFIED` for clients with a
certificate of a trusted authority that no principal names. Unless they are configured they may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Final, Literal, get_args

from mesh.access import proofs
from mesh.errors import ConfigError, TopicError
from mesh.topics import check_pattern

Action = Literal["publish", "subscribe", "ask", "answer"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

ANONYMOUS: Final = "anonymous"
CERTIFIED: Final = "certified"
GIVEN: Final = (ANONYMOUS, CERTIFIED)

Anonymity = Literal["nowhere", "loopback", "everywhere"]
ANONYMITIES: Final[tuple[Anonymity, ...]] = get_args(Anonymity)
"""The places from which anonymous clients are served."""

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PATTERNS_MAX: Final = 256
"""Patterns in one list. Each pattern of a subscription is compared with each of them."""
PROOFS_MAX: Final = 4096
"""Proofs of one kind that one principal may have."""
PUBLIC: Final = ("#",)
EVERYTHING: Final = ("#", "$sys.#")
NEEDED: Final[dict[Action, tuple[str, ...]]] = {
    "publish": PUBLIC,
    "subscribe": EVERYTHING,
    "ask": EVERYTHING,
    "answer": PUBLIC,
}
"""Patterns of a principal that may do everything. No client publishes or answers on the mesh's own topics."""


@dataclass(frozen=True, slots=True)
class Principal:
    """One principal, as configured. Raises `ConfigError` if it is not valid.

    Args:
        certificates: names that its certificate has: the common name of the subject, or another name.
        keys: public keys, as ``mesh key show`` prints them.
        tokens: hashes of tokens, as ``mesh key token`` prints them.
        connections_max: sessions, and connections of stock sockets, at one broker; one more is refused.
        rate_max: messages published a second at one broker; a faster publisher is slowed down.
        message_bytes_max: bytes of a message's body; a larger one is refused.
        subscriptions_max: subscriptions at one broker; one more is refused.
        window_max: messages in flight from one client, and to one consumer of a durable subscription.
    """

    name: str
    certificates: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()
    deny_subscribe: tuple[str, ...] = ()
    deny_ask: tuple[str, ...] = ()
    deny_answer: tuple[str, ...] = ()
    connections_max: int | None = None
    rate_max: float | None = None
    message_bytes_max: int | None = None
    subscriptions_max: int | None = None
    window_max: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, item.name, value)
            if problem := problem_of(item.name, value):
                raise ConfigError(f"principals.{self.name}.{item.name} {problem}")
        if problem := self.problem():
            raise ConfigError(f"principals.{self.name} {problem}")

    def problem(self) -> str:
        """Why it is not valid as a whole; empty if it is."""
        if not any(self.allowed(action) for action in ACTIONS):
            return f'gives no right; add {", ".join(ACTIONS[:-1])} or {ACTIONS[-1]}, such as publish = ["#"]'
        if self.name in GIVEN and (self.certificates or self.keys or self.tokens):
            return "is a reserved name and cannot have proofs; choose another name"
        return ""

    def allowed(self, action: Action) -> tuple[str, ...]:
        """The patterns that allow an action."""
        patterns: tuple[str, ...] = getattr(self, action)
        return patterns

    def denied(self, action: Action) -> tuple[str, ...]:
        """The patterns that deny an action."""
        patterns: tuple[str, ...] = getattr(self, f"deny_{action}")
        return patterns

    @property
    def may_do_everything(self) -> bool:
        """True if no right needs to be looked up."""
        return all(
            not self.denied(action) and set(self.allowed(action)) >= set(NEEDED[action]) for action in ACTIONS
        )


def everything(name: str) -> Principal:
    """A principal with all rights and no limits."""
    return Principal(name, publish=PUBLIC, subscribe=EVERYTHING, ask=EVERYTHING, answer=PUBLIC)


# --- checks of single values


def problem_of(key: str, value: Any) -> str:
    """Why the value of one key is not valid, as part of a sentence behind its name; empty if it is."""
    check = _CHECKS.get(key)
    if check is None:
        return "is no key of a principal"
    return "" if value is None and key in NUMBERS else check(value)


def _name(value: Any) -> str:
    if isinstance(value, str) and NAME.fullmatch(value):
        return ""
    return f"is {value!r}; a name is 1 to 64 of the characters A-Z a-z 0-9 _ -"


def _texts(value: Any, most: int) -> str:
    if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
        return "must be a list of strings"
    if len(value) > most:
        return f"has {len(value)} entries, at most {most} are allowed"
    return ""


def _patterns(value: Any) -> str:
    if problem := _texts(value, PATTERNS_MAX):
        return problem
    for pattern in value:
        try:
            check_pattern(pattern)
        except TopicError as error:
            return f"has a bad pattern: {error}"
    return ""


def _read_by(read: Callable[[str], bytes]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if problem := _texts(value, PROOFS_MAX):
            return problem
        for text in value:
            try:
                read(text)
            except ValueError as error:
                return f"has {text[:24]!r}, which {error}"
        return ""

    return check


def _certificates(value: Any) -> str:
    if problem := _texts(value, PROOFS_MAX):
        return problem
    return "" if all(value) else "has an empty name"


def _whole(least: int, most: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if type(value) is int and least <= value <= most:
            return ""
        return f"must be an integer from {least} to {most}, not {value!r}"

    return check


def _rate(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.01 <= value < inf:
        return ""
    return f"must be a number of messages a second from 0.01, not {value!r}"


NUMBERS: Final = ("connections_max", "rate_max", "message_bytes_max", "subscriptions_max", "window_max")

_CHECKS: Final[dict[str, Callable[[Any], str]]] = {
    "name": _name,
    "certificates": _certificates,
    "keys": _read_by(proofs.read_key),
    "tokens": _read_by(proofs.read_token),
    **dict.fromkeys((*ACTIONS, *(f"deny_{action}" for action in ACTIONS)), _patterns),
    "connections_max": _whole(1, 1 << 20),
    "rate_max": _rate,
    "message_bytes_max": _whole(0, 1 << 30),
    "subscriptions_max": _whole(0, 1 << 20),
    "window_max": _whole(1, 1 << 20),
}
KEYS: Final[Sequence[str]] = tuple(key for key in _CHECKS if key != "name")
"""The keys of a principal's section of the configuration."""

_READERS: Final[dict[str, Callable[[str], str | bytes]]] = {
    "certificates": str,
    "keys": proofs.read_key,
    "tokens": proofs.read_token,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """All principals of a broker, and the places from which anonymous clients may come. Raises `ConfigError`
    if two principals claim one proof."""

    principals: tuple[Principal, ...] = ()
    anonymous: Anonymity = "loopback"

    def __post_init__(self) -> None:
        if self.anonymous not in ANONYMITIES:
            raise ConfigError(f"anonymous is {self.anonymous!r}; there are {', '.join(ANONYMITIES)}")
        names: dict[str, None] = {}
        owners: dict[tuple[str, str | bytes], str] = {}
        for principal in self.principals:
            if principal.name in names:
                raise ConfigError(f"there are two principals {principal.name!r}; each name may be used once")
            names[principal.name] = None
            for kind, read in _READERS.items():
                for proof in getattr(principal, kind):  # one key may be written in several ways
                    owner = owners.setdefault((kind, read(proof)), principal.name)
                    if owner != principal.name:
                        raise ConfigError(
                            f"principals.{principal.name}.{kind} has {proof[:24]!r}, which is that of"
                            f" {owner!r}"
                        )
