"""Gauge: a broker that is away is an error for a new query, and waited for by one that has run before."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("pyspark")

from penstock.client.error import ClientError, LoginRefused, Unreachable
from penstock.client.uri import Uri
from penstock.spark import patience
from penstock.spark.fault import SourceError
from penstock.spark.gauge import Gauge


def answers(monkeypatch: pytest.MonkeyPatch, *found: int | ClientError) -> None:
    """What the broker says, one after the other."""
    left = list(found)

    def ask(gauge: Gauge) -> int:
        one = left.pop(0)
        if isinstance(one, ClientError):
            raise one
        return one

    monkeypatch.setattr(Gauge, "_ask", ask)
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)


def test_a_query_that_has_run_before_waits_for_the_broker_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    answers(monkeypatch, *[Unreachable("no broker at broker:5672: refused")] * 4, 7)
    with caplog.at_level(logging.WARNING):
        assert Gauge(Uri(), "q").count_ready(patient=True) == 7
    assert "trying again for up to 60 s" in caplog.text
    assert "the broker is back after" in caplog.text


def test_a_broker_that_stays_away_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patience, "OUTAGE_S", 0.01)
    answers(monkeypatch, *[Unreachable("no broker at broker:5672: refused")] * 100)
    with pytest.raises(SourceError, match=r"no broker at broker:5672: refused \(uri amqp://"):
        Gauge(Uri(), "q").count_ready(patient=True)


@pytest.mark.parametrize("error", [Unreachable("no broker"), LoginRefused("no such user")])
def test_a_new_query_fails_at_once(monkeypatch: pytest.MonkeyPatch, error: ClientError):
    answers(monkeypatch, error, 7)
    with pytest.raises(SourceError):
        Gauge(Uri(), "q").count_ready()


def test_what_will_not_mend_by_itself_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    answers(monkeypatch, LoginRefused("no such user"), 7)
    with pytest.raises(SourceError, match="no such user"):
        Gauge(Uri(), "q").count_ready(patient=True)
