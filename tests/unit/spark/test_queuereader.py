"""The queue source without Spark and without a broker: every moment at which it may die, and what comes after.

queuefake.py plays both. The same with a real broker and a real Spark is in tests/spark/test_queue*.py.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.client.uri import Uri
from penstock.spark import queuereader, spool
from penstock.spark.fault import SourceError
from penstock.spark.gauge import Gauge
from penstock.spark.options import Options
from penstock.spark.queuereader import RECORDS_DEFAULT, QueueStreamReader, spool_directory
from penstock.spark.schema import arrow_schema
from penstock.spark.spool import SpoolInUse
from tests.unit.spark.queuefake import POINTS, Crash, FakeQueue, MicroBatches, fake_query


@pytest.fixture(autouse=True, params=["ahead", "in turn"])
def next_batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whether the next batch is taken while one runs, or only when Spark asks for it."""
    monkeypatch.setattr(queuereader, "AHEAD_ROWS_MIN", 1 if request.param == "ahead" else 1_000_000)


@pytest.fixture(autouse=True)
def no_disk_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power: a sync would only cost time."""
    monkeypatch.setattr(spool, "_sync", lambda path: None)


def finish(query: MicroBatches) -> None:
    """Let the query run in peace until there is nothing new, and Spark has told it so."""
    query.crash_at = None
    if query.reader is None:
        query.start()
    query.drain()


def test_rows_come_once_and_are_acked_when_their_batch_is_committed(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(12)
    assert query.trigger()
    assert query.rows == [0, 1, 2, 3, 4]
    assert query.queue.acked == [], "Spark has committed the batch, but nothing says so yet"
    assert query.trigger()
    assert query.queue.acked == [0, 1, 2, 3, 4]
    query.drain()
    assert query.rows == query.queue.acked == list(range(12)), "the last batch is acked by the next question"
    assert not list(tmp_path.glob("*.arrow"))


def test_the_first_batch_of_a_new_query_is_small_so_that_spark_begins_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queuereader, "FIRST_ROWS", 3)
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(12)
    assert query.trigger()
    assert query.rows == [0, 1, 2]
    assert query.trigger()
    assert query.rows == list(range(8))
    query.drain()
    assert query.rows == query.queue.acked == list(range(12))


@pytest.mark.parametrize("stamped", [True, False], ids=["by sequence", "by message id"])
@pytest.mark.parametrize("point", POINTS)
def test_whenever_the_driver_dies_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, point: str, stamped: bool):
    query = fake_query(tmp_path, FakeQueue(stamped, ids=not stamped), rows_max=5)
    query.queue.publish(8)
    assert query.trigger()
    query.queue.publish(8)
    query.crash_at = point
    with pytest.raises(Crash):
        query.drain()
    query.die()
    query.queue.publish(4)
    finish(query)
    assert query.rows == list(range(20))
    assert sorted(query.queue.acked) == list(range(20))
    assert not list(tmp_path.glob("*.arrow"))


@pytest.mark.parametrize("stamped", [True, False], ids=["by sequence", "by message id"])
def test_acks_that_a_killed_broker_forgot_are_given_again_and_no_row_comes_twice(tmp_path: Path, stamped: bool):
    query = fake_query(tmp_path, FakeQueue(stamped, ids=not stamped), rows_max=5)
    query.queue.publish(20)
    query.drain()
    query.die()
    query.queue.forget_acks(13)
    assert len(query.queue.ready) == 13
    query.queue.publish(3)
    finish(query)
    assert query.rows == list(range(23))
    assert sorted(query.queue.acked) == list(range(23))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 7)),
            st.tuples(st.just("trigger"), st.integers(1, 3)),
            st.tuples(st.just("lose"), st.just(0)),
            st.tuples(st.just("forget"), st.integers(1, 12)),
            st.tuples(st.sampled_from(POINTS), st.just(0)),
        ),
        max_size=30,
    ),
    stamped=st.booleans(),
    ack_mode=st.sampled_from(["commit", "spool"]),
    prefetch=st.sampled_from([1, 3, 10, 100]),
)
def test_whatever_happens_in_whatever_order_every_row_comes_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], stamped: bool, ack_mode: str, prefetch: int
):
    directory = tmp_path_factory.mktemp("spool")
    queue = FakeQueue(stamped, ids=not stamped)
    query = fake_query(directory, queue, rows_max=5, prefetch=prefetch, ack_mode=ack_mode)
    for step, count in steps:
        try:
            if step == "publish":
                queue.publish(count)
            elif step == "trigger":
                for _ in range(count):
                    query.trigger()
            elif step == "lose" and query.intake is not None:
                query.intake.lose()
            elif step == "forget":
                if query.intake is not None:
                    query.intake.lose()  # a broker that is killed cuts all connections
                queue.forget_acks(count)
            elif step in POINTS:
                query.crash_at = step
        except Crash:
            query.die()
    query.die()
    finish(query)
    assert sorted(query.rows) == list(range(queue.published)), "each row once"
    assert sorted(queue.acked) == list(range(queue.published)), "each message acked"
    assert not list(directory.glob("*.arrow")), "and nothing left in the spool"


def test_without_an_identity_nothing_is_lost_and_what_comes_twice_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    query = fake_query(tmp_path, FakeQueue(stamped=False, ids=False), rows_max=5)
    query.queue.publish(8)
    query.crash_at = "written"
    with pytest.raises(Crash):
        query.drain()
    query.die()
    finish(query)
    assert set(query.rows) == set(range(8))
    assert len(query.rows) in (13, 16), "what was spooled came again: one batch, or two if the next was taken already"
    assert "at least once" in caplog.text


def test_two_messages_with_one_id_both_arrive(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(stamped=False, ids=True))
    query.queue.publish(3)
    query.drain()
    query.queue.ready = [(0, False), (1, False)]  # not redelivered: other messages of the same id
    query.drain()
    assert query.rows == [0, 1, 2, 0, 1]


def test_a_duplicate_of_what_runs_is_acked_with_it_and_not_before(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(7)
    reader = query.start()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    assert query.intake is not None
    query.intake.lose()
    # Spark asks again for the same start: a second batch is never taken before the first is committed.
    assert reader.latestOffset(start, ReadMaxRows(5)) == end
    assert query.queue.acked == []
    second = reader.latestOffset(end, ReadMaxRows(5))
    assert query.queue.acked == [0, 1, 2, 3, 4], "they came again behind the commit, and are known"
    assert second["n"] == 7
    reader.commit(second)
    assert query.queue.acked == list(range(7))


def test_offsets_are_the_same_text_each_time_and_a_reader_can_be_pickled(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue())
    query.queue.publish(3)
    reader = query.start()
    first = reader.initialOffset()
    assert json.dumps(first) == json.dumps(reader.initialOffset())
    end = reader.latestOffset(first, ReadAllAvailable())
    assert list(end) == sorted(end)
    assert json.loads(json.dumps(end)) == end
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._spool is None


def test_rows_have_spark_s_schema_their_number_and_no_stamp(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(stamped=True, ids=True))
    query.queue.publish(3)
    reader = query.start()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (batch,) = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert batch.schema.equals(arrow_schema(), check_metadata=True)
    assert batch.column("offset").to_pylist() == [0, 1, 2]
    assert batch.column("partition").to_pylist() == [0, 0, 0]
    assert batch.column("headers").to_pylist() == [None] * 3
    assert batch.column("message_id").to_pylist() == ["id 0", "id 1", "id 2"]


def test_a_batch_is_divided_among_tasks_without_a_row_lost_or_moved(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=100, min_partitions=4)
    query.queue.publish(90)
    reader = query.start()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    parts = reader.partitions(start, end)
    assert len(parts) == 4
    found = [[int(body) for batch in reader.read(part) for body in batch.column("body").to_pylist()] for part in parts]
    assert [row for one in found for row in one] == list(range(90))
    assert all(20 <= len(one) <= 25 for one in found)
    assert [vars(part) for part in reader.partitions(start, end)] == [vars(part) for part in parts]


def test_a_limit_of_spark_counts_if_it_is_the_smaller_one(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=10)
    query.queue.publish(30)
    reader = query.start()
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    assert end["n"] == 4
    end = reader.latestOffset(end, ReadMaxRows(1000))
    assert end["n"] == 14


def test_bytes_end_a_batch_too(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=100, max_bytes=10)
    query.queue.publish(30)
    reader = query.start()
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))["n"] == 10


def test_the_prefetch_is_twice_a_batch():
    assert QueueStreamReader(Options(uri=Uri(), queue="q"))._prefetch == 2 * RECORDS_DEFAULT
    assert QueueStreamReader(Options(uri=Uri(), queue="q", max_records=100))._prefetch == 200
    assert QueueStreamReader(Options(uri=Uri(), queue="q", max_records=100, prefetch=7))._prefetch == 7


def test_available_now_takes_what_was_there_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue = FakeQueue()
    monkeypatch.setattr(Gauge, "count_ready", lambda gauge, patient=False: len(queue.ready))
    query = fake_query(tmp_path, queue, rows_max=5)
    queue.publish(12)
    reader = query.start()
    reader.prepareForTriggerAvailableNow()
    queue.publish(100)
    query.drain()
    assert query.rows == list(range(12))
    assert queue.acked == list(range(12))
    assert query.intake is not None
    assert query.intake.ended, "the broker has heard the last ack before Spark ends this process"


def test_available_now_ends_when_others_took_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue = FakeQueue()
    monkeypatch.setattr(Gauge, "count_ready", lambda gauge, patient=False: len(queue.ready))
    query = fake_query(tmp_path, queue, rows_max=5)
    queue.publish(12)
    query.start().prepareForTriggerAvailableNow()
    del queue.ready[7:]
    query.drain()
    assert query.rows == list(range(7))


def test_available_now_after_a_crash_counts_what_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue = FakeQueue()
    monkeypatch.setattr(Gauge, "count_ready", lambda gauge, patient=False: len(queue.ready))
    query = fake_query(tmp_path, queue, rows_max=5)
    queue.publish(12)
    query.crash_at = "written"
    with pytest.raises(Crash):
        query.drain()
    query.die()
    query.start().prepareForTriggerAvailableNow()
    query.drain()
    assert query.rows == queue.acked == list(range(12))


def test_a_lost_spool_is_an_error_and_with_fail_on_data_loss_false_nothing_is_lost(tmp_path: Path):
    query = fake_query(tmp_path / "one", FakeQueue(), rows_max=5)
    query.queue.publish(8)
    query.crash_at = "planned"
    with pytest.raises(Crash):
        query.drain()
    query.die()
    query.options = Options(uri=Uri(), queue="q", spool_dir=str(tmp_path / "two"), max_records=5)
    with pytest.raises(SourceError, match=r"belongs to spool .*failOnDataLoss=false"):
        query.start()
    query.die()
    query.options = replace(query.options, fail_on_data_loss=False)
    finish(query)
    assert sorted(query.rows) == list(range(8))
    assert sorted(query.queue.acked) == list(range(8))


def test_files_that_somebody_deleted_are_an_error_and_otherwise_come_again(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(8)
    query.crash_at = "planned"
    with pytest.raises(Crash):
        query.drain()
    query.die()
    for path in tmp_path.glob("*.arrow"):
        path.unlink()
    with pytest.raises(SourceError, match="does not have rows 0 to 5"):
        query.start()
    query.die()
    query.options = replace(query.options, fail_on_data_loss=False)
    finish(query)
    assert sorted(query.rows) == list(range(8))


def test_an_older_checkpoint_is_an_error_and_acks_nothing(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(20)
    query.drain()
    query.queue.publish(10)
    del query.offset_log[2:]
    query.commit_log = 2
    with pytest.raises(SourceError, match="checkpoint is at row 10, but rows to 20 were committed"):
        query.trigger()
    assert query.queue.acked == list(range(20))
    query.die()
    query.options = replace(query.options, fail_on_data_loss=False)
    finish(query)
    assert query.rows == [*range(10), *range(20, 30)], "what was between is acked and gone: that was the error"


def test_a_new_checkpoint_on_an_old_spool_begins_with_what_nobody_committed(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(8)
    query.drain()
    query.queue.publish(3)
    query.crash_at = "planned"
    with pytest.raises(Crash):
        query.drain()
    query.die()
    other = fake_query(tmp_path, query.queue, rows_max=5)
    finish(other)
    assert other.rows == [8, 9, 10]


def test_a_commit_of_what_is_known_or_older_changes_nothing(tmp_path: Path):
    query = fake_query(tmp_path, FakeQueue(), rows_max=5)
    query.queue.publish(10)
    query.drain()
    assert query.reader is not None
    for _, end in query.offset_log:
        query.reader.commit(end)
    assert query.queue.acked == list(range(10))


def test_a_warning_is_told_once_however_often_spark_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    query = fake_query(tmp_path / "one", FakeQueue(), rows_max=5)
    query.queue.publish(5)
    query.drain()
    query.die()
    query.options = replace(query.options, spool_dir=str(tmp_path / "two"), fail_on_data_loss=False)
    query.start()
    for _ in range(5):
        assert not query.trigger()
    assert caplog.text.count("going on with it") == 1


def test_two_queries_with_one_spool_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queuereader, "LOCK_WAIT_S", 0.0)
    fake_query(tmp_path, FakeQueue()).start().initialOffset()
    with pytest.raises(SpoolInUse, match="another consumerName or spoolDir"):
        fake_query(tmp_path, FakeQueue()).start()


def directory_of(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    return spool_directory(Options(**{"uri": Uri(), "queue": "orders/é", **options}))


def test_the_default_spool_is_the_same_for_the_same_queue_and_name_and_shows_no_password(
    monkeypatch: pytest.MonkeyPatch,
):
    one = directory_of(monkeypatch)
    assert one == directory_of(monkeypatch, uri=Uri(password="changed", user="other"))
    assert one.parent == Path("/state/penstock/spool")
    assert one.name.startswith("orders-")
    others = [
        directory_of(monkeypatch, uri=Uri(vhost="v")),
        directory_of(monkeypatch, uri=Uri(host="h")),
        directory_of(monkeypatch, queue="other"),
        directory_of(monkeypatch, consumer_name="a"),
    ]
    assert len({one, *others}) == 5
    assert directory_of(monkeypatch, spool_dir="/here") == Path("/here")
