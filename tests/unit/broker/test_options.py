"""Options: a queue's own arguments and its policies together."""

from __future__ import annotations

import pytest

from penstock.broker.options import DROP_HEAD, NONE, REJECT_PUBLISH, Options

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
