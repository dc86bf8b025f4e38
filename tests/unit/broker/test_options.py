"""Options: a queue's own arguments and its policies together."""

from __future__ import annotations

import pytest

from penstock.amqp.table import Table
from penstock.broker.ledger import Json
from penstock.broker.options import (
    BLOCK_PUBLISH,
    DROP_HEAD,
    NONE,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    Options,
)
from penstock.credit import Watermark

NUMBERS = [
    ("message-ttl", "message_ttl_ms"),
    ("expires", "expires_ms"),
    ("max-length", "max_length"),
    ("max-length-bytes", "max_length_bytes"),
    ("delivery-limit", "delivery_limit"),
]
WORDS = [("dead-letter-exchange", "dead_letter_exchange"), ("dead-letter-routing-key", "dead_letter_key")]


def test_a_queue_without_arguments_and_policies_has_no_limit_at_all() -> None:
    options = Options({}, {})
    assert [getattr(options, attribute) for _, attribute in NUMBERS] == [NONE] * len(NUMBERS)
    assert [getattr(options, attribute) for _, attribute in WORDS] == [None, None]
    assert (options.overflow, options.max_priority, options.single_active) == (DROP_HEAD, 0, False)
    assert not options.has_limit()
    assert options.watermark is None


@pytest.mark.parametrize(("name", "attribute"), NUMBERS)
def test_of_a_number_in_argument_and_policy_the_smaller_counts(name: str, attribute: str) -> None:
    assert getattr(Options({f"x-{name}": 7}, {}), attribute) == 7
    assert getattr(Options({}, {name: 5}), attribute) == 5
    assert getattr(Options({f"x-{name}": 7}, {name: 5}), attribute) == 5
    assert getattr(Options({f"x-{name}": 5}, {name: 7}), attribute) == 5


@pytest.mark.parametrize(("name", "attribute"), NUMBERS)
def test_zero_is_a_limit_and_not_none(name: str, attribute: str) -> None:
    assert getattr(Options({f"x-{name}": 0}, {}), attribute) == 0
    assert getattr(Options({f"x-{name}": 3}, {name: 0}), attribute) == 0


@pytest.mark.parametrize(("name", "attribute"), WORDS)
def test_of_a_word_in_argument_and_policy_the_queues_own_counts(name: str, attribute: str) -> None:
    assert getattr(Options({}, {name: "policy"}), attribute) == "policy"
    assert getattr(Options({f"x-{name}": "own"}, {name: "policy"}), attribute) == "own"


def test_an_empty_word_is_a_name_the_default_exchanges() -> None:
    assert Options({"x-dead-letter-exchange": ""}, {"dead-letter-exchange": "dlx"}).dead_letter_exchange == ""


def test_what_happens_at_the_limit_is_the_queues_own_choice_first() -> None:
    assert Options({}, {"overflow": REJECT_PUBLISH}).overflow == REJECT_PUBLISH
    assert Options({"x-overflow": DROP_HEAD}, {"overflow": REJECT_PUBLISH}).overflow == DROP_HEAD


def test_priorities_and_the_single_active_consumer_come_from_arguments_alone() -> None:
    options = Options({}, {"max-priority": 5, "single-active-consumer": True})
    assert (options.max_priority, options.single_active) == (0, False)
    options = Options({"x-max-priority": 5, "x-single-active-consumer": True}, {})
    assert (options.max_priority, options.single_active) == (5, True)


@pytest.mark.parametrize("value", ["5", True, None, 5.0])
def test_what_is_no_number_is_no_limit(value: str | bool | float | None) -> None:
    assert Options({"x-max-length": value}, {"max-length": value}).max_length == NONE


@pytest.mark.parametrize("name", ["max-length", "max-length-bytes"])
def test_either_length_is_a_limit(name: str) -> None:
    assert Options({}, {name: 0}).has_limit()


# Watermarks.

BLOCKING: Table = {"x-overflow": BLOCK_PUBLISH}


def test_a_queue_that_blocks_stops_at_80_and_resumes_at_70_percent_of_its_maximum() -> None:
    assert Options({**BLOCKING, "x-max-length": 1000}, {}).watermark == Watermark(800, 700)
    assert Options({**BLOCKING, "x-max-length-bytes": 1000}, {}).watermark == Watermark(-1, -1, 800, 700)
    both: Table = {**BLOCKING, "x-max-length": 10, "x-max-length-bytes": 100}
    assert Options(both, {}).watermark == Watermark(8, 7, 80, 70)
    assert Options(BLOCKING, {}).watermark is None


@pytest.mark.parametrize("overflow", [DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX])
def test_one_that_drops_or_refuses_confirms_at_once_unless_it_is_told_a_mark(overflow: str) -> None:
    arguments: Table = {"x-max-length": 1000, "x-overflow": overflow}
    assert Options(arguments, {}).watermark is None
    assert Options({**arguments, "x-flow-stop-count": 900}, {}).watermark == Watermark(900, 787)
    assert Options({**arguments, "x-flow-resume-count": 100}, {}).watermark == Watermark(800, 100)


