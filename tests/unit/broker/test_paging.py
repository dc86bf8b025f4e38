"""Paging: what leaves RAM when, comes back in its place, and is lost never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.broker.backlog import is_away
from penstock.broker.memory import PRESS_NS, SMALL_BYTES
from penstock.broker.paging import RETRY_S
from penstock.broker.queue import Queue
from penstock.store.pager import FETCH_BODIES_BYTES_MAX
from tests.unit.fakes import NO_PROPERTIES, PERSISTENT, FakePeer, StoreHouse
from tests.wire.waiting import wait_until


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path) as house:
        yield house


@pytest.fixture
def peer(house: StoreHouse) -> FakePeer:
    peer = house.peer()
    peer.open()
    return peer


def numbers(*range_: int, size: int = 0) -> list[bytes]:
    return [(b"%d|" % number).ljust(size, b".") for number in range(*range_)]


def number(body: bytes | None) -> int:
    assert body is not None
    return int(body.split(b"|")[0])


def publish(peer: FakePeer, *range_: int, properties: bytes = PERSISTENT, size: int = 0, key: str = "q") -> None:
    """Numbered messages; the store has all of them when this returns."""
    peer.publish(1, key, *numbers(*range_, size=size), properties=properties)
    house = peer.house
    assert isinstance(house, StoreHouse)
    house.flush()


def tell(peer: FakePeer, method: Method) -> None:
    """Nothing is waited for, in particular no disk that stands still."""
    peer.tell(1, method)
    house = peer.house
    assert isinstance(house, StoreHouse)
    house.run_turns()


def press(queue: Queue, stay: int = 0, transient: bool = True) -> int:
    """Have the queue give up memory; how many messages left."""
    assert queue.paging is not None
    return queue.paging.reduce(stay, transient)


def given(peer: FakePeer) -> list[int]:
    """The numbers of what was delivered since the last look."""
    return [number(body) for body in peer.bodies()]


def in_ram(queue: Queue) -> int:
    return sum(len(backlog.ready) + len(backlog.fresh) for backlog in queue.shelves.levels)


def get(peer: FakePeer, no_ack: bool = True) -> int:
    peer.tell(1, BasicGet("q", no_ack))
    (said,) = peer.said()
    assert isinstance(said.method, BasicGetOk), said
    return number(said.body)


def count(peer: FakePeer) -> int:
    (ok,) = peer.ask(1, QueueDeclare("q", passive=True))
    assert isinstance(ok, QueueDeclareOk)
    return ok.message_count


# How much, and at which price: FEATURES.md 6.


def test_of_20_000_large_transient_messages_2000_leave_and_the_rest_waits_for_credit(house: StoreHouse) -> None:
    house.store.embed_below = 16  # large is what is longer: 20 000 of 4096 bytes would need a moment
    queue = house.queue("q")
    peer = house.peer()
    peer.open()
    publish(peer, 20_000, properties=NO_PROPERTIES, size=32)
    house.disk.stop("write", "pages")
    assert press(queue, stay=8_000) == 2_000
    assert in_ram(queue) == 18_000
    assert queue.outgoing[house.store].credit == 0
    assert queue.blocked_by  # the pressure goes upstream
    assert press(queue, stay=8_000) == 0
    assert in_ram(queue) == 18_000
    house.disk.go_on()
    house.run_until_idle()
    assert not queue.blocked_by
    assert press(queue, stay=8_000) == 2_000
    house.run_until_idle()
    while press(queue, stay=8_000):
        house.run_until_idle()
    assert in_ram(queue) == 8_000
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(20_000))


def test_when_credit_comes_back_paging_goes_on_by_itself(house: StoreHouse) -> None:
    house.store.embed_below = 16
    queue = house.queue("q")
    peer = house.peer()
    peer.open()
    publish(peer, 6_000, properties=NO_PROPERTIES, size=32)
    house.memory.observed(used_bytes=1000, high_bytes=600)  # three tenths may stay
    house.run_until_idle()
    assert in_ram(queue) < 2_000


def test_small_transient_messages_cost_no_credit(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.queue("q")
    publish(peer, 5_000, properties=NO_PROPERTIES)
    assert press(queue, stay=100) == 4_900
    assert house.store.link(queue).credit == 2_000
    assert house.disk.done["write", "journal"] <= 1


def test_persistent_messages_leave_without_a_write_and_without_credit(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 5_000)
    house.run_until_idle()
    written = sum(house.disk.bytes.values())
    credit = queue.outgoing[house.store].credit
    assert press(queue, stay=1_000) == 4_000
    house.run_until_idle()
    assert queue.outgoing[house.store].credit == credit
    assert sum(house.disk.bytes.values()) == written
    assert in_ram(queue) == 1_000


def test_persistent_messages_that_are_not_synced_yet_stay(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 10)
    house.disk.stop("sync", "journal")
    peer.publish(1, "q", *numbers(10, 20), properties=PERSISTENT)
    house.run_turns()
    house.clock.advance(1)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("sync", "journal"))
    assert press(queue, transient=False) == 9
    assert in_ram(queue) == 11
    house.disk.go_on()
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(20))


def test_transient_messages_stay_unless_the_process_is_large(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.queue("q")
    publish(peer, 100, properties=NO_PROPERTIES)
    assert press(queue, transient=False) == 0


def test_the_queue_pages_out_by_itself_when_all_of_them_use_more_than_the_cache(house: StoreHouse) -> None:
    house.memory.cache_bytes = SMALL_BYTES * 2
    queue = house.durable("q")
    peer = house.peer()
    peer.open()
    for first in range(0, 2_000, 100):
        publish(peer, first, first + 100, size=200)
        assert house.memory.used_bytes < SMALL_BYTES * 3
    house.flush()
    assert in_ram(queue) < 1_000
    assert count(peer) == 2_000
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(2_000))
    assert house.memory.used_bytes == 0


def test_a_queue_with_little_in_ram_is_left_alone(house: StoreHouse, peer: FakePeer) -> None:
    house.memory.cache_bytes = 0
    queue = house.durable("q")
    publish(peer, 100)
    house.run_until_idle()
    assert in_ram(queue) == 100


def test_all_queues_give_up_their_share_when_the_process_is_large(house: StoreHouse, peer: FakePeer) -> None:
    queues = [house.queue(name) for name in ("q", "r")]
    for queue in queues:
        publish(peer, 1_000, properties=NO_PROPERTIES, size=200, key=queue.queue_name)
    house.clock.advance(PRESS_NS / 1e9)
    house.memory.observed(used_bytes=1000, high_bytes=1000)  # one half may stay
    house.run_until_idle()
    assert all(in_ram(queue) < 1_000 for queue in queues)
    house.memory.observed(used_bytes=100, high_bytes=1000)
    for queue in queues:
        peer.consume(1, queue.queue_name, f"c-{queue.queue_name}", no_ack=True)
        assert given(peer) == list(range(1_000))


def test_what_comes_while_the_process_is_large_leaves_too(house: StoreHouse, peer: FakePeer) -> None:
    """Also what comes behind messages that have left already."""
    queue = house.queue("q")
    publish(peer, 1_000, properties=NO_PROPERTIES, size=200)
    press(queue, stay=10)
    house.run_until_idle()
    for first in range(1_000, 3_000, 500):
        publish(peer, first, first + 500, properties=NO_PROPERTIES, size=200)
        press(queue, stay=10)
        house.run_until_idle()
        assert in_ram(queue) <= 10
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(3_000))


def test_a_deleted_queue_uses_nothing_any_more(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 1_000)
    assert house.memory.used_bytes > 0
    press(queue, stay=100)
    queue.delete()
    house.run_until_idle()
    assert house.memory.used_bytes == 0
    assert not house.memory.pagings


# Who goes first.


def test_unacked_messages_go_first_if_they_grew_faster(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 100)
    peer.ask(1, BasicQos(0, 60))
    peer.consume(1)
    assert len(given(peer)) == 60
    assert press(queue, stay=50) == 50
    assert sum(is_away(message) for message in queue.unacked.values()) == 50
    assert in_ram(queue) == 40


def test_unacked_messages_go_on_leaving_until_none_is_in_ram(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 100)
    peer.consume(1)
    assert len(given(peer)) == 100
    assert press(queue, stay=90) == 10
    assert press(queue, stay=50) == 40
    assert press(queue) == 50
    assert all(is_away(message) for message in queue.unacked.values())
    peer.ack(1, 50, multiple=True)
    publish(peer, 100, 110)
    assert len(given(peer)) == 10
    assert press(queue) == 10
    peer.nack(1, 0, multiple=True)
    assert given(peer) == list(range(50, 110))


def test_ready_messages_go_first_if_they_grew_faster(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 100)
    peer.ask(1, BasicQos(0, 10))
    peer.consume(1)
    assert len(given(peer)) == 10
    assert press(queue, stay=50) == 50
    assert sum(is_away(message) for message in queue.unacked.values()) == 0
    assert in_ram(queue) == 40


# Back in.


@pytest.mark.parametrize("properties", [PERSISTENT, NO_PROPERTIES], ids=["persistent", "transient"])
@pytest.mark.parametrize("size", [0, 5_000], ids=["small", "large"])
def test_messages_come_back_in_order_as_consumers_take_them(
    house: StoreHouse, peer: FakePeer, properties: bytes, size: int
) -> None:
    queue = house.durable("q")
    for first in range(0, 200, 50):
        publish(peer, first, first + 50, properties=properties, size=size)
        press(queue, stay=5)
        house.run_until_idle()
    assert queue.shelves.paged_count() > 150
    assert count(peer) == 200
    peer.ask(1, BasicQos(0, 7))
    peer.consume(1)
    got: list[int] = []
    while len(got) < 200:
        said = [one for one in peer.said() if isinstance(one.method, BasicDeliver)]
        assert said
        got += [number(one.body) for one in said]
        assert not any(one.method.redelivered for one in said if isinstance(one.method, BasicDeliver))
        assert isinstance(said[-1].method, BasicDeliver)
        peer.ack(1, said[-1].method.delivery_tag, multiple=True)
    assert got == list(range(200))
    house.run_until_idle()
    assert count(peer) == 0
    assert queue.shelves.paged_count() == 0


def test_the_front_is_read_back_before_a_consumer_has_taken_all_of_it(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 1_000)
    press(queue, stay=10)
    peer.ask(1, BasicQos(0, 1))
    peer.consume(1)
    assert given(peer) == [0]
    assert len(queue.shelves.lowest.ready) > 100


def test_without_a_consumer_only_what_is_next_is_read_back(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    for first in range(0, 100, 10):
        publish(peer, first, first + 10)
    press(queue, stay=1)
    assert get(peer) == 0
    assert in_ram(queue) == 9  # of one batch


def test_a_get_waits_for_the_disk_and_what_comes_behind_it_waits_too(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 20)
    other = house.peer("other")
    other.open()
    press(queue, stay=1)
    house.disk.stop("read", "journal")
    for _ in range(3):
        peer.tell(1, BasicGet("q", True))
        house.run_turns()
    other.publish(1, "q", b"20|", properties=PERSISTENT)
    house.run_turns()
    assert queue.mailbox.holds == 1
    assert len(queue.mailbox) > 0
    house.disk.go_on()
    assert [number(said.body) for said in peer.said()] == [0, 1, 2]
    assert queue.mailbox.holds == 0
    assert count(peer) == 18


def test_a_get_of_what_is_still_on_its_way_to_the_disk_is_answered(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.queue("q")
    publish(peer, 10, properties=NO_PROPERTIES)
    house.disk.stop("write", "pages")
    press(queue, stay=1)
    for _ in range(3):
        peer.tell(1, BasicGet("q", True))
        house.run_turns()
    house.disk.go_on()
    assert [number(said.body) for said in peer.said()] == [0, 1, 2]


def test_a_get_that_finds_nothing_where_the_first_message_should_be_is_answered(
    house: StoreHouse, peer: FakePeer
) -> None:
    queue = house.durable("q")
    publish(peer, 3)
    press(queue, stay=1)
    assert queue.keeping is not None
    queue.keeping.log.extents.clear()  # a checkpoint left out what was damaged
    assert get(peer) == 0
    assert peer.ask(1, BasicGet("q", True)) == [BasicGetEmpty()]
    assert count(peer) == 0


@pytest.fixture
def second(house: StoreHouse, peer: FakePeer) -> Iterator[StoreHouse]:
    """Another life, with 20 messages in queue q, all of them on disk."""
    house.durable("q")
    publish(peer, 10)
    publish(peer, 10, 20)
    assert house.stop()
    with house.next_life() as second:
        yield second


def test_a_get_is_answered_when_the_disk_can_be_read_again(second: StoreHouse) -> None:
    second.disk.fail("read", "segment", times=2)
    peer = second.peer()
    peer.open()
    peer.tell(1, BasicGet("q", True))
    assert peer.said() == []
    queue = second.vhost.queues["q"]
    assert queue.mailbox.holds == 1
    second.clock.advance(RETRY_S)
    assert peer.said() == []
    second.clock.advance(RETRY_S)
    (said,) = peer.said()
    assert number(said.body) == 0
    assert queue.mailbox.holds == 0
    assert len([report for report in second.reports if "it is tried again" in report]) == 2
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(1, 20))


def test_a_consumer_goes_on_when_the_disk_can_be_read_again(second: StoreHouse) -> None:
    second.disk.fail("open", "segment")
    peer = second.peer()
    peer.open()
    peer.consume(1, no_ack=True)
    assert given(peer) == []
    second.clock.advance(RETRY_S)
    assert given(peer) == list(range(20))


def test_purged_by_an_operator_while_a_get_waits_the_get_is_answered(second: StoreHouse) -> None:
    second.disk.stop("read", "segment")
    peer = second.peer()
    tell(peer, ChannelOpen())
    peer.tell(1, BasicGet("q", True))
    second.run_turns()
    queue = second.vhost.queues["q"]
    assert queue.mailbox.holds == 1
    assert queue.purge() == 20
    second.run_turns()
    second.disk.go_on()
    assert peer.methods()[-1] == BasicGetEmpty()
    assert count(peer) == 0


def test_a_queue_deleted_while_a_get_waits_answers_it_as_deleted(second: StoreHouse) -> None:
    second.disk.stop("read", "segment")
    peer = second.peer()
    tell(peer, ChannelOpen())
    peer.tell(1, BasicGet("q", True))
    second.run_turns()
    second.vhost.queues["q"].delete()
    second.disk.go_on()
    close = peer.methods()[-1]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 404


# What changes while something is read.


@pytest.mark.parametrize("properties", [PERSISTENT, NO_PROPERTIES], ids=["persistent", "transient"])
def test_purged_while_messages_are_read_it_is_empty_and_goes_on(
    house: StoreHouse, peer: FakePeer, properties: bytes
) -> None:
    queue = house.durable("q")
    publish(peer, 100, properties=properties)
    press(queue, stay=1)
    house.run_until_idle()
    kind = "journal" if properties == PERSISTENT else "pages"
    house.disk.stop("read", kind)
    tell(peer, BasicGet("q", True))
    wait_until(lambda: house.disk.is_standing("read", kind))
    tell(peer, QueuePurge("q"))
    peer.publish(1, "q", *numbers(100, 110), properties=properties)
    house.run_turns()
    house.disk.go_on()
    said = peer.said()
    assert QueuePurgeOk(99) in [one.method for one in said]
    assert count(peer) == 10
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(100, 110))
    house.flush()
    house.kill()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        assert count(other) == 0


def test_deleted_while_messages_are_read_nothing_is_left_of_it(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 100)
    press(queue, stay=1)
    house.disk.stop("read", "journal")
    tell(peer, BasicGet("q", True))
    wait_until(lambda: house.disk.is_standing("read", "journal"))
    tell(peer, QueueDelete("q"))
    house.disk.go_on()
    house.flush()
    assert QueueDeleteOk(99) in peer.methods()
    assert "q" not in house.vhost.queues
    house.durable("q")
    assert count(peer) == 0


def test_what_comes_while_messages_are_read_leaves_and_comes_back_in_its_place(
    house: StoreHouse, peer: FakePeer
) -> None:
    queue = house.durable("q")
    publish(peer, 100, size=5_000)
    press(queue, stay=1)
    house.disk.stop("read", "journal")
    peer.consume(1, no_ack=True)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("read", "journal"))
    peer.publish(1, "q", *numbers(100, 150, size=5_000), properties=PERSISTENT)
    house.run_turns()
    house.store._gathered_enough()
    house.posts.run_until(lambda: queue.keeping is not None and queue.keeping.log.end(0) == 150)
    assert press(queue) == 50
    assert in_ram(queue) == 0
    house.disk.go_on()
    assert given(peer) == list(range(150))


def test_what_leaves_while_the_batch_that_has_it_is_read_for_others_is_not_lost(
    house: StoreHouse, peer: FakePeer
) -> None:
    queue = house.durable("q")
    house.durable("r")
    publish(peer, 50)
    house.disk.stop("sync", "journal")
    peer.publish(1, "q", *numbers(50, 100), properties=PERSISTENT)
    house.run_turns()
    press(queue, transient=False)
    assert list(queue.shelves.lowest.paged) == [(1, 50)]
    house.disk.go_on()
    house.flush()
    house.store.journal_bytes = 500
    publish(peer, 1, size=1_000, key="r")  # a checkpoint makes one batch of all
    assert queue.keeping is not None
    assert len(list(queue.keeping.log.spots(0, 100))) == 1
    house.disk.stop("read", "segment")
    peer.consume(1, no_ack=True)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("read", "segment"))
    assert press(queue) == 50
    house.disk.go_on()
    assert given(peer) == list(range(100))


def test_what_is_in_ram_stays_there_while_messages_are_read(house: StoreHouse, peer: FakePeer) -> None:
    """It would come back in the wrong place."""
    queue = house.durable("q")
    publish(peer, 100)
    press(queue, stay=50)
    peer.ask(1, BasicQos(0, 1))
    house.disk.stop("read", "journal")
    peer.consume(1)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("read", "journal"))
    assert press(queue) == 1  # that is unacked
    assert in_ram(queue) == 49
    house.disk.go_on()
    assert given(peer) == [0]
    peer.consume(1, tag="more", no_ack=True)
    assert given(peer) == list(range(1, 100))


def test_a_file_that_was_replaced_meanwhile_is_no_loss(tmp_path: Path) -> None:
    with StoreHouse(tmp_path, journal_bytes=3_000) as house:
        queue = house.durable("q")
        peer = house.peer()
        peer.open()
        publish(peer, 20)
        press(queue, stay=1)
        assert queue.keeping is not None
        spots = list(queue.keeping.log.spots(0, 100))
        publish(peer, 20, 200)
        assert house.store.checkpoints.count == 1
        assert {spot.file.number for spot in spots}.isdisjoint(
            spot.file.number for spot in queue.keeping.log.spots(0, 20)
        )
        assert queue.paging is not None
        queue.paging._ask(spots, [(1, 20)], [])  # as if it had been asked for before
        peer.consume(1, no_ack=True)
        assert given(peer) == list(range(200))
        assert house.reports == []


# Damage.


def damage(house: StoreHouse, kind: str, what: bytes) -> None:
    (path,) = [path for path in house.directory.rglob(f"{kind}-*") if what in path.read_bytes()]
    path.write_bytes(path.read_bytes().replace(what, bytes(byte ^ 1 for byte in what)))


@pytest.mark.parametrize(("size", "kind"), [(0, "journal"), (5_000, "bodies")])
def test_a_damaged_message_is_left_out_and_reported(house: StoreHouse, peer: FakePeer, size: int, kind: str) -> None:
    queue = house.durable("q")
    publish(peer, 10, size=size)
    press(queue, stay=1)
    damage(house, kind, numbers(5, 6, size=size)[0])
    peer.consume(1, no_ack=True)
    assert given(peer) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    (report,) = house.reports
    assert report.startswith("queue 'q' in vhost '/': ")
    assert kind in report
    assert report.endswith("the message is lost")
    assert count(peer) == 0


def test_a_damaged_batch_is_left_out_and_what_is_behind_it_comes(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    for first in range(0, 30, 10):
        publish(peer, first, first + 10)
    assert queue.keeping is not None
    spots = list(queue.keeping.log.spots(0, 30))
    press(queue, stay=1)
    path = spots[1].file.path
    raw = bytearray(path.read_bytes())
    raw[spots[1].offset + 8] ^= 1
    path.write_bytes(raw)
    peer.consume(1, no_ack=True)
    assert given(peer) == [*range(10), *range(20, 30)]
    assert len(house.reports) == 1
    assert count(peer) == 0


# Time.


def ttl(ms: int, persistent: bool) -> bytes:
    return encode_properties(Properties(expiration=str(ms), delivery_mode=2 if persistent else 1))


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_messages_expire_on_time_wherever_they_have_been(house: StoreHouse, peer: FakePeer, persistent: bool) -> None:
    queue = house.durable("q")
    publish(peer, 10, properties=ttl(1_000, persistent))
    publish(peer, 10, 15, properties=PERSISTENT if persistent else NO_PROPERTIES)
    publish(peer, 15, 20, properties=ttl(3_000, persistent))
    publish(peer, 20, 25, properties=PERSISTENT if persistent else NO_PROPERTIES)
    house.clock.advance(0.5)
    press(queue, stay=1)
    house.run_until_idle()
    assert count(peer) == 25
    house.clock.advance(0.49)
    house.run_until_idle()
    assert count(peer) == 25
    house.clock.advance(0.02)
    house.run_until_idle()
    assert count(peer) == 15
    house.clock.advance(3)
    house.run_until_idle()
    assert count(peer) == 15  # those that are due are not at the head
    peer.consume(1, no_ack=True)
    assert given(peer) == [*range(10, 15), *range(20, 25)]


def test_a_queues_own_time_to_live_is_written_with_its_messages(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q", message_ttl=1_000)
    publish(peer, 10)
    press(queue, stay=1)
    house.clock.advance(0.9)
    assert count(peer) == 10
    house.clock.advance(0.2)
    house.run_until_idle()
    assert count(peer) == 0


def test_messages_expire_in_another_life_when_they_would_have_in_this_one(house: StoreHouse, peer: FakePeer) -> None:
    house.durable("q")
    publish(peer, 10, properties=ttl(1_000, True))
    publish(peer, 10, 20)
    house.clock.advance(0.6)
    assert house.stop()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        assert count(other) == 20
        second.clock.advance(0.5)
        second.run_until_idle()
        assert count(other) == 10


# Unacked.


def deliver(peer: FakePeer, count_: int, prefetch: int = 0) -> list[int]:
    """To a consumer; the delivery tags."""
    peer.ask(1, BasicQos(0, prefetch))
    peer.consume(1)
    tags = [said.method.delivery_tag for said in peer.said() if isinstance(said.method, BasicDeliver)]
    assert len(tags) == count_
    return tags


@pytest.mark.parametrize("size", [0, 5_000], ids=["small", "large"])
def test_unacked_messages_that_left_ram_come_back_in_their_place_when_they_are_requeued(
    house: StoreHouse, peer: FakePeer, size: int
) -> None:
    queue = house.durable("q")
    publish(peer, 20, size=size)
    deliver(peer, 10, prefetch=10)
    assert press(queue) > 10
    assert all(is_away(message) for message in queue.unacked.values())
    other = house.peer("other")
    other.open()
    peer.ask(1, BasicCancel("c"))
    peer.nack(1, 7, multiple=True)
    other.consume(1, no_ack=True)
    said = [one for one in other.said() if isinstance(one.method, BasicDeliver)]
    assert [(number(one.body), one.method.redelivered) for one in said if isinstance(one.method, BasicDeliver)] == [
        *((at, True) for at in range(7)),
        *((at, False) for at in range(10, 20)),
    ]
    peer.ack(1, 8, 9, 10)
    house.flush()
    assert not queue.unacked
    house.kill()
    with house.next_life() as second:
        third = second.peer()
        third.open()
        assert count(third) == 0


def test_a_get_waits_for_a_requeued_message_that_left_ram(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 2)
    assert get(peer, no_ack=False) == 0
    press(queue)
    peer.nack(1, 1)
    peer.tell(1, BasicGet("q", True))
    (said,) = peer.said()
    assert number(said.body) == 0
    assert isinstance(said.method, BasicGetOk)
    assert said.method.redelivered


def test_a_requeued_message_that_is_damaged_holds_up_nothing(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 3)
    deliver(peer, 3)
    press(queue)
    damage(house, "journal", b"1|")
    peer.ask(1, BasicCancel("c"))
    peer.nack(1, 0, multiple=True)
    assert [get(peer), get(peer)] == [0, 2]
    assert count(peer) == 0
    assert len(house.reports) == 1


def test_requeued_messages_that_are_in_no_file_any_more_are_given_up(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 3)
    deliver(peer, 3)
    press(queue)
    assert queue.keeping is not None
    queue.keeping.log.extents.clear()
    peer.ask(1, BasicCancel("c"))
    peer.nack(1, 0, multiple=True)
    assert peer.ask(1, BasicGet("q", True)) == [BasicGetEmpty()]
    assert count(peer) == 0


def test_an_unacked_message_that_left_ram_expires_when_it_is_requeued_too_late(
    house: StoreHouse, peer: FakePeer
) -> None:
    queue = house.durable("q")
    publish(peer, 3, properties=ttl(1_000, True))
    deliver(peer, 3)
    press(queue)
    house.clock.advance(2)
    peer.ask(1, BasicCancel("c"))
    peer.nack(1, 0, multiple=True)
    house.run_until_idle()
    assert count(peer) == 0


def test_a_message_that_is_due_but_on_disk_keeps_nobody_busy(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 3, properties=ttl(1_000, True))
    deliver(peer, 3)
    press(queue)
    house.clock.advance(2)
    peer.ask(1, BasicCancel("c"))
    house.disk.stop("read", "journal")
    peer.nack(1, 0, multiple=True)
    house.run_turns()
    house.clock.advance(0)
    house.run_turns()
    house.clock.advance(0)
    assert not house.awake
    house.disk.go_on()
    house.run_until_idle()
    assert count(peer) == 0


# Dead letters.


@pytest.fixture
def letters(house: StoreHouse) -> Queue:
    return house.durable("letters")


def dead(peer: FakePeer) -> list[int]:
    peer.consume(1, "letters", "undertaker", no_ack=True)
    return [number(body) for tag, body in peer.deliveries() if tag == "undertaker"]


DLX = {"dead_letter_exchange": "", "dead_letter_routing_key": "letters"}


@pytest.mark.parametrize("size", [0, 5_000], ids=["small", "large"])
def test_rejected_messages_that_left_ram_are_sent_on_in_order(
    house: StoreHouse, peer: FakePeer, letters: Queue, size: int
) -> None:
    queue = house.durable("q", **DLX)
    publish(peer, 20, size=size)
    deliver(peer, 20)
    press(queue, stay=10)
    assert is_away(queue.unacked[10])
    for tag in range(11, 21):
        peer.nack(1, tag, requeue=False)
    peer.nack(1, 10, multiple=True, requeue=False)  # these are in RAM, and must not overtake the others
    assert dead(peer) == [*range(10, 20), *range(10)]
    house.flush()
    house.kill()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        assert count(other) == 0


def test_rejected_and_requeued_messages_that_left_ram_are_not_mixed_up(
    house: StoreHouse, peer: FakePeer, letters: Queue
) -> None:
    queue = house.durable("q", **DLX)
    publish(peer, 20)
    deliver(peer, 20)
    press(queue)
    peer.ask(1, BasicCancel("c"))
    house.disk.stop("read", "journal")
    peer.nack(1, 10, multiple=True)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("read", "journal"))
    peer.nack(1, 20, multiple=True, requeue=False)
    house.run_turns()
    house.disk.go_on()
    assert dead(peer) == list(range(10, 20))
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(10))


def test_more_dead_letters_than_are_read_in_one_go_are_all_sent_on(
    house: StoreHouse, peer: FakePeer, letters: Queue
) -> None:
    queue = house.durable("q", **DLX)
    size = FETCH_BODIES_BYTES_MAX // 2 + 1
    publish(peer, 5, size=size)
    deliver(peer, 5)
    press(queue)
    peer.nack(1, 0, multiple=True, requeue=False)
    assert dead(peer) == list(range(5))


def test_a_dead_letter_that_is_damaged_is_reported_and_gone(house: StoreHouse, peer: FakePeer, letters: Queue) -> None:
    queue = house.durable("q", **DLX)
    publish(peer, 3)
    deliver(peer, 3)
    press(queue)
    damage(house, "journal", b"1|")
    peer.nack(1, 0, multiple=True, requeue=False)
    assert dead(peer) == [0, 2]
    assert len(house.reports) == 1
    assert queue.keeping is not None
    assert queue.keeping.living() == [(3, 1 << 48)]


def test_dead_letters_are_on_disk_in_one_of_both_queues_at_any_moment(
    house: StoreHouse, peer: FakePeer, letters: Queue
) -> None:
    queue = house.durable("q", **DLX)
    publish(peer, 3)
    deliver(peer, 3)
    press(queue)
    house.disk.stop("read", "journal")
    peer.nack(1, 0, multiple=True, requeue=False)
    house.run_turns()
    assert queue.keeping is not None
    assert queue.keeping.living()[0][:1] == (0,)
    assert queue.count() == 0
    house.kill()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        assert count(other) == 3


def test_expired_messages_from_disk_are_sent_on_in_order(house: StoreHouse, peer: FakePeer, letters: Queue) -> None:
    queue = house.durable("q", **DLX)
    publish(peer, 50, properties=ttl(1_000, True))
    press(queue, stay=3)
    house.clock.advance(2)
    house.run_until_idle()
    assert dead(peer) == list(range(50))


# Limits.


@pytest.mark.parametrize("properties", [PERSISTENT, NO_PROPERTIES], ids=["persistent", "transient"])
def test_a_full_queue_drops_its_head_wherever_that_is(
    house: StoreHouse, peer: FakePeer, letters: Queue, properties: bytes
) -> None:
    queue = house.durable("q", max_length=10, **DLX)
    publish(peer, 10, properties=properties)
    press(queue, stay=1)
    house.run_until_idle()
    for at in range(10, 25, 3):
        publish(peer, at, at + 3, properties=properties)
        press(queue, stay=1)
        house.run_until_idle()
        assert count(peer) == 10
    assert dead(peer) == list(range(15))
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(15, 25))


def test_bytes_of_messages_on_disk_count(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q", max_length_bytes=1_000)
    publish(peer, 0, 1, size=500)
    publish(peer, 1, 5, size=10)
    publish(peer, 5, 6, size=400)
    for _ in range(3):
        press(queue, stay=1)
        house.run_until_idle()
    assert queue.shelves.body_bytes() == 940
    assert get(peer) == 0  # the rest is read back, bit by bit, and counts as much as before
    assert queue.shelves.body_bytes() == 440
    publish(peer, 6, 7, size=500)
    press(queue, stay=1)
    house.run_until_idle()
    assert count(peer) == 6
    publish(peer, 7, 8, size=70)
    house.run_until_idle()
    assert count(peer) == 6
    assert queue.shelves.body_bytes() == 1_000
    peer.consume(1, no_ack=True)
    assert given(peer) == [2, 3, 4, 5, 6, 7]


def test_in_another_life_a_queue_within_its_limit_drops_nothing(house: StoreHouse, peer: FakePeer) -> None:
    house.durable("q", max_length_bytes=1_000)
    long = encode_properties(Properties(delivery_mode=2, headers={"long": "x" * 200}))
    for at in range(10):
        publish(peer, at, at + 1, properties=long, size=10)
    assert count(peer) == 10
    house.kill()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        second.run_until_idle()
        assert count(other) == 10
        publish(other, 10, 20, size=10)
        assert count(other) == 20


def test_a_queue_that_refuses_counts_what_is_on_disk(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q", max_length=10, overflow="reject-publish")
    publish(peer, 10)
    press(queue, stay=1)
    publish(peer, 10, 15)
    assert count(peer) == 10
    assert get(peer) == 0
    publish(peer, 15, 20)
    peer.consume(1, no_ack=True)
    assert given(peer) == [*range(1, 10), 15]


def test_what_a_refusing_queue_gave_away_at_once_does_not_come_back(house: StoreHouse, peer: FakePeer) -> None:
    house.durable("q", max_length=1, overflow="reject-publish")
    peer.consume(1, no_ack=True)
    publish(peer, 5)
    assert given(peer) == list(range(5))
    house.flush()
    house.kill()
    with house.next_life() as second:
        other = second.peer()
        other.open()
        assert count(other) == 0


# Priorities.


def test_higher_priorities_come_first_wherever_they_are(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q", max_priority=3)
    expected: list[int] = []
    for level in range(4):
        properties = encode_properties(Properties(priority=level, delivery_mode=2))
        publish(peer, level * 10, level * 10 + 10, properties=properties)
        expected = [*range(level * 10, level * 10 + 10), *expected]
        press(queue, stay=2)
        house.run_until_idle()
    assert count(peer) == 40
    peer.consume(1, no_ack=True)
    assert given(peer) == expected


def test_the_lowest_priority_leaves_first(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q", max_priority=1)
    for level in range(2):
        publish(peer, 10, properties=encode_properties(Properties(priority=level, delivery_mode=2)))
    press(queue, stay=12)
    assert [backlog.paged_count for backlog in queue.shelves.levels] == [8, 0]


@pytest.mark.parametrize("in_order", [True, False], ids=["stopped", "killed"])
def test_priorities_outlive_the_broker_also_those_that_nobody_used(tmp_path: Path, in_order: bool) -> None:
    with StoreHouse(tmp_path, journal_bytes=500) as house:
        house.durable("q", max_priority=3)
        peer = house.peer()
        peer.open()
        publish(peer, 10, properties=encode_properties(Properties(priority=2, delivery_mode=2)))
        house.flush()
        if in_order:
            house.stop()
        house.kill()
        with house.next_life() as second:
            other = second.peer()
            other.open()
            for level in (0, 1, 3):
                first = 100 * (level + 1)
                publish(
                    other, first, first + 3, properties=encode_properties(Properties(priority=level, delivery_mode=2))
                )
            assert count(other) == 19
            queue = second.vhost.queues["q"]
            assert [backlog.end >> 48 for backlog in queue.shelves.levels] == [0, 1, 2, 3]
            deliver(other, 19)
            other.nack(1, 0, multiple=True)
            assert sorted(given(other)) == sorted([*range(10), *range(100, 103), *range(200, 203), *range(400, 403)])
            second.flush()
            second.kill()
            with second.next_life() as third:
                last = third.peer()
                last.open()
                last.consume(1, no_ack=True)
                assert given(last) == [*range(400, 403), *range(10), *range(200, 203), *range(100, 103)]


# Persistent and transient together.


def test_both_kinds_in_one_queue_leave_and_come_back_in_order(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    for first in range(0, 200, 20):
        publish(peer, first, first + 10, properties=PERSISTENT)
        publish(peer, first + 10, first + 20, properties=NO_PROPERTIES)
        press(queue, stay=3)
        house.run_until_idle()
    assert in_ram(queue) <= 3
    peer.ask(1, BasicQos(0, 5))
    peer.consume(1)
    got = given(peer)
    while len(got) < 200:
        peer.ack(1, len(got), multiple=True)
        got += given(peer)
        press(queue, stay=2)
    assert got == list(range(200))


def test_transient_messages_behind_persistent_ones_on_disk_come_in_their_place(
    house: StoreHouse, peer: FakePeer
) -> None:
    """The log has those before them and the pages have them: what is read in one go must not pass over any."""
    queue = house.durable("q")
    for first in range(0, 100, 10):
        publish(peer, first, first + 10)
    press(queue, stay=1)
    publish(peer, 100, 150, properties=NO_PROPERTIES)
    press(queue, stay=1)
    house.run_until_idle()
    assert in_ram(queue) == 1
    assert [get(peer) for _ in range(150)] == list(range(150))


def test_a_page_that_the_log_has_a_part_of_is_read_as_a_whole(house: StoreHouse, peer: FakePeer) -> None:
    """Or what is paged out again would overlap with what is left of it, and hide it."""
    queue = house.durable("q")
    publish(peer, 3)
    publish(peer, 3, 4)
    publish(peer, 4, 5, properties=NO_PROPERTIES)
    press(queue)  # 1 to 4, of which the log has 1 and 2 in one batch
    house.run_until_idle()
    assert get(peer) == 0
    assert list(queue.shelves.lowest.paged) == []
    publish(peer, 5, 15)
    for _ in range(2):
        press(queue)
        house.run_until_idle()
    assert get(peer) == 1
    press(queue)
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(2, 15))
    assert queue.paging is not None
    assert queue.paging._pages == []


def test_what_is_on_its_way_to_the_pages_is_not_passed_over(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.durable("q")
    publish(peer, 10)
    publish(peer, 10, 20, properties=NO_PROPERTIES)
    publish(peer, 20, 30)
    house.disk.stop("write", "pages")
    press(queue, stay=15)
    press(queue, stay=5)
    peer.consume(1, no_ack=True)
    house.run_turns()
    house.disk.go_on()
    assert given(peer) == list(range(30))


def test_what_could_not_be_written_to_the_pages_is_not_passed_over(house: StoreHouse, peer: FakePeer) -> None:
    """A batch of the log reaches into it, but does not have all of it."""
    queue = house.durable("q")
    publish(peer, 7)
    publish(peer, 7, 30)
    publish(peer, 30, 31, properties=NO_PROPERTIES)
    house.disk.fail("write", "pages")
    assert press(queue, stay=10) == 21
    house.run_until_idle()
    assert press(queue, stay=5) == 5
    house.run_until_idle()
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(31))


def test_pages_that_cannot_be_written_stay_in_ram_and_are_tried_again(house: StoreHouse, peer: FakePeer) -> None:
    queue = house.queue("q")
    publish(peer, 10, properties=NO_PROPERTIES)
    house.disk.fail("write", "pages", number=28)
    press(queue, stay=1)
    house.run_until_idle()
    assert house.reports == ["pages cannot be written: No space left on device"]
    assert count(peer) == 10
    assert get(peer) == 0
    assert get(peer) == 1
    house.clock.advance(RETRY_S)
    house.run_until_idle()
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(2, 10))


def test_files_of_pages_are_removed_when_they_are_read(house: StoreHouse, peer: FakePeer) -> None:
    house.store.pager.file_bytes = 1_000
    queue = house.queue("q")
    for first in range(0, 200, 50):
        publish(peer, first, first + 50, properties=NO_PROPERTIES)
        press(queue, stay=1)
        house.run_until_idle()
    assert len(house.names("pages")) > 2
    peer.consume(1, no_ack=True)
    assert given(peer) == list(range(200))
    assert len(house.names("pages")) == 1


def test_files_of_pages_are_removed_when_their_queue_is(house: StoreHouse, peer: FakePeer) -> None:
    house.store.pager.file_bytes = 1_000
    queue = house.queue("q")
    publish(peer, 200, properties=NO_PROPERTIES)
    for stay in (100, 1):
        press(queue, stay=stay)
        house.run_until_idle()
    assert len(house.names("pages")) == 2
    queue.delete()
    assert len(house.names("pages")) == 1


# Confirms.


def test_a_confirm_leaves_only_after_the_sync_and_only_once_for_a_message_in_doubt(
    house: StoreHouse, peer: FakePeer
) -> None:
    house.durable("q")
    peer.ask(1, ConfirmSelect())
    house.disk.stop("sync", "journal")
    peer.publish(1, "q", b"1|", properties=PERSISTENT)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("sync", "journal"))
    assert not peer.frames
    house.disk.go_on()
    assert peer.methods() == [BasicAck(1, False)]
    house.disk.fail("sync", "journal")
    peer.publish(1, "q", b"2|", properties=PERSISTENT)
    house.run_turns()
    house.posts.run_until(lambda: len(house.troubles) == 2)
    assert peer.methods() == [BasicNack(2, False, True)]  # it may be there or not; nothing else follows
    assert count(peer) == 2
