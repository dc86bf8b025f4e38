"""Under an alarm: what a connection's reader parks, what it serves, what the client is told, and how it all ends.

Whole connections on a transport that the test holds, or a FakePeer where only the reader matters.
"""

from __future__ import annotations

import pytest

from fuzz.sessions import CHANNEL_MAX, FRAME_MAX, publish, said, start_ok
from fuzz.target import Client
from penstock.amqp.decoder import Oversize
from penstock.amqp.frame import HEARTBEAT_FRAME, PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicConsume,
    BasicGet,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionTuneOk,
    QueueDeclare,
    QueuePurge,
    TxCommit,
    TxSelect,
)
from penstock.broker.alarms import DISK, MEMORY, PUSH_BYTES_MAX, STORE, Thresholds
from penstock.broker.channel import CLOSED
from penstock.net.blocked import FLOW_NOTICE_S
from tests.unit.fakes import FakePeer, House

REASON = "low on memory: 812 MB used of 800 MB"


class Site:
    """A house with queue q, and whole connections to it."""

    def __init__(self, credit: str = "400,200") -> None:
        self.house = House(credit)
        self.alarms = self.house.broker.alarms
        self.queue = self.house.queue("q")

    def client(self, *capabilities: str, heartbeat_s: int = 0) -> Client:
        client = Client(self.house)
        start = start_ok(properties={"capabilities": dict.fromkeys(capabilities, True)})
        tune = said(0, ConnectionTuneOk(CHANNEL_MAX, FRAME_MAX, heartbeat_s), ConnectionOpen("/"))
        client.feed(PROTOCOL_HEADER + start + tune + said(1, ChannelOpen()))
        client.transport.written.clear()
        return client

    def count(self) -> int:
        self.house.run_until_idle()
        return self.queue.count()

    def spend_allowance(self) -> None:
        """What may be pushed in this episode has been pushed, by others."""
        assert self.alarms.admit(PUSH_BYTES_MAX)


def heard(client: Client) -> list[str]:
    """What came since the last look."""
    client.house.run_until_idle()
    names = [one.method.NAME for one in client.said()]
    client.transport.written.clear()
    return names


def last_words(client: Client) -> tuple[int, str]:
    client.house.run_until_idle()
    (close,) = [one.method for one in client.said() if isinstance(one.method, ConnectionClose)]
    return close.reply_code, close.reply_text


# Blocking.


def test_a_connection_blocks_at_its_first_publish_after_the_alarm_began_and_says_why() -> None:
    site = Site()
    client = site.client("connection.blocked")
    client.feed(publish(1, b"before"))
    site.alarms.raise_alarm(MEMORY, REASON)
    assert heard(client) == []
    assert client.connection.flow_state() == "blocking"
    client.feed(publish(1, b"first"))
    (blocked,) = [one.method for one in client.said()]
    assert blocked == ConnectionBlocked(REASON)
    assert client.connection.flow_state() == "blocked"
    assert site.count() == 1, "the first publish waits too"
    client.transport.written.clear()
    client.feed(publish(1, b"second"))
    assert heard(client) == [], "once per episode"
    site.alarms.clear(MEMORY)
    assert heard(client) == ["connection.unblocked"]
    assert site.count() == 3
    assert client.connection.flow_state() == "flow"
    site.house.clock.advance(1)
    assert client.connection.flow_state() == "running"


def test_a_connection_opened_under_an_alarm_blocks_too() -> None:
    site = Site()
    site.alarms.raise_alarm(MEMORY, REASON)
    client = site.client("connection.blocked")
    assert client.connection.flow_state() == "blocking"
    client.feed(publish(1, b"x"))
    assert heard(client) == ["connection.blocked"]


def test_a_client_that_announced_nothing_is_blocked_without_a_word() -> None:
    site = Site()
    client = site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x"))
    assert site.count() == 0
    site.alarms.clear(MEMORY)
    assert site.count() == 1
    assert heard(client) == []


def test_a_consumer_is_neither_blocked_nor_told() -> None:
    site = Site()
    client = site.client("connection.blocked")
    client.feed(publish(1, b"one") + publish(1, b"two"))
    consumer = site.client("connection.blocked")
    site.alarms.raise_alarm(MEMORY, REASON)
    consumer.feed(said(1, BasicConsume("q", "c", no_ack=True)))
    assert heard(consumer) == ["basic.consume-ok", "basic.deliver", "basic.deliver"]
    assert not consumer.connection.reader.blocked_by  # type: ignore[union-attr]  # it is there: the client is open
    site.alarms.clear(MEMORY)
    assert heard(consumer) == []


