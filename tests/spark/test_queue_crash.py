"""The queue source on real brokers, ended at every moment. Plain Python plays Spark (tests/unit/spark/queuefake.py).

Never lost; exactly once on Penstock, and on RabbitMQ by message_id. On a real Spark: test_queue_source.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.uri import parse_uri
from penstock.spark.fault import SourceError
from penstock.spark.options import Options
from tests.spark.queuelife import KILLED
from tests.spark.queuework import declare, delete, publish, ready
from tests.unit.spark.queuefake import POINTS, Crash, MicroBatches
from tests.wire.live import ROOT, ServeProcess, free_port, serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 50


def query_on(uri: str, queue: str, spool: Path, **more: object) -> MicroBatches:
    options = {"uri": parse_uri(uri), "queue": queue, "spool_dir": str(spool), "max_records": ROWS, **more}
    return MicroBatches(Options(**options))  # type: ignore[arg-type]


def take(query: MicroBatches) -> None:
    """A batch, when something has come: on a busy machine a question may be too early."""
    wait_until(query.trigger, what="a batch")


def run_until_crash(query: MicroBatches) -> None:
    """However many batches that takes."""
    with pytest.raises(Crash):
        wait_until(lambda: query.trigger() and False, what=f"{query.crash_at}")


def drain(query: MicroBatches, count: int) -> None:
    """Let it run until it has so many rows, and everything is acked."""
    if query.reader is None:
        query.start()

    def is_done() -> bool:
        while query.trigger():
            pass
        return len(query.rows) >= count

    wait_until(is_done, what=f"{count} rows, not {len(query.rows)}")
    assert query.reader is not None
    assert not query.trigger(), "the last batch is acked by this question"
    query.reader.stop()
    query.reader = None


def die_at(point: str, uri: str, queue: str, spool: Path, ids: bool) -> None:
    declare(uri, queue)
    publish(uri, queue, range(120), ids)
    query = query_on(uri, queue, spool)
    take(query)
    query.crash_at = point
    run_until_crash(query)
    query.die()
    publish(uri, queue, range(120, 170), ids)
    drain(query, 170)
    assert sorted(query.rows) == list(range(170))
    assert ready(uri, queue) == 0
    assert not list(spool.glob("*.arrow"))


@pytest.mark.parametrize("point", POINTS)
def test_wherever_the_driver_dies_penstock_s_queue_is_read_exactly_once(
    point: str, uri: str, name: str, tmp_path: Path
):
    die_at(point, uri, name, tmp_path / "spool", ids=False)


@pytest.mark.parametrize("point", ["offset not logged", "written", "after spool.commit", "after intake.ack"])
def test_wherever_the_driver_dies_a_queue_of_rabbitmq_is_read_exactly_once_by_message_id(
    point: str, rabbitmq: str, name: str, tmp_path: Path
):
    die_at(point, rabbitmq, name, tmp_path / "spool", ids=True)


def test_without_message_ids_nothing_of_a_queue_of_rabbitmq_is_lost(rabbitmq: str, name: str, tmp_path: Path):
    declare(rabbitmq, name)
    publish(rabbitmq, name, range(120))
    query = query_on(rabbitmq, name, tmp_path)
    query.crash_at = "written"
    run_until_crash(query)
    query.die()
    drain(query, 120)
    assert set(query.rows) == set(range(120))


def test_spark_takes_a_queue_of_rabbitmq_and_looks_at_it(
    spark: SparkSession, rabbitmq: str, name: str, checkpoint: str, tmp_path: Path
):
    declare(rabbitmq, name)
    publish(rabbitmq, name, range(500), ids=True)
    assert spark.read.format("amqp").option("uri", rabbitmq).option("queue", name).load().count() == 500
    wait_until(lambda: ready(rabbitmq, name) == 500, what="all messages back in the queue")
    options = {"uri": rabbitmq, "queue": name, "spoolDir": str(tmp_path / "spool"), "maxRecordsPerTrigger": "200"}
    frame = spark.readStream.format("amqp").options(**options).load().selectExpr("message_id", "redelivered")
    writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(200)
    assert sorted(row.message_id for row in spark.table(name).collect()) == sorted(f"id {n}" for n in range(500))
    assert ready(rabbitmq, name) == 0


def test_a_process_that_is_gone_at_once_loses_and_doubles_nothing(uri: str, name: str, tmp_path: Path):
    """Three lives that end without a word, one after the other, and one that comes through."""
    declare(uri, name)
    checkpoint = tmp_path / "checkpoint"

    def live(point: str, count: int = 0) -> int:
        life = [str(Path(__file__).with_name("queuelife.py")), str(checkpoint), uri, name, str(tmp_path / "spool")]
        command = [sys.executable, *life, str(ROWS), point, str(count)]
        done = subprocess.run(command, env=serve_environment(), cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert done.returncode in (0, KILLED), done.stderr
        return done.returncode

    for turn, point in enumerate(("offset not logged", "after spool.commit", "after intake.ack")):
        publish(uri, name, range(turn * 100, turn * 100 + 100))
        assert live(point) == KILLED
    assert live("", 300) == 0
    rows = [row for batch in json.loads(checkpoint.read_text())["sink"].values() for row in batch]
    assert sorted(rows) == list(range(300))
    assert ready(uri, name) == 0


def restart(process: ServeProcess, serve_process: Callable[..., ServeProcess]) -> ServeProcess:
    """kill -9, and the same broker again."""
    process.kill()
    again = serve_process("--listen", f"127.0.0.1:{process.port}", "--data", str(process.data))
    again.data = process.data
    assert again.port == process.port, again.log
    return again


def test_a_broker_that_is_killed_under_a_query_loses_and_doubles_nothing(
    serve_process: Callable[..., ServeProcess], tmp_path: Path
):
    broker = serve_process("--listen", f"127.0.0.1:{free_port()}")
    declare(broker.uri, "orders")
    query = query_on(broker.uri, "orders", tmp_path / "spool")
    query.start()
    count = 0
    for turn in range(3):
        publish(broker.uri, "orders", range(count, count + 120))
        count += 120
        for _ in range(turn + 1):  # the next one acks what was taken, and the broker dies with it
            take(query)
        broker = restart(broker, serve_process)
    drain(query, count)
    assert sorted(query.rows) == list(range(count))
    assert ready(broker.uri, "orders") == 0


def test_a_message_that_comes_after_a_crash_is_never_taken_for_one_that_was_there(
    serve_process: Callable[..., ServeProcess], tmp_path: Path
):
    """Transient messages are gone with the broker; what gets their place in the queue must have another identity."""
    broker = serve_process("--listen", f"127.0.0.1:{free_port()}")
    declare(broker.uri, "orders")
    query = query_on(broker.uri, "orders", tmp_path / "spool")
    publish(broker.uri, "orders", range(60), persistent=False)
    wait_until(lambda: query.trigger() and len(query.rows) >= 50, what="50 rows")
    broker = restart(broker, serve_process)
    publish(broker.uri, "orders", range(60, 200))
    wait_until(lambda: query.trigger() or set(query.rows) >= set(range(60, 200)), what="the new messages")
    drain(query, 190)
    assert set(query.rows) >= {*range(50), *range(60, 200)}
    assert len(query.rows) == len(set(query.rows))


def test_a_connection_that_breaks_is_made_again_and_nothing_comes_twice(uri: str, name: str, tmp_path: Path):
    declare(uri, name)
    publish(uri, name, range(300))
    query = query_on(uri, name, tmp_path)
    intake = query.start()._attach()
    for _ in range(3):
        take(query)
        assert intake._consumer is not None
        intake._consumer.channel.connection.socket.shutdown(2)
    drain(query, 300)
    assert query.rows == list(range(300))
    assert intake.connects == 4


def test_a_stream_that_is_named_as_a_queue_is_refused_in_words(uri: str, name: str, tmp_path: Path):
    declare(uri, name, {"x-queue-type": "stream"})
    query = query_on(uri, name, tmp_path)
    query.start()
    assert not query.trigger()
    publish(uri, name, range(5))
    with pytest.raises(SourceError, match="is a stream: read it with the option stream"):
        wait_until(query.trigger)
    query.die()


def test_a_queue_that_was_deleted_ends_the_query_in_words(uri: str, name: str, tmp_path: Path):
    declare(uri, name)
    query = query_on(uri, name, tmp_path)
    query.start()
    assert not query.trigger()
    delete(uri, name)
    with pytest.raises(SourceError, match=f"404.*no queue '{name}'"):
        wait_until(query.trigger)
    query.die()


def test_a_queue_that_is_declared_again_under_its_name_gives_new_messages(uri: str, name: str, tmp_path: Path):
    query = query_on(uri, name, tmp_path)
    for start in (0, 60, 120):
        declare(uri, name)
        publish(uri, name, range(start, start + 60))
        drain(query, start + 60)
        delete(uri, name)
    assert query.rows == list(range(180))


def test_the_progress_of_a_query_shows_what_waits(uri: str, name: str, tmp_path: Path):
    declare(uri, name)
    publish(uri, name, range(180))
    query = query_on(uri, name, tmp_path, prefetch=ROWS)
    reader = query.start()
    # The broker has sent ahead what it may: then all of that is in the first batch, and nothing on its way to the next.
    reader._attach()._connect(LIMIT_S)
    wait_until(lambda: ready(uri, name) == 180 - ROWS, what="a batch has been sent ahead")
    take(query)
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["n"] == 180
    query.die()
