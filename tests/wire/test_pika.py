"""pika's BlockingConnection: a day's work with the most used Python client."""

from __future__ import annotations

import datetime
import decimal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S, wait_until

Connect = Callable[..., pika.BlockingConnection]


@pytest.fixture
def connect(broker: LiveBroker) -> Iterator[Connect]:
    """Opens connections to the broker; those still open are closed with the test."""
    opened: list[pika.BlockingConnection] = []

    def open_one(**parameters: Any) -> pika.BlockingConnection:
        opened.append(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters)))
        return opened[-1]

    yield open_one
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    return connect().channel()


def get_all(channel: BlockingChannel, queue: str, auto_ack: bool = True) -> list[bytes]:
    """The bodies of all that is ready."""
    return [body for _, body in take_all(channel, queue, auto_ack)]


def take_all(channel: BlockingChannel, queue: str, auto_ack: bool = True) -> list[tuple[Any, bytes]]:
    taken: list[tuple[Any, bytes]] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack)
        if method is None:
            return taken
        taken.append((method, body))


def publish(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Inbox:
    """Collects deliveries of one consumer."""

    def __init__(self, channel: BlockingChannel, queue: str, auto_ack: bool = False, **arguments: Any) -> None:
        self.channel = channel
        self.got: list[tuple[Any, Any, bytes]] = []
        self.tag = channel.basic_consume(queue, self._take, auto_ack=auto_ack, **arguments)

    def _take(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((method, properties, body))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.got]

    def wait_for(self, count: int) -> list[bytes]:
        wait_until(lambda: self._pump() >= count, what=f"{count} deliveries, {len(self.got)} came")
        return self.bodies

    def settle(self) -> list[bytes]:
        """What is there once the broker has nothing more to say: a round trip behind everything it sent."""
        self.channel.queue_declare("", exclusive=True)
        self.channel.connection.process_data_events(0)
        return self.bodies

    def _pump(self) -> int:
        self.channel.connection.process_data_events(0)
        return len(self.got)


# Queues.


def test_declaring_a_queue_answers_with_its_name_and_counts(channel: BlockingChannel) -> None:
    first = channel.queue_declare("orders").method
    assert (first.queue, first.message_count, first.consumer_count) == ("orders", 0, 0)
    publish(channel, "orders", b"a", b"b")
    Inbox(channel.connection.channel(), "orders", auto_ack=False)
    channel.queue_declare("other")
    publish(channel, "other", b"a", b"b")
    assert channel.queue_declare("other", passive=True).method.message_count == 2
    assert channel.queue_declare("orders", passive=True).method.consumer_count == 1


def test_a_passive_declare_of_a_missing_queue_closes_the_channel_with_404(channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("nowhere", passive=True)
    assert closed.value.reply_code == 404
    assert closed.value.reply_text == "NOT_FOUND - no queue 'nowhere' in vhost '/'"
    assert channel.connection.is_open


def test_a_queue_without_a_name_is_named_by_the_server(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    assert len(name) == len("amq.gen-") + 22
    assert channel.queue_declare("", exclusive=True).method.queue != name


def test_an_empty_queue_name_means_the_queue_declared_last(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.topic", "a.*")
    channel.basic_publish("amq.topic", "a.b", b"by binding")
    method, _, body = channel.basic_get("", auto_ack=True)
    assert method is not None
    assert body == b"by binding"
    assert channel.queue_declare(name, passive=True).method.queue == name


def test_purge_and_delete_answer_with_the_number_of_ready_messages(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(5))
    channel.basic_get("q")
    assert channel.queue_purge("q").method.message_count == 4
    publish(channel, "q", b"x", b"y")
    assert channel.queue_delete("q").method.message_count == 2


def test_deleting_a_queue_that_is_not_there_is_answered_ok(channel: BlockingChannel) -> None:
    assert channel.queue_delete("nowhere").method.message_count == 0


def test_names_may_be_any_utf8_up_to_255_bytes(channel: BlockingChannel) -> None:
    for name in ("größe.Ω.队列.🚰", "ü" * 127 + "x", "x" * 255, "with 'quotes' and spaces"):
        channel.exchange_declare(name, ExchangeType.direct)
        assert channel.queue_declare(name).method.queue == name
        channel.queue_bind(name, name, name)
        channel.basic_publish(name, name, name.encode())
        method, _, body = channel.basic_get(name, auto_ack=True)
        assert (method.exchange, method.routing_key, body) == (name, name, name.encode())
        channel.queue_delete(name)
        channel.exchange_delete(name)


def test_another_connections_exclusive_queue_is_locked(connect: Connect) -> None:
    connect().channel().queue_declare("mine", exclusive=True)
    other = connect()
    for use in (
        lambda channel: channel.queue_declare("mine", exclusive=True),
        lambda channel: channel.queue_declare("mine", passive=True),
        lambda channel: channel.basic_get("mine"),
        lambda channel: channel.basic_consume("mine", print),
        lambda channel: channel.queue_bind("mine", "amq.direct", "k"),
        lambda channel: channel.queue_purge("mine"),
        lambda channel: channel.queue_delete("mine"),
    ):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            use(other.channel())
        assert closed.value.reply_code == 405
        assert closed.value.reply_text.startswith(
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'"
        )
    assert other.is_open


def test_an_exclusive_queue_goes_with_its_connection_and_not_with_its_channel(connect: Connect) -> None:
    owner = connect()
    channel = owner.channel()
    channel.queue_declare("mine", exclusive=True)
    channel.close()
    owner.channel().queue_declare("mine", passive=True, exclusive=True)
    owner.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        connect().channel().queue_declare("mine", passive=True)
    assert closed.value.reply_code == 404


def test_an_auto_delete_queue_goes_with_its_last_consumer_and_not_before_the_first(
    connect: Connect, broker: LiveBroker
) -> None:
    channel = connect().channel()
    channel.queue_declare("q", auto_delete=True)
    publish(channel, "q", b"x")
    assert get_all(channel, "q") == [b"x"]
    first, second = Inbox(channel, "q"), Inbox(channel, "q")
    channel.basic_cancel(first.tag)
    assert broker.count("q") == 0
    channel.basic_cancel(second.tag)
    assert broker.count("q") == -1


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType.direct, auto_delete=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "x", "a")
    channel.queue_bind("q", "x", "b")
    channel.queue_unbind("q", "x", "a")
    channel.exchange_declare("x", passive=True)
    channel.queue_delete("q")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange 'x'"):
        channel.exchange_declare("x", passive=True)


# Exchanges.


@pytest.mark.parametrize(
    ("kind", "bindings", "published", "expected"),
    [
        ("direct", {"a": "red", "b": "red", "c": "blue"}, "red", {"a", "b"}),
        ("direct", {"a": "red"}, "green", set()),
        ("fanout", {"a": "red", "b": "", "c": "anything"}, "whatever", {"a", "b", "c"}),
        ("topic", {"a": "*.b.c", "b": "a.#", "c": "#", "d": "a.*", "e": "a.b.c"}, "a.b.c", {"a", "b", "c", "e"}),
        ("topic", {"a": "#.c", "b": "*", "c": "a.#.c", "d": "#.#", "e": "*.#.*"}, "a.c", {"a", "c", "d", "e"}),
        ("topic", {"a": "#", "b": "", "c": "*", "d": "*.*"}, "", {"a", "b"}),
        ("topic", {"a": "a..b", "b": "a.*.b", "c": "a.b"}, "a..b", {"a", "b"}),
    ],
)
def test_an_exchange_routes_by_key_as_its_type_says(
    channel: BlockingChannel, kind: str, bindings: dict[str, str], published: str, expected: set[str]
) -> None:
    channel.exchange_declare("x", ExchangeType(kind))
    for queue, key in bindings.items():
        channel.queue_declare(queue)
        channel.queue_bind(queue, "x", key)
    channel.basic_publish("x", published, b"hello")
    assert {queue for queue in bindings if get_all(channel, queue) == [b"hello"]} == expected


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1, "b": "two", "c": 3}, True),
        ({"x-match": "all", "a": 1, "b": "two"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": "two"}, {"b": "two"}, True),
        ({"x-match": "any", "a": 1, "b": "two"}, {"b": "three"}, False),
        ({"x-match": "any", "a": 1}, None, False),
        ({"x-match": "all", "a": True}, {"a": 1}, False),
        ({"x-match": "all", "a": None}, {"a": "whatever"}, True),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({}, None, True),
    ],
)
def test_a_headers_exchange_matches_all_or_any(
    channel: BlockingChannel, arguments: dict[str, Any], headers: dict[str, Any] | None, matches: bool
) -> None:
    channel.exchange_declare("x", ExchangeType.headers)
    channel.queue_declare("q")
    channel.queue_bind("q", "x", "ignored", arguments)
    channel.basic_publish("x", "other", b"hello", pika.BasicProperties(headers=headers))
    assert get_all(channel, "q") == ([b"hello"] if matches else [])


def test_a_message_goes_to_a_queue_once_however_many_bindings_match(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType.topic)
    channel.exchange_declare("y", ExchangeType.fanout)
    channel.queue_declare("q")
    for key in ("#", "a.*", "a.b"):
        channel.queue_bind("q", "x", key)
    channel.exchange_bind("y", "x", "a.#")
    channel.queue_bind("q", "y")
    channel.basic_publish("x", "a.b", b"once")
    assert get_all(channel, "q") == [b"once"]


def test_unbinding_stops_the_messages(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.direct", "k")
    channel.basic_publish("amq.direct", "k", b"before")
    channel.queue_unbind("q", "amq.direct", "k")
    channel.basic_publish("amq.direct", "k", b"after")
    assert get_all(channel, "q") == [b"before"]


def test_exchanges_bound_to_exchanges_pass_messages_on_even_in_a_circle(channel: BlockingChannel) -> None:
    for name in ("a", "b", "c"):
        channel.exchange_declare(name, ExchangeType.fanout)
    channel.exchange_bind("b", "a")
    channel.exchange_bind("c", "b")
    channel.exchange_bind("a", "c")
    channel.queue_declare("q")
    channel.queue_bind("q", "c")
    channel.basic_publish("a", "", b"one")
    channel.exchange_unbind("c", "b")
    channel.basic_publish("a", "", b"two")
    assert get_all(channel, "q") == [b"one"]


def test_an_alternate_exchange_gets_what_has_no_route(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType.direct, arguments={"alternate-exchange": "amq.fanout"})
    channel.queue_declare("known")
    channel.queue_declare("rest")
    channel.queue_bind("known", "x", "known")
    channel.queue_bind("rest", "amq.fanout")
    channel.basic_publish("x", "known", b"1")
    channel.basic_publish("x", "unknown", b"2")
    assert get_all(channel, "known") == [b"1"]
    assert get_all(channel, "rest") == [b"2"]


def test_a_deleted_exchange_is_gone_and_deleting_it_again_is_ok(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", ExchangeType.direct)
    channel.exchange_declare("x", passive=True)
    channel.exchange_delete("x")
    channel.exchange_delete("x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange 'x'"):
        channel.exchange_declare("x", passive=True)


# Publishing.


def test_an_unroutable_mandatory_message_comes_back_as_it_was(channel: BlockingChannel) -> None:
    returned: list[tuple[Any, Any, bytes]] = []
    channel.add_on_return_callback(lambda _, *parts: returned.append(parts))
    properties = pika.BasicProperties(content_type="text/plain", headers={"k": "v"}, message_id="7")
    channel.basic_publish("amq.direct", "nowhere", b"body", properties, mandatory=True)
    channel.basic_publish("amq.direct", "nowhere", b"not mandatory", properties)
    channel.queue_declare("", exclusive=True)
    channel.connection.process_data_events(0)
    ((method, back, body),) = returned
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, body) == ("amq.direct", "nowhere", b"body")
    assert back == properties


def test_with_confirms_an_unroutable_message_is_returned_and_a_routed_one_is_not(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"there", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError) as refused:
        channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    assert [message.body for message in refused.value.messages] == [b"lost"]
    channel.basic_publish("", "nowhere", b"confirmed, though it is dropped")
    assert get_all(channel, "q") == [b"there"]


def test_every_confirmed_message_is_in_all_its_queues(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    for queue in ("a", "b", "c"):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.fanout")
    for number in range(200):
        channel.basic_publish("amq.fanout", "", b"%d" % number)
    for queue in ("a", "b", "c"):
        assert get_all(channel, queue) == numbered(200)


@pytest.mark.parametrize("size", [0, 1, 4088, 131_064, 131_065, 10_000_000])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_a_body_of_any_size_arrives_whole(connect: Connect, size: int, frame_max: int) -> None:
    sender, receiver = connect().channel(), connect(frame_max=frame_max).channel()
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    sender.queue_declare("q")
    sender.confirm_delivery()
    sender.basic_publish("", "q", body)
    assert get_all(receiver, "q") == [body]
    publish(receiver, "q", body)  # and in small frames to one who takes large ones
    inbox = Inbox(sender, "q", auto_ack=True)
    assert inbox.wait_for(1) == [body]


def test_properties_and_headers_of_every_type_arrive_unchanged(channel: BlockingChannel) -> None:
    headers = {
        "bool": True,
        "no": False,
        "int": -5,
        "long": 1 << 40,
        "negative long": -(1 << 40),
        "string": "größe",
        "empty": "",
        "bytes": b"\x00\xff",
        "decimal": decimal.Decimal("3.14"),
        "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None, {"three": 3}]}},
        "list": [1, "two", True, None, [3]],
        "long string": "x" * 5000,
    }
    properties = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=2,
        priority=9,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="type",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x", properties)
    _, got, _ = channel.basic_get("q", auto_ack=True)
    assert got.headers.pop("time").replace(tzinfo=datetime.UTC) == headers.pop("time")
    assert got == properties


# Consuming.


def test_a_consumer_gets_what_was_there_and_what_comes_in_order(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(50))
    inbox = Inbox(channel, "q", auto_ack=True)
    publish(channel, "q", *numbered(100)[50:])
    assert inbox.wait_for(100) == numbered(100)
    assert [method.delivery_tag for method, _, _ in inbox.got] == list(range(1, 101))
    assert not any(method.redelivered for method, _, _ in inbox.got)


def test_a_cancelled_consumer_gets_no_more_but_may_still_ack(channel: BlockingChannel, broker: LiveBroker) -> None:
    channel.queue_declare("q")
    publish(channel, "q", b"first")
    inbox = Inbox(channel, "q")
    inbox.wait_for(1)
    assert channel.basic_cancel(inbox.tag) == []
    publish(channel, "q", b"second")
    assert inbox.settle() == [b"first"]
    channel.basic_ack(inbox.got[0][0].delivery_tag)
    channel.close()
    assert broker.count("q") == 1


def test_consumers_take_turns(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    inboxes = [Inbox(channel, "q", auto_ack=True) for _ in range(3)]
    publish(channel, "q", *numbered(9))
    for start, inbox in enumerate(inboxes):
        assert inbox.wait_for(3) == numbered(9)[start::3]


def test_get_answers_with_how_many_are_left(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(3))
    assert [method.message_count for method, _ in take_all(channel, "q")] == [2, 1, 0]
    assert channel.basic_get("q") == (None, None, None)


def test_ack_of_several_leaves_the_later_ones(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("q")
    publish(channel, "q", *numbered(6))
    taken = take_all(channel, "q", auto_ack=False)
    channel.basic_ack(taken[1][0].delivery_tag)
    channel.basic_ack(taken[3][0].delivery_tag, multiple=True)
    channel.close()
    assert get_all(connection.channel(), "q") == [b"4", b"5"]


def test_tag_0_with_multiple_acks_all(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    channel.basic_ack(0, multiple=True)  # nothing to ack is no error
    channel.queue_declare("q")
    publish(channel, "q", *numbered(6))
    take_all(channel, "q", auto_ack=False)
    channel.basic_ack(0, multiple=True)
    channel.close()
    assert get_all(connection.channel(), "q") == []


@pytest.mark.parametrize("by", ["nack", "reject"])
def test_a_refused_message_is_dropped_or_put_back_where_it_was(channel: BlockingChannel, by: str) -> None:
    refuse = channel.basic_nack if by == "nack" else channel.basic_reject
    channel.queue_declare("q")
    publish(channel, "q", *numbered(4))
    taken = [channel.basic_get("q")[0] for _ in range(3)]
    refuse(taken[0].delivery_tag, requeue=False)
    refuse(taken[2].delivery_tag, requeue=True)
    refuse(taken[1].delivery_tag, requeue=True)
    assert [(body, method.redelivered) for method, body in take_all(channel, "q")] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
    ]


def test_nack_of_several_puts_all_of_them_back_in_order(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(6))
    taken = [channel.basic_get("q")[0] for _ in range(5)]
    channel.basic_nack(taken[3].delivery_tag, multiple=True, requeue=True)
    assert get_all(channel, "q") == [b"0", b"1", b"2", b"3", b"5"]


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
def test_unacked_messages_go_back_to_their_original_positions_at_the_end(
    connect: Connect, broker: LiveBroker, end: str
) -> None:
    consumer = connect()
    channel = consumer.channel()
    channel.queue_declare("q")
    publish(channel, "q", *numbered(10))
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, "q")
    inbox.wait_for(3)
    got = channel.basic_get("q")
    assert got[2] == b"3"
    channel.basic_ack(inbox.got[1][0].delivery_tag)  # 1 is done; 4 comes for it
    inbox.wait_for(4)
    if end == "channel":
        channel.close()
    elif end == "connection":
        consumer.close()
    else:
        broker.call(lambda: broker.connections()[0].abort())
        with pytest.raises(pika.exceptions.StreamLostError):
            consumer.process_data_events(LIMIT_S)
    wait_until(lambda: broker.count("q") == 9)
    taken = take_all(connect().channel(), "q")
    assert [body for _, body in taken] == [b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
    assert [method.redelivered for method, _ in taken] == [True] * 4 + [False] * 5


def test_recover_delivers_the_unacked_again_in_order(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(4))
    inbox = Inbox(channel, "q")
    inbox.wait_for(4)
    channel.basic_ack(2)
    channel.basic_recover(requeue=True)
    assert inbox.wait_for(7)[4:] == [b"0", b"2", b"3"]
    assert [method.redelivered for method, _, _ in inbox.got] == [False] * 4 + [True] * 3
    assert [method.delivery_tag for method, _, _ in inbox.got] == [1, 2, 3, 4, 5, 6, 7]


def test_prefetch_holds_for_each_consumer_that_comes_later(channel: BlockingChannel) -> None:
    for queue in ("a", "b", "c"):
        channel.queue_declare(queue)
        publish(channel, queue, *numbered(10))
    unlimited = Inbox(channel, "a")
    channel.basic_qos(prefetch_count=2)
    two = Inbox(channel, "b")
    channel.basic_qos(prefetch_count=3)
    three = Inbox(channel, "c")
    assert [len(inbox.settle()) for inbox in (unlimited, two, three)] == [10, 2, 3]
    channel.basic_ack(two.got[0][0].delivery_tag)
    assert two.wait_for(3) == numbered(3)
    assert len(three.settle()) == 3


def test_global_prefetch_holds_for_the_channel_and_may_change_while_it_runs(channel: BlockingChannel) -> None:
    for queue in ("a", "b"):
        channel.queue_declare(queue)
        publish(channel, queue, *numbered(10))
    channel.basic_qos(prefetch_count=3, global_qos=True)
    first, second = Inbox(channel, "a"), Inbox(channel, "b")
    assert len(first.settle()) + len(second.settle()) == 3
    channel.basic_get("b")  # is not limited, nor counted
    channel.basic_qos(prefetch_count=5, global_qos=True)
    wait_until(lambda: len(first.settle()) + len(second.settle()) == 5)
    channel.basic_qos(prefetch_count=0, global_qos=True)
    wait_until(lambda: len(first.settle()) + len(second.settle()) == 19)


def test_both_prefetches_hold_at_once(channel: BlockingChannel) -> None:
    for queue in ("a", "b"):
        channel.queue_declare(queue)
        publish(channel, queue, *numbered(10))
    channel.basic_qos(prefetch_count=2)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    first, second = Inbox(channel, "a"), Inbox(channel, "b")
    assert (len(first.settle()), len(second.settle())) == (2, 1)


def test_a_consumer_without_acks_ignores_prefetch(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(10))
    channel.basic_qos(prefetch_count=1)
    assert Inbox(channel, "q", auto_ack=True).wait_for(10) == numbered(10)


def test_deleting_a_queue_tells_its_consumers(connect: Connect) -> None:
    channel = connect().channel()
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.queue_declare("q")
    tag = Inbox(channel, "q").tag
    connect().channel().queue_delete("q")

    def told() -> bool:
        channel.connection.process_data_events(0)
        return bool(cancelled)

    wait_until(told)
    assert cancelled == [tag]
    assert channel.is_open


def test_an_exclusive_consumer_is_alone(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("q")
    tag = Inbox(channel, "q", exclusive=True).tag
    for exclusive in (False, True):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            Inbox(connection.channel(), "q", exclusive=exclusive)
        assert closed.value.reply_code == 403
        assert closed.value.reply_text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    channel.basic_cancel(tag)
    Inbox(connection.channel(), "q")


def test_consume_as_a_generator_stops_after_a_while_without_messages(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", *numbered(20))
    got: list[bytes] = []
    for method, _, body in channel.consume("q", inactivity_timeout=0.2):
        if method is None:
            if len(got) < 20:
                continue  # a busy machine: the next one is on its way
            break
        channel.basic_ack(method.delivery_tag)
        got.append(body)
    assert got == numbered(20)
    assert channel.cancel() == 0


def test_a_request_is_answered_over_an_exclusive_reply_queue(connect: Connect) -> None:
    server_side = connect()
    serving = server_side.channel()
    serving.queue_declare("rpc")
    serving.basic_qos(prefetch_count=1)

    def answer(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), reply)
        channel.basic_ack(method.delivery_tag)

    serving.basic_consume("rpc", answer)
    thread = threading.Thread(target=serving.start_consuming)
    thread.start()
    try:
        client = connect().channel()
        reply_to = client.queue_declare("", exclusive=True).method.queue
        inbox = Inbox(client, reply_to, auto_ack=True)
        for number in range(20):
            request = pika.BasicProperties(reply_to=reply_to, correlation_id=str(number))
            client.basic_publish("", "rpc", b"request %d" % number, request)
        inbox.wait_for(20)
        assert [(properties.correlation_id, body) for _, properties, body in inbox.got] == [
            (str(number), b"REQUEST %d" % number) for number in range(20)
        ]
    finally:
        server_side.add_callback_threadsafe(serving.stop_consuming)
        thread.join(LIMIT_S)


# Errors: what closes, and what lives on.


def test_an_error_closes_its_channel_only(connect: Connect) -> None:
    connection = connect()
    good, bad = connection.channel(), connection.channel()
    good.queue_declare("q")
    inbox = Inbox(good, "q", auto_ack=True)
    bad.basic_publish("nowhere", "k", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        bad.queue_declare("never")
    assert closed.value.reply_code == 404
    assert closed.value.reply_text == "NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    publish(good, "q", b"still here")
    assert inbox.wait_for(1) == [b"still here"]
    assert connection.channel(bad.channel_number).is_open


def test_an_unknown_delivery_tag_closes_the_channel_with_406(channel: BlockingChannel) -> None:
    channel.basic_ack(7)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("q")
    assert closed.value.reply_code == 406
    assert closed.value.reply_text == "PRECONDITION_FAILED - unknown delivery tag 7"


def test_an_unknown_exchange_type_closes_the_connection_with_503(channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.exchange_declare("x", "bogus")
    assert closed.value.reply_code == 503
    assert closed.value.reply_text == "COMMAND_INVALID - unknown exchange type 'bogus'"


def test_a_wrong_password_is_told_with_403(connect: Connect, broker: LiveBroker) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED - Login was refused"):
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
    assert "login failed" in broker.log


def test_an_unknown_vhost_is_refused_with_530(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"530.*vhost elsewhere not found"):
        connect(virtual_host="elsewhere")


def test_closing_a_connection_in_the_middle_of_work_leaves_nothing_behind(connect: Connect, broker: LiveBroker) -> None:
    connection = connect()
    for _ in range(20):
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        Inbox(channel, queue)
        publish(channel, queue, *numbered(5))
    connection.close()
    wait_until(lambda: not broker.call(broker.connections))
    wait_until(lambda: broker.call(lambda: not broker.inside.vhosts["/"].queues))
    hops = (broker.inside.reader_channel, broker.inside.channel_queue)
    wait_until(lambda: broker.call(lambda: not any(hop.links for hop in hops)))


# Heartbeats.


def test_an_idle_connection_with_a_short_heartbeat_stays_open(connect: Connect) -> None:
    connection = connect(heartbeat=1)
    checker = connection._impl._heartbeat_checker

    def three_came() -> bool:
        connection.process_data_events(0.1)
        return checker._heartbeat_frames_received >= 3

    wait_until(three_came)
    assert connection.is_open
    connection.channel().queue_declare("", exclusive=True)
