"""Lists: pages, names, order and columns, as RabbitMQ has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.management.listing import dig, pick
from tests.management.web import Web

LISTS = [
    *("queues", "exchanges", "bindings", "connections", "channels", "consumers", "vhosts", "users", "permissions"),
    *("topic-permissions", "policies", "operator-policies", "parameters", "global-parameters", "settings"),
    *("vhost-limits", "user-limits"),
]


@pytest.fixture
def many(web: Web, vhost: str) -> str:
    """A vhost with queues q-00 to q-11; q-05 has three messages, q-07 has one."""
    for number in range(12):
        web.put(f"queues/{vhost}/q-{number:02}", {})
    for key in ("q-05", "q-05", "q-05", "q-07"):
        message: dict[str, Any] = {"properties": {}, "routing_key": key, "payload": "x", "payload_encoding": "string"}
        assert web.post(f"exchanges/{vhost}/amq.default/publish", message) == {"routed": True}
    return vhost


def names(found: Any) -> list[str]:
    return [one["name"] for one in (found["items"] if isinstance(found, dict) else found)]


def test_a_page_says_how_many_there_are(web: Web, many: str) -> None:
    page = web.get(f"queues/{many}?page=2&page_size=5")
    assert names(page) == ["q-05", "q-06", "q-07", "q-08", "q-09"]
    assert {key: value for key, value in page.items() if key != "items"} == {
        "filtered_count": 12,
        "item_count": 5,
        "page": 2,
        "page_count": 3,
        "page_size": 5,
        "total_count": 12,
    }
    assert names(web.get(f"queues/{many}?page=3&page_size=5")) == ["q-10", "q-11"]


def test_names_are_filtered_by_a_part_or_by_a_pattern(web: Web, many: str) -> None:
    page = web.get(f"queues/{many}?page=1&name=Q-1")
    assert (names(page), page["filtered_count"], page["total_count"]) == (["q-10", "q-11"], 2, 12)
    assert names(web.get(f"queues/{many}?page=1&name=^q-0[57]$&use_regex=true")) == ["q-05", "q-07"]
    assert names(web.get(f"queues/{many}?name=q-05")) == ["q-05"]
    assert web.get(f"queues/{many}?page=1&name=nothing")["items"] == []


def test_lists_are_sorted_by_any_column(web: Web, many: str) -> None:
    assert names(web.get(f"queues/{many}?sort=messages&sort_reverse=true"))[:2] == ["q-05", "q-07"]
    assert names(web.get(f"queues/{many}?sort=messages"))[-2:] == ["q-07", "q-05"]
    assert names(web.get(f"queues/{many}?sort=name&sort_reverse=true&page=1&page_size=2")) == ["q-11", "q-10"]
    assert len(web.get(f"queues/{many}?sort=no.such.column")) == 12
    assert len(web.get(f"queues/{many}?sort=message_stats.publish_details.rate")) == 12


def test_columns_say_what_is_wanted(web: Web, many: str) -> None:
    found = web.get(f"queues/{many}?columns=name,message_stats.publish,nothing&page=1&page_size=1")
    assert [set(one) for one in found["items"]] == [{"name", "message_stats"}]
    assert list(web.get(f"queues/{many}/q-05?columns=name,messages").items()) == [("name", "q-05"), ("messages", 3)]
    assert set(web.get("overview?columns=object_totals.queues,cluster_name")) == {"object_totals", "cluster_name"}


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=-1",
        "page=a",
        "page=",
        "page=1e3",
        "page=99999999999999999999",
        "page=5",
        "page=1&page_size=0",
        "page=1&page_size=501",
        "page=1&name=*&use_regex=true",
        "page=1&name=(a%2B)%2B%24&use_regex=true",
        "page=1&name=a*b*c*d*&use_regex=true",
        "page=1&name=" + "(a|a)" * 10 + "&use_regex=true",
        "page=1&name=a.*b.*c&use_regex=true",
        "page=1&name=^a|.*b.*c&use_regex=true",
        "columns=" + ",".join(["name"] * 101),
        "page=1&name=" + "a" * 101 + "&use_regex=true",
        "sort_reverse=perhaps",
        "use_regex=1",
    ],
)
def test_a_page_that_cannot_be_is_400_with_the_reason(web: Web, many: str, query: str) -> None:
    answer = web.ask("GET", f"queues/{many}?{query}")
    assert answer.status == 400, answer.raw
    assert answer.reason


def test_streams_can_be_listed_alone(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/log", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    web.put(f"queues/{vhost}/q", {})
    assert names(web.get(f"queues/{vhost}?type=stream")) == ["log"]
    assert names(web.get(f"queues/{vhost}?type=classic&page=1")) == ["q"]


@pytest.mark.parametrize(
    "path",
    [
        "queues",
        "exchanges",
        "bindings",
        "connections",
        "channels",
        "consumers",
        "vhosts",
        "users",
        "permissions",
        "topic-permissions",
        "policies",
        "operator-policies",
        "parameters",
        "global-parameters",
        "settings",
        "vhost-limits",
        "user-limits",
    ],
)
def test_every_list_has_pages_and_order(web: Web, path: str) -> None:
    whole = web.get(path)
    assert isinstance(whole, list)
    page = web.get(f"{path}?page=1&page_size=1&sort=name&columns=name,vhost")
    assert page["total_count"] == len(whole)
    assert len(page["items"]) == min(1, len(whole))


def test_a_long_list_comes_whole(web: Web, vhost: str) -> None:
    """Sent in several pieces: more than one of 64 KiB."""
    web.post(
        f"definitions/{vhost}",
        {
            "queues": [
                {"name": f"many-{number:03}", "durable": True, "auto_delete": False, "arguments": {}}
                for number in range(300)
            ]
        },
    )
    answer = web.ask("GET", f"queues/{vhost}")
    assert len(answer.raw) > 100_000
    assert len(json.loads(answer.raw)) == 300


def test_a_dotted_column_is_inside_of_another() -> None:
    view: dict[str, Any] = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert dig(view, "a.c.d") == 2
    assert dig(view, "a.x") is None
    assert pick(view, ("a.b", "a.c.d", "e", "f.g")) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert pick(view, ()) == view
