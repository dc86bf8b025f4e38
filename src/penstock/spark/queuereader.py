"""QueueStreamReader: a queue as a streaming source. Never lost; exactly once where messages have an identity.

Upstream: intake.py (the broker) and spool.py (files).  Downstream: Spark's micro-batches; tasks read the spool's files.
The driver takes from the queue when Spark asks for a batch, drops what the spool has already, spools the rest, and only
then tells Spark the new end. Messages are acked when their batch is in Spark's commit log. Spark says so late or never
by `commit`, but it asks for what is behind `start` only when all below `start` is committed: then they are acked.
An offset is {"n": rows taken in all, "spool": whose rows}. The second part makes sure that a checkpoint and a spool
that do not belong together are an error, and never an ack of something that nobody has seen.
What a task gets is the path of a file: the spool must be on storage that the executors see.
While Spark runs a full batch, the next one is taken and spooled already (ahead.py).
Not here: batch reads of a queue (browse.py), streams (streamreader.py).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.client.consumer import Deliveries
from penstock.spark.ahead import Ahead
from penstock.spark.columns import record_batch
from penstock.spark.fault import SourceError
from penstock.spark.gauge import Gauge
from penstock.spark.intake import Intake
from penstock.spark.options import OptionError, Options
from penstock.spark.sift import FRESH, Sifted, sift
from penstock.spark.spool import ID_COLUMN, Spool, SpoolError

RECORDS_DEFAULT: Final = 250_000  # enough that what a batch costs whatever is in it is little
BYTES_DEFAULT: Final = 64 * 1024 * 1024  # of bodies in the driver at a time
BYTES_MAX: Final = 1 << 30  # an Arrow column of bytes ends at 2 GiB, and the last message may be large
BATCH_ROWS: Final = 10_000  # of an Arrow batch: the grain in which a file is divided among tasks
# How long a call waits for a message. Spark asks again every few milliseconds, and a query ends between two calls.
WAIT_S: Final = 0.1
# A query that is started again may meet its last process, which is just ending.
LOCK_WAIT_S: Final = 15.0
# AvailableNow: for so long the broker may keep messages back that it counts as ready.
STALL_S: Final = 10.0
# Below that, what a batch costs whatever is in it is all that counts, and nothing is gained by taking the next early.
AHEAD_ROWS_MIN: Final = 1000
AHEAD_ROWS_PLENTY: Final = 5000  # so many at once are a backlog, however large a batch may be
STOP_WAIT_S: Final = 3.0
FIRST_ROWS: Final = 50_000  # of the first batch of a new query

log = logging.getLogger("penstock.spark")


class SpoolPart(InputPartition):
    """Some of the Arrow batches of one spool file."""

    def __init__(self, path: str, first: int, stop: int) -> None:
        super().__init__(None)
        self.path = path
        self.first = first
        self.stop = stop

    def __repr__(self) -> str:
        return f"<SpoolPart {self.path} batches {self.first} to {self.stop}>"


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Opens its spool and its connection when it is first used: Spark also makes readers that only carry `read`."""

    def __init__(self, options: Options) -> None:
        if options.queue is None:
            raise OptionError("option queue is missing")
        self._options = options
        self._queue = options.queue
        self._rows_max = options.max_records or RECORDS_DEFAULT
        self._bytes_max = min(options.max_bytes or BYTES_DEFAULT, BYTES_MAX)
        self._prefetch = options.prefetch or 2 * self._rows_max  # a batch that runs, and the next
        self._gauge = Gauge(options.uri, self._queue)
        self._spool: Spool | None = None
        self._intake: Intake | None = None
        # AvailableNow: how many deliveries are still to be taken; None for a query without an end.
        self._left: int | None = None
        self._told_nameless = False
        self._warned = ""
        self._ahead: Ahead | None = Ahead()
        self._plenty = False  # the last pull was full, or nearly: there is more
        self._rows_asked = self._rows_max

    def __getstate__(self) -> dict[str, Any]:
        # A task's copy reads files, no more.
        return {**self.__dict__, "_spool": None, "_intake": None, "_gauge": None, "_ahead": None}

    def __repr__(self) -> str:
        return f"<QueueStreamReader {self._queue} {self._spool!r} {self._intake!r}>"

    # What Spark calls in the driver

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_max)

    def initialOffset(self) -> dict[str, Any]:
        """What is not committed in the spool is the first that a new query sees: nobody else will."""
        spool = self._open()
        return _offset(spool, spool.committed)

    def prepareForTriggerAvailableNow(self) -> None:
        spool = self._open()  # its lock waits for an earlier life of this query, which may still hold messages
        self._left = self._gauge.count_ready(patient=spool.end > 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        spool = self._open()
        intake = self._attach()
        row = self._commit(start)
        spooled = spool.after(row)
        if spooled is not None:  # ahead, or in an earlier life; but Spark never heard of it
            return _offset(spool, spooled.end)
        rows_max = self._rows_max
        if isinstance(limit, ReadMaxRows):
            rows_max = min(rows_max, limit.max_rows)
        self._rows_asked = rows_max
        if not spool.end:  # nobody works meanwhile: with a small batch Spark begins early, and the next is taken
            rows_max = min(rows_max, FIRST_ROWS)
        if self._left is None:
            found = self._pull(spool, intake, rows_max)
            while found is not None and not found.fresh:  # all duplicates: what is new stands behind them
                found = self._pull(spool, intake, rows_max)
        else:
            self._pull_available(spool, intake, rows_max)
        return _offset(spool, spool.end) if spool.end > row else start

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Shown as latestOffset in the query's progress: its n minus that of endOffset is what waits in the queue.

        What the broker has sent ahead, up to the prefetch, waits in sockets and is not in it."""
        if self._spool is None:
            return None
        waiting = self._gauge.recent()
        return None if waiting is None else _offset(self._spool, self._spool.end + waiting)

    def commit(self, end: dict[str, Any]) -> None:
        """Cumulative; what `latestOffset` has known before is nothing new."""
        spool = self._open()
        if end.get("spool") != spool.id or int(end["n"]) > spool.committed:
            self._commit(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files of a batch, divided. After a restart this may be the first call of all."""
        spool = self._open()
        try:
            # A batch that began before this spool was there: what is here begins with the spool's first row.
            first = int(start["n"]) if start.get("spool") == spool.id else spool.committed
            if not self._options.fail_on_data_loss:
                first = max(first, spool.committed)  # as `_commit` does: what is here must not be left out
            if end.get("spool") != spool.id:
                raise SpoolError(_foreign(spool, end))
            files = spool.between(first, int(end["n"]))
        except SpoolError as error:
            if self._options.fail_on_data_loss:
                raise SourceError(f"{error}; {self._hope()} failOnDataLoss=false leaves this batch out") from None
            self._warn(f"{error}; the batch is left out")
            return []
        parts: list[InputPartition] = []
        wanted = self._options.min_partitions or 1
        rows = sum(file.end - file.start for file in files)
        for file in files:
            with pa.memory_map(str(file.path)) as source, pa.ipc.open_file(source) as reader:
                batches = reader.num_record_batches
            # Each file as many parts as its share of the rows.
            count = max(1, min(batches, round(wanted * (file.end - file.start) / rows)))
            cuts = [batches * index // count for index in range(count + 1)]
            parts += [SpoolPart(str(file.path), first, stop) for first, stop in pairwise(cuts)]
        if self._plenty and int(end["n"]) == spool.end:
            self._pull_ahead(spool)
        return parts

    def stop(self) -> None:
        try:
            if not self._wait_for_ahead(STOP_WAIT_S):
                return  # it has the connection and the spool; both end with this process, which ends next
        except Exception as error:
            log.warning("queue %s: %s", self._queue, error)
        if self._intake is not None:
            self._intake.hang_up()
        self._gauge.close()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    # What Spark calls in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolPart)
        try:
            source = pa.memory_map(partition.path)
        except FileNotFoundError:
            raise SourceError(
                f"spool file {partition.path} is not here: spoolDir must be on storage that all executors see"
            ) from None
        with source, pa.ipc.open_file(source) as reader:
            for index in range(partition.first, partition.stop):
                yield _as_spark(reader.get_batch(index))

    # Inside

    def _open(self) -> Spool:
        """The spool. From now on nobody else is at it, nor at the connection."""
        self._wait_for_ahead()
        if self._spool is None:
            directory = spool_directory(self._options)
            self._spool = Spool(directory, LOCK_WAIT_S)
            if self._options.spool_dir is None:
                log.warning("queue %s: spool in %s (option spoolDir)", self._queue, directory)
        return self._spool

    def _wait_for_ahead(self, most_s: float | None = None) -> bool:
        """Until nobody else is at the spool and the connection; False if that takes longer."""
        if self._ahead is None:
            return True
        if self._intake is not None:
            self._intake.hurry = True
        try:
            return self._ahead.wait(most_s)
        finally:
            if self._intake is not None:
                self._intake.hurry = False

    def _attach(self) -> Intake:
        if self._intake is None:
            tag = self._options.consumer_name or ""
            spool = self._open()
            self._intake = Intake(self._options.uri, self._queue, self._prefetch, tag, patient=spool.end > 0)
        return self._intake

    def _commit(self, offset: dict[str, Any]) -> int:
        """All below this offset is in Spark's log; the row it stands for.

        In this order: known for ever, acked, removed. After a crash in between, what is not acked comes again and is
        known."""
        spool = self._open()
        if offset.get("spool") != spool.id:
            if self._options.fail_on_data_loss:
                raise SourceError(f"{_foreign(spool, offset)}; {self._hope()} failOnDataLoss=false goes on with it")
            self._warn(f"{_foreign(spool, offset)}; going on with it")
            return spool.committed
        row = int(offset["n"])
        if row < spool.committed:
            late = f"the checkpoint is at row {row}, but rows to {spool.committed} were committed and acked: it was "
            late += "restored, or another query has used this spool"
            if self._options.fail_on_data_loss:
                raise SourceError(f"{late}; failOnDataLoss=false goes on behind them")
            self._warn(f"{late}; going on behind them")
            return spool.committed
        try:
            spool.commit(row)
        except SpoolError as error:
            if self._options.fail_on_data_loss:
                raise
            self._warn(f"{error}; going on behind it")
            spool.skip_to(row)
        if self._intake is not None:
            self._intake.ack(self._ackable(spool))
        spool.sweep()
        return row

    def _hope(self) -> str:
        """What is left of messages whose spool is not."""
        if self._options.ack_mode == "spool":
            return "with ackMode=spool it held the only copy of its messages;"
        return "its messages were not acked, so they are still in the queue, and come again, some perhaps twice;"

    def _warn(self, text: str) -> None:
        """Once: Spark asks many times a second, and each time the same would be wrong."""
        if text != self._warned:
            self._warned = text
            log.warning("queue %s: %s", self._queue, text)

    def _ackable(self, spool: Spool) -> int:
        return spool.end if self._options.ack_mode == "spool" else spool.committed

    def _pull(self, spool: Spool, intake: Intake, rows_max: int, fill: bool = False) -> Sifted | None:
        """Take what is there, spool what is new of it; None if nothing came."""
        deliveries = intake.take(rows_max, self._bytes_max, WAIT_S, fill)
        full = 2 * len(deliveries) >= rows_max or 2 * deliveries.bytes >= self._bytes_max
        self._plenty = (full and len(deliveries) >= AHEAD_ROWS_MIN) or len(deliveries) >= AHEAD_ROWS_PLENTY
        if not deliveries:
            return None
        found = sift(deliveries, spool, intake.stamped)
        if found.fresh:
            self._tell(found)
            batches = self._batches(found.fresh, spool.end)
            if not any(found.identities.ids):
                found.identities.ids.clear()
            spool.write(batches, found.identities)
        end = spool.end
        needs = (
            [end if need == FRESH else need for need in found.needs] if found.duplicates else [end] * len(found.tags)
        )
        intake.expect(found.tags, needs)
        intake.ack(self._ackable(spool))  # duplicates of what is committed, if nothing before them must wait
        return found

    def _pull_ahead(self, spool: Spool) -> None:
        """Take the next batch while Spark runs this one: no more than one, and Spark hears of it when it asks."""
        intake = self._intake
        rows_max = self._rows_asked if self._left is None else min(self._rows_asked, self._left)
        if self._ahead is None or intake is None or not intake.connected or rows_max < 1:
            return

        def pull() -> None:
            self._count(self._pull(spool, intake, rows_max, fill=True), intake)

        self._ahead.begin(pull)

    def _count(self, found: Sifted | None, intake: Intake) -> None:
        """AvailableNow: so much less is to be taken."""
        if self._left is not None and found is not None:
            # On a later connection, what comes again was counted already.
            self._left -= len(found.tags) if intake.connects == 1 else len(found.fresh)

    def _pull_available(self, spool: Spool, intake: Intake, rows_max: int) -> None:
        """AvailableNow: until there is something new, or all that was ready at the beginning has been taken.

        Spark ends the query when it hears of nothing new, so waiting is done here."""
        assert self._left is not None
        end = spool.end
        empty = False
        heard = time.monotonic()
        while self._left > 0 and spool.end == end:
            found = self._pull(spool, intake, min(rows_max, self._left))
            now = time.monotonic()
            self._count(found, intake)
            if found is not None:
                empty = False
                heard = now
            elif not intake.connected:
                heard = now  # the intake knows how long this may last
            elif empty:
                self._left = 0
            elif now - heard > STALL_S:
                log.warning("queue %s: nothing comes, %d messages were expected", self._queue, self._left)
                self._left = 0
            else:
                # Others may have taken what was ready. What is under way to us comes within the next turn.
                empty = self._is_empty()
        if self._left <= 0 and spool.end == end:
            intake.hang_up()  # Spark kills this process next: the acks must have arrived

    def _is_empty(self) -> bool:
        try:
            return self._gauge.count_ready() == 0
        except SourceError as error:
            log.warning("queue %s: %s", self._queue, error)
            return False

    def _batches(self, fresh: Deliveries, row: int) -> list[pa.RecordBatch]:
        whole = record_batch(fresh, row, 0)
        parts = self._options.min_partitions or 1
        size = max(1, min(BATCH_ROWS, -(-len(fresh) // parts)))
        return [whole.slice(at, size) for at in range(0, len(fresh), size)]

    def _tell(self, found: Sifted) -> None:
        if found.nameless and not self._told_nameless:
            self._told_nameless = True
            log.warning(
                "queue %s: messages without a message_id on a broker that stamps none: after a lost connection or a "
                "crash they come at least once, some of them twice",
                self._queue,
            )


def spool_directory(options: Options) -> Path:
    """The option, or a place in the user's home that is the same for the same queue and consumerName."""
    if options.spool_dir is not None:
        return Path(options.spool_dir).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(home) if home else Path.home() / ".local" / "state"
    except RuntimeError:
        raise OptionError("option spoolDir is missing, and there is no home directory to put the spool into") from None
    uri = options.uri
    parts = (uri.host, str(uri.port), uri.vhost, options.queue or "", options.consumer_name or "")
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(filter(None, (options.queue, options.consumer_name))))[:80]
    return state / "penstock" / "spool" / f"{readable}-{digest}"


def _offset(spool: Spool, row: int) -> dict[str, Any]:
    return {"n": row, "spool": spool.id}  # in order of names: Spark compares the text


def _foreign(spool: Spool, offset: dict[str, Any]) -> str:
    return (
        f"the checkpoint belongs to spool {offset.get('spool')}, but {spool.directory} has spool {spool.id}: "
        "the first was lost, or is another query's"
    )


def _as_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without what only the spool knows: Spark compares the schema exactly."""
    column = batch.schema.get_field_index(ID_COLUMN)
    if column >= 0:
        batch = batch.remove_column(column)
    return batch.replace_schema_metadata(None)
