"""Addresses: what is left out has a default, what is wrong is one line that says so and never shows a password."""

import pytest

from penstock.client.uri import Uri, UriError, parse_uri

READ = [
    ("amqp://", Uri()),
    ("amqp://broker", Uri(host="broker")),
    ("amqp://broker:5673", Uri(host="broker", port=5673)),
    ("AMQP://broker", Uri(host="broker")),
    ("amqp://ann:secret@broker", Uri(host="broker", user="ann", password="secret")),
    ("amqp://ann@broker", Uri(host="broker", user="ann")),
    ("amqp://a%40b:p%3a%2f@broker", Uri(host="broker", user="a@b", password="p:/")),
    ("amqp://[::1]:5673", Uri(host="::1", port=5673)),
    ("amqp://broker/", Uri(host="broker")),
    ("amqp://broker//", Uri(host="broker")),
    ("amqp://broker/%2f", Uri(host="broker")),
    ("amqp://broker/%2F", Uri(host="broker")),
    ("amqp://broker/orders", Uri(host="broker", vhost="orders")),
    ("amqp://broker/%2forders", Uri(host="broker", vhost="/orders")),
]

REFUSED = [
    ("broker:5672", "looks like amqp://"),
    ("http://broker", "looks like amqp://"),
    ("amqp:broker", "looks like amqp://"),
    ("", "looks like amqp://"),
    ("amqps://broker", "TLS"),
    ("amqp://broker:http", "not an address"),
    ("amqp://broker:70000", "not an address"),
    ("amqp://broker:0", "port 0"),
    ("amqp://broker/a/b", "/a%2fb"),
    ("amqp://broker?heartbeat=5", "heartbeat=5"),
]


@pytest.mark.parametrize(("text", "uri"), READ)
def test_an_address_is_read(text, uri):
    assert parse_uri(text) == uri


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_wrong_address_is_refused_in_one_line(text, why):
    with pytest.raises(UriError) as refused:
        parse_uri(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_text_of_an_address_shows_its_password():
    uri = parse_uri("amqp://ann:secret@broker/orders")
    assert str(uri) == "amqp://ann@broker:5672/orders"
    assert "secret" not in repr(uri)
    with pytest.raises(UriError) as refused:
        parse_uri("http://ann:secret@broker")
    assert "secret" not in str(refused.value)


def test_what_an_address_prints_reads_back_as_the_same_broker():
    uri = parse_uri("amqp://a%2fb@[::1]:5673/%2forders")
    assert parse_uri(str(uri)) == uri
