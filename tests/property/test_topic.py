"""The topic trie against regular expressions."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.topic import TopicTrie

patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#", "a*"]), max_size=8).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "*", "#", "c"]), max_size=6).map(".".join)


def ended(key: str) -> str:
    """Every word with a dot behind it, so that a word is the same thing wherever it stands. An empty key has none."""
    return key + "." if key else ""


def expression(pattern: str) -> re.Pattern[str]:
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    split = pattern.split(".") if pattern else []
    return re.compile("".join(words.get(word, re.escape(word) + r"\.") for word in split))


@settings(max_examples=500, deadline=None)
@given(st.lists(patterns, max_size=8), st.sets(st.integers(0, 7)), st.lists(keys, min_size=1, max_size=6))
def test_the_trie_finds_what_regular_expressions_find(
    added: list[str], removed: set[int], looked_up: list[str]
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(added):
        trie.add(pattern, number)
    left = dict(enumerate(added))
    for number in removed:
        if number in left:
            trie.remove(left.pop(number), number)
    for key in looked_up:
        expected = {number for number, pattern in left.items() if expression(pattern).fullmatch(ended(key))}
        found = list(trie.match(key))
        assert set(found) == expected
        assert len(found) == len(expected)
