"""TopicTrie: a table of patterns and keys, and a trie that forgets what is removed."""

from __future__ import annotations

import pytest

from penstock.broker.topic import TopicTrie, split_pattern

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
    ("#.*.#", "", False),
    ("#.*.#", "a", True),
    ("#.*.#.*", "a", False),
    ("#.*.#.*", "a.b.c", True),
    ("a.#.*.#.b", "a.b", False),
    ("a.#.*.#.b", "a.x.b", True),
    ("a.#.b.#.c", "a.b.b.c.c", True),
    ("a.#.b.#.c", "a.c.b", False),
    (".", "", False),
    (".", ".", True),
    ("*.*", ".", True),
    ("#.a.#", "b.c", False),
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


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [
        ("", ""),
        ("a.b", "a.b"),
        ("#.#", "#"),
        ("#.*", "*.#"),
        ("#.*.#.*.#", "*.*.#"),
        ("*.#", "*.#"),
        ("a.#.#.b.#.*", "a.#.b.*.#"),
    ],
)
def test_a_run_of_wildcards_has_one_form(pattern: str, normal: str) -> None:
    assert ".".join(split_pattern(pattern)) == normal


def test_patterns_that_mean_the_same_are_still_two() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add("#.*", "one")
    trie.add("*.#", "two")
    assert sorted(trie.match("a")) == ["one", "two"]
    trie.remove("*.#", "two")
    assert list(trie.match("a")) == ["one"]
    trie.remove("#.*", "one")
    assert not trie


# 255 bytes, the longest a key can be, hold 128 words. What grows with a power of that would never end here.
LONG = 128


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (["#"] * LONG, True),
        (["#", "a"] * (LONG // 2), True),
        (["*", "#"] * (LONG // 2), True),
        (["#", "a"] * (LONG // 2 - 1) + ["b"], False),
        (["#", "*"] * (LONG // 2 - 1) + ["b"], False),
        (["a", "#"] * (LONG // 2), True),
        (["*"] * LONG, True),
        (["*"] * (LONG - 1), False),
    ],
)
def test_the_longest_keys_and_worst_patterns_are_matched_in_time(pattern: list[str], matches: bool) -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join(pattern), "value")
    assert list(trie.match(".".join("a" * LONG))) == (["value"] if matches else [])


def test_many_of_the_worst_patterns_at_once_are_matched_in_time() -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number in range(1, LONG // 2):
        trie.add(".".join(["#", "a"] * number), number)
        trie.add(".".join(["#", "a"] * number + ["*"]), -number)
        trie.add(".".join(["#", "a"] * number + ["b"]), 0)
    found = trie.match(".".join("a" * LONG))
    assert sorted(found) == [*range(1 - LONG // 2, 0), *range(1, LONG // 2)]
