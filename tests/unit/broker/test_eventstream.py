"""EventStream: which stages are sampled when there is not room for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.events import SAMPLE, Events
from penstock.broker.eventstream import EventStream
from penstock.credit import Stage
from tests.unit.fakes import StoreHouse

PER_SECOND = 20  # so that there is room for ten samples
ROOM = 10
WATERMARK_S = 60  # of spark/tables/schema.py: a blocked stage that is silent for so long counts as gone


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path) as house:
        yield house


@pytest.fixture
def stream(house: StoreHouse) -> EventStream:
    stream = EventStream(house.broker, house.vault, Events(PER_SECOND))
    stream.open(10_000_000, 0)
    return stream


def stages(count: int, word: str) -> list[Stage]:
    return [Stage(f"{word} {number}", lambda: 0) for number in range(count)]


def sampled(stream: EventStream, blocked: list[Stage], active: list[Stage]) -> list[str]:
    """The stages of one second's samples."""
    activity = stream._broker.activity
    activity.blocking = dict.fromkeys(blocked)
    stream._tell_stages([*blocked, *active], 0)
    return [json.loads(body)["stage"] for type_, body in stream.events.take(0, 0) if type_ == SAMPLE]


def test_of_more_blocked_stages_than_there_is_room_for_each_has_its_turn(stream: EventStream) -> None:
    blocked, active = stages(25, "blocked"), stages(5, "active")
    seconds = [sampled(stream, blocked, active) for _ in range(5)]
    assert [len(names) for names in seconds] == [ROOM] * 5
    assert sorted(name for names in seconds for name in names) == sorted(2 * [stage.name for stage in blocked])
    assert stream.events.dropped == 5 * (30 - ROOM)


def test_a_stage_that_stays_blocked_is_sampled_within_a_minute_whoever_comes_and_goes(stream: EventStream) -> None:
    blocked = stages(ROOM * WATERMARK_S // 2, "blocked")
    last = {stage.name: 0 for stage in blocked}
    for second in range(1, 3 * WATERMARK_S):
        passing = stages(second * 7 % 20, "passing")
        last |= dict.fromkeys(sampled(stream, [*blocked, *passing], []), second)
        assert second - min(last[stage.name] for stage in blocked) < WATERMARK_S


def test_those_that_are_only_active_have_what_room_the_blocked_ones_leave(stream: EventStream) -> None:
    blocked, active = stages(3, "blocked"), stages(30, "active")
    for _ in range(2):
        assert sampled(stream, blocked, active) == [stage.name for stage in [*blocked, *active]][:ROOM]
