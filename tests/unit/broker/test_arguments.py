"""Arguments of queue.declare: what only Penstock has. RabbitMQ's own are compared in tests/differential."""

from __future__ import annotations

import pytest

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.table import Table, Value
from penstock.broker.arguments import MARKS, check_queue_arguments

WHERE = "queue 'q' in vhost '/'"


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-flow-stop-count": 800, "x-flow-resume-count": 700},
        {"x-flow-stop-count": 800, "x-flow-resume-count": 800},
        {"x-flow-stop-count": 1000, "x-max-length": 1000},
        {"x-flow-resume-count": 800, "x-max-length": 1000},
        {"x-flow-stop-count": 0, "x-flow-resume-count": 0},
        {"qpid.flow_stop_size": 1 << 40, "qpid.flow_resume_size": 1 << 39},
        {"x-qpid-capacity": 1000, "x-qpid-flow-resume-capacity": 900},
        {"x-flow-stop-count": 8, "x-max-length-bytes": 5},
        {"x-overflow": "block-publish"},
        {"x-overflow": "block-publish", "x-max-length": 1},
    ],
)
def test_marks_that_can_work_are_taken(arguments: Table) -> None:
    check_queue_arguments(WHERE, arguments)


@pytest.mark.parametrize(
    ("arguments", "name", "fault"),
    [
        (
            {"x-flow-stop-count": 800, "x-flow-resume-count": 900},
            "x-flow-resume-count",
            "900 is greater than x-flow-stop-count 800",
        ),
        ({"x-flow-stop-count": 11, "x-max-length": 10}, "x-flow-stop-count", "11 is greater than x-max-length 10"),
        (
            {"qpid.flow_stop_size": 11, "x-max-length-bytes": 10},
            "qpid.flow_stop_size",
            "11 is greater than x-max-length-bytes 10",
        ),
        (
            {"x-qpid-capacity": 1000, "x-qpid-flow-resume-capacity": 1001},
            "x-qpid-flow-resume-capacity",
            "1001 is greater than x-qpid-capacity 1000",
        ),
        (
            {"x-flow-stop-count": 0, "x-flow-resume-count": 1},
            "x-flow-resume-count",
            "1 is greater than x-flow-stop-count 0",
        ),
        (
            {"x-flow-resume-count": 801, "x-max-length": 1000},
            "x-flow-resume-count",
            "801 is greater than the stop mark of 800, 80 % of x-max-length 1000",
        ),
        ({"x-flow-resume-count": 5}, "x-flow-resume-count", "5 without a stop mark or x-max-length"),
        ({"qpid.flow_resume_size": 5}, "qpid.flow_resume_size", "5 without a stop mark or x-max-length-bytes"),
        ({"x-overflow": "block"}, "x-overflow", "invalid_overflow"),
    ],
)
def test_marks_that_contradict_are_406_with_the_numbers(arguments: Table, name: str, fault: str) -> None:
    with pytest.raises(CloseChannel) as raised:
        check_queue_arguments(WHERE, arguments)
    assert raised.value.code == PRECONDITION_FAILED
    assert raised.value.text == f"PRECONDITION_FAILED - invalid arg '{name}' for {WHERE}: {fault}"


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("800", '"expected integer, got longstr"'),
        (True, '"expected integer, got bool"'),
        (1.5, '"expected integer, got double"'),
        (-1, "{value_negative,-1}"),
    ],
)
def test_a_mark_that_is_no_number_is_406_as_other_arguments_are(name: str, value: Value, fault: str) -> None:
    with pytest.raises(CloseChannel) as raised:
        check_queue_arguments(WHERE, {name: value})
    assert raised.value.text == f"PRECONDITION_FAILED - invalid arg '{name}' for {WHERE}: {fault}"
