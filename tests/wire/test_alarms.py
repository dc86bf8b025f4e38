"""Alarms with real clients: publishers wait and are told, consumers go on, and it ends by itself or by the operator.

The alarms are real: the watermark is set below what the process uses, by a setting or over HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.amqp.table import Table
from penstock.config import SETTINGS
from penstock.embed import Broker, BrokerThread
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.test_management import Http
from tests.wire.waiting import LIMIT_S, wait_until

TOLD: Table = {"capabilities": {"connection.blocked": True, "consumer_cancel_notify": True}}
MEMORY = "alarms.memory_bytes_high"


@pytest.fixture
def http(broker: LiveBroker) -> Http:
    return Http(f"http://127.0.0.1:{broker.manage()}/")


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        client.handshake(TOLD, name="publisher").open().ask(QueueDeclare("q"), QueueDeclareOk)
        yield client


def set_memory(broker: LiveBroker, bytes_: int) -> None:
    """As an operator does, at once."""
    tuning = broker.server.tuning
    assert tuning is not None
    broker.call(lambda: tuning.change(MEMORY, str(bytes_)))


def state(broker: LiveBroker, name: str = "publisher") -> str:
    return broker.call(lambda: broker.connection(name).flow_state())


def test_a_publisher_waits_from_its_first_publish_on_and_is_told_why(broker: LiveBroker, client: RawClient) -> None:
    assert state(broker) == "running"
    set_memory(broker, 1)
    assert state(broker) == "blocking"
    client.publish("q", b"waits")
    reason = client.expect(ConnectionBlocked, 0).reason
    assert reason.startswith("low on memory: ")
    assert reason.endswith(" MB used of 1 B")
    assert state(broker) == "blocked"
    client.publish("q", b"too")
    client.ask(BasicGet("q"), BasicGetEmpty)
    set_memory(broker, 0)
    client.expect(ConnectionUnblocked, 0)
    wait_until(lambda: broker.count("q") == 2)
    assert client.ask(BasicGet("q"), BasicGetOk).message_count == 1
    assert client.read_content().body == b"waits"


@pytest.mark.parametrize("broker", [{MEMORY: "1"}], indirect=True)
def test_an_alarm_is_on_from_the_start_and_the_log_says_so(broker: LiveBroker, client: RawClient) -> None:
    client.publish("q", b"x")
    client.expect(ConnectionBlocked, 0)
    assert 'alarm source=memory reason="low on memory: ' in broker.log
    set_memory(broker, 0)
    client.expect(ConnectionUnblocked, 0)
    assert 'alarm over source=memory effect="publishers go on"' in broker.log


def test_consumers_of_other_connections_go_on(broker: LiveBroker, client: RawClient) -> None:
    for number in range(100):
        client.publish("q", b"%d" % number)
    wait_until(lambda: broker.count("q") == 100)
    set_memory(broker, 1)
    with RawClient(broker.port) as consumer:
        consumer.handshake(TOLD, name="consumer").open().ask(BasicConsume("q"), BasicConsumeOk)
        for number in range(100):
            assert consumer.expect(BasicDeliver).delivery_tag == number + 1
            assert consumer.read_content().body == b"%d" % number
            consumer.send(BasicAck(number + 1))
        consumer.ask(QueueDeclare("another"), QueueDeclareOk)
        assert state(broker, "consumer") == "blocking"


def test_acks_and_consumers_of_a_blocked_connection_go_on(broker: LiveBroker, client: RawClient) -> None:
    for number in range(10):
        client.publish("q", b"%d" % number)
    client.ask(QueueDeclare("q", passive=True), QueueDeclareOk)
    set_memory(broker, 1)
    client.publish("q", b"waits")
    client.expect(ConnectionBlocked, 0)
    client.ask(BasicConsume("q"), BasicConsumeOk)
    for number in range(10):
        client.expect(BasicDeliver)
        assert client.read_content().body == b"%d" % number
    client.send(BasicAck(10, True))
    wait_until(lambda: not broker.call(lambda: broker.queue("q").unacked), what="the acks to count")
    set_memory(broker, 0)
    client.expect(ConnectionUnblocked, 0)
    client.expect(BasicDeliver)
    assert client.read_content().body == b"waits"


def test_a_blocked_channel_and_connection_can_be_closed(broker: LiveBroker, client: RawClient) -> None:
    set_memory(broker, 1)
    client.publish("q", b"one")
    client.expect(ConnectionBlocked, 0)
    client.ask(ChannelClose(200, "bye"), ChannelCloseOk)
    client.open().publish("q", b"two")
    client.close()
    assert broker.count("q") == 2, "what was published before a close is there"


def test_memory_under_an_alarm_is_bounded_and_nothing_is_lost(broker: LiveBroker, client: RawClient) -> None:
    set_memory(broker, 1)
    count = 20_000
    message = publish_bytes("q", b"x" * 1000)

    def flood() -> None:
        for _ in range(count // 100):
            client.send_bytes(message * 100)

    client.socket.settimeout(None)  # it is held back as long as the alarm lasts
    flooding = threading.Thread(target=flood)
    flooding.start()
    connection = broker.call(lambda: broker.connection("publisher"))
    wait_until(lambda: broker.call(lambda: not connection._transport.is_reading()), what="the socket to pause")
    assert connection.reader is not None
    assert connection.reader.parked_bytes < 2_000_000
    assert broker.count("q") == 0
    set_memory(broker, 0)
    flooding.join(LIMIT_S)
    wait_until(lambda: broker.count("q") == count, what="all to arrive")


def test_a_publisher_with_confirms_gets_them_when_the_alarm_ends(broker: LiveBroker, client: RawClient) -> None:
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    set_memory(broker, 1)
    client.publish("q", b"x")
    client.expect(ConnectionBlocked, 0)
    set_memory(broker, 0)
    client.expect(ConnectionUnblocked, 0)
    assert client.expect(BasicAck).delivery_tag == 1


def test_alarms_are_counted_by_source(broker: LiveBroker, client: RawClient) -> None:
    alarms = broker.inside.alarms
    broker.call(lambda: alarms.raise_alarm("store", "the journal cannot write: No space left on device"))
    set_memory(broker, 1)
    client.publish("q", b"x")
    reason = client.expect(ConnectionBlocked, 0).reason
    assert reason.startswith("the journal cannot write: No space left on device; low on memory: ")
    broker.call(lambda: alarms.clear("store"))
    client.ask(BasicGet("q"), BasicGetEmpty)
    set_memory(broker, 0)
    client.expect(ConnectionUnblocked, 0)


@pytest.mark.parametrize("broker", [{MEMORY: "1", "alarms.blocked_deadline_s": "0.2"}], indirect=True)
def test_a_publisher_blocked_too_long_is_closed_with_the_reason(broker: LiveBroker, client: RawClient) -> None:
    client.publish("q", b"x")
    client.expect(ConnectionBlocked, 0)
    close = client.expect_connection_close()
    assert close.reply_code == 320
    start = "CONNECTION_FORCED - publishing was blocked for 0.2 s (alarms.blocked_deadline_s): low on memory: "
    assert close.reply_text.startswith(start)


# Clients.


def test_pika_is_told_by_its_callbacks(broker: LiveBroker) -> None:
    told: list[str] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("q")
        set_memory(broker, 1)
        channel.basic_publish("", "q", b"x")
        wait_until(lambda: connection.process_data_events(0.01) or told, what="pika to hear it")
        assert told[0].startswith("low on memory: ")
        assert channel.queue_declare("q", passive=True).method.message_count == 0
        set_memory(broker, 0)
        wait_until(lambda: connection.process_data_events(0.01) or len(told) == 2, what="pika to hear of the end")
        assert told[1] == "unblocked"
        wait_until(lambda: broker.count("q") == 1)


def test_pikas_own_deadline_ends_a_blocked_connection(broker: LiveBroker) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, blocked_connection_timeout=0.2)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    set_memory(broker, 1)
    channel.basic_publish("", "q", b"x")
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        wait_until(lambda: connection.process_data_events(0.05), what="pika to give up")


def test_aio_pika_waits_for_its_confirm_and_a_consumer_of_its_own_goes_on(broker: LiveBroker) -> None:
    async def talk() -> bytes:
        async with await aio_pika.connect(broker.uri) as connection:
            channel = await connection.channel(publisher_confirms=True)
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"before"), "q")
            set_memory(broker, 1)
            publishing = asyncio.ensure_future(channel.default_exchange.publish(aio_pika.Message(b"x"), "q"))
            got = await queue.get(timeout=LIMIT_S)
            await got.ack()
            assert not publishing.done()
            set_memory(broker, 0)
            await asyncio.wait_for(publishing, LIMIT_S)
            return (await queue.get(timeout=LIMIT_S, no_ack=True)).body

    assert asyncio.run(talk()) == b"x"


# The operator.


def test_settings_are_listed_and_changed_over_http(broker: LiveBroker, http: Http, client: RawClient) -> None:
    listed = {one["name"]: one for one in http.get("settings")}
    assert listed.keys() == {setting.name for setting in SETTINGS}
    assert listed[MEMORY]["value"] == listed[MEMORY]["default"] == "0"
    assert listed[MEMORY]["run_time"] is True
    assert listed["limits.channel_max"]["run_time"] is False
    assert http.get("alarms") == []
    assert http.put(f"settings/{MEMORY}", {"value": "1"}) == 204
    assert http.get(f"settings/{MEMORY}")["value"] == "1"
    (alarm,) = http.get("alarms")
    assert alarm["source"] == "memory"
    assert alarm["reason"].startswith("low on memory: ")
    client.publish("q", b"x")
    client.expect(ConnectionBlocked, 0)
    assert http.put(f"settings/{MEMORY}", {"value": 0}) == 204
    client.expect(ConnectionUnblocked, 0)
    assert http.put("settings/credit.reader_channel", {"value": "10,5"}) == 204
    assert str(broker.inside.reader_channel.messages) == "10,5"


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (f"settings/{MEMORY}", {"value": "a lot"}, 400, f"setting {MEMORY}: 'a lot' is not a whole number"),
        (f"settings/{MEMORY}", {}, 400, "'value' is neither a string nor a number"),
        (f"settings/{MEMORY}", {"value": True}, 400, "'value' is neither a string nor a number"),
        ("settings/credit.channel_queue", {"value": "5"}, 400, "initial,more_after"),
        ("settings/limits.channel_max", {"value": "5"}, 400, "setting limits.channel_max is read at the start only"),
        ("settings/none.such", {"value": "5"}, 404, "there is no setting 'none.such'"),
    ],
)
def test_nonsense_is_refused_with_a_reason(http: Http, path: str, body: Any, status: int, reason: str) -> None:
    before = http.get("settings")
    code, answer = http.ask("PUT", path, body)
    assert code == status
    assert reason in answer["reason"]
    assert http.get("settings") == before


def test_only_administrators_see_and_change_settings(http: Http) -> None:
    http.put("users/watcher", {"password": "secret", "tags": "monitoring"})
    for method in ("GET", "PUT"):
        assert http.ask(method, f"settings/{MEMORY}", {"value": "1"}, "watcher", "secret")[0] == 403
    assert http.ask("GET", "alarms", None, "watcher", "secret") == (200, [])


def test_every_setting_that_says_so_follows_at_run_time(tmp_path: Path) -> None:
    async def followed() -> set[str]:
        async with Broker(data=tmp_path) as broker:
            tuning = broker.server.tuning
            assert tuning is not None
            return tuning.followed()

    assert asyncio.run(followed()) == {setting.name for setting in SETTINGS if setting.run_time}


# The disk.


def test_too_little_disk_is_an_alarm(tmp_path: Path) -> None:
    settings = {"alarms.disk_free_bytes_low": str(1 << 60), "log.level": "error"}
    with BrokerThread(settings, data=tmp_path) as broker, RawClient(broker.port) as client:
        client.handshake(TOLD).open().ask(QueueDeclare("q"), QueueDeclareOk)
        client.publish("q", b"x")
        reason = client.expect(ConnectionBlocked, 0).reason
        assert reason.startswith("low on disk: ")
        assert reason.endswith(" MB free, limit 1152921504607 MB")
        tuning = broker.broker.server.tuning
        assert tuning is not None
        broker.call(lambda: tuning.change("alarms.disk_free_bytes_low", "0"))
        client.expect(ConnectionUnblocked, 0)


@pytest.mark.parametrize("broker", [{"alarms.disk_free_bytes_low": str(1 << 60)}], indirect=True)
def test_a_broker_without_a_data_directory_has_no_disk_alarm(broker: LiveBroker, client: RawClient) -> None:
    client.publish("q", b"x")
    wait_until(lambda: broker.count("q") == 1)


def test_a_process_under_an_alarm_serves_and_stops_as_ever(serve_process: Callable[..., ServeProcess]) -> None:
    process = serve_process("--set", f"{MEMORY}=1")
    with RawClient(process.port) as client:
        client.handshake(TOLD).open().ask(QueueDeclare("q"), QueueDeclareOk)
        client.publish("q", b"x")
        client.expect(ConnectionBlocked, 0)
        process.wait_for_log("alarm source=memory")
    assert process.terminate() == 0
