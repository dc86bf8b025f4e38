"""Archive rows: the source's rows as an archive keeps them: chosen columns, bodies parsed, columns to partition by.

Pure: DataFrame -> DataFrame, no reading or writing. The same shape gives the same columns in every run.
Upstream: job.py, with the rows of the format "amqp".  Downstream: Parquet, by files.py.
A body that is not one JSON object of the given schema in UTF-8, and nothing else, stays in the column `body`, its JSON
columns are null, and it is counted.
Not here: what the schema is if it is to be found out (job.py:infer), where files lie (files.py).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from penstock.spark.complaint import Complaint
from penstock.spark.schema import message_schema

DAY: Final = "day"
HOUR: Final = "hour"
PLACES: Final = (DAY, HOUR)  # what is made for --partition-by, of the timestamp
BODY: Final = "body"
TAKEN_PREFIX: Final = "json_"  # of a JSON field whose name a column of the source has already
SOURCE_COLUMNS: Final = tuple(message_schema().fieldNames())
UNPARSED: Final = "_unparsed"  # only while a batch is written
_CORRUPT: Final = "_penstock_corrupt"
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Shape:
    """What a row of an archive has."""

    columns: tuple[str, ...]  # of the source
    partition_by: tuple[str, ...]
    fields: StructType | None  # of the bodies; None: they are not parsed
    keep_body: bool

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The JSON fields and the columns they become."""
        return json_names(self.fields) if self.fields is not None else ()

    def schema(self) -> StructType:
        """Of the table, columns to partition by at the end, as Spark reads them back."""
        source = message_schema()
        found = [source[name] for name in self.columns]
        if self.fields is not None:
            found += [StructField(column, self.fields[field].dataType) for field, column in self.names]
        made = {DAY: DateType(), HOUR: IntegerType()}
        found += [StructField(name, made[name]) for name in self.partition_by if name in made]
        last = [one for name in self.partition_by for one in found if one.name == name]
        return StructType([one for one in found if one.name not in self.partition_by] + last)


def json_names(fields: StructType) -> tuple[tuple[str, str], ...]:
    """Each JSON field with its column: the same name, or json_ in front where a message has a column of that name.

    Also where that column is left out of the archive: replay must not take a field for a property."""
    taken = {name.lower() for name in (*SOURCE_COLUMNS, *PLACES)}
    found = []
    for field in fields.fieldNames():
        column = f"{TAKEN_PREFIX}{field}" if field.lower() in taken else field
        if column.lower() in taken:
            raise Complaint(f"the JSON field {field!r} has a name that is taken twice; leave it out of --json")
        taken.add(column.lower())
        found.append((field, column))
    return tuple(found)


def chosen_columns(text: str | None, parsed: bool) -> tuple[str, ...]:
    """What --columns names, in the source's order; all, if it is left out."""
    if text is None:
        return SOURCE_COLUMNS
    names = _listed(text, "--columns")
    unknown = [name for name in names if name not in SOURCE_COLUMNS]
    if unknown:
        raise Complaint(f"--columns: there is no column {unknown[0]!r}; there are {', '.join(SOURCE_COLUMNS)}")
    if parsed:
        names.append(BODY)  # for those that do not parse
    return tuple(name for name in SOURCE_COLUMNS if name in names)


def chosen_places(text: str | None) -> tuple[str, ...]:
    """What --partition-by names; the hour of a day stands below the day."""
    names = _listed(text, "--partition-by") if text is not None else []
    if HOUR in names and DAY not in names:
        names.insert(names.index(HOUR), DAY)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Complaint(f"--partition-by names {twice[0]!r} twice")
    return tuple(names)


def check_places(shape: Shape) -> None:
    """Complaint if an archive cannot be divided so."""
    there = [*PLACES, *(name for name in shape.columns if name != BODY), *(column for _, column in shape.names)]
    for name in shape.partition_by:
        if name not in there:
            raise Complaint(f"--partition-by: there is no column {name!r}; there are {', '.join(there)}")
    schema = shape.schema()
    for name in shape.partition_by:
        kind = schema[name].dataType.typeName()
        if kind in ("map", "struct", "array", "binary", "variant"):
            raise Complaint(f"--partition-by: the column {name!r} is a {kind}, which makes no directory's name")
    if len(shape.partition_by) >= len(schema):
        raise Complaint("--partition-by: some column must be left for the files")


def parse_fields(ddl: str) -> StructType:
    """The schema of bodies as --json gives it. Spark must be there: it knows the names of its types."""
    try:
        found = StructType.fromDDL(ddl)
    except AnalysisException:
        raise Complaint(f"--json: {ddl!r} is no list of names and types, as 'id long, amount double'") from None
    if not isinstance(found, StructType) or not len(found):
        raise Complaint(f"--json: {ddl!r} names no columns")
    return found


def shaped(rows: DataFrame, shape: Shape, now: datetime) -> DataFrame:
    """The rows as they are written, and for a while UNPARSED. `now`: the time of messages that have none."""
    found: list[Column] = []
    unparsed = F.lit(False)
    if shape.fields is not None:
        rows, unparsed = parsed(rows, shape.fields)
    for name in shape.columns:
        column = F.col(name)
        if name == BODY and shape.fields is not None and not shape.keep_body:
            column = F.when(unparsed, column)
        found.append(column.alias(name))
    found += [F.col("_json").getField(field).alias(column) for field, column in shape.names]
    second = F.unix_seconds(F.coalesce(F.col("timestamp"), F.lit(now)))
    if DAY in shape.partition_by:
        # From the count of seconds: Spark's own functions for a date go by the session's time zone.
        found.append(F.date_add(F.lit("1970-01-01").cast("date"), F.floor(second / _DAY_S).cast("int")).alias(DAY))
    if HOUR in shape.partition_by:
        found.append(F.floor(F.pmod(second, F.lit(_DAY_S)) / _HOUR_S).cast("int").alias(HOUR))
    return rows.select(*found, unparsed.alias(UNPARSED))


def parsed(rows: DataFrame, fields: StructType) -> tuple[DataFrame, Column]:
    """With a column _json, null where a body does not parse; and whether it does not."""
    # Spark stops reading behind the end of a first value, and takes what is no UTF-8 for U+FFFD: both would be lost.
    # So the body is read as the first of two values, of which the second is ours: it comes only if the body is one
    # value, whole. Its name is new each time: a body that knew it could end the array itself.
    end = f"_{uuid.uuid4().hex}"
    item = StructType([*fields.fields, StructField(end, BooleanType())])
    asked = StructType([StructField(end, ArrayType(item)), StructField(_CORRUPT, StringType())])
    text = F.col(BODY).cast("string")
    framed = F.concat(F.lit(f'{{"{end}":['), text, F.lit(f',{{"{end}":true}}]}}'))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    rows = rows.withColumn("_read", F.from_json(framed, asked, options))
    values = F.col("_read").getField(end)
    body, last = F.get(values, F.lit(0)), F.get(values, F.lit(1))
    # A half-fitting value also comes as a row of Spark's, with the text in the field of corrupt records.
    whole = F.is_valid_utf8(text) & F.col("_read").getField(_CORRUPT).isNull()
    whole &= body.isNotNull() & last.getField(end) & (F.size(values) == 2)
    rows = rows.withColumn("_wrong", ~F.coalesce(whole, F.lit(False)))
    rows = rows.withColumn("_json", F.when(~F.col("_wrong"), body))
    return rows, F.col("_wrong")


def _listed(text: str, option: str) -> list[str]:
    names = [one.strip() for one in text.split(",") if one.strip()]
    if not names:
        raise Complaint(f"{option} names nothing")
    return names
