"""Cases: opening and closing channels and connections, methods where they do not belong, content out of order."""

from __future__ import annotations

from penstock.amqp.frame import BODY, HEADER, HEARTBEAT, encode_frame
from penstock.amqp.method import (
    AccessRequest,
    BasicAck,
    BasicCancelOk,
    BasicDeliver,
    BasicGetEmpty,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    TxSelectOk,
    encode_method,
)
from tests.differential.player import Area
from tests.differential.script import Connection, Script

area = Area("channels")

HEADER_OF_5 = bytes((0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0))
HEADER_OF_0 = bytes((0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))


def answer(connection: Connection) -> None:
    """What the broker says next, to its end if it closes."""
    connection.event()


UNOPENED: dict[str, Method] = {
    "queue.declare": QueueDeclare("q"),
    "channel.close": ChannelClose(200, "bye"),
    "channel.close-ok": ChannelCloseOk(),
    "basic.ack": BasicAck(1),
    "basic.qos": BasicQos(0, 1),
    "exchange.declare": ExchangeDeclare("x"),
    "confirm.select": ConfirmSelect(),
}


@area.each({name: (method,) for name, method in UNOPENED.items()})
def on_a_channel_never_opened(s: Script, method: Method) -> None:
    c = s.connect()
    c.tell(method, 7)
    answer(c)


@area.case
def a_publish_on_a_channel_never_opened(s: Script) -> None:
    c = s.connect()
    c.publish("q", b"1", channel=7)
    answer(c)


@area.each({name: (method,) for name, method in UNOPENED.items() if name != "channel.close-ok"})
def on_a_channel_that_was_closed(s: Script, method: Method) -> None:
    c = s.channel()
    c.ask(ChannelClose(200, "bye"))
    c.connection.tell(method, 1)
    answer(c.connection)


@area.case
def a_channel_opened_twice(s: Script) -> None:
    c = s.channel()
    c.send(ChannelOpen())
    answer(c.connection)


