"""Topic: patterns with `*` (one word) and `#` (any number of words), in a trie of words.

A key is matched by following all its ways through the trie at once, word by word. A node is visited at most once per
word, so no pattern costs more than its words times the key's; patterns that share nothing with the key cost nothing,
however many there are. A run of wildcards with a `#` among them means the same in any order and with one `#`; it is
stored with the `*` first, so `#.#.#.#` is one node.
Not here: what is bound (exchange.py); a value is there once per pattern, counting it is the caller's matter.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

ONE: Final = "*"
ANY: Final = "#"


def split(key: str) -> list[str]:
    """Words of a key. An empty key has no words: `#` matches it, `*` does not."""
    return key.split(".") if key else []


def split_pattern(pattern: str) -> list[str]:
    """Words of a pattern, every run of wildcards in its one form: the `*` first, then at most one `#`."""
    words = split(pattern)
    if ANY not in words:
        return words
    normal: list[str] = []
    for word in words:
        if word == ONE and normal and normal[-1] == ANY:
            normal[-1:] = [ONE, ANY]
        elif word != ANY or not normal or normal[-1] != ANY:
            normal.append(word)
    return normal


class _Node(Generic[Value]):
    """Most nodes of a large trie are leaves with one value: what a node does not have is None, not empty."""

    __slots__ = ("any", "loops", "one", "value", "values", "words")

    def __init__(self, loops: bool) -> None:
        self.words: dict[str, _Node[Value]] | None = None
        self.one: _Node[Value] | None = None  # behind a `*`
        self.any: _Node[Value] | None = None  # behind a `#`
        self.loops = loops  # it is behind a `#`, and stays there for any word
        self.value: Value | None = None  # the only one,
        self.values: dict[Value, None] | None = None  # or all, if there are more

    def is_bare(self) -> bool:
        return (
            self.value is None and self.values is None and self.words is None and self.one is None and self.any is None
        )

    def child(self, word: str) -> _Node[Value] | None:
        if word == ONE:
            return self.one
        if word == ANY:
            return self.any
        return self.words.get(word) if self.words is not None else None

    def grow(self, word: str) -> _Node[Value]:
        node: _Node[Value] = _Node(word == ANY)
        if word == ONE:
            self.one = node
        elif word == ANY:
            self.any = node
        elif self.words is None:
            self.words = {word: node}
        else:
            self.words[word] = node
        return node

    def prune(self, word: str) -> None:
        if word == ONE:
            self.one = None
        elif word == ANY:
            self.any = None
        elif self.words is not None:
            del self.words[word]
            if not self.words:
                self.words = None

    def add(self, value: Value) -> None:
        if self.values is not None:
            self.values[value] = None
        elif self.value is None:
            self.value = value
        elif self.value != value:
            self.values = {self.value: None, value: None}
            self.value = None

    def drop(self, value: Value) -> None:
        if self.value == value:
            self.value = None
        elif self.values is not None:
            self.values.pop(value, None)
            if not self.values:
                self.values = None


class TopicTrie(Generic[Value]):
    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node(False)

    def add(self, pattern: str, value: Value) -> None:
        node = self._root
        for word in split_pattern(pattern):
            child = node.child(word)
            node = child if child is not None else node.grow(word)
        node.add(value)

    def remove(self, pattern: str, value: Value) -> None:
        path = [self._root]
        words = split_pattern(pattern)
        for word in words:
            child = path[-1].child(word)
            if child is None:
                return
            path.append(child)
        path[-1].drop(value)
        # Prune from the leaf up, or patterns that come and go would leave their words behind.
        for word in reversed(words):
            if not path.pop().is_bare():
                return
            path[-1].prune(word)

    def match(self, key: str) -> dict[Value, None]:
        """All values whose pattern matches the key, each once, in the order found."""
        root = self._root
        active: dict[_Node[Value], None] = {root: None}  # where the words so far lead, each node once
        if root.any is not None:
            active[root.any] = None
        for word in split(key):
            reached: dict[_Node[Value], None] = {}
            for node in active:
                if node.loops:
                    reached[node] = None
                # A pattern's `*` is never among `words`, so a key's own `*` or `#` is a word like any other.
                if node.words is not None:
                    child = node.words.get(word)
                    if child is not None:
                        reached[child] = None
                        if child.any is not None:  # a `#` may stand for no word at all
                            reached[child.any] = None
                child = node.one
                if child is not None:
                    reached[child] = None
                    if child.any is not None:
                        reached[child.any] = None
            if not reached:
                return {}
            active = reached
        found: dict[Value, None] = {}
        for node in active:
            if node.value is not None:
                found[node.value] = None
            elif node.values is not None:
                found.update(node.values)
        return found

    def __bool__(self) -> bool:
        return not self._root.is_bare()
