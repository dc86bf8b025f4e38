"""Offsets as Penstock tells them: one delivery of headers, then the end of the consumer."""

from __future__ import annotations

import pytest

from penstock.amqp.method import BasicCancel, BasicConsume, BasicConsumeOk, encode_method
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table, Timestamp
from penstock.client.connection import Channel
from penstock.client.error import ClientError
from penstock.client.stream import Offsets, offset_of, offsets
from tests.unit.client.script import ScriptedSocket, channel_on, delivery

TOLD: Table = {"x-stream-first-offset": 5, "x-stream-next-offset": 90, "x-stream-offset": 17}


def penstock_channel(socket: ScriptedSocket) -> Channel:
    channel = channel_on(socket)
    channel.connection.server_properties = {"capabilities": {"penstock.streams": True}}
    return channel


def answered(headers: Table, tag: str = "penstock-1") -> list[bytes]:
    return [
        encode_method(BasicConsumeOk(tag), 1),
        delivery(1, b"", encode_properties(Properties(headers=headers)), consumer=tag),
        encode_method(BasicCancel(tag, nowait=True), 1),
    ]


@pytest.mark.parametrize("asked", ["next", "first", 17, Timestamp(1_700_000_000), "1h"])
def test_penstock_is_asked_once_and_its_answer_read(asked: str | int | Timestamp) -> None:
    socket = ScriptedSocket(answered(TOLD))
    assert offsets(penstock_channel(socket), "s", asked) == Offsets(5, 90, 17)
    question = BasicConsume(
        "s", "penstock-1", no_ack=True, arguments={"x-stream-query": True, "x-stream-offset": asked}
    )
    assert socket.sent == encode_method(question, 1)
    assert not socket.pieces


def test_a_channel_serves_for_many_questions() -> None:
    socket = ScriptedSocket(answered(TOLD) + answered(TOLD, "penstock-2") + answered(TOLD, "penstock-3"))
    channel = penstock_channel(socket)
    assert {offsets(channel, "s") for _ in range(3)} == {Offsets(5, 90, 17)}


def test_an_answer_without_offsets_is_an_error_that_names_the_stream() -> None:
    with pytest.raises(ClientError, match="did not say which offsets the stream 'orders' has"):
        offsets(penstock_channel(ScriptedSocket(answered({"x-stream-offset": True}))), "orders")


def test_the_offset_of_a_delivery_is_a_header() -> None:
    assert offset_of(encode_properties(Properties(headers={"x-stream-offset": 1 << 40}))) == 1 << 40
    assert offset_of(encode_properties(Properties(headers={"x-stream-offset": "7"}))) == -1
    assert offset_of(encode_properties(Properties())) == -1
    assert offset_of(b"\xff\xff") == -1
