"""Cases: basic.publish, its errors and properties, returns, confirms."""

from __future__ import annotations

from penstock.amqp.content import build_basic
from penstock.amqp.frame import BODY, encode_frame
from penstock.amqp.method import BasicPublish, ConfirmSelect, ExchangeDeclare, QueueDeclare, QueueDelete, encode_method
from tests.differential.player import Area
from tests.differential.script import Channel, Script
from tests.differential.typed import T, properties_bytes

area = Area("publish")


def queue(s: Script) -> Channel:
    c = s.channel()
    c.declare("q")
    return c


@area.each({"plain": (False,), "mandatory": (True,)})
def to_a_missing_exchange(s: Script, mandatory: bool) -> None:
    c = queue(s)
    c.publish("q", b"1", "nope", mandatory=mandatory)
    c.barrier()


@area.case
def to_a_missing_exchange_with_confirms(s: Script) -> None:
    c = queue(s)
    c.ask(ConfirmSelect())
    c.publish("q", b"1", "nope")
    c.confirmed()


@area.case
def to_an_internal_exchange(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", "fanout", internal=True))
    c.publish("k", b"1", "x", mandatory=True)
    c.barrier()


@area.case
def immediate(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"1", immediate=True)
    c.barrier()


@area.case
def immediate_to_a_missing_exchange(s: Script) -> None:
    c = s.channel()
    c.publish("q", b"1", "nope", immediate=True)
    c.barrier()


@area.case
def mandatory_and_unroutable(s: Script) -> None:
    c = s.channel()
    c.publish("nope", b"body", mandatory=True, content_type="text/plain", headers={"a": 1}, priority=3)
    c.publish("nope", b"", "amq.fanout", mandatory=True)
    c.returns(2)


@area.case
def unroutable_without_mandatory(s: Script) -> None:
    c = s.channel()
    c.publish("nope", b"body")
    c.barrier()


EXPIRATIONS = (
    "0",
    "1",
    "-1",
    "-0",
    "+5",
    "abc",
    "1.5",
    "4294967295",
    "4294967296",
    "99999999999",
    "99999999999999999999",
    "0x10",
    "5s",
    "1e3",
    "007",
    "-abc",
    "٣",
    "",
    " 5",
    "5 ",
    " ",
    "5\n",
    "1" * 60,
)


@area.each({f"<{text.strip(chr(10))}>{len(text)}": (text,) for text in EXPIRATIONS})
def with_expiration(s: Script, text: str) -> None:
    c = s.channel()
    c.publish("nope", b"1", mandatory=True, expiration=text)
    c.barrier()


@area.each({"guest": ("guest",), "bob": ("bob",), "empty": ("",), "upper case": ("Guest",)})
def with_user_id(s: Script, user: str) -> None:
    c = queue(s)
    c.publish("q", b"1", user_id=user)
    c.drain("q")


@area.each({str(mode): (mode,) for mode in (0, 1, 2, 3, 255)})
def with_delivery_mode(s: Script, mode: int) -> None:
    c = queue(s)
    c.publish("q", b"1", delivery_mode=mode)
    c.drain("q")


@area.each({str(priority): (priority,) for priority in (0, 9, 10, 255)})
def with_priority(s: Script, priority: int) -> None:
    c = queue(s)
    c.publish("q", b"1", priority=priority)
    c.drain("q")


@area.case
def all_properties_come_back(s: Script) -> None:
    c = queue(s)
    c.publish(
        "q",
        b"1",
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1},
        delivery_mode=2,
        priority=1,
        correlation_id="c",
        reply_to="r",
        expiration="100000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="app",
        cluster_id="cl",
    )
    c.drain("q")


@area.case
def empty_strings_come_back(s: Script) -> None:
    c = queue(s)
    c.publish(
        "q", b"", content_type="", correlation_id="", reply_to="", message_id="", type="", app_id="", cluster_id=""
    )
    c.drain("q")


@area.case
def every_letter_comes_back(s: Script) -> None:
    c = queue(s)
    headers = {
        "t": True,
        "b": T("b", -5),
        "B": T("B", 200),
        "s": T("s", -300),
        "u": T("u", 60000),
        "I": T("I", -70000),
        "i": T("i", 4_000_000_000),
        "l": T("l", -(1 << 62)),
        "f": T("f", 0.5),
        "d": 0.1,
        "D": T("D", (2, 12345)),
        "S": "text ☕",
        "S bytes": b"\xff\xfe",
        "x": T("x", "bytes"),
        "A": [1, "a", None, [True], {"k": 1.5}],
        "F": {"F": {"F": {}}},
        "T": T("T", 1 << 40),
        "V": None,
        "": "an empty key",
    }
    c.publish("q", b"", headers=headers)
    c.drain("q")


@area.case
def a_binary_key_comes_back(s: Script) -> None:
    c = queue(s)
    c.bind("q", "amq.fanout")
    c.publish("\udcff\udcfe key", b"", "amq.fanout")
    c.drain("q")