@area.case
def a_channel_closed_and_opened_again(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(ChannelClose(200, "bye"))
    s.connections["c"].open_channel(1).count("q")


@area.case
def a_channel_opened_again_after_an_error(s: Script) -> None:
    s.channel().count("nope")
    s.connections["c"].open_channel(1).declare("q")


@area.case
def methods_after_an_error_are_ignored_until_close_ok(s: Script) -> None:
    c = s.channel()
    c.connection.answer_closes = False
    c.count("nope")
    c.connection.tell(QueueDeclare("q"), 1)
    c.connection.publish("q", b"1")
    c.connection.tell(ChannelCloseOk(), 1)
    s.channel(2).count("q")


@area.case
def a_close_that_crosses_an_error(s: Script) -> None:
    c = s.channel()
    c.connection.answer_closes = False
    c.count("nope")
    c.connection.tell(ChannelClose(200, "bye"), 1)
    answer(c.connection)
    c.connection.tell(ChannelCloseOk(), 1)
    s.connections["c"].open_channel(1).declare("q")


@area.case
def an_open_before_close_ok(s: Script) -> None:
    c = s.channel()
    c.connection.answer_closes = False
    c.count("nope")
    c.connection.answer_closes = True
    c.connection.tell(ChannelOpen(), 1)
    answer(c.connection)


@area.case
def close_ok_twice(s: Script) -> None:
    c = s.channel()
    c.count("nope")
    c.connection.tell(ChannelCloseOk(), 1)
    answer(c.connection)


@area.case
def an_error_on_one_channel_leaves_the_other(s: Script) -> None:
    s.channel(2).declare("q")
    s.channel().count("nope")
    s.channel(2).count("q")


@area.case
def more_channels_than_channel_max(s: Script) -> None:
    s.connect("c", channel_max=2)
    s.channel(1)
    s.channel(2)
    s.connections["c"].tell(ChannelOpen(), 3)
    answer(s.connections["c"])


@area.case
def a_channel_number_above_channel_max(s: Script) -> None:
    s.connect("c", channel_max=2)
    s.channel(500).declare("q")


@area.case
def a_closed_channel_makes_room_for_another(s: Script) -> None:
    s.connect("c", channel_max=1)
    s.channel(1).ask(ChannelClose(200, "bye"))
    s.channel(2).declare("q")


# The server's own methods, from a client.


@area.each(
    {
        method.NAME: (method,)
        for method in (
            ChannelOpenOk(),
            ChannelFlowOk(True),
            ChannelCloseOk(),
            ExchangeDeclareOk(),
            QueueDeclareOk("q", 0, 0),
            BasicQosOk(),
            BasicCancelOk("t"),
            BasicGetEmpty(),
            ConfirmSelectOk(),
            TxSelectOk(),
            ConnectionClose(200, "bye"),
            ConnectionOpen("/"),
            ConnectionCloseOk(),
        )
    }
)
def on_a_channel_comes(s: Script, method: Method) -> None:
    c = s.channel()
    c.send(method)
    answer(c.connection)


@area.case
def on_a_channel_comes_a_delivery(s: Script) -> None:
    c = s.channel()
    c.send(BasicDeliver("t", 1, False, "", "q"))
    c.connection.send_bytes(encode_frame(HEADER, 1, HEADER_OF_0))
    answer(c.connection)


@area.each(
    {
        method.NAME: (method,)
        for method in (
            QueueDeclare("q"),
            ChannelOpen(),
            BasicQos(0, 1),
            ConnectionOpen("/"),
            ConnectionStartOk(),
            ConnectionTuneOk(2047, 131072, 0),
            ConnectionCloseOk(),
            ConnectionBlocked("x"),
        )
    }
)
def on_channel_0_comes(s: Script, method: Method) -> None:
    c = s.connect()
    c.tell(method, 0)
    answer(c)


@area.each({"right": (b"guest",), "wrong": (b"wrong",)})
def update_secret(s: Script, secret: bytes) -> None:
    c = s.connect()
    c.tell(ConnectionUpdateSecret(secret, "because"), 0)
    answer(c)


@area.case
def access_request(s: Script) -> None:
    s.channel().ask(AccessRequest())


@area.case
def connection_close(s: Script) -> None:
    c = s.channel().connection
    c.tell(ConnectionClose(200, "bye", 0, 0), 0)
    answer(c)
    c.ended = True


@area.case
def what_is_published_before_a_close_is_kept(s: Script) -> None:
    c, d = s.channel(), s.channel(1, "d")
    d.declare("q")
    for _ in range(50):
        c.publish("q", b"1")
    c.connection.tell(ConnectionClose(200, "bye", 0, 0), 0)
    answer(c.connection)
    c.connection.ended = True
    s.until_count("q", 50, on="d")


# Frames. Penstock tells the octets of a payload as numbers, RabbitMQ as Erlang terms: those here look the same.


def frames(s: Script, *data: bytes) -> None:
    c = s.channel()
    c.declare("q")
    for part in data:
        c.connection.send_bytes(part)
    c.connection.tell(BasicQos(0, 0), 1)
    answer(c.connection)


PUBLISH = encode_method(BasicPublish("", "q"), 1)
FRAMES: dict[str, tuple[bytes, ...]] = {
    "a header without a method": (encode_frame(HEADER, 1, HEADER_OF_0),),
    "a body without a method": (encode_frame(BODY, 1, b"x"),),
    "a body without a header": (PUBLISH, encode_frame(BODY, 1, b"x")),
    "a method without its content": (PUBLISH,),
    "a method inside a body": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_5), encode_frame(BODY, 1, b"12")),
    "two headers": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_5), encode_frame(HEADER, 1, HEADER_OF_5)),
    "a body that is too long": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_5), encode_frame(BODY, 1, b"123456")),
    "a body behind an empty one": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_0), encode_frame(BODY, 1, b"")),
    "a header of another class": (PUBLISH, encode_frame(HEADER, 1, b"\0\x5a" + HEADER_OF_5[2:])),
    "a weight": (PUBLISH, encode_frame(HEADER, 1, b"\0\x3c\0\1" + HEADER_OF_5[4:])),
    "an empty body frame in the middle": (
        PUBLISH,
        encode_frame(HEADER, 1, HEADER_OF_5),
        encode_frame(BODY, 1, b"12"),
        encode_frame(BODY, 1, b""),
        encode_frame(BODY, 1, b"345"),
    ),
    "a heartbeat between": (
        PUBLISH,
        encode_frame(HEARTBEAT, 0, b""),
        encode_frame(HEADER, 1, HEADER_OF_5),
        encode_frame(HEARTBEAT, 0, b""),
        encode_frame(BODY, 1, b"12345"),
    ),
    "a heartbeat on a channel": (encode_frame(HEARTBEAT, 1, b""),),
    "an unknown frame type": (encode_frame(4, 1, b"\0\1"),),
    "a method of two bytes": (encode_frame(1, 1, b"\0\1"),),
    "an empty method": (encode_frame(1, 1, b""),),
    "a short header": (PUBLISH, encode_frame(HEADER, 1, b"\0\x3c\0\0\0\0\0\0\0\0")),
    "an unknown class": (encode_frame(1, 1, b"\0\x63\0\x0a"),),
    "an unknown method": (encode_frame(1, 1, b"\0\x32\0\x63"),),
    "arguments cut short": (encode_frame(1, 1, b"\0\x32\0\x0a\0\0\3"),),
    "arguments with more behind": (
        encode_method(BasicQos(0, 1), 1)[:-1].replace(b"\0\0\0\x0b", b"\0\0\0\x0c") + b"\0\xce",
    ),
    "a name that is no utf-8": (encode_frame(1, 1, b"\0\x32\0\x0a\0\0\2\xff\xfe\0\0\0\0\0"),),
    "a table with an unknown letter": (encode_frame(1, 1, b"\0\x32\0\x0a\0\0\1q\0\0\0\0\3\1az"),),
    "a table longer than its frame": (encode_frame(1, 1, b"\0\x32\0\x0a\0\0\1q\0\0\0\1\0"),),
    "broken properties": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_0[:12] + b"\x80\0")),
    "a flag nobody knows": (PUBLISH, encode_frame(HEADER, 1, HEADER_OF_0[:12] + b"\0\2")),
}


@area.each({name: (parts,) for name, parts in FRAMES.items()})
def frame(s: Script, parts: tuple[bytes, ...]) -> None:
    frames(s, *parts)


@area.each({"131073": (131_073,), "4294967295": (4_294_967_295,)})
def a_frame_larger_than_agreed(s: Script, size: int) -> None:
    c = s.channel()
    c.connection.send_bytes(b"\1\0\1" + size.to_bytes(4, "big"))
    c.connection.answer_closes = False
    answer(c.connection)
    c.connection.ended = True  # RabbitMQ does not read on: the socket ends 3 s later


@area.case
def a_wrong_frame_end(s: Script) -> None:
    c = s.channel()
    c.connection.send_bytes(encode_method(BasicQos(0, 0), 1)[:-1] + b"\0")
    c.connection.answer_closes = False
    answer(c.connection)
    c.connection.ended = True
