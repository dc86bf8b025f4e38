"""The lines of transcripts: everything of the wire is in them, and only what is listed there is normalised."""

from __future__ import annotations

import struct
import time

from penstock.amqp.method import BasicAck, BasicNack, ChannelClose, QueueDeclareOk
from tests.differential.record import is_broken
from tests.differential.script import NOTHING, Channel, Connection
from tests.differential.transcript import Names, read_reply_to, show_content, show_method
from tests.differential.typed import T, properties_bytes


def content(body: bytes = b"", **properties: object) -> str:
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties_bytes(properties)
    return show_content(header, body, 1)


def test_made_up_names_are_numbered_and_the_same_name_has_the_same_number():
    names = Names()
    one, two = "amq.gen-" + "a" * 22, "amq.gen-" + "b" * 22
    assert names.normalise(f"{one} {two} {one}") == "amq.gen-#1 amq.gen-#2 amq.gen-#1"
    assert names.normalise("amq.gen-mine") == "amq.gen-mine"
    assert names.normalise("amq.rabbitmq.reply-to.abc.def") == "amq.rabbitmq.reply-to.#1"


def test_a_close_tells_code_ids_and_text_in_one_line():
    close = ChannelClose(404, "NOT_FOUND - no\n   queue", 50, 10)
    assert show_method(close) == "channel.close 404 (50,10) NOT_FOUND - no queue"


def test_a_refusal_is_told_without_the_kind_of_permission():
    old, new = (f"ACCESS_REFUSED - {word}access to queue 'q'" for word in ("", "write "))
    assert show_method(ChannelClose(403, old, 50, 20)) == show_method(ChannelClose(403, new, 50, 20))


def test_letters_and_order_of_headers_are_told():
    assert content(headers={"b": T("b", 1), "a": T("l", 1)}) != content(headers={"b": 1, "a": 1})
    assert content(headers={"a": 1, "b": 1}) != content(headers={"b": 1, "a": 1})
    assert content(b"x", headers={"a": [T("s", 2)]}, priority=3) == "{headers={a [s:2]}, priority=3} b'x'"


def test_only_a_recent_time_of_a_death_is_normalised():
    now = int(time.time())
    assert "T:now" in content(headers={"x-death": [{"time": T("T", now)}]})
    assert "T:5" in content(headers={"x-death": [{"time": T("T", 5)}]})
    assert f"T:{now}" in content(headers={"sent": T("T", now)})


def test_the_keys_of_a_death_are_sorted_and_no_others():
    deaths = [{"x-death": [entry]} for entry in ({"count": 1, "queue": "q"}, {"queue": "q", "count": 1})]
    assert content(headers=deaths[0]) == content(headers=deaths[1])
    assert content(headers={"other": [{"b": 1, "a": 1}]}) != content(headers={"other": [{"a": 1, "b": 1}]})


def test_reply_to_is_read_as_it_is():
    header = struct.pack(">HHQ", 60, 0, 0) + properties_bytes({"correlation_id": "c", "reply_to": "a.b"})
    assert read_reply_to(header) == "a.b"


def test_confirms_are_expanded_and_a_second_one_is_seen():
    channel = Channel(Connection.__new__(Connection), 1, confirming=True, published=4)
    assert channel.take_confirm(BasicAck(2, True))
    assert channel.take_confirm(BasicNack(3, False, True))
    assert channel.take_confirm(BasicAck(1))
    assert channel.settled == {1: "ack and ack", 2: "ack", 3: "nack requeue=True"}
    assert not channel.take_confirm(QueueDeclareOk("q", 0, 0))


def test_a_script_that_waited_in_vain_is_not_recorded():
    assert is_broken({"c.1": ["queue.delete-ok message_count=0", NOTHING]})
    assert not is_broken({"c.1": ["queue.delete-ok message_count=0"]})