def test_what_waited_for_credit_when_the_alarm_began_counts_as_published() -> None:
    house = House("2,1")
    house.queue("q").mailbox.hold()
    peer = house.peer()
    peer.open()
    peer.publish_singly(1, "q", 10)
    house.run_until_idle()
    house.broker.alarms.raise_alarm(DISK, "low on disk")
    assert peer.reader.flow_state() == "blocked"
    house.vhost.queues["q"].mailbox.release()
    house.run_until_idle()
    assert house.vhost.queues["q"].count() == 4, "what was under way arrives, what is parked stays"
    house.broker.alarms.clear(DISK)
    house.run_until_idle()
    assert house.vhost.queues["q"].count() == 10


def test_an_alarm_shows_as_what_blocks_the_reader_and_in_the_log_of_blocks() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    house.broker.alarms.raise_alarm(STORE, "the journal cannot write")
    peer.publish(1, "q", b"x")
    assert list(peer.reader.blocked_by) == ["store alarm"]
    house.clock.advance(3)
    house.broker.alarms.clear(STORE)
    assert not peer.reader.blocked_by
    (block,) = house.broker.activity
    assert (block.stage, block.cause) == ("connection peer", "store alarm")
    assert block.ended_ns - block.started_ns == 3_000_000_000


def test_a_second_alarm_holds_what_the_first_has_let_go() -> None:
    site = Site()
    client = site.client("connection.blocked")
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x"))
    assert heard(client) == ["connection.blocked"]
    site.alarms.raise_alarm(DISK, "low on disk: 40 MB free, limit 50 MB")
    site.alarms.clear(MEMORY)
    assert heard(client) == []
    assert list(client.connection.reader.blocked_by) == ["disk alarm"]  # type: ignore[union-attr]  # as above
    assert site.count() == 0
    site.alarms.clear(DISK)
    assert heard(client) == ["connection.unblocked"]
    assert site.count() == 1


def test_a_second_episode_is_told_again() -> None:
    site = Site()
    client = site.client("connection.blocked")
    for _ in range(2):
        site.alarms.raise_alarm(MEMORY, REASON)
        client.feed(publish(1, b"x"))
        site.alarms.clear(MEMORY)
        assert heard(client) == ["connection.blocked", "connection.unblocked"]


def test_a_reason_of_any_length_fits_the_method() -> None:
    site = Site()
    client = site.client("connection.blocked")
    site.alarms.raise_alarm(STORE, "ü" * 300)
    client.feed(publish(1, b"x"))
    (told,) = [one.method for one in client.said()]
    assert isinstance(told, ConnectionBlocked)
    assert told.reason == "ü" * 126 + "..."


# What is served meanwhile.


def blocked_peer(parked_bytes_max: int = 1 << 20) -> FakePeer:
    house = House()
    house.queue("q")
    peer = house.peer(parked_bytes_max=parked_bytes_max)
    peer.open()
    house.broker.alarms.raise_alarm(MEMORY, REASON)
    peer.publish(1, "q", b"parked")
    assert peer.reader.parked_bytes
    return peer


def test_all_that_is_no_publish_is_served() -> None:
    peer = blocked_peer()
    answers = [method.NAME for method in peer.ask(1, QueueDeclare("other"))]
    answers += [method.NAME for method in peer.ask(1, BasicGet("q"))]
    assert answers == ["queue.declare-ok", "basic.get-empty"]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (ChannelClose(200, "bye"), "channel.close-ok"),
        (ConfirmSelect(), "confirm.select-ok"),
        (QueuePurge("q"), "queue.purge-ok"),
    ],
)
def test_a_close_and_its_like_push_what_is_parked_and_are_answered(method: ChannelClose, answer: str) -> None:
    peer = blocked_peer()
    assert [one.NAME for one in peer.ask(1, method)] == [answer]
    assert peer.reader.parked_bytes == 0


def test_closing_is_no_way_around_an_alarm() -> None:
    peer = blocked_peer()
    alarms = peer.house.broker.alarms
    alarms.admit(PUSH_BYTES_MAX - 10)
    assert peer.ask(1, ChannelClose(200, "bye")) == []
    assert peer.house.vhost.queues["q"].count() == 0
    peer.publish(1, "q", b"after the close, so ignored")
    alarms.clear(MEMORY)
    assert [one.NAME for one in peer.methods()] == ["channel.close-ok"]
    assert peer.house.vhost.queues["q"].count() == 1
    assert peer.reader.parked_bytes == 0
    assert not peer.reader.lanes


