"""Method: one table of cases for both directions, and what is refused with RabbitMQ's words."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseConnection
from penstock.amqp.method import (
    METHODS,
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicReturn,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionUpdateSecret,
    ExchangeDeclare,
    ExchangeUnbindOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueUnbind,
    TxSelect,
    decode_method,
    encode_method,
)

# Arguments on the wire in hex, spaces between them, behind class and method.
CASES: list[tuple[Method, str]] = [
    (
        ConnectionStart(0, 9, {"a": True}, b"PLAIN", b"en_US"),
        "00 09 00000004 0161 7401 00000005504c41494e 00000005656e5f5553",
    ),
    (ConnectionStartOk({}, "PLAIN", b"\0u\0\xff", "en_US"), "00000000 05504c41494e 00000004007500ff 05656e5f5553"),
    (ConnectionTune(2047, 131072, 60), "07ff 00020000 003c"),
    (ConnectionOpen("/"), "012f 00 00"),
    (ConnectionOpenOk(), "00"),
    (ConnectionClose(320, "bye", 10, 40), "0140 03627965 000a 0028"),
    (ConnectionUpdateSecret(b"s\xff", "why"), "0000000273ff 03776879"),
    (ChannelOpen(), "00"),
    (ChannelOpenOk(), "00000000"),
    (ChannelClose(404, "é", 50, 10), "0194 02c3a9 0032 000a"),
    (AccessRequest("/data", False, True, True, True, True), "052f64617461 1e"),
    (AccessRequestOk(1), "0001"),
    (ConfirmSelect(nowait=True), "01"),
    (TxSelect(), ""),
    (ExchangeDeclare("x", "topic", durable=True, internal=True), "0000 0178 05746f706963 0a 00000000"),
    (ExchangeUnbindOk(), ""),
    (QueueDeclare("q", True, False, True, False, True), "0000 0171 15 00000000"),
    (QueueDeclare("水", durable=True, arguments={"k": 1}), "0000 03e6b0b4 02 00000007 016b 4900000001"),
    (QueueDeclareOk("q", 2**32 - 1, 1), "0171 ffffffff 00000001"),
    (QueueDelete("q", if_empty=True), "0000 0171 02"),
    (QueueUnbind("q", "x", "k", {}), "0000 0171 0178 016b 00000000"),
    (BasicQos(0, 65535, True), "00000000 ffff 01"),
    (BasicConsume("q", "t", no_ack=True, nowait=True), "0000 0171 0174 0a 00000000"),
    (BasicPublish("x", "k", mandatory=True), "0000 0178 016b 01"),
    (BasicPublish("x", "caf\udce9"), "0000 0178 04636166e9 00"),
    (BasicReturn(312, "NO_ROUTE", "x", "k"), "0138 084e4f5f524f555445 0178 016b"),
    (BasicDeliver("t", 2**64 - 1, True, "", "k"), "0174 ffffffffffffffff 01 00 016b"),
    (BasicGetOk(1, False, "", "k", 7), "0000000000000001 00 00 016b 00000007"),
    (BasicGetEmpty(), "00"),
    (BasicAck(1, True), "0000000000000001 01"),
    (BasicNack(1, False, True), "0000000000000001 02"),
]


def payload(method: Method, arguments: str) -> bytes:
    return method.ID.to_bytes(4, "big") + bytes.fromhex(arguments)


@pytest.mark.parametrize(("method", "arguments"), CASES)
def test_a_method_is_read_and_written_alike(method: Method, arguments: str) -> None:
    wire = payload(method, arguments)
    assert decode_method(wire) == method
    assert encode_method(method, 258) == b"\x01\x01\x02" + len(wire).to_bytes(4, "big") + wire + b"\xce"


@pytest.mark.parametrize(("method", "arguments"), CASES)
def test_a_method_cut_anywhere_is_refused_and_named(method: Method, arguments: str) -> None:
    wire = payload(method, arguments)
    for cut in range(4, len(wire)):
        with pytest.raises(CloseConnection) as close:
            decode_method(wire[:cut])
        assert close.value.code == 501
        assert (close.value.class_id, close.value.method_id) == (method.ID >> 16, method.ID & 0xFFFF)


@pytest.mark.parametrize(("method", "arguments"), CASES)
def test_bytes_behind_the_last_argument_are_refused(method: Method, arguments: str) -> None:
    with pytest.raises(CloseConnection) as close:
        decode_method(payload(method, arguments) + b"\0")
    assert close.value.text.startswith("FRAME_ERROR - cannot decode <<")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_made_without_arguments_survives_the_wire(method: type[Method]) -> None:
    assert decode_method(encode_method(method(), 1)[7:-1]) == method()


# Every method of the specification with RabbitMQ's extensions: class id, then method ids.
IDS = {
    10: [10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71],
    20: [10, 11, 20, 21, 40, 41],
    30: [10, 11],
    40: [10, 11, 20, 21, 30, 31, 40, 51],
    50: [10, 11, 20, 21, 30, 31, 40, 41, 50, 51],
    60: [10, 11, 20, 21, 30, 31, 40, 50, 60, 70, 71, 72, 80, 90, 100, 110, 111, 120],
    85: [10, 11],
    90: [10, 11, 20, 21, 30, 31],
}


def test_the_methods_are_those_of_the_specification_and_rabbitmq() -> None:
    assert sorted(method.ID for method in METHODS) == [cls << 16 | index for cls in IDS for index in IDS[cls]]


def test_a_method_class_is_named_as_on_the_wire() -> None:
    for method in METHODS:
        assert method.__name__ == "".join(word.capitalize() for word in method.NAME.replace(".", "-").split("-"))


def test_a_method_has_as_many_arguments_as_its_codes() -> None:
    for method in METHODS:
        assert len(method.__match_args__) == len(method.WIRE) - 2 * method.WIRE.count("-")


@pytest.mark.parametrize(("class_id", "method_id"), [(99, 10), (50, 99), (0, 0), (40, 41), (65535, 65535)])
def test_an_unknown_method_is_command_invalid(class_id: int, method_id: int) -> None:
    with pytest.raises(CloseConnection) as close:
        decode_method(class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + b"whatever")
    assert close.value.code == 503
    assert close.value.text == f"COMMAND_INVALID - unimplemented method {class_id}.{method_id}"
    assert (close.value.class_id, close.value.method_id) == (class_id, method_id)


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"\0\x32\0\x0a\0\0", "FRAME_ERROR - cannot decode <<0,0>>"),
        (b"\0\x32\0", "FRAME_ERROR - type 1, all octets = <<0,50,0>>: unknown_frame"),
        (b"", "FRAME_ERROR - type 1, all octets = <<>>: unknown_frame"),
        (b"\0\x5a\0\x0a\1", "FRAME_ERROR - cannot decode <<1>>"),
        (b"\0\x32\0\x0a\0\0\x02\xff\xfe\0\0\0\0\0", "FRAME_ERROR - Malformed UTF-8 in shortstr"),
        (b"\0\x32\0\x0a\0\0\x01q\0\0\0\x27\x0fxx", "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,39,15,120,120>>"),
    ],
)
def test_what_cannot_be_read_is_answered_in_rabbitmqs_words(wire: bytes, text: str) -> None:
    with pytest.raises(CloseConnection) as close:
        decode_method(wire)
    assert close.value.text == text


def test_a_table_that_cannot_be_read_names_the_method_at_fault() -> None:
    with pytest.raises(CloseConnection) as close:
        decode_method(b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x03\x01kZ")
    assert close.value.text == "FRAME_ERROR - cannot decode table: unknown type 'Z'"
    assert (close.value.class_id, close.value.method_id) == (50, 10)


def test_the_answer_to_a_large_broken_method_fits_a_short_string() -> None:
    with pytest.raises(CloseConnection) as close:
        decode_method(b"\0\x5a\0\x0a" + b"\xff" * 100_000)
    assert len(close.value.text) == 255


def test_bits_without_a_meaning_are_ignored() -> None:
    assert decode_method(payload(QueueDelete(), "0000 0171 fa")) == QueueDelete("q", if_empty=True)


def test_reserved_arguments_may_hold_anything() -> None:
    assert decode_method(payload(ConnectionOpen(), "012f 03616263 01")) == ConnectionOpen("/")
    assert decode_method(payload(QueueDelete(), "ffff 0171 00")) == QueueDelete("q")


def test_names_fill_255_bytes_of_utf8_and_one_more_is_our_bug() -> None:
    method = QueueDeclare("é" * 127 + "x")
    assert decode_method(encode_method(method, 1)[7:-1]) == method
    with pytest.raises(ValueError):
        encode_method(QueueDeclare("é" * 128), 1)


def test_default_tables_are_not_shared() -> None:
    QueueDeclare().arguments["x"] = 1
    assert QueueDeclare().arguments == {}


def test_a_method_tells_its_arguments() -> None:
    assert repr(BasicAck(7, True)) == "BasicAck(delivery_tag=7, multiple=True)"
