"""Patterns with the values that want them, found by topic: a trie of tokens."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class PatternTrie(Generic[Value]):
    """Patterns with the values that want them; `match` finds the values for one topic.

    A value may stand under several patterns and is found once. The order of the result depends on what was
    added and when, never on hashes.
    """

    __slots__ = ("_root", "_size", "steps")

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()
        self._size = 0
        self.steps = 0
        """Nodes that all look-ups together have visited."""

    def __len__(self) -> int:
        """Number of pairs of pattern and value."""
        return self._size

    def add(self, pattern: str, value: Value) -> None:
        """Let topics that the checked ``pattern`` wants find ``value``. A pair that is there already changes
        nothing."""
        node = self._root
        for token in pattern.split("."):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node()
            node = child
        if value not in node.values:
            node.values[value] = None
            self._size += 1

    def discard(self, pattern: str, value: Value) -> None:
        """Forget the pair, if it is there."""
        path: list[tuple[_Node[Value], str]] = []
        node = self._root
        for token in pattern.split("."):
            child = node.children.get(token)
            if child is None:
                return
            path.append((node, token))
            node = child
        if value not in node.values:
            return
        del node.values[value]
        self._size -= 1
        for parent, token in reversed(path):
            child = parent.children[token]
            if child.values or child.children:
                return
            del parent.children[token]

    def match(self, topic: str) -> list[Value]:
        """Every value that wants the topic, each once."""
        if not self._size:
            return []
        found: dict[Value, None] = {}
        tokens = topic.split(".")
        wild = not topic.startswith("$")  # '*' and '#' in first place never match the system's topics
        nodes = [self._root]
        for token in tokens:
            following: list[_Node[Value]] = []
            for node in nodes:
                children = node.children
                if wild and "#" in children:
                    found.update(children["#"].values)
                if token in children:
                    following.append(children[token])
                if wild and "*" in children:
                    following.append(children["*"])
            if not following:
                return list(found)
            nodes = following
            self.steps += len(nodes)
            wild = True
        for node in nodes:
            found.update(node.values)
            if "#" in node.children:  # '#' also matches zero tokens
                found.update(node.children["#"].values)
        return list(found)


class _Node(Generic[Value]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Value]] = {}
        self.values: dict[Value, None] = {}
