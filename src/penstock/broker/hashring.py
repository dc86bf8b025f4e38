"""Hash ring: one of many destinations for a key, by weight; for exchanges of type x-consistent-hash.

Every destination draws a number from the key and its own name, and the highest draw, by weight, wins (rendezvous
hashing). So the choice depends on the names and weights alone: not on the order they came in, nor on a restart. A new
destination takes keys from the others in proportion and moves no other key; one that goes leaves its own keys only.

With thousands of destinations, drawing for each would be slow. They stand in a trie by the digits of their names'
hashes; the draw is among the 16 children of a node, each with the weight of all below it, then among the winner's
children. Up to a dozen destinations that is mostly one node; beyond, some keys move more than they had to, at most once
per level.
Not here: what is hashed, and which weights are right (exchange.py).
"""

from __future__ import annotations

from hashlib import blake2b
from math import log
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

# Shares below one in four billion make no difference; a number of 255 digits, as a key can be, would fit no float.
WEIGHT_MAX: Final = 1 << 32
_DIGIT_BITS: Final = 4
_NAME_BITS: Final = 128  # 32 digits: two names that agree in all of them are not to be found
_MASK: Final = (1 << 64) - 1
_LOG_RANGE: Final = log(float(1 << 64))
_LOWEST: Final = float("-inf")


def hash_key(key: bytes) -> int:
    """64 bits. Python's own hash differs from process to process, and keys must stay where they are."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


class _Node(Generic[Value]):
    """A branch with children, or a leaf: one destination with its shares, of which the first counts."""

    __slots__ = ("children", "name_hash", "seed", "shares", "weight")

    def __init__(self, name_hash: int, depth: int) -> None:
        self.name_hash = name_hash
        self.seed = _seed(name_hash, depth)
        self.weight = 0
        self.children: dict[int, _Node[Value]] = {}
        self.shares: dict[Value, int] = {}

    def count(self) -> None:
        """A leaf weighs what its oldest share says: as in RabbitMQ, further bindings of a destination add nothing."""
        self.weight = next(iter(self.shares.values()), 0)


def _seed(name_hash: int, depth: int) -> int:
    """Of the path to a place alone: it must not change when a branch takes a leaf's place. Odd, to lose no bit."""
    return hash_key(b"%d:%d" % (depth, name_hash >> (_NAME_BITS - depth * _DIGIT_BITS))) | 1


def _digit(name_hash: int, depth: int) -> int:
    return (name_hash >> (_NAME_BITS - (depth + 1) * _DIGIT_BITS)) & ((1 << _DIGIT_BITS) - 1)


class HashRing(Generic[Value]):
    __slots__ = ("_leaves", "_root")

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node(0, 0)
        self._leaves: dict[str, _Node[Value]] = {}

    def add(self, name: str, value: Value, weight: int) -> None:
        """A share for the destination with this name. The value of its oldest share is what `choose` finds."""
        leaf = self._leaves.get(name)
        if leaf is not None:
            leaf.shares[value] = min(weight, WEIGHT_MAX)
            return
        name_hash = int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).digest(), "big")
        leaf = self._leaves[name] = self._place(name_hash)
        leaf.shares[value] = min(weight, WEIGHT_MAX)
        leaf.count()
        self._reweigh(name_hash, leaf.weight)

    def remove(self, name: str, value: Value) -> None:
        leaf = self._leaves.get(name)
        if leaf is None or value not in leaf.shares:
            return
        before = leaf.weight
        del leaf.shares[value]
        leaf.count()
        self._reweigh(leaf.name_hash, leaf.weight - before)
        if not leaf.shares:
            del self._leaves[name]
            self._displace(leaf.name_hash)

    def choose(self, key: bytes) -> Value | None:
        """The one destination for this key; None if there is none at all."""
        node = self._root
        if not node.weight:
            return None
        hashed = hash_key(key)
        while node.children:
            branch = node
            best = _LOWEST
            for child in branch.children.values():
                # The draw is a fraction of 2**64; its logarithm by weight is highest as often as the weight says.
                score = (log(((hashed * child.seed) & _MASK) + 1) - _LOG_RANGE) / child.weight
                if score > best:
                    best = score
                    node = child
        return next(iter(node.shares))

    def _place(self, name_hash: int) -> _Node[Value]:
        """A new leaf, at the first place where no other is; another leaf on the way moves down."""
        node = self._root
        depth = 0
        while True:
            digit = _digit(name_hash, depth)
            depth += 1
            child = node.children.get(digit)
            if child is None:
                leaf = node.children[digit] = _Node(name_hash, depth)
                return leaf
            if child.shares:
                branch: _Node[Value] = _Node(child.name_hash, depth)
                branch.weight = child.weight
                branch.children[_digit(child.name_hash, depth)] = child
                child.seed = _seed(child.name_hash, depth + 1)
                child = node.children[digit] = branch
            node = child

    def _reweigh(self, name_hash: int, change: int) -> None:
        """Carry a leaf's change of weight to all branches above it."""
        node = self._root
        depth = 0
        while not node.shares and node.children:
            node.weight += change
            child = node.children.get(_digit(name_hash, depth))
            if child is None:
                return
            node = child
            depth += 1

    def _displace(self, name_hash: int) -> None:
        """Take the leaf without shares away, and every branch that it leaves empty or with a single leaf."""
        path = [self._root]
        while path[-1].children:
            path.append(path[-1].children[_digit(name_hash, len(path) - 1)])
        while len(path) > 1:
            node = path.pop()
            digit = _digit(name_hash, len(path) - 1)
            if not node.children:
                if node.shares:
                    return
                del path[-1].children[digit]
            elif len(node.children) == 1:
                last = next(iter(node.children.values()))
                if last.children:
                    return
                last.seed = node.seed  # it takes the branch's place, as if it had always been alone here
                path[-1].children[digit] = last
            else:
                return

    def __len__(self) -> int:
        return len(self._leaves)