def test_a_body_too_large_waits_in_line_when_nothing_more_is_pushed() -> None:
    peer = blocked_peer()
    alarms = peer.house.broker.alarms
    alarms.admit(PUSH_BYTES_MAX)
    peer.reader.receive(Oversize(1, 10, 1))
    assert peer.methods() == []
    alarms.clear(MEMORY)
    assert [one.NAME for one in peer.methods()] == ["channel.close"]
    assert peer.house.vhost.queues["q"].count() == 1


def test_a_wrong_method_takes_along_what_was_published_before_it_if_that_is_admitted() -> None:
    peer = blocked_peer()
    assert [one.NAME for one in peer.ask(1, BasicGet("none"))] == ["channel.close"]
    assert peer.house.vhost.queues["q"].count() == 1
    other = blocked_peer()
    other.house.broker.alarms.admit(PUSH_BYTES_MAX)
    assert [one.NAME for one in other.ask(1, BasicGet("none"))] == ["channel.close"]
    other.house.broker.alarms.clear(MEMORY)
    other.house.run_until_idle()
    assert other.house.vhost.queues["q"].count() == 0
    assert other.reader.parked_bytes == 0


def test_a_commit_waits_with_its_publishes() -> None:
    house = House()
    house.queue("q")
    peer = house.peer()
    peer.open()
    peer.ask(1, TxSelect())
    house.broker.alarms.raise_alarm(MEMORY, REASON)
    peer.publish(1, "q", b"x")
    assert peer.ask(1, TxCommit()) == []
    house.broker.alarms.clear(MEMORY)
    assert [one.NAME for one in peer.methods()] == ["tx.commit-ok"]
    assert house.vhost.queues["q"].count() == 1


def test_a_full_parking_space_pauses_the_socket_until_the_alarm_ends() -> None:
    peer = blocked_peer(parked_bytes_max=1000)
    for _ in range(20):
        peer.publish(1, "q", b"x" * 100)
    assert peer.is_paused
    peer.house.broker.alarms.clear(MEMORY)
    peer.house.run_until_idle()
    assert not peer.is_paused
    assert peer.house.vhost.queues["q"].count() == 21


def test_a_blocked_client_is_sent_heartbeats_and_its_own_are_missed_only_while_they_are_read() -> None:
    site = Site()
    client = site.client("connection.blocked", heartbeat_s=10)
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x" * 10_000))
    assert client.transport.is_paused
    client.transport.written.clear()
    site.house.clock.advance(100)
    site.house.run_until_idle()
    assert b"".join(client.transport.written) == HEARTBEAT_FRAME * 19, "every half interval, once blocked was said"
    assert not client.transport.aborted, "nobody reads what it sends"
    site.alarms.clear(MEMORY)
    site.house.run_until_idle()
    assert not client.transport.is_paused
    site.house.clock.advance(26)
    assert client.transport.aborted


# The end of a blocked connection.


def test_a_connection_that_is_closed_while_blocked_is_answered_and_loses_nothing() -> None:
    site = Site()
    client = site.client("connection.blocked")
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x") + said(0, ConnectionClose(200, "bye")))
    assert heard(client) == ["connection.blocked", "connection.close-ok"]
    assert site.count() == 1
    assert client.transport.closing


def test_a_close_waits_for_the_alarms_end_when_nothing_more_is_pushed() -> None:
    site = Site()
    client = site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    site.spend_allowance()
    client.feed(publish(1, b"x") + said(0, ConnectionClose(200, "bye")))
    assert heard(client) == []
    site.alarms.clear(MEMORY)
    assert heard(client) == ["connection.close-ok"]
    assert site.count() == 1


def test_a_client_that_goes_without_a_word_loses_what_alarms_do_not_let_through() -> None:
    site = Site()
    polite, rude = site.client(), site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    site.spend_allowance()
    polite.feed(publish(1, b"x") + said(0, ConnectionClose(200, "bye")))
    rude.feed(publish(1, b"x"))
    channels = [one.connection.reader.lanes[1].channel for one in (polite, rude)]  # type: ignore[union-attr]
    polite.lose()
    rude.lose()
    assert [channel.state for channel in channels] == [CLOSED, CLOSED]
    assert not site.alarms.listeners.keys() - {_declarer(site)}
    site.alarms.clear(MEMORY)
    assert site.count() == 0


def _declarer(site: Site) -> object:
    """The reader of the peer that declared the queue, which never ends."""
    return next(iter(site.alarms.listeners))


def test_a_connection_that_ended_listens_no_more() -> None:
    site = Site()
    before = len(site.alarms.listeners)
    client = site.client()
    assert len(site.alarms.listeners) == before + 1
    client.lose()
    assert len(site.alarms.listeners) == before


