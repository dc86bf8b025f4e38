"""The text formats of Prometheus, read back with the parsers of prometheus_client."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from penstock.management.exposition import (
    COUNTER,
    END,
    GAUGE,
    HISTOGRAM,
    Family,
    family,
    histogram,
    lines,
    number,
    wants_open,
)

MADE = Family("penstock_things_made_total", COUNTER, "Things made")
SYNC = Family("penstock_sync_seconds", HISTOGRAM, "How long")


def test_a_counter_is_read_back_in_both_formats() -> None:
    samples = [((("kind", "a"),), 3), ((("kind", "b"),), 4)]
    (plain,) = parse_plain(family(MADE, samples, is_open=False))
    (open_,) = parse_open(family(MADE, samples, is_open=True) + END)
    for read in (plain, open_):
        assert read.type == "counter"
        assert read.documentation == "Things made"
        assert [(one.name, one.labels, one.value) for one in read.samples] == [
            ("penstock_things_made_total", {"kind": "a"}, 3),
            ("penstock_things_made_total", {"kind": "b"}, 4),
        ]


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "back\\slash", "two\nlines", "ünï, {x=1}", ""])
def test_any_name_of_a_queue_is_read_back(name: str) -> None:
    text = family(Family("penstock_x", GAUGE, "x"), [((("queue", name),), 1)], is_open=False)
    (read,) = parse_plain(text)
    assert read.samples[0].labels == {"queue": name}


@pytest.mark.parametrize("is_open", [False, True])
def test_a_histogram_is_cumulative(is_open: bool) -> None:
    text = histogram(SYNC, [0.001, 0.01], [2, 3, 4], 0.5, is_open)
    (read,) = parse_open(text + END) if is_open else parse_plain(text)
    assert read.type == "histogram"
    assert [
        (one.name.removeprefix("penstock_sync_seconds"), one.labels.get("le"), one.value) for one in read.samples
    ] == [
        ("_bucket", "0.001", 2),
        ("_bucket", "0.01", 5),
        ("_bucket", "+Inf", 9),
        ("_sum", None, 0.5),
        ("_count", None, 9),
    ]


@pytest.mark.parametrize("values", [[0, 0, 0], [7], [1, 2, 3], [0.5, 0, 2], [True, False, True], [None, 1, "x"]])
def test_lines_of_many_objects_are_those_of_a_family_alike_or_not(values: list[object]) -> None:
    gauge = Family("penstock_x", GAUGE, "x")
    names = [f"q{at}" for at in range(len(values))]
    text = gauge.head(is_open=False) + lines(gauge.name, [f'{{queue="{name}"}} ' for name in names], values)
    samples = [((("queue", name),), number(value)) for name, value in zip(names, values, strict=True)]
    assert text == family(gauge, samples, is_open=False)


def test_what_is_no_number_is_0_and_true_is_1() -> None:
    assert [number(value) for value in (True, False, 3, 0.5, None, "x")] == [1, 0, 3, 0.5, 0, 0]


def test_prometheus_gets_openmetrics_and_a_browser_the_plain_text() -> None:
    assert wants_open("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")
    assert not wants_open("text/html,*/*;q=0.8")
