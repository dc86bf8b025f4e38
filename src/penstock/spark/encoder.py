"""Encoder: rows of an Arrow batch to what publish takes: exchange, routing key, properties as bytes, body.

Upstream: sink.py, which has the batches from Spark.  Downstream: client/publisher.py.
It works by column, not by row: each column becomes a list of the bytes it puts into the properties, what is the same in
every row is one constant, and one join per row puts the lists together. No row has a dict or an object of its own.
Plan checks the columns when the query is planned; Encoder looks at values. What is wrong with a value is told with its
column and row.
Not here: what the columns are called when they are read (schema.py), sending (outlet.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from penstock.amqp.flags import (
    APP_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
)

# A message: its row in the partition, exchange, routing key, properties (flags and values), body.
Outgoing: TypeAlias = tuple[int, str, str, bytes, bytes]

PRODUCER_HEADER: Final = "x-penstock-producer"
PUBLISHING_ID_HEADER: Final = "x-penstock-publishing-id"
# Headers that say where a message was, not what it is. A table that was read from a broker has them; they are not sent.
PLACE_HEADERS: Final = frozenset(
    name.encode() for name in (PRODUCER_HEADER, PUBLISHING_ID_HEADER, "x-stream-offset", "x-penstock-sequence")
)

# The publishing id is a signed 64-bit number: 31 bits for the batch (seven years at ten a second), 32 for the row.
ROW_BITS: Final = 32
ROWS_MAX: Final = 1 << ROW_BITS
BATCHES_MAX: Final = 1 << 31
SHORT_BYTES_MAX: Final = 255  # a short string's length is one byte
PERSISTENT: Final = b"\x02"

Types: TypeAlias = tuple[type[DataType], ...]
TEXT: Final[Types] = (StringType, VarcharType, CharType)
BYTES: Final[Types] = (*TEXT, BinaryType)
WHOLE: Final[Types] = (ByteType, ShortType, IntegerType, LongType)
TIME: Final[Types] = (TimestampType,)
MAP: Final[Types] = (MapType,)

BODY_NAMES: Final = ("body", "value")
# Column, its flag, its Spark types; in the order of the wire.
PROPERTIES: Final[tuple[tuple[str, int, Types], ...]] = (
    ("content_type", CONTENT_TYPE, TEXT),
    ("content_encoding", CONTENT_ENCODING, TEXT),
    ("headers", HEADERS, MAP),
    ("delivery_mode", DELIVERY_MODE, WHOLE),
    ("priority", PRIORITY, WHOLE),
    ("correlation_id", CORRELATION_ID, TEXT),
    ("reply_to", REPLY_TO, TEXT),
    ("expiration", EXPIRATION, TEXT),
    ("message_id", MESSAGE_ID, TEXT),
    ("timestamp", TIMESTAMP, TIME),
    ("type", TYPE, TEXT),
    ("user_id", USER_ID, TEXT),
    ("app_id", APP_ID, TEXT),
)
RANGES: Final = {"delivery_mode": (1, 2), "priority": (0, 255)}
KNOWN: Final[dict[str, Types]] = {
    "body": BYTES,
    "value": BYTES,
    "exchange": TEXT,
    "routing_key": TEXT,
    **{name: types for name, _, types in PROPERTIES},
}
READ_ONLY: Final = ("offset", "partition", "redelivered")  # columns of the source that mean nothing to publish
TYPE_NAMES: Final = {
    BYTES: "binary or string",
    TEXT: "string",
    WHOLE: "int",
    TIME: "timestamp",
    MAP: "map<string,string>",
}

_FLAGS: Final = struct.Struct(">H")
_SIZE: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">q")
_SECONDS: Final = struct.Struct(">Q")
_OCTETS: Final = tuple(bytes((number,)) for number in range(256))


class ColumnError(ValueError):
    """A column, or a value in it, that cannot be published; the text is one line that names it."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who publishes: what a row's ids are made of. The same again when Spark tries a task or a batch again."""

    query: str
    batch: int
    partition: int

    def __post_init__(self) -> None:
        if not 0 <= self.batch < BATCHES_MAX:
            raise ColumnError(f"batch {self.batch}: publishing ids hold {BATCHES_MAX} batches; start a new checkpoint")

    @property
    def producer(self) -> str:
        return f"{self.query}/{self.partition}"

    def publishing_id(self, row: int) -> int:
        return self.batch << ROW_BITS | row

    def message_id(self, row: int) -> str:
        return f"{self.query}/{self.batch}/{self.partition}/{row}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is published where, as far as the query's plan says: its columns, and the options in their place."""

    names: tuple[str, ...]
    exchange: str
    routing_key: str

    @property
    def body(self) -> str:
        return next(name for name in BODY_NAMES if name in self.names)


