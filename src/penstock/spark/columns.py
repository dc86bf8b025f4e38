"""Columns: deliveries to Arrow record batches, a column at a time. The last step before Spark.

Upstream: client/consumer.py, which leaves the properties of each delivery as the bytes they came in.
Thousands of messages share the same properties, but for what the broker stamps on each of them. So that stamp's value
is cut out, the rest is looked up by its bytes, and only what was not seen yet is decoded: columns are made of the
distinct values and then spread over the rows.
Not here: properties themselves (properties.py), the schema (schema.py), reading (rangereader.py, queuereader.py).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow as pa

from penstock.amqp.properties import decode_properties
from penstock.client.consumer import Deliveries
from penstock.spark.properties import OFFSET_BYTES, OFFSET_HEADER, OFFSET_MARK, readable, split_properties
from penstock.spark.schema import arrow_schema


class NoOffset(ValueError):
    """A delivery without an offset: what it came from is not a stream."""


def stream_batch(deliveries: Deliveries, partition: int, offsets: array[int], keys: Sequence[bytes]) -> pa.RecordBatch:
    """Deliveries of a stream, with what `cut_offsets` found in their properties."""
    return _batch(deliveries, pa.array(offsets, pa.int64()), partition, keys, True)


def record_batch(deliveries: Deliveries, offset: int | Sequence[int], partition: int) -> pa.RecordBatch:
    """Deliveries of a queue. Rows are numbered from `offset` on, or as the sequence says.

    The caller has cut what differs from row to row (x-penstock-sequence) out of the properties; what is left in them
    is shown as it is."""
    numbers = numpy.arange(offset, offset + len(deliveries)) if isinstance(offset, int) else offset
    return _batch(deliveries, pa.array(numbers, pa.int64()), partition, deliveries.headers, False)


def cut_offsets(raws: Sequence[bytes]) -> tuple[array[int], list[bytes]]:
    """The offset in each delivery's properties, and the rest of them: equal bytes there are equal properties."""
    if not raws:
        return array("q"), []
    size = len(OFFSET_MARK)
    at = raws[0].find(OFFSET_MARK) + size
    head = raws[0][:at]
    stop = at + OFFSET_BYTES
    if at >= size and all(raw.startswith(head) for raw in raws):
        # Nearly always: what stands before the offset is the same in all. Three slices and no search per row.
        found = [raw[at:stop] for raw in raws]
        keys = [raw[stop:] for raw in raws]
        forged = any(OFFSET_MARK in key for key in set(keys))
    else:
        found, keys = [], []
        for raw in raws:
            at = raw.find(OFFSET_MARK) + size
            if at < size:
                raise NoOffset
            found.append(raw[at : at + OFFSET_BYTES])
            keys.append(raw[:at] + raw[at + OFFSET_BYTES :])
        forged = any(key.count(OFFSET_MARK) > 1 for key in set(keys))
    if forged:  # a publisher put the mark into some value of its own: only decoding tells which one is the header
        return array("q", map(_decoded_offset, raws)), list(raws)
    offsets = array("q", b"".join(found))
    if sys.byteorder == "little":
        offsets.byteswap()
    return offsets, keys


def _decoded_offset(raw: bytes) -> int:
    value = (decode_properties(raw, 0, len(raw)).headers or {}).get(OFFSET_HEADER)
    if not isinstance(value, int):
        raise NoOffset
    return value


def _batch(
    deliveries: Deliveries, offsets: pa.Array, partition: int, keys: Sequence[bytes], stamped: bool
) -> pa.RecordBatch:
    rows = len(deliveries)
    schema = arrow_schema()
    columns: dict[str, pa.Array] = {
        "body": pa.array(deliveries.bodies, pa.binary()),
        "exchange": _texts(deliveries.exchanges),
        "routing_key": _texts(deliveries.routing_keys),
        "offset": offsets,
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "redelivered": _flags(deliveries.redelivered),
    }
    examples, codes = _distinct(keys, deliveries.headers)
    heads, head_codes, tails = split_properties(examples, stamped)
    spread = _codes(codes, rows)
    for name, values in tails.items():
        if name != "cluster_id":
            columns[name] = _spread(values, schema.field(name).type, spread, rows)
    spread = _codes([head_codes[code] for code in codes] if codes is not None else head_codes, rows)
    for name, values in heads.items():
        columns[name] = _spread(values, schema.field(name).type, spread, rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _distinct(keys: Sequence[bytes], raws: Sequence[bytes]) -> tuple[list[bytes], list[int] | None]:
    """One delivery's properties for each distinct key, and for each row the index among them; None: row by row.
    If all are alike, one index does for all."""
    if _alike(keys):
        return list(raws[:1]), [0]
    first = dict(zip(keys, raws))
    if len(first) == len(keys):
        return list(raws), None
    code = {key: index for index, key in enumerate(first)}
    return list(first.values()), [code[key] for key in keys]


def _codes(codes: list[int] | None, rows: int) -> pa.Array | None:
    if codes is None:
        return None
    return pa.array(codes, pa.int32()) if len(codes) == rows else pa.repeat(pa.scalar(codes[0], pa.int32()), rows)


def _alike(values: Sequence[object]) -> bool:
    """Whether all values are the same, as they mostly are: then a column costs next to nothing."""
    return bool(values) and values[-1] == values[0] and values.count(values[0]) == len(values)


def _flags(values: Sequence[bool]) -> pa.Array:
    return pa.repeat(pa.scalar(values[0]), len(values)) if _alike(values) else pa.array(values, pa.bool_())


def _spread(values: Sequence[Any], kind: pa.DataType, codes: pa.Array | None, rows: int) -> pa.Array:
    """A column of distinct values over all rows."""
    if values.count(None) == len(values):
        return pa.nulls(rows, kind)
    column = _texts(values) if pa.types.is_string(kind) else pa.array(values, kind)
    return column if codes is None else column.take(codes)


def _texts(values: Sequence[str | None]) -> pa.Array:
    if len(values) > 1 and _alike(values):
        return _texts(values[:1]).take(pa.repeat(pa.scalar(0, pa.int32()), len(values)))
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # short strings may be any bytes: what is no UTF-8 came as surrogates
        return pa.array([value if value is None else readable(value) for value in values], pa.string())
