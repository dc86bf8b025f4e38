"""Every method of AMQP 0-9-1 and RabbitMQ's extensions, from the right side and from the wrong one.

docs/protocol.md refers to these tests. Here is which method answers which, what comes of a method that does not belong
where it is sent, and a few rows of that document that no other test shows. What a method does in all its cases is in
tests/differential.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from penstock import __version__
from penstock.amqp.content import build_basic
from penstock.amqp.decoder import Command, Item
from penstock.amqp.frame import METHOD, PROTOCOL_HEADER, encode_frame
from penstock.amqp.method import (
    METHODS,
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
    encode_method,
)
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.table import Table
from penstock.embed import BrokerThread
from penstock.net.connection import Connection
from tests.wire.live import LiveBroker
from tests.wire.raw import CAPABILITIES, RawClient

CONNECTION = 10  # the class whose methods belong on channel 0
FLAGS_AT = 12  # where the properties begin in a content header's payload


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    """One for all: what a test leaves behind, the next one's client deletes."""
    with LiveBroker() as live:
        yield live


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[RawClient]:
    """On channel 1, with the queue q, bound to the exchange x by the key bound."""
    with RawClient(broker.port).handshake().open() as raw:
        raw.ask(QueueDelete("q"), QueueDeleteOk)
        raw.ask(ExchangeDelete("x"), ExchangeDeleteOk)
        raw.ask(QueueDeclare("q"), QueueDeclareOk)
        raw.ask(ExchangeDeclare("x", "direct"), ExchangeDeclareOk)
        raw.ask(QueueBind("q", "x", "bound"), QueueBindOk)
        yield raw


def ids(method: type[Method]) -> tuple[int, int]:
    return method.ID >> 16, method.ID & 0xFFFF


def name_of(value: object) -> str:
    return value.NAME if isinstance(value, type) and issubclass(value, Method) else type(value).__name__


# From the right side.

ANSWERED: list[tuple[Method, type[Method]]] = [
    (AccessRequest(), AccessRequestOk),
    (ChannelFlow(True), ChannelFlowOk),
    (ExchangeDeclare("other", "fanout"), ExchangeDeclareOk),
    (ExchangeBind("x", "amq.direct", "k"), ExchangeBindOk),
    (ExchangeUnbind("x", "amq.direct", "k"), ExchangeUnbindOk),
    (ExchangeDelete("other"), ExchangeDeleteOk),
    (QueueDeclare("q"), QueueDeclareOk),
    (QueueBind("q", "x", "k"), QueueBindOk),
    (QueueUnbind("q", "x", "k"), QueueUnbindOk),
    (QueuePurge("q"), QueuePurgeOk),
    (BasicQos(0, 10), BasicQosOk),
    (BasicConsume("q", "tag"), BasicConsumeOk),
    (BasicCancel("tag"), BasicCancelOk),
    (BasicGet("q"), BasicGetEmpty),
    (BasicRecover(True), BasicRecoverOk),
    (QueueDelete("q"), QueueDeleteOk),
    (TxSelect(), TxSelectOk),
    (TxCommit(), TxCommitOk),
    (TxRollback(), TxRollbackOk),
    (ChannelClose(200, "bye"), ChannelCloseOk),
    (ChannelOpen(), ChannelOpenOk),
    (ConfirmSelect(), ConfirmSelectOk),
]


def test_every_method_that_has_an_answer_gets_it(client: RawClient) -> None:
    for method, answer in ANSWERED:
        client.ask(method, answer)
    client.ask(ConnectionUpdateSecret(b"guest", "renewed"), ConnectionUpdateSecretOk, 0)
    client.ask(ConnectionClose(200, "bye"), ConnectionCloseOk, 0)
    client.expect_gone()


