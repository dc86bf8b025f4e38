"""Who may do what, as clients see it: logins that take their time, permissions, limits, vhosts that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pika.exceptions
import pytest

from penstock.amqp.frame import PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicGet,
    BasicGetOk,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
    QueueDeclareOk,
    encode_method,
)
from penstock.amqp.properties import Properties
from penstock.broker.password import Secret, known_secret, new_secret
from penstock.broker.users import Users
from penstock.net.login import FIRST_DELAY_S
from tests.wire.live import LiveBroker
from tests.wire.raw import CAPABILITIES, RawClient, publish_bytes
from tests.wire.waiting import wait_until

SECRET = new_secret("pw")  # once: it is slow


@pytest.fixture
def alice(broker: LiveBroker) -> LiveBroker:
    """A broker with a user whose password is hashed as new ones are."""
    add_user(broker, "alice", SECRET)
    return broker


def change(broker: LiveBroker, function: Callable[[Users], None]) -> None:
    broker.call(lambda: function(broker.inside.users))


def add_user(broker: LiveBroker, name: str, secret: Secret) -> None:
    change(broker, lambda users: users.put_user(name, secret))
    change(broker, lambda users: users.set_permission(name, "/", ".*", ".*", ".*"))


def connect(broker: LiveBroker, vhost: str = "/") -> RawClient:
    return RawClient(broker.port).handshake(user=b"alice", password=b"pw", vhost=vhost)


def login(client: RawClient, user: bytes, password: bytes) -> None:
    client.send_bytes(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.send(ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0" + user + b"\0" + password, "en_US"), 0)


# Logging in.


def test_a_user_with_a_slow_hash_logs_in(alice: LiveBroker) -> None:
    with connect(alice) as client:
        client.open().ask(QueueDeclare("q"), QueueDeclareOk)
    with connect(alice) as client:  # by now the password is known
        client.open().ask(QueueDeclare("q"), QueueDeclareOk)


def test_a_handshake_in_one_packet_waits_for_the_login_in_order(alice: LiveBroker) -> None:
    with RawClient(alice.port) as client:
        client.send_bytes(
            PROTOCOL_HEADER
            + encode_method(ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0alice\0pw", "en_US"), 0)
            + encode_method(ConnectionTuneOk(2047, 131072, 0), 0)
            + encode_method(ConnectionOpen("/"), 0)
            + encode_method(ChannelOpen(), 1)
            + encode_method(QueueDeclare("q"), 1)
            + publish_bytes("q", b"first")
            + encode_method(BasicGet("q", True), 1)
        )
        client.expect(ConnectionStart, 0)
        client.expect(ConnectionTune, 0)
        client.expect(ConnectionOpenOk, 0)
        client.expect(ChannelOpenOk)
        client.expect(QueueDeclareOk)
        client.expect(BasicGetOk)
        assert client.read_content().body == b"first"


def test_a_handshake_that_comes_byte_by_byte_waits_for_the_login_too(alice: LiveBroker) -> None:
    with RawClient(alice.port) as client:
        login(client, b"alice", b"pw")
        rest = encode_method(ConnectionTuneOk(2047, 131072, 0), 0) + encode_method(ConnectionOpen("/"), 0)
        for byte in rest:
            client.send_bytes(bytes([byte]))
        client.expect(ConnectionTune, 0)
        client.expect(ConnectionOpenOk, 0)


def test_a_client_that_hangs_up_while_its_login_is_checked_leaves_nothing_behind(alice: LiveBroker) -> None:
    for _ in range(5):
        client = RawClient(alice.port)
        login(client, b"alice", b"wrong")
        client.close_socket()
    wait_until(lambda: not alice.connections())
    with connect(alice) as client:
        client.open()


def test_a_client_that_pipelines_and_hangs_up_is_let_go(alice: LiveBroker) -> None:
    client = RawClient(alice.port)
    login(client, b"alice", b"pw")
    client.send(ConnectionTuneOk(2047, 131072, 0), 0)
    client.close_socket()
    wait_until(lambda: not alice.connections())


def test_the_first_wrong_password_is_answered_soon_and_repeated_ones_later(alice: LiveBroker) -> None:
    took: list[float] = []
    for _ in range(4):
        with RawClient(alice.port) as client:
            start = time.monotonic()
            login(client, b"alice", b"wrong")
            close = client.expect(ConnectionClose, 0)
            took.append(time.monotonic() - start)
            assert close.reply_text == (
                "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
                "For details see the broker logfile."
            )
    assert took[0] >= FIRST_DELAY_S  # how soon, with a clock that a busy machine does not move: unit/net/test_login.py
    assert took[3] >= 8 * FIRST_DELAY_S
    assert alice.log.count("login failed") == 4


def test_who_fails_does_not_slow_down_who_does_not(alice: LiveBroker) -> None:
    failing = [RawClient(alice.port) for _ in range(6)]
    for client in failing:
        login(client, b"alice", b"wrong")
    with connect(alice) as client:
        client.open()
    wait_until(lambda: alice.log.count("login failed") == 6)
    for client in failing:
        client.close_socket()


@pytest.mark.parametrize("broker", [{"limits.handshake_timeout_s": "2"}], indirect=True)
def test_the_handshake_timeout_counts_while_an_answer_waits(alice: LiveBroker) -> None:
    clients = []
    for _ in range(6):  # the last answer would wait for 3 s
        clients.append(RawClient(alice.port))
        login(clients[-1], b"alice", b"wrong")
    wait_until(lambda: "handshake timeout" in alice.log)
    for client in clients:
        client.expect_gone()
        client.close_socket()


def test_pika_is_told_of_a_wrong_password(alice: LiveBroker) -> None:
    parameters = pika.URLParameters(f"amqp://alice:wrong@127.0.0.1:{alice.port}/%2F")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_a_changed_password_counts_at_once_and_open_connections_stay(alice: LiveBroker) -> None:
    with connect(alice) as client:
        change(alice, lambda users: users.change_password("alice", known_secret("new")))
        with RawClient(alice.port) as other:
            login(other, b"alice", b"pw")
            assert other.expect(ConnectionClose, 0).reply_code == 403
        with RawClient(alice.port).handshake(user=b"alice", password=b"new") as other:
            other.open()
        client.open()


def test_update_secret_is_answered(alice: LiveBroker) -> None:
    with connect(alice) as client:
        client.ask(ConnectionUpdateSecret(b"new", "the token expires"), ConnectionUpdateSecretOk, 0)


def test_external_is_neither_offered_nor_taken_without_a_certificate(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        assert client.expect(ConnectionStart, 0).mechanisms == b"PLAIN AMQPLAIN"
        client.send(ConnectionStartOk(CAPABILITIES, "EXTERNAL", b"guest", "en_US"), 0)
        client.expect_gone()
    assert "mechanism 'EXTERNAL'" in broker.log


# Permissions.


def test_a_permission_taken_away_counts_from_the_next_method_on(alice: LiveBroker) -> None:
    with connect(alice).open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        client.publish("q", b"")
        wait_until(lambda: alice.count("q") == 1)
        change(alice, lambda users: users.set_permission("alice", "/", "", "", ".*"))
        client.publish("q", b"")
        close = client.expect_channel_close()
        assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 40)
        assert close.reply_text == (
            "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'alice'"
        )
        client.open()
        client.send(QueueDeclare("new"))
        assert client.expect(ChannelClose).reply_text == (
            "ACCESS_REFUSED - configure access to queue 'new' in vhost '/' refused for user 'alice'"
        )
    assert alice.count("q") == 1


def test_only_an_impersonator_may_set_anothers_user_id(alice: LiveBroker) -> None:
    with connect(alice).open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        client.publish("q", b"", properties=Properties(user_id="bob"))
        assert client.expect_channel_close().reply_code == 406
        change(alice, lambda users: users.set_tags("alice", ["impersonator"]))
        client.open()
        client.publish("q", b"", properties=Properties(user_id="bob"))
        wait_until(lambda: alice.count("q") == 1)


# Limits, vhosts, operators.


def opening_refused(broker: LiveBroker, vhost: str = "/") -> str:
    with RawClient(broker.port) as client:
        login(client, b"alice", b"pw")
        client.expect(ConnectionTune, 0)
        client.send(ConnectionTuneOk(2047, 131072, 0), 0)
        client.send(ConnectionOpen(vhost), 0)
        close = client.expect_connection_close()
        assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)
        return close.reply_text


def test_a_user_has_so_many_connections_and_may_reconnect_after_one_ended(alice: LiveBroker) -> None:
    change(alice, lambda users: users.set_limits("alice", {"max-connections": 1}))
    first = connect(alice)
    assert opening_refused(alice) == (
        "NOT_ALLOWED - connection refused for user 'alice': user connection limit (1) is reached"
    )
    first.close()
    second = connect(alice)
    second.close_socket()  # without a word
    wait_until(lambda: not alice.connections())
    connect(alice).close()


def test_a_user_has_so_many_channels_and_may_open_others_after_closing(alice: LiveBroker) -> None:
    change(alice, lambda users: users.set_limits("alice", {"max-channels": 2}))
    with connect(alice).open(1) as one, connect(alice).open(1) as two:
        two.send(ChannelOpen(), 2)
        close = two.expect_connection_close()
        assert close.reply_code == 530
        assert "channels opened for user 'alice' has reached the maximum allowed user limit of (2)" in close.reply_text
        one.open(2)


def test_connections_work_in_any_vhost_they_may_enter(alice: LiveBroker) -> None:
    alice.call(lambda: alice.inside.add_vhost("v"))
    assert opening_refused(alice, "v") == "NOT_ALLOWED - access to vhost 'v' refused for user 'alice'"
    change(alice, lambda users: users.set_permission("alice", "v", ".*", ".*", ".*"))
    with connect(alice, "v").open() as there, connect(alice).open() as here:
        there.ask(QueueDeclare("q"), QueueDeclareOk)
        here.send(QueueDeclare("q", passive=True))
        assert here.expect_channel_close().reply_code == 404


def test_a_deleted_vhost_and_a_deleted_user_close_their_connections(alice: LiveBroker) -> None:
    alice.call(lambda: alice.inside.add_vhost("v"))
    change(alice, lambda users: users.set_permission("alice", "v", ".*", ".*", ".*"))
    with connect(alice, "v").open() as there, connect(alice).open() as here:
        there.ask(QueueDeclare("q", exclusive=True), QueueDeclareOk)
        there.ask(QueueDeclare("other"), QueueDeclareOk)
        alice.call(lambda: alice.inside.delete_vhost("v"))
        close = there.expect_connection_close()
        assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
        here.ask(QueueDeclare("q"), QueueDeclareOk)
        change(alice, lambda users: users.delete_user("alice"))
        close = here.expect_connection_close()
        assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'alice' is deleted")
    wait_until(lambda: len(alice.inside.peers) == 0)


def test_without_the_default_vhost_the_others_are_there(alice: LiveBroker) -> None:
    alice.call(lambda: alice.inside.add_vhost("v"))
    change(alice, lambda users: users.set_permission("alice", "v", ".*", ".*", ".*"))
    alice.call(lambda: alice.inside.delete_vhost("/"))
    assert opening_refused(alice) == "NOT_ALLOWED - vhost / not found"
    with connect(alice, "v") as client:
        client.open()