@area.each({str(size): (size,) for size in (0, 1, 4088, 131_064, 131_065, 300_000)})
def a_body_of(s: Script, size: int) -> None:
    c = queue(s)
    c.publish("q", bytes(index % 251 for index in range(size)))
    c.drain("q")


@area.case
def a_body_is_cut_anew_for_small_frames(s: Script) -> None:
    s.connect("d", frame_max=4096)
    queue(s).publish("q", b"x" * 10_000)
    s.channel(1, "d").get_when_there("q")


@area.case
def a_body_in_many_small_frames_comes_back_in_one(s: Script) -> None:
    c = queue(s)
    content = build_basic(1, properties_bytes({}), b"x" * 100, 0)
    header = content[: content.index(b"\xce") + 1]
    c.connection.send_bytes(encode_method(BasicPublish("", "q"), 1) + header)
    for _ in range(100):
        c.connection.send_bytes(encode_frame(BODY, 1, b"x"))
    c.drain("q")


# Returns and confirms.


@area.case
def a_return_comes_before_its_confirm(s: Script) -> None:
    c = s.channel()
    c.confirm_frames = True
    c.ask(ConfirmSelect())
    c.publish("nope", b"1", mandatory=True)
    c.confirmed()


@area.case
def confirms_of_one_by_one(s: Script) -> None:
    c = queue(s)
    c.confirm_frames = True
    c.ask(ConfirmSelect())
    for number in range(3):
        c.publish("q", b"%d" % number)
        c.confirmed()


@area.case
def confirms_of_many(s: Script) -> None:
    c = queue(s)
    c.ask(ConfirmSelect())
    for number in range(50):
        c.publish("q" if number % 3 else "nope", b"")
    c.confirmed()


@area.case
def confirms_of_persistent_messages_to_a_durable_queue(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", durable=True))
    c.ask(ConfirmSelect())
    for _ in range(5):
        c.publish("q", b"", delivery_mode=2)
    c.confirmed()


@area.case
def one_confirm_for_three_queues(s: Script) -> None:
    c = s.channel()
    c.confirm_frames = True
    for name in "abc":
        c.declare(name)
        c.bind(name, "amq.fanout")
    c.ask(ConfirmSelect())
    c.publish("", b"", "amq.fanout")
    c.confirmed()


@area.case
def confirms_begin_with_select(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"before")
    c.ask(ConfirmSelect())
    c.publish("q", b"after")
    c.confirmed()
    c.drain("q")


@area.case
def select_twice_goes_on_counting(s: Script) -> None:
    c = queue(s)
    c.confirm_frames = True
    c.ask(ConfirmSelect())
    c.publish("q", b"1")
    c.confirmed()
    c.ask(ConfirmSelect())
    c.publish("q", b"2")
    c.confirmed()


@area.case
def select_nowait(s: Script) -> None:
    c = queue(s)
    c.send(ConfirmSelect(nowait=True))
    c.publish("q", b"1")
    c.confirmed()


@area.case
def confirms_are_of_one_channel(s: Script) -> None:
    c = queue(s)
    c.ask(ConfirmSelect())
    d = s.channel(2)
    d.publish("q", b"not confirmed")
    d.barrier()
    c.publish("q", b"1")
    c.confirmed()


@area.case
def a_consumed_message_is_confirmed(s: Script) -> None:
    c = queue(s)
    c.consume("q", no_ack=True)
    c.ask(ConfirmSelect())
    c.publish("q", b"1")
    c.deliveries(1)
    c.confirmed()


@area.case
def an_unacked_message_is_confirmed(s: Script) -> None:
    c = queue(s)
    c.consume("q")
    c.ask(ConfirmSelect())
    c.publish("q", b"1")
    c.deliveries(1)
    c.confirmed()


@area.case
def confirms_when_the_queue_is_deleted_meanwhile(s: Script) -> None:
    c = queue(s)
    c.ask(ConfirmSelect())
    for _ in range(20):
        c.publish("q", b"")
    s.channel(2).ask(QueueDelete("q"))
    c.confirmed()


@area.case
def a_full_queue_that_rejects_is_a_nack(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=1, x_overflow="reject-publish")
    c.ask(ConfirmSelect())
    c.publish("q", b"1")
    c.confirmed()
    c.publish("q", b"2", mandatory=True)
    c.confirmed()
    c.drain("q")


@area.case
def one_of_two_queues_that_rejects_is_a_nack(s: Script) -> None:
    c = s.channel()
    c.declare("full", x_max_length=0, x_overflow="reject-publish")
    c.declare("free")
    for name in ("full", "free"):
        c.bind(name, "amq.fanout")
    c.ask(ConfirmSelect())
    c.publish("", b"1", "amq.fanout")
    c.confirmed()
    c.drain("free")
    c.drain("full")