# The deadline.


def test_a_publisher_blocked_for_longer_than_the_deadline_is_closed_with_the_reason() -> None:
    site = Site()
    site.alarms.change(Thresholds(blocked_deadline_s=30))
    client, consumer = site.client(), site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    site.house.clock.advance(60)
    client.feed(publish(1, b"x"))
    site.house.clock.advance(29)
    assert heard(client) == []
    site.house.clock.advance(1)
    text = f"CONNECTION_FORCED - publishing was blocked for 30 s (alarms.blocked_deadline_s): {REASON}"
    assert last_words(client) == (320, text)
    client.feed(said(0, ConnectionCloseOk()))
    assert client.transport.closing
    assert heard(consumer) == [], "who publishes nothing is left alone"
    site.alarms.clear(MEMORY)
    assert site.count() == 0, "what it had parked was refused with it"


def test_a_deadline_ends_with_the_alarm() -> None:
    site = Site()
    site.alarms.change(Thresholds(blocked_deadline_s=30))
    client = site.client()
    for _ in range(3):
        site.alarms.raise_alarm(MEMORY, REASON)
        client.feed(publish(1, b"x"))
        site.house.clock.advance(20)
        site.alarms.clear(MEMORY)
    site.house.clock.advance(100)
    assert heard(client) == []
    assert site.count() == 3


def test_a_deadline_set_while_a_publisher_is_blocked_counts_from_when_it_was() -> None:
    site = Site()
    client = site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x"))
    site.house.clock.advance(20)
    site.alarms.change(Thresholds(blocked_deadline_s=25))
    assert heard(client) == []
    site.house.clock.advance(5)
    assert last_words(client)[0] == 320


def test_a_full_parking_space_does_not_keep_the_socket_from_hearing_the_goodbye() -> None:
    site = Site()
    site.alarms.change(Thresholds(blocked_deadline_s=1))
    client = site.client()
    site.alarms.raise_alarm(MEMORY, REASON)
    client.feed(publish(1, b"x" * 10_000))
    assert client.transport.is_paused
    site.house.clock.advance(1)
    assert not client.transport.is_paused


# Credit, for clients that ask to be told.


def overrun(site: Site, client: Client) -> None:
    """More than credit and parking space take."""
    site.queue.mailbox.hold()
    client.feed(b"".join(publish(1, b"x" * 1000) for _ in range(20)))
    assert client.transport.is_paused


def test_credit_is_told_to_who_asks_for_it_once_the_socket_was_paused_for_a_while() -> None:
    site = Site("2,1")
    client, plain = site.client("penstock.flow"), site.client("connection.blocked")
    overrun(site, client)
    overrun(site, plain)
    site.house.clock.advance(FLOW_NOTICE_S - 0.1)
    assert heard(client) == []
    site.house.clock.advance(0.1)
    site.house.run_until_idle()
    (told,) = [one.method for one in client.said()]
    name = client.connection.name
    assert told == ConnectionBlocked(f"flow: waiting for channel {name} (1)")
    client.transport.written.clear()
    site.queue.mailbox.release()
    site.queue.mailbox.release()
    assert heard(client) == ["connection.unblocked"]
    assert heard(plain) == [], "never to others"


def test_a_short_pause_is_not_told() -> None:
    site = Site("2,1")
    client = site.client("penstock.flow")
    overrun(site, client)
    site.house.clock.advance(FLOW_NOTICE_S / 2)
    site.queue.mailbox.release()
    site.house.run_until_idle()
    site.house.clock.advance(10)
    assert heard(client) == []


def test_who_is_told_of_both_is_free_when_neither_is_left() -> None:
    site = Site("2,1")
    client = site.client("penstock.flow", "connection.blocked")
    overrun(site, client)
    site.house.clock.advance(FLOW_NOTICE_S)
    site.alarms.raise_alarm(MEMORY, REASON)
    assert heard(client) == ["connection.blocked"]
    site.alarms.clear(MEMORY)
    assert heard(client) == [], "it still waits for credit"
    site.queue.mailbox.release()
    assert heard(client) == ["connection.unblocked"]


def test_an_alarms_end_is_told_at_once_to_who_still_waits_for_credit_and_did_not_ask_about_it() -> None:
    site = Site("2,1")
    client = site.client("connection.blocked")
    overrun(site, client)
    site.alarms.raise_alarm(MEMORY, REASON)
    site.alarms.clear(MEMORY)
    assert heard(client) == ["connection.blocked", "connection.unblocked"]
    assert client.transport.is_paused