def make_plan(schema: StructType, exchange: str | None, routing_key: str | None) -> Plan:
    """Check the columns; ColumnError names what is wrong with them."""
    names = tuple(schema.fieldNames())
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        told = f"the amqp sink does not know the column{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
        read_only = [name for name in unknown if name in READ_ONLY]
        if read_only:
            told += f" (drop {', '.join(read_only)}: only a message that was read has them)"
        raise ColumnError(f"{told}; it knows {', '.join(KNOWN)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnError(f"the amqp sink got the column {twice[0]} twice")
    bodies = [name for name in BODY_NAMES if name in names]
    if len(bodies) != 1:
        found = "both are there" if bodies else f"the columns are {', '.join(names) or 'none'}"
        raise ColumnError(f"the amqp sink needs one column body (or value), binary or string; {found}")
    for field in schema.fields:
        _check_type(field.name, field.dataType)
    if exchange is None and routing_key is None and "exchange" not in names and "routing_key" not in names:
        raise ColumnError("the amqp sink needs the option exchange or routingKey, or a column exchange or routing_key")
    for option, name in (("exchange", exchange), ("routingKey", routing_key)):
        if name is not None and len(name.encode()) > SHORT_BYTES_MAX:
            raise ColumnError(f"option {option}: {len(name.encode())} bytes, {SHORT_BYTES_MAX} at most")
    return Plan(names, exchange or "", routing_key or "")


def _check_type(name: str, found: DataType) -> None:
    types = KNOWN[name]
    fits = isinstance(found, types)
    if isinstance(found, MapType):
        fits = fits and isinstance(found.keyType, TEXT) and isinstance(found.valueType, TEXT)
    if not fits:
        raise ColumnError(f"the column {name} is {found.simpleString()}, the amqp sink takes {TYPE_NAMES[types]}")


class Encoder:
    """Encodes the batches of one task, in order. With a stamp, each message gets its message id; numbered, the two
    headers too by which Penstock drops what it has already."""

    __slots__ = ("_plan", "_producer", "_stamp", "rows")

    def __init__(self, plan: Plan, stamp: Stamp | None = None, numbered: bool = True) -> None:
        self._plan = plan
        self._stamp = stamp
        self.rows = 0  # encoded so far
        self._producer = b""
        if stamp is not None and numbered:
            # All of the two headers but the number, which therefore stands last.
            self._producer = _entry(PRODUCER_HEADER, stamp.producer) + _short(PUBLISHING_ID_HEADER) + b"l"

    def __repr__(self) -> str:
        return f"<Encoder of {', '.join(self._plan.names)} rows={self.rows} stamp={self._stamp}>"

    def encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """The batch's messages, in its order. All values are checked before the first comes out."""
        count = batch.num_rows
        first = self.rows
        if self._stamp is not None and first + count > ROWS_MAX:
            raise ColumnError(f"more than {ROWS_MAX} rows in one partition of one batch; use more partitions")
        columns = {name: _Column(name, batch.column(i), first) for i, name in enumerate(self._plan.names)}
        bodies = columns[self._plan.body].required()
        exchanges = _names(columns.get("exchange"), self._plan.exchange, count)
        keys = _names(columns.get("routing_key"), self._plan.routing_key, count)
        properties = self._properties(columns, first, count)
        self.rows += count
        return zip(range(first, first + count), exchanges, keys, properties, bodies)

    def _properties(self, columns: dict[str, _Column], first: int, count: int) -> Iterable[bytes]:
        pieces = _Pieces(count)
        for name, flag, types in PROPERTIES:
            column = columns.get(name)
            if name == "headers":
                self._put_headers(pieces, flag, column, first, count)
            elif name == "message_id" and self._stamp is not None:
                own = _message_ids(self._stamp, first, count)
                pieces.put(flag, own if column is None else [a or b for a, b in zip(column.shorts(), own)])
            elif name == "delivery_mode":
                pieces.put(flag, PERSISTENT if column is None else [a or PERSISTENT for a in column.octets()])
            elif column is None:
                continue
            elif types is WHOLE:
                pieces.put(flag, column.octets())
            elif types is TIME:
                pieces.put(flag, column.seconds())
            else:
                pieces.put(flag, column.shorts())
        return pieces.joined()

    def _put_headers(self, pieces: _Pieces, flag: int, column: _Column | None, first: int, count: int) -> None:
        given = column.entries() if column is not None else None
        if self._stamp is None or not self._producer:
            if given is not None:
                pieces.put(flag, [b"" if one is None else _SIZE.pack(len(one)) + one for one in given])
            return
        own = len(self._producer) + _NUMBER.size
        if given is None:
            pieces.put(flag, _SIZE.pack(own) + self._producer)
        else:
            pieces.put(flag, [_SIZE.pack(own + len(one)) + one if one else _SIZE.pack(own) for one in given])
            pieces.put(flag, self._producer)
        start = self._stamp.publishing_id(first)
        pieces.put(flag, list(map(_NUMBER.pack, range(start, start + count))))


class _Pieces:
    """The properties of all rows of a batch, as they are put together: constants, and lists with a piece per row."""

    __slots__ = ("_common", "_count", "_flags", "_parts")

    def __init__(self, count: int) -> None:
        self._count = count
        self._common = 0  # flags of all rows
        self._flags: list[int] | None = None  # flags that only some rows have
        self._parts: list[bytes | list[bytes]] = []

    def put(self, flag: int, piece: bytes | list[bytes]) -> None:
        """The next property. An empty piece in a list is a row without it."""
        if isinstance(piece, list) and not all(piece):
            flags = self._flags or [0] * self._count
            self._flags = [one | flag if there else one for one, there in zip(flags, piece)]
        else:
            self._common |= flag
        last = self._parts[-1] if self._parts else None
        if isinstance(piece, bytes) and isinstance(last, bytes):
            self._parts[-1] = last + piece
        else:
            self._parts.append(piece)

    def joined(self) -> Iterable[bytes]:
        """The bytes of each row, its flags in front."""
        parts = self._parts
        if self._flags is None:
            flags: bytes | list[bytes] = _FLAGS.pack(self._common)
        else:
            flags = [_FLAGS.pack(self._common | some) for some in self._flags]
        if all(isinstance(part, bytes) for part in parts) and isinstance(flags, bytes):
            return repeat(b"".join([flags, *(part for part in parts if isinstance(part, bytes))]), self._count)
        columns = [repeat(part) if isinstance(part, bytes) else part for part in (flags, *parts)]
        return map(b"".join, zip(*columns))


class _Column:
    """One column of a batch. Its methods make a list with the bytes of each row; b"" is null."""

    __slots__ = ("_array", "_first", "_name")

    def __init__(self, name: str, array: pa.Array, first: int) -> None:
        self._name = name
        self._array = array
        self._first = first  # the number of its first row, for errors

    def required(self) -> list[bytes]:
        """The bytes themselves; null is an error."""
        if self._array.null_count:
            self._refuse(pc.is_null(self._array), "null")
        found: list[bytes] = _binary(self._array).to_pylist()
        return found

    def texts(self, default: str) -> list[str]:
        """Names of exchanges, or routing keys; null is the default."""
        self._check_size(_binary(self._array), SHORT_BYTES_MAX)
        found: list[str | None] = self._array.to_pylist()
        return [default if one is None else one for one in found]

    def shorts(self) -> list[bytes]:
        """Short strings, with their length in front."""
        array = _binary(self._array)
        self._check_size(array, SHORT_BYTES_MAX)
        found: list[bytes | None] = array.to_pylist()
        return [b"" if one is None else _OCTETS[len(one)] + one for one in found]

    def octets(self) -> list[bytes]:
        least, most = RANGES[self._name]
        outside = pc.or_(pc.less(self._array, least), pc.greater(self._array, most))
        self._refuse(outside, f"not from {least} to {most}")
        found: list[int | None] = self._array.to_pylist()
        return [b"" if one is None else _OCTETS[one] for one in found]

    def seconds(self) -> list[bytes]:
        """Timestamps in whole seconds since 1970, as AMQP has them."""
        ticks = self._array.cast(pa.int64())
        self._refuse(pc.less(ticks, 0), "before 1970")
        found: list[int | None] = (
            self._array.cast(pa.timestamp("s", self._array.type.tz), safe=False).cast(pa.int64()).to_pylist()
        )
        return [b"" if one is None else _SECONDS.pack(one) for one in found]

    def entries(self) -> list[bytes | None]:
        """The entries of each row's map as an AMQP table has them, without its length; None is no map."""
        array = self._array
        if not len(array):
            return []
        # Into all keys and items that the array has, also those outside a slice, which are not converted.
        offsets: list[int] = array.offsets.to_pylist()
        first, count = offsets[0], offsets[-1] - offsets[0]
        offsets = [offset - first for offset in offsets]
        keys: list[bytes] = _binary(array.keys.slice(first, count)).to_pylist()
        values: list[bytes | None] = _binary(array.items.slice(first, count)).to_pylist()
        if max(map(len, keys), default=0) > SHORT_BYTES_MAX:
            self._refuse_long_key(keys, offsets)
        encoded: list[bytes] = []
        for key, value in zip(keys, values):
            if key in PLACE_HEADERS:
                encoded.append(b"")
            elif value is None:
                encoded.append(_OCTETS[len(key)] + key + b"V")
            else:
                encoded.append(b"%b%bS%b%b" % (_OCTETS[len(key)], key, _SIZE.pack(len(value)), value))
        tables = [b"".join(encoded[start:stop]) for start, stop in pairwise(offsets)]
        if not array.null_count:
            return list(tables)
        there: list[bool] = array.is_valid().to_pylist()
        return [table if valid else None for table, valid in zip(tables, there)]

    def _refuse_long_key(self, keys: list[bytes], offsets: list[int]) -> None:
        for row, (start, stop) in enumerate(pairwise(offsets)):
            if max(map(len, keys[start:stop]), default=0) > SHORT_BYTES_MAX:
                self._refuse_row(row, f"a map with a key of more than {SHORT_BYTES_MAX} bytes")

    def _check_size(self, array: pa.Array, most: int) -> None:
        self._refuse(pc.greater(pc.binary_length(array), most), f"longer than {most} bytes")

    def _refuse(self, wrong: pa.Array, why: str) -> None:
        """An error if one of these is true; it names the first."""
        row: int = pc.index(wrong, True).as_py()
        if row >= 0:
            self._refuse_row(row, why)

    def _refuse_row(self, row: int, why: str) -> None:
        raise ColumnError(f"the column {self._name} of row {self._first + row} of the partition is {why}")


def _binary(array: pa.Array) -> pa.Array:
    """Strings as the UTF-8 they are; no copy."""
    kind = array.type
    if pa.types.is_string(kind):
        return array.cast(pa.binary())
    return array.cast(pa.large_binary()) if pa.types.is_large_string(kind) else array


def _names(column: _Column | None, default: str, count: int) -> Iterable[str]:
    return repeat(default, count) if column is None else column.texts(default)


def _message_ids(stamp: Stamp, first: int, count: int) -> list[bytes]:
    """Short strings of the message ids of these rows; the length is the same for all numbers with as many digits."""
    prefix = stamp.message_id(0)[:-1].encode()
    found: list[bytes] = []
    row, stop = first, first + count
    while row < stop:
        digits = len(str(row))
        head = _OCTETS[len(prefix) + digits] + prefix
        end = min(stop, 10**digits)
        found += [head + b"%d" % number for number in range(row, end)]
        row = end
    return found


def _short(text: str) -> bytes:
    encoded = text.encode()
    return _OCTETS[len(encoded)] + encoded


def _entry(key: str, text: str) -> bytes:
    encoded = text.encode()
    return _short(key) + b"S" + _SIZE.pack(len(encoded)) + encoded
