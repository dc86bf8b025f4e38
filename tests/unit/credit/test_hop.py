"""Spec and Hop: which settings are let in, and how they are read."""

from __future__ import annotations

import pytest

from penstock.credit import Hop, Link, Spec, Stage


@pytest.mark.parametrize(("initial", "more_after"), [(400, 200), (2, 1), (1, 1), (200, 50), (0, 0)])
def test_a_spec_that_can_work_is_taken(initial: int, more_after: int) -> None:
    spec = Spec(initial, more_after)
    assert (spec.initial, spec.more_after) == (initial, more_after)
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("initial", "more_after", "why"),
    [
        (-1, 0, "negative"),
        (4, -1, "negative"),
        (2, 3, "above initial"),
        (0, 1, "above initial"),
        (400, 0, "nothing is ever granted"),
        (1, 0, "nothing is ever granted"),
    ],
)
def test_a_spec_that_would_hang_for_ever_is_refused_with_the_reason(initial: int, more_after: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Spec(initial, more_after)


@pytest.mark.parametrize("text", ["400,200", " 400 , 200 "])
def test_a_spec_is_read_as_people_write_it(text: str) -> None:
    assert Spec.parse(text) == Spec(400, 200)


@pytest.mark.parametrize("text", ["", "400", "400,200,1", "a,b", "400;200", "1.5,1"])
def test_a_text_that_is_no_spec_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="as 400,200"):
        Spec.parse(text)


def test_a_text_with_a_spec_that_would_hang_is_refused_as_such() -> None:
    with pytest.raises(ValueError, match="nothing is ever granted"):
        Spec.parse("400,0")


def test_equal_specs_are_one_key() -> None:
    assert len({Spec(2, 1), Spec(2, 1), Spec(2, 2)}) == 2
    assert Spec(2, 1) != (2, 1)


def test_a_hop_knows_its_links_for_as_long_as_they_live() -> None:
    hop = Hop("hop", Spec(2, 1))
    up, down = (Stage(name, lambda: 0) for name in ("up", "down"))
    link = Link(hop, up, down)
    assert list(hop.links) == [link]
    link.close()
    assert not hop.links
