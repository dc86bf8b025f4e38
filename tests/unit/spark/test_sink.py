"""The sink's writers as plain Python: what Spark pickles, and what a task asks of its context."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.spark.encoder import ColumnError
from penstock.spark.options import OptionError, parse_options
from penstock.spark.sink import BatchSink, Published, StreamSink

SCHEMA = StructType().add("body", BinaryType()).add("type", StringType())
OPTIONS = parse_options({"uri": "amqp://me:secret@127.0.0.1:1/", "exchange": "ex"})  # nobody listens there
STREAMING = {"sql.streaming.queryId": "6f1c", "streaming.sql.batchId": "3"}

EnterTask = Callable[..., None]


@pytest.fixture
def enter_task() -> Iterator[EnterTask]:
    """Makes this process a task of partition 1, with these local properties, as Spark's worker does."""

    def enter(**properties: str) -> None:
        context = TaskContext._getOrCreate()
        context._partitionId = 1
        context._localProperties = properties

    yield enter
    TaskContext._setTaskContext(None)


def empty() -> Iterator[object]:
    return iter([pa.record_batch([pa.array([], pa.binary()), pa.array([], pa.string())], names=["body", "type"])])


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_a_writer_survives_pickling_and_shows_no_password(
    kind: type[BatchSink] | type[StreamSink], enter_task: EnterTask
):
    writer = pickle.loads(pickle.dumps(kind(OPTIONS, SCHEMA, overwrite=False)))
    assert "exchange=ex" in repr(writer)
    assert "secret" not in repr(writer)
    enter_task(**STREAMING)
    message = writer.write(empty())
    assert pickle.loads(pickle.dumps(message)) == Published(0)


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_what_cannot_be_published_is_refused_when_the_writer_is_made(kind: type[BatchSink] | type[StreamSink]):
    with pytest.raises(OptionError, match='only the mode "append"'):
        kind(OPTIONS, SCHEMA, overwrite=True)
    with pytest.raises(ColumnError, match="does not know the column colour"):
        kind(OPTIONS, StructType().add("body", BinaryType()).add("colour", StringType()), overwrite=False)


def test_a_streaming_task_must_know_its_query_and_batch(enter_task: EnterTask):
    enter_task()
    with pytest.raises(RuntimeError, match=r"sql\.streaming\.queryId"):
        StreamSink(OPTIONS, SCHEMA, overwrite=False).write(empty())


def test_outside_a_task_nothing_is_published():
    with pytest.raises(RuntimeError, match="inside Spark's tasks only"):
        BatchSink(OPTIONS, SCHEMA, overwrite=False).write(empty())


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_speculation_is_refused(kind: type[BatchSink] | type[StreamSink], enter_task: EnterTask):
    enter_task(**STREAMING, **{"spark.speculation": "true"})
    with pytest.raises(OptionError, match=r"spark\.speculation=false"):
        kind(OPTIONS, SCHEMA, overwrite=False).write(empty())


def test_a_failed_batch_says_how_much_of_it_is_published(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        StreamSink(OPTIONS, SCHEMA, overwrite=False).abort([Published(70), None, Published(30)], 4)
        BatchSink(OPTIONS, SCHEMA, overwrite=False).abort([None])
    assert caplog.messages == [
        "amqp sink: batch 4 failed; 100 rows of the 2 of 3 partitions that were done stay published",
        "amqp sink: the write failed; 0 rows of the 0 of 1 partitions that were done stay published",
    ]
