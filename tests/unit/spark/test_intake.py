"""Intake: which acks may go out, and what becomes of a lost connection. The broker is a few lists."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.client.connection import Connection
from penstock.client.consumer import Deliveries
from penstock.client.error import ClientError, Closed, LoginRefused, Unreachable
from penstock.client.uri import Uri
from penstock.spark import intake as intake_module
from penstock.spark.fault import SourceError
from penstock.spark.intake import Intake


class FakeConnection:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class FakeConsumer:
    """Reads what it was given; `broken` is raised by everything."""

    def __init__(self, reads: list[int] | None = None) -> None:
        self.reads = reads or []
        self.acks: list[int] = []
        self.broken: Closed | None = None
        self.ended = False
        self.tag = 0
        self.connection = FakeConnection()

    @property
    def channel(self) -> FakeConsumer:
        return self

    def read(self, limit: int, wait_s: float, bytes_max: int) -> Deliveries:
        if self.broken is not None:
            raise self.broken
        got = Deliveries()
        for _ in range(min(limit, self.reads.pop(0) if self.reads else 0)):
            self.tag += 1
            got.add(self.tag, (False, "", "q"), b"\0\0", b"12345")
        return got

    def ack(self, tag: int) -> None:
        if self.broken is not None:
            raise self.broken
        self.acks.append(tag)


def attached(consumer: FakeConsumer) -> Intake:
    intake = Intake(Uri(), "q", 10)
    intake._consumer = consumer  # type: ignore[assignment]
    intake.connects = 1
    return intake


def fail_with(monkeypatch: pytest.MonkeyPatch, error: ClientError) -> None:
    def connect(*arguments: Any, **more: Any) -> Connection:
        raise error

    monkeypatch.setattr(Connection, "connect", connect)


def test_one_ack_does_for_all_that_is_committed_from_the_first_tag_on():
    consumer = FakeConsumer()
    intake = attached(consumer)
    intake.expect([1, 2, 3], [3, 3, 3])
    intake.expect([4, 5], [5, 5])
    intake.ack(0)
    assert consumer.acks == []
    intake.ack(3)
    assert consumer.acks == [3]
    intake.ack(3)
    assert consumer.acks == [3], "the same again says nothing new"
    intake.ack(5)
    assert consumer.acks == [3, 5]


def test_what_may_be_acked_waits_behind_what_may_not():
    consumer = FakeConsumer()
    intake = attached(consumer)
    intake.expect([1, 2, 3, 4], [0, 6, 0, 5])
    intake.ack(0)
    assert consumer.acks == [1]
    intake.ack(5)
    assert consumer.acks == [1], "an ack of tag 4 would ack tag 2 with it"
    intake.ack(6)
    assert consumer.acks == [1, 4]


def test_a_full_queue_gives_large_batches_and_an_idle_one_early_ones():
    full = attached(FakeConsumer([100, 100, 100, 7, 100]))
    assert len(full.take(1000, 10**6, 0)) == 307
    limited = attached(FakeConsumer([100, 100, 100]))
    assert len(limited.take(150, 10**6, 0)) == 150
    heavy = attached(FakeConsumer([100, 100, 100]))
    assert len(heavy.take(1000, 600, 0)) == 200, "two reads of 500 bytes: then it is enough"
    idle = attached(FakeConsumer([3, 100]))
    assert len(idle.take(1000, 10**6, 0)) == 3


def test_a_batch_taken_ahead_is_filled_until_somebody_waits_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(intake_module, "FILL_S", 0.0)
    assert len(attached(FakeConsumer([10] * 50)).take(400, 1 << 30, 0, fill=True)) == 400, "nobody waits"

    class Hurried(FakeConsumer):
        """Somebody begins to wait in the middle of its third read."""

        def read(self, limit: int, wait_s: float, bytes_max: int) -> Deliveries:
            intake.hurry = len(self.reads) <= 48
            return super().read(limit, wait_s, bytes_max)

    intake = attached(Hurried([10] * 50))
    assert len(intake.take(400, 1 << 30, 0, fill=True)) == 30


def test_what_was_read_on_a_lost_connection_is_given_up_with_its_tags(monkeypatch: pytest.MonkeyPatch):
    consumer = FakeConsumer()
    intake = attached(consumer)
    intake.expect([1, 2], [2, 2])
    consumer.broken = Closed("gone")
    fail_with(monkeypatch, Unreachable("no broker"))
    assert not intake.take(10, 100, 0)
    assert consumer.connection.aborted
    again = FakeConsumer()
    intake._consumer = again  # type: ignore[assignment]
    intake.ack(2)
    assert again.acks == [], "tags of another connection"


def test_an_ack_that_cannot_be_sent_is_a_lost_connection_and_no_error(caplog: pytest.LogCaptureFixture):
    consumer = FakeConsumer()
    intake = attached(consumer)
    intake.expect([1], [1])
    consumer.broken = Closed("broken pipe")
    intake.ack(1)
    assert not intake.connected
    assert "broken pipe; connecting again" in caplog.text


def test_a_new_query_fails_at_once_without_a_broker_and_one_that_has_run_waits(monkeypatch: pytest.MonkeyPatch):
    fail_with(monkeypatch, Unreachable("no broker at h:1: refused"))
    with pytest.raises(SourceError, match="no broker at h:1"):
        Intake(Uri(), "q", 10).take(1, 1, 0)
    patient = Intake(Uri(), "q", 10, patient=True)
    assert not patient.take(1, 1, 0)
    monkeypatch.setattr(intake_module, "OUTAGE_S", -1.0)
    patient._retry_at = 0.0
    with pytest.raises(SourceError, match="no broker at h:1"):
        patient.take(1, 1, 0)


@pytest.mark.parametrize("error", [LoginRefused("no"), Closed("404 no queue", 404), Closed("403 no", 403)])
def test_what_will_not_mend_by_itself_ends_the_query_at_once(monkeypatch: pytest.MonkeyPatch, error: ClientError):
    fail_with(monkeypatch, error)
    with pytest.raises(SourceError, match=str(error)):
        Intake(Uri(), "q", 10, patient=True).take(1, 1, 0)


@pytest.mark.parametrize(
    ("wanted", "stamped", "expected"), [(65_535, True, 65_535), (65_536, True, 0), (65_536, False, 65_535)]
)
def test_a_prefetch_that_amqp_cannot_say_is_none_on_penstock_and_the_largest_elsewhere(
    wanted: int, stamped: bool, expected: int
):
    intake = Intake(Uri(), "q", wanted)
    intake.stamped = stamped
    assert intake._allowed_prefetch() == expected
