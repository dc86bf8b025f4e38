"""What an operator sees of real connections: their sockets, their clients, and bytes and messages that add up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.amqp.method import BasicGet, BasicGetOk, QueueDeclare, QueueDeclareOk
from penstock.broker.admin import Admin, AdminError, Json
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until


@pytest.fixture
def admin(broker: LiveBroker) -> Admin:
    return broker.call(broker.server.admin)


def ask(broker: LiveBroker, verb: Callable[..., object], *arguments: Any, **options: Any) -> Any:
    """Call a verb that answers later, and wait for what it says."""
    answers: list[Any] = []
    broker.call(lambda: verb(*arguments, answers.append, **options))
    wait_until(lambda: bool(answers), what="the answer")
    return answers[0]


def only(views: list[dict[str, Json]]) -> Any:
    (view,) = views
    return view


def read_for_ever(connection: Any) -> None:
    while True:
        connection.process_data_events(0.1)


def test_a_connection_shows_both_ends_what_was_agreed_on_and_the_client_s_own_words(
    broker: LiveBroker, admin: Admin
) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, heartbeat=17, channel_max=33, client_properties={"connection_name": "orders-api"}
    )
    connection = pika.BlockingConnection(parameters)
    shown = only(broker.call(admin.connections))
    assert shown["name"] == f"127.0.0.1:{shown['peer_port']} -> 127.0.0.1:{broker.port}"
    assert (shown["peer_host"], shown["host"], shown["port"]) == ("127.0.0.1", "127.0.0.1", broker.port)
    assert (shown["user_provided_name"], shown["user"], shown["vhost"]) == ("orders-api", "guest", "/")
    assert (shown["timeout"], shown["channel_max"], shown["frame_max"]) == (17, 33, 131072)
    assert (shown["ssl"], shown["auth_mechanism"], shown["protocol"]) == (False, "PLAIN", "AMQP 0-9-1")
    properties: Any = shown["client_properties"]
    assert properties["product"] == "Pika Python Client Library"
    assert broker.call(lambda: admin.connection(shown["name"]))["name"] == shown["name"]
    broker.call(lambda: admin.close_connection(shown["name"], "maintenance"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - maintenance"):
        read_for_ever(connection)


def test_bytes_and_messages_on_a_connection_are_counted(broker: LiveBroker, admin: Admin) -> None:
    with RawClient(broker.port) as client:
        client.handshake().open()
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        before = only(broker.call(admin.connections))
        for _ in range(10):
            client.publish("q", b"x" * 1000)
        client.ask(BasicGet("q"), BasicGetOk)
        after = only(broker.call(admin.connections))
        assert after["recv_oct"] - before["recv_oct"] > 10_000
        assert after["send_oct"] - before["send_oct"] > 1_000
        assert after["recv_cnt"] > before["recv_cnt"]
        assert after["send_cnt"] > before["send_cnt"]
        stats: Any = broker.call(admin.overview)["message_stats"]
        assert (stats["publish"], stats["get"]) == (10, 1)


def test_an_operator_publishes_and_gets_on_a_running_broker(broker: LiveBroker, admin: Admin) -> None:
    assert broker.call(lambda: admin.declare_queue("/", "q", user="guest"))
    assert ask(broker, admin.publish, "/", "", "q", {"delivery_mode": 2, "headers": {"n": 1}}, b"hello", user="guest")
    assert not ask(broker, admin.publish, "/", "", "nowhere", {}, b"hello", user="guest")
    (got,) = ask(broker, admin.get, "/", "q", 10, "ack_requeue_true", None, user="guest")
    assert (got["payload"], got["properties"]) == ("hello", {"delivery_mode": 2, "headers": {"n": 1}})
    with RawClient(broker.port) as client:
        client.handshake().open()
        assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 1
        found = client.ask(BasicGet("q", no_ack=True), BasicGetOk)
        assert found.redelivered, "it was shown to somebody"
    with pytest.raises(AdminError, match="404 NOT_FOUND - no queue 'none'"):
        ask(broker, admin.get, "/", "none", 10, "ack_requeue_true", None, user="guest")
    assert broker.call(admin.channels) == []


def test_what_an_operator_published_is_there_after_a_restart(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as broker:
        admin = broker.call(broker.server.admin)
        broker.call(lambda: admin.declare_queue("/", "kept"))
        assert ask(broker, admin.publish, "/", "", "kept", {"delivery_mode": 2}, b"safe", user="guest")
    with LiveBroker(data=tmp_path) as broker:
        admin = broker.call(broker.server.admin)
        (got,) = ask(broker, admin.get, "/", "kept", 10, "ack_requeue_false", None, user="guest")
        assert got["payload"] == "safe"
