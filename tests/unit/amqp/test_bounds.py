"""Bounds: what the codec refuses because it is too much, with which code, and that the text names the setting."""

from __future__ import annotations

import pytest

from penstock.amqp.bounds import NAME_BYTES_MAX, TABLE_DEPTH_MAX, Bounds
from penstock.amqp.close import CloseConnection
from penstock.amqp.content import build_basic
from penstock.amqp.decoder import (
    STRANGER_BYTES_MAX,
    STRANGER_CONTENTS_MAX,
    Decoder,
    Publishes,
)
from penstock.amqp.frame import BODY, CONTENT_HEAD, FRAME_MIN_BYTES, HEADER, encode_frame
from penstock.amqp.method import (
    BasicConsume,
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ConnectionTuneOk,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    decode_method,
    encode_method,
)
from penstock.amqp.properties import Properties, check_properties, decode_properties, encode_properties
from penstock.amqp.table import Table, Value, decode_table, encode_table

BODY_MAX = 1_000_000


def nested(levels: int) -> Table:
    """A table of so many levels, itself included, tables and arrays in turn."""
    value: Value = 1
    for level in range(levels - 1):
        value = [value] if level % 2 else {"k": value}
    return {"k": value}


def refused(table: Table, bounds: Bounds) -> str:
    with pytest.raises(CloseConnection) as caught:
        decode_table(encode_table(table), 0, bounds)
    assert caught.value.code == 501
    return caught.value.text


@pytest.mark.parametrize("depth", [1, 2, 5, TABLE_DEPTH_MAX])
def test_a_table_may_be_as_deep_as_the_bound_and_no_deeper(depth: int) -> None:
    bounds = Bounds(table_depth=depth)
    assert decode_table(encode_table(nested(depth)), 0, bounds)[0] == nested(depth)
    if depth < TABLE_DEPTH_MAX:
        text = refused(nested(depth + 1), bounds)
        assert text == f"FRAME_ERROR - cannot decode table: nested deeper than limits.table_depth, {depth}"


def test_a_table_may_have_as_many_bytes_as_the_bound_and_no_more() -> None:
    table: Table = {"k": "x" * 100}
    size = len(encode_table(table)) - 4
    assert decode_table(encode_table(table), 0, Bounds(table_bytes=size))[0] == table
    assert refused(table, Bounds(table_bytes=size - 1)) == (
        f"FRAME_ERROR - cannot decode table: its {size} bytes are more than limits.table_bytes, {size - 1}"
    )


@pytest.mark.parametrize(
    ("table", "entries"),
    [
        ({"a": 1, "b": 2, "c": 3}, 3),
        ({"a": [1, 2, 3], "b": {"c": None, "d": [True]}}, 8),
        ({"a": [[], [[]], {}]}, 5),
    ],
)
def test_entries_are_counted_on_all_levels(table: Table, entries: int) -> None:
    assert decode_table(encode_table(table), 0, Bounds(table_entries=entries))[0] == table
    assert refused(table, Bounds(table_entries=entries - 1)) == (
        f"FRAME_ERROR - cannot decode table: its {entries} entries are more than limits.table_entries, {entries - 1}"
    )


def test_the_bounds_hold_for_arguments_and_for_headers_with_their_ids() -> None:
    bounds = Bounds(table_entries=2)
    too_many: Table = {"a": 1, "b": 2, "c": 3}
    with pytest.raises(CloseConnection) as caught:
        decode_method(encode_method(QueueDeclare("q", arguments=too_many), 1)[7:-1], bounds)
    assert (caught.value.class_id, caught.value.method_id) == (50, 10)
    raw = encode_properties(Properties(headers=too_many))
    with pytest.raises(CloseConnection) as caught:
        check_properties(raw, 0, len(raw), bounds)
    assert (caught.value.class_id, caught.value.method_id) == (60, 40)
    # What came in under one bound can be read again, whatever the bounds are now.
    assert decode_properties(raw, 0, len(raw)).headers == too_many


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare("n" * 21),
        QueueDeclare("ü" * 11),
        ExchangeDeclare("n" * 21),
        ExchangeDeclare("x", "t" * 21),
        QueueBind("q", "x", "k" * 21),
        BasicConsume("q", "t" * 21),
    ],
)
def test_a_name_above_the_bound_is_refused_and_the_text_names_the_setting(method: Method) -> None:
    payload = encode_method(method, 1)[7:-1]
    with pytest.raises(CloseConnection) as caught:
        decode_method(payload, Bounds(name_bytes=20))
    assert caught.value.code == 530
    assert caught.value.text.endswith("bytes is longer than limits.name_bytes, 20")
    assert (caught.value.class_id, caught.value.method_id) == (method.ID >> 16, method.ID & 0xFFFF)
    assert decode_method(payload, Bounds(name_bytes=22)) == method
    assert decode_method(payload, Bounds(name_bytes=NAME_BYTES_MAX)) == method


def test_a_reason_given_in_a_close_is_no_name() -> None:
    close = ChannelClose(200, "because " * 20)
    assert decode_method(encode_method(close, 1)[7:-1], Bounds(name_bytes=20)) == close


# Contents that are still coming.


