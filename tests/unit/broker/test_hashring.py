"""HashRing: every key has one destination, shares follow the weights, and few keys move."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.broker.hashring import WEIGHT_MAX, HashRing

KEYS = [b"order-%d" % number for number in range(6_000)]


def make(**weights: int) -> HashRing[str]:
    ring: HashRing[str] = HashRing()
    for name, weight in weights.items():
        ring.add(name, name, weight)
    return ring


def numbered(count: int) -> HashRing[str]:
    return make(**{f"q{number}": 1 for number in range(count)})


def places(ring: HashRing[str]) -> dict[bytes, str | None]:
    return {key: ring.choose(key) for key in KEYS}


def moved(before: dict[bytes, str | None], after: dict[bytes, str | None]) -> float:
    return sum(before[key] != after[key] for key in KEYS) / len(KEYS)


def test_an_empty_ring_chooses_nothing() -> None:
    ring: HashRing[str] = HashRing()
    assert ring.choose(b"key") is None
    assert len(ring) == 0


def test_one_destination_gets_everything() -> None:
    assert set(places(make(only=3)).values()) == {"only"}


def test_a_key_always_goes_to_the_same_place() -> None:
    ring = numbered(7)
    assert places(ring) == places(ring)


def test_the_order_of_bindings_and_a_restart_change_nothing() -> None:
    names = [f"q{number}" for number in range(200)]
    ring = make(**dict.fromkeys(names, 1))
    other = make(**dict.fromkeys(reversed([*names, "gone", "gone too"]), 1))
    other.remove("gone", "gone")
    other.remove("gone too", "gone too")
    assert places(ring) == places(other)


def test_the_place_of_a_key_is_the_same_in_every_process() -> None:
    # If this fails, keys move when a broker is upgraded, and with them the order of their messages.
    assert [numbered(5).choose(b"key-%d" % number) for number in range(8)] == [
        "q2",
        "q3",
        "q0",
        "q1",
        "q3",
        "q0",
        "q1",
        "q1",
    ]


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_equal_weights_get_equal_shares(count: int) -> None:
    shares = Counter(places(numbered(count)).values())
    assert len(shares) == count
    expected = len(KEYS) / count
    assert all(abs(share - expected) < 5 * expected**0.5 for share in shares.values()), shares


def test_shares_follow_the_weights() -> None:
    shares = Counter(places(make(a=1, b=2, c=7)).values())
    for name, share in {"a": 0.1, "b": 0.2, "c": 0.7}.items():
        assert abs(shares[name] / len(KEYS) - share) < 0.02


def test_a_weight_beyond_all_measure_leaves_nothing_to_the_others_and_breaks_nothing() -> None:
    ring = make(light=1, heavy=10**254)
    assert set(places(ring).values()) == {"heavy"}
    ring.add("as heavy", "as heavy", WEIGHT_MAX)
    assert abs(Counter(places(ring).values())["as heavy"] / len(KEYS) - 0.5) < 0.02


@pytest.mark.parametrize(("count", "times"), [(1, 1.1), (2, 1.1), (10, 1.6), (100, 3.0), (1000, 4.0)])
def test_a_new_destination_moves_few_keys(count: int, times: float) -> None:
    ring = numbered(count)
    before = places(ring)
    ring.add("new", "new", 1)
    after = places(ring)
    assert 0 < moved(before, after) < times / (count + 1)
    ring.remove("new", "new")
    assert places(ring) == before


def test_a_destination_that_goes_leaves_the_others_their_keys() -> None:
    ring = numbered(10)
    before = places(ring)
    ring.remove("q3", "q3")
    after = places(ring)
    assert "q3" not in after.values()
    assert moved(before, after) < 0.16


def test_further_shares_of_a_destination_add_nothing_until_the_first_is_gone() -> None:
    ring = make(a=1, b=1)
    before = places(ring)
    ring.add("a", "a again", 9)
    assert places(ring) == before
    ring.remove("a", "a")
    shares = Counter(places(ring).values())
    assert set(shares) == {"a again", "b"}
    assert abs(shares["a again"] / len(KEYS) - 0.9) < 0.02
    ring.remove("a", "a again")
    assert set(places(ring).values()) == {"b"}


def test_removing_what_is_not_there_changes_nothing() -> None:
    ring = make(a=1, b=1)
    before = places(ring)
    ring.remove("c", "c")
    ring.remove("a", "b")
    assert places(ring) == before


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    ring = numbered(500)
    for number in range(500):
        ring.remove(f"q{number}", f"q{number}")
    assert len(ring) == 0
    assert ring.choose(b"key") is None
    ring.add("a", "a", 1)
    assert ring.choose(b"key") == "a"
