"""Spark and the broker, killed at random under load: every row is there once.

SPARK_ROUNDS=20 is the long proof, SPARK_SEED repeats one, SPARK_RATE is the load. What was done is in rounds.log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.rounds import ROUNDS, SEED, Site, faults_of


@pytest.mark.timeout(600 + 300 * ROUNDS)
def test_whatever_is_killed_every_message_of_a_stream_and_of_a_queue_is_in_parquet_exactly_once(tmp_path: Path):
    Site(tmp_path, SEED).run(ROUNDS)


@pytest.mark.parametrize(
    ("numbers", "offsets", "fault"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], ""),
        ([0, 1, 3], [0, 1, 2], "1 of 4 numbers are missing"),
        ([0, 1, 2], [0, 1, 2], "1 of 4 numbers are missing"),
        ([0, 1, 2, 2, 3], [0, 1, 2, 3, 4], "1 of 5 rows are double"),
        ([0, 1, 2, 3], [0, 1, 2, 2], "offsets of partition 0"),
        ([0, 2, 1, 3], [0, 1, 2, 3], "not in order"),
    ],
)
def test_rows_that_are_missing_double_or_out_of_order_are_noticed(
    numbers: Sequence[int], offsets: Sequence[int], fault: str
):
    table = pa.table({"number": numbers, "partition": [0] * len(numbers), "offset": offsets})
    found = faults_of("stream", table, 4)
    assert (fault in "\n".join(found)) if fault else not found
