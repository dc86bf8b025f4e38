"""A broker inside another program: penstock.Broker in an event loop, penstock.BrokerThread beside blocking code."""

from __future__ import annotations

import asyncio
import io
import socket
import subprocess
import sys
import threading
from pathlib import Path

import aio_pika
import pika
import pytest

import penstock
from penstock import Broker, BrokerThread, StartError
from tests.wire.certificates import Authority, needs_openssl
from tests.wire.live import serve_environment
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


def publish(uri: str, queue: str, *bodies: bytes, durable: bool = False) -> None:
    """Declare, publish with confirms, close."""
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=durable)
    for body in bodies:
        channel.basic_publish("", queue, body)
    connection.close()


# Importing.


def test_importing_penstock_imports_neither_the_broker_nor_asyncio() -> None:
    code = "import sys, penstock; print(penstock.__version__, *sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=serve_environment()
    )
    version, *modules = done.stdout.split()
    assert version == penstock.__version__
    assert [name for name in modules if name.startswith("penstock")] == ["penstock"]
    assert not {"asyncio", "ssl", "uvloop", "pytest"} & set(modules)


def test_the_broker_is_imported_without_pytest_and_the_command_line() -> None:
    code = "import sys, penstock; penstock.Broker; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=serve_environment()
    )
    assert not {"pytest", "typer", "rich", "penstock.cli"} & set(done.stdout.split())


def test_what_penstock_has_is_listed_and_nothing_else_is_there() -> None:
    assert {"Broker", "BrokerThread", "StartError", "__version__"} <= set(dir(penstock))
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'Borker'"):
        penstock.Borker  # noqa: B018 - the look-up is what is tested


# In an event loop.


def test_a_broker_runs_in_the_event_loop_of_its_program(log: io.StringIO) -> None:
    async def program() -> tuple[bytes, int, int]:
        async with Broker(log=log) as broker:
            connection = await aio_pika.connect(broker.uri)
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            depth, clients = broker.queue_depth("q"), len(broker.connections)
            message = await queue.get(no_ack=True, timeout=LIMIT_S)
            await connection.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(broker.host, broker.port)
        return message.body, depth, clients

    assert asyncio.run(program()) == (b"hello", 1, 1)
    assert " crash " not in log.getvalue()


def test_it_gives_the_loop_back_clean(log: io.StringIO) -> None:
    async def program() -> int:
        before = asyncio.all_tasks()
        async with Broker(log=log) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
        assert await reader.read() == b""
        writer.close()
        return len(asyncio.all_tasks() - before)

    assert asyncio.run(program(), debug=True) == 0


def test_users_and_vhosts_can_be_added(log: io.StringIO) -> None:
    async def program() -> list[tuple[str, str]]:
        async with Broker(log=log) as broker:
            broker.add_vhost("a/b")
            await broker.add_user("änna", "p@ss/wörd", "a/b")
            mine = await aio_pika.connect(broker.url_for("änna", "p@ss/wörd", "a/b"))
            guest = await aio_pika.connect(broker.url_for(vhost="a/b"))
            await (await mine.channel()).declare_queue("q")
            assert broker.queue_depth("q", "a/b") == 0
            clients = [(one.user, one.vhost) for one in broker.connections]
            await mine.close()
            await guest.close()
            return clients

    assert asyncio.run(program()) == [("änna", "a/b"), ("guest", "a/b")]


def test_settings_may_be_numbers_and_pairs(log: io.StringIO) -> None:
    settings = {"limits.channel_max": 7, "credit.channel_queue": (10, 5), "log.level": "warning"}

    async def program() -> int:
        async with Broker(settings, log=log) as broker:
            config = broker.server.config
            assert str(config.spec("credit.channel_queue").initial) == "10"
            return config.integer("limits.channel_max")

    assert asyncio.run(program()) == 7
    assert log.getvalue() == ""


# What goes wrong at the start.


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"limits.chanel_max": 1}, "no setting 'limits.chanel_max'; docs/settings.md lists them"),
        ({"limits.channel_max": 0}, "setting limits.channel_max: 0 is out of range: 1 to 65535"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(settings: dict[str, object], text: str) -> None:
    with pytest.raises(StartError, match=f"^{text}$"):
        BrokerThread(settings).start()


def test_a_port_that_is_taken_is_one_clear_error_and_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"^cannot listen on 127.0.0.1:{port}: Address already in use$"):
            BrokerThread(port=port).start()
    assert not set(threading.enumerate()) - before


def test_tls_without_a_certificate_is_one_clear_error() -> None:
    with pytest.raises(StartError, match=r"^tls\.certificate is not set"):
        BrokerThread(tls_port=0).start()


def test_a_broker_that_does_not_run_says_so() -> None:
    with pytest.raises(StartError, match="the broker is not running"):
        BrokerThread().queue_depth("q")


# In a thread.