def begun(channel: int, size: int = 100, sent: int = 0) -> bytes:
    """A publish whose body of `size` is not whole."""
    head = CONTENT_HEAD.pack(HEADER, channel, 14, 60, 0, size) + b"\0\0\xce"
    body = encode_frame(BODY, channel, bytes(sent)) if sent else b""
    return encode_method(BasicPublish("", "q"), channel) + head + body


def error_of(decoder: Decoder) -> tuple[int, str]:
    assert decoder.error is not None
    return decoder.error.code, decoder.error.text


def test_contents_may_be_begun_on_as_many_channels_as_can_be_open() -> None:
    decoder = Decoder(BODY_MAX)
    decoder.tuned(FRAME_MIN_BYTES, 3)
    decoder.feed(b"".join(begun(channel) for channel in (1, 2, 3)))
    assert decoder.error is None
    decoder.feed(begun(4))
    assert error_of(decoder) == (504, "CHANNEL_ERROR - expected 'channel.open'")


def test_a_content_that_is_finished_or_forgotten_makes_room() -> None:
    decoder = Decoder(BODY_MAX, Bounds(unfinished_bytes=3000))
    decoder.tuned(FRAME_MIN_BYTES, 1)
    for _ in range(5):
        decoder.feed(begun(1, 2000, 1000))
        (item,) = decoder.feed(encode_frame(BODY, 1, bytes(1000)))
        assert isinstance(item, Publishes)
    for _ in range(5):
        decoder.feed(begun(1, 2000, 1000))
        decoder.forget(1)
    assert decoder.error is None
    assert decoder.buffered_bytes() == 0


def test_bodies_still_coming_on_all_channels_together_are_bounded() -> None:
    decoder = Decoder(BODY_MAX, Bounds(unfinished_bytes=10_000))
    decoder.tuned(FRAME_MIN_BYTES, 100)
    for channel in (1, 2, 3):
        decoder.feed(begun(channel, 5000, 3000))
    assert decoder.error is None
    decoder.feed(begun(4, 5000, 3000))
    assert error_of(decoder) == (
        506,
        "RESOURCE_ERROR - contents still coming hold more than 10000 bytes (limits.unfinished_bytes)",
    )
    assert decoder.buffered_bytes() == 0


def test_a_body_that_is_whole_is_not_refused_for_being_larger_than_what_may_be_unfinished() -> None:
    decoder = Decoder(BODY_MAX, Bounds(unfinished_bytes=3000))
    decoder.tuned(FRAME_MIN_BYTES, 1)
    publish = encode_method(BasicPublish("", "q"), 1) + build_basic(1, b"\0\0", bytes(4000), FRAME_MIN_BYTES)
    items = decoder.feed(publish[:50]) + decoder.feed(publish[50:])
    assert len(items) == 1
    assert decoder.error is None


def test_a_dropped_body_takes_no_room() -> None:
    decoder = Decoder(1000, Bounds(unfinished_bytes=2000))
    decoder.tuned(FRAME_MIN_BYTES, 1)
    decoder.feed(begun(1, 20_000, 4000))
    for _ in range(4):
        decoder.feed(encode_frame(BODY, 1, bytes(4000)))
    assert decoder.error is None
    assert decoder.buffered_bytes() == 0


def test_who_has_not_logged_in_can_begin_few_contents_and_keep_few_bytes() -> None:
    decoder = Decoder(BODY_MAX)
    decoder.distrust(131_072)
    for channel in range(1, STRANGER_CONTENTS_MAX + 1):
        decoder.feed(begun(channel))
    assert decoder.error is None
    decoder.feed(begun(STRANGER_CONTENTS_MAX + 1))
    assert error_of(decoder)[0] == 504
    decoder = Decoder(BODY_MAX)
    decoder.distrust(131_072)
    decoder.feed(begun(1, BODY_MAX))
    fed = 0
    while decoder.error is None:
        decoder.feed(encode_frame(BODY, 1, bytes(4088)))
        fed += 4088
        assert decoder.buffered_bytes() <= STRANGER_BYTES_MAX + FRAME_MIN_BYTES
    assert error_of(decoder)[0] == 506
    assert fed < STRANGER_BYTES_MAX + 2 * FRAME_MIN_BYTES


def test_a_frame_behind_tune_ok_in_the_same_read_may_be_as_large_as_it_says() -> None:
    tune_ok = encode_method(ConnectionTuneOk(10, 8192, 0), 0)
    large = encode_method(QueueDeclare("q", arguments={"k": "x" * 5000}), 1)
    decoder = Decoder(BODY_MAX)
    decoder.distrust(131_072)
    assert len(decoder.feed(tune_ok + large)) == 2
    assert decoder.error is None
    for offered in (4096, 8191):
        decoder = Decoder(BODY_MAX)
        decoder.distrust(offered)
        assert len(decoder.feed(tune_ok + large)) == 1
        assert error_of(decoder)[0] == 501


def test_a_second_tune_ok_changes_no_frame_size() -> None:
    decoder = Decoder(BODY_MAX)
    decoder.distrust(131_072)
    decoder.tuned(8192, 10)
    decoder.feed(encode_method(ConnectionTuneOk(10, 131_072, 0), 0) + encode_method(ChannelOpen(), 1))
    assert decoder.frame_max == 8192
