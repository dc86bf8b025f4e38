"""AMQPStorm's management client, which nobody here wrote, works unchanged: it makes things, looks, and takes them away.

This is also the order in which Terraform's providers go: make, read back, and when it is deleted read 404.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError

from penstock.amqp.method import ConnectionClose
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

SHOP = "a/shop"


@pytest.fixture
def api(url: str) -> Iterator[ManagementApi]:
    with ManagementApi(url, "guest", "guest", timeout=int(LIMIT_S)) as client:
        yield client


def is_gone(get: Callable[..., Any], *arguments: Any, **more: Any) -> bool:
    with pytest.raises(ApiError) as error:
        get(*arguments, **more)
    return bool(error.value.error_code == 404)


def test_what_is_declared_reads_back_as_it_was_declared_and_what_is_deleted_is_404(api: ManagementApi) -> None:
    api.virtual_host.create(SHOP)
    assert api.virtual_host.get(SHOP)["name"] == SHOP
    api.user.create("terra", "secret", tags="management")
    assert api.user.get("terra")["tags"] in ("management", ["management"])
    api.user.set_permission("terra", SHOP, configure_regex="^jobs", write_regex=".*", read_regex="")
    granted = {"user": "terra", "vhost": SHOP, "configure": "^jobs", "write": ".*", "read": ""}
    assert api.user.get_permission("terra", SHOP) == granted

    arguments = {"x-max-length": 9, "x-dead-letter-exchange": "work", "x-queue-mode": "lazy"}
    api.queue.declare("jobs", virtual_host=SHOP, durable=True, arguments=arguments)
    queue = api.queue.get("jobs", virtual_host=SHOP)
    assert (queue["durable"], queue["auto_delete"], queue["arguments"]) == (True, False, arguments)
    api.exchange.declare("work", "topic", virtual_host=SHOP, durable=True)
    exchange = api.exchange.get("work", virtual_host=SHOP)
    assert (exchange["type"], exchange["durable"]) == ("topic", True)
    api.queue.bind("jobs", "work", "a.#", virtual_host=SHOP, arguments={"note": "mine"})
    (bound,) = [one for one in api.queue.bindings("jobs", virtual_host=SHOP) if one["source"] == "work"]
    assert (bound["routing_key"], bound["arguments"]) == ("a.#", {"note": "mine"})

    api.queue.unbind("jobs", "work", "a.#", virtual_host=SHOP, properties_key=bound["properties_key"])
    assert [one["source"] for one in api.queue.bindings("jobs", virtual_host=SHOP)] == [""]
    api.queue.delete("jobs", virtual_host=SHOP)
    assert is_gone(api.queue.get, "jobs", virtual_host=SHOP)
    api.exchange.delete("work", virtual_host=SHOP)
    assert is_gone(api.exchange.get, "work", virtual_host=SHOP)
    api.user.delete_permission("terra", SHOP)
    assert is_gone(api.user.get_permission, "terra", SHOP)
    api.user.delete("terra")
    assert is_gone(api.user.get, "terra")
    api.virtual_host.delete(SHOP)
    assert is_gone(api.virtual_host.get, SHOP)


def test_messages_are_published_and_got(api: ManagementApi) -> None:
    api.queue.declare("mail")
    api.basic.publish("hello", "mail", properties={"message_id": "7"})
    got: Any = api.basic.get("mail", requeue=False)
    assert [(one.body, one.properties["message_id"]) for one in got] == [("hello", "7")]
    api.queue.purge("mail")
    api.queue.delete("mail")


def test_the_broker_its_connections_and_its_health_are_shown(api: ManagementApi, broker: LiveBroker) -> None:
    assert api.aliveness_test("/") == {"status": "ok"}
    assert api.whoami()["name"] == "guest"
    (node,) = api.nodes()
    assert api.node(node["name"])["running"] is True
    assert api.overview()["node"] == node["name"]
    assert api.healthchecks.get()["status"] == "ok"
    with RawClient(broker.port).handshake().open() as client:
        (name,) = [one["name"] for one in wait_until(api.connection.list, what="the connection")]
        assert [one["name"] for one in api.channel.list()] == [f"{name} (1)"]
        api.connection.close(name, reason="enough")
        assert "enough" in client.expect(ConnectionClose, 0).reply_text