def test_a_thread_serves_blocking_code(log: io.StringIO) -> None:
    before = set(threading.enumerate())
    with BrokerThread(log=log) as broker:
        publish(broker.uri, "q", b"1", b"2")
        assert broker.queue_depth("q") == 2
        with pytest.raises(LookupError, match="no queue 'other' in vhost '/'"):
            broker.queue_depth("other")
        with pytest.raises(LookupError, match="no vhost 'other'"):
            broker.queue_depth("q", "other")
        broker.add_vhost("other")
        broker.add_user("anna", "secret", "other")
        publish(broker.url_for("anna", "secret", "other"), "q", b"1")
        assert broker.queue_depth("q", "other") == 1
    assert not set(threading.enumerate()) - before
    assert " crash " not in log.getvalue()


def test_purging_drops_what_is_ready(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        publish(broker.uri, "a", b"1", b"2")
        publish(broker.uri, "b", b"1")
        assert broker.purge("a") == 2
        assert (broker.queue_depth("a"), broker.queue_depth("b")) == (0, 1)
        publish(broker.uri, "a", b"3")
        assert broker.purge() == 2
        assert (broker.queue_depth("a"), broker.queue_depth("b")) == (0, 0)
        publish(broker.uri, "a", b"4")
        assert broker.queue_depth("a") == 1


def test_waiting_for_messages_ends_when_they_are_there_or_says_what_was_there_instead(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        publisher = threading.Thread(target=publish, args=(broker.uri, "q", b"1", b"2"))
        publisher.start()
        broker.wait_for_depth("q", 2, timeout_s=LIMIT_S)
        publisher.join()
        with pytest.raises(TimeoutError, match=r"queue 'q': 2 messages after 0\.01 s, 3 were expected"):
            broker.wait_for_depth("q", 3, timeout_s=0.01)
        with pytest.raises(TimeoutError, match="queue 'none': no such queue"):
            broker.wait_for_depth("none", 0, timeout_s=0.01)


def test_cut_connections_end_without_a_word(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker, RawClient(broker.port).handshake(name="mine") as client:
        (one,) = broker.connections
        assert one.name.endswith(" mine")
        assert (one.user, one.vhost) == ("guest", "/")
        assert broker.cut_connections() == 1
        assert client.expect_gone() == b""
        wait_until(lambda: broker.connections == [])


def test_a_restart_comes_back_on_the_same_port_with_what_is_durable(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        publish(broker.uri, "durable", b"kept", durable=True)
        publish(broker.uri, "transient", b"lost")
        port = broker.port
        connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
            connection.process_data_events(LIMIT_S)
        broker.start()
        assert broker.port == port
        assert broker.queue_depth("durable") == 1
        with pytest.raises(LookupError):
            broker.queue_depth("transient")
        publish(broker.uri, "durable", b"more", durable=True)
        assert broker.queue_depth("durable") == 2


def test_stopping_twice_and_starting_twice_is_no_mistake(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        broker.start()
        broker.stop()
        broker.stop()
        broker.start()
        publish(broker.uri, "q", b"1")
    broker.close()


def test_a_restart_that_finds_its_port_taken_can_be_tried_again(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        broker.stop()
        with socket.create_server(("127.0.0.1", broker.port)), pytest.raises(StartError, match="in use"):
            broker.start()
        broker.start()
        publish(broker.uri, "q", b"1")


def test_a_stop_does_not_wait_for_a_client_that_cannot_answer(log: io.StringIO) -> None:
    with BrokerThread(log=log) as broker:
        # Its thread is this one, which waits for the broker.
        connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
        broker.stop()
        assert "clients did not answer connection.close" in log.getvalue()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.process_data_events(LIMIT_S)


def test_two_brokers_know_nothing_of_each_other(log: io.StringIO) -> None:
    with BrokerThread(log=log) as one, BrokerThread(log=log) as other:
        publish(one.uri, "q", b"1")
        assert one.port != other.port
        with pytest.raises(LookupError):
            other.queue_depth("q")


def test_with_a_data_directory_what_is_durable_outlives_the_broker(log: io.StringIO, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data=data, log=log) as broker:
        broker.add_user("anna", "secret")
        publish(broker.uri, "durable", durable=True)
    with BrokerThread(data=data, log=log) as broker:
        assert broker.queue_depth("durable") == 0
        publish(broker.url_for("anna", "secret"), "durable", durable=True)


def test_a_data_directory_that_another_broker_has_is_one_clear_error(log: io.StringIO, tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path, log=log), pytest.raises(StartError, match=str(tmp_path)):
        BrokerThread(data=tmp_path, log=log).start()


@needs_openssl
def test_a_restart_opens_the_tls_port_again_too(log: io.StringIO, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    settings = {"tls.certificate": server.certificate, "tls.key": server.key}
    with BrokerThread(settings, tls_port=0, log=log) as broker:
        port = broker.tls_port
        broker.stop()
        broker.start()
        assert broker.tls_port == port
        options = pika.SSLOptions(authority.client_context(), "localhost")
        parameters = pika.URLParameters(broker.tls_url_for())
        parameters.ssl_options = options
        pika.BlockingConnection(parameters).close()
