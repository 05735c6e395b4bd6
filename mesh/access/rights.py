"""The rights of a principal: which actions its rules allow, and which rule refuses. Pure.

**Deny wins.** An action on a topic is allowed if an ``allow`` pattern matches the topic and no ``deny``
pattern does. So rules have no order, a more detailed pattern is worth no more than a wide one, and a rule
that is added to ``deny`` never gives anybody a right.

A subscription is to a pattern: one allow pattern must cover all of it, and no deny pattern may overlap it. So
delivered messages need no check.

Decisions about publishing are cached by topic, since each block asks for one: `Rights.publishing` holds the
refusals, empty text for "allowed", and is bounded.
"""

from __future__ import annotations

from typing import Final

from mesh.access.principals import ACTIONS, Action, Principal
from mesh.topics import PatternTrie, covers, meet, overlaps

CACHED_MAX: Final = 4096
"""Topics whose decisions are cached; beyond them the cache begins anew."""
VERBS: Final[dict[Action, str]] = {
    "publish": "publish to",
    "subscribe": "subscribe to",
    "ask": "ask",
    "answer": "answer",
}


class Rights:
    """The rights of one principal, and the size of its messages."""

    __slots__ = ("_allow", "_deny", "_hearing", "_principal", "message_bytes_max", "publishing")

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self._allow = {action: _trie(principal.allowed(action)) for action in ACTIONS}
        self._deny = {action: _trie(principal.denied(action)) for action in ACTIONS}
        self.publishing: dict[bytes, str] = {}
        """Refusals by topic; read directly on the path of every block."""
        self._hearing: dict[bytes, bool] = {}
        self.message_bytes_max = principal.message_bytes_max

    def refusal(self, action: Action, topic: str) -> str:
        """Why an action on a topic is refused, with the rule; empty if it is allowed."""
        denied = self._deny[action].match(topic)
        if denied:
            return self._sentence(action, topic, f"deny_{action} has {denied[0]!r}")
        if self._allow[action].match(topic):
            return ""
        return self._sentence(action, topic, f"{action} has no pattern for it")

    def refusal_to_publish(self, topic: bytes) -> str:
        """As `refusal`; the decision is kept in ``publishing``. The topic is valid."""
        found = self.publishing.get(topic)
        if found is None:
            if len(self.publishing) >= CACHED_MAX:
                self.publishing.clear()
            found = self.publishing[topic] = self.refusal("publish", topic.decode("ascii"))
        return found

    def may_hear(self, topic: bytes) -> bool:
        """True if a consumer that cannot be refused a pattern gets this topic. The decision is kept."""
        found = self._hearing.get(topic)
        if found is None:
            if len(self._hearing) >= CACHED_MAX:
                self._hearing.clear()
            found = self._hearing[topic] = not self.refusal("subscribe", topic.decode("ascii"))
        return found

    def refusal_of_pattern(self, action: Action, pattern: str) -> str:
        """Why an action on all topics of a pattern is refused, with the rule; empty if it is allowed."""
        for denied in self._principal.denied(action):
            if overlaps(denied, pattern):
                return self._sentence(action, pattern, f"deny_{action} has {denied!r}")
        if any(covers(allowed, pattern) for allowed in self._principal.allowed(action)):
            return ""
        return self._sentence(action, pattern, f"{action} has no pattern that covers it")

    def refusal_of_size(self, size: int) -> str:
        """Why a body of so many bytes is refused; empty if it is not."""
        most = self.message_bytes_max
        if most is None or size <= most:
            return ""
        name = self._principal.name
        return (
            f"principal {name!r} may not publish a body of {size} bytes: principals.{name}.message_bytes_max"
            f" is {most}"
        )

    def narrowed(self, patterns: tuple[str, ...]) -> list[str]:
        """The parts of ``patterns`` to which a consumer that cannot be refused a pattern may subscribe.
        Denied topics among them are left out at delivery (`refusal`)."""
        principal = self._principal
        meets = (meet(pattern, allowed) for pattern in patterns for allowed in principal.allowed("subscribe"))
        kept: list[str] = []
        for both in meets:
            if both is None or any(covers(wide, both) for wide in (*principal.denied("subscribe"), *kept)):
                continue
            kept = [narrow for narrow in kept if not covers(both, narrow)]
            kept.append(both)
        return kept

    def refusal_of_all(self, action: Action) -> str:
        """Why a client that could do nothing but this is refused."""
        name = self._principal.name
        return (
            f"principal {name!r} may {VERBS[action]} nothing here: principals.{name}.{action} allows nothing"
        )

    def gives(self, action: Action) -> bool:
        """True if some pattern allows the action."""
        return bool(self._principal.allowed(action))

    def _sentence(self, action: Action, what: str, rule: str) -> str:
        name = self._principal.name
        return f"principal {name!r} may not {VERBS[action]} {what!r}: principals.{name}.{rule}"


def _trie(patterns: tuple[str, ...]) -> PatternTrie[str]:
    trie: PatternTrie[str] = PatternTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)
    return trie