def test_methods_with_content_and_their_settlement_do_their_work(client: RawClient) -> None:
    """publish, deliver, get-ok, return, ack, nack, reject and recover-async."""
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.publish("nowhere", b"returned", mandatory=True)
    returned = client.expect(BasicReturn)
    assert (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert client.read_content().body == b"returned"
    assert client.expect(BasicAck).delivery_tag == 1
    for number, body in enumerate((b"a", b"b", b"c", b"d"), start=2):
        client.publish("bound", body, "x")
        assert client.expect(BasicAck).delivery_tag == number

    def get() -> tuple[int, bytes, bool]:
        got = client.ask(BasicGet("q"), BasicGetOk)
        return got.delivery_tag, client.read_content().body, got.redelivered

    assert get() == (1, b"a", False)
    client.send(BasicAck(1))
    assert get() == (2, b"b", False)
    client.send(BasicNack(2, requeue=True))
    assert get() == (3, b"b", True)
    client.send(BasicReject(3, requeue=False))
    assert get() == (4, b"c", False)
    client.send(BasicRecoverAsync(True))
    client.ask(BasicConsume("q", "tag", no_ack=True), BasicConsumeOk)
    delivered = client.expect(BasicDeliver)
    assert (delivered.consumer_tag, delivered.redelivered, client.read_content().body) == ("tag", True, b"c")
    delivered = client.expect(BasicDeliver)
    assert (delivered.redelivered, client.read_content().body) == (False, b"d")


def test_a_full_queue_that_refuses_is_a_nack(client: RawClient) -> None:
    client.ask(QueueDelete("full"), QueueDeleteOk)
    client.ask(QueueDeclare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}), QueueDeclareOk)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.publish("full", b"one")
    assert client.expect(BasicAck).delivery_tag == 1
    client.publish("full", b"two")
    assert client.expect(BasicNack).delivery_tag == 2


