"""Verdicts: of every connection and window, what held it back.

Upstream: chains.py, samples.py (who the client is).  Downstream: blockers.py, the report, the History page.
The rule is not here: flow/window.py has it, the same as live. It is called in Spark's Python workers, a partition of
whole windows at a time; everything before and behind it is SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.flow.window import Wait, judge
from penstock.spark.tables.schema import LOOKBACK_S
from penstock.spark.tables.windows import US, windowed

JUDGED: Final = (
    "window_us bigint, role string, upstream string, downstream string, root string, blocked_us bigint, "
    "passed_us bigint, blocks bigint, cause string, chain array<string>, share double, resource string"
)
WORK: Final = {"via": "string", "busy_us": "bigint", "heaviest": "string", "heaviest_us": "bigint"}  # for the rule only
ROWS_MAX: Final = 5_000  # of an Arrow batch that is given back
ARROW: Final = pa.schema(
    [
        ("window_us", pa.int64()),
        ("role", pa.string()),
        ("upstream", pa.string()),
        ("downstream", pa.string()),
        ("root", pa.string()),
        ("blocked_us", pa.int64()),
        ("passed_us", pa.int64()),
        ("blocks", pa.int64()),
        ("cause", pa.string()),
        ("chain", pa.list_(pa.string())),
        ("share", pa.float64()),
        ("resource", pa.string()),
    ]
)

Row = dict[str, Any]


def judged(waits: DataFrame, held_back: DataFrame, window_s: int) -> DataFrame:
    """role `wait`: one of the waits with its root; role `verdict`: of the connection `upstream`."""
    totals = held_back.select(
        "window_us",
        "upstream",
        F.lit(None).cast("string").alias("downstream"),
        "blocked_us",
        F.lit(0).cast("bigint").alias("passed_us"),
        F.lit(0).cast("bigint").alias("blocks"),
        *(F.lit(None).cast(type_).alias(name) for name, type_ in WORK.items()),
    )
    # Numbered by window: so the rows of a window are together, in one partition and one after the other.
    by_window = Window.partitionBy("window_us").orderBy("upstream", "downstream")
    together = waits.unionByName(totals).withColumn("number", F.row_number().over(by_window))
    return together.mapInArrow(_judge(window_s), JUDGED)


def _judge(window_s: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[Row] = []
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for window_us, members in groupby(rows, itemgetter("window_us")):
            found.extend(_judge_one(window_us, members, window_s * US))
            if len(found) >= ROWS_MAX:
                yield pa.RecordBatch.from_pylist(found, schema=ARROW)
                found = []
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=ARROW)

    return judge_all


def _judge_one(window_us: int, members: Iterable[Row], length_us: int) -> Iterator[Row]:
    edges: list[Row] = []
    held_us: dict[str, int] = {}
    for row in members:
        if row["downstream"] is None:
            held_us[row["upstream"]] = row["blocked_us"]
        else:
            edges.append(row)
    waits = [
        Wait(
            row["upstream"],
            row["downstream"],
            row["blocked_us"],
            row["passed_us"],
            row.pop("via") or "",
            row.pop("busy_us") or 0,
            row.pop("heaviest") or "",
            row.pop("heaviest_us") or 0,
        )
        for row in edges
    ]
    findings, roots = judge(waits, held_us, length_us)
    for row, root in zip(edges, roots, strict=True):
        del row["number"]
        yield {**row, "role": "wait", "root": root}
    for finding in findings:
        yield {
            "window_us": window_us,
            "role": "verdict",
            "upstream": finding.connection,
            "root": finding.bottleneck,
            "cause": finding.cause,
            "chain": list(finding.chain),
            "share": finding.share,
            "resource": finding.resource,
        }


def clients(measures: DataFrame, window_s: int) -> DataFrame:
    """window_us, connection, client, user, vhost: as its samples told in the window, or within LOOKBACK_S before it."""
    step_us = window_s * US
    known = (
        measures.filter("kind = 'connection' and client is not null")
        .groupBy("window_us", F.col("stage").alias("connection"))
        .agg(F.max("client").alias("client"), F.max("user").alias("user"), F.max("vhost").alias("vhost"))
    )
    on = F.sequence(F.col("window_us"), F.col("window_us") + LOOKBACK_S // window_s * step_us, F.lit(step_us))
    return (
        known.withColumn("window_us", F.explode(on))
        .groupBy("window_us", "connection")
        .agg(F.max("client").alias("client"), F.max("user").alias("user"), F.max("vhost").alias("vhost"))
    )


def verdicts(judged_: DataFrame, clients_: DataFrame) -> DataFrame:
    found = judged_.filter("role = 'verdict'").select(
        "window_us",
        F.col("upstream").alias("connection"),
        "cause",
        F.col("root").alias("bottleneck"),
        "chain",
        "share",
        "resource",
    )
    return windowed(found.join(clients_, ["window_us", "connection"], "left"), "verdicts")
