"""Marks of producers: one per producer, never falling, bounded, the same in the next life."""

from __future__ import annotations

from penstock.broker.producers import Producers, highest


def test_what_is_at_or_below_the_mark_is_known() -> None:
    producers = Producers()
    assert not producers.is_known("p", 0)
    producers.take("p", 0)
    assert producers.is_known("p", 0)
    assert not producers.is_known("p", 1)
    producers.take("p", 7)
    assert producers.is_known("p", 3)
    assert not producers.is_known("other", 0)


def test_a_mark_never_falls() -> None:
    producers = Producers()
    producers.take("p", 9)
    producers.take("p", 2)
    assert producers.mark("p") == 9


def test_of_too_many_the_one_that_was_silent_longest_goes() -> None:
    producers = Producers(most=2)
    producers.take("a", 1)
    producers.take("b", 1)
    producers.take("a", 2)
    producers.take("c", 1)
    assert not producers.is_known("b", 1)
    assert producers.is_known("a", 2)
    assert producers.is_known("c", 1)
    assert len(producers) == 2


def test_the_next_life_knows_the_same_and_in_the_same_order() -> None:
    producers = Producers(most=2)
    producers.take("a", 1)
    producers.take("b", 5)
    producers.take("a", 3)
    other = Producers(most=2)
    other.restore(producers.marks())
    assert other.marks() == {"b": 5, "a": 3}
    other.take("c", 1)
    assert not other.is_known("b", 5)


def test_a_batch_has_the_highest_of_each() -> None:
    assert highest([("a", 1), None, ("b", 7), ("a", 4), ("a", 2)]) == {"b": 7, "a": 4}
    assert highest([None]) == {}
