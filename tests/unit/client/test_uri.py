"""Addresses: what is left out has a default, what is wrong is one line that says so and never shows a password."""

import pickle

import pytest

from penstock.client.uri import Tls, Uri, UriError, parse_uri

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
    ("amqp://@broker", Uri(host="broker", user="")),
    ("amqps://broker", Uri(host="broker", port=5671, tls=Tls())),
    ("AMQPS://ann:secret@broker:5673/v", Uri("broker", 5673, "ann", "secret", "v", Tls())),
]

REFUSED = [
    ("broker:5672", "looks like amqp://"),
    ("http://broker", "looks like amqp://"),
    ("amqp:broker", "looks like amqp://"),
    ("", "looks like amqp://"),
    ("amqps:broker", "looks like amqp://"),
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


@pytest.mark.parametrize(
    "text",
    [
        "http://ann:secret@broker",
        "amqp://ann:secret/more@broker",
        "amqp://ann:1/secret@broker",
        "amqp://ann:1?secret@broker",
        "amqp://ann:1#secret@broker",
        "amqp://ann:secret[@broker",
        "amqp://ann:secret@broker:port",
    ],
)
def test_no_error_about_an_address_shows_a_password_however_it_is_written(text):
    with pytest.raises(UriError) as refused:
        parse_uri(text)
    assert "secret" not in str(refused.value)


def test_what_an_address_prints_reads_back_as_the_same_broker():
    uri = parse_uri("amqp://a%2fb@[::1]:5673/%2forders")
    assert parse_uri(str(uri)) == uri
    uri = parse_uri("amqps://broker")
    assert parse_uri(str(uri)) == uri


def test_a_login_beside_the_address_replaces_the_one_in_it():
    uri = parse_uri("amqp://ann:secret@broker/orders")
    assert uri.with_login() == uri
    assert uri.with_login("bob", "other") == Uri("broker", user="bob", password="other", vhost="orders")
    assert uri.with_login(password="").password == ""
    assert uri.with_login("bob").password == "secret"


def test_settings_of_tls_need_an_address_with_tls():
    tls = Tls(ca_file="ca.pem", verify=False)
    assert parse_uri("amqps://broker").with_tls(tls).tls == tls
    with pytest.raises(UriError, match="amqps://"):
        parse_uri("amqp://ann:secret@broker").with_tls(tls)


def test_an_address_goes_through_pickle_as_spark_needs():
    uri = parse_uri("amqps://ann:secret@broker").with_tls(Tls(ca_file="ca.pem"))
    assert pickle.loads(pickle.dumps(uri)) == uri