def test_the_server_cancels_a_consumer_whose_queue_goes(client: RawClient, broker: LiveBroker) -> None:
    client.ask(BasicConsume("q", "tag"), BasicConsumeOk)
    with RawClient(broker.port).handshake().open() as other:
        other.ask(QueueDelete("q"), QueueDeleteOk)
    cancel = client.expect(BasicCancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("tag", True)


# The way in, and what the server says of itself.


def test_the_handshake_goes_by_start_tune_and_open_ok(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        start = client.expect(ConnectionStart, 0)
        assert (start.version_major, start.version_minor, start.mechanisms) == (0, 9, b"PLAIN AMQPLAIN")
        assert start.locales == b"en_US"
        client.send(ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", "xx_YY"), 0)
        tune = client.expect(ConnectionTune, 0)
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131_072, 60)
        client.send(ConnectionTuneOk(2047, 131_072, 0), 0)
        client.ask(ConnectionOpen("/"), ConnectionOpenOk, 0)


def test_the_capabilities_are_rabbitmqs_in_its_order_and_then_our_own(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        capabilities = client.expect(ConnectionStart, 0).server_properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert list(capabilities) == [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
        "penstock.deduplication",
        "penstock.sequence",
        "penstock.streams",
    ]
    assert all(value is True for value in capabilities.values())


def test_the_server_properties_say_whom_it_behaves_like_and_who_it_is(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        properties = client.expect(ConnectionStart, 0).server_properties
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "3.13.7")
    assert properties["penstock"] == __version__
    assert str(properties["platform"]).startswith(f"Penstock {__version__}, Python 3.")
    assert all(isinstance(properties[key], str) for key in ("cluster_name", "copyright", "information"))


# From the wrong side.

WITH_CONTENT = (BasicPublish, BasicReturn, BasicDeliver, BasicGetOk)
FROM_SERVERS = (
    ChannelOpenOk,
    ChannelFlowOk,
    ChannelCloseOk,  # no close was sent to the client
    AccessRequestOk,
    ExchangeDeclareOk,
    ExchangeDeleteOk,
    ExchangeBindOk,
    ExchangeUnbindOk,
    QueueDeclareOk,
    QueueBindOk,
    QueuePurgeOk,
    QueueDeleteOk,
    QueueUnbindOk,
    BasicQosOk,
    BasicConsumeOk,
    BasicCancelOk,
    BasicReturn,
    BasicDeliver,
    BasicGetOk,
    BasicGetEmpty,
    BasicRecoverOk,
    ConfirmSelectOk,
    TxSelectOk,
    TxCommitOk,
    TxRollbackOk,
)
OF_CONNECTIONS = tuple(method for method in METHODS if method.ID >> 16 == CONNECTION)


def expect_close(client: RawClient, method: type[Method], code: int, text: str) -> None:
    close = client.expect_connection_close()
    assert (close.reply_code, close.reply_text) == (code, text)
    assert (close.class_id, close.method_id) == ids(method)


@pytest.mark.parametrize("method", FROM_SERVERS, ids=name_of)
def test_a_method_that_only_servers_send_is_503(client: RawClient, method: type[Method]) -> None:
    content = build_basic(1, encode_properties(Properties()), b"body", 131_072) if method in WITH_CONTENT else b""
    client.send_bytes(encode_method(method(), 1) + content)
    expect_close(client, method, 503, "COMMAND_INVALID - unimplemented method")


@pytest.mark.parametrize("method", OF_CONNECTIONS, ids=name_of)
def test_a_method_of_connections_on_a_channel_is_503(client: RawClient, method: type[Method]) -> None:
    client.send(method(), 1)
    expect_close(client, method, 503, "COMMAND_INVALID - unimplemented method")


@pytest.mark.parametrize(
    "method",
    [
        ConnectionStart,
        ConnectionStartOk,
        ConnectionSecure,
        ConnectionSecureOk,
        ConnectionTune,
        ConnectionTuneOk,
        ConnectionOpen,
        ConnectionOpenOk,
        ConnectionCloseOk,
        ConnectionBlocked,
        ConnectionUnblocked,
        ConnectionUpdateSecretOk,
    ],
    ids=name_of,
)
def test_a_method_of_connections_at_the_wrong_time_is_504(client: RawClient, method: type[Method]) -> None:
    client.send(method(), 0)
    expect_close(client, method, 504, "CHANNEL_ERROR - unexpected method in connection state running")


@pytest.mark.parametrize(
    "method",
    [method for method in METHODS if method not in (*OF_CONNECTIONS, *WITH_CONTENT)],
    ids=name_of,
)
def test_a_method_of_channels_on_channel_0_is_504(client: RawClient, method: type[Method]) -> None:
    client.send(method(), 0)
    expect_close(client, method, 504, "CHANNEL_ERROR - unexpected method in connection state running")


def test_these_tests_know_every_method() -> None:
    asked = {type(method) for method, _ in ANSWERED} | {answer for _, answer in ANSWERED}
    told = {BasicPublish, BasicGetOk, BasicAck, BasicNack, BasicReject, BasicRecoverAsync}
    assert asked | told | set(FROM_SERVERS) | set(OF_CONNECTIONS) == set(METHODS)


def test_an_unknown_method_is_503_with_its_ids(client: RawClient) -> None:
    client.send_bytes(encode_frame(METHOD, 1, bytes((0, 61, 0, 7))))
    close = client.expect_connection_close()
    assert (close.reply_code, close.class_id, close.method_id) == (503, 61, 7)
    assert close.reply_text == "COMMAND_INVALID - unimplemented method 61.7"


def test_arguments_cut_short_on_channel_0_are_501(client: RawClient) -> None:
    client.send_bytes(encode_frame(METHOD, 0, bytes((0, 10, 0, 70, 0, 0, 0, 9))))
    expect_close(client, ConnectionUpdateSecret, 501, "FRAME_ERROR - cannot decode <<0,0,0,9>>")


def test_content_on_channel_0_is_505(client: RawClient) -> None:
    client.send_bytes(build_basic(0, encode_properties(Properties()), b"", 131_072))
    close = client.expect_connection_close()
    assert (close.reply_code, close.class_id, close.method_id) == (505, 0, 0)


@pytest.mark.parametrize("version", [b"\x01\x01\x00\x09", b"\x01\x01\x09\x01", b"\x01\x01\x08\x00"])
def test_older_versions_of_amqp_are_answered_with_ours_and_closed(broker: LiveBroker, version: bytes) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(b"AMQP" + version)
        assert client.expect_gone() == PROTOCOL_HEADER


def test_a_text_about_a_frame_shows_its_bytes_as_numbers(client: RawClient) -> None:
    client.send_bytes(encode_frame(4, 1, b"abc"))
    close = client.expect_connection_close()
    assert close.reply_code == 501
    assert close.reply_text == "FRAME_ERROR - type 4, all octets = <<97,98,99>>: unknown_frame"


def test_a_bug_of_the_broker_is_541_for_one_connection_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    receive = Connection._receive

    def broken(connection: Connection, item: Item) -> None:
        """Stands for any bug of ours."""
        is_unlucky = connection.client_properties.get("connection_name") == "unlucky"
        if isinstance(item, Command) and isinstance(item.method, ChannelOpen) and is_unlucky:
            raise ZeroDivisionError
        receive(connection, item)

    monkeypatch.setattr(Connection, "_receive", broken)
    with (
        BrokerThread(log=log) as thread,
        RawClient(thread.port).handshake(name="unlucky") as client,
        RawClient(thread.port).handshake().open() as other,
    ):
        client.send(ChannelOpen())
        close = client.expect_connection_close()
        assert (close.reply_code, close.class_id, close.method_id) == (541, 0, 0)
        assert close.reply_text.startswith("INTERNAL_ERROR - internal error")
        other.ask(QueueDeclare("q"), QueueDeclareOk)
    assert " crash " in log.getvalue()


# Rows of the tables that have no test of their own elsewhere.


def read_headers(client: RawClient) -> Table:
    """Of the content that comes next."""
    header = client.read_content().header
    return decode_properties(header, FLAGS_AT, len(header)).headers or {}


def test_a_message_given_back_too_often_is_dead_lettered(client: RawClient) -> None:
    limited: Table = {"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.ask(QueueDelete("limited"), QueueDeleteOk)
    client.ask(QueueDeclare("limited", arguments=limited), QueueDeclareOk)
    client.publish("limited", b"poison")
    counts = []
    for tag in (1, 2, 3):
        client.ask(BasicGet("limited"), BasicGetOk)
        counts.append(read_headers(client).get("x-delivery-count"))
        client.send(BasicNack(tag, requeue=True))
    assert counts == [None, 1, 2]
    client.ask(BasicConsume("q", "tag", no_ack=True), BasicConsumeOk)
    client.expect(BasicDeliver)
    assert read_headers(client)["x-first-death-reason"] == "delivery_limit"
    client.ask(BasicGet("limited"), BasicGetEmpty)


def test_where_a_queue_is_to_be_placed_does_not_matter(client: RawClient) -> None:
    client.ask(QueueDeclare("placed", exclusive=True, arguments={"x-queue-master-locator": "bogus"}), QueueDeclareOk)


def test_unbinding_anothers_exclusive_queue_is_405_bound_or_not(client: RawClient, broker: LiveBroker) -> None:
    client.ask(QueueDeclare("mine", exclusive=True), QueueDeclareOk)
    client.ask(QueueBind("mine", "x", "k"), QueueBindOk)
    with RawClient(broker.port).handshake() as other:
        for number, key in ((1, "k"), (2, "never bound")):
            other.open(number)
            other.send(QueueUnbind("mine", "x", key), number)
            close = other.expect_channel_close(number)
            assert (close.reply_code, close.class_id, close.method_id) == (405, *ids(QueueUnbind))
