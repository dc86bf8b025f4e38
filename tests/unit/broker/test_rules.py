"""Rules: what a message's properties ask for, and what they must not say; CC, BCC and direct replies end to end."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.close import CloseChannel
from penstock.amqp.method import (
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ExchangeDeclare,
    Method,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.table import Value
from penstock.broker.casts import NO_TTL
from penstock.broker.rules import DIRECT_REPLY, TTL_MS_MAX, Examined, examine, expiration_fault, header_keys
from tests.unit.fakes import FakePeer, House, Said, make_wire, publish_method


def look(properties: Properties, user: str = "guest", may_impersonate: bool = False, reply_name: str = "") -> Examined:
    message = (publish_method(1, "k"), make_wire(b"x", properties=encode_properties(properties)))
    return examine(message, user, may_impersonate, reply_name)


def refusal(properties: Properties) -> str:
    with pytest.raises(CloseChannel) as raised:
        look(properties)
    assert raised.value.code == 406
    return raised.value.text.removeprefix("PRECONDITION_FAILED - ")


def properties_of(wire: bytes) -> Properties:
    return decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))


# Expiration.


@pytest.mark.parametrize(
    ("text", "ttl_ms"), [("0", 0), ("60000", 60000), ("007", 7), ("+5", 5), ("99999999999", 10**11 - 1)]
)
def test_an_expiration_is_a_time_to_live_in_ms(text: str, ttl_ms: int) -> None:
    assert look(Properties(expiration=text)).ttl_ms == ttl_ms


def test_without_an_expiration_there_is_no_time_to_live() -> None:
    assert look(Properties(user_id="guest")).ttl_ms == NO_TTL


def test_a_time_to_live_of_ten_years_is_the_longest_as_in_rabbitmq() -> None:
    assert look(Properties(expiration=f"{TTL_MS_MAX}")).ttl_ms == TTL_MS_MAX
    assert expiration_fault(f"{TTL_MS_MAX + 1}") == f"{{value_too_large,{TTL_MS_MAX + 1}}}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 5", "no_integer"),
        ("-", "no_integer"),
        ("٣", "no_integer"),  # a digit, but not in ASCII
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("5 ", '{leftover_string," "}'),
    ],
)
def test_a_wrong_expiration_is_refused_in_rabbitmqs_words(text: str, fault: str) -> None:
    assert expiration_fault(text) == fault
    assert refusal(Properties(expiration=text)) == f"invalid expiration '{text}': {fault}"


# User id and delivery mode.


def test_a_user_id_must_be_the_users_own() -> None:
    assert look(Properties(user_id="guest")).properties.user_id == "guest"
    assert refusal(Properties(user_id="bob")) == "user_id property set to 'bob' but authenticated user was 'guest'"
    assert refusal(Properties(user_id="")) == "user_id property set to '' but authenticated user was 'guest'"


def test_an_impersonator_may_name_anybody() -> None:
    assert look(Properties(user_id="bob"), may_impersonate=True).properties.user_id == "bob"


def test_an_unknown_delivery_mode_is_refused() -> None:
    assert refusal(Properties(delivery_mode=5)) == "invalid message: {delivery_mode_unknown,5}"


# CC and BCC.


def test_keys_come_from_cc_and_bcc_and_only_bcc_is_taken_out() -> None:
    headers: dict[str, Value] = {"z": 1, "CC": ["a", b"\xff"], "BCC": ["b"]}
    found = look(Properties(headers=headers, priority=3))
    assert found.more_keys == ("a", "\udcff", "b")
    assert properties_of(found.message[1]) == Properties(headers={"z": 1, "CC": ["a", b"\xff"]}, priority=3)
    assert found.message[0].bcc == ("b",)


def test_without_bcc_the_message_is_the_very_same() -> None:
    message = (publish_method(1, "k"), make_wire(b"x", properties=encode_properties(Properties(headers={"CC": ["a"]}))))
    found = examine(message, "guest", False, "").message
    assert found[0] is message[0]
    assert found[1] is message[1]


@pytest.mark.parametrize(("value", "kind"), [("a", "longstr"), (5, "signedint"), (True, "bool")])
@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_and_bcc_must_be_arrays(name: str, value: Value, kind: str) -> None:
    assert refusal(Properties(headers={name: value})) == (
        f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
    )


def test_what_is_no_key_in_an_array_is_passed_over() -> None:
    assert header_keys({"CC": ["a", 5, None, "b"], "BCC": "c"}) == ("a", "b")


# End to end.


class Post:
    def __init__(self) -> None:
        self.house = House()
        self.peer: FakePeer = self.house.peer()
        self.channel = self.peer.open(1)
        self.peer.open(2)
        for name in ("q", "r", "s"):
            self.house.queue(name)

    def publish(self, key: str, properties: Properties, number: int = 1, **options: str) -> None:
        self.peer.publish(
            number, key, b"x", properties=encode_properties(properties), exchange=options.get("exchange", "")
        )
        self.house.run_until_idle()

    def counts(self) -> list[int]:
        return [self.house.vhost.queues[name].count() for name in ("q", "r", "s")]

    def get(self, queue: str) -> Said:
        self.peer.tell(2, BasicGet(queue, True))
        (said,) = self.peer.said()
        assert isinstance(said.method, BasicGetOk)
        return said


@pytest.fixture
def post() -> Post:
    return Post()


def test_a_message_goes_to_key_cc_and_bcc_once_each(post: Post) -> None:
    post.publish("q", Properties(headers={"CC": ["r", "q", "r"], "BCC": ["s", "q"]}))
    assert post.counts() == [1, 1, 1]
    for queue in ("q", "r", "s"):
        said = post.get(queue)
        assert isinstance(said.method, BasicGetOk)
        assert (said.method.exchange, said.method.routing_key) == ("", "q")
        assert properties_of(said.wire).headers == {"CC": ["r", "q", "r"]}


def test_cc_and_bcc_are_keys_for_the_exchange_that_was_published_to(post: Post) -> None:
    vhost = post.house.vhost
    exchange = vhost.declare_exchange(ExchangeDeclare("x", "topic"))
    vhost.bind(exchange, vhost.queues["q"], "a.*", {})
    vhost.bind(exchange, vhost.queues["r"], "b.#", {})
    post.publish("nothing", Properties(headers={"CC": ["a.1"], "BCC": ["b.1.2"]}), exchange="x")
    assert post.counts() == [1, 1, 0]


def test_a_mandatory_message_that_only_cc_can_route_is_not_returned(post: Post) -> None:
    properties = encode_properties(Properties(headers={"CC": ["q"]}))
    post.peer.publish(1, "nowhere", b"x", mandatory=True, properties=properties)
    assert post.peer.methods() == []
    assert post.counts() == [1, 0, 0]


# Direct replies.


def request(post: Post, number: int = 1) -> str:
    """Ask on this channel over queue q; the address the receiver sees."""
    post.publish("q", Properties(reply_to=DIRECT_REPLY), number)
    return properties_of(post.get("q").wire).reply_to or ""


def open_replies(post: Post, number: int = 1, tag: str = "replies") -> None:
    post.peer.consume(number, DIRECT_REPLY, tag, no_ack=True)
    assert post.peer.methods() == [BasicConsumeOk(tag)]


def closed(replies: list[Method]) -> tuple[int, str]:
    (close,) = replies
    assert isinstance(close, ChannelClose)
    return close.reply_code, close.reply_text


def test_a_direct_reply_comes_from_another_connection_to_the_channel_that_asked(post: Post) -> None:
    open_replies(post)
    address = request(post)
    assert address.startswith(f"{DIRECT_REPLY}.")
    server = post.house.peer("server")
    server.open(9)
    server.publish(9, address, b"answer")
    (said,) = post.peer.said()
    assert isinstance(said.method, BasicDeliver)
    assert (said.channel, said.method.consumer_tag, said.body) == (1, "replies", b"answer")
    assert (said.method.exchange, said.method.routing_key) == ("", address)
    assert server.methods() == []


def test_two_channels_have_two_addresses(post: Post) -> None:
    open_replies(post, 1)
    open_replies(post, 2)
    first, second = request(post, 1), request(post, 2)
    assert first != second
    post.publish(second, Properties())
    (said,) = post.peer.said()
    assert said.channel == 2


@pytest.mark.parametrize("end", [BasicCancel("replies"), ChannelClose(200, "bye")])
def test_after_the_end_of_its_consumer_an_address_leads_nowhere(post: Post, end: Method) -> None:
    open_replies(post)
    address = request(post)
    (ok,) = post.peer.ask(1, end)
    assert isinstance(ok, (BasicCancelOk, ChannelCloseOk))
    assert not post.house.vhost.replies
    post.peer.publish(2, address, b"late", mandatory=True)
    assert post.peer.methods() == [BasicReturn(312, "NO_ROUTE", "", address)]


def test_after_the_loss_of_the_connection_too(post: Post) -> None:
    open_replies(post)
    post.peer.reader.shut_down()
    post.house.run_until_idle()
    assert not post.house.vhost.replies


def test_asking_without_a_reply_consumer_is_refused(post: Post) -> None:
    post.publish("q", Properties(reply_to=DIRECT_REPLY))
    assert closed(post.peer.methods()) == (406, "PRECONDITION_FAILED - fast reply consumer does not exist")
    assert post.counts() == [0, 0, 0]


def test_an_address_of_somebody_else_in_reply_to_is_left_alone(post: Post) -> None:
    address = f"{DIRECT_REPLY}.somebody.else"
    post.publish("q", Properties(reply_to=address))
    assert properties_of(post.get("q").wire).reply_to == address


def test_replies_cannot_be_acked_and_are_consumed_once_per_channel(post: Post) -> None:
    post.peer.consume(1, DIRECT_REPLY, "c")
    assert closed(post.peer.methods()) == (406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")
    open_replies(post, 2)
    post.peer.consume(2, DIRECT_REPLY, "again", no_ack=True)
    assert closed(post.peer.methods()) == (406, "PRECONDITION_FAILED - reply consumer already set")


def test_the_pseudo_queue_can_be_looked_at_but_not_got_from(post: Post) -> None:
    assert post.peer.ask(1, QueueDeclare(DIRECT_REPLY, passive=True)) == [QueueDeclareOk(DIRECT_REPLY, 0, 1)]
    assert closed(post.peer.ask(1, BasicGet(DIRECT_REPLY)))[0] == 404
