"""A whole connection on a transport that a test holds in its hands: what fuzzing found, as named cases."""

from __future__ import annotations

from fuzz.sessions import LOGIN, said
from fuzz.target import Client
from penstock.amqp.method import ConnectionClose, QueueDeclare, TxCommit, TxSelect
from penstock.net.connection import LINGER_S
from tests.unit.fakes import House


def test_a_client_that_closes_and_never_reads_is_cut_off_in_the_end() -> None:
    client = Client(House())
    client.feed(LOGIN)
    client.transport.unsent_bytes = 1000
    client.feed(said(0, ConnectionClose(200, "bye")))
    assert client.transport.closing
    client.house.clock.advance(LINGER_S + 1)
    assert client.transport.aborted


def test_methods_that_wait_behind_parked_publishes_pause_the_socket() -> None:
    house = House("2,1")
    peer = house.peer(parked_bytes_max=1000)
    channel = peer.open()
    house.queue("q")
    peer.ask(1, TxSelect())
    channel.mailbox.hold()
    peer.publish_singly(1, "q", 20)
    for _ in range(10):
        peer.tell(1, TxCommit())
    assert peer.is_paused


def test_a_close_behind_an_error_in_one_read_is_answered() -> None:
    client = Client(House())
    client.feed(LOGIN)
    client.feed(said(1, QueueDeclare("q")) + said(0, ConnectionClose(200, "bye")))
    assert [one.method.NAME for one in client.said()][-2:] == ["connection.close", "connection.close-ok"]