@pytest.mark.parametrize(
    ("arguments", "marks"),
    [
        ({"x-flow-stop-count": 8, "x-flow-resume-count": 2}, (8, 2, -1, -1)),
        ({"qpid.flow_stop_count": 8, "qpid.flow_resume_count": 2}, (8, 2, -1, -1)),
        ({"x-flow-stop-bytes": 80, "x-flow-resume-bytes": 20}, (-1, -1, 80, 20)),
        ({"qpid.flow_stop_size": 80, "qpid.flow_resume_size": 20}, (-1, -1, 80, 20)),
        ({"x-qpid-capacity": 80, "x-qpid-flow-resume-capacity": 20}, (-1, -1, 80, 20)),
        ({"x-qpid-capacity": 80}, (-1, -1, 80, 70)),
        ({"x-flow-stop-count": 8, "qpid.flow_stop_count": 5, "x-qpid-capacity": 80}, (8, 7, 80, 70)),
    ],
)
def test_a_mark_has_several_spellings(arguments: Table, marks: tuple[int, int, int, int]) -> None:
    assert Options(arguments, {}).watermark == Watermark(*marks)


def test_each_dimension_has_its_own_default() -> None:
    arguments: Table = {**BLOCKING, "x-max-length": 10, "x-max-length-bytes": 1000, "x-flow-stop-count": 4}
    assert Options(arguments, {}).watermark == Watermark(4, 3, 800, 700)


def test_a_stop_mark_of_0_is_none() -> None:
    assert Options({"x-flow-stop-count": 0}, {}).watermark is None
    assert Options({**BLOCKING, "x-max-length": 10, "x-flow-stop-count": 0}, {}).watermark is None
    assert Options({"x-flow-stop-count": 0}, {"flow-stop-count": 5}).watermark == Watermark(5, 4)
    assert Options({"x-flow-stop-count": 5}, {"flow-stop-count": 0}).watermark == Watermark(5, 4)


def test_of_a_mark_in_argument_and_policy_the_smaller_counts() -> None:
    assert Options({}, {"flow-stop-bytes": 80, "flow-resume-bytes": 8}).watermark == Watermark(-1, -1, 80, 8)
    assert Options({"x-flow-stop-count": 8}, {"flow-stop-count": 6}).watermark == Watermark(6, 5)
    assert Options({"x-flow-stop-count": 4}, {"flow-stop-count": 6}).watermark == Watermark(4, 3)
    assert Options({"qpid.flow_stop_count": 8}, {"flow-resume-count": 3}).watermark == Watermark(8, 3)


@pytest.mark.parametrize(
    ("arguments", "settings", "marks"),
    [
        ({"x-flow-stop-count": 500}, {"max-length": 100}, (100, 87, -1, -1)),
        ({"x-flow-stop-count": 500, "x-flow-resume-count": 300}, {"max-length": 100}, (100, 100, -1, -1)),
        ({"x-flow-stop-count": 50, "x-flow-resume-count": 40}, {"flow-stop-count": 10}, (10, 10, -1, -1)),
        ({"x-max-length": 10}, {"flow-stop-count": 100, "flow-resume-count": 90}, (10, 10, -1, -1)),
        ({"x-max-length": 0}, {"flow-stop-count": 100}, (0, 0, -1, -1)),
        ({"x-max-length": 10, "x-overflow": BLOCK_PUBLISH}, {"flow-resume-count": 9}, (8, 8, -1, -1)),
    ],
)
def test_a_policy_that_contradicts_the_queue_is_cut_down_to_what_can_work(
    arguments: Table, settings: dict[str, Json], marks: tuple[int, int, int, int]
) -> None:
    assert Options(arguments, settings).watermark == Watermark(*marks)


def test_a_resume_mark_in_a_policy_is_nothing_to_a_queue_without_a_stop() -> None:
    assert Options({}, {"flow-resume-count": 5}).watermark is None


@pytest.mark.parametrize("value", ["5", True, None, 5.0])
def test_what_is_no_number_is_no_mark(value: str | bool | float | None) -> None:
    assert Options({"x-flow-stop-count": value}, {"flow-stop-bytes": value}).watermark is None


@pytest.mark.parametrize(
    ("overflow", "refuses", "blocks"),
    [
        (DROP_HEAD, False, False),
        (REJECT_PUBLISH, True, False),
        (REJECT_PUBLISH_DLX, True, False),
        (BLOCK_PUBLISH, False, True),
    ],
)
def test_a_full_queue_drops_refuses_or_blocks(overflow: str, refuses: bool, blocks: bool) -> None:
    limited = Options({"x-overflow": overflow, "x-max-length": 5}, {})
    assert (limited.refuses(), limited.blocks()) == (refuses, blocks)
    unlimited = Options({"x-overflow": overflow}, {})
    assert (unlimited.refuses(), unlimited.blocks()) == (False, False)


def test_a_queue_is_at_its_limit_when_there_is_no_room_for_one_more() -> None:
    options = Options({"x-max-length": 10, "x-max-length-bytes": 100}, {})
    assert not options.is_at_limit(9, 99)
    assert options.is_at_limit(10, 0)
    assert options.is_at_limit(1, 100)


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
def test_an_empty_queue_is_never_at_its_limit(name: str) -> None:
    assert not Options({name: 0}, {}).is_at_limit(0, 0)
    assert Options({name: 0}, {}).is_at_limit(1, 1)


def test_bytes_are_counted_only_where_they_matter() -> None:
    assert not Options({"x-max-length": 5, "x-overflow": BLOCK_PUBLISH, "x-flow-stop-count": 3}, {}).counts_bytes()
    assert Options({"x-max-length-bytes": 5}, {}).counts_bytes()
    assert Options({"x-qpid-capacity": 5}, {}).counts_bytes()
