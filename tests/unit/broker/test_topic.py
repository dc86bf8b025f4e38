"""TopicTrie: a table of patterns and keys, and a trie that forgets what is removed."""

from __future__ import annotations

import pytest

from penstock.broker.topic import TopicTrie

CASES = [
    ("a.b.c", "a.b.c", True),
    ("a.b.c", "a.b", False),
    ("a.b", "a.b.c", False),
    ("*", "a", True),
    ("*", "a.b", False),
    ("*", "", False),
    ("#", "", True),
    ("#", "a", True),
    ("#", "a.b.c", True),
    ("a.*", "a.b", True),
    ("a.*", "a", False),
    ("a.*.c", "a.b.c", True),
    ("a.*.c", "a..c", True),
    ("a.#", "a", True),
    ("a.#", "a.b.c", True),
    ("a.#", "b", False),
    ("#.c", "c", True),
    ("#.c", "a.b.c", True),
    ("#.c", "a.b.c.d", False),
    ("a.#.c", "a.c", True),
    ("a.#.c", "a.x.y.c", True),
    ("#.#", "", True),
    ("*.#", "", False),
    ("*.#", "a", True),
    ("#.*", "a.b", True),
    ("", "", True),
    ("", "a", False),
    ("a", "A", False),
    ("a.b", "*.b", False),
    ("a.b", "#", False),
    ("*.b", "#.b", True),
    ("a*", "a*", True),
    ("a*", "ab", False),
]


@pytest.mark.parametrize(("pattern", "key", "matches"), CASES)
def test_a_pattern_matches_as_rabbitmq_says(pattern: str, key: str, matches: bool) -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "value")
    assert list(trie.match(key)) == (["value"] if matches else [])


def test_a_value_with_several_matching_patterns_is_found_once() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in ("#", "a.#", "*.b", "a.b"):
        trie.add(pattern, "value")
    assert list(trie.match("a.b")) == ["value"]


def test_removing_one_pattern_leaves_the_others() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in ("a.b", "a.b.c", "a.*"):
        trie.add(pattern, pattern)
    trie.remove("a.b", "a.b")
    assert list(trie.match("a.b")) == ["a.*"]
    assert list(trie.match("a.b.c")) == ["a.b.c"]


def test_removing_what_is_not_there_changes_nothing() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add("a.b", "value")
    trie.remove("a.b.c", "value")
    trie.remove("a", "value")
    trie.remove("a.b", "other")
    assert list(trie.match("a.b")) == ["value"]


def test_patterns_that_come_and_go_leave_nothing_behind() -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number in range(100):
        trie.add(f"a.{number}.#", number)
    assert trie
    for number in range(100):
        trie.remove(f"a.{number}.#", number)
    assert not trie


def test_many_hashes_do_not_cost_exponentially() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join(["#"] * 20 + ["end"]), "value")
    assert list(trie.match(".".join(["x"] * 60))) == []
    assert list(trie.match(".".join(["x"] * 60 + ["end"]))) == ["value"]
