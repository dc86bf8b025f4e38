"""FakeQueue: a queue in memory that gives back what was not acked. FakeIntake: a connection to it, like an Intake.

MicroBatches: what Spark does with a streaming reader, in the order in which Spark does it, with a checkpoint that
survives. `crash` stops it at a named moment, and a new one with a new reader goes on from the checkpoint.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.amqp.properties import Properties, encode_properties
from penstock.client.consumer import Deliveries
from penstock.client.uri import Uri
from penstock.spark.intake import Intake
from penstock.spark.options import Options
from penstock.spark.queuereader import QueueStreamReader
from penstock.spark.spool import Spool


class Crash(BaseException):
    """The driver's process ends here."""


class FakeQueue:
    """Messages are numbers; each has its position, and its number as message id if `ids`."""

    def __init__(self, stamped: bool = True, ids: bool = False) -> None:
        self.stamped = stamped
        self.ids = ids
        self.ready: list[tuple[int, bool]] = []  # message, redelivered
        self.acked: list[int] = []
        self.published = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.ready.append((self.published, False))
            self.published += 1

    def give_back(self, messages: Sequence[int]) -> None:
        self.ready = sorted([*self.ready, *((message, True) for message in messages)])

    def forget_acks(self, count: int) -> None:
        """As after kill -9: the last acks were not on disk yet."""
        lost = self.acked[len(self.acked) - min(count, len(self.acked)) :]
        del self.acked[len(self.acked) - len(lost) :]
        self.give_back(lost)


class FakeIntake:
    def __init__(self, queue: FakeQueue, prefetch: int) -> None:
        self.queue = queue
        self.prefetch = prefetch
        self.stamped = queue.stamped
        self.connects = 1
        self.connected = True
        self.ended = False
        self.unacked: dict[int, int] = {}  # tag -> message
        self.runs: list[tuple[int, int]] = []
        self.tag = 0

    def take(self, rows: int, bytes_max: int, wait_s: float, fill: bool = False) -> Deliveries:
        got = Deliveries()
        while self.queue.ready and len(got) < rows and len(self.unacked) < self.prefetch and got.bytes < bytes_max:
            message, again = self.queue.ready.pop(0)
            self.tag += 1
            self.unacked[self.tag] = message
            properties = Properties()
            if self.queue.stamped:
                properties.headers = {"x-penstock-sequence": f"ab-{message}"}
            if self.queue.ids:
                properties.message_id = f"id {message}"
            got.add(self.tag, (again, "", "q"), encode_properties(properties), b"%d" % message)
        return got

    def expect(self, tags: Sequence[int], needs: Sequence[int]) -> None:
        self.runs += zip(tags, needs)

    def ack(self, row: int) -> None:
        while self.runs and self.runs[0][1] <= row:
            tag, _ = self.runs.pop(0)
            if tag in self.unacked:
                self.queue.acked.append(self.unacked.pop(tag))

    def lose(self) -> None:
        """The connection breaks, and there is a new one."""
        self.queue.give_back(list(self.unacked.values()))
        self.unacked.clear()
        self.runs.clear()
        self.connects += 1

    def hang_up(self) -> None:
        self.lose()
        self.ended = True


class MicroBatches:
    """One streaming query with a checkpoint, over any number of lives of its driver."""

    def __init__(self, options: Options, queue: FakeQueue | None = None) -> None:
        """Without a FakeQueue it is a real one, at a real broker."""
        self.options = options
        self._fake = queue
        self.offset_log: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.commit_log = 0  # so many batches are in it
        self.sink: dict[int, list[int]] = {}  # batch -> rows: writing a batch again replaces it
        self.crash_at: str | None = None
        self.reader: QueueStreamReader | None = None
        self.intake: FakeIntake | None = None

    @property
    def queue(self) -> FakeQueue:
        assert self._fake is not None
        return self._fake

    @property
    def rows(self) -> list[int]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    def start(self) -> QueueStreamReader:
        """A new driver. What it has in mind from before is nothing."""
        self.reader = QueueStreamReader(self.options)
        self._watch(Spool, self.reader._open(), ("write", "commit", "sweep"))
        if self._fake is None:
            self._watch(Intake, self.reader._attach(), ("take", "ack"))
        else:
            self.intake = FakeIntake(self._fake, self.reader._prefetch)
            self.reader._intake = self.intake  # type: ignore[assignment]
            self._watch(FakeIntake, self.intake, ("take", "ack"))
        if len(self.offset_log) > self.commit_log:
            self._run_batch()  # Spark does this first of all
        return self.reader

    def trigger(self) -> bool:
        """Ask for a batch and run it; False if there is nothing new."""
        reader = self.reader or self.start()
        start = self.offset_log[-1][1] if self.offset_log else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return False
        self._point("offset not logged")
        self.offset_log.append((start, end))
        self._point("offset logged")
        if self.commit_log:
            reader.commit(self.offset_log[self.commit_log - 1][1])
        self._run_batch()
        return True

    def drain(self) -> None:
        while self.trigger():
            pass

    def die(self) -> None:
        """kill -9: the broker notices, and gives back what was not acked."""
        if self.reader is not None and self.reader._ahead is not None:
            try:
                self.reader._ahead.wait()  # a thread cannot be killed: it dies when it is done
            except Crash:
                pass
        if self.intake is not None:
            self.intake.lose()
        elif self.reader is not None:
            intake = self.reader._attach()
            if intake._consumer is not None:
                intake._consumer.channel.connection.abort()
        if self.reader is not None:
            self.reader._gauge.close()
        if self.reader is not None and self.reader._spool is not None:
            self.reader._spool._lock.release()
        self.reader = self.intake = None

    def _run_batch(self) -> None:
        assert self.reader is not None
        number = len(self.offset_log) - 1
        parts = self.reader.partitions(*self.offset_log[number])
        self._point("planned")
        task: QueueStreamReader = pickle.loads(pickle.dumps(self.reader))
        batches = [batch for part in parts for batch in task.read(pickle.loads(pickle.dumps(part)))]
        self.sink[number] = [int(body) for batch in batches for body in batch.column("body").to_pylist()]
        self._point("written")
        self.commit_log = number + 1
        self._point("committed")

    def crash(self, name: str) -> None:
        raise Crash(name)

    def _point(self, name: str) -> None:
        if self.crash_at == name:
            self.crash_at = None
            self.crash(name)

    def _watch(self, kind: type, thing: object, methods: Sequence[str]) -> None:
        """Crash before or after these methods."""
        watched = type(f"Watched{kind.__name__}", (kind,), {} if kind is FakeIntake else {"__slots__": ()})
        name = kind.__name__.removeprefix("Fake").lower()
        for method in methods:
            setattr(watched, method, self._around(f"{name}.{method}", getattr(kind, method)))
        thing.__class__ = watched

    def _around(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def around(*arguments: Any) -> Any:
            self._point(f"before {name}")
            result = method(*arguments)
            self._point(f"after {name}")
            return result

        return around


def fake_query(directory: Path, queue: FakeQueue, rows_max: int = 5, **more: Any) -> MicroBatches:
    return MicroBatches(Options(uri=Uri(), queue="q", spool_dir=str(directory), max_records=rows_max, **more), queue)


POINTS = [
    "offset not logged",
    "offset logged",
    "planned",
    "written",
    "committed",
    *(
        f"{when} {what}"
        for what in ("intake.take", "spool.write", "spool.commit", "intake.ack", "spool.sweep")
        for when in ("before", "after")
    ),
]
