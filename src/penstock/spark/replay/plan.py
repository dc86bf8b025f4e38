"""Replay plan: a table's rows as messages in lanes: each key in one lane, each lane in one order, the same every time.

Pure: DataFrame -> DataFrame. Upstream: job.py, with a table.  Downstream: lane.py, a task for each lane.
A lane is what hash(key) modulo the number of lanes says; Spark sorts it, on disk if it is large. Within a lane rows are
in the order of --order-by, and with recorded times by those first: the time of a row is then the latest of its key so
far, so that a clock that went back for a moment puts no row in front of an earlier one of its key.
Rows that the order leaves equal are told apart by what is in them, so that a run that goes on finds the same order.
Not here: encoding (encoder.py), pace (lane.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from penstock.spark.complaint import Complaint
from penstock.spark.encoder import BODY_NAMES, KNOWN, READ_ONLY

LANE: Final = "_lane"
DUE: Final = "_due"  # microseconds since 1970; null at full speed
KEY: Final = "_key"
TIE: Final = "_tie"
JSON_BODY: Final = "json"  # --body json: of the columns that are no property
PLACE_ORDER: Final = ("offset", "partition")  # what a row of an archive is known by
TIME: Final = "timestamp"
TRANSIENT: Final = 1
DROPPED: Final = frozenset({"exchange", "value", "body"})  # the exchange is --exchange; bodies are made apart


@dataclass(frozen=True, slots=True)
class Route:
    """How a table is replayed."""

    key: str
    order: tuple[str, ...]
    body: str  # a column, or json
    routing_key: str | None  # None: the recorded one
    user: str  # of the connection
    time: str | None  # the column of recorded times; None: at full speed
    lanes: int
    names: tuple[tuple[str, str], ...] = ()  # JSON fields and their columns, of an archive with --json
    exact: bool = False  # the order leaves no two rows equal


def default_order(schema: StructType) -> tuple[str, ...]:
    names = schema.fieldNames()
    if "offset" in names:
        return tuple(name for name in PLACE_ORDER if name in names)
    if TIME in names:
        return (TIME,)
    raise Complaint("the table has neither a column offset nor timestamp: say with --order-by what its order is")


def check_route(schema: StructType, route: Route) -> None:
    """Complaint for a column that is not there, or cannot be what it is asked to be."""
    names = schema.fieldNames()
    for option, wanted in (("--key", (route.key,)), ("--order-by", route.order)):
        for name in wanted:
            if name not in names:
                raise Complaint(f"{option}: the table has no column {name!r}; it has {', '.join(names)}")
            kind = schema[name].dataType.typeName()
            if kind in ("map", "variant"):
                raise Complaint(f"{option}: the column {name!r} is a {kind}, which has no order")
    if route.body != JSON_BODY and route.body not in names:
        raise Complaint(
            f"the table has no column {route.body!r} for the body; it has {', '.join(names)}; "
            "name one with --body, or say --body json"
        )
    if route.time is not None:
        if route.time not in names:
            raise Complaint(f"--time: the table has no column {route.time!r}; it has {', '.join(names)}")
        if not isinstance(schema[route.time].dataType, TimestampType | TimestampNTZType):
            kind = schema[route.time].dataType.simpleString()
            raise Complaint(f"--time: the column {route.time!r} is {kind}, not a timestamp")
    if route.routing_key is None and "routing_key" not in names:
        raise Complaint("the table has no column routing_key: give the routing key with --routing-key")


def column(name: str) -> Column:
    """The column of this name, whatever is in it: a dot would else mean a field of a structure."""
    return F.col(f"`{name.replace('`', '``')}`")


def time_us(name: str) -> Column:
    """A timestamp in microseconds since 1970."""
    return F.unix_micros(column(name).cast("timestamp"))


def laned(table: DataFrame, route: Route, first_us: int | None) -> DataFrame:
    """The messages, each lane a partition in its order; columns of the sink, LANE and DUE."""
    schema = table.schema
    check_route(schema, route)
    names = schema.fieldNames()
    found = [_body(schema, route).alias("body")]
    for name in names:
        if name in KNOWN and name not in DROPPED and not (name == "routing_key" and route.routing_key is not None):
            found.append(_property(name, route).alias(name))
    lane = F.pmod(F.hash(column(route.key)), F.lit(route.lanes)).cast("int")
    order = [column(name).alias(f"_order{number}") for number, name in enumerate(route.order)]
    sorts = [f"_order{number}" for number in range(len(route.order))]
    tie = [] if route.exact else [F.xxhash64(F.to_json(F.struct(*map(column, names)))).alias(TIE)]
    sorts += [] if route.exact else [TIE]
    due = time_us(route.time) if route.time is not None else F.lit(None).cast("long")
    rows = table.select(*found, *order, *tie, column(route.key).alias(KEY), due.alias(DUE), lane.alias(LANE))
    # By the key and so many: the partition that Spark chooses is pmod(hash(key)) too, so one lane is one partition.
    rows = rows.repartition(route.lanes, KEY)
    if route.time is not None:
        so_far = Window.partitionBy(KEY).orderBy(*sorts).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        latest = F.coalesce(F.max(DUE).over(so_far), F.lit(first_us))
        rows = rows.withColumn(DUE, latest)
        sorts = [DUE, *sorts]
    rows = rows.sortWithinPartitions(*sorts)
    return rows.select(*(name for name in rows.columns if name in KNOWN), DUE, LANE)


def _body(schema: StructType, route: Route) -> Column:
    names = schema.fieldNames()
    if route.body == JSON_BODY and JSON_BODY not in names:
        taken = {*KNOWN, *READ_ONLY}
        own = [column(name) for name in names if name not in taken]
        if not own:
            raise Complaint("--body json: the table has no columns but a message's own")
        return F.to_json(F.struct(*own)).cast("binary")
    body = column(route.body).cast("binary")
    if route.body in BODY_NAMES and route.names:
        # An archive has no body where it has its fields: made anew of them, with the names they had.
        return F.coalesce(body, F.to_json(F.struct(*(column(c).alias(f) for f, c in route.names))).cast("binary"))
    return body


def _property(name: str, route: Route) -> Column:
    if name == "user_id":
        return F.when(column(name) == route.user, column(name))  # a broker refuses any other than the connection's
    if name == "delivery_mode":
        return F.coalesce(column(name), F.lit(TRANSIENT))  # it had none; the sink's default is another
    return column(name)
