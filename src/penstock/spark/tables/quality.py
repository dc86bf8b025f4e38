"""Quality: what must be true of each table, and of how many rows it is not.

A rule never fails a job and never drops a row: it counts, and keeps one example. `checks` is one aggregate over the
rows of a table, by window; so when windows are derived again, their counts are replaced with them. A rule is about
single rows, or says that no two rows of a window have the same value.
Not here: who shows the counts (spark/flowjob/, the report); whether offsets are missing (spark/flowjob/batch.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.schema import schema, trend_s


class Rule(NamedTuple):
    name: str  # a sentence about a row
    must: str  # in SQL, where {trend_s} is how far back a trend looks; null counts as a failure, an error fails the job


class Single(NamedTuple):
    name: str
    column: str  # of rows that have the same value in it all but one are failures; null is no value


def _known(*names: str) -> tuple[Rule, ...]:
    return tuple(Rule(f"{name} is known", f"`{name}` is not null") for name in names)


def _share(*names: str) -> tuple[Rule, ...]:
    return tuple(Rule(f"{name} is null or 0 to 1", f"{name} is null or {name} between 0 and 1") for name in names)


def _not_negative(*names: str) -> tuple[Rule, ...]:
    return tuple(Rule(f"{name} is not below 0", f"coalesce({name}, 0) >= 0") for name in names)


CAUSES: Final = (
    "cause in ('channel', 'queue', 'dead letters', 'store', 'memory', 'disk', 'store fault', 'saturated', 'unknown')"
)
ORDER: Final = Rule("it ends when it began or later", "ended >= began")
RULES: Final[dict[str, tuple[Rule | Single, ...]]] = {
    "events": (
        *_known("offset"),
        Single("its offset is there once", "offset"),
        Rule("it is an event: JSON with a type and a time", "type is not null and at > timestamp '1971-01-01'"),
        Rule("its version is 1", "coalesce(v, 0) = 1"),
        Rule("it is not late", "not late"),
        Rule("a block has a stage and a cause", "type not in ('blocked', 'unblocked') or stage || cause is not null"),
        Rule("nothing was dropped", "coalesce(type, '') <> 'dropped'"),
    ),
    "samples": (
        *_known("at", "stage", "kind"),
        *_not_negative("received_rate", "sent_rate", "service_us", "batch"),
        *_share("blocked_share"),
        Rule("interval_s is null or above 0, up to 10", "interval_s is null or (interval_s > 0 and interval_s <= 10)"),
    ),
    "blocks": (
        *_known("stage", "cause", "began", "ended", "root", "offset"),
        ORDER,
        *_not_negative("duration_us"),
        Rule("count is 1 or more", "count >= 1"),
        Rule("the longest is not longer than all together", "longest_us <= duration_us"),
        Rule("its end was told", "closed_by = 'unblocked'"),
        Rule("the chain begins with the stage", "get(chain, 0) = stage"),
    ),
    "open": (
        *_known("stage", "cause", "began", "seen_at", "offset"),
        Rule("it was seen when it began or later", "seen_at >= began"),
    ),
    "chains": (
        *_known("upstream", "downstream", "root"),
        *_not_negative("blocked_us", "passed_us", "blocks"),
        Rule("no more is passed on than was blocked", "passed_us <= blocked_us"),
        Rule("nobody waits for itself", "upstream <> downstream"),
    ),
    "verdicts": (
        *_known("connection", "cause", "bottleneck", "client"),
        Single("a connection has one in a window", "connection"),
        *_share("share"),
        Rule("the cause is one of those that are told", CAUSES),
        Rule("the chain begins with the connection", "get(chain, 0) = connection"),
        Rule("the chain ends with the bottleneck", "try_element_at(chain, -1) = bottleneck"),
    ),
    "blockers": (
        *_known("bottleneck", "cause"),
        Rule("it held back somebody", "connections >= 1 and blocked_us > 0"),
        Rule("its rank is 1 or more", "rank >= 1"),
    ),
    "depth": (
        *_known("stage", "messages_last"),
        *_share("saturated_share", "blocked_share"),
        *_not_negative("messages_min", "received_rate", "sent_rate", "ready_last", "ready_bytes_last", "limit_share"),
        Rule("the last is between the least and the most", "messages_last between messages_min and messages_max"),
    ),
    "syncs": (
        Rule("there was a sync", "count >= 1"),
        Rule("percentiles are in order", "p50_us <= p95_us and p95_us <= p99_us and p99_us <= longest_us + 0.5"),
        Rule("the mean is not above the longest", "mean_us <= longest_us + 1"),
    ),
    "resources": (
        *_known("at", "connections", "channels", "queues"),
        *_not_negative("memory_used_bytes", "disk_free_bytes", "connections", "channels", "queues"),
    ),
    "forecast": (
        *_known("subject", "value", "limit", "slope_per_s"),
        Rule("its unit is messages or bytes", "unit in ('messages', 'bytes')"),
        *_share("r2"),
        Rule("it is hit after the window, or not at all", "hits_at is null or (hits_at > window and in_s >= 0)"),
        Rule("the trend is no longer than it looks back", "over_s > 0 and over_s <= {trend_s}"),
    ),
}  # fmt: skip


def checks(table: str, frame: DataFrame, window_s: int) -> DataFrame:
    """One row for each window and rule: window, day, table, rule, rows, failures, example."""
    rules = RULES[table]
    shown = F.to_json(F.struct(*[name for name in schema(table).names if name not in ("body", "day")]))
    sums: list[Column] = []
    for number, rule in enumerate(rules):
        if isinstance(rule, Single):
            failures, example = _again(rule.column)
        else:
            fails = ~F.coalesce(F.expr(rule.must.format(trend_s=trend_s(window_s))), F.lit(False))
            failures, example = F.count(F.when(fails, 1)), F.max(F.when(fails, shown))
        sums += [failures.alias(f"failures{number}"), example.alias(f"example{number}")]
    found = [
        F.struct(
            F.lit(rule.name).alias("rule"),
            F.col(f"failures{number}").alias("failures"),
            F.col(f"example{number}").alias("example"),
        )
        for number, rule in enumerate(rules)
    ]
    by_window = frame.groupBy("window", "day").agg(F.count("*").alias("rows"), *sums)
    each = by_window.select("window", "day", "rows", F.explode(F.array(*found)).alias("found"))
    return each.select(
        "window", "day", F.lit(table).alias("table"), "found.rule", "rows", "found.failures", "found.example"
    )


def _again(column: str) -> tuple[Column, Column]:
    """How many values there are more than different ones, and one that is there again."""
    values = F.sort_array(F.collect_list(column))
    again = F.filter(values, lambda value, at: (at > 0) & (value == F.get(values, at - 1)))
    failures = F.size(values) - F.size(F.array_distinct(values))
    example = F.when(failures > 0, F.to_json(F.struct(F.element_at(again, 1).alias(column))))
    return failures.cast("bigint"), example
