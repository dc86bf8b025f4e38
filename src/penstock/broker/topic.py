"""Topic: patterns with `*` (one word) and `#` (any number of words), in a trie of words.

A key is matched by walking the trie once per word, so the cost depends on the key and the wildcards it meets, not on
how many patterns there are. Values are reference-counted per pattern by the caller (exchange.py), not here.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


def split(key: str) -> list[str]:
    """Words of a key or pattern. An empty key has no words: `#` matches it, `*` does not."""
    return key.split(".") if key else []


class _Node(Generic[Value]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Value]] = {}
        self.values: dict[Value, None] = {}


class TopicTrie(Generic[Value]):
    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()

    def add(self, pattern: str, value: Value) -> None:
        node = self._root
        for word in split(pattern):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        node.values[value] = None

    def remove(self, pattern: str, value: Value) -> None:
        path = [self._root]
        words = split(pattern)
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return
            path.append(child)
        path[-1].values.pop(value, None)
        # Prune from the leaf up, or patterns that come and go would leave their words behind.
        for word in reversed(words):
            node = path.pop()
            if node.values or node.children:
                return
            del path[-1].children[word]

    def match(self, key: str) -> dict[Value, None]:
        """All values whose pattern matches the key, each once, in the order found."""
        found: dict[Value, None] = {}
        words = split(key)
        count = len(words)
        # Pairs of node and words used already, each visited once, or `#.#.#` would cost exponentially.
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[_Node[Value], int]] = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == count:
                found.update(node.values)
            else:
                child = node.children.get(words[at])
                # A word of the key is never a wildcard itself, or the key `#` would match as a pattern.
                if child is not None and words[at] != "*" and words[at] != "#":
                    stack.append((child, at + 1))
                child = node.children.get("*")
                if child is not None:
                    stack.append((child, at + 1))
            child = node.children.get("#")
            if child is not None:
                stack.extend((child, used) for used in range(at, count + 1))
        return found

    def __bool__(self) -> bool:
        return bool(self._root.children or self._root.values)
