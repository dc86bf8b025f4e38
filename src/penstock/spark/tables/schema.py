"""Schema: every table's columns, their types and what they say; and the limits that the functions beside it share.

docs/spark.md shows the same, held by a test. A table's row belongs to one window: `window` is its start, `day` the date
of that, by which files are partitioned. All times are UTC.
Not here: what must be true of the values (quality.py).
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

WINDOW_S: Final = 10  # the slice of everything derived
LOOKBACK_S: Final = 10  # of events before the first window: a stage's previous sample
REACH_S: Final = 3  # so far back an event may change what windows say: the second that it sums up, and some delay
WATERMARK_S: Final = 60  # a stage that is silent for so long is gone, and its blocks are over
LATE_MAX_S: Final = 600  # an event that is later than this is kept, but no table is derived again for it
FORECAST_S: Final = 300  # the trend is that of the last five minutes, or of POINTS_MIN windows if these are longer
POINTS_MIN: Final = 3  # windows of a trend

TYPES: Final[dict[str, DataType]] = {
    one.simpleString(): one
    for one in (
        ArrayType(StringType()),
        BooleanType(),
        DateType(),
        DoubleType(),
        IntegerType(),
        LongType(),
        MapType(StringType(), LongType()),
        StringType(),
        TimestampType(),
    )
}

TIMES: Final = (
    ("window", "timestamp", "start of the window"),
    ("day", "date", "its date"),
)

Row = tuple[str, str, str]  # name, type, what it says

EVENTS: Final[tuple[Row, ...]] = (
    ("offset", "bigint", "where it is in the stream"),
    ("at", "timestamp", "when it happened"),
    ("v", "int", "version of the schema of events"),
    ("type", "string", "blocked, unblocked, sample, …: docs/events.md"),
    ("stage", "string", "which stage it is about"),
    ("kind", "string", "connection, channel, queue, stream or store"),
    ("cause", "string", "what blocks it"),
    ("chain", "array<string>", "from the stage to the bottleneck at that moment"),
    ("count", "bigint", "for how many it stands"),
    ("duration_us", "bigint", "how long it took, all of them together"),
    ("longest_us", "bigint", "the longest of them"),
    ("messages", "bigint", "in flight, in the queue, or found"),
    ("bytes", "bigint", "the same"),
    ("mailbox", "bigint", "messages that wait for the stage"),
    ("blocked", "boolean", "whether it is blocked now"),
    ("blocks", "bigint", "so far"),
    ("blocked_us", "bigint", "so far"),
    ("received", "bigint", "so far"),
    ("sent", "bigint", "so far"),
    ("turns", "bigint", "so far"),
    ("busy_us", "bigint", "so far"),
    ("writes", "bigint", "to the socket so far"),
    ("write_us", "bigint", "so far"),
    ("consumers", "bigint", "of a queue"),
    ("client", "string", "what the client calls itself"),
    ("user", "string", "of a connection, or who failed to log in"),
    ("vhost", "string", "of a connection, queue or stream"),
    ("connection", "string", "of a channel, the stage of its connection"),
    ("sends_to", "array<string>", "of a channel, queues that it sends to"),
    ("saturated", "boolean", "of a queue, now"),
    ("held", "bigint", "confirms that are or were held"),
    ("held_from", "array<string>", "the channels whose confirms these are"),
    ("ready", "bigint", "messages of a queue that count for its limit"),
    ("limit_messages", "bigint", "the field `limit`: of a queue, its stop mark or maximum"),
    ("ready_bytes", "bigint", "the same in bytes"),
    ("limit_bytes", "bigint", "the same in bytes"),
    ("source", "string", "of an alarm"),
    ("reason", "string", "of an alarm or a failed login"),
    ("peer", "string", "of a failed login"),
    ("paged_out", "bigint", "the field `out`: messages that left RAM"),
    ("paged_in", "bigint", "the field `in`: messages that came back"),
    ("used_bytes", "bigint", "RAM of all messages"),
    ("pending_messages", "bigint", "that wait for a sync"),
    ("pending_bytes", "bigint", "that wait for a sync"),
    ("histogram", "map<string,bigint>", "syncs by upper bound in us"),
    ("clean", "boolean", "of a start: the broker was stopped in order before"),
    ("queues", "bigint", "that there are, or were found"),
    ("scanned_bytes", "bigint", "read at a start"),
    ("damages", "bigint", "places that cannot be read"),
    ("cut", "boolean", "the newest file ended within a record"),
    ("memory_used_bytes", "bigint", "of the broker's process"),
    ("memory_limit_bytes", "bigint", "above it there is an alarm"),
    ("disk_free_bytes", "bigint", "on the disk of the journal"),
    ("disk_limit_bytes", "bigint", "below it there is an alarm"),
    ("connections", "bigint", "open now"),
    ("channels", "bigint", "open now"),
    ("cpu_us", "bigint", "of the broker's thread so far"),
    ("wait_us", "bigint", "for which that thread waited for a core so far"),
    ("waits", "bigint", "how often it did"),
    ("events_dropped", "bigint", "so far"),
    ("counts", "map<string,bigint>", "of what was dropped, by type"),
    ("total", "bigint", "of what was dropped"),
    ("body", "string", "the JSON as it came"),
    ("late", "boolean", "too late for the other tables: older than the newest by more than 10 minutes"),
)

SAMPLES: Final[tuple[Row, ...]] = (
    ("at", "timestamp", "when it was taken"),
    ("stage", "string", "of which stage"),
    ("kind", "string", "connection, channel, queue, stream or store"),
    ("client", "string", "what the client calls itself"),
    ("user", "string", "of a connection"),
    ("vhost", "string", "of a connection, queue or stream"),
    ("mailbox", "bigint", "messages that wait for it"),
    ("blocked", "boolean", "at that moment"),
    ("blocks", "bigint", "so far"),
    ("blocked_us", "bigint", "so far"),
    ("received", "bigint", "messages so far"),
    ("sent", "bigint", "messages so far"),
    ("messages", "bigint", "in a queue"),
    ("consumers", "bigint", "of a queue"),
    ("busy_us", "bigint", "time of its turns so far"),
    ("turns", "bigint", "so far"),
    ("write_us", "bigint", "of a connection: time of its writes so far"),
    ("writes", "bigint", "of a connection: so far"),
    ("interval_s", "double", "since the sample before; null if that is older than 10 s, or from before a restart"),
    ("received_rate", "double", "messages per second in the interval; null where that is"),
    ("sent_rate", "double", "the same"),
    ("blocked_share", "double", "of the interval, 0 to 1"),
    ("service_us", "double", "time of its turns per message that it received"),
    ("batch", "double", "messages received per turn"),
)

BLOCKS: Final[tuple[Row, ...]] = (
    ("stage", "string", "who was blocked"),
    ("kind", "string", "connection, channel, queue, stream or store"),
    ("cause", "string", "by what: another stage, an alarm, or `maximum`"),
    ("began", "timestamp", "when; of several blocks that were summed up, a second before `ended`"),
    ("ended", "timestamp", "when; it is the window of this to which the row belongs"),
    ("duration_us", "bigint", "how long, all of them together"),
    ("longest_us", "bigint", "the longest of them"),
    ("count", "bigint", "how many blocks this row stands for"),
    ("messages", "bigint", "in flight on the link"),
    ("bytes", "bigint", "in flight on the link"),
    ("chain", "array<string>", "from the stage to the bottleneck, when it was blocked"),
    ("root", "string", "the end of that"),
    ("closed_by", "string", "unblocked; restart, watermark or lost if the event that ends it never came"),
    ("offset", "bigint", "of the event that ended it, else of the one that began it"),
)

OPEN: Final[tuple[Row, ...]] = (
    ("stage", "string", "who is blocked at the end of the window, or which queue is saturated"),
    ("kind", "string", "connection, channel, queue, stream or store"),
    ("cause", "string", "by what; `saturated`: it holds confirms"),
    ("began", "timestamp", "when"),
    ("seen_at", "timestamp", "the last sign of the stage in this window or before"),
    ("messages", "bigint", "in flight on the link"),
    ("bytes", "bigint", "in flight on the link"),
    ("chain", "array<string>", "from the stage to the bottleneck, when it was blocked"),
    ("root", "string", "the end of that"),
    ("offset", "bigint", "of the event that began it"),
)

CHAINS: Final[tuple[Row, ...]] = (
    ("upstream", "string", "who waited"),
    ("downstream", "string", "for what: a stage, `alarm memory`, `consumers of queue orders`"),
    ("root", "string", "the bottleneck behind it in this window; null: they wait for each other"),
    ("blocked_us", "bigint", "how long in this window"),
    ("passed_us", "bigint", "of that, how long `downstream` was blocked itself"),
    ("blocks", "bigint", "how many blocks ended in this window or were open at its end"),
)

VERDICTS: Final[tuple[Row, ...]] = (
    ("connection", "string", "who is held back: the stage of a connection"),
    ("client", "string", "what it calls itself; null if unknown"),
    ("user", "string", "whose it is; null if unknown"),
    ("vhost", "string", "where; null if unknown"),
    ("cause", "string", "channel, queue, dead letters, store, memory, disk, store fault, saturated or unknown"),
    ("bottleneck", "string", "the first stage downstream of the blocked ones that is not blocked; null if unknown"),
    ("chain", "array<string>", "from the connection to the bottleneck"),
    ("share", "double", "of the window in which it was held back, 0 to 1"),
    ("resource", "string", "what is short: CPU, disk, memory, consumers; empty if unknown"),
)

BLOCKERS: Final[tuple[Row, ...]] = (
    ("bottleneck", "string", "a stage, an alarm, or the consumers of a queue"),
    ("cause", "string", "as in verdicts"),
    ("connections", "bigint", "how many it held back"),
    ("blocked_us", "bigint", "how long, all of them together"),
    ("rank", "int", "1 is the worst of the window"),
)

DEPTH: Final[tuple[Row, ...]] = (
    ("stage", "string", "a queue or stream"),
    ("vhost", "string", "where it is; null if unknown"),
    ("messages_min", "bigint", "in it, unacknowledged ones too"),
    ("messages_max", "bigint", "in it"),
    ("messages_last", "bigint", "in it at the last sample"),
    ("received_rate", "double", "messages per second; null where no interval is known"),
    ("sent_rate", "double", "the same, delivered"),
    ("consumers", "bigint", "at the last sample"),
    ("saturated_share", "double", "of the window, 0 to 1"),
    ("blocked_share", "double", "of the window, 0 to 1"),
    ("ready_last", "bigint", "messages that count for its limit, at the last sample"),
    ("limit_messages", "bigint", "its stop mark or maximum; null: none"),
    ("ready_bytes_last", "bigint", "the same in bytes of bodies; null: it has no limit of bytes"),
    ("limit_bytes", "bigint", "its stop mark or maximum in bytes; null: none"),
    ("limit_share", "double", "ready of the limit, messages or bytes, whichever is nearer; may be above 1"),
)

SYNCS: Final[tuple[Row, ...]] = (
    ("count", "bigint", "syncs of the store"),
    ("mean_us", "double", "what one took"),
    ("p50_us", "double", "half of them took at most this"),
    ("p95_us", "double", "19 of 20"),
    ("p99_us", "double", "99 of 100"),
    ("longest_us", "bigint", "the longest"),
    ("pending_messages", "bigint", "that waited for a sync, at most"),
    ("pending_bytes", "bigint", "that waited for a sync, at most"),
)

RESOURCES: Final[tuple[Row, ...]] = (
    ("at", "timestamp", "when it was last looked at in this window"),
    ("memory_used_bytes", "bigint", "of the broker's process"),
    ("memory_limit_bytes", "bigint", "above it there is an alarm"),
    ("disk_free_bytes", "bigint", "on the disk of the journal"),
    ("disk_limit_bytes", "bigint", "below it there is an alarm"),
    ("connections", "bigint", "open"),
    ("channels", "bigint", "open"),
    ("queues", "bigint", "that there are"),
    ("cpu_us", "bigint", "of the broker's thread so far"),
    ("wait_us", "bigint", "for which that thread waited for a core so far"),
    ("waits", "bigint", "how often it did"),
    ("events_dropped", "bigint", "so far"),
)

FORECAST: Final[tuple[Row, ...]] = (
    ("subject", "string", "`queue orders`, `disk` or `memory`"),
    ("unit", "string", "of `value`, `limit` and the trend: `messages` or `bytes`; a queue may have a row for each"),
    ("value", "double", "messages or bytes of a queue, bytes free or used, at the end of the window"),
    ("limit", "double", "where it should not get to"),
    ("slope_per_s", "double", "the trend: least squares over the last 300 s, or three windows if these are longer"),
    ("r2", "double", "how well a straight line fits, 0 to 1; null if the value does not change"),
    ("hits_at", "timestamp", "when it is at the limit; null: not at this trend, or not within 30 days"),
    ("in_s", "double", "seconds until then, from the end of the window; 0: it is there"),
    ("over_s", "double", "how long the trend was looked at"),
)

QUALITY: Final[tuple[Row, ...]] = (
    ("batch", "bigint", "which micro-batch; -1 is a rebuild"),
    ("table", "string", "of which table"),
    ("rule", "string", "what must be true"),
    ("rows", "bigint", "that were looked at"),
    ("failures", "bigint", "of which it is not true"),
    ("example", "string", "one of them, as JSON"),
)


class Table(NamedTuple):
    text: str  # one row says what
    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[Row, ...]:
        return TIMES + self.rows


TABLES: Final[dict[str, Table]] = {
    "events": Table("an event of the broker", EVENTS),
    "samples": Table("one stage at one second, and what it did since the second before", SAMPLES),
    "blocks": Table("a block that is over, or several of one second", BLOCKS),
    "open": Table("a block that is not over at the end of the window", OPEN),
    "chains": Table("who waited for whom in the window, and how long", CHAINS),
    "verdicts": Table("a connection that was held back in the window, and by what", VERDICTS),
    "blockers": Table("what held connections back in the window, the worst first", BLOCKERS),
    "depth": Table("a queue or stream in the window", DEPTH),
    "syncs": Table("the store's syncs in the window", SYNCS),
    "resources": Table("what the broker used at the end of the window", RESOURCES),
    "forecast": Table("when a limit will be reached at the trend of the last minutes", FORECAST),
    "quality": Table("a rule, and of how many rows it is not true", QUALITY),
}
DERIVED: Final = tuple(name for name in TABLES if name not in ("events", "quality"))


def trend_s(window_s: int) -> int:
    """How far back the trend of a forecast looks."""
    return max(FORECAST_S, POINTS_MIN * window_s)


@cache
def schema(table: str) -> StructType:
    """All columns may be null: what must not be is told by quality.py, which counts instead of failing."""
    return StructType([StructField(name, TYPES[type_]) for name, type_, _ in TABLES[table].columns])
