"""Reader: what is parked, what overtakes it or pushes it out, when the socket pauses, and channels kept apart."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseConnection
from penstock.amqp.decoder import Acks, Command, Oversize, Publishes
from penstock.amqp.method import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicQos,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ConfirmSelect,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
)
from penstock.broker.casts import Arrival
from penstock.broker.channel import Channel
from penstock.net.reader import ORDER, OVERTAKE, PARKED_METHOD_BYTES, PUSH, WAIT
from tests.unit.fakes import FakePeer, House


class Dam:
    """A channel whose mailbox is held, with credit for four messages, and six published: two are parked."""

    def __init__(self, publish: int = 6) -> None:
        self.house = House("4,2")
        self.queue = self.house.queue("q")
        self.peer: FakePeer = self.house.peer()
        self.channel: Channel = self.peer.open(1)
        self.channel.mailbox.hold()
        self.peer.publish_singly(1, "q", publish)

    def lane(self) -> list[str]:
        return [_name(item) for item in self.peer.reader.lanes[1].parked]

    def mailbox(self) -> list[str]:
        return [_name(item) for item in self.channel.mailbox.ordinary]


def _name(item: object) -> str:
    if isinstance(item, Command):
        return item.method.NAME
    return f"{len(item.messages)}" if isinstance(item, Publishes) else type(item).__name__


OVERTAKING: list[Method] = [
    BasicConsume("q", "c"),
    BasicCancel("c"),
    BasicGet("q"),
    BasicQos(0, 1),
    ChannelFlow(True),
    ChannelCloseOk(),
    QueueDeclare("q"),
    QueueBind("q", "amq.direct"),
    ExchangeDeclare("x"),
]
PUSHING: list[Method] = [
    ChannelClose(200, "bye"),
    ConfirmSelect(),
    QueuePurge("q"),
    QueueDelete("q"),
    QueueUnbind("q", "amq.direct"),
    ExchangeDelete("x"),
    ExchangeUnbind("x", "y"),
]
WAITING: list[Method] = [TxSelect(), TxCommit(), TxRollback()]


def names(methods: list[Method]) -> list[str]:
    return [method.NAME for method in methods]


@pytest.mark.parametrize("method", OVERTAKING, ids=names(OVERTAKING))
def test_a_channels_other_side_overtakes_its_parked_publishes(method: Method) -> None:
    assert ORDER.get(type(method), OVERTAKE) == OVERTAKE
    dam = Dam()
    dam.peer.tell(1, method)
    assert dam.lane() == ["1", "1"]
    assert dam.mailbox() == ["1", "1", "1", "1", method.NAME]


@pytest.mark.parametrize("method", PUSHING, ids=names(PUSHING))
def test_what_means_after_all_i_published_pushes_the_parked_publishes_out_first(method: Method) -> None:
    assert ORDER[type(method)] == PUSH
    dam = Dam()
    dam.peer.tell(1, method)
    assert dam.lane() == []
    assert dam.mailbox() == ["1"] * 6 + [method.NAME]
    assert dam.peer.reader.parked_bytes == 0
    assert dam.peer.reader.lanes[1].link.credit == -2


@pytest.mark.parametrize("method", WAITING, ids=names(WAITING))
def test_tx_waits_in_line(method: Method) -> None:
    assert ORDER[type(method)] == WAIT
    dam = Dam()
    dam.peer.tell(1, method)
    dam.peer.publish_singly(1, "q", 1)
    assert dam.lane() == ["1", "1", method.NAME, "1"]
    assert dam.mailbox() == ["1"] * 4
    dam.channel.mailbox.release()
    dam.house.run_until_idle()
    assert dam.lane() == []


def test_the_table_names_nothing_that_these_tests_do_not() -> None:
    assert set(ORDER) == {type(method) for method in PUSHING + WAITING}


def test_a_method_that_waits_behind_the_last_parked_publish_goes_when_credit_comes() -> None:
    dam = Dam(publish=8)  # four are parked: as many as are granted at once
    dam.peer.tell(1, TxSelect())
    assert dam.lane() == ["1", "1", "1", "1", "tx.select"]
    for _ in range(4):
        dam.channel.take(dam.channel.mailbox.ordinary.popleft())
    dam.house.run_until_idle()
    assert dam.lane() == ["tx.select"]
    assert dam.peer.reader.parked_bytes == PARKED_METHOD_BYTES
    while dam.mailbox() and dam.mailbox()[0] == "1":
        dam.channel.take(dam.channel.mailbox.ordinary.popleft())
    dam.house.run_until_idle()
    assert dam.lane() == []
    assert dam.peer.reader.parked_bytes == 0
    assert dam.mailbox() == ["tx.select"]


def test_acks_overtake_and_an_oversize_body_pushes() -> None:
    dam = Dam()
    dam.peer.reader.receive(Acks(1, [(1, False)]))
    assert dam.mailbox()[-1] == "Acks"
    assert dam.lane() == ["1", "1"]
    dam.peer.reader.receive(Oversize(1, 10, 1))
    assert dam.lane() == []
    assert dam.mailbox()[-3:] == ["1", "1", "Oversize"]


def test_nothing_is_held_up_when_nothing_is_parked() -> None:
    dam = Dam(publish=4)
    dam.peer.tell(1, TxSelect())
    assert dam.mailbox() == ["1"] * 4 + ["tx.select"]


# Credit.


def test_a_run_is_split_where_credit_ends_and_the_rest_follows_in_order() -> None:
    dam = Dam(publish=0)
    dam.peer.publish(1, "q", *(b"%d" % number for number in range(10)))
    assert dam.mailbox() == ["4"]
    assert dam.lane() == ["6"]
    dam.channel.mailbox.release()
    dam.house.run_until_idle()
    assert dam.lane() == []
    dam.peer.consume(1, no_ack=True)
    assert dam.peer.bodies() == [b"%d" % number for number in range(10)]


def test_a_run_is_split_where_bytes_end_and_the_message_that_crosses_the_line_still_goes() -> None:
    house = House("400,200", "1000,500")
    house.queue("q")
    peer = house.peer()
    channel = peer.open(1)
    channel.mailbox.hold()
    peer.publish(1, "q", *[b"x" * 270] * 10)  # 300 bytes each on the wire
    (item,) = channel.mailbox.ordinary
    assert isinstance(item, Publishes)
    assert item.bytes == 1200
    assert len(item.messages) == 4
    assert peer.reader.parked_bytes == 6 * 300


def test_a_split_run_keeps_count_of_its_bytes() -> None:
    dam = Dam(publish=0)
    dam.peer.publish(1, "q", b"", b"a", b"bb", b"ccc", b"dddd", b"eeeee")
    parked = dam.peer.reader.lanes[1].parked[0]
    sent = dam.channel.mailbox.ordinary[0]
    for item in (parked, sent):
        assert isinstance(item, Publishes)
        assert item.bytes == sum(len(wire) for _, wire in item.messages)
    assert dam.peer.reader.parked_bytes == getattr(parked, "bytes", 0)


# The socket.


def test_the_socket_pauses_above_the_parking_space_and_resumes_when_half_of_it_is_free() -> None:
    house = House("1,1")
    house.queue("q")
    peer = house.peer(parked_bytes_max=1000)
    channel = peer.open(1)
    channel.mailbox.hold()
    for _ in range(11):  # one is sent, ten are parked, 100 bytes each
        peer.publish(1, "q", b"x" * 70)
    assert peer.reader.parked_bytes == 1000
    assert not peer.is_paused
    peer.publish(1, "q", b"x" * 70)
    assert peer.is_paused
    while peer.reader.parked_bytes > 500:
        assert peer.is_paused
        channel.take(channel.mailbox.ordinary.popleft())
        house.run_until_idle()
    assert not peer.is_paused
    assert peer.pauses == 1
    channel.mailbox.release()
    house.run_until_idle()
    assert peer.reader.parked_bytes == 0
    assert not peer.is_paused


def test_without_parking_space_the_socket_pauses_with_the_first_parked_publish() -> None:
    house = House("1,1")
    house.queue("q")
    peer = house.peer(parked_bytes_max=0)
    channel = peer.open(1)
    channel.mailbox.hold()
    peer.publish(1, "q", b"1")
    assert not peer.is_paused
    peer.publish(1, "q", b"2")
    assert peer.is_paused
    channel.mailbox.release()
    house.run_until_idle()
    assert not peer.is_paused


def test_a_paused_socket_resumes_when_the_channel_that_parks_goes() -> None:
    house = House("1,1")
    house.queue("q")
    peer = house.peer(parked_bytes_max=100)
    channel = peer.open(1)
    channel.mailbox.hold()
    for _ in range(10):
        peer.publish(1, "q", b"x" * 70)
    assert peer.is_paused
    channel.terminate()
    assert peer.reader.parked_bytes == 0
    assert not peer.is_paused
    assert not peer.reader.blocked_by


# Isolation.


def test_a_blocked_channel_does_not_hold_up_another_on_the_same_connection() -> None:
    house = House("2,1")
    stuck = house.queue("stuck")
    stuck.mailbox.hold()
    house.queue("lively")
    peer = house.peer()
    peer.open(1)
    peer.open(2)
    peer.publish_singly(1, "stuck", 100)
    house.run_until_idle()
    assert sum(isinstance(item, Arrival) for item in stuck.mailbox.ordinary) == 4
    peer.consume(2, "lively", no_ack=True)
    for _ in range(5):
        peer.publish_singly(2, "lively", 50)
        assert len(peer.bodies()) == 50
    assert peer.reader.blocked_by
    assert not peer.reader.lanes[2].parked
    assert not peer.is_paused


def test_two_blocked_channels_resume_each_by_itself() -> None:
    house = House("2,1")
    queues = {number: house.queue(f"q{number}") for number in (1, 2)}
    peer = house.peer()
    for number, queue in queues.items():
        queue.mailbox.hold()
        peer.open(number)
        peer.publish_singly(number, f"q{number}", 20)
    house.run_until_idle()
    assert len(peer.reader.blocked_by) == 2
    queues[1].mailbox.release()
    house.run_until_idle()
    assert queues[1].count() == 20
    assert queues[2].count() == 0
    assert len(peer.reader.blocked_by) == 1
    queues[2].mailbox.release()
    house.run_until_idle()
    assert queues[2].count() == 20
    assert not peer.reader.blocked_by


# Opening and the end.


def test_what_comes_on_a_channel_that_is_not_open_is_504() -> None:
    peer = House().peer()
    for item in (Command(1, BasicQos()), Acks(1, [(1, False)])):
        with pytest.raises(CloseConnection) as caught:
            peer.reader.receive(item)
        assert caught.value.code == 504


def test_more_channels_than_negotiated_is_530() -> None:
    peer = House().peer(channel_max=2)
    peer.open(1)
    peer.open(2)
    with pytest.raises(CloseConnection) as caught:
        peer.tell(3, ChannelOpen())
    assert caught.value.code == 530


def test_the_end_of_a_connection_hands_over_what_was_read_before() -> None:
    dam = Dam()
    dam.channel.mailbox.release()
    dam.peer.reader.shut_down()
    dam.house.run_until_idle()
    assert dam.queue.count() == 6
    assert not dam.peer.reader.lanes
    assert not dam.house.broker.reader_channel.links


def test_a_client_that_closed_its_connection_finds_what_it_published_before_although_its_channel_waited() -> None:
    house = House()
    slow, queue = house.queue("slow"), house.queue("q")
    slow.mailbox.hold()
    peer = house.peer()
    peer.open(1)
    peer.tell(1, BasicGet("slow"))
    peer.publish(1, "q", b"x")
    house.run_until_idle()
    peer.reader.shut_down()
    house.run_until_idle()
    slow.mailbox.release()
    house.run_until_idle()
    assert queue.count() == 1
    assert not peer.reader.lanes


def test_a_channel_that_waits_for_a_slow_queue_goes_when_the_queue_has_answered() -> None:
    house = House()
    slow = house.queue("slow")
    slow.mailbox.hold()
    peer = house.peer()
    peer.open(1)
    peer.tell(1, BasicGet("slow"))
    house.run_until_idle()
    peer.reader.shut_down()
    house.run_until_idle()
    assert peer.reader.lanes
    slow.mailbox.release()
    house.run_until_idle()
    assert not peer.reader.lanes


def test_a_number_can_be_opened_again_right_behind_its_close_ok() -> None:
    house = House()
    peer = house.peer()
    peer.open(1)
    peer.ack(1, 99)
    assert [method.NAME for method in peer.methods()] == ["channel.close"]
    peer.tell(1, ChannelCloseOk())
    peer.tell(1, ChannelOpen())
    assert [method.NAME for method in peer.methods()] == ["channel.open-ok"]


@pytest.mark.timeout(60)
def test_a_channel_that_failed_swallows_any_number_of_publishes_until_close_ok() -> None:
    house = House("4,2")
    queue = house.queue("q")
    peer = house.peer()
    peer.open(1)
    peer.ack(1, 99)
    house.run_until_idle()
    peer.publish_singly(1, "q", 50)
    peer.publish(1, "q", *[b"x"] * 50)
    house.run_until_idle()
    assert peer.reader.parked_bytes == 0
    assert not peer.reader.blocked_by
    assert queue.count() == 0


@pytest.mark.timeout(60)
def test_nobody_stays_blocked_by_a_channel_that_failed_and_went_while_publishes_were_on_their_way() -> None:
    house = House("4,2", stage_budget=3)
    house.queue("q")
    peer = house.peer()
    peer.open(1)
    peer.ack(1, 99)
    house.run_until_idle()
    peer.publish_singly(1, "q", 50)
    peer.tell(1, ChannelCloseOk())
    house.run_until_idle()
    assert not peer.reader.lanes
    assert not peer.reader.blocked_by
    assert peer.reader.parked_bytes == 0


def test_a_reader_tells_its_state() -> None:
    dam = Dam()
    parked = dam.peer.reader.parked_bytes
    assert repr(dam.peer.reader) == (
        f"<Reader connection peer channels=1 parked_bytes={parked} blocked_by={{channel peer (1)}}>"
    )


@pytest.mark.parametrize(
    "wrong", [QueueDeclare("missing", passive=True), BasicQos(prefetch_size=1)], ids=["channel", "connection"]
)
def test_publishes_that_a_wrong_method_overtook_are_not_lost_and_those_behind_it_do_not_count(wrong: Method) -> None:
    dam = Dam()
    dam.peer.tell(1, wrong)
    dam.peer.publish_singly(1, "q", 3)
    assert dam.lane() == ["1"] * 5
    dam.channel.mailbox.release()
    dam.house.run_until_idle()
    assert dam.queue.count() == 6
    assert dam.peer.reader.parked_bytes == 0


def test_publishes_that_a_wrong_ack_overtook_are_not_lost() -> None:
    dam = Dam()
    dam.peer.ack(1, 99)
    dam.channel.mailbox.release()
    dam.house.run_until_idle()
    assert dam.queue.count() == 6
