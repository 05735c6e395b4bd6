"""The grammar of topics and patterns, and which pattern wants which topic.

A topic is tokens of ``[A-Za-z0-9_-]+`` joined by dots, at most 255 bytes and 16 tokens. A pattern may also
have the token ``*`` for exactly one token and, at its end, ``#`` for zero or more. Topics whose first token
begins with ``$`` are the system's: only the mesh publishes to them. Only patterns whose own first token
begins with ``$`` match them, so ``#`` does not.

Everything that comes from a user or a peer passes `check_topic` or `check_pattern` once, when it is first
seen. After that topics travel as their bytes and are looked up, never parsed.
"""

from __future__ import annotations

import re
from typing import Final

from mesh.errors import TopicError

SIZE_MAX: Final = 255
TOKENS_MAX: Final = 16

_TOPIC: Final = re.compile(r"\$?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PATTERN: Final = re.compile(r"(?:#|(?:\*|\$?[A-Za-z0-9_-]+)(?:\.(?:\*|[A-Za-z0-9_-]+))*(?:\.#)?)")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")


def check_topic(topic: str) -> bytes:
    """The topic as it goes on the wire. Raises `TopicError` with what is wrong and where."""
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and _is_short(topic):
        return topic.encode("ascii")
    raise TopicError(_complaint("topic", topic, wildcards=False))


def check_public_topic(topic: str) -> bytes:
    """As `check_topic`, for a topic that a program publishes to: the system's own topics are refused."""
    encoded = check_topic(topic)
    if topic[0] == "$":
        raise TopicError(
            f"topic {topic!r} begins with '$': such topics are the mesh's own, publish to another"
        )
    return encoded


def check_pattern(pattern: str) -> str:
    """The pattern itself if it is valid. Raises `TopicError` with what is wrong and where."""
    if isinstance(pattern, str) and _PATTERN.fullmatch(pattern) and _is_short(pattern):
        return pattern
    raise TopicError(_complaint("pattern", pattern, wildcards=True))


def is_system(topic_or_pattern: str) -> bool:
    """True for topics and patterns of the mesh itself."""
    return topic_or_pattern.startswith("$")


def matches(pattern: str, topic: str) -> bool:
    """True if a valid pattern wants a valid topic. This is the slow, obvious way; `PatternTrie` is the fast
    one."""
    if is_system(topic) != is_system(pattern):
        return False
    wanted, tokens = pattern.split("."), topic.split(".")
    if wanted[-1] == "#":
        wanted.pop()
        if len(tokens) < len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        want in ("*", token) for want, token in zip(wanted, tokens, strict=True)
    )


def _is_short(text: str) -> bool:
    return len(text) <= SIZE_MAX and text.count(".") < TOKENS_MAX


def _complaint(what: str, text: object, *, wildcards: bool) -> str:
    """Why ``text`` is not a ``what``: one sentence for the person who wrote it."""
    if not isinstance(text, str):
        return f"a {what} is a str such as 'news.uk', not {type(text).__name__}"
    if not text:
        return f"a {what} needs at least one token, such as 'news.uk'"
    if len(text) > SIZE_MAX:
        return f"{what} {text[:40]!r}... has {len(text)} characters, the limit is {SIZE_MAX}"
    tokens = text.split(".")
    if len(tokens) > TOKENS_MAX:
        return f"{what} {text[:40]!r}... has {len(tokens)} tokens, the limit is {TOKENS_MAX}"
    for index, token in enumerate(tokens):
        if not token:
            return f"{what} {text!r} has an empty token at position {index + 1}; put one dot between tokens"
        if token in ("*", "#"):
            if not wildcards:
                return f"topic {text!r} has the wildcard {token!r}; wildcards are for subscriptions only"
            if token == "#" and index != len(tokens) - 1:
                return f"pattern {text!r} has '#' at position {index + 1}; '#' may only be the last token"
            continue
        if token[0] == "$" and index == 0 and _TOKEN.fullmatch(token[1:]):
            continue
        if not _TOKEN.fullmatch(token):
            return f"{what} {text!r} has the token {token!r}; tokens are letters, digits, '_' and '-'"
    return f"{what} {text!r} is not valid"
