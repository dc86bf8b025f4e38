"""Numbers of messages and of producers, with pika against a real broker process: the headers as a client sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.wire.live import ServeProcess
from tests.wire.waiting import LIMIT_S

Serve = Callable[..., ServeProcess]


def connect(process: ServeProcess) -> BlockingChannel:
    parameters = pika.URLParameters(process.uri)
    parameters.client_properties = {"capabilities": {"penstock.deduplication": True, "basic.nack": True}}
    channel = pika.BlockingConnection(parameters).channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    return channel


def send(channel: BlockingChannel, *ids: int) -> None:
    for id_ in ids:
        headers = {"x-penstock-producer": "p", "x-penstock-publishing-id": id_}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish("", "q", b"%d" % id_, properties)  # returns when it is confirmed


def consumed(channel: BlockingChannel, count: int) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    arguments: dict[str, Any] = {"x-penstock-sequence": True}
    for _, properties, body in channel.consume("q", arguments=arguments, inactivity_timeout=LIMIT_S):
        assert body is not None
        found[body] = properties.headers["x-penstock-sequence"]
        if len(found) == count:
            break
    channel.cancel()
    channel.basic_recover(requeue=True)  # all of it goes back
    return found


def test_over_a_kill_numbers_stay_and_what_is_sent_again_is_dropped(serve_process: Serve, tmp_path: Any) -> None:
    data = str(tmp_path / "data")
    first = serve_process("--data", data)
    channel = connect(first)
    send(channel, 1, 2, 3)
    before = consumed(channel, 3)
    channel.connection.close()
    first.kill()
    second = serve_process("--data", data)
    channel = connect(second)
    send(channel, 2, 3, 4)
    after = consumed(channel, 4)
    assert channel.queue_declare("q", passive=True).method.message_count == 4
    assert {body: after[body] for body in before} == before
    assert len(set(after.values())) == 4
    channel.connection.close()


def test_a_client_can_see_that_both_are_there_and_is_told_what_it_did_wrong(serve_process: Serve) -> None:
    channel = connect(serve_process())
    connection: Any = channel.connection
    capabilities = connection._impl.server_capabilities
    assert capabilities["penstock.sequence"] is True
    assert capabilities["penstock.deduplication"] is True
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"x-penstock-publishing-id.*must be an integer"):
        channel.basic_publish(
            "",
            "q",
            b"x",
            pika.BasicProperties(headers={"x-penstock-producer": "p", "x-penstock-publishing-id": "one"}),
        )
    connection.close()
