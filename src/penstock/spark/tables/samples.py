"""Samples: what each stage did between two of its samples.

Upstream: events.py.  Downstream: depth.py, work.py, slices.py (whose confirms are held), verdicts.py (who is who), the
twin.
Counters are sums over a stage's life, so a rate is the difference of two samples. The one before must not be older than
LOOKBACK_S, the broker must not have started again between them, and no counter may have gone back: then it is another
stage of the same name.
Not here: a queue's window (depth.py).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.tables.schema import LOOKBACK_S, SAMPLES
from penstock.spark.tables.windows import US, floor_us, windowed

COUNTERS: Final = ("received", "sent", "blocked_us", "busy_us", "turns")
MEASURED: Final = ("interval_s", "received_rate", "sent_rate", "blocked_share", "service_us", "batch")
# For the tables made of samples:
LIMITS: Final = ("ready", "limit_messages", "ready_bytes", "limit_bytes")
KEPT: Final = ("offset", *LIMITS, "held", "held_from", "sends_to", "start_us", "restarts")
TOLD: Final = tuple(name for name, *_ in SAMPLES if name not in MEASURED)


def measured(events: DataFrame, window_s: int) -> DataFrame:
    """Every sample once, with `us`, `window_us`, and what it did since the one before; and what KEPT says."""
    raw = events.filter("type = 'sample' and stage is not null").select(
        F.unix_micros("at").alias("us"), *TOLD, *KEPT
    )  # fmt: skip
    order = Window.partitionBy("stage").orderBy("us", "offset")
    before = [F.lag(name).over(order).alias(f"_{name}") for name in ("us", "offset", *COUNTERS)]
    # What came twice is next to itself; the one behind it still sees the same values before it.
    once = raw.select("*", *before).filter("_offset is null or _offset <> offset")
    gap_us = F.col("us") - F.col("_us")
    back = [F.coalesce(F.col(name) < F.col(f"_{name}"), F.lit(False)) for name in COUNTERS]
    restarted = F.exists("restarts", lambda at: (at > F.col("_us")) & (at <= F.col("us")))
    is_next = (gap_us > 0) & (gap_us <= LOOKBACK_S * US) & ~restarted & ~_any(back)
    interval_s = F.when(is_next, gap_us / US)
    return once.withColumns(
        {
            "window_us": floor_us(F.col("us"), window_s),
            "interval_s": interval_s,
            "received_rate": _grown("received") / interval_s,
            "sent_rate": _grown("sent") / interval_s,
            "blocked_share": F.least(F.lit(1.0), _grown("blocked_us") / US / interval_s),
            "service_us": F.when(
                interval_s.isNotNull() & (_grown("received") > 0), _grown("busy_us") / _grown("received")
            ),
            # One turn in 16 is timed and stands for all, so the sum may be more than there was time for.
            "busy_rate": F.when(is_next, F.least(F.lit(1.0), _grown("busy_us") / gap_us)),
            "batch": F.when(interval_s.isNotNull() & (_grown("turns") > 0), _grown("received") / _grown("turns")),
        }
    )


def samples(measures: DataFrame) -> DataFrame:
    return windowed(measures.filter("us >= start_us"), "samples")


def _grown(name: str) -> Column:
    return F.col(name) - F.col(f"_{name}")


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found
