"""Range reader: which gaps between offsets are a loss. The broker is a pair of numbers."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from penstock.client.error import Closed
from penstock.client.stream import Offsets as Ends
from penstock.spark import rangereader
from penstock.spark.fault import SourceError
from penstock.spark.offsets import Range
from penstock.spark.options import Options, parse_options
from penstock.spark.rangereader import _behind_nothing, _check_gaps

WANTED = Range("s", 0, 10, 20)


@pytest.fixture
def options() -> Options:
    return parse_options({"uri": "amqp://broker", "stream": "s"})


def broker_has(monkeypatch: pytest.MonkeyPatch, first: int, following: int) -> None:
    monkeypatch.setattr(rangereader, "_ends", lambda stream, options: Ends(first, following, following))


def test_offsets_without_a_gap_ask_nobody(monkeypatch: pytest.MonkeyPatch, options: Options):
    monkeypatch.delattr(rangereader, "_ends")
    _check_gaps(WANTED, 10, range(10, 20), True, True, options)
    _check_gaps(WANTED, 15, range(15, 16), False, False, options)


@pytest.mark.parametrize("dense", [True, False])
def test_a_range_that_begins_behind_retention_is_a_loss(monkeypatch: pytest.MonkeyPatch, options: Options, dense: bool):
    broker_has(monkeypatch, 15, 30)
    with pytest.raises(SourceError, match="goes on at offset 10, but the first one that is left is 15"):
        _check_gaps(WANTED, 10, range(15, 20), dense, True, options)


def test_a_hole_in_penstocks_offsets_is_damage_and_not_passed_over(monkeypatch: pytest.MonkeyPatch, options: Options):
    broker_has(monkeypatch, 0, 30)
    with pytest.raises(SourceError, match=r"no messages from offset 12 to 14: they are damaged.*failOnDataLoss"):
        _check_gaps(WANTED, 10, [10, 11, 15, 16], True, True, options)


def test_a_hole_in_rabbitmqs_offsets_is_its_own_business(monkeypatch: pytest.MonkeyPatch, options: Options):
    broker_has(monkeypatch, 0, 30)
    _check_gaps(WANTED, 10, [10, 11, 15, 16], False, True, options)
    _check_gaps(WANTED, 10, [12, 13], False, True, options)


def test_without_fail_on_data_loss_every_hole_is_one_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    broker_has(monkeypatch, 0, 30)
    options = parse_options({"uri": "amqp://broker", "stream": "s", "failOnDataLoss": "false"})
    _check_gaps(WANTED, 10, [11, 12, 15], True, True, options)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "stream s: the broker has no messages from offset 10 to 10: they are damaged",
        "stream s: the broker has no messages from offset 13 to 14: they are damaged",
    ]


@pytest.mark.parametrize(
    ("first", "following", "said"),
    [
        (15, 30, "the first one that is left is 15"),
        (0, 30, "no messages from offset 10 to 19: they are damaged"),
        (0, 5, "the stream ends at 5: it was made anew"),
    ],
)
def test_a_range_of_which_nothing_comes_says_why(
    monkeypatch: pytest.MonkeyPatch, options: Options, first: int, following: int, said: str
):
    broker_has(monkeypatch, first, following)
    with pytest.raises(SourceError, match=said):
        _behind_nothing(WANTED, 10, True, options)
    lenient = parse_options({"uri": "amqp://broker", "stream": "s", "failOnDataLoss": "false"})
    assert _behind_nothing(WANTED, 10, True, lenient) == (15 if first else 20)


def test_a_consumer_that_rabbitmq_ended_is_begun_again(monkeypatch: pytest.MonkeyPatch, options: Options):
    broker_has(monkeypatch, 0, 30)
    with pytest.raises(Closed, match="ended reading stream s at offset 10"):
        _behind_nothing(WANTED, 10, False, options)
