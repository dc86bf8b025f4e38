"""Every rule of the tables' quality is one that a row can break: bad rows for each, and a good one that breaks none.

Each bad row is in a window of its own, so that one query tells them all apart.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.flowjob.gathered import gathered
from penstock.spark.tables.quality import RULES, checks
from tests.spark.pipeline.derivation import Row, frame, small
from tests.spark.pipeline.histories import channel, connection
from tests.spark.pipeline.story import END, WINDOW_S, arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Windows = list[list[Row]]  # what is wrong with each row of some windows

LONG_AGO = END - timedelta(days=30_000)
GOOD: dict[str, Row] = {
    "events": {"offset": 1, "at": END, "v": 1, "type": "blocked", "stage": "queue q", "cause": "store", "late": False},
    "samples": {"at": END, "stage": "queue q", "kind": "queue", "interval_s": 1.0},
    "blocks": {
        "stage": "queue q",
        "cause": "store",
        "began": END,
        "ended": END + timedelta(seconds=1),
        "duration_us": 1_000_000,
        "longest_us": 1_000_000,
        "count": 1,
        "chain": ["queue q", "store"],
        "root": "store",
        "closed_by": "unblocked",
        "offset": 1,
    },
    "open": {"stage": "queue q", "cause": "store", "began": END, "seen_at": END, "offset": 1},
    "chains": {
        "upstream": "queue q",
        "downstream": "store",
        "root": "store",
        "blocked_us": 2,
        "passed_us": 1,
        "blocks": 1,
    },
    "verdicts": {
        "connection": connection(1),
        "cause": "channel",
        "bottleneck": channel(1),
        "client": "shop",
        "chain": [connection(1), channel(1)],
        "share": 0.5,
    },
    "blockers": {"bottleneck": "store", "cause": "store", "connections": 1, "blocked_us": 1, "rank": 1},
    "depth": {"stage": "queue q", "messages_min": 1, "messages_max": 3, "messages_last": 2},
    "syncs": {"count": 1, "mean_us": 2.0, "p50_us": 1.0, "p95_us": 2.0, "p99_us": 3.0, "longest_us": 3},
    "resources": {"at": END, "connections": 0, "channels": 0, "queues": 0},
    "forecast": {
        "subject": "queue q",
        "unit": "messages",
        "value": 1.0,
        "limit": 2.0,
        "slope_per_s": 1.0,
        "r2": 1.0,
        "hits_at": END + timedelta(days=1),
        "in_s": 86_400.0,
        "over_s": 300.0,
    },
}
TWICE: Windows = [[{}, {}]]


def each(*changes: Row) -> Windows:
    return [[change] for change in changes]


def unknown(*names: str) -> dict[str, Windows]:
    return {f"{name} is known": each({name: None}) for name in names}


def negative(*names: str) -> dict[str, Windows]:
    return {f"{name} is not below 0": each({name: -1}) for name in names}


def no_share(*names: str) -> dict[str, Windows]:
    return {f"{name} is null or 0 to 1": each({name: -0.01}, {name: 1.01}) for name in names}


BAD: dict[str, dict[str, Windows]] = {
    "events": {
        **unknown("offset"),
        "its offset is there once": TWICE,
        "it is an event: JSON with a type and a time": each({"type": None}, {"at": None}, {"at": LONG_AGO}),
        "its version is 1": each({"v": 2}, {"v": None}),
        "it is not late": each({"late": True}),
        "a block has a stage and a cause": each({"stage": None}, {"cause": None, "type": "unblocked"}),
        "nothing was dropped": each({"type": "dropped"}),
    },
    "samples": {
        **unknown("at", "stage", "kind"),
        **negative("received_rate", "sent_rate", "service_us", "batch"),
        **no_share("blocked_share"),
        "interval_s is null or above 0, up to 10": each({"interval_s": 0.0}, {"interval_s": 10.5}),
    },
    "blocks": {
        **unknown("stage", "cause", "began", "ended", "root", "offset"),
        "it ends when it began or later": each({"ended": LONG_AGO}),
        **negative("duration_us"),
        "count is 1 or more": each({"count": 0}),
        "the longest is not longer than all together": each({"longest_us": 1_000_001}),
        "its end was told": each({"closed_by": "lost"}),
        "the chain begins with the stage": each({"chain": ["store", "queue q"]}, {"chain": []}, {"chain": None}),
    },
    "open": {
        **unknown("stage", "cause", "began", "seen_at", "offset"),
        "it was seen when it began or later": each({"seen_at": LONG_AGO}),
    },
    "chains": {
        **unknown("upstream", "downstream", "root"),
        **negative("blocked_us", "passed_us", "blocks"),
        "no more is passed on than was blocked": each({"passed_us": 3}),
        "nobody waits for itself": each({"downstream": "queue q"}),
    },
    "verdicts": {
        **unknown("connection", "cause", "bottleneck", "client"),
        "a connection has one in a window": TWICE,
        **no_share("share"),
        "the cause is one of those that are told": each({"cause": "weather"}),
        "the chain begins with the connection": each({"connection": connection(2)}, {"chain": []}, {"chain": None}),
        "the chain ends with the bottleneck": each({"bottleneck": "store"}, {"chain": []}, {"chain": None}),
    },
    "blockers": {
        **unknown("bottleneck", "cause"),
        "it held back somebody": each({"connections": 0}, {"blocked_us": 0}),
        "its rank is 1 or more": each({"rank": 0}),
    },
    "depth": {
        **unknown("stage", "messages_last"),
        **no_share("saturated_share", "blocked_share"),
        **negative("messages_min", "received_rate", "sent_rate", "ready_last", "ready_bytes_last", "limit_share"),
        "the last is between the least and the most": each({"messages_last": 0}, {"messages_last": 4}),
    },
    "syncs": {
        "there was a sync": each({"count": 0}),
        "percentiles are in order": each({"p50_us": 2.5}, {"p95_us": 3.5}, {"p99_us": 4.0}),
        "the mean is not above the longest": each({"mean_us": 4.5}),
    },
    "resources": {
        **unknown("at", "connections", "channels", "queues"),
        **negative("memory_used_bytes", "disk_free_bytes", "connections", "channels", "queues"),
    },
    "forecast": {
        **unknown("subject", "value", "limit", "slope_per_s"),
        "its unit is messages or bytes": each({"unit": "litres"}, {"unit": None}),
        **no_share("r2"),
        "it is hit after the window, or not at all": each({"hits_at": LONG_AGO}, {"in_s": -1.0}),
        "the trend is no longer than it looks back": each({"over_s": 0.0}, {"over_s": 301.0}),
    },
}


def window(number: int) -> datetime:
    return END + timedelta(seconds=WINDOW_S * number)


def placed(table: str) -> list[tuple[str, datetime, list[Row]]]:
    """Rule, window, and what is wrong with its rows; the first window is without fault."""
    wrong = [(rule, rows) for rule, windows in BAD[table].items() for rows in windows]
    return [(rule, window(number), rows) for number, (rule, rows) in enumerate(wrong, 1)]


def rows_of(table: str) -> list[dict[str, Any]]:
    bad = [{"window": at, **GOOD[table], **change} for _, at, rows in placed(table) for change in rows]
    return [{"window": window(0), **GOOD[table]}, *bad]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[Row]]:
    """What the checks say, by table; in one query."""
    with small(spark):
        told = gathered(
            {table: checks(table, frame(spark, arrow(table, rows_of(table)), table), WINDOW_S) for table in RULES}
        )
    return {table: rows.to_pylist() for table, rows in told.items()}


def test_there_are_bad_rows_for_every_rule():
    assert {table: list(rules) for table, rules in BAD.items()} == {
        table: [rule.name for rule in rules] for table, rules in RULES.items()
    }


@pytest.mark.parametrize("table", RULES)
def test_a_row_without_fault_breaks_no_rule(found: dict[str, list[Row]], table: str):
    checked = [row for row in found[table] if row["window"] == window(0)]
    assert len(checked) == len(RULES[table])
    assert [row["rule"] for row in checked if row["failures"] or row["example"]] == []


@pytest.mark.parametrize(("table", "rule"), [(table, rule.name) for table, rules in RULES.items() for rule in rules])
def test_every_rule_is_one_that_a_row_can_break(found: dict[str, list[Row]], table: str, rule: str):
    failures = {row["window"]: (row["failures"], bool(row["example"])) for row in found[table] if row["rule"] == rule}
    wrong = {at: rows for name, at, rows in placed(table) if name == rule}
    assert {at: failures[at] for at in wrong} == dict.fromkeys(wrong, (1, True)), wrong
