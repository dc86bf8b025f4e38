"""AMQP over TLS: real clients, client certificates, renewal under way, failed handshakes in one line each."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import aio_pika
import pika
import pytest
from kombu.connection import Connection as KombuConnection

from penstock.amqp.frame import PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.broker.password import new_secret
from tests.wire.certificates import Authority, Pair, needs_openssl
from tests.wire.live import LiveBroker, ServeProcess, serve_environment
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

pytestmark = needs_openssl

LARGE_BYTES = 20 * 1024 * 1024  # 160 frames, and far more than any buffer on the way


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    """An authority whose files a test may change."""
    return Authority(tmp_path / "own")


class Start(Protocol):
    def __call__(self, **settings: str) -> LiveBroker: ...


@pytest.fixture
def start(authority: Authority) -> Iterator[Start]:
    """Starts a broker with a TLS port; settings as tls_minimum="1.3"."""
    server = authority.sign("server")
    with ExitStack() as stack:

        def started(**settings: str) -> LiveBroker:
            given = {name.replace("_", ".", 1): value for name, value in settings.items()}
            return stack.enter_context(LiveBroker({**tls_settings(server), **given}, tls_port=0))

        yield started


def tls_settings(server: Pair) -> dict[str, str]:
    return {"tls.certificate": str(server.certificate), "tls.key": str(server.key)}


def raw(port: int, context: ssl.SSLContext) -> RawClient:
    """A RawClient that speaks TLS; the handshake of TLS is over, that of AMQP is not begun."""
    client = RawClient(port)
    try:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    except OSError:
        client.close_socket()
        raise
    return client


def parameters(
    port: int, context: ssl.SSLContext, credentials: object = pika.ConnectionParameters.DEFAULT_CREDENTIALS
) -> pika.ConnectionParameters:
    options = pika.SSLOptions(context, "localhost")
    return pika.ConnectionParameters("127.0.0.1", port, ssl_options=options, credentials=credentials)


def wait_for_log(broker: LiveBroker, text: str) -> str:
    lines = wait_until(lambda: [line for line in broker.log.splitlines() if text in line], what=f"{text!r} in the log")
    assert len(lines) == 1, lines
    return lines[0]


# Real clients.


def test_pika_gets_large_messages_through_in_both_directions(start: Start, authority: Authority) -> None:
    broker = start()
    body = os.urandom(LARGE_BYTES)
    connection = pika.BlockingConnection(parameters(broker.tls_port, authority.client_context()))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    for _ in range(3):
        channel.basic_publish("", "q", body)
    for _ in range(3):
        assert channel.basic_get("q", auto_ack=True)[2] == body
    assert [one.is_tls for one in broker.call(broker.connections)] == [True]
    connection.close()


def test_aio_pika_publishes_and_consumes(start: Start, authority: Authority) -> None:
    broker = start()

    async def talk() -> list[bytes]:
        uri = f"amqps://guest:guest@localhost:{broker.tls_port}/"
        connection = await aio_pika.connect_robust(uri, ssl_context=authority.client_context())
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            for number in range(500):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "q")
            got = []
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    got.append(message.body)
                    if len(got) == 500:
                        return got
        return []

    assert asyncio.run(talk()) == [b"%d" % number for number in range(500)]


def test_kombu_publishes_and_consumes(start: Start, authority: Authority) -> None:
    broker = start()
    options = {"ca_certs": str(authority.ca), "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "localhost"}
    got: list[object] = []
    with KombuConnection(f"amqps://guest:guest@localhost:{broker.tls_port}//", ssl=options) as connection:
        queue = connection.SimpleQueue("q")
        for number in range(100):
            queue.put({"number": number})
        for _ in range(100):
            message = queue.get(timeout=LIMIT_S)
            got.append(message.payload)
            message.ack()
        queue.close()
    assert got == [{"number": number} for number in range(100)]


def test_plain_and_tls_clients_meet_in_one_broker(start: Start, authority: Authority) -> None:
    broker = start()
    with RawClient(broker.port).handshake().open() as plain, raw(broker.tls_port, authority.client_context()) as tls:
        tls.handshake().open()
        plain.ask(QueueDeclare("q"), QueueDeclareOk)
        tls.publish("q", b"from tls")
        plain.ask(BasicConsume("q", no_ack=True), BasicConsumeOk)
        plain.expect(BasicDeliver)
        assert plain.read_content().body == b"from tls"


# Back-pressure.


def test_a_publisher_over_tls_is_paused_by_a_queue_that_stands_still_and_loses_nothing(
    start: Start, authority: Authority
) -> None:
    broker = start(limits_parked_bytes="65536")
    count, size = 4000, 4096
    with raw(broker.tls_port, authority.client_context()).handshake(name="publisher").open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        broker.suspend("q")
        connection = broker.call(lambda: broker.connection("publisher"))

        def publish() -> None:
            for number in range(count):
                client.publish("q", b"%08d" % number + bytes(size - 8))

        publisher = threading.Thread(target=publish)
        publisher.start()
        wait_until(lambda: broker.call(lambda: not connection._transport.is_reading()), what="the socket to be paused")
        broker.release("q")
        publisher.join(LIMIT_S)
        wait_until(lambda: broker.count("q") == count, what="all messages in the queue")
        wait_until(lambda: broker.call(lambda: connection._transport.is_reading()), what="the socket to be read again")
        client.ask(BasicConsume("q", no_ack=True), BasicConsumeOk)
        for number in range(count):
            client.expect(BasicDeliver)
            assert client.read_content().body[:8] == b"%08d" % number


def test_a_consumer_over_tls_that_does_not_read_is_not_written_to_without_end(
    start: Start, authority: Authority
) -> None:
    broker = start()
    count, size = 400, 100_000
    with raw(broker.tls_port, authority.client_context()).handshake(name="consumer").open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        with RawClient(broker.port).handshake().open() as publisher:
            for number in range(count):
                publisher.publish("q", b"%08d" % number + bytes(size - 8))
            publisher.close()
        wait_until(lambda: broker.count("q") == count)
        client.ask(BasicConsume("q", no_ack=True), BasicConsumeOk)
        connection = broker.call(lambda: broker.connection("consumer"))
        wait_until(lambda: broker.call(lambda: connection.outbox.socket_full), what="the socket to be full")
        assert broker.count("q") > count // 4, "most of it waits in the queue, not in buffers"
        for number in range(count):
            client.expect(BasicDeliver)
            assert client.read_content().body[:8] == b"%08d" % number


# Who is refused, and what the log says.


@contextmanager
def no_deprecation() -> Iterator[None]:
    """Python warns of the old versions, which is the point here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def old_context(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = authority.client_context()
    with no_deprecation():
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")  # or OpenSSL would not even offer them
    return context


@pytest.mark.parametrize(
    ("minimum", "version"),
    [
        ("1.2", ssl.TLSVersion.TLSv1),
        ("1.2", ssl.TLSVersion.TLSv1_1),
        ("1.3", ssl.TLSVersion.TLSv1_2),
    ],
    ids=str,
)
def test_an_old_version_of_tls_is_refused(
    start: Start, authority: Authority, minimum: str, version: ssl.TLSVersion
) -> None:
    broker = start(tls_minimum=minimum)
    with pytest.raises(OSError):
        raw(broker.tls_port, old_context(authority, version))
    assert "the client's TLS version is below tls.minimum" in wait_for_log(broker, "TLS handshake failed")


def is_turned_away(port: int, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns that its certificate is refused only after its own handshake."""
    try:
        with raw(port, context) as client:
            client.send_bytes(PROTOCOL_HEADER)
            return client.expect_gone() == b""
    except OSError:
        return True


def test_a_client_without_the_required_certificate_is_refused(start: Start, authority: Authority) -> None:
    broker = start(tls_client_certificates="required", tls_ca=str(authority.ca))
    assert is_turned_away(broker.tls_port, authority.client_context())
    assert "the client gave no certificate" in wait_for_log(broker, "TLS handshake failed")


def test_a_certificate_of_a_stranger_is_refused(start: Start, authority: Authority, own: Authority) -> None:
    broker = start(tls_client_certificates="optional", tls_ca=str(authority.ca))
    assert is_turned_away(broker.tls_port, authority.client_context(own.sign("anna")))
    assert "the client's certificate is refused" in wait_for_log(broker, "TLS handshake failed")


def test_a_client_that_does_not_trust_the_broker_leaves_a_line(start: Start, own: Authority) -> None:
    broker = start()
    with pytest.raises(ssl.SSLCertVerificationError):
        raw(broker.tls_port, own.client_context())
    assert "the client does not know who signed our certificate" in wait_for_log(broker, "TLS handshake failed")


def test_plain_amqp_on_the_tls_port_is_named_so(start: Start) -> None:
    broker = start()
    with RawClient(broker.tls_port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect_gone()
    assert "not TLS: plain AMQP belongs to the other port" in wait_for_log(broker, "TLS handshake failed")


def test_tls_on_the_plain_port_is_answered_with_the_protocol_and_logged(start: Start, authority: Authority) -> None:
    broker = start()
    with pytest.raises(ssl.SSLError):
        raw(broker.port, authority.client_context())
    assert 'hint="TLS on the plain port"' in wait_for_log(broker, "not AMQP 0-9-1")


def test_a_client_that_says_nothing_is_closed_when_its_time_is_up(start: Start) -> None:
    broker = start(limits_handshake_timeout_s="0.2")
    with RawClient(broker.tls_port) as client:
        client.expect_gone()
    assert 'reason="handshake timeout"' in wait_for_log(broker, "TLS handshake failed")


def test_a_client_that_only_speaks_tls_is_closed_when_its_time_is_up(start: Start, authority: Authority) -> None:
    broker = start(limits_handshake_timeout_s="2")  # time enough for the handshake of TLS itself
    with raw(broker.tls_port, authority.client_context()) as client:
        client.expect_gone()
    assert "handshake timeout" in wait_for_log(broker, "warning handshake timeout")
    wait_until(lambda: not broker.call(broker.connections))


def test_the_limit_on_connections_holds_for_both_ports_together(start: Start, authority: Authority) -> None:
    broker = start(limits_connections="3")
    context = authority.client_context()
    with ExitStack() as stack:
        stack.enter_context(RawClient(broker.port)).handshake()
        stack.enter_context(raw(broker.tls_port, context)).handshake()
        silent = stack.enter_context(RawClient(broker.tls_port))  # its handshake counts, or silence would be free
        wait_until(lambda: broker.call(lambda: broker.server.listener and broker.server.listener._handshakes))
        for port in (broker.port, broker.tls_port):
            with RawClient(port) as one_too_many:
                one_too_many.expect_gone()
        assert broker.log.count("3 connections are the limit") == 2
        silent.close_socket()
        wait_for_log(broker, "TLS handshake failed")
        stack.enter_context(raw(broker.tls_port, context)).handshake()


# Client certificates and EXTERNAL.


@pytest.mark.parametrize(
    ("user_from", "user"),
    [("common_name", "anna"), ("distinguished_name", "CN=anna,O=Mill"), ("subject_alternative_name_email", "a@b.at")],
)
def test_a_client_logs_in_by_its_certificate(start: Start, authority: Authority, user_from: str, user: str) -> None:
    broker = start(tls_client_certificates="optional", tls_ca=str(authority.ca), tls_user_from=user_from)
    add_user(broker, user)
    anna = authority.sign("anna", "/O=Mill/CN=anna", "email:a@b.at")
    external = pika.credentials.ExternalCredentials()
    connection = pika.BlockingConnection(parameters(broker.tls_port, authority.client_context(anna), external))
    connection.channel().queue_declare("q")
    (inside,) = broker.call(broker.connections)
    assert (inside.user, inside.certificate_user) == (user, user)
    connection.close()


def test_a_certificate_of_nobody_we_know_is_refused_by_external(start: Start, authority: Authority) -> None:
    broker = start(tls_client_certificates="optional", tls_ca=str(authority.ca), tls_user_from="common_name")
    anna = authority.sign("anna")
    external = pika.credentials.ExternalCredentials()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters(broker.tls_port, authority.client_context(anna), external))


def test_without_a_certificate_external_is_not_offered_and_a_password_still_counts(
    start: Start, authority: Authority
) -> None:
    broker = start(tls_client_certificates="optional", tls_ca=str(authority.ca))
    external = pika.credentials.ExternalCredentials()
    with pytest.raises(pika.exceptions.AuthenticationError):
        pika.BlockingConnection(parameters(broker.tls_port, authority.client_context(), external))
    pika.BlockingConnection(parameters(broker.tls_port, authority.client_context())).close()


def add_user(broker: LiveBroker, name: str) -> None:
    secret = new_secret("not used")

    def add() -> None:
        broker.inside.users.put_user(name, secret)
        broker.inside.users.set_permission(name, "/", ".*", ".*", ".*")

    broker.call(add)


# Renewal.


def shown_serial(client: RawClient) -> str:
    """Of the certificate that the broker showed this client."""
    assert isinstance(client.socket, ssl.SSLSocket)
    certificate = client.socket.getpeercert()
    assert certificate
    return str(certificate["serialNumber"])


class TlsProcess:
    """`penstock serve` with a TLS port and a certificate that the test may change."""

    def __init__(self, serve_process: Callable[..., ServeProcess], authority: Authority, *arguments: str) -> None:
        self.authority = authority
        self.server = authority.sign("server")
        files = [f"{name}={value}" for name, value in tls_settings(self.server).items()]
        sets = [word for pair in files for word in ("--set", pair)]
        self.serve = serve_process("--listen-tls", "127.0.0.1:0", *sets, *arguments)
        self.port = int(self.serve.ready_line.rsplit(":", 1)[1])

    def connect(self) -> RawClient:
        return raw(self.port, self.authority.client_context()).handshake().open()

    def serial(self) -> str:
        with self.connect() as client:
            return shown_serial(client)


def test_a_hang_up_signal_renews_the_certificate_and_old_connections_live_on(
    serve_process: Callable[..., ServeProcess], own: Authority
) -> None:
    process = TlsProcess(serve_process, own)
    with process.connect() as old:
        before = shown_serial(old)
        own.sign("server")
        process.serve.process.send_signal(signal.SIGHUP)
        process.serve.wait_for_log("certificate reloaded")
        assert process.serial() != before
        old.ask(QueueDeclare("q"), QueueDeclareOk)

        now = process.serial()
        process.server.certificate.write_text("torn")
        process.serve.process.send_signal(signal.SIGHUP)
        # The broker looks by itself too, and may have met the new files half written: that is another line.
        assert "the old one stays in force" in process.serve.wait_for_log("holds no certificate")
        assert process.serial() == now
        old.ask(QueueDeclare("q"), QueueDeclareOk)
    assert process.serve.terminate() == 0
    assert "Traceback" not in process.serve.log


def test_a_changed_file_renews_the_certificate_by_itself(
    serve_process: Callable[..., ServeProcess], own: Authority
) -> None:
    process = TlsProcess(serve_process, own)
    before = process.serial()
    own.sign("server")
    wait_until(lambda: process.serial() != before, what="the new certificate to be in force")


# The process.


def test_the_ready_line_names_both_ports(serve_process: Callable[..., ServeProcess], own: Authority) -> None:
    process = TlsProcess(serve_process, own)
    assert process.serve.ready_line == f"ready: amqp 127.0.0.1:{process.serve.port}, amqps 127.0.0.1:{process.port}\n"
    assert f"amqps=127.0.0.1:{process.port}" in process.serve.wait_for_log("listening")


def test_a_stop_tells_tls_clients_and_does_not_wait_for_silent_ones(
    serve_process: Callable[..., ServeProcess], own: Authority
) -> None:
    process = TlsProcess(serve_process, own, "--set", "limits.handshake_timeout_s=3600")
    with process.connect() as client, RawClient(process.port):
        process.serve.process.send_signal(signal.SIGTERM)
        assert client.expect_connection_close().reply_code == 320
        client.close_socket()
        assert process.serve.process.wait(LIMIT_S) == 0
    assert "Traceback" not in process.serve.log


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_failed_handshakes_are_one_warning_each_and_nothing_else_on_either_loop(
    serve_process: Callable[..., ServeProcess], own: Authority, tmp_path: Path, loop: str
) -> None:
    environment = {}
    if loop == "asyncio":  # as if uvloop were not installed
        (tmp_path / "uvloop.py").write_text("raise ImportError('hidden by the test')\n")
        environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{serve_environment()['PYTHONPATH']}"
    files = [word for name, value in tls_settings(own.sign("server")).items() for word in ("--set", f"{name}={value}")]
    serve = serve_process("--listen-tls", "127.0.0.1:0", *files, environment=environment)
    assert f"loop={loop}" in serve.wait_for_log("listening")
    port = int(serve.ready_line.rsplit(":", 1)[1])
    for said in (PROTOCOL_HEADER, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100):
        with RawClient(port) as client:
            client.send_bytes(said)
            client.expect_gone()
    with pytest.raises(OSError):
        raw(port, old_context(own, ssl.TLSVersion.TLSv1_1))
    with pytest.raises(ssl.SSLError):
        raw(port, ssl.create_default_context())
    socket.create_connection(("127.0.0.1", port)).close()
    # One that breaks off in the middle of AMQP, without TLS's goodbye.
    with raw(port, own.client_context()).handshake() as client:
        client.socket.close()
    failures = 7
    wait_until(lambda: serve.log.count("TLS handshake failed") == failures)
    serve.wait_for_log("connection lost")
    assert serve.terminate() == 0
    strange = [line for line in serve.log.splitlines() if not line.startswith("20") or " error " in line]
    assert strange == []
    assert serve.log.count(" warning TLS handshake failed") == failures


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--listen-tls", "127.0.0.1:0"], "tls.certificate is not set"),
        (["--listen-tls", "nowhere"], "is not an address host:port"),
        (["--set", "tls.certificate=none.pem"], "tls.certificate none.pem: No such file or directory"),
        (["--set", "tls.minimum=1.1"], "setting tls.minimum: '1.1' is none of 1.2, 1.3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line_and_a_failing_exit(tmp_path: Path, arguments: list[str], text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env=serve_environment(),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_tls_port_that_is_taken_is_named(serve_process: Callable[..., ServeProcess], own: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        files = [
            word for name, value in tls_settings(own.sign("server")).items() for word in ("--set", f"{name}={value}")
        ]
        serve = serve_process("--listen-tls", f"127.0.0.1:{port}", *files)
        assert serve.ready_line == ""
        assert serve.process.wait(LIMIT_S) == 1
    assert f"penstock: cannot listen on 127.0.0.1:{port}: Address already in use" in serve.log
