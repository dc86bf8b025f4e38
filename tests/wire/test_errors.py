"""Wrong use: each kind is answered with the code, the text and the ids that RabbitMQ 3.10 answers with.

Raw frames, because most libraries refuse to send these. Observed on a RabbitMQ 3.10.8.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.amqp.method import (
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
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
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
    QueueUnbind,
    QueueUnbindOk,
    encode_method,
)
from penstock.amqp.properties import Properties
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.waiting import wait_until

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[RawClient]:
    """On channel 1, with the queue q, the durable queue qd, the queue qml of x-max-length 5, the exchange xd and the
    internal exchange xint."""
    with RawClient(broker.port).handshake().open() as raw:
        raw.ask(QueueDeclare("q"), QueueDeclareOk)
        raw.ask(QueueDeclare("qd", durable=True), QueueDeclareOk)
        raw.ask(QueueDeclare("qml", arguments={"x-max-length": 5}), QueueDeclareOk)
        raw.ask(ExchangeDeclare("xd", "direct"), ExchangeDeclareOk)
        raw.ask(ExchangeDeclare("xint", "fanout", internal=True), ExchangeDeclareOk)
        yield raw


def ids(method: type[Method]) -> tuple[int, int]:
    return method.ID >> 16, method.ID & 0xFFFF


CHANNEL_ERRORS: list[tuple[Method, int, str]] = [
    # Queues.
    (QueueDeclare("nope", passive=True), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
    (QueueDeclare("", passive=True), 404, "NOT_FOUND - no queue '' in vhost '/'"),
    (
        QueueDeclare("qd"),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'qd' in vhost '/': received 'false' but current is "
        "'true'",
    ),
    (
        QueueDeclare("q", auto_delete=True),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but "
        "current is 'false'",
    ),
    (QueueDeclare("q", exclusive=True), 405, LOCKED.format("q")),
    (
        QueueDeclare("q", arguments={"x-max-length": 5}),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the value '5' of "
        "type 'signedint' but current is none",
    ),
    (
        QueueDeclare("qml"),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'qml' in vhost '/': received none but "
        "current is the value '5' of type 'signedint'",
    ),
    (
        QueueDeclare("qml", arguments={"x-max-length": 6}),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'qml' in vhost '/': received '6' but "
        "current is '5'",
    ),
    (
        QueueDeclare("new", arguments={"x-max-length": "a"}),
        406,
        "PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'new' in vhost '/': "
        '"expected integer, got longstr"',
    ),
    (
        QueueDeclare("new", arguments={"x-message-ttl": -1}),
        406,
        "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'new' in vhost '/': {value_negative,-1}",
    ),
    (QueueDeclare("amq.foo"), 403, "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'"),
    (QueueDeclare("amq.foo", passive=True), 404, "NOT_FOUND - no queue 'amq.foo' in vhost '/'"),
    (QueueBind("q", "nope", "k"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (QueueBind("nope", "amq.direct", "k"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
    (QueueBind("nope", "nope", "k"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (QueueBind("q", "", "k"), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (QueueUnbind("q", "", "k"), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (
        QueueBind("q", "amq.headers", "", arguments={"x-match": "bogus"}),
        406,
        'PRECONDITION_FAILED - Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x',
    ),
    (
        QueueBind("q", "amq.headers", "", arguments={"x-match": 5}),
        406,
        "PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr",
    ),
    (QueuePurge("nope"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
    # Exchanges.
    (ExchangeDeclare("nope", "direct", passive=True), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (ExchangeDeclare("nope", "bogus", passive=True), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (
        ExchangeDeclare("xd", "fanout"),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'xd' in vhost '/': received 'fanout' but "
        "current is 'direct'",
    ),
    (
        ExchangeDeclare("xd", "direct", durable=True),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'xd' in vhost '/': received 'true' but "
        "current is 'false'",
    ),
    (
        ExchangeDeclare("xd", "direct", internal=True),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'internal' for exchange 'xd' in vhost '/': received 'true' but "
        "current is 'false'",
    ),
    (
        ExchangeDeclare("xd", "direct", arguments={"alternate-exchange": "ae"}),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'xd' in vhost '/': received the "
        "value 'ae' of type 'longstr' but current is none",
    ),
    (
        ExchangeDeclare("amq.foo", "direct"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    (ExchangeDeclare(""), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (ExchangeDeclare("", passive=True), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (ExchangeDelete(""), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (
        ExchangeDelete("amq.direct"),
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (ExchangeBind("xd", "nope", "k"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (ExchangeBind("nope", "xd", "k"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (ExchangeBind("gone", "nope", "k"), 404, "NOT_FOUND - no exchange 'nope' in vhost '/'"),
    (ExchangeBind("", "xd", "k"), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (ExchangeBind("xd", "", "k"), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    # Deliveries.
    (BasicAck(1), 406, "PRECONDITION_FAILED - unknown delivery tag 1"),
    (BasicAck(0), 406, "PRECONDITION_FAILED - unknown delivery tag 0"),
    (BasicAck(3, True), 406, "PRECONDITION_FAILED - unknown delivery tag 3"),
    (BasicNack(4), 406, "PRECONDITION_FAILED - unknown delivery tag 4"),
    (BasicReject(5), 406, "PRECONDITION_FAILED - unknown delivery tag 5"),
    (BasicConsume("nope"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
    (BasicGet("nope"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
]


@pytest.mark.parametrize(("method", "code", "text"), CHANNEL_ERRORS, ids=lambda value: str(value)[:70])
def test_wrong_use_of_a_thing_closes_the_channel(client: RawClient, method: Method, code: int, text: str) -> None:
    client.open(2)
    client.send(method, 2)
    close = client.expect_channel_close(2)
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (code, text, *ids(type(method)))
    client.ask(QueueDeclare("q", passive=True), QueueDeclareOk, 1)  # the other channel was not touched


CONNECTION_ERRORS: list[tuple[Method, int, int, str]] = [
    (ExchangeDeclare("x", "bogus"), 1, 503, "COMMAND_INVALID - unknown exchange type 'bogus'"),
    (ExchangeDeclare("x", ""), 1, 503, "COMMAND_INVALID - invalid exchange type ''"),
    (BasicQos(10), 1, 540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)"),
    (BasicRecover(False), 1, 540, "NOT_IMPLEMENTED - requeue=false"),
    (BasicRecoverAsync(False), 1, 540, "NOT_IMPLEMENTED - requeue=false"),
    (ChannelOpen(), 1, 504, "CHANNEL_ERROR - second 'channel.open' seen"),
    (QueueDeclare("q"), 7, 504, "CHANNEL_ERROR - expected 'channel.open'"),
    (ChannelCloseOk(), 7, 504, "CHANNEL_ERROR - expected 'channel.open'"),
    (QueueDeclare("q"), 0, 504, "CHANNEL_ERROR - unexpected method in connection state running"),
    (ChannelOpen(), 0, 504, "CHANNEL_ERROR - unexpected method in connection state running"),
    (ConnectionOpen("/"), 0, 504, "CHANNEL_ERROR - unexpected method in connection state running"),
    (ConnectionClose(200, "", 0, 0), 1, 503, "COMMAND_INVALID - unimplemented method"),
    (QueueDeclareOk("q"), 1, 503, "COMMAND_INVALID - unimplemented method"),
    (ChannelFlowOk(True), 1, 503, "COMMAND_INVALID - unimplemented method"),
    (ChannelCloseOk(), 1, 503, "COMMAND_INVALID - unimplemented method"),
    (BasicCancelOk("t"), 1, 503, "COMMAND_INVALID - unimplemented method"),
]


@pytest.mark.parametrize(("method", "channel", "code", "text"), CONNECTION_ERRORS, ids=lambda value: str(value)[:70])
def test_wrong_use_of_the_protocol_closes_the_connection(
    client: RawClient, broker: LiveBroker, method: Method, channel: int, code: int, text: str
) -> None:
    client.send(method, channel)
    close = client.expect_connection_close()
    assert (close.reply_code, close.class_id, close.method_id) == (code, *ids(type(method)))
    assert close.reply_text.startswith(text)
    wait_until(lambda: not broker.call(broker.connections))


ALLOWED: list[tuple[Method, type[Method]]] = [
    (QueueDeclare("qd", passive=True, exclusive=True, arguments={"x-max-length": 1}), QueueDeclareOk),
    (QueueDeclare("q", arguments={"x-foo": 1}), QueueDeclareOk),
    (QueueDeclare("q", arguments={"x-queue-type": "classic"}), QueueDeclareOk),
    (QueueDelete("nope", if_unused=True, if_empty=True), QueueDeleteOk),
    (QueueBind("q", "xd", "k"), QueueBindOk),
    (QueueUnbind("q", "xd", "never bound"), QueueUnbindOk),
    (QueueUnbind("nope", "xd", "k"), QueueUnbindOk),
    (QueueUnbind("q", "nope", "k"), QueueUnbindOk),
    (ExchangeDeclare("xd", "fanout", passive=True), ExchangeDeclareOk),
    (ExchangeDeclare("xd", "direct", arguments={"x-foo": 1}), ExchangeDeclareOk),
    (ExchangeDeclare("amq.direct", "direct", durable=True), ExchangeDeclareOk),
    (ExchangeDeclare("amq.topic", "topic", passive=True), ExchangeDeclareOk),
    (ExchangeDelete("nope", if_unused=True), ExchangeDeleteOk),
    (ExchangeBind("xint", "xd", "k"), ExchangeBindOk),
    (ExchangeUnbind("xint", "xd", "never bound"), ExchangeUnbindOk),
    (ExchangeUnbind("nope", "xd", "k"), ExchangeUnbindOk),
    (BasicCancel("unknown"), BasicCancelOk),
    (BasicQos(0, 5, False), BasicQosOk),
    (BasicRecover(True), BasicRecoverOk),
    (BasicGet("q"), BasicGetEmpty),
    (ChannelFlow(True), ChannelFlowOk),
    (ConfirmSelect(), ConfirmSelectOk),
]


@pytest.mark.parametrize(("method", "answer"), ALLOWED, ids=lambda value: str(value)[:70])
def test_odd_but_right_use_is_answered_ok(client: RawClient, method: Method, answer: type[Method]) -> None:
    client.ask(method, answer)
    client.ask(method, answer)  # twice, too


def test_flow_pauses_and_resumes_the_deliveries_of_a_channel(client: RawClient) -> None:
    # RabbitMQ refuses active=false with 540; Penstock does what the protocol says.
    client.ask(BasicConsume("q", no_ack=True), BasicConsumeOk)
    assert client.ask(ChannelFlow(False), ChannelFlowOk).active is False
    client.publish("q", b"x")
    assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 1
    assert client.ask(ChannelFlow(True), ChannelFlowOk).active is True
    client.expect(BasicDeliver)


def test_a_secret_may_be_updated(client: RawClient) -> None:
    client.ask(ConnectionUpdateSecret(b"new", "because"), ConnectionUpdateSecretOk, 0)


@pytest.mark.parametrize(
    "method",
    [
        QueueBind("", "amq.direct", "k"),
        QueueUnbind("", "amq.direct", "k"),
        QueuePurge(""),
        QueueDelete(""),
        BasicConsume(""),
        BasicGet(""),
    ],
    ids=lambda method: method.NAME,
)
def test_an_empty_queue_name_without_a_queue_declared_before_is_404(client: RawClient, method: Method) -> None:
    client.open(2)
    client.send(method, 2)
    close = client.expect_channel_close(2)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no previously declared queue")
    assert (close.class_id, close.method_id) == ids(type(method))


def test_a_server_named_queue_is_not_declared_again_not_even_by_its_owner(client: RawClient) -> None:
    name = client.ask(QueueDeclare("", exclusive=True), QueueDeclareOk).queue
    assert client.ask(QueueDeclare(name, passive=True), QueueDeclareOk).queue == name
    client.send(QueueDeclare(name, exclusive=True))
    assert client.expect_channel_close().reply_text == (
        f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
    )


def test_a_queue_in_use_or_not_empty_is_kept_if_the_client_says_so(client: RawClient) -> None:
    client.open(2)
    client.publish("q", b"x")
    client.ask(QueueDeclare("q", passive=True), QueueDeclareOk)
    client.send(QueueDelete("q", if_empty=True), 2)
    close = client.expect_channel_close(2)
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty")
    client.ask(BasicConsume("q"), BasicConsumeOk)
    client.expect(BasicDeliver)
    client.read_content()
    client.open(2)
    client.send(QueueDelete("q", if_unused=True, if_empty=True), 2)
    close = client.expect_channel_close(2)
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use")
    # Unacked messages do not count as there.
    assert client.ask(QueueDelete("q", if_empty=True), QueueDeleteOk).message_count == 0


def test_an_exchange_in_use_is_kept_if_the_client_says_so(client: RawClient) -> None:
    client.ask(QueueBind("q", "xd", "k"), QueueBindOk)
    client.send(ExchangeDelete("xd", if_unused=True))
    close = client.expect_channel_close()
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - exchange 'xd' in vhost '/' in use")


@pytest.mark.parametrize("mandatory", [False, True])
@pytest.mark.parametrize("confirm", [False, True])
def test_a_publish_to_a_missing_exchange_is_404_and_neither_returned_nor_confirmed(
    client: RawClient, mandatory: bool, confirm: bool
) -> None:
    if confirm:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.publish("k", b"x", "nope", mandatory=mandatory)
    close = client.expect_channel_close()
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no exchange 'nope' in vhost '/'")
    assert (close.class_id, close.method_id) == (60, 40)


def test_a_publish_to_an_internal_exchange_is_refused(client: RawClient) -> None:
    client.publish("k", b"x", "xint")
    close = client.expect_channel_close()
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - cannot publish to internal exchange 'xint' in vhost '/'",
    )


def test_immediate_closes_the_connection_with_540(client: RawClient) -> None:
    client.send(BasicPublish("", "q", immediate=True))
    client.send_bytes(b"\x02\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce")
    close = client.expect_connection_close()
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - immediate=true")
    assert (close.class_id, close.method_id) == (60, 40)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (Properties(expiration="abc"), "invalid expiration 'abc': no_integer"),
        (Properties(expiration="-1"), "invalid expiration '-1': {value_negative,-1}"),
        (Properties(user_id="bob"), "user_id property set to 'bob' but authenticated user was 'guest'"),
        (Properties(delivery_mode=5), "invalid message: {delivery_mode_unknown,5}"),
        (Properties(headers={"CC": "q"}), 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        (Properties(reply_to="amq.rabbitmq.reply-to"), "fast reply consumer does not exist"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_property_closes_the_channel_with_406(client: RawClient, properties: Properties, text: str) -> None:
    client.publish("q", b"x", properties=properties)
    client.send(QueueDeclare("q", passive=True))
    close = client.expect_channel_close()
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")
    assert (close.class_id, close.method_id) == (60, 40)


def test_a_consumer_tag_used_twice_closes_the_connection_with_530(client: RawClient) -> None:
    client.open(2)
    client.ask(BasicConsume("q", "a"), BasicConsumeOk)
    client.ask(BasicConsume("q", "a"), BasicConsumeOk, 2)  # another channel may
    client.send(BasicConsume("q", "a"))
    close = client.expect_connection_close()
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - attempt to reuse consumer tag 'a'")
    assert (close.class_id, close.method_id) == (60, 20)


def test_one_channel_more_than_agreed_closes_the_connection_with_530(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(channel_max=2) as client:
        client.open(1).open(2)
        client.send(ChannelOpen(), 3)
        close = client.expect_connection_close()
    assert close.reply_code == 530
    assert close.reply_text == "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"


def test_a_channel_number_is_free_at_once_after_close_ok(client: RawClient) -> None:
    for _ in range(5):
        client.send(QueueDeclare("nope", passive=True))
        client.expect(ChannelClose)
        # In one packet, as pika and others do it.
        client.send_bytes(encode_method(ChannelCloseOk(), 1) + encode_method(ChannelOpen(), 1))
        client.expect(ChannelOpenOk)
        client.ask(QueueDeclare("q", passive=True), QueueDeclareOk)


def test_after_an_error_the_channel_ignores_all_until_close_ok(client: RawClient, broker: LiveBroker) -> None:
    client.send(QueueDeclare("nope", passive=True))
    client.publish("q", b"ignored")
    client.send(QueueDeclare("never"))
    client.send(BasicAck(99))
    assert client.expect(ChannelClose).reply_code == 404
    client.send(ChannelCloseOk())
    client.open()
    assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 0
    assert broker.count("never") == -1


@pytest.mark.parametrize("packets", [1, 2])
def test_closes_that_cross_are_both_answered(client: RawClient, packets: int) -> None:
    wrong, close = encode_method(QueueDeclare("nope", passive=True), 1), encode_method(ChannelClose(200, "", 0, 0), 1)
    if packets == 1:
        client.send_bytes(wrong + close)
        client.expect(ChannelClose)
    else:
        client.send_bytes(wrong)
        client.expect(ChannelClose)
        client.send_bytes(close)
    client.expect(ChannelCloseOk)
    client.send(ChannelCloseOk())
    client.open()
    client.ask(QueueDeclare("q", passive=True), QueueDeclareOk)


def test_what_was_published_before_an_error_is_there_and_what_came_after_is_not(client: RawClient) -> None:
    for number in range(500):
        client.publish("q", b"before %d" % number)
    client.send(QueueDeclare("nope", passive=True))
    for number in range(500):
        client.publish("q", b"after %d" % number)
    client.expect_channel_close()
    client.open()
    assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 500


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_what_was_published_before_a_close_is_there(client: RawClient, broker: LiveBroker, end: str) -> None:
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    for number in range(500):
        client.publish("q", b"%d" % number)
    if end == "channel":
        client.send(ChannelClose(200, "", 0, 0))
        while not isinstance(client.read_method()[1], ChannelCloseOk):
            pass
    else:
        client.close()
    assert broker.count("q") == 500


def test_a_whole_life_in_one_packet_does_its_work(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake() as client:
        client.send_bytes(
            encode_method(ChannelOpen(), 1)
            + encode_method(QueueDeclare("q"), 1)
            + b"".join(publish_bytes("q", b"%d" % number) for number in range(100))
            + encode_method(ConnectionClose(200, "", 0, 0), 0)
        )
        client.expect(ChannelOpenOk)
        client.expect(QueueDeclareOk)
        client.expect(ConnectionCloseOk, 0)
    assert broker.count("q") == 100


def test_unacked_messages_of_a_channel_closed_by_an_error_are_put_back(client: RawClient, broker: LiveBroker) -> None:
    for number in range(3):
        client.publish("q", b"%d" % number)
    client.open(2)
    client.ask(BasicConsume("q"), BasicConsumeOk, 2)
    for _ in range(3):
        client.expect(BasicDeliver, 2)
        client.read_content(2)
    client.send(BasicAck(99), 2)
    client.expect_channel_close(2)
    for number in range(3):
        got = client.ask(BasicGet("q", True), BasicGetOk)
        assert (got.redelivered, client.read_content().body) == (True, b"%d" % number)


def test_recover_is_answered_before_the_redeliveries(client: RawClient) -> None:
    client.publish("q", b"x")
    client.ask(BasicConsume("q"), BasicConsumeOk)
    assert client.expect(BasicDeliver).delivery_tag == 1
    client.read_content()
    client.send(BasicRecover(True))
    client.expect(BasicRecoverOk)
    again = client.expect(BasicDeliver)
    assert (again.redelivered, again.delivery_tag) == (True, 2)


def test_the_one_who_deletes_a_queue_it_consumes_is_answered_and_then_told_of_the_cancel(client: RawClient) -> None:
    client.ask(BasicConsume("q", "mine"), BasicConsumeOk)
    client.ask(QueueDelete("q"), QueueDeleteOk)
    cancel = client.expect(BasicCancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("mine", True)
    client.ask(BasicCancel("mine"), BasicCancelOk)


def test_a_client_without_the_capability_is_not_told_of_a_cancel(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(properties={}).open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        client.ask(BasicConsume("q"), BasicConsumeOk)
        client.ask(QueueDelete("q"), QueueDeleteOk)
        client.ask(QueueDeclare("q"), QueueDeclareOk)


def test_nowait_is_not_answered_and_errors_are(client: RawClient) -> None:
    client.send(QueueDeclare("quiet", nowait=True))
    client.send(QueueBind("quiet", "amq.fanout", "", nowait=True))
    client.send(ExchangeDeclare("x", "fanout", nowait=True))
    client.send(ExchangeBind("x", "amq.fanout", "", nowait=True))
    client.send(ExchangeUnbind("x", "amq.fanout", "", nowait=True))
    client.send(ExchangeDelete("x", nowait=True))
    client.send(ConfirmSelect(nowait=True))
    client.send(QueuePurge("quiet", nowait=True))
    client.send(BasicConsume("quiet", "t", nowait=True))
    client.send(BasicCancel("t", nowait=True))
    client.send(QueueDelete("quiet", nowait=True))
    client.send(QueueDeclare("q", durable=True, nowait=True))
    assert client.expect_channel_close().reply_code == 406


def test_a_long_text_is_cut_to_255_bytes(client: RawClient) -> None:
    client.send(QueueDeclare("ä" * 127, passive=True))
    close = client.expect_channel_close()
    assert close.reply_text.startswith("NOT_FOUND - no queue 'ääää")
    assert close.reply_text.endswith("...")
    assert 250 <= len(close.reply_text.encode()) <= 255


def test_a_server_named_consumer_tag_is_answered(client: RawClient) -> None:
    tag = client.ask(BasicConsume("q"), BasicConsumeOk).consumer_tag
    assert tag.startswith("amq.ctag-")
    assert len(tag) == len("amq.ctag-") + 22


def test_a_return_comes_before_its_confirm(client: RawClient) -> None:
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.publish("nowhere", b"body", mandatory=True)
    client.expect(BasicReturn)
    assert client.read_content().body == b"body"
    assert client.expect(BasicAck).delivery_tag == 1


def test_consume_ok_comes_before_the_first_delivery(client: RawClient) -> None:
    client.publish("q", b"x")
    client.ask(BasicConsume("q"), BasicConsumeOk)
    client.expect(BasicDeliver)


def test_a_channel_opened_and_closed_in_one_packet_is_answered_in_order(client: RawClient) -> None:
    for _ in range(3):
        client.send(ChannelOpen(), 5)
        client.send(QueueDeclare("in a packet"), 5)
        client.send(ChannelClose(200, "", 0, 0), 5)
        client.expect(ChannelOpenOk, 5)
        client.expect(QueueDeclareOk, 5)
        client.expect(ChannelCloseOk, 5)


# Heartbeats.


def test_heartbeats_are_sent_twice_per_interval_and_a_silent_peer_is_given_up(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(heartbeat=1) as client:
        for _ in range(3):  # the first half has the handshake in it; the peer is given up at the fifth
            client.read_heartbeat()
        client.expect_gone()
    wait_until(lambda: "missed heartbeats" in broker.log)
    assert client.heartbeats >= 3


def test_a_peer_that_sends_heartbeats_only_stays(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(heartbeat=1) as client:
        for _ in range(6):  # three intervals; it would be given up before
            client.read_heartbeat()
            client.beat()
        client.open()


@pytest.mark.parametrize("broker", [{"limits.ack_timeout_s": "1"}], indirect=True)
def test_a_delivery_that_is_kept_too_long_closes_its_channel_and_goes_to_another_consumer(
    broker: LiveBroker, client: RawClient
) -> None:
    client.open(2)
    client.publish("q", b"x")
    client.ask(BasicConsume("q", "slow"), BasicConsumeOk)
    client.expect(BasicDeliver)
    client.read_content()
    close = client.expect_channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (406, 0, 0)
    assert "delivery acknowledgement on channel 1 timed out. Timeout value used: 1000 ms" in close.reply_text
    client.ask(BasicConsume("q", "quick", no_ack=True), BasicConsumeOk, 2)
    assert client.expect(BasicDeliver, 2).redelivered
    assert client.read_content(2).body == b"x"
