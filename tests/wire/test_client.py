"""The client's connection against a real broker: logins, TLS, channels; failures in one line."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.amqp.method import ConnectionClose, QueueDeclare, QueueDeclareOk, encode_method
from penstock.broker.password import new_secret
from penstock.client.connection import KEEPALIVE_IDLE_S, Connection
from penstock.client.error import ClientError, Closed, LoginRefused, Unreachable
from penstock.client.uri import Tls, Uri, parse_uri
from tests.wire.certificates import Authority, needs_openssl
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.waiting import LIMIT_S, wait_until


def declare(connection: Connection, queue: str = "q") -> None:
    connection.open_channel().call(QueueDeclare(queue), QueueDeclareOk)


def test_a_login_works_and_the_broker_knows_the_connections_name(broker: LiveBroker) -> None:
    with Connection.connect(parse_uri(broker.uri), name="reader 7") as connection:
        declare(connection)
        assert broker.call(lambda: broker.connection("reader 7")).portrait()["user_provided_name"] == "reader 7"
        assert connection.has("publisher_confirms")
        assert not connection.has("no.such.thing")


@pytest.mark.parametrize(
    ("user", "password", "vhost", "named"),
    [
        ("guest", "hush-hush", "/", "the login of 'guest'"),
        ("nobody", "hush-hush", "/", "the login of 'nobody'"),
        ("guest", "guest", "missing", "the vhost 'missing'"),
    ],
)
def test_a_refused_login_is_one_line_without_the_password(
    broker: LiveBroker, user: str, password: str, vhost: str, named: str
) -> None:
    with pytest.raises(LoginRefused) as refused:
        Connection.connect(Uri("127.0.0.1", broker.port, user, password, vhost))
    text = str(refused.value)
    assert named in text
    assert "hush" not in text
    assert "\n" not in text


def test_no_broker_is_one_line_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match=f"no broker at 127.0.0.1:{port}: connection refused"):
        Connection.connect(Uri("127.0.0.1", port))


def test_neither_side_sends_heartbeats_and_the_kernel_looks_after_a_quiet_connection(broker: LiveBroker) -> None:
    with Connection.connect(parse_uri(broker.uri), name="quiet") as connection:
        assert broker.call(lambda: broker.connection("quiet")._heartbeat) is None
        sock = connection.socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S


def test_a_channels_number_is_used_again_after_it_closed_and_the_old_one_is_of_no_use(broker: LiveBroker) -> None:
    with Connection.connect(parse_uri(broker.uri)) as connection:
        first, second = connection.open_channel(), connection.open_channel()
        with pytest.raises(Closed, match="404") as closed:
            first.call(QueueDeclare("missing", passive=True), QueueDeclareOk)
        assert closed.value.code == 404
        assert not first.is_open
        again = connection.open_channel()
        assert (first.number, second.number, again.number) == (1, 2, 1)
        with pytest.raises(Closed, match=r"channel 1 .* is closed"):
            first.call(QueueDeclare("q"), QueueDeclareOk)
        first.close()
        again.call(QueueDeclare("q"), QueueDeclareOk)
        for _ in range(3000):  # more than there are numbers
            connection.open_channel().close()


def test_why_the_broker_hung_up_is_told_although_nothing_can_be_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(Uri(), ours, LIMIT_S)
        theirs.sendall(encode_method(ConnectionClose(320, "CONNECTION_FORCED - shutdown"), 0))
        theirs.close()
        with pytest.raises(Closed, match="320 CONNECTION_FORCED - shutdown") as closed:
            connection.send_method(QueueDeclare("q"), 1)
        assert closed.value.code == 320


def test_a_broker_that_dies_is_noticed_at_once(serve_process: Callable[..., ServeProcess]) -> None:
    process = serve_process()
    connection = Connection.connect(parse_uri(process.uri))
    process.kill()
    with pytest.raises(Closed) as closed:
        declare(connection)
    assert closed.value.code == 0
    connection.socket.close()


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_broker(authority: Authority) -> Iterator[LiveBroker]:
    server = authority.sign("server")
    settings = {
        "tls.certificate": str(server.certificate),
        "tls.key": str(server.key),
        "tls.ca": str(authority.ca),
        "tls.client_certificates": "optional",
        "tls.user_from": "common_name",
    }
    with LiveBroker(settings, tls_port=0) as live:
        yield live


def tls_uri(broker: LiveBroker, tls: Tls, host: str = "localhost", user: str = "guest") -> Uri:
    return Uri(host, broker.tls_port, user=user, tls=tls)


@needs_openssl
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_tls_with_the_authoritys_file_works(tls_broker: LiveBroker, authority: Authority, host: str) -> None:
    with Connection.connect(tls_uri(tls_broker, Tls(str(authority.ca)), host), name="tls") as connection:
        declare(connection)
        assert tls_broker.call(lambda: tls_broker.connection("tls").is_tls)


@needs_openssl
def test_tls_without_verifying_works_when_asked_for(tls_broker: LiveBroker) -> None:
    with Connection.connect(tls_uri(tls_broker, Tls(verify=False))) as connection:
        declare(connection)


@needs_openssl
def test_a_broker_of_an_unknown_authority_is_refused(tls_broker: LiveBroker, tmp_path: Path) -> None:
    for tls in (Tls(), Tls(str(Authority(tmp_path, "stranger").ca))):
        with pytest.raises(Unreachable, match=r"no TLS with localhost:\d+: its certificate was not accepted: "):
            Connection.connect(tls_uri(tls_broker, tls))
    wait_until(lambda: not tls_broker.call(tls_broker.connections))


@needs_openssl
def test_a_broker_of_another_name_is_refused(authority: Authority) -> None:
    server = authority.sign("elsewhere", names="DNS:elsewhere.example")
    settings = {"tls.certificate": str(server.certificate), "tls.key": str(server.key)}
    with LiveBroker(settings, tls_port=0) as broker, pytest.raises(Unreachable, match="mismatch"):
        Connection.connect(tls_uri(broker, Tls(str(authority.ca))))


@needs_openssl
def test_a_client_certificate_logs_in_without_user_and_password(tls_broker: LiveBroker, authority: Authority) -> None:
    pair = authority.sign("ann")
    secret = new_secret("not used")
    tls_broker.call(lambda: tls_broker.inside.users.put_user("ann", secret))
    tls_broker.call(lambda: tls_broker.inside.users.set_permission("ann", "/", ".*", ".*", ".*"))
    tls = Tls(str(authority.ca), str(pair.certificate), str(pair.key))
    with Connection.connect(tls_uri(tls_broker, tls, user="")) as connection:
        declare(connection)


@needs_openssl
def test_files_that_cannot_be_used_are_named(tls_broker: LiveBroker, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for tls in (Tls(str(tmp_path / "missing.pem")), Tls(cert_file=str(tmp_path / "empty.pem"))):
        with pytest.raises(ClientError, match=r"the files for TLS cannot be used \(.*\.pem\): ") as refused:
            Connection.connect(tls_uri(tls_broker, tls))
        assert "\n" not in str(refused.value)


@needs_openssl
def test_tls_to_a_plain_port_and_plain_to_a_tls_port_end_in_one_line(tls_broker: LiveBroker) -> None:
    with pytest.raises(Unreachable, match="no TLS with localhost"):
        Connection.connect(Uri("localhost", tls_broker.port, tls=Tls(verify=False)))
    with pytest.raises(ClientError) as refused:
        Connection.connect(Uri("localhost", tls_broker.tls_port))
    assert "\n" not in str(refused.value)
