"""Options: every one is read and checked, one line names what is wrong, and no password is ever shown."""

from __future__ import annotations

import pickle

import pytest

from penstock.spark.options import OptionError, Use, parse_options

URI = "amqp://ann:sesame@broker:5673/shop"


def read(**options: str):
    return parse_options({"uri": URI, **options})


def error_of(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        read(**options)
    return str(caught.value)


def test_all_options_are_read_whatever_their_case():
    options = parse_options(
        {
            "URI": URI,
            "Stream": "orders",
            "startingoffsets": '{"orders": 5}',
            "MAXRECORDSPERTRIGGER": "1000",
            "maxBytesPerTrigger": "64m",
            "minPartitions": "4",
            "failOnDataLoss": "False",
            "prefetch": "50",
            "consumerName": "me",
        }
    )
    options.check(Use.STREAM)
    assert (options.uri.host, options.uri.port, options.uri.vhost) == ("broker", 5673, "shop")
    assert options.stream == "orders"
    assert options.starting_offsets == {"orders": 5}
    assert (options.max_records, options.max_bytes) == (1000, 64 << 20)
    assert (options.min_partitions, options.fail_on_data_loss, options.prefetch) == (4, False, 50)
    assert options.consumer_name == "me"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("maxRecordsPerTrigger", "many", "a whole number above 0"),
        ("maxRecordsPerTrigger", "0", "a whole number above 0"),
        ("maxRecordsPerTrigger", "-1", "a whole number above 0"),
        ("maxBytesPerTrigger", "1.5m", "64k, 64m or 1g"),
        ("minPartitions", "", "a whole number above 0"),
        ("failOnDataLoss", "perhaps", "true or false"),
        ("prefetch", "70000", "1 to 65535"),
        ("startingOffsets", "beginning", "earliest, latest, a number or JSON"),
        ("endingOffsets", "{", "not JSON"),
        ("startingTimestamp", "2026-01-01", "milliseconds since 1970"),
        ("ackMode", "early", "commit"),
        ("window", "x", "a whole number above 0"),
        ("stream", "", "is empty"),
        ("stream", "é" * 128, "at most 255 bytes, not 256"),
    ],
)
def test_a_wrong_value_is_one_line_with_the_option_and_what_is_allowed(name: str, value: str, allowed: str):
    told = error_of(**{name: value})
    assert told.startswith(f"option {name}")
    assert allowed in told
    assert "\n" not in told


def test_an_unknown_option_is_named_with_the_nearest_one():
    told = error_of(startingOffset="earliest")
    assert told.startswith("unknown option startingOffset (did you mean startingOffsets?); allowed are: uri, stream,")


def test_an_address_is_needed_and_a_wrong_one_is_an_option_error():
    with pytest.raises(OptionError, match="option uri is missing"):
        parse_options({"stream": "orders"})
    with pytest.raises(OptionError, match="option uri: an address looks like amqp://") as caught:
        parse_options({"uri": "http://ann:sesame@broker"})
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of the options stream and queue says what to read: neither is given"),
        ({"stream": "a", "queue": "b"}, "one of the options stream and queue says what to read: both are given"),
    ],
)
def test_exactly_one_of_stream_and_queue_says_what_to_read(options: dict[str, str], said: str):
    with pytest.raises(OptionError, match=said):
        read(**options).check(Use.STREAM)


@pytest.mark.parametrize(
    ("use", "options", "name"),
    [
        (Use.STREAM, {"stream": "a", "endingOffsets": "9"}, "endingOffsets"),
        (Use.STREAM, {"stream": "a", "window": "9"}, "window"),
        (Use.STREAM_BATCH, {"stream": "a", "maxRecordsPerTrigger": "9"}, "maxRecordsPerTrigger"),
        (Use.QUEUE, {"queue": "a", "startingOffsets": "earliest"}, "startingOffsets"),
        (Use.SINK, {"exchange": "a", "prefetch": "9"}, "prefetch"),
        (Use.STREAM, {"stream": "a", "spoolDir": "/tmp"}, "spoolDir"),
        (Use.QUEUE_BATCH, {"queue": "a", "spoolDir": "/tmp"}, "spoolDir"),
    ],
)
def test_an_option_without_a_meaning_here_is_refused_and_not_ignored(use: Use, options: dict[str, str], name: str):
    with pytest.raises(OptionError, match=f"option {name} means nothing in .*{use.value}.*; it is for "):
        read(**options).check(use)


def test_only_one_option_says_where_to_begin():
    with pytest.raises(OptionError, match="startingOffsets and startingTimestamp"):
        read(stream="a", startingOffsets="earliest", startingTimestamp="1").check(Use.STREAM)


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_that_can_only_be_empty_is_refused(options: dict[str, str]):
    with pytest.raises(OptionError, match="leaves nothing to read"):
        read(stream="a", **options).check(Use.STREAM_BATCH)


def test_login_options_win_over_the_address():
    uri = read(stream="a", username="bob", password="open").uri
    assert (uri.user, uri.password) == ("bob", "open")


def test_tls_options_go_into_the_address_and_need_amqps():
    options = parse_options({"uri": "amqps://broker", "tls.caFile": "ca.pem", "tls.verify": "false", "stream": "a"})
    assert options.uri.tls is not None
    assert (options.uri.tls.ca_file, options.uri.tls.verify) == ("ca.pem", False)
    assert "amqps://" in error_of(**{"tls.caFile": "ca.pem"})
    assert "tls.certFile" in error_of(**{"tls.keyFile": "key.pem"})


def test_no_password_is_in_repr_or_text():
    options = read(stream="orders", password="open", username="bob")
    for shown in (repr(options), str(options), f"{options.uri}", repr(options.uri)):
        assert "sesame" not in shown
        assert "open" not in shown
    assert "stream=orders" in repr(options)


def test_options_survive_pickle_with_the_login_that_tasks_need():
    options = read(stream="orders")
    assert pickle.loads(pickle.dumps(options)) == options
    assert pickle.loads(pickle.dumps(options)).uri.password == "sesame"


def test_sparks_own_options_are_left_to_spark():
    read(exchange="e", checkpointLocation="/tmp/c", queryName="q", __internal="x").check(Use.SINK)
    assert "asyncProgressTrackingEnabled" in error_of(asyncProgressTrackingEnabled="true")
    assert "stream or queue" in error_of(path="/tmp/x")


def test_url_is_uri_by_a_name_that_spark_hides():
    assert parse_options({"url": URI, "stream": "a"}).uri.host == "broker"
