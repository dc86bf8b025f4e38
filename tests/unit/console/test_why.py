"""What `penstock why` prints, from the API's JSON."""

from __future__ import annotations

import pytest

from penstock.console.label import labels
from penstock.console.site import Json, Row
from penstock.console.why import concerns, is_known, told

VERDICT: Row = {
    "connection": "127.0.0.1:50000 -> 127.0.0.1:5672",
    "user": "guest",
    "sentence": "orders-api is held back by queue `orders`, which waits for the disk: 93 % of the last minute.",
    "chain": ["connection 127.0.0.1:50000", "channel 127.0.0.1:50000 (1)", "queue orders", "store"],
    "bottleneck": "store",
    "knobs": [
        {"setting": "credit.queue_store", "value": "2000,500", "advice": "more credit only hides a slow disk"},
        {"setting": None, "value": None, "advice": "a faster disk"},
    ],
}

CALLED = labels(
    [
        {
            "id": "connection 127.0.0.1:50000",
            "kind": "connection",
            "name": "127.0.0.1:50000",
            "client_name": "orders-api",
        },
        {
            "id": "channel 127.0.0.1:50000 (1)",
            "kind": "channel",
            "connection": "connection 127.0.0.1:50000",
            "number": 1,
        },
        {"id": "queue orders", "kind": "queue"},
    ]
)


def test_nothing_held_back_is_said_in_one_line():
    assert told([], [], {}) == "Nothing is held back."
    assert told([], [], {}, "orders") == "Nothing with 'orders' in it is held back."


def test_a_verdict_comes_with_its_chain_and_what_helps():
    assert told([VERDICT], [], CALLED).splitlines() == [
        "1 connection is held back.",
        "",
        "orders-api is held back by queue `orders`, which waits for the disk: 93 % of the last minute.",
        "  chain: connection orders-api waits for channel orders-api (1) waits for queue orders waits for store",
        "  credit.queue_store (now 2000,500): more credit only hides a slow disk",
        "  a faster disk",
    ]


def test_it_is_asked_for_by_what_the_client_calls_itself_too():
    verdict: Row = {**VERDICT, "name": "orders-api"}
    assert all(concerns(verdict, name) for name in ("orders-api", "guest", "127.0.0.1:50000", "queue orders", "store"))
    assert not concerns(verdict, "billing")


def test_a_name_cannot_command_the_terminal():
    said = told([{**VERDICT, "sentence": "\x1b[2J\x9bk\r is held back"}], [], {})
    assert r"\x1b[2J\x9bk\r is held back" in said


def test_alarms_come_first_and_several_connections_are_counted():
    said = told(
        [VERDICT, VERDICT], [{"source": "memory", "reason": "low on memory: 2 MB used of 1 MB"}], {}
    ).splitlines()
    assert said[0] == "alarm: memory: low on memory: 2 MB used of 1 MB"
    assert said[1] == "2 connections are held back."


class Silent:
    """A broker with one connection and one queue that have done nothing for long."""

    def get(self, *path: str, **query: str) -> Json:
        if path == ("connections",):
            return [{"name": "10.0.0.5:1 -> 10.0.0.1:5672", "user": "ann", "user_provided_name": "billing"}]
        assert path == ("queues",)
        return {"filtered_count": int(query["name"] in "invoices")}


FLOW: Row = {"stages": [{"id": "queue orders", "name": "orders", "user": None}, {"id": "store", "name": "store"}]}


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "queue orders",
        "store",
        "memory",
        "bill",
        "ann",
        "connection 10.0.0.5",
        "invoices",
        "queue shop/invoices",
    ],
)
def test_a_name_is_known_whether_it_did_something_lately_or_not(name: str):
    assert is_known(Silent(), FLOW, name)


@pytest.mark.parametrize("name", ["ordrs", "None", "bob", "queue billing", "10.0.0.6"])
def test_a_mistyped_name_is_not_known(name: str):
    assert not is_known(Silent(), FLOW, name)
