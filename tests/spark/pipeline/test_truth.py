"""What the tables say of an overload is what was done to the broker: five causes, each played for twenty windows.

Two brokers, so that it takes a minute only; on each, acts of truth.py one after the other. Then the flow job reads what
the brokers told of themselves, and its verdicts are compared with what was played, window by window.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipeline.truth import CALM, CHANNEL, MANAGEMENT, Play, Score, Spell, read_verdicts, scores
from tests.wire.live import ServeProcess
from tests.wire.overloads import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW_S = 1
WINDOWS = 20  # of each cause
CALM_WINDOWS = 4  # before and after each act
RIGHT = 0.95  # of the windows, of each cause
ACTS = ((("store", "saturated"), ("memory",)), (("queue",), ("channel",)))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServeProcess]]:
    processes = [ServeProcess(tmp_path_factory.mktemp("truth"), *MANAGEMENT) for _ in ACTS]
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture(scope="module")
def found(
    spark: SparkSession, brokers: list[ServeProcess], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Score]]:
    """By cause, how often the tables were right, broker by broker."""
    plays = [Play(process, *acts) for process, acts in zip(brokers, ACTS, strict=True)]
    with ThreadPoolExecutor(len(plays)) as pool:
        for done in [pool.submit(play.run, WINDOWS, CALM_WINDOWS, WINDOW_S) for play in plays]:
            done.result()
    by_cause: dict[str, list[Score]] = {}
    for play, process in zip(plays, brokers, strict=True):
        verdicts = read_verdicts(spark, process.uri, tmp_path_factory.mktemp("tables"), WINDOW_S)
        for score in scores(play.spells, verdicts, WINDOW_S):
            by_cause.setdefault(score.cause, []).append(score)
    return by_cause


@pytest.mark.parametrize("kind", KINDS)
def test_the_stage_that_was_made_slow_is_named_in_the_windows_in_which_it_was(
    kind: str, found: dict[str, list[Score]]
) -> None:
    (score,) = found[KINDS[kind].cause]
    assert score.windows >= WINDOWS
    assert score.share >= RIGHT, score


def test_nothing_is_named_where_nothing_was_slow(found: dict[str, list[Score]]) -> None:
    windows = sum(score.windows for score in found[CALM])
    assert windows >= CALM_WINDOWS * sum(1 + len(acts) for acts in ACTS)
    assert sum(score.matched for score in found[CALM]) >= RIGHT * windows, found[CALM]


@pytest.mark.parametrize(
    ("bottleneck", "named", "right"),
    [
        (CHANNEL, "channel 127.0.0.1:50112 -> 127.0.0.1:5672 (1)", True),
        (CHANNEL, "queue orders", False),
        (CHANNEL, "", False),
        ("store", "store", True),
        ("store", "queue orders", False),
    ],
)
def test_a_verdict_is_right_only_if_it_names_the_stage_too(bottleneck: str, named: str, right: bool) -> None:
    cause = bottleneck.strip()
    (score,) = scores([Spell(cause, "shop", bottleneck, 0.5, 3.0)], {2: {"shop": [(cause, named)]}}, 1)
    assert (score.windows, score.matched) == (1, 1 if right else 0), score
