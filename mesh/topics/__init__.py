"""Topics and patterns: their grammar, their relations, and which pattern wants which topic. Pure."""

from mesh.topics.grammar import (
    SIZE_MAX,
    TOKENS_MAX,
    check_pattern,
    check_public_topic,
    check_topic,
    is_system,
    matches,
)
from mesh.topics.relations import covers, meet, overlaps
from mesh.topics.stars import STARS_MAX, is_starred, widened
from mesh.topics.trie import PatternTrie

__all__ = [
    "SIZE_MAX",
    "STARS_MAX",
    "TOKENS_MAX",
    "PatternTrie",
    "check_pattern",
    "check_public_topic",
    "check_topic",
    "covers",
    "is_starred",
    "is_system",
    "matches",
    "meet",
    "overlaps",
    "widened",
]
